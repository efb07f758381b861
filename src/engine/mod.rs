//! The one way of a request: decided at once, or waiting for tokens until its deadline.
//!
//! A request may need tokens of several buckets: it takes all of them or none. Those it misses it waits for, in a line
//! at each bucket. While a call for a bucket is out, later ones wait and share the next call (group commit), served in
//! order. All modes go this way: they differ in what a proxy may take by itself, and in what a call asks for. The engine
//! does nothing itself: it takes what happened and the time, and returns steps for the host to perform, in order. It
//! must not know how a host calls, resumes or counts.
//!
//! A waiting request keeps the plan that it came with, so a replaced policy still answers it. Each is finished exactly
//! once: finishing takes it off the list, and everything that happens later finds it gone. What was granted to one
//! that is gone is dropped: nobody else gets it, and nobody gives it back, unless it is held as a lease.

mod admission;
mod by_age;
mod calls;
mod effects;
pub mod plan;
mod renewal;
mod tally;
mod turn;
mod wait_queue;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

pub use admission::{Admission, Charge};
pub use effects::{Arrival, Call, CallEnd, CallId, CallOwner, Decision, Event, Step, Ticket, Verdict};
pub use turn::MOST_FINISHED;

use by_age::ByAge;
use calls::{Out, wait_of};
use plan::Plan;
use tally::add_mark;
use turn::Budget;
use wait_queue::{Line, LineId};
use waiters::Waiter;

use crate::clock::{Ms, Now};
use crate::limiter::Failure;
use crate::policy::Policy;
use crate::random::SplitMix64;
use crate::request::Request;
use crate::response::{Outcome, answer};
use crate::rules::{Ask, Ruling, judge};
use crate::telemetry::{Effect, Mark, Record};

/// Applies a policy to a request, as far as that goes without tokens.
pub fn decide(policy: &Policy, request: &dyn Request) -> Decision {
    let judgement = judge(policy, request);
    let outcome = match judgement.ruling {
        Ruling::Ask(asks) => return Decision::Ask(asks, judgement.marks),
        Ruling::Pass => Outcome::Pass,
        Ruling::Refuse(refused, rule) => Outcome::Refused(refused, rule),
    };
    let record = Record { marks: judgement.marks, remaining: None };
    let answer = answer(policy, &outcome, Ms::default(), 0);
    Decision::Answer(Verdict { answer, record, charges: Vec::new() })
}

/// Everything that waits in one VM.
#[derive(Debug)]
pub struct Engine<S> {
    owner: CallOwner,
    budget: Budget,
    /// This worker's bit among those of its proxy.
    worker: u32,
    /// The time of what is happening, as whoever told of it has said.
    now: Now,
    /// What the host has to do because of that.
    steps: Vec<Step<S>>,
    waiters: ByAge<Ticket, Waiter<S>>,
    deadlines: BTreeSet<(Ms, Ticket)>,
    lines: BTreeMap<LineId, Line>,
    calls: ByAge<CallId, Out>,
    /// Decided requests that the host has not been told of yet.
    finished: VecDeque<(Ticket, S, Verdict)>,
    /// Calls that never began, with the reason, or whose end the host will never tell: see [`Engine::on_lost`].
    lost: VecDeque<(CallId, Option<Failure>)>,
    /// Lines that may start a call once the root is woken.
    ready: VecDeque<LineId>,
    /// Lines for which another worker has a call out.
    others_call: Vec<LineId>,
    /// Lines that may be served from what was lent.
    to_serve: VecDeque<LineId>,
    /// The last line that a tick has looked at, where lines are left for the next.
    looked_at: Option<LineId>,
    /// Lines to look after, and when.
    watches: BTreeSet<(Ms, LineId)>,
    woken: bool,
    next: u64,
    random: SplitMix64,
}

impl<S> Engine<S> {
    /// Nobody waits yet. `seed` is for jitter, `worker` the number of this worker in its proxy: where there are more
    /// than 32, some share one, and are woken in vain now and then.
    pub fn new(owner: CallOwner, seed: u64, worker: u32) -> Engine<S> {
        Engine {
            owner,
            budget: Budget::new(MOST_FINISHED),
            worker: 1_u32.rotate_left(worker),
            now: Now::default(),
            steps: Vec::new(),
            waiters: ByAge::new(),
            deadlines: BTreeSet::new(),
            lines: BTreeMap::new(),
            calls: ByAge::new(),
            finished: VecDeque::new(),
            lost: VecDeque::new(),
            ready: VecDeque::new(),
            others_call: Vec::new(),
            to_serve: VecDeque::new(),
            looked_at: None,
            watches: BTreeSet::new(),
            woken: false,
            next: 0,
            random: SplitMix64::new(seed),
        }
    }

    /// Says which worker this is, once that is known.
    pub fn set_worker(&mut self, worker: u32) {
        self.worker = 1_u32.rotate_left(worker);
    }

    /// A request has come. The time is asked for only where the request needs tokens, for it costs the host a call.
    pub fn on_request(
        &mut self,
        plan: &Rc<Plan>,
        request: &dyn Request,
        stream: S,
        clock: &dyn Fn() -> Now,
    ) -> (Arrival, Vec<Step<S>>) {
        match decide(&plan.policy, request) {
            Decision::Answer(verdict) => (Arrival::Decided(verdict), Vec::new()),
            Decision::Ask(asks, marks) => self.charge(plan, asks, marks, stream, clock()),
        }
    }

    /// A request needs tokens: this proxy decides it, where it can, or it waits, paused by the host.
    /// `marks` are the rules that have decided it already, and want nothing.
    pub fn charge(
        &mut self,
        plan: &Rc<Plan>,
        asks: Vec<Ask>,
        mut marks: Vec<Mark>,
        stream: S,
        now: Now,
    ) -> (Arrival, Vec<Step<S>>) {
        self.now = now;
        let mut charges: Vec<Charge> = Vec::with_capacity(asks.len());
        for ask in asks {
            match &ask.repeat {
                Some(repeat) if plan.is_repeat(repeat, now.mono) => {
                    add_mark(&mut marks, Mark::new(ask.scope(), Effect::Repeated));
                }
                _ => {
                    let deadline = now.mono + wait_of(plan, ask.bucket.limiter);
                    charges.push(Charge::new(ask, deadline));
                }
            }
        }
        let arrival = match self.take_all(plan, &mut charges, &mut marks) {
            Some(decided) => Arrival::Decided(self.verdict(plan, decided, charges)),
            None => {
                let ticket = Ticket(self.next());
                let deadline = charges.iter().map(|charge| charge.deadline).min().unwrap_or(now.mono);
                self.deadlines.insert((deadline, ticket));
                self.waiters.insert(ticket, Waiter { stream, plan: plan.clone(), charges, marks, deadline });
                self.stand_in_line(ticket);
                Arrival::Waits(ticket)
            }
        };
        (arrival, std::mem::take(&mut self.steps))
    }

    /// The stream of a waiting request has ended: its client has left, perhaps before it was told what was decided.
    pub fn on_end(&mut self, ticket: Ticket) {
        match self.waiters.remove(&ticket) {
            Some(waiter) => {
                self.deadlines.remove(&(waiter.deadline, ticket));
            }
            None => self.finished.retain(|(finished, ..)| *finished != ticket),
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nothing is kept for anybody: no request and no call, and no line but those of leases to look after.
    pub fn is_idle(&self) -> bool {
        let nobody = self.waiters.is_empty() && self.deadlines.is_empty() && self.finished.is_empty();
        nobody && self.calls.is_empty() && self.lines.len() == self.watches.len()
    }

    fn next(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }
}
