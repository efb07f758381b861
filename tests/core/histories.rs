//! Short histories at random: requests come and leave, wakes are lost, replies are right, garbage, late, doubled or
//! never come, policies are replaced. A model beside the flow knows what may happen at each step.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Run, runs};
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, Call, CallId, CallOwner, Engine, Step, Ticket, Verdict as Decided};
use weir::limiter::{Failure, HttpEnd};
use weir::local::Nowhere;
use weir::policy::{Limit, OnError};
use weir::response::{Answer, Header, Refusal};

use crate::made::{Random, ask_of, limit, policy_of, rounds};

/// Ticks come this often, for the shortest wait of the plans.
const PERIOD: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Finished,
    Left,
}

#[derive(Debug)]
struct Waiter {
    plan: usize,
    key: usize,
    cost: u64,
    deadline: u64,
    ticket: Option<Ticket>,
    state: State,
}

/// A bucket as Redis keeps it, one request at a time.
#[derive(Debug)]
struct Bucket {
    limit: Limit,
    level: u64,
    at: u64,
    granted: u64,
    admitted: u64,
}

/// What the bucket has said to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Verdict {
    granted: bool,
    remaining: u64,
}

#[derive(Debug)]
struct Out {
    id: CallId,
    number: u64,
    plan: usize,
    key: usize,
    by_text: bool,
    group: Vec<usize>,
    sent: u64,
    ends: u64,
    over: bool,
    /// What the script has answered, if it has run: the body, and what each of the group got.
    ran: Option<(String, Vec<Verdict>)>,
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Ran,
    NoScript,
    Failed(Failure),
}

/// What the flow is told while its steps are looked at.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Arrival(usize),
    Woken,
    Tick,
    Ended(usize, End),
    /// A call that is over.
    Late,
}

