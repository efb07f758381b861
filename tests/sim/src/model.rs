//! The root alone, with proxies that do exactly what the rules of the design say and choose freely where the rules let
//! them. It checks the script's side without the core, and as its states are small and can be copied, it exhausts
//! millions of them.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::check::{Limit, Promise};
use crate::clock::START;
use crate::explore::Watch;
use crate::root::{Acquire, Reply, Root, Run};

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
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

/// A call ends after so long without a reply.
const TIMEOUT: u64 = 1000;

/// The cases that are explored.
pub fn cases() -> Vec<Case> {
    let budget = Budget { calls: 5, lost: 1, pass: 4, back: 0, forth: 0 };
    let limit = |requests, burst| Limit { requests, period_ms: 1000, burst };
    let case = |name, proxies, limit, budget| Case { name, proxies, limit, changed: None, life_ms: 2000, budget };
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Ask for so many tokens for those who wait, and want so many.
    Ask {
        proxy: usize,
        waiting: u64,
        hold: bool,
        want: u64,
    },
    Spend(usize),
    Reach(usize),
    Back(usize),
    Lose(usize),
    Pass(u64),
    ClockBack(u64),
    ClockForth,
    Lower,
}

#[derive(Clone, Debug, Default, Hash)]
struct Proxy {
    /// Its lease: id, what it is counted with, what is unspent, and when it may not be spent any more.
    end: u64,
    size: u64,
    tokens: u64,
    expires: u64,
    call: Option<Call>,
}

#[derive(Clone, Debug, Hash)]
struct Call {
    acquire: Acquire,
    sent: u64,
    /// Tokens spent of what was reported, since it was sent.
    spent: u64,
    lost: bool,
    reply: Option<Reply>,
}

#[derive(Clone, Debug)]
struct State {
    now: u64,
    /// How far the root's clock is behind.
    behind: u64,
    /// The bucket's time, by which the promise is kept: rule 9. The last that the root's clock has told it, and how long
    /// has passed by it.
    told: u64,
    passed: u64,
    root: Root,
    proxies: Vec<Proxy>,
    /// Calls whose proxies have given up, and which may still reach the root.
    adrift: Vec<Acquire>,
    limit: Limit,
    promise: Promise,
    left: Budget,
    broken: Option<String>,
}

impl State {
    fn new(case: &Case) -> State {
        State {
            now: 0,
            behind: 0,
            told: 0,
            passed: 0,
            root: Root::default(),
            proxies: vec![Proxy::default(); case.proxies],
            adrift: Vec::new(),
            limit: case.limit,
            promise: Promise::new(case.limit, 0),
            left: case.budget,
            broken: None,
        }
    }

    fn clock(&self) -> u64 {
        START + self.now - self.behind
    }

