//! The root alone, with proxies that do exactly what the rules of the design say and choose freely where the rules let
//! them. It checks the script's side without the core, and as its states are small and can be copied, it exhausts
//! millions of them.

mod state;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use state::{Choice, State};

use crate::check::Limit;
use crate::explore::Watch;
use crate::root::Algorithm;

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub algorithm: Algorithm,
    pub proxies: usize,
    pub limit: Limit,
    /// Other limits that calls may carry from some moment on.
    pub changed: Option<Limit>,
    pub life_ms: u64,
    pub budget: Budget,
}

/// How often each of these may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub calls: u8,
    pub lost: u8,
    pub pass: u8,
    /// The root's clock is set back.
    pub back: u8,
    /// It is set right again, before it has caught up by itself.
    pub forth: u8,
}

/// The cases that are explored.
pub fn cases() -> Vec<Case> {
    let budget = Budget { calls: 5, lost: 1, pass: 4, back: 0, forth: 0 };
    let limit = |requests, burst| Limit { requests, period_ms: 1000, burst };
    let case = |name, proxies, limit, budget| Case {
        name,
        algorithm: Algorithm::TokenBucket,
        proxies,
        limit,
        changed: None,
        life_ms: 2000,
        budget,
    };
    vec![
        case("model: 2 proxies, burst 2", 2, limit(1, 2), budget),
        case(
            "model: 2 proxies, burst 3, a clock that goes back",
            2,
            limit(1, 3),
            Budget { back: 1, pass: 3, ..budget },
        ),
        case(
            "model: a proxy, burst 1, a clock that goes back and forth",
            1,
            limit(2, 1),
            Budget { calls: 3, lost: 0, pass: 1, back: 1, forth: 1 },
        ),
        case("model: 2 proxies, burst 4", 2, limit(2, 4), Budget { calls: 4, ..budget }),
        case("model: 3 proxies, burst 2", 3, limit(1, 2), Budget { calls: 4, ..budget }),
        Case {
            algorithm: Algorithm::FixedWindow,
            ..case("model: a window, 2 proxies, 2 requests", 2, limit(2, 2), Budget { pass: 3, ..budget })
        },
        Case {
            algorithm: Algorithm::FixedWindow,
            ..case(
                "model: a window, 2 proxies, whose clock goes back",
                2,
                Limit { period_ms: 2000, ..limit(2, 2) },
                Budget { calls: 3, lost: 0, back: 1, pass: 2, ..budget },
            )
        },
        Case {
            algorithm: Algorithm::FixedWindow,
            changed: Some(limit(1, 1)),
            ..case("model: a window, lowered from 4 to 1", 2, limit(4, 4), Budget { calls: 4, pass: 3, ..budget })
        },
        Case {
            changed: Some(limit(1, 1)),
            ..case(
                "model: 2 proxies, burst lowered from 4 to 1",
                2,
                limit(1, 4),
                Budget { calls: 4, pass: 3, ..budget },
            )
        },
    ]
}

/// What an exploration has come to.
pub struct Explored {
    pub states: usize,
    /// Nothing is left to explore within the budget.
    pub is_all: bool,
    pub broken: Option<String>,
    /// The choices that break it, in words.
    pub log: Vec<String>,
}

struct Search<'c> {
    case: &'c Case,
    watch: &'c Watch,
    seen: HashMap<u64, (), BuildHasherDefault<DefaultHasher>>,
    path: Vec<Choice>,
    broken: Option<String>,
}

impl Search<'_> {
    fn visit(&mut self, state: &State) {
        for choice in state.choices(self.case) {
            if self.broken.is_some() || self.watch.is_over() {
                return;
            }
            let mut next = state.clone();
            next.apply(choice, self.case);
            self.path.push(choice);
            if next.broken.is_some() {
                self.broken = next.broken;
                return;
            }
            if self.seen.insert(next.digest(), ()).is_none() {
                self.visit(&next);
            }
            if self.broken.is_none() {
                self.path.pop();
            }
        }
    }
}

/// Explores one case with at most so many calls: from few to many, so that what is found is short.
pub fn explore(case: &Case, most_calls: u8, watch: &Watch) -> Explored {
    let mut search = Search { case, watch, seen: HashMap::default(), path: Vec::new(), broken: None };
    let mut start = State::new(case);
    for calls in 2..=most_calls {
        search.seen.clear();
        start.left.calls = calls;
        search.visit(&start);
        if search.broken.is_some() || watch.is_over() {
            break;
        }
    }
    let mut log = Vec::new();
    if search.broken.is_some() {
        let mut state = start.clone();
        for choice in search.path {
            state.apply(choice, case);
            log.push(format!("{:>6} ms  {choice:?}\n           {:?}", state.now, state.root));
        }
    }
    Explored { states: search.seen.len(), is_all: !watch.is_over(), broken: search.broken, log }
}

/// Explores all cases, or the named ones, with so many calls at most. Returns whether nothing breaks.
pub fn all(calls: Option<u8>, seconds: Option<u64>, name: Option<&str>) -> bool {
    let mut is_well = true;
    for case in cases().iter().filter(|case| name.is_none_or(|name| case.name.contains(name))) {
        let watch = Watch::new(seconds);
        let explored = explore(case, calls.unwrap_or(case.budget.calls), &watch);
        let all = if explored.is_all { "all " } else { "" };
        println!("{}: {all}{} states, {:.1} s", case.name, explored.states, watch.seconds());
        if let Some(what) = explored.broken {
            println!("BROKEN: {what}");
            explored.log.iter().for_each(|line| println!("{line}"));
            is_well = false;
        }
    }
    is_well
}
