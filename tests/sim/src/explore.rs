//! Every order of small cases: which request comes next and where, which message arrives, is lost, late or doubled,
//! who leaves or dies, and how long nothing happens.
//!
//! A state is reached by playing its choices from the start, since the core cannot be copied. A state that was seen
//! with at least as many choices left is not looked at again: what the workers keep is told from what they have shown
//! (calls, waiting requests, shared data), their chance apart. Depth grows step by step, so what is found is short.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use weir::clock::{Ms, Now};
use weir::engine::plan::{Plan, Receipt, Taken};
use weir::engine::{Arrival, CallId, CallOwner, Flow, Step, Ticket, Verdict};
use weir::limiter::HttpEnd;
use weir::policy::Policy;
use weir::response::Answer;
use weir::rules::Ask;

use crate::check::{Holding, Limit, Promise};
use crate::clock::START;
use crate::root::{Acquire, Reply, Root};
use crate::scenario::{Limits, Mode, Network, Scenario};
use crate::shared::Shared;
use crate::wire::{self, Sent};
use crate::world::{asks, rule_and_tenant};

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

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    /// Of each rule.
    pub modes: Vec<Mode>,
    pub proxies: usize,
    pub workers: usize,
    pub limit: Limit,
    /// Millionths by which the proxies' clocks are slow.
    pub slow: u64,
    pub costs: Vec<u64>,
    /// How often each of these may happen.
    pub budget: Budget,
    pub depth: usize,
}

#[derive(Clone, Copy, Debug, Hash)]
pub struct Budget {
    pub requests: u8,
    pub lost: u8,
    pub doubled: u8,
    pub leave: u8,
    pub wipe: u8,
    /// A worker takes tokens and stands still before it puts them back, since another rule has refused.
    pub stall: u8,
    /// A call is told that another one has found no script.
    pub astray: u8,
    /// How often time may pass.
    pub pass: u8,
}

/// The cases that are explored.
pub fn cases() -> Vec<Case> {
    let budget = Budget { requests: 4, lost: 1, doubled: 1, leave: 0, wipe: 0, stall: 0, astray: 0, pass: 2 };
    let case = |name, proxies, workers, requests, burst, costs: &[u64], budget| Case {
        name,
        modes: vec![Mode::Exact],
        proxies,
        workers,
        limit: Limit { requests, period_ms: 1000, burst },
        slow: 0,
        costs: costs.to_vec(),
        budget,
        depth: 40,
    };
    vec![
        case("2 proxies, burst 2", 2, 1, 1, 2, &[1], budget),
        case("2 proxies, burst 2, who leave", 2, 1, 1, 2, &[1], Budget { leave: 2, lost: 0, ..budget }),
        case("2 proxies, burst 4, costs 1 and 3", 2, 1, 2, 4, &[1, 3], budget),
        case("3 proxies, burst 2", 3, 1, 1, 2, &[1], budget),
        case("3 proxies, burst 3", 3, 1, 10, 3, &[1], Budget { requests: 5, ..budget }),
        case("2 proxies of 2 workers, burst 2", 2, 2, 1, 2, &[1], Budget { wipe: 1, ..budget }),
        // Below a burst of 64 nothing is lent ahead, so that leases are lent to large buckets or held for other rules.
        lends(case("lease: 2 proxies", 2, 1, 16, 64, &[1, 16], budget), 1),
        lends(case("lease: 2 proxies, no losses", 2, 1, 16, 64, &[1], Budget { lost: 0, pass: 3, ..budget }), 1),
        lends(
            case(
                "lease: 2 proxies, replies astray",
                2,
                1,
                16,
                64,
                &[1],
                Budget { requests: 3, lost: 0, doubled: 0, astray: 2, ..budget },
            ),
            1,
        ),
        lends(
            case(
                "lease: 2 rules, replies astray",
                2,
                1,
                1,
                2,
                &[1],
                Budget { requests: 3, lost: 0, doubled: 0, astray: 1, ..budget },
            ),
            2,
        ),
        lends(case("lease: 3 proxies", 3, 1, 16, 64, &[1, 16], Budget { doubled: 0, ..budget }), 1),
        lends(
            case("lease: a proxy of 2 workers", 1, 2, 16, 64, &[1, 16], Budget { requests: 5, leave: 1, ..budget }),
            1,
        ),
        lends(case("lease: 2 proxies of 2 workers", 2, 2, 16, 64, &[1], Budget { doubled: 0, ..budget }), 1),
        Case {
            slow: 900,
            ..lends(case("lease: 2 proxies with slow clocks", 2, 1, 16, 64, &[1, 16], Budget { lost: 0, ..budget }), 1)
        },
        lends(case("lease: 2 rules, 2 proxies, burst 2", 2, 1, 1, 2, &[1], Budget { requests: 3, ..budget }), 2),
        lends(case("lease: 2 rules, a proxy of 2 workers", 1, 2, 1, 3, &[1], Budget { leave: 1, ..budget }), 2),
        lends(
            case(
                "lease: what is put back after a wipe",
                1,
                1,
                16,
                64,
                &[1],
                Budget { requests: 4, lost: 0, doubled: 0, leave: 0, wipe: 1, stall: 1, astray: 0, pass: 0 },
            ),
            1,
        ),
        Case {
            modes: vec![Mode::Exact, Mode::Lease { life_s: 1 }],
            ..case("exact and lease, 2 proxies, burst 3", 2, 1, 1, 3, &[1], Budget { requests: 3, ..budget })
        },
    ]
}

