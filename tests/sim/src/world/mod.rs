//! The world around the core: proxies with workers that share a table, a network, the limiter, and time.
//!
//! The core is the real one. The world performs its steps as a host does, makes everything around it go wrong as the
//! scenario says, and looks at each step whether what must hold still does.

mod asking;
mod checks;
mod faults;
mod limits;
mod network;
mod outcomes;
mod requests;
mod workers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use weir::clock::Clock;
use weir::engine::plan::Plan;
use weir::engine::{CallId, Engine, Ticket};
use weir::local::table::WAYS;
use weir::policy::Policy;
use weir::rules::Ask;

pub use asking::{asks, rule_and_tenant};
use limits::promised;
pub use outcomes::{Outcomes, Sample, Tally};

use crate::check::{Holding, Limit, Promise, Violation};
use crate::clock::WrongClock;
use crate::demand::Demand;
use crate::faults::Kind;
use crate::limiter::Limiter;
use crate::random::Random;
use crate::root::Reply;
use crate::scenario::{Arrival, Mode, Scenario, Way};
use crate::wire::Sent;

macro_rules! note {
    ($world:expr, $($told:tt)*) => {
        if let Some(log) = &mut $world.log {
            log.push(format!("{:>12.3} ms  {}", $world.now as f64 / 1000.0, format_args!($($told)*)));
        }
    };
}
use note;

/// A worker, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    proxy: u16,
    worker: u16,
    life: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Tick(Spot),
    Woken(Spot),
    /// A call reaches the limiter, for the first time or again.
    Reach(u32, bool),
    /// The reply to its first or second execution comes back.
    Back(u32, bool),
    /// The host ends the call.
    GiveUp(u32),
    Leave(u32),
    Fault(u32),
    Revive(u16),
    NewPlan(Spot, u16),
    /// A limit is in force no more.
    Settle,
}

struct Proxy {
    shared: crate::shared::Shared,
    clock: WrongClock,
    workers: Vec<Worker>,
    up: bool,
    partition: (u64, bool),
    /// How much later deadlines may be kept, because the clock went back: in microseconds.
    lag: u64,
    holdings: BTreeMap<u32, Holding>,
    /// Its table was wiped, so that it may have two, and two leases at a bucket.
    wiped: bool,
    wipes: usize,
}

struct Worker {
    life: u16,
    flow: Engine<u32>,
    plan: Rc<Plan>,
    limit: usize,
    clock: Clock,
    /// By bucket, cost and tier.
    asks: BTreeMap<(u32, u64, usize), Vec<Ask>>,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    spot: Spot,
    bucket: u32,
    cost: u64,
    arrived: u64,
    ticket: Ticket,
    /// The plan that it came with, and the limit under which it asks its first bucket.
    plan: u64,
    limit: (u64, u64),
    /// The call that asks for it.
    call: Option<u32>,
}

/// A call on its way.
struct Message {
    spot: Spot,
    id: CallId,
    sent: Sent,
    bucket: u32,
    sent_at: u64,
    /// The proxy's [`Holding::turn`] since.
    turn: u32,
    ends: u64,
    way: Way,
    /// The proxy has been told how it ended.
    over: bool,
    replies: [Option<(String, Option<Reply>)>; 2],
    /// Events that name it.
    events: u8,
}

/// What is known of a bucket from outside.
struct Bucket {
    promise: Promise,
    /// That of the largest limit there ever is, which no change of limits excuses.
    ever: Promise,
    ideal: Promise,
    stranded_since: Option<u64>,
    mode: Mode,
    /// Tokens that the root has granted or lent and that are not back, and those that requests have got.
    out: i128,
    got: i128,
    /// Some were granted for good to requests that wait for other buckets, too.
    is_loose: bool,
}

/// Tokens that were granted for good to requests that wait for other buckets, too.
struct Credit {
    spot: Spot,
    bucket: u32,
    tokens: u64,
    until: u64,
}

pub struct World<'s> {
    scenario: &'s Scenario,
    demand: Box<dyn Demand + 's>,
    next: Option<Arrival>,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    chance: Random,
    proxies: Vec<Proxy>,
    limiter: Limiter,
    policies: Vec<Option<Policy>>,
    /// The limit of new plans, and older ones with the moment until which they may still be used.
    limit: usize,
    older: Vec<(usize, u64)>,
    plans: u64,
    waiting: Vec<Option<Waiting>>,
    /// Numbers of requests that may be used again, where runs are too long to keep all.
    free: Vec<u32>,
    messages: BTreeMap<u32, Message>,
    message: u32,
    /// The last replies of the script, and to which calls.
    past: VecDeque<(u32, String)>,
    buckets: Vec<Bucket>,
    credits: Vec<Credit>,
    /// Nothing has happened for which the promise has a slack.
    strict: bool,
    /// How far the root's clock was set back in all, in ms.
    behind: u64,
    is_long: bool,
    log: Option<Vec<String>>,
    violation: Option<Violation>,
    pub tally: Tally,
}

impl<'s> World<'s> {
    /// Runs a scenario; a log is kept where it is wanted.
    pub fn run(scenario: &'s Scenario, demand: Box<dyn Demand + 's>, is_long: bool, log: bool) -> Outcomes {
        let mut world = World::new(scenario, demand, is_long, log);
        world.start();
        let mut before = None;
        while world.violation.is_none() {
            let Some(Reverse((at, _, event))) = world.queue.pop() else { break };
            world.now = at;
            world.tally.steps += 1;
            if before.is_none() && at >= scenario.counts_from {
                before = Some(world.tally.clone());
            }
            world.happen(event);
            if world.now >= scenario.ends && world.is_quiet() {
                break;
            }
        }
        if world.violation.is_none() {
            world.end();
        }
        let tally = world.tally.since(&before.unwrap_or_default());
        Outcomes { violation: world.violation, tally, log: world.log.unwrap_or_default() }
    }