struct History {
    seed: u64,
    random: Random,
    owner: CallOwner,
    flow: Engine<usize>,
    plans: Vec<Rc<Plan>>,
    /// The plan in force.
    plan: usize,
    now: u64,
    next_tick: u64,
    waiters: Vec<Waiter>,
    queues: BTreeMap<(usize, usize), VecDeque<usize>>,
    calls: Vec<Out>,
    buckets: Vec<Bucket>,
    script_known: bool,
    /// The host was asked to wake the root and has not yet.
    wake: bool,
    /// Nothing has cleared the flow's own wish to be woken.
    wanted: bool,
    log: Vec<String>,
    finished: [u64; 4],
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = Random::seeded(seed);
        let owner = if random.one_in(4) { CallOwner::Request } else { CallOwner::Root };
        let buckets = [limit(5, 1, 5), limit(3, 2, 4), limit(200, 1, 50)].map(|limit| Bucket {
            limit,
            level: limit.burst() * limit.period().0,
            at: 0,
            granted: 0,
            admitted: 0,
        });
        History {
            owner,
            flow: Engine::new(owner, random.draw(), 0),
            plans: PLANS.with(Clone::clone),
            plan: random.below(3) as usize,
            now: random.below(3),
            next_tick: PERIOD,
            waiters: vec![],
            queues: BTreeMap::new(),
            calls: vec![],
            buckets: buckets.into(),
            script_known: !random.one_in(3),
            wake: false,
            wanted: false,
            log: vec![],
            finished: [0; 4],
            seed,
            random,
        }
    }

    fn now(&self) -> Now {
        Now { mono: Ms(self.now), unix: Ms(1_700_000_000_000 + self.now) }
    }

    /// Time passes; ticks come when they are due.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.next_tick <= until {
            self.now = self.next_tick;
            self.next_tick += PERIOD;
            self.tick();
        }
        self.now = until;
    }

    fn tick(&mut self) {
        let steps = self.flow.on_timer(self.now());
        (self.wake, self.wanted) = (self.wake && !self.random.one_in(2), false);
        for call in &mut self.calls {
            call.over |= call.ends <= self.now;
        }
        self.look(steps, Told::Tick);
        assert!(self.waiters.iter().all(|waiter| waiter.state != State::Waiting || waiter.deadline > self.now));
        // Whoever stands in a queue has a call before it that is young, or two.
        for ((plan, key), queue) in &self.queues {
            if queue.iter().any(|waiter| self.waiters[*waiter].state == State::Waiting) {
                let (out, young) = self.out(*plan, *key);
                assert!(out == 2 || young, "nobody asks for plan {plan}, key {key}");
            }
        }
    }

    fn timeout(&self, plan: usize) -> u64 {
        self.plans[plan].policy.limiters.first().timeout.0
    }

    /// How many calls of a line are out, and whether one has not outlived a wait.
    fn out(&self, plan: usize, key: usize) -> (usize, bool) {
        let of_line = |call: &&Out| !call.over && (call.plan, call.key) == (plan, key);
        let young = |call: &Out| self.now < call.sent + self.timeout(plan);
        (self.calls.iter().filter(of_line).count(), self.calls.iter().filter(of_line).any(young))
    }

    fn arrive(&mut self) {
        if self.random.one_in(8) {
            self.plan = self.random.below(self.plans.len() as u64) as usize;
        }
        let plan = self.plan;
        let key = self.random.pick(&[0, 0, 0, 1, 1, 2]);
        let cost = 1 + self.random.below(4).saturating_sub(1);
        let waiter = self.waiters.len();
        let deadline = self.now + self.timeout(plan);
        self.waiters.push(Waiter { plan, key, cost, deadline, ticket: None, state: State::Waiting });
        if self.owner == CallOwner::Root {
            self.queues.entry((plan, key)).or_default().push_back(waiter);
        }
        let mut ask = ask_of(&format!("k{key}"), self.buckets[key].limit, cost);
        ask.on_error = self.plans[plan].policy.rules[0].on_error;
        let (arrival, steps) = self.flow.charge(&self.plans[plan].clone(), vec![ask], vec![], waiter, self.now());
        let Arrival::Waits(ticket) = arrival else { panic!("{arrival:?}") };
        self.waiters[waiter].ticket = Some(ticket);
        self.look(steps, Told::Arrival(waiter));
    }

    fn leave(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        // Also one that is finished: hosts say so at the end of every stream.
        let waiter = self.random.below(self.waiters.len() as u64) as usize;
        let waiter = &mut self.waiters[waiter];
        self.flow.on_end(waiter.ticket.expect("a ticket"));
        if waiter.state == State::Waiting {
            waiter.state = State::Left;
            self.finished[3] += 1;
        }
    }

    fn woken(&mut self) {
        let steps = self.flow.on_wake(self.now());
        (self.wake, self.wanted) = (false, false);
        self.look(steps, Told::Woken);
    }

    /// Redis runs the script of a call, as it stands in `lua/`, one request at a time.
    fn run_script(&mut self, call: usize) {
        let out = &self.calls[call];
        if out.ran.is_some() || (!out.by_text && !self.script_known) {
            return;
        }
        self.script_known = true;
        let bucket = &mut self.buckets[out.key];
        let (requests, period) = (bucket.limit.requests(), bucket.limit.period().0);
        let capacity = bucket.limit.burst() * period;
        bucket.level = capacity.min(bucket.level + (self.now - bucket.at) * requests);
        bucket.at = self.now;
        let costs: Vec<u64> = out.group.iter().map(|waiter| self.waiters[*waiter].cost).collect();
        let mut verdicts = Vec::new();
        for cost in &costs {
            let granted = cost * period <= bucket.level;
            if granted {
                bucket.level -= cost * period;
                bucket.granted += cost;
            }
            verdicts.push(Verdict { granted, remaining: bucket.level / period });
        }
        // Those refused are told of the bucket as the group left it.
        let remaining = bucket.level / period;
        for verdict in verdicts.iter_mut().filter(|verdict| !verdict.granted) {
            verdict.remaining = remaining;
        }
        let mut reply = vec![out.number, bucket.level, (capacity - bucket.level).div_ceil(requests), 0, 0, 0, 0, 0];
        let mut of_run = verdicts.iter();
        for run in runs(costs) {
            reply.push(of_run.by_ref().take(run.count as usize).filter(|verdict| verdict.granted).count() as u64);
        }
        let command = if out.by_text { "EVAL" } else { "EVALSHA" };
        self.calls[call].ran = Some((serde_json::json!({ command: reply }).to_string(), verdicts));
    }

    /// A call ends, somehow; or one that is over ends again.
    fn end(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        // Mostly one that is out.
        let out: Vec<usize> = (0..self.calls.len()).filter(|call| !self.calls[*call].over).collect();
        let call = match out.is_empty() || self.random.one_in(8) {
            true => self.random.below(self.calls.len() as u64) as usize,
            false => self.random.pick(&out),
        };
        if !self.random.one_in(3) {
            self.run_script(call);
        }
        let command = if self.calls[call].by_text { "EVAL" } else { "EVALSHA" };
        let no_script = format!(r#"{{"{command}":[false,"NOSCRIPT No matching script."]}}"#);
        let error = format!(r#"{{"{command}":[false,"OOM command not allowed"]}}"#);
        let right = self.calls[call].ran.as_ref().map(|(body, _)| body.clone());
        let cut = right.as_deref().map_or("", |body| &body[..body.len() - 1]).to_owned();
        let no_script_known = right.is_none() && self.random.one_in(2);
        let answer = |status, body| HttpEnd::Answer { status, body };
        let (end, http) = match (self.random.below(16), &right) {
            (0, _) => (End::Failed(Failure::Reset), HttpEnd::NoAnswer),
            (1, _) => (End::Failed(Failure::Status), answer(503, cut.as_bytes())),
            (2, _) => (End::Failed(Failure::Redis), answer(200, error.as_bytes())),
            (3, Some(_)) => (End::Failed(Failure::Unreadable), answer(200, cut.as_bytes())),
            (_, Some(body)) => (End::Ran, answer(200, body.as_bytes())),
            (_, None) if no_script_known || self.calls[call].by_text => {
                (End::NoScript, answer(200, no_script.as_bytes()))
            }
            (3, None) => (End::Failed(Failure::Oversized), HttpEnd::Oversized),
            (4, None) => (End::Failed(Failure::Unreachable), HttpEnd::NotStarted(Failure::Unreachable)),
            // It is under way.
            (_, None) => return,
        };
        let told = if self.calls[call].over { Told::Late } else { Told::Ended(call, end) };
        let steps = self.flow.on_reply(self.calls[call].id, http, self.now());
        self.calls[call].over = true;
        self.look(steps, told);
    }

    /// Looks at what the flow wants to be done, step by step.
    fn look(&mut self, steps: Vec<Step<usize>>, told: Told) {
        self.log.push(format!("{}: {told:?}", self.now));
        // Where in its group the last request stood that the ended call has answered.
        let mut served = 0;
        for step in steps {
            match step {
                Step::Wake => {
                    assert!(self.owner == CallOwner::Root && matches!(told, Told::Arrival(_)));
                    assert!(!self.wanted, "it has been asked for already");
                    (self.wake, self.wanted) = (true, true);
                }
                Step::Call(call) => self.look_at_call(call, &told),
                Step::Finish(waiter, Decided { answer, record, .. }) => {
                    let [mark] = record.marks.as_slice() else { panic!("one rule: {record:?}") };
                    self.look_at_finish(waiter, &answer, mark.degraded, &told, &mut served);
                }
                Step::Count(..) => {}
                Step::WakeOthers(_) => panic!("nobody else is concerned: {step:?}"),
            }
        }
        if let Told::Ended(call, _) = told {
            let group = &self.calls[call].group;
            let forgotten = |waiter: &usize| {
                self.waiters[*waiter].state == State::Waiting
                    && !self.calls.iter().any(|call| !call.over && call.group.contains(waiter))
            };
            assert!(!group.iter().any(forgotten), "one of the group is neither answered nor asked for again");
        }
    }

    fn look_at_call(&mut self, call: Call, told: &Told) {
        assert!(self.calls.iter().all(|out| out.id != call.id));
        let plan = self.plans.iter().position(|plan| plan.id == call.plan.id).expect("a plan");
        let parts: Vec<&str> = call.http.body.split('/').collect();
        let key: usize = key_of_tenant(parts[3]);
        let numbers: Vec<u64> = parts[4..].iter().map(|number| number.parse().expect("a number")).collect();
        let limit = self.buckets[key].limit;
        assert_eq!(numbers[..3], [limit.requests(), limit.period().0, limit.burst()]);
        // Nothing is borrowed: the terms say nothing, and nothing is offered, wanted, held or owed.
        assert_eq!(numbers[3..11], [300_000, limit.burst() / 2, 0, 0, 0, 0, 0, 0]);
        let asked: Vec<Run> = numbers[12..].chunks(2).map(|run| Run { cost: run[0], count: run[1] }).collect();
        let by_text = parts[0] == "EVAL";
        let waits = |waiter: &usize| self.waiters[*waiter].state == State::Waiting;
        self.log.push(format!("  a call for plan {plan}, key {key}: {asked:?}"));
        let group: Vec<usize> = match (by_text, told) {
            (true, Told::Ended(call, End::NoScript)) => {
                assert!(!self.calls[*call].by_text, "a text is sent once");
                self.calls[*call].group.iter().copied().filter(waits).collect()
            }
            (true, _) => panic!("a text without NOSCRIPT"),
            (false, Told::Arrival(waiter)) => {
                assert_eq!(self.owner, CallOwner::Request);
                vec![*waiter]
            }
            (false, Told::Late) => panic!("a late end starts a call"),
            (false, _) => {
                let queue = self.queues.get_mut(&(plan, key)).expect("a queue");
                std::mem::take(queue).into_iter().filter(waits).collect()
            }
        };
        assert!(!group.is_empty());
        assert_eq!(asked, runs(group.iter().map(|waiter| self.waiters[*waiter].cost)), "order of arrival");
        if self.owner == CallOwner::Root {
            let (out, young) = self.out(plan, key);
            assert!(out < 2, "a third call");
            assert!(by_text || !young, "a second call too early");
        }
        let (sent, ends) = (self.now, self.now + call.timeout.0);
        self.calls.push(Out {
            id: call.id,
            number: numbers[11],
            plan,
            key,
            by_text,
            group,
            sent,
            ends,
            over: false,
            ran: None,
        });
    }

    fn look_at_finish(
        &mut self,
        waiter: usize,
        answer: &Answer,
        failure: Option<Failure>,
        told: &Told,
        served: &mut usize,
    ) {
        let at = &mut self.waiters[waiter];
        assert_eq!(at.state, State::Waiting, "finished once, and not after it left");
        at.state = State::Finished;
        assert!(self.now <= at.deadline + PERIOD, "too late");
        self.log.push(format!("  {waiter} is finished, {failure:?}"));
        let (status, headers): (u16, &[Header]) = match answer {
            Answer::Pass(headers) => (200, headers),
            Answer::Refuse(Refusal { status, headers, .. }) => (*status, headers),
        };
        let number = |wanted: &str| {
            let header = headers.iter().find(|(name, _)| *name == wanted);
            header.map(|(_, value)| value.parse::<u64>().expect("a number"))
        };
        if let Some(failure) = failure {
            let by_policy = match self.plans[at.plan].policy.rules[0].on_error {
                OnError::Allow => 200,
                OnError::Deny | OnError::Local => 503,
            };
            assert_eq!((status, number("x-ratelimit-remaining")), (by_policy, None));
            self.finished[2] += 1;
            if failure == Failure::Timeout {
                assert!(at.deadline <= self.now, "timed out too early");
                return;
            }
            let Told::Ended(call, end) = told else { panic!("{failure:?} out of nowhere") };
            let wanted = match end {
                End::NoScript => Failure::Redis,
                End::Failed(failure) => *failure,
                End::Ran => panic!("a true reply is no failure"),
            };
            assert_eq!(failure, wanted);
            assert!(self.calls[*call].group.contains(&waiter));
            return;
        }
        assert!(at.deadline > self.now, "answered after its deadline");
        let Told::Ended(call, End::Ran) = told else { panic!("a verdict out of nowhere") };
        let call = &self.calls[*call];
        let place = call.group.iter().position(|other| *other == waiter).expect("one of the group");
        assert!(place >= *served, "out of order");
        *served = place + 1;
        let verdict = call.ran.as_ref().expect("a reply").1[place];
        assert_eq!((status == 200, number("x-ratelimit-remaining")), (verdict.granted, Some(verdict.remaining)));
        assert_eq!(number("retry-after").is_some(), !verdict.granted);
        let bucket = &mut self.buckets[at.key];
        if verdict.granted {
            bucket.admitted += at.cost;
            self.finished[0] += 1;
        } else {
            assert_eq!(status, 429);
            self.finished[1] += 1;
        }
        assert!(bucket.admitted <= bucket.granted, "more is admitted than was granted");
    }

    fn play(&mut self) {
        for _ in 0..10 + self.random.below(40) {
            match self.random.below(20) {
                0..=4 => self.arrive(),
                5 if self.random.one_in(2) => self.leave(),
                5..=11 => self.end(),
                12 if self.wake && self.random.one_in(3) => self.wake = false, // lost
                12..=16 if self.wake => self.woken(),
                15 if self.random.one_in(4) => self.woken(), // for nobody
                16 if self.random.one_in(4) => self.script_known = false,
                17 | 18 => {
                    let ms = self.random.pick(&[1, 1, 1, 1, 1, 2, 3, 9]);
                    self.pass(ms);
                }
                19 if self.random.one_in(32) => self.pass(1000),
                _ => {}
            }
        }
        // Nobody comes any more: everyone is answered by the deadline, and every call ends by its own.
        self.pass(50 + PERIOD);
        assert!(self.waiters.iter().all(|waiter| waiter.state != State::Waiting));
        assert_eq!(self.flow.waiting(), 0);
        self.now += 1000;
        self.tick();
        assert!(self.flow.is_idle());
    }
}

/// Tells a history whose test fails.
impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, {:?}\n{}", self.seed, self.owner, self.log.join("\n"));
        }
    }
}

