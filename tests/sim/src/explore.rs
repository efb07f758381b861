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

use weir::answer::Answer;
use weir::clock::{Ms, Now};
use weir::flow::{Arrival, CallId, CallOwner, Flow, Step, Ticket};
use weir::limiter::HttpEnd;
use weir::plan::Plan;
use weir::rule::Ask;

use crate::check::{Holding, Limit, Promise};
use crate::clock::START;
use crate::root::{Reply, Root};
use crate::scenario::{Limits, Mode, Network, Scenario};
use crate::shared::Shared;
use crate::wire::{self, Sent};
use crate::world::asks;

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
    pub mode: Mode,
    pub proxies: usize,
    pub workers: usize,
    pub limit: Limit,
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
    /// How often time may pass.
    pub pass: u8,
}

/// The cases that are explored.
pub fn cases() -> Vec<Case> {
    let budget = Budget { requests: 4, lost: 1, doubled: 1, leave: 0, wipe: 0, pass: 2 };
    let case = |name, proxies, workers, requests, burst, costs: &[u64], budget| Case {
        name,
        mode: Mode::Exact,
        proxies,
        workers,
        limit: Limit { requests, period_ms: 1000, burst },
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
    ]
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
    Leave(usize),
    Wipe(usize),
    /// Nothing happens until this moment.
    Pass(u64),
}

#[derive(Hash)]
struct Message {
    worker: usize,
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
        self.0.acquire.hash(state);
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
    flows: Vec<Flow<u32>>,
    root: Root,
    messages: Vec<Message>,
    waiting: Vec<Option<Waiting>>,
    promise: Promise,
    holdings: Vec<Holding>,
    left: Budget,
    violation: Option<String>,
    log: Option<Vec<String>>,
}

/// What all states of a case share.
struct Ground {
    case: Case,
    plan: Rc<Plan>,
    asks: Vec<Vec<Ask>>,
    timeout: u64,
}

impl Ground {
    fn new(case: Case) -> Ground {
        let scenario = Scenario {
            seed: 0,
            mode: case.mode,
            proxies: 1,
            workers: 1,
            buckets: 1,
            limits: Limits(vec![case.limit]),
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
        };
        let plan = Rc::new(Plan::new(1, scenario.policy(0), &Shared::default(), (1, 2)));
        let asks = case.costs.iter().map(|cost| asks(&plan.policy, 0, *cost)).collect();
        Ground { case, plan, asks, timeout: scenario.timeout_ms }
    }
}

impl<'c> Small<'c> {
    fn new(ground: &'c Ground, log: bool) -> Small<'c> {
        let case = &ground.case;
        let shared: Vec<Shared> = (0..case.proxies).map(|_| Shared::default()).collect();
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
            shared,
            root: Root::default(),
            messages: Vec::new(),
            waiting: Vec::new(),
            promise: Promise::new(case.limit, 0),
            holdings: vec![Holding::default(); case.proxies],
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
        let ends = self.root.slots.iter().map(|slot| slot.end).chain(self.root.expires_at.map(|at| at + 1));
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
                let Message { worker, call, ref sent, sent_at, ends, ref reply, .. } = self.messages[number];
                let again = SentHash(sent.0.clone());
                let again =
                    Message { worker, call, sent: again, sent_at, ends, over: true, lost: false, reply: reply.clone() };
                let message = std::mem::replace(&mut self.messages[number], again);
                self.back(message);
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
            Choice::Pass(moment) => self.pass(moment),
        }
        self.check();
    }

    fn time(&self) -> Now {
        Now { mono: Ms(self.now + 1), unix: Ms(START + self.now) }
    }