fn lends(case: Case, rules: usize) -> Case {
    Case { modes: vec![Mode::Lease { life_s: 1 }; rules], ..case }
}

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Arrive {
        worker: usize,
        cost: u64,
    },
    Reach(usize),
    /// The limiter executes the call and the reply is there, with nothing between.
    Serve(usize),
    LoseCall(usize),
    Back(usize),
    /// The reply comes, and will come once more.
    BackAndAgain(usize),
    LoseReply(usize),
    /// It is told that another call has found no script, whether it has been executed, will be, or both it and the second
    /// try will.
    Astray(usize),
    Leave(usize),
    Wipe(usize),
    /// A worker takes the cost of a request, which another rule will refuse.
    Take(usize),
    /// And puts it back.
    PutBack(usize),
    /// Nothing happens until this moment.
    Pass(u64),
}

#[derive(Hash)]
struct Message {
    worker: usize,
    rule: usize,
    call: CallId,
    sent: SentHash,
    sent_at: u64,
    ends: u64,
    /// The flow has been told how it ended.
    over: bool,
    /// Nothing of it will arrive any more.
    lost: bool,
    reply: Option<Reply>,
}

struct SentHash(Sent);

impl Hash for SentHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A call's number is of no other meaning than that its reply has it.
        Acquire { number: 0, ..self.0.acquire.clone() }.hash(state);
        self.0.by_text.hash(state);
    }
}

struct Waiting {
    worker: usize,
    cost: u64,
    arrived: u64,
    ticket: Ticket,
}

/// A state of a case.
struct Small<'c> {
    ground: &'c Ground,
    now: u64,
    shared: Vec<Shared>,
    /// Of each proxy.
    plans: Vec<Rc<Plan>>,
    flows: Vec<Flow<u32>>,
    /// Of each rule.
    roots: Vec<Root>,
    promises: Vec<Promise>,
    messages: Vec<Message>,
    waiting: Vec<Option<Waiting>>,
    /// Of each proxy, of each rule.
    holdings: Vec<Vec<Holding>>,
    /// Where there are several rules: a worker, a rule, what was granted there to those who wait for other rules, too,
    /// and until when they wait.
    credits: Vec<(usize, usize, u64, u64)>,
    /// Who has taken tokens to put them back, and where from.
    stalled: Vec<(usize, Receipt)>,
    left: Budget,
    violation: Option<String>,
    log: Option<Vec<String>>,
}

/// What all states of a case share.
struct Ground {
    case: Case,
    policy: Policy,
    asks: Vec<Vec<Ask>>,
    timeout: u64,
    limits: Vec<Limit>,
}