thread_local! {
    /// Waits of 8, 20 and 50 ms.
    static PLANS: Vec<Rc<Plan>> = [(1, 8, "deny"), (2, 20, "allow"), (3, 50, "deny")]
        .map(|(id, timeout, on_error)| {
            let key = r#"[{"constant": "all"}]"#;
            let mut policy = policy_of(key, r#""60/m""#, &format!(r#", "on_error": "{on_error}""#), "");
            policy.limiters.iter_mut().for_each(|limiter| limiter.timeout = Ms(timeout));
            Rc::new(Plan::new(id, policy, Rc::new(Nowhere), (1, 2)))
        })
        .into();
}

#[wasm_bindgen_test(unsupported = test)]
fn in_random_histories_every_request_is_finished_once_and_in_time() {
    let mut finished = [0; 4];
    for seed in 0..rounds(20_000) {
        let mut history = History::new(seed);
        history.play();
        for (sum, of_one) in finished.iter_mut().zip(history.finished) {
            *sum += of_one;
        }
    }
    // Granted, refused, failed, left: the histories are of all kinds.
    assert!(finished.iter().all(|sum| *sum > rounds(5_000)), "{finished:?}");
}

/// The number in the tenant `t.k<number>` of a key that is percent-encoded.
fn key_of_tenant(key: &str) -> usize {
    let (_, tenant) = key.split_once("%7Bt%2Ek").expect("a tenant");
    tenant.split('%').next().and_then(|number| number.parse().ok()).expect("a number")
}
