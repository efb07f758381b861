//! Every order of small cases: which request comes next and where, which message arrives, is lost, late or doubled,
//! who leaves or dies, and how long nothing happens.
//!
//! A state is reached by playing its choices from the start, since the core cannot be copied. A state that was seen
//! with at least as many choices left is not looked at again: what the workers keep is told from what they have shown
//! (calls, waiting requests, shared data), their chance apart. Depth grows step by step, so what is found is short.

mod cases;
mod choices;
mod play;
mod state;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;

pub use cases::{Budget, Case, cases};
use state::{Ground, Small};

/// How long it has taken, for progress and for limits of time; results do not depend on it.
pub struct Watch {
    started: std::time::Instant,
    most: Option<u64>,
}

#[expect(clippy::disallowed_methods, reason = "this is no part of the core, and only progress depends on it")]
impl Watch {
    pub fn new(most: Option<u64>) -> Watch {
        Watch { started: std::time::Instant::now(), most }
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub fn is_over(&self) -> bool {
        self.most.is_some_and(|most| self.seconds() >= most as f64)
    }
}

/// What an exploration has come to.
pub struct Explored {
    pub states: u64,
    pub depth: usize,
    /// Nothing is left to explore within the budget.
    pub is_all: bool,
    /// The choices that break something, in words, and what breaks.
    pub violation: Option<(Vec<String>, String)>,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let all = if self.is_all { "all " } else { "" };
        write!(f, "{all}{} states, all to depth {}", self.states, self.depth)
    }
}

struct Search<'c> {
    ground: &'c Ground,
    watch: &'c Watch,
    seen: HashMap<u64, u8, std::hash::BuildHasherDefault<DefaultHasher>>,
    path: Vec<u16>,
    states: u64,
    broken: bool,
    over: bool,
    /// Some state had more choices than the depth allows.
    cut: bool,
}

impl<'c> Search<'c> {
    fn play(&self, log: bool) -> Small<'c> {
        let mut small = Small::new(self.ground, log);
        for choice in &self.path {
            let choice = small.choices()[usize::from(*choice)];
            small.apply(choice);
        }
        small
    }

    fn visit(&mut self, small: Small<'c>, depth: usize) {
        let choices = small.choices();
        if depth == 0 {
            self.cut |= !choices.is_empty();
            return;
        }
        // The first choice goes on from here; for the others the way here is played anew.
        let mut here = Some(small);
        for (number, choice) in choices.into_iter().enumerate() {
            let mut next = here.take().unwrap_or_else(|| self.play(false));
            self.path.push(number as u16);
            next.apply(choice);
            if next.violation.is_some() {
                self.broken = true;
                return;
            }
            let left = depth as u8;
            let seen = self.seen.entry(next.digest()).or_insert(0);
            if *seen < left {
                self.states += u64::from(*seen == 0);
                *seen = left;
                self.visit(next, depth - 1);
            }
            if self.broken || self.over {
                return;
            }
            self.path.pop();
            self.over = self.watch.is_over();
        }
    }
}

/// Explores one case, deeper and deeper, until a depth or the time is reached or something breaks.
pub fn explore(case: &Case, watch: &Watch) -> Explored {
    let ground = Ground::new(case.clone());
    let mut best = Explored { states: 0, depth: 0, is_all: false, violation: None };
    for depth in (4..=case.depth).step_by(2) {
        let mut search = Search {
            ground: &ground,
            watch,
            seen: HashMap::default(),
            path: Vec::new(),
            states: 0,
            broken: false,
            over: false,
            cut: false,
        };
        search.visit(Small::new(&ground, false), depth);
        if search.broken {
            let small = search.play(true);
            let violation = Some((small.log.unwrap_or_default(), small.violation.unwrap_or_default()));
            return Explored { states: search.states, depth, is_all: false, violation };
        }
        best.states = best.states.max(search.states);
        if search.over {
            break;
        }
        best.depth = depth;
        best.is_all = !search.cut;
        if best.is_all {
            break;
        }
    }
    best
}

/// Explores all cases, or the named one. Returns whether nothing breaks.
pub fn all(depth: Option<usize>, seconds: Option<u64>, name: Option<&str>) -> bool {
    let mut is_well = true;
    for mut case in cases() {
        if name.is_some_and(|name| !case.name.contains(name)) {
            continue;
        }
        case.depth = depth.unwrap_or(case.depth);
        let watch = Watch::new(seconds);
        let explored = explore(&case, &watch);
        println!("{}: {explored}, {:.1} s", case.name, watch.seconds());
        if let Some((log, what)) = explored.violation {
            println!("BROKEN: {what}");
            log.iter().for_each(|line| println!("{line}"));
            is_well = false;
        }
    }
    is_well
}