impl Ground {
    fn new(case: Case) -> Ground {
        let scenario = Scenario {
            seed: 0,
            modes: case.modes.clone(),
            proxies: 1,
            workers: 1,
            buckets: 1,
            limits: Limits(vec![case.limit]),
            tiers: false,
            costs: case.costs.clone(),
            timeout_ms: 100,
            table_entries: 64,
            // The breaker stays closed, so that a plan keeps nothing from one play to the next.
            breaker_failures: 1_000_000,
            network: Network::default(),
            arrivals: Vec::new(),
            faults: Vec::new(),
            drifts: vec![0; 2],
            ends: 0,
            counts_from: 0,
        };
        let policy = scenario.policy(0);
        let asks = case.costs.iter().map(|cost| asks(&policy, &scenario, 0, *cost, 0)).collect();
        let limits = (0..).zip(&case.modes).map(|(rule, _)| scenario.limit(rule, 0)).collect();
        // Deadlines by a slow clock are a little later.
        let timeout = scenario.timeout_ms + case.slow.div_ceil(450);
        Ground { case, policy, asks, timeout, limits }
    }
}

impl<'c> Small<'c> {
    fn new(ground: &'c Ground, log: bool) -> Small<'c> {
        let case = &ground.case;
        let shared: Vec<Shared> = (0..case.proxies).map(|_| Shared::default()).collect();
        // Made elsewhere, so that a proxy that has done nothing keeps nothing.
        let plan = |_| Rc::new(Plan::new(1, ground.policy.clone(), &Shared::default(), (1, 2)));
        let plans = (0..case.proxies).map(plan).collect();
        let workers = 0..case.proxies * case.workers;
        let flow = |worker: usize| {
            Flow::new(
                CallOwner::Root,
                worker as u64,
                Box::new(shared[worker / case.workers].clone()),
                (worker % case.workers) as u32,
            )
        };
        Small {
            now: 0,
            flows: workers.map(flow).collect(),
            plans,
            shared,
            roots: vec![Root::default(); case.modes.len()],
            promises: ground.limits.iter().map(|limit| Promise::new(*limit, 0)).collect(),
            messages: Vec::new(),
            waiting: Vec::new(),
            holdings: vec![vec![Holding::default(); case.modes.len()]; case.proxies],
            credits: Vec::new(),
            stalled: Vec::new(),
            left: case.budget,
            violation: None,
            log: log.then(Vec::new),
            ground,
        }
    }

    fn proxy(&self, worker: usize) -> usize {
        worker / self.ground.case.workers
    }

    fn note(&mut self, told: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>6} ms  {}", self.now, told()));
        }
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        if self.left.requests > 0 {
            // Workers that have done nothing yet are all the same, those of one proxy and whole proxies.
            let used = (0..self.flows.len()).rev().find(|worker| self.has_worked(*worker)).map_or(0, |used| used + 1);
            for worker in 0..self.flows.len().min(self.ground.case.workers.max(used + 1)) {
                choices.extend(self.ground.case.costs.iter().map(|cost| Choice::Arrive { worker, cost: *cost }));
            }
        }
        for (number, message) in self.messages.iter().enumerate().filter(|(_, message)| !message.lost) {
            if self.left.astray > 0 && !message.over && !message.sent.0.by_text {
                choices.push(Choice::Astray(number));
            }
            match &message.reply {
                None => {
                    choices.extend([Choice::Serve(number), Choice::Reach(number)]);
                    if self.left.lost > 0 && !message.over {
                        choices.push(Choice::LoseCall(number));
                    }
                }
                Some(_) => {
                    choices.push(Choice::Back(number));
                    if self.left.doubled > 0 && !message.over {
                        choices.push(Choice::BackAndAgain(number));
                    }
                    if self.left.lost > 0 && !message.over {
                        choices.push(Choice::LoseReply(number));
                    }
                }
            }
        }
        if self.left.leave > 0 {
            let waits = |(number, waiting): (usize, &Option<Waiting>)| waiting.is_some().then_some(number);
            choices.extend(self.waiting.iter().enumerate().filter_map(waits).map(Choice::Leave));
        }
        if self.left.wipe > 0 {
            choices.extend((0..self.shared.len()).map(Choice::Wipe));
        }
        if self.left.stall > 0 {
            choices.extend((0..self.flows.len()).filter(|worker| self.has_worked(*worker)).map(Choice::Take));
        }
        choices.extend((0..self.stalled.len()).map(Choice::PutBack));
        if self.left.pass > 0 {
            choices.extend(self.moments().into_iter().map(Choice::Pass));
        }
        choices
    }

    fn has_worked(&self, worker: usize) -> bool {
        self.shared[self.proxy(worker)].bytes() > 0
            || self.messages.iter().any(|message| message.worker == worker)
            || self.waiting.iter().flatten().any(|waiting| waiting.worker == worker)
    }

    /// Until when nothing may happen: a token more, the next deadline or end of a call, the end of a lease, the moment
    /// before it, and the end of the key.
    fn moments(&self) -> Vec<u64> {
        let limit = self.ground.case.limit;
        let clock = START + self.now;
        let mut moments = vec![self.now + limit.period_ms.div_ceil(limit.requests)];
        moments.extend(self.due());
        let ends = self
            .roots
            .iter()
            .flat_map(|root| root.slots.iter().map(|slot| slot.end).chain(root.expires_at.map(|at| at + 1)));
        for end in ends.filter(|end| *end > clock + 1) {
            moments.extend([end - START - 1, end - START]);
        }
        moments.sort_unstable();
        moments.dedup();
        moments.retain(|moment| *moment > self.now);
        moments
    }

    /// The next moment at which a worker has something to end.
    fn due(&self) -> Option<u64> {
        let deadlines = self.waiting.iter().flatten().map(|waiting| waiting.arrived + self.ground.timeout);
        let ends = self.messages.iter().filter(|message| !message.over);
        let ends = ends.flat_map(|message| [message.sent_at + self.ground.timeout, message.ends]);
        deadlines.chain(ends).filter(|moment| *moment > self.now).min()
    }

    fn apply(&mut self, choice: Choice) {
        self.note(|| format!("{choice:?}"));
        match choice {
            Choice::Arrive { worker, cost } => self.arrive(worker, cost),
            Choice::Reach(number) => self.reach(number),
            Choice::Serve(number) => {
                self.reach(number);
                let message = self.messages.remove(number);
                self.back(message);
            }
            Choice::LoseCall(number) | Choice::LoseReply(number) => {
                self.left.lost -= 1;
                // The worker hears of nothing until the call's own end.
                self.messages[number].lost = true;
            }
            Choice::Back(number) => {
                let message = self.messages.remove(number);
                self.back(message);
            }
            Choice::BackAndAgain(number) => {
                self.left.doubled -= 1;
                let Message { worker, rule, call, ref sent, sent_at, ends, ref reply, .. } = self.messages[number];
                let (sent, reply) = (SentHash(sent.0.clone()), reply.clone());
                let again = Message { worker, rule, call, sent, sent_at, ends, over: true, lost: false, reply };
                let message = std::mem::replace(&mut self.messages[number], again);
                self.back(message);
            }
            Choice::Astray(number) => {
                self.left.astray -= 1;
                self.messages[number].over = true;
                let (worker, call) = (self.messages[number].worker, self.messages[number].call);
                let end = HttpEnd::Answer { status: 200, body: wire::NO_SCRIPT.as_bytes() };
                let now = self.time();
                let steps = self.flows[worker].ended(call, end, now);
                self.perform(worker, steps, None);
            }
            Choice::Leave(number) => {
                self.left.leave -= 1;
                if let Some(waiting) = self.waiting[number].take() {
                    self.flows[waiting.worker].left(waiting.ticket);
                }
            }
            Choice::Wipe(proxy) => {
                self.left.wipe -= 1;
                self.shared[proxy].wipe();
            }
            Choice::Take(worker) => {
                self.left.stall -= 1;
                let (ground, now) = (self.ground, self.time().mono);
                let store = &self.shared[self.proxy(worker)];
                if let Taken::Granted { receipt, .. } =
                    self.plans[self.proxy(worker)].take(store, &ground.asks[0][0], now, 0)
                {
                    self.stalled.push((worker, receipt));
                }
            }
            Choice::PutBack(number) => {
                let (worker, receipt) = self.stalled.remove(number);
                let (ground, now) = (self.ground, self.time().mono);
                let proxy = self.proxy(worker);
                self.plans[proxy].put_back(&self.shared[proxy], &ground.asks[0][0], receipt, now);
            }
            Choice::Pass(moment) => self.pass(moment),
        }
        self.check();
    }

    fn time(&self) -> Now {
        let passed = self.now - (self.now * self.ground.case.slow).div_ceil(1_000_000);
        Now { mono: Ms(passed + 1), unix: Ms(START + passed) }
    }

    fn arrive(&mut self, worker: usize, cost: u64) {
        self.left.requests -= 1;
        let number = self.waiting.len() as u32;
        self.waiting.push(None);
        let ground = self.ground;
        let at = ground.case.costs.iter().position(|of| *of == cost).unwrap_or(0);
        let (now, proxy) = (self.time(), self.proxy(worker));
        let (arrival, steps) =
            self.flows[worker].arrive(&self.plans[proxy], ground.asks[at].clone(), vec![], number, now);
        match arrival {
            Arrival::Decided(Verdict { answer, .. }) => {
                self.note(|| format!("    {answer:?}"));
                if matches!(answer, Answer::Pass(_)) {
                    self.spend(worker, cost);
                }
            }
            Arrival::Waits(ticket) => {
                self.waiting[number as usize] = Some(Waiting { worker, cost, arrived: self.now, ticket });
            }
        }
        self.perform(worker, steps, None);
    }

    /// `reply`: when the call was sent whose consequence the steps are, which rule it was about, and what it granted.
    fn perform(&mut self, worker: usize, steps: Vec<Step<u32>>, reply: Option<(u64, usize, u64)>) {
        let (mut wake, mut wake_others) = (false, 0);
        let (sent_at, rule, mut granted) = reply.unwrap_or_default();
        let has_one_rule = self.ground.case.modes.len() == 1;
        if !has_one_rule && granted > 0 {
            self.credits.push((worker, rule, granted, self.now + self.ground.timeout));
        }
        for step in steps {
            match step {
                Step::Wake => wake = true,
                Step::WakeOthers(others) => wake_others |= others,
                Step::Count(..) => {}
                Step::Call(call) => {
                    let Some((sent, rule)) = Sent::read(&call.http.body).and_then(|sent| {
                        let (rule, _) = rule_and_tenant(&sent.key)?;
                        Some((sent, rule as usize))
                    }) else {
                        return self.violate(format!("no call that the script could read: {}", call.http.body));
                    };
                    let asked = &sent.acquire;
                    // Before a call by text another one has reported what there was.
                    if !sent.by_text && (asked.want + asked.size + asked.debt > 0 || asked.hold) {
                        let holding = &mut self.holdings[worker / self.ground.case.workers][rule];
                        let until = START + self.now + asked.short_life_ms();
                        holding.report(asked.end, asked.carry, asked.want, until);
                    }
                    self.messages.push(Message {
                        worker,
                        rule,
                        call: call.id,
                        sent: SentHash(sent),
                        sent_at: self.now,
                        ends: self.now + call.timeout.0,
                        over: false,
                        lost: false,
                        reply: None,
                    });
                }
                Step::Finish(request, Verdict { answer, .. }) => {
                    let Some(waiting) = self.waiting[request as usize].take() else {
                        return self.violate(format!("request {request} is finished, but does not wait"));
                    };
                    self.note(|| format!("    request {request}: {answer:?}"));
                    if !matches!(answer, Answer::Pass(_)) {
                        continue;
                    }
                    // The root has granted so much to those who waited when the call was sent; the rest is spent here.
                    if has_one_rule && waiting.arrived <= sent_at && granted >= waiting.cost {
                        granted -= waiting.cost;
                    } else {
                        self.spend(worker, waiting.cost);
                    }
                }
            }
        }
        let first = self.proxy(worker) * self.ground.case.workers;
        for other in (0..self.ground.case.workers).map(|number| first + number) {
            if (wake && other == worker) || wake_others & (1 << (other - first)) != 0 {
                let now = self.time();
                let steps = self.flows[other].woken_by_other(now);
                self.perform(other, steps, None);
            }
        }
    }

    /// A request has passed on its proxy's own account, but for what was granted to it and counted then.
    fn spend(&mut self, worker: usize, cost: u64) {
        let (proxy, now) = (self.proxy(worker), self.now);
        self.credits.retain(|(.., tokens, until)| *tokens > 0 && *until >= now);
        for rule in 0..self.roots.len() {
            let mut missing = cost;
            for (of, at, tokens, _) in &mut self.credits {
                let taken = if (*of, *at) == (worker, rule) { missing.min(*tokens) } else { 0 };
                *tokens -= taken;
                missing -= taken;
            }
            if let Err(missing) = self.holdings[proxy][rule].spend(missing, START + now) {
                self.violate(format!("proxy {proxy} has spent {missing} tokens that no live lease holds"));
            }
            self.admit(rule, missing);
        }
    }

    fn admit(&mut self, rule: usize, tokens: u64) {
        if let Err(units) = self.promises[rule].admit(tokens, self.now) {
            self.violate(format!("{units} units more than {:?} allows were admitted", self.promises[rule].limit));
        }
    }

    fn reach(&mut self, number: usize) {
        let message = &mut self.messages[number];
        let call = &message.sent.0.acquire;
        let rule = message.rule;
        let reply = self.roots[rule].acquire(START + self.now, call);
        let granted = if call.hold { 0 } else { call.cost(&reply.granted) };
        message.reply = Some(Reply { number: 0, ..reply.clone() });
        self.note(|| format!("    {reply:?}"));
        self.admit(rule, granted);
    }

    fn back(&mut self, message: Message) {
        let Some(reply) = &message.reply else { return };
        let (call, in_time) = (&message.sent.0.acquire, !message.over && self.now < message.ends);
        let granted = call.cost(&reply.granted);
        if in_time {
            let held = if call.hold { granted } else { 0 };
            let holding = &mut self.holdings[message.worker / self.ground.case.workers][message.rule];
            if message.sent.0.ends_lease() {
                holding.drop_all();
            }
            holding.replace(call.end, call.carry.min(call.want), reply.end, reply.kept, reply.extra + held);
        }
        let body = wire::body(&Reply { number: call.number, ..reply.clone() }, message.sent.0.by_text);
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        let now = self.time();
        let steps = self.flows[message.worker].ended(message.call, end, now);
        let cause = (in_time && !call.hold).then_some((message.sent_at, message.rule, granted));
        self.perform(message.worker, steps, cause);
    }

    fn pass(&mut self, until: u64) {
        self.left.pass -= 1;
        while self.now < until {
            self.now = self.due().map_or(until, |due| due.min(until));
            for number in 0..self.messages.len() {
                let Message { worker, rule, over, ends, .. } = self.messages[number];
                if !over && ends <= self.now {
                    self.messages[number].over = true;
                    let call = self.messages[number].sent.0.acquire.clone();
                    let proxy = self.proxy(worker);
                    match self.messages[number].sent.0.ends_lease() {
                        true => self.holdings[proxy][rule].drop_all(),
                        false => self.holdings[proxy][rule].drop(call.end, call.carry),
                    }
                }
            }
            self.messages.retain(|message| !(message.over && message.lost));
            for worker in 0..self.flows.len() {
                let now = self.time();
                let steps = self.flows[worker].tick(now);
                self.perform(worker, steps, None);
            }
        }
        let timeout = self.ground.timeout;
        if let Some(late) = self.waiting.iter().flatten().find(|waiting| waiting.arrived + timeout <= self.now) {
            let since = late.arrived;
            self.violate(format!("a request of {since} ms still waits"));
        }
    }

    /// What is in a bucket and what is lent are no more than the burst; what proxies hold is lent.
    fn check(&mut self) {
        let clock = START + self.now;
        for rule in 0..self.roots.len() {
            let (root, limit) = (&self.roots[rule], self.ground.limits[rule]);
            if root.expires_at.is_none_or(|at| clock > at) {
                continue;
            }
            let (used, lent) = (root.used, root.lent());
            let alive: u64 = root.slots.iter().filter(|slot| slot.end > clock).map(|slot| slot.tokens).sum();
            let held: u64 = self.holdings.iter().map(|holdings| holdings[rule].unspent(clock)).sum();
            if used < limit.units(lent) {
                self.violate(format!("{lent} are lent, and only {used} units are used"));
            }
            if held > alive {
                self.violate(format!("proxies hold {held} tokens, and only {alive} are lent"));
            }
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, &self.roots, &self.messages, &self.holdings, &self.credits, self.left).hash(&mut hasher);
        self.promises.iter().for_each(|promise| promise.state().hash(&mut hasher));
        for waiting in self.waiting.iter().flatten() {
            (waiting.worker, waiting.cost, waiting.arrived).hash(&mut hasher);
        }
        for (worker, receipt) in &self.stalled {
            (worker, format!("{receipt:?}")).hash(&mut hasher);
        }
        for shared in &self.shared {
            shared.digest().hash(&mut hasher);
        }
        hasher.finish()
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