    fn arrive(&mut self, worker: usize, cost: u64) {
        self.left.requests -= 1;
        let number = self.waiting.len() as u32;
        self.waiting.push(None);
        let ground = self.ground;
        let at = ground.case.costs.iter().position(|of| *of == cost).unwrap_or(0);
        let now = self.time();
        let (arrival, steps) = self.flows[worker].arrive(&ground.plan, ground.asks[at].clone(), number, now);
        match arrival {
            Arrival::Decided(answer) => {
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

    fn perform(&mut self, worker: usize, steps: Vec<Step<u32>>, reply: Option<(u64, u64)>) {
        let (mut wake, mut wake_others) = (false, 0);
        let (sent_at, mut granted) = reply.unwrap_or_default();
        for step in steps {
            match step {
                Step::Wake => wake = true,
                Step::WakeOthers(others) => wake_others |= others,
                Step::Degraded(..) | Step::Shadow(..) => {}
                Step::Call(call) => {
                    let Some(sent) = Sent::read(&call.http.body) else {
                        return self.violate(format!("no call that the script could read: {}", call.http.body));
                    };
                    let asked = &sent.acquire;
                    if asked.want + asked.size + asked.debt > 0 || asked.hold {
                        let holding = &mut self.holdings[worker / self.ground.case.workers];
                        let until = START + self.now + asked.short_life_ms();
                        holding.report(asked.end, asked.carry.min(asked.want), until);
                    }
                    self.messages.push(Message {
                        worker,
                        call: call.id,
                        sent: SentHash(sent),
                        sent_at: self.now,
                        ends: self.now + call.timeout.0,
                        over: false,
                        lost: false,
                        reply: None,
                    });
                }
                Step::Finish(request, answer) => {
                    let Some(waiting) = self.waiting[request as usize].take() else {
                        return self.violate(format!("request {request} is finished, but does not wait"));
                    };
                    self.note(|| format!("    request {request}: {answer:?}"));
                    if !matches!(answer, Answer::Pass(_)) {
                        continue;
                    }
                    // The root has granted so much to those who waited when the call was sent; the rest is spent here.
                    if waiting.arrived <= sent_at && granted >= waiting.cost {
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
                let steps = self.flows[other].woken(now);
                self.perform(other, steps, None);
            }
        }
    }

    fn spend(&mut self, worker: usize, cost: u64) {
        let proxy = self.proxy(worker);
        if let Err(missing) = self.holdings[proxy].spend(cost, START + self.now) {
            self.violate(format!("proxy {proxy} has spent {missing} tokens that no live lease holds"));
        }
        self.admit(cost);
    }

    fn admit(&mut self, tokens: u64) {
        if let Err(units) = self.promise.admit(tokens, self.now) {
            self.violate(format!("{units} units more than {:?} allows were admitted", self.ground.case.limit));
        }
    }

    fn reach(&mut self, number: usize) {
        let message = &mut self.messages[number];
        let call = &message.sent.0.acquire;
        let reply = self.root.acquire(START + self.now, call);
        let granted = if call.hold { 0 } else { call.cost(&reply.granted) };
        message.reply = Some(reply.clone());
        self.note(|| format!("    {reply:?}"));
        self.admit(granted);
    }

    fn back(&mut self, message: Message) {
        let Some(reply) = &message.reply else { return };
        let (call, in_time) = (&message.sent.0.acquire, !message.over && self.now < message.ends);
        let granted = call.cost(&reply.granted);
        if in_time {
            let held = if call.hold { granted } else { 0 };
            let holding = &mut self.holdings[message.worker / self.ground.case.workers];
            holding.replace(call.end, call.carry.min(call.want), reply.end, reply.kept, reply.extra + held);
        }
        let body = wire::body(reply, message.sent.0.by_text);
        let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
        let now = self.time();
        let steps = self.flows[message.worker].ended(message.call, end, now);
        let cause = (in_time && !call.hold).then_some((message.sent_at, granted));
        self.perform(message.worker, steps, cause);
    }

    fn pass(&mut self, until: u64) {
        self.left.pass -= 1;
        while self.now < until {
            self.now = self.due().map_or(until, |due| due.min(until));
            for number in 0..self.messages.len() {
                let Message { worker, over, ends, .. } = self.messages[number];
                if !over && ends <= self.now {
                    self.messages[number].over = true;
                    let call = self.messages[number].sent.0.acquire.clone();
                    let proxy = self.proxy(worker);
                    self.holdings[proxy].drop(call.end, call.carry);
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

    /// What is in the bucket and what is lent are no more than the burst; what proxies hold is lent.
    fn check(&mut self) {
        let (limit, clock) = (self.ground.case.limit, START + self.now);
        if self.root.expires_at.is_none_or(|at| clock > at) {
            return;
        }
        let lent = self.root.lent();
        if self.root.level + limit.units(lent) > limit.capacity() {
            self.violate(format!("{} units and {lent} lent are more than the burst", self.root.level));
        }
        let alive: u64 = self.root.slots.iter().filter(|slot| slot.end > clock).map(|slot| slot.tokens).sum();
        let held: u64 = self.holdings.iter().map(|holding| holding.unspent(clock)).sum();
        if held > alive {
            self.violate(format!("proxies hold {held} tokens, and only {alive} are lent"));
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now, &self.root, &self.messages, self.promise.state(), &self.holdings, self.left).hash(&mut hasher);
        for waiting in self.waiting.iter().flatten() {
            (waiting.worker, waiting.cost, waiting.arrived).hash(&mut hasher);
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
    for depth in (4..=case.depth).step_by(4) {
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