    /// Runs a scenario, and looks at its first bucket every so many microseconds.
    pub fn sampled(scenario: &'s Scenario, demand: Box<dyn Demand + 's>, every: u64) -> Vec<Sample> {
        let mut world = World::new(scenario, demand, true, false);
        world.start();
        let mut samples = Vec::new();
        while let Some(Reverse((at, _, event))) = world.queue.pop()
            && at < scenario.ends
        {
            while samples.len() as u64 * every <= at {
                world.now = samples.len() as u64 * every;
                samples.push(world.sample());
            }
            world.now = at;
            world.happen(event);
        }
        samples
    }

    fn sample(&mut self) -> Sample {
        let (clock, limit) = (self.limiter.time(self.now).0, self.scenario.limit(0, 0));
        let missing = self.limiter.missing(0, limit, self.buckets[0].promise.window);
        let lent = self.limiter.lent(0);
        let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&0));
        let unspent: u64 = held.map(|holding| holding.unspent(clock)).sum();
        let level = (limit.capacity() - missing).min(limit.capacity() - limit.units(lent));
        Sample { level: level as f64 / limit.period_ms as f64, lent: lent as f64, unspent: unspent as f64 }
    }

    fn new(scenario: &'s Scenario, demand: Box<dyn Demand + 's>, is_long: bool, log: bool) -> World<'s> {
        let loses_writes = scenario.faults.iter().any(|fault| matches!(fault.kind, Kind::Failover { .. }));
        let is_window = scenario.windows.is_some();
        let bucket = |number| {
            let rule = scenario.rule(number);
            let mode = scenario.modes[rule as usize];
            let limit = scenario.tier_limits(rule, 0).fold(scenario.limit(rule, 0), Limit::loosest);
            Bucket {
                promise: Promise::of(promised(scenario, mode, limit), is_window),
                ever: Promise::of(promised(scenario, mode, scenario.largest(rule)), is_window),
                ideal: Promise::of(limit, is_window),
                stranded_since: None,
                mode,
                out: 0,
                got: 0,
                is_loose: false,
            }
        };
        World {
            scenario,
            demand,
            next: None,
            now: 0,
            queue: BinaryHeap::new(),
            events: 0,
            chance: Random::new(scenario.seed, 1),
            proxies: Vec::new(),
            limiter: Limiter::new(scenario.roots(), is_window, scenario.drifts[0], loses_writes),
            policies: vec![None; scenario.limits.0.len()],
            limit: 0,
            older: Vec::new(),
            plans: 0,
            waiting: Vec::new(),
            free: Vec::new(),
            messages: BTreeMap::new(),
            past: VecDeque::new(),
            message: 0,
            buckets: (0..scenario.roots()).map(bucket).collect(),
            credits: Vec::new(),
            strict: true,
            behind: 0,
            is_long,
            log: log.then(Vec::new),
            violation: None,
            tally: Tally::default(),
        }
    }

    fn start(&mut self) {
        for number in 0..self.scenario.proxies {
            let shared = crate::shared::Shared::default();
            let clock = WrongClock::new(i64::from(number) * 7, self.scenario.drifts[usize::from(number) + 1]);
            let holdings = BTreeMap::new();
            let proxy = Proxy {
                shared,
                clock,
                workers: Vec::new(),
                up: true,
                partition: (0, false),
                lag: 0,
                holdings,
                // One that is too small forgets leases as if it were wiped.
                wiped: u64::from(self.scenario.roots()) > WAYS as u64 && !self.is_long,
                wipes: 0,
            };
            self.proxies.push(proxy);
            for worker in 0..self.scenario.workers {
                let spot = Spot { proxy: number, worker, life: 0 };
                let worker = self.born(spot);
                self.proxies[usize::from(number)].workers.push(worker);
            }
        }
        for (number, fault) in self.scenario.faults.iter().enumerate() {
            self.at(fault.at, Event::Fault(number as u32));
        }
        self.expect_arrival();
    }

    fn at(&mut self, at: u64, event: Event) {
        self.events += 1;
        self.queue.push(Reverse((at, self.events, event)));
    }

    fn expect_arrival(&mut self) {
        self.next = self.demand.next();
        if let Some(next) = self.next {
            self.at(next.at.max(self.now), Event::Arrive);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive => {
                if let Some(arrival) = self.next {
                    self.arrive(arrival);
                }
                self.expect_arrival();
            }
            Event::Tick(spot) => self.tick(spot),
            Event::Woken(spot) => self.drive(spot, None, |flow, now| flow.on_wake_by_other(now)),
            Event::Reach(message, again) => self.reach(message, again),
            Event::Back(message, again) => self.back(message, again),
            Event::GiveUp(message) => self.give_up(message),
            Event::Leave(request) => self.leave(request),
            Event::Fault(number) => self.fault(self.scenario.faults[number as usize].kind),
            Event::Revive(proxy) => self.revive(proxy),
            Event::NewPlan(spot, limit) => self.new_plan(spot, usize::from(limit)),
            Event::Settle => self.settle(),
        }
    }

    fn violate(&mut self, what: String) {
        note!(self, "BROKEN: {what}");
        self.violation.get_or_insert(Violation { at: self.now, what });
    }

    fn is_quiet(&self) -> bool {
        self.next.is_none()
            && self.messages.is_empty()
            && self.proxies.iter().all(|proxy| proxy.up && proxy.workers.iter().all(|worker| worker.flow.is_idle()))
    }
}
