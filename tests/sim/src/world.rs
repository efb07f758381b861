//! The world around the core: proxies with workers that share a table, a network, the limiter, and time.
//!
//! The core is the real one. The world performs its steps as a host does, makes everything around it go wrong as the
//! scenario says, and looks at each step whether what must hold still does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use weir::clock::{Clock, Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival as Outcome, Call, CallId, CallOwner, Decision, Flow, Step, Ticket, Verdict, decide};
use weir::limiter::{Failure, HttpEnd};
use weir::local::table::{SET_BYTES, WAYS};
use weir::policy::Policy;
use weir::request::Request;
use weir::response::Answer;
use weir::rules::Ask;

use crate::chance::Chance;
use crate::check::{Holding, Limit, Promise, Violation};
use crate::clock::WrongClock;
use crate::demand::Demand;
use crate::faults::Kind;
use crate::limiter::Limiter;
use crate::root::{Acquire, Reply};
use crate::scenario::{Arrival, Mode, Scenario, Way};
use crate::wire::{self, Sent};

/// What a run comes to.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    pub violation: Option<Violation>,
    pub tally: Tally,
    pub log: Vec<String>,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    /// Tokens that requests have got, and what one ideal bucket for each tenant would have given the same requests.
    pub admitted: u64,
    pub ideal: u64,
    pub refused: u64,
    pub failed: u64,
    pub waited: u64,
    pub calls: u64,
    /// Tokens over the promise, slack apart.
    pub over: u64,
    /// The longest time, in microseconds, for which a bucket refused while its tokens lay idle elsewhere.
    pub stranded: u64,
    pub steps: u64,
}

impl Tally {
    /// What has come since an earlier moment; what is a longest or a sum of wrongs counts from the start.
    fn since(self, before: &Tally) -> Tally {
        Tally {
            requests: self.requests - before.requests,
            admitted: self.admitted - before.admitted,
            ideal: self.ideal - before.ideal,
            refused: self.refused - before.refused,
            failed: self.failed - before.failed,
            waited: self.waited - before.waited,
            calls: self.calls - before.calls,
            ..self
        }
    }
}

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
    flow: Flow<u32>,
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

/// A bucket at some moment: tokens in it, lent, and unspent of those.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub level: f64,
    pub lent: f64,
    pub unspent: f64,
}

pub struct World<'s> {
    scenario: &'s Scenario,
    demand: Box<dyn Demand + 's>,
    next: Option<Arrival>,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    chance: Chance,
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

/// A request of the simulator: its tenant of each rule, its cost and its tier.
struct Asking([u32; 3], u64, usize);

impl Request for Asking {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "k0" => Some(format!("t{}", self.0[0]).into_bytes()),
            "k1" => Some(format!("t{}", self.0[1]).into_bytes()),
            "k2" => Some(format!("t{}", self.0[2]).into_bytes()),
            "tier" => Some(format!("t{}", self.2).into_bytes()),
            ":path" => Some(format!("/{}", self.1).into_bytes()),
            _ => None,
        }
    }

    fn is_doubled(&self, _name: &str) -> bool {
        false
    }

    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

/// The rule and the tenant in the key of a bucket: see [`Asking`].
pub fn rule_and_tenant(key: &str) -> Option<(u32, u32)> {
    let (_, rest) = key.split_once(".t")?;
    let (tenant, rest) = rest.split_once("}:r")?;
    Some((rest.split_once(':')?.0.parse().ok()?, tenant.parse().ok()?))
}

/// What the core asks for a request of this tenant, this cost and this tier.
pub fn asks(policy: &Policy, scenario: &Scenario, bucket: u32, cost: u64, tier: usize) -> Vec<Ask> {
    match decide(policy, &Asking([0, 1, 2].map(|rule| scenario.tenant(rule, bucket)), cost, tier)) {
        Decision::Ask(asks, _) => asks,
        Decision::Answer(verdict) => panic!("the simulator's policies limit everything: {verdict:?}"),
    }
}