    fn choices(&self, case: &Case) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (number, proxy) in self.proxies.iter().enumerate() {
            if proxy.tokens > 0 && self.now < proxy.expires {
                choices.push(Choice::Spend(number));
            }
            match &proxy.call {
                Some(call) if call.lost => {}
                Some(Call { reply: Some(_), .. }) => {
                    choices.push(Choice::Back(number));
                    if self.left.lost > 0 {
                        choices.push(Choice::Lose(number));
                    }
                }
                Some(_) => {
                    choices.push(Choice::Reach(number));
                    if self.left.lost > 0 {
                        choices.push(Choice::Lose(number));
                    }
                }
                None if self.left.calls > 0 => {
                    let held = if self.now < proxy.expires { proxy.tokens } else { 0 };
                    for (waiting, hold, want) in [
                        (1, false, held),
                        (1, true, held),
                        (2, true, held),
                        (1, true, 0),
                        (0, false, 0),
                        (0, false, held + 2),
                    ] {
                        // A call that neither asks nor has anything to close is none.
                        // Where the root's clock goes forward, leases end early.
                        let may_lend = case.budget.forth == 0;
                        if (waiting + want > 0 || proxy.size > 0) && (may_lend || !hold) {
                            choices.push(Choice::Ask { proxy: number, waiting, hold, want });
                        }
                    }
                    // Those that have done nothing yet are all the same.
                    if proxy.size == 0 && proxy.end == 0 {
                        break;
                    }
                }
                None => {}
            }
        }
        if self.left.pass > 0 {
            choices.extend(self.moments().into_iter().map(Choice::Pass));
        }
        if self.left.back > 0 && self.root.expires_at.is_some() {
            // Within a second, beyond it, and by so much that a lease would end after more than two of its lives.
            choices.extend([900, 1500, 5000].map(Choice::ClockBack));
        }
        if self.left.forth > 0 && self.behind > 0 {
            choices.push(Choice::ClockForth);
        }
        if case.changed.is_some_and(|limit| limit != self.limit) {
            choices.push(Choice::Lower);
        }
        choices
    }

    /// What the bucket's time is now. It stands still while the root's clock is behind it.
    fn time(&self) -> u64 {
        if self.told == 0 { 0 } else { self.passed + self.clock().saturating_sub(self.told) }
    }

    /// A call tells the bucket the root's clock: where that is behind by more than a second, time goes on from there.
    fn tell(&mut self) {
        let clock = self.clock();
        self.passed = self.time();
        if self.told < clock || self.told > clock + 1000 {
            self.told = clock;
        }
    }

    fn moments(&self) -> Vec<u64> {
        let clock = self.clock();
        let token = self.limit.period_ms.div_ceil(self.limit.requests);
        let mut moments = vec![self.now + token];
        let ends = self.root.slots.iter().map(|slot| slot.end);
        for end in ends.chain(self.root.expires_at.map(|at| at + 1)) {
            if end > clock {
                moments.extend([self.now + (end - clock) - 1, self.now + (end - clock)]);
            }
        }
        moments.extend(self.proxies.iter().filter_map(|proxy| Some(proxy.call.as_ref()?.sent + TIMEOUT)));
        moments.retain(|moment| *moment > self.now);
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    fn apply(&mut self, choice: Choice, case: &Case) {
        match choice {
            Choice::Ask { proxy, waiting, hold, want } => self.ask(proxy, waiting, hold, want, case),
            Choice::Spend(number) => {
                let proxy = &mut self.proxies[number];
                proxy.tokens -= 1;
                if let Some(call) = &mut proxy.call {
                    call.spent += 1;
                }
                self.admit(1);
            }
            Choice::Reach(number) => {
                let clock = self.clock();
                self.tell();
                if let Some(call) = &mut self.proxies[number].call {
                    let reply = self.root.acquire(clock, &call.acquire);
                    let granted = if call.acquire.hold { 0 } else { call.acquire.cost(&reply.granted) };
                    call.reply = Some(reply);
                    let (used, lent) = (self.root.used, call.acquire.units(self.root.lent()));
                    if used < lent {
                        self.broken.get_or_insert(format!("{lent} units are lent, and only {used} are used"));
                    }
                    self.admit(granted);
                }
            }
            Choice::Back(number) => self.back(number),
            Choice::Lose(number) => {
                self.left.lost -= 1;
                if let Some(call) = &mut self.proxies[number].call {
                    call.lost = true;
                }
            }
            Choice::Pass(moment) => self.pass(moment),
            Choice::ClockBack(ms) => {
                self.left.back -= 1;
                self.behind += ms;
            }
            Choice::ClockForth => {
                self.left.forth -= 1;
                self.behind = 0;
            }
            Choice::Lower => {
                let limit = case.changed.unwrap_or(self.limit);
                // What was lent under the old limit counts as used under the new one, and may still be spent.
                let clock = self.clock();
                let alive = self.root.slots.iter().filter(|slot| slot.end > clock);
                let lent: u64 = alive.map(|slot| slot.tokens).sum();
                self.promise.change(limit, self.time());
                let (level, ..) = self.promise.state();
                self.promise.forgive(limit.units(lent) - level);
                self.limit = limit;
                // Calls under the old limit would go by it; how many of them are out is not what this is about.
                let out = self.proxies.iter_mut().filter_map(|proxy| Some(&mut proxy.call.as_mut()?.acquire));
                for acquire in out.chain(&mut self.adrift) {
                    (acquire.requests, acquire.burst) = (limit.requests, limit.burst);
                }
            }
        }
        self.check();
    }

    fn ask(&mut self, number: usize, waiting: u64, hold: bool, want: u64, case: &Case) {
        self.left.calls -= 1;
        let (now, limit) = (self.now, self.limit);
        let proxy = &mut self.proxies[number];
        let alive = now < proxy.expires;
        let carry = if alive { proxy.tokens } else { 0 };
        let runs = if waiting > 0 { vec![Run { cost: 1, count: waiting }] } else { Vec::new() };
        let acquire = Acquire {
            requests: limit.requests,
            period_ms: limit.period_ms,
            burst: limit.burst,
            life_ms: case.life_ms,
            lend: limit.burst,
            want,
            end: proxy.end,
            size: proxy.size,
            carry,
            hold,
            debt: 0,
            number: 0,
            runs,
        };
        // What is not wanted any more is not spent while the call is out. Rule 6: nor is anything after the shorter life.
        proxy.tokens = carry.min(want);
        let short = case.life_ms.min((3 * limit.period_ms * limit.burst).div_ceil(limit.requests).max(3000));
        proxy.expires = proxy.expires.min(now + short);
        proxy.call = Some(Call { acquire, sent: now, spent: 0, lost: false, reply: None });
    }

    fn back(&mut self, number: usize) {
        let proxy = &mut self.proxies[number];
        let Some(Call { acquire, sent, spent, reply: Some(reply), .. }) = proxy.call.take() else { return };
        let held = if acquire.hold { acquire.cost(&reply.granted) } else { 0 };
        proxy.tokens = reply.kept.saturating_sub(spent) + reply.extra + held;
        proxy.size = reply.kept + reply.extra + held;
        (proxy.end, proxy.expires) = (reply.end, sent + reply.valid_ms);
    }

    fn pass(&mut self, until: u64) {
        self.left.pass -= 1;
        self.now = until;
        for proxy in &mut self.proxies {
            if let Some(call) = proxy.call.take_if(|call| call.sent + TIMEOUT <= until) {
                // Unknown outcome: all is dropped. What is still on its way arrives after that.
                if !call.lost && call.reply.is_none() {
                    self.adrift.push(call.acquire);
                }
                (proxy.tokens, proxy.size, proxy.end, proxy.expires) = (0, 0, 0, 0);
            }
        }
        for acquire in std::mem::take(&mut self.adrift) {
            self.tell();
            let reply = self.root.acquire(self.clock(), &acquire);
            let granted = if acquire.hold { 0 } else { acquire.cost(&reply.granted) };
            self.admit(granted);
        }
    }

    fn admit(&mut self, tokens: u64) {
        if let Err(units) = self.promise.admit(tokens, self.time()) {
            self.broken.get_or_insert(format!("{units} units more than {:?} allows were admitted", self.limit));
        }
    }

    fn check(&mut self) {
        let clock = self.clock();
        if self.root.expires_at.is_none_or(|at| clock > at) {
            return;
        }
        let at = clock.max(self.root.time);
        let alive: u64 = self.root.slots.iter().filter(|slot| slot.end > at).map(|slot| slot.tokens).sum();
        let proxies = self.proxies.iter();
        let held: u64 = proxies.filter(|proxy| self.now < proxy.expires).map(|proxy| proxy.tokens).sum();
        if held > alive {
            self.broken.get_or_insert(format!("proxies hold {held} tokens, and only {alive} are lent"));
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, self.behind, self.told, self.passed, &self.root, &self.proxies, &self.adrift).hash(&mut hasher);
        (self.limit, self.promise.state(), self.left).hash(&mut hasher);
        hasher.finish()
    }
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

/// What an exploration has come to.
pub struct Explored {
    pub states: usize,
    /// Nothing is left to explore within the budget.
    pub is_all: bool,
    pub broken: Option<String>,
    /// The choices that break it, in words.
    pub log: Vec<String>,
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