macro_rules! note {
    ($world:expr, $($told:tt)*) => {
        if let Some(log) = &mut $world.log {
            log.push(format!("{:>12.3} ms  {}", $world.now as f64 / 1000.0, format_args!($($told)*)));
        }
    };
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
        let missing = self.limiter.missing(0, limit);
        let lent = self.limiter.lent(0);
        let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&0));
        let unspent: u64 = held.map(|holding| holding.unspent(clock)).sum();
        let level = (limit.capacity() - missing).min(limit.capacity() - limit.units(lent));
        Sample { level: level as f64 / limit.period_ms as f64, lent: lent as f64, unspent: unspent as f64 }
    }

    fn new(scenario: &'s Scenario, demand: Box<dyn Demand + 's>, is_long: bool, log: bool) -> World<'s> {
        let loses_writes = scenario.faults.iter().any(|fault| matches!(fault.kind, Kind::Failover { .. }));
        let bucket = |number| {
            let rule = scenario.rule(number);
            let mode = scenario.modes[rule as usize];
            let limit = scenario.tier_limits(rule, 0).fold(scenario.limit(rule, 0), Limit::loosest);
            Bucket {
                promise: Promise::new(promised(scenario, mode, limit), 0),
                ever: Promise::new(promised(scenario, mode, scenario.largest(rule)), 0),
                ideal: Promise::new(limit, 0),
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
            chance: Chance::new(scenario.seed, 1),
            proxies: Vec::new(),
            limiter: Limiter::new(scenario.roots(), scenario.drifts[0], loses_writes),
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

    /// A worker starts to live, with the newest policy.
    fn born(&mut self, spot: Spot) -> Worker {
        let plan = self.plan(spot.proxy, self.limit);
        let shared = self.proxies[usize::from(spot.proxy)].shared.clone();
        let period = Flow::<u32>::tick_period(&plan.policy).0 * 1000;
        let first = self.now + self.chance.below(period);
        self.at(first, Event::Tick(spot));
        let mut flow = Flow::new(CallOwner::Root, self.chance.draw(), Box::new(shared), u32::from(spot.worker));
        // Accounts are kept of decisions, so each is told in the callback that makes it.
        flow.finish_at_most(usize::MAX);
        Worker { life: spot.life, flow, plan, limit: self.limit, clock: Clock::default(), asks: BTreeMap::new() }
    }

    fn plan(&mut self, proxy: u16, limit: usize) -> Rc<Plan> {
        let policy = self.policies[limit].get_or_insert_with(|| self.scenario.policy(limit)).clone();
        self.plans += 1;
        let random = (self.chance.draw(), self.chance.draw());
        Rc::new(Plan::new(self.plans, policy, &self.proxies[usize::from(proxy)].shared, random))
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
            Event::Woken(spot) => self.drive(spot, None, |flow, now| flow.woken_by_other(now)),
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

    fn worker(&mut self, spot: Spot) -> Option<&mut Worker> {
        let proxy = &mut self.proxies[usize::from(spot.proxy)];
        let worker = proxy.workers.get_mut(usize::from(spot.worker))?;
        (proxy.up && worker.life == spot.life).then_some(worker)
    }

    /// What a worker's clock says.
    fn time(&mut self, spot: Spot) -> Now {
        let proxy = &mut self.proxies[usize::from(spot.proxy)];
        proxy.workers[usize::from(spot.worker)].clock.read(Ms(proxy.clock.ms(self.now)))
    }

    /// Tells a flow something and performs what it wants. `reply`: of which call the steps are the consequence.
    fn drive(
        &mut self,
        spot: Spot,
        reply: Option<(u32, bool)>,
        tell: impl FnOnce(&mut Flow<u32>, Now) -> Vec<Step<u32>>,
    ) {
        if self.worker(spot).is_none() {
            return;
        }
        let now = self.time(spot);
        let worker = &mut self.proxies[usize::from(spot.proxy)].workers[usize::from(spot.worker)];
        let steps = tell(&mut worker.flow, now);
        if !steps.is_empty() || reply.is_some() {
            self.perform(spot, steps, reply);
        }
    }

    fn tick(&mut self, spot: Spot) {
        let now = self.time(spot);
        let Some(worker) = self.worker(spot) else {
            return;
        };
        let plan = worker.plan.clone();
        worker.flow.refresh(&plan, now);
        self.drive(spot, None, |flow, now| flow.tick(now));
        self.at(self.now + Flow::<u32>::tick_period(&plan.policy).0 * 1000, Event::Tick(spot));
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { proxy, worker, bucket, cost, tier, patience, .. } = arrival;
        let proxy_now = &self.proxies[usize::from(proxy)];
        if !proxy_now.up {
            return;
        }
        let spot = Spot { proxy, worker, life: proxy_now.workers[usize::from(worker)].life };
        let now = self.time(spot);
        let request = self.free.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() as u32 - 1
        });
        self.tally.requests += 1;
        let here = self.limiter.time(self.now).1;
        let asked = self.scenario.asked(bucket);
        let fits = asked.clone().all(|root| self.buckets[root as usize].ideal.clone().take(cost, here));
        asked.for_each(|root| self.buckets[root as usize].ideal.take_if(fits, cost, here));
        self.tally.ideal += if fits { cost } else { 0 };
        let worker = &mut self.proxies[usize::from(proxy)].workers[usize::from(worker)];
        let plan = worker.plan.clone();
        let fresh = || asks(&plan.policy, self.scenario, bucket, cost, tier);
        let asks = worker.asks.entry((bucket, cost, tier)).or_insert_with(fresh).clone();
        let limit = (asks[0].limit.requests(), asks[0].limit.burst());
        let (outcome, steps) = worker.flow.arrive(&plan, asks, vec![], request, now);
        match outcome {
            Outcome::Decided(Verdict { answer, .. }) => {
                note!(self, "request {request} for {cost} of {bucket} at {proxy}: {}", told(&answer));
                self.forget(request);
                if self.answered(bucket, cost, &answer) {
                    self.scenario.asked(bucket).for_each(|root| self.spend(proxy, root, cost));
                }
            }
            Outcome::Waits(ticket) => {
                note!(self, "request {request} for {cost} of {bucket} at {proxy} waits");
                self.tally.waited += 1;
                self.waiting[request as usize] =
                    Some(Waiting { spot, bucket, cost, arrived: self.now, ticket, plan: plan.id, limit, call: None });
                if patience > 0 {
                    self.at(self.now + u64::from(patience), Event::Leave(request));
                }
            }
        }
        self.perform(spot, steps, None);
    }

    /// The number of a request may be used again, where not all can be kept.
    fn forget(&mut self, request: u32) {
        if self.is_long {
            self.free.push(request);
        }
    }

    fn leave(&mut self, request: u32) {
        let Some(waiting) = self.waiting[request as usize].take() else {
            return;
        };
        note!(self, "request {request} leaves");
        if let Some(worker) = self.worker(waiting.spot) {
            worker.flow.left(waiting.ticket);
        }
        self.forget(request);
    }

    fn perform(&mut self, spot: Spot, steps: Vec<Step<u32>>, reply: Option<(u32, bool)>) {
        // What the root has granted to those for whom this call asked; the rest is spent here.
        let granted = reply.and_then(|(number, again)| {
            let message = self.messages.get(&number)?;
            let (_, reply) = message.replies[usize::from(again)].as_ref()?;
            let call = &message.sent.acquire;
            let granted = if call.hold { 0 } else { call.cost(&reply.as_ref()?.granted) };
            Some((number, granted))
        });
        let (number, mut granted) = granted.unwrap_or((u32::MAX, 0));
        let has_one_rule = self.scenario.modes.len() == 1;
        if !has_one_rule && granted > 0 {
            // Each of those has its answer by its deadline.
            let until = self.now + (self.scenario.timeout_ms + 60) * 1000;
            let bucket = self.messages[&number].bucket;
            self.credits.push(Credit { spot, bucket, tokens: granted, until });
            self.buckets[bucket as usize].is_loose = true;
        }
        for step in steps {
            match step {
                Step::Wake => self.wake(spot),
                Step::WakeOthers(others) => self.wake_others(spot, others),
                Step::Call(call) => self.send(spot, call),
                Step::Finish(request, Verdict { answer, .. }) => {
                    let Some((bucket, cost, call)) = self.finish(spot, request, &answer) else { continue };
                    if has_one_rule && call == Some(number) && granted >= cost {
                        granted -= cost;
                        self.buckets[bucket as usize].got += i128::from(cost);
                        continue;
                    }
                    for root in self.scenario.asked(bucket) {
                        let credit = self.credit(spot, root, cost);
                        self.buckets[root as usize].got += i128::from(credit);
                        if cost > credit {
                            self.spend(spot.proxy, root, cost - credit);
                        }
                    }
                }
                Step::Count(..) => {}
            }
        }
    }

    /// How much of a cost the root has granted to those who wait for several buckets.
    fn credit(&mut self, spot: Spot, bucket: u32, cost: u64) -> u64 {
        let (now, mut missing) = (self.now, cost);
        self.credits.retain(|credit| credit.until >= now && credit.tokens > 0);
        for credit in self.credits.iter_mut().filter(|credit| (credit.spot, credit.bucket) == (spot, bucket)) {
            let taken = missing.min(credit.tokens);
            credit.tokens -= taken;
            missing -= taken;
        }
        cost - missing
    }

    /// A call asks for the first of those who wait in the same line, apart from those for whom another call asks.
    fn asks_for(&mut self, spot: Spot, plan: u64, bucket: u32, number: u32, call: &Acquire) {
        let messages = &self.messages;
        let is_out = |call: u32| messages.get(&call).is_some_and(|message| !message.over);
        let in_line = |waiting: &&mut Waiting| {
            (waiting.spot, waiting.plan, waiting.bucket) == (spot, plan, bucket)
                && waiting.limit == (call.requests, call.burst)
                && !waiting.call.is_some_and(is_out)
        };
        let mut line: Vec<&mut Waiting> = self.waiting.iter_mut().flatten().filter(in_line).collect();
        line.sort_by_key(|waiting| waiting.arrived);
        let requests: u64 = call.runs.iter().map(|run| run.count).sum();
        line.into_iter().take(requests as usize).for_each(|waiting| waiting.call = Some(number));
    }

    fn wake(&mut self, spot: Spot) {
        let soon = self.chance.below(50);
        if !self.chance.thousandths(self.scenario.network.lost_wakes) {
            self.at(self.now + soon, Event::Woken(spot));
        }
    }

    fn wake_others(&mut self, spot: Spot, others: u32) {
        for worker in 0..self.scenario.workers {
            if others & (1 << worker) != 0 {
                let life = self.proxies[usize::from(spot.proxy)].workers[usize::from(worker)].life;
                self.wake(Spot { worker, life, ..spot });
            }
        }
    }

    /// A request that waited has its answer. Returns what it took, if it may pass.
    fn finish(&mut self, spot: Spot, request: u32, answer: &Answer) -> Option<(u32, u64, Option<u32>)> {
        let Some(waiting) = self.waiting[request as usize].take() else {
            self.violate(format!("request {request} is finished, but does not wait"));
            return None;
        };
        note!(self, "request {request} at {}: {}", spot.proxy, told(answer));
        let Waiting { bucket, cost, arrived, call, .. } = waiting;
        let tick = Flow::<u32>::tick_period(&self.proxies[usize::from(spot.proxy)].workers[0].plan.policy).0;
        let most = (self.scenario.timeout_ms + tick) * 1001 + 2000 + self.proxies[usize::from(spot.proxy)].lag;
        if self.now > arrived + most {
            self.violate(format!("request {request} waited {} us, at most {most} are allowed", self.now - arrived));
        }
        self.forget(request);
        self.answered(bucket, cost, answer).then_some((bucket, cost, call))
    }

    /// Counts an answer. Returns whether the request passes.
    fn answered(&mut self, bucket: u32, cost: u64, answer: &Answer) -> bool {
        match answer {
            Answer::Pass(_) => {
                self.tally.admitted += cost;
                self.unstrand(bucket);
                return true;
            }
            Answer::Refuse(refusal) if refusal.status == 503 => self.tally.failed += 1,
            Answer::Refuse(_) => {
                self.tally.refused += 1;
                self.strand(bucket, cost);
            }
        }
        false
    }

    /// A request was refused: do its tokens lie idle somewhere?
    fn strand(&mut self, bucket: u32, cost: u64) {
        if !matches!(self.scenario.modes[..], [Mode::Lease { .. }]) {
            return;
        }
        let clock = self.limiter.time(self.now).0;
        let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&bucket));
        let held: u64 = held.map(|holding| holding.unspent(clock)).sum();
        if held >= cost {
            self.buckets[bucket as usize].stranded_since.get_or_insert(self.now);
        } else {
            self.unstrand(bucket);
        }
    }

    fn unstrand(&mut self, bucket: u32) {
        if let Some(since) = self.buckets[bucket as usize].stranded_since.take() {
            self.tally.stranded = self.tally.stranded.max(self.now - since);
        }
    }

    /// A proxy has let a request pass on its own account.
    fn spend(&mut self, proxy: u16, bucket: u32, cost: u64) {
        let (clock, now) = self.limiter.time(self.now);
        note!(self, "proxy {proxy} spends {cost} of {bucket}");
        self.buckets[bucket as usize].got += i128::from(cost);
        if let Mode::Async { .. } = self.buckets[bucket as usize].mode {
            return self.admit(bucket, cost, now);
        }
        let clock = if self.strict { clock } else { 0 };
        let holding = self.proxies[usize::from(proxy)].holdings.entry(bucket).or_default();
        // Where the root has granted tokens to some of those who wait for several buckets, nobody here can tell who of them
        // has got those, and who was served from the lease; that the limit holds is checked all the same.
        if let Err(missing) = holding.spend(cost, clock)
            && !self.buckets[bucket as usize].is_loose
        {
            self.violate(format!("proxy {proxy} has spent {missing} tokens of {bucket} that no live lease holds"));
        }
        self.admit(bucket, cost, now);
    }

    fn admit(&mut self, bucket: u32, tokens: u64, now: u64) {
        let Bucket { ever, .. } = &mut self.buckets[bucket as usize];
        if let Err(units) = ever.admit(tokens, now) {
            let limit = ever.limit;
            self.violate(format!("bucket {bucket}: {units} units more than the largest limit, {limit:?}, allows"));
        }
        let Bucket { promise, .. } = &mut self.buckets[bucket as usize];
        if let Err(units) = promise.admit(tokens, now) {
            let (over, limit) = (units as u64, promise.limit);
            self.tally.over += over.div_ceil(limit.period_ms);
            self.violate(format!("bucket {bucket}: {over} units more than {limit:?} allows were admitted"));
        }
    }

    fn violate(&mut self, what: String) {
        note!(self, "BROKEN: {what}");
        self.violation.get_or_insert(Violation { at: self.now, what });
    }

    fn send(&mut self, spot: Spot, call: Call) {
        let (number, timeout) = (self.message, call.timeout.0 * 1000);
        self.message += 1;
        self.tally.calls += 1;
        let Some((sent, bucket)) = Sent::read(&call.http.body).and_then(|sent| {
            let (rule, tenant) = rule_and_tenant(&sent.key)?;
            Some((sent, rule * self.scenario.buckets + tenant))
        }) else {
            return self.violate(format!("no call that the script could read: {}", call.http.body));
        };
        note!(self, "proxy {} calls ({number}): {sent:?}", spot.proxy);
        if self.scenario.modes.len() == 1 {
            self.asks_for(spot, call.plan.id, bucket, number, &sent.acquire);
        }
        let asked = &sent.acquire;
        let is_about_lease = asked.want + asked.size + asked.debt > 0 || asked.hold;
        if is_about_lease {
            // What it does not want any more it must not spend while the call is out. Rule 6: nor anything after the
            // shortest time for which a lease is given, for nobody may ever hear of the new one.
            let until = self.limiter.time(self.now).0 + asked.short_life_ms();
            let proxy = &mut self.proxies[usize::from(spot.proxy)];
            let holding = proxy.holdings.entry(bucket).or_default();
            // Where it cannot be told what a request took from its lease, what is held is an upper bound.
            let is_loose = proxy.wiped || self.buckets[bucket as usize].is_loose;
            if sent.by_text {
                // The first of two calls has reported it.
                holding.turn += 1;
            } else if is_loose {
                holding.drop(asked.end, asked.carry.saturating_sub(asked.want));
            } else {
                holding.report(asked.end, asked.carry, asked.want, until);
            }
        }
        let turn = self.proxies[usize::from(spot.proxy)].holdings.get(&bucket).map_or(0, |holding| holding.turn);
        let way = self.scenario.network.way(self.scenario.seed, number);
        let (until, replies_only) = self.proxies[usize::from(spot.proxy)].partition;
        let cut = self.now < until;
        let (lost, reply_lost) = (way.call_lost || (cut && !replies_only), way.reply_lost || cut);
        let way = Way { call_lost: lost, reply_lost, ..way };
        let (sent_at, ends) = (self.now, self.now + timeout);
        let message = Message {
            spot,
            id: call.id,
            sent,
            bucket,
            sent_at,
            turn,
            ends,
            way,
            over: false,
            replies: [None, None],
            events: 0,
        };
        self.messages.insert(number, message);
        if way.refused {
            return self.later(number, self.now, Event::GiveUp(number));
        }
        if !lost {
            self.later(number, self.now + way.to, Event::Reach(number, false));
            if let Some(after) = way.call_again {
                self.later(number, self.now + way.to + after, Event::Reach(number, true));
            }
        }
        // Where the reply comes in time, the host has nothing to give up; and where it comes late, not every host does.
        let is_late = self.now + way.to + way.back >= ends;
        if lost || reply_lost || (is_late && number % 2 == 0) {
            self.later(number, ends, Event::GiveUp(number));
        }
    }

    /// An event that names a message, which is kept until then.
    fn later(&mut self, number: u32, at: u64, event: Event) {
        if let Some(message) = self.messages.get_mut(&number) {
            message.events += 1;
            self.at(at, event);
        }
    }

    fn done(&mut self, number: u32) {
        if let Some(message) = self.messages.get_mut(&number) {
            message.events -= 1;
            if message.events == 0 {
                self.messages.remove(&number);
            }
        }
    }

    /// The limiter executes a call.
    fn reach(&mut self, number: u32, again: bool) {
        let (_, now) = self.limiter.time(self.now);
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (bucket, call, by_text) = (message.bucket, message.sent.acquire.clone(), message.sent.by_text);
        let reply = if self.now < self.limiter.read_only_until {
            (wire::read_only(by_text), None)
        } else if !by_text && !self.limiter.knows_script {
            (wire::NO_SCRIPT.to_owned(), None)
        } else {
            self.limiter.knows_script = true;
            let reply = self.limiter.acquire(self.now, bucket, &call);
            note!(self, "the limiter executes {number}: {reply:?}");
            let body = wire::body(&reply, by_text);
            self.past.truncate(15);
            self.past.push_front((number, body.clone()));
            (body, Some(reply))
        };
        let executed = reply.1.clone();
        let (way, replies) = (message.way, &mut message.replies);
        replies[usize::from(again)] = Some(reply);
        // Where the first found no script, the same was asked again by text.
        if again && call.size > 0 {
            self.strict = false;
            self.forgive(bucket, |promise| promise.limit.units(2 * call.size));
        }
        if let Some(reply) = executed {
            let granted = call.cost(&reply.granted);
            // What is carried on and not kept goes back; where a lease is not counted any more, nothing does.
            let back = if reply.kept == call.want { call.carry.saturating_sub(reply.kept) } else { 0 };
            self.buckets[bucket as usize].out += i128::from(granted + reply.extra) - i128::from(back);
            self.admit(bucket, if call.hold { 0 } else { granted }, now);
            self.check_root(bucket);
        }
        if !way.reply_lost {
            self.later(number, self.now + way.back, Event::Back(number, again));
            if let Some(after) = way.reply_again {
                self.later(number, self.now + way.back + after, Event::Back(number, again));
            }
        }
        self.done(number);
    }

    /// What comes to this call instead of its own reply: what another one was answered, or an error that another one may
    /// have met.
    fn another_reply(&self, number: u32, which: u64) -> String {
        let by_text = which & 1 == 1;
        let others = self.past.iter().filter(|(other, _)| *other != number).map(|(_, body)| body);
        let others: Vec<&String> = others.collect();
        match which % 7 {
            0 => wire::NO_SCRIPT.to_owned(),
            1 => wire::read_only(by_text),
            2 => wire::bad_key(by_text, which),
            _ if !others.is_empty() => others[(which / 7) as usize % others.len()].clone(),
            _ => wire::NO_SCRIPT.to_owned(),
        }
    }

    /// A reply reaches the worker that called; or again; or too late.
    fn back(&mut self, number: u32, again: bool) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (spot, id, bucket) = (message.spot, message.id, message.bucket);
        // A clock that was set back ends calls later.
        let in_time = self.now < message.ends + self.proxies[usize::from(spot.proxy)].lag;
        let first = !std::mem::replace(&mut message.over, true);
        let Some((body, reply)) = message.replies[usize::from(again)].clone() else { return self.done(number) };
        let swapped = message.way.swapped.filter(|_| first);
        let (body, reply) = match swapped {
            Some(which) => (self.another_reply(number, which), None),
            None => (body, reply),
        };
        // Where a worker has died, its proxy goes on as if no reply had come.
        if first && in_time && lives(&self.proxies, spot) {
            let sent = &self.messages[&number].sent;
            let (call, by_text, ends_lease) = (sent.acquire.clone(), sent.by_text, sent.ends_lease());
            let proxy = &mut self.proxies[usize::from(spot.proxy)];
            let can_write = !proxy.shared.loses();
            // A proxy that was wiped may have a table from before, too, whose leases go on.
            let is_loose = proxy.wiped || self.buckets[bucket as usize].is_loose;
            let holding = proxy.holdings.entry(bucket).or_default();
            if ends_lease && !is_loose && (reply.is_some() || can_write) {
                holding.drop_all();
            }
            match &reply {
                Some(reply) => {
                    let held = if call.hold { call.cost(&reply.granted) } else { 0 };
                    holding.replace(call.end, call.carry.min(call.want), reply.end, reply.kept, reply.extra + held);
                }
                // The same is asked again, by text.
                None if body == wire::NO_SCRIPT && !by_text => {}
                None if can_write => holding.drop(call.end, call.carry),
                None => {}
            }
        }
        note!(self, "the reply to {number} is back at {}{}", spot.proxy, if first { "" } else { ", once more" });
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        // A reply that is doubled or late is told, too: the flow must not mind.
        let cause = (first && in_time && swapped.is_none()).then_some((number, again));
        self.drive(spot, cause, |flow, now| flow.ended(id, end, now));
        self.check_held(bucket);
        self.done(number);
    }

    fn give_up(&mut self, number: u32) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let (spot, id, bucket, refused) = (message.spot, message.id, message.bucket, message.way.refused);
        let (sent_at, turn) = (message.sent_at, message.turn);
        // Nor does a table hear of it that cannot be written.
        let is_told = lives(&self.proxies, spot) && !self.proxies[usize::from(spot.proxy)].shared.loses();
        if !std::mem::replace(&mut message.over, true) {
            let (end, carry) = (message.sent.acquire.end, message.sent.acquire.carry);
            let ends_lease = message.sent.ends_lease();
            let want = message.sent.acquire.want;
            let until = self.limiter.clock.ms(sent_at) + message.sent.acquire.short_life_ms();
            // Where nobody can be told, the rest is spent until the next call, but for what is not counted for long.
            let is_loose = self.proxies[usize::from(spot.proxy)].wiped || self.buckets[bucket as usize].is_loose;
            if let Some(holding) = self.proxies[usize::from(spot.proxy)].holdings.get_mut(&bucket) {
                let is_last = holding.turn == turn;
                match refused {
                    _ if !is_last => {}
                    _ if ends_lease && (is_told && !is_loose) => holding.drop_all(),
                    // One that never began has changed nothing.
                    true => holding.restore(end, until, carry.saturating_sub(want)),
                    // Two leases of a proxy that was wiped may have one end.
                    false if is_told && !is_loose => holding.drop(end, carry),
                    false => {}
                }
            }
            note!(self, "call {number} of {} has no answer", spot.proxy);
            let end = if refused { HttpEnd::NotStarted(Failure::Unreachable) } else { HttpEnd::NoAnswer };
            self.drive(spot, None, |flow, now| flow.ended(id, end, now));
        }
        self.done(number);
    }

    /// What a bucket has lent is used.
    fn check_root(&mut self, bucket: u32) {
        let root = self.limiter.root(bucket);
        let limit = self.buckets[bucket as usize].promise.limit;
        let (used, lent) = (root.used, limit.units(root.lent()));
        if used < lent {
            self.violate(format!("bucket {bucket}: {lent} units are lent, and only {used} are used"));
        }
    }

    /// What all proxies may hold of a bucket is lent.
    fn check_held(&mut self, bucket: u32) {
        if !self.strict || self.is_long || self.buckets[bucket as usize].is_loose {
            return;
        }
        // A clock that went back by a second at most brings no lease back.
        let clock = self.limiter.time(self.now).0.max(self.limiter.root(bucket).time);
        let held = self.proxies.iter().filter(|proxy| !proxy.wiped).filter_map(|proxy| proxy.holdings.get(&bucket));
        let held: u64 = held.map(|holding| holding.unspent(clock)).sum();
        let lent = self.limiter.lent(bucket);
        if held > lent {
            self.violate(format!("bucket {bucket}: proxies hold {held} tokens, and only {lent} are lent"));
        }
    }

    fn fault(&mut self, kind: Kind) {
        note!(self, "{kind:?}");
        match kind {
            Kind::Failover { lost_us } => {
                self.strict = false;
                for (bucket, tokens) in self.limiter.undo_since(self.now.saturating_sub(lost_us)) {
                    self.forgive(bucket, |promise| promise.limit.units(tokens));
                }
            }
            Kind::Flush => (0..self.scenario.roots()).for_each(|bucket| self.lose(bucket)),
            Kind::LoseKey(bucket) => self.lose(bucket),
            Kind::ForgetScripts => self.limiter.knows_script = false,
            Kind::ReadOnly { us } => self.limiter.read_only_until = self.now + us,
            Kind::RootClock { by_ms } => {
                if by_ms > 0 {
                    self.forget_lent();
                }
                // Back by more than a second: what proxies hold ends by a clock that there is no more. The promise holds.
                self.behind += by_ms.min(0).unsigned_abs();
                self.strict &= self.behind <= 1000;
                self.limiter.set_clock(self.now, by_ms);
            }
            Kind::ProxyClock { proxy, by_ms } => {
                let proxy = &mut self.proxies[usize::from(proxy)];
                proxy.clock.set(self.now, by_ms);
                if by_ms < 0 {
                    // Its time stands still until it is read next, and leases with it.
                    proxy.lag += 51_000;
                    self.forget_lent();
                }
            }
            Kind::Partition { proxy, us, replies_only } => {
                self.proxies[usize::from(proxy)].partition = (self.now + us, replies_only);
            }
            Kind::WorkerDies { proxy, worker } => self.die(proxy, worker),
            Kind::ProxyDies { proxy, us } => {
                (0..self.scenario.workers).for_each(|worker| self.die(proxy, worker));
                let dead = &mut self.proxies[usize::from(proxy)];
                dead.shared.wipe();
                dead.holdings.clear();
                dead.up = false;
                self.at(self.now + us, Event::Revive(proxy));
            }
            Kind::Wipe { proxy } => {
                let proxy = &mut self.proxies[usize::from(proxy)];
                proxy.shared.wipe();
                proxy.wiped = true;
                proxy.wipes += 1;
            }
            Kind::LosePuts { proxy, puts } => self.proxies[usize::from(proxy)].shared.lose(puts),
            Kind::Reload { limit, spread_us } => self.reload(limit, spread_us),
        }
    }

    fn forgive(&mut self, bucket: u32, units: impl Fn(&Promise) -> i128) {
        let Bucket { promise, ever, .. } = &mut self.buckets[bucket as usize];
        for promise in [promise, ever] {
            promise.forgive(units(promise));
        }
    }

    /// A lost bucket admits at most burst - level more.
    fn lose(&mut self, bucket: u32) {
        self.strict = false;
        self.limiter.time(self.now);
        let missing = self.limiter.missing(bucket, self.buckets[bucket as usize].promise.limit);
        self.forgive(bucket, |_| missing);
        self.limiter.lose(bucket);
    }

    /// What is lent may be spent after the root has stopped to count it.
    fn forget_lent(&mut self) {
        self.strict = false;
        for bucket in 0..self.scenario.roots() {
            let lent = self.limiter.lent(bucket);
            self.forgive(bucket, |promise| promise.limit.units(lent));
        }
    }

    fn die(&mut self, proxy: u16, worker: u16) {
        let dead = &mut self.proxies[usize::from(proxy)].workers[usize::from(worker)];
        let spot = Spot { proxy, worker, life: dead.life + 1 };
        for waiting in &mut self.waiting {
            if waiting.is_some_and(|waiting| (waiting.spot.proxy, waiting.spot.worker) == (proxy, worker)) {
                *waiting = None;
            }
        }
        let worker = self.born(spot);
        self.proxies[usize::from(proxy)].workers[usize::from(spot.worker)] = worker;
    }

    fn revive(&mut self, proxy: u16) {
        self.proxies[usize::from(proxy)].up = true;
        (0..self.scenario.workers).for_each(|worker| self.die(proxy, worker));
    }

    fn reload(&mut self, limit: usize, spread: u64) {
        let network = &self.scenario.network;
        let call = (10 * self.scenario.timeout_ms).max(1000) + self.scenario.timeout_ms + 60;
        let until = self.now + spread + call * 1000 + 2 * (network.delay.1 + network.late) + 1000;
        self.older.push((self.limit, until));
        self.limit = limit;
        self.at(until, Event::Settle);
        self.loosen();
        for proxy in 0..self.scenario.proxies {
            for worker in 0..self.scenario.workers {
                let life = self.proxies[usize::from(proxy)].workers[usize::from(worker)].life;
                let at = self.now + self.chance.below(spread + 1);
                self.at(at, Event::NewPlan(Spot { proxy, worker, life }, limit as u16));
            }
        }
    }

    fn new_plan(&mut self, spot: Spot, limit: usize) {
        if self.worker(spot).is_none() || limit != self.limit {
            return;
        }
        let plan = self.plan(spot.proxy, limit);
        if let Some(worker) = self.worker(spot) {
            // As the host does: after a wipe the two plans may have tables of their own.
            std::mem::replace(&mut worker.plan, plan).retire();
            worker.limit = limit;
            worker.asks.clear();
        }
    }

    /// The loosest of all limits that may be in use.
    fn loosest(&self, bucket: u32) -> Limit {
        let rule = self.scenario.rule(bucket);
        let versions = self.older.iter().map(|(older, _)| *older).chain([self.limit]);
        let limits = versions.flat_map(|version| self.scenario.tier_limits(rule, version));
        limits.fold(self.scenario.limit(rule, self.limit), Limit::loosest)
    }

    /// The promise is that of the loosest limit in use. Where one is raised, the time since the last call refills at the
    /// new rate, too.
    fn loosen(&mut self) {
        let (clock, now) = self.limiter.time(self.now);
        for bucket in 0..self.scenario.roots() {
            let limit = self.loosest(bucket);
            let since = clock.saturating_sub(self.limiter.root(bucket).time);
            let Bucket { promise, ideal, .. } = &mut self.buckets[bucket as usize];
            let before = promise.limit;
            let refilled = i128::from(limit.requests.saturating_sub(before.requests)) * i128::from(since);
            promise.forgive(refilled.min(limit.capacity()));
            promise.change(limit, now);
            ideal.change(limit, now);
        }
    }

    /// A limit is in use no more. What was lent under it stays out; a lower rate keeps nobody from a bucket that was due
    /// to be full, and so forgotten, earlier.
    fn settle(&mut self) {
        self.older.retain(|(_, until)| *until > self.now);
        let (_, now) = self.limiter.time(self.now);
        for bucket in 0..self.scenario.roots() {
            let (limit, lent) = (self.loosest(bucket), self.limiter.lent(bucket));
            let Bucket { promise, ideal, .. } = &mut self.buckets[bucket as usize];
            if limit == promise.limit {
                continue;
            }
            promise.forgive(limit.units(lent));
            if limit.requests < promise.limit.requests {
                promise.pass(now);
                promise.forgive(promise.missing());
            }
            promise.change(limit, now);
            ideal.change(limit, now);
        }
    }

    fn is_quiet(&self) -> bool {
        self.next.is_none()
            && self.messages.is_empty()
            && self.proxies.iter().all(|proxy| proxy.up && proxy.workers.iter().all(|worker| worker.flow.is_idle()))
    }

    /// What must hold when all is over.
    fn end(&mut self) {
        if let Some(request) = self.waiting.iter().position(Option::is_some) {
            self.violate(format!("request {request} still waits, and nothing happens any more"));
        }
        for number in 0..self.proxies.len() {
            let proxy = &self.proxies[number];
            if let Some(worker) = proxy.workers.iter().position(|worker| !worker.flow.is_idle()) {
                self.violate(format!("worker {worker} of proxy {number} is not idle, and nothing happens any more"));
            }
            let proxy = &self.proxies[number];
            let sets = self.scenario.table_entries.div_ceil(WAYS as u64) as usize;
            // A set and its name; the seed and the breaker. After each wipe a table may have another seed.
            let most = (proxy.wipes + 1) * (sets * (SET_BYTES + 64) + 256);
            let bytes = proxy.shared.bytes();
            if bytes > most {
                self.violate(format!("proxy {number} keeps {bytes} bytes, at most {most} are allowed"));
            }
        }
        self.check_use();
        self.check_debits();
    }

    fn some_leave(&self) -> bool {
        self.scenario.arrivals.iter().any(|arrival| arrival.patience > 0)
    }

    /// Where nothing goes wrong, what has left a bucket is what requests have got that passed, and what is unspent: a
    /// request that is refused costs no bucket anything.
    fn check_debits(&mut self) {
        let may_forget = self.scenario.roots() as usize > WAYS;
        if may_forget || self.some_leave() || !self.scenario.is_calm() || self.is_long || self.tally.failed > 0 {
            return;
        }
        for number in 0..self.scenario.roots() {
            let Bucket { out, got, is_loose, mode, .. } = self.buckets[number as usize];
            if is_loose || matches!(mode, Mode::Async { .. }) {
                continue;
            }
            let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&number));
            let held: u64 = held.map(Holding::ever_unspent).sum();
            if out != got + i128::from(held) {
                self.violate(format!("bucket {number}: {out} are out, but requests got {got} and {held} are unspent"));
            }
        }
    }

    /// Where nothing goes wrong, those who ask get nearly what one bucket for all would give them.
    fn check_use(&mut self) {
        // A request may wait for the call before its own, too. Where costs differ, it matters who comes first.
        let waits = 6 * self.scenario.network.delay.1 > self.scenario.timeout_ms * 1000;
        if self.some_leave()
            || self.is_long
            || !self.scenario.is_calm()
            || self.tally.ideal < 50
            || waits
            || self.scenario.costs.len() > 1
            || self.scenario.tiers
        {
            return;
        }
        let Tally { admitted, ideal, .. } = self.tally;
        let limit = self.scenario.limits.0[0];
        // With leases, what lies idle in another proxy cannot be had for a while.
        let idle = match self.scenario.modes[..] {
            [Mode::Exact] => 0,
            // A bucket that is full while its proxies spend refills nothing, so a small burst is not used up.
            [Mode::Async { interval_ms }] if limit.burst * limit.period_ms < 4 * limit.requests * interval_ms => return,
            // What was held for a request stays lent until it is reported, so a small burst that comes back sooner is not
            // used up.
            [_, _, ..] if limit.burst < 64 => return,
            _ => u64::from(self.scenario.buckets) * limit.burst / 2,
        };
        // What one rule holds for a request while another refuses it comes back a little later.
        let least = if self.scenario.modes.len() == 1 { 90 } else { 50 };
        if (admitted + idle) * 100 < ideal * least {
            self.violate(format!("{admitted} tokens were admitted, and an ideal bucket gives {ideal}"));
        }
    }
}

/// What is promised of a bucket. Where tokens are spent first, each proxy may spend a whole bucket before it hears of the
/// others, and what comes back until then.
fn promised(scenario: &Scenario, mode: Mode, limit: Limit) -> Limit {
    let Mode::Async { interval_ms } = mode else {
        return limit;
    };
    let until_heard = interval_ms + 2 * Flow::<u32>::tick_period(&scenario.policy(0)).0 + 100;
    let burst = limit.burst + (limit.requests * until_heard).div_ceil(limit.period_ms);
    Limit { burst: burst * u64::from(scenario.proxies), ..limit }
}

fn lives(proxies: &[Proxy], spot: Spot) -> bool {
    let proxy = &proxies[usize::from(spot.proxy)];
    proxy.up && proxy.workers[usize::from(spot.worker)].life == spot.life
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Pass(_) => "passes".to_owned(),
        Answer::Refuse(refusal) => format!("is refused with {}", refusal.status),
    }
}
