//! The one way of a request: decided at once, or waiting for tokens until its deadline.
//!
//! Requests for one bucket stand in a line. While a call for it is out, later ones wait and share the next call (group
//! commit), served in order. The flow does nothing itself: it takes what happened and the time, and returns steps for
//! the host to perform, in order. It must not know how a host calls, resumes or counts.
//!
//! A waiting request keeps the plan that it came with, so a replaced policy still answers it. Each is finished exactly
//! once: finishing takes it off the list, and everything that happens later finds it gone. What was granted to one
//! that is gone is dropped: nobody else gets it, and nobody gives it back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use crate::answer::{Answer, Outcome, answer};
use crate::bucket::{Grants, Run, Share, runs};
use crate::clock::{Ms, Now};
use crate::limiter::webdis::{self, By, MAX_RUNS, Reply};
use crate::limiter::{Failure, HttpCall, HttpEnd, script};
use crate::plan::Plan;
use crate::policy::{Limit, Policy};
use crate::pool::Store;
use crate::request::Request;
use crate::rule::{Ask, Ruling, judge};

/// What becomes of a request that needs tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This proxy has decided it.
    Decided(Answer),
    /// It waits.
    Waits(Ticket),
}

/// What the policy alone says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request gets this.
    Answer(Answer),
    /// It needs tokens: see [`Flow::wait`].
    Ask(Ask),
}

/// Whose calls to the limiter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOwner {
    /// The root's: they outlive every request, and a group shares one. The root is woken to make them.
    Root,
    /// The request's own: made where it arrives, shared with nobody.
    Request,
}

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A call to the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// What the host has to do. `S` is the host's handle of a paused request.
#[derive(Debug)]
pub enum Step<S> {
    /// Have [`Flow::woken`] called soon, from where a call outlives every request.
    Wake,
    /// Make a call; [`Flow::ended`] wants to know how it ends.
    Call(Call),
    /// Resume or answer a paused request.
    Finish(S, Answer),
    /// Count a request that `on_error` has decided, for this reason.
    Degraded(Rc<Plan>, Failure),
}

/// A call to make.
#[derive(Debug)]
pub struct Call {
    /// Its name here.
    pub id: CallId,
    /// Whose limiter is called.
    pub plan: Rc<Plan>,
    /// What is sent.
    pub http: HttpCall,
    /// When the host gives up on it.
    pub timeout: Ms,
}

/// Applies a policy to a request, as far as that goes without tokens.
pub fn decide(policy: &Policy, request: &impl Request) -> Decision {
    let outcome = match judge(policy, request) {
        Ruling::Ask(ask) => return Decision::Ask(ask),
        Ruling::Pass => Outcome::Pass,
        Ruling::Malformed => Outcome::Malformed,
        Ruling::Forbidden => Outcome::Forbidden,
    };
    Decision::Answer(answer(policy, &outcome, Ms::default(), 0))
}

/// Everything that waits in one VM.
#[derive(Debug)]
pub struct Flow<S> {
    owner: CallOwner,
    store: Box<dyn Store>,
    waiters: BTreeMap<Ticket, Waiter<S>>,
    deadlines: BTreeSet<(Ms, Ticket)>,
    lines: BTreeMap<LineId, Line>,
    calls: BTreeMap<CallId, Out>,
    /// Lines that may start a call once the root is woken.
    ready: BTreeSet<LineId>,
    woken: bool,
    next: u64,
    random: u64,
}

#[derive(Debug)]
struct Waiter<S> {
    stream: S,
    plan: Rc<Plan>,
    ask: Ask,
    deadline: Ms,
}

/// One bucket under one plan; or one request, where calls are the request's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LineId {
    plan: u64,
    key: Rc<str>,
    alone: Option<Ticket>,
}

/// Those who wait for one bucket.
#[derive(Debug)]
struct Line {
    plan: Rc<Plan>,
    limit: Limit,
    queue: VecDeque<Ticket>,
    calls: Vec<CallId>,
}

/// A call that is out.
#[derive(Debug)]
struct Out {
    line: LineId,
    by: By,
    /// Those whom it asks for, with their costs, in order.
    group: Vec<(Ticket, u64)>,
    sent: Ms,
    ends: Ms,
    /// It has outlived a wait, which the breaker counts as a failure, once.
    late: bool,
}

impl<S> Flow<S> {
    /// Nobody waits yet. `seed` is for jitter.
    pub fn new(owner: CallOwner, seed: u64, store: Box<dyn Store>) -> Flow<S> {
        Flow {
            owner,
            store,
            waiters: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            lines: BTreeMap::new(),
            calls: BTreeMap::new(),
            ready: BTreeSet::new(),
            woken: false,
            next: 0,
            random: seed,
        }
    }

    /// How often [`Flow::tick`] wants to be called under a policy, so that no request waits past its deadline for
    /// longer than this.
    pub fn tick_period(policy: &Policy) -> Ms {
        Ms(policy.limiter.timeout.0 / 2).clamp(Ms(5), Ms(50))
    }

    /// A request needs tokens: this proxy decides it, where it can, or it waits, paused by the host.
    pub fn arrive(&mut self, plan: &Rc<Plan>, ask: Ask, stream: S, now: Now) -> (Arrival, Vec<Step<S>>) {
        let mut steps = Vec::new();
        let random = self.random();
        let outcome = match plan.decide(self.store.as_ref(), &ask, now.mono, random) {
            None => {
                let (ticket, steps) = self.wait(plan, ask, stream, now);
                return (Arrival::Waits(ticket), steps);
            }
            Some(Outcome::Failed(failure)) => {
                steps.push(Step::Degraded(plan.clone(), failure));
                plan.on_error(self.store.as_ref(), &ask, failure, now.mono)
            }
            Some(outcome) => outcome,
        };
        let random = self.random();
        (Arrival::Decided(answer(&plan.policy, &outcome, now.unix, random)), steps)
    }

    /// Takes notice of what other workers have found out about the limiter of a plan.
    pub fn refresh(&self, plan: &Plan) {
        plan.refresh(self.store.as_ref());
    }

    /// A request waits for tokens, paused by the host.
    fn wait(&mut self, plan: &Rc<Plan>, ask: Ask, stream: S, now: Now) -> (Ticket, Vec<Step<S>>) {
        let ticket = Ticket(self.next());
        let waiter =
            Waiter { stream, plan: plan.clone(), ask: ask.clone(), deadline: now.mono + plan.policy.limiter.timeout };
        self.deadlines.insert((waiter.deadline, ticket));
        self.waiters.insert(ticket, waiter);
        let id =
            LineId { plan: plan.id, key: ask.key.into(), alone: (self.owner == CallOwner::Request).then_some(ticket) };
        let line = self.lines.entry(id.clone()).or_insert_with(|| Line {
            plan: plan.clone(),
            limit: ask.limit,
            queue: VecDeque::new(),
            calls: Vec::new(),
        });
        line.queue.push_back(ticket);
        let mut steps = Vec::new();
        match self.owner {
            CallOwner::Request => self.start(&id, now, &mut steps),
            CallOwner::Root if self.may_start(&id, now) => {
                self.ready.insert(id);
                if !self.woken {
                    self.woken = true;
                    steps.push(Step::Wake);
                }
            }
            CallOwner::Root => {}
        }
        (ticket, steps)
    }

    /// The root has been woken, as [`Step::Wake`] wanted.
    pub fn woken(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.expire(now, &mut steps);
        self.woken = false;
        for id in std::mem::take(&mut self.ready) {
            self.start(&id, now, &mut steps);
        }
        steps
    }

    /// Time has passed: enforces deadlines, and starts the calls that it has made possible. Also makes up for a wake-up
    /// that was lost with the root it was sent to.
    pub fn tick(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = self.woken(now);
        let over: Vec<CallId> =
            self.calls.iter().filter(|(_, call)| call.ends <= now.mono).map(|(id, _)| *id).collect();
        for id in over {
            steps.extend(self.ended(id, HttpEnd::NoAnswer, now));
        }
        let waiting: Vec<LineId> =
            self.lines.iter().filter(|(_, line)| !line.queue.is_empty()).map(|(id, _)| id.clone()).collect();
        for id in waiting {
            self.start(&id, now, &mut steps);
        }
        steps
    }

    /// A call has ended. One that is not known any more is a late or doubled answer and changes nothing.
    pub fn ended(&mut self, id: CallId, end: HttpEnd, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.expire(now, &mut steps);
        let Some(call) = self.calls.remove(&id) else {
            return steps;
        };
        let Some(line) = self.lines.get_mut(&call.line) else {
            return steps;
        };
        line.calls.retain(|out| *out != id);
        let (limit, asked) = (line.limit, runs(call.group.iter().map(|(_, cost)| *cost)));
        let plan = line.plan.clone();
        // An answer after the call's own end is none.
        let end = if now.mono < call.ends { end } else { HttpEnd::NoAnswer };
        let failure = match webdis::decode(end, call.by, limit, &asked) {
            Reply::Grants(grants) => {
                // One that nobody could wait for shows no limiter that can be asked again.
                if !call.late {
                    plan.call_succeeded(self.store.as_ref());
                }
                self.deliver(&plan, &call, &grants, &asked, now, &mut steps);
                None
            }
            // The script has not run, so nobody has been charged: the same requests ask again, once.
            Reply::NoScript if call.by == By::Sha => {
                let group = call.group.into_iter();
                let still_here = group.filter(|(ticket, _)| self.waiters.contains_key(ticket)).collect();
                self.send(&call.line, By::Text, still_here, now, &mut steps);
                self.start(&call.line, now, &mut steps);
                return steps;
            }
            Reply::NoScript => Some(Failure::Redis),
            Reply::Failure(failure) => Some(failure),
        };
        if let Some(failure) = failure {
            if !call.late {
                self.break_for(&plan, now);
            }
            for (ticket, _) in &call.group {
                self.finish(*ticket, Outcome::Failed(failure), now, &mut steps);
            }
        }
        self.start(&call.line, now, &mut steps);
        steps
    }

    /// A client has left while its request waited.
    pub fn left(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.remove(&ticket) {
            self.deadlines.remove(&(waiter.deadline, ticket));
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nothing is kept for anybody: no request, no line, no call.
    pub fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.deadlines.is_empty() && self.lines.is_empty() && self.calls.is_empty()
    }

    /// A call may start when none is out, or when the only one out has outlived the time that a request waits.
    fn may_start(&self, id: &LineId, now: Now) -> bool {
        let Some(line) = self.lines.get(id) else {
            return false;
        };
        match line.calls.as_slice() {
            [] => true,
            [only] => self.calls.get(only).is_none_or(|call| call.sent + line.plan.policy.limiter.timeout <= now.mono),
            _ => false,
        }
    }

    /// Starts the next call of a line, if it may and somebody waits; forgets a line that nobody needs.
    fn start(&mut self, id: &LineId, now: Now, steps: &mut Vec<Step<S>>) {
        if self.may_start(id, now) {
            let group = self.take_group(id);
            self.send(id, By::Sha, group, now, steps);
        }
        if let Some(line) = self.lines.get(id)
            && line.queue.is_empty()
            && line.calls.is_empty()
        {
            self.lines.remove(id);
        }
    }

    /// Takes those who wait off the queue, in order, as many as fit into one call.
    fn take_group(&mut self, id: &LineId) -> Vec<(Ticket, u64)> {
        let mut group: Vec<(Ticket, u64)> = Vec::new();
        let Some(line) = self.lines.get_mut(id) else {
            return group;
        };
        let mut runs: usize = 0;
        while let Some(ticket) = line.queue.front() {
            if let Some(waiter) = self.waiters.get(ticket) {
                let same = group.last().is_some_and(|(_, cost)| *cost == waiter.ask.cost);
                runs = runs.saturating_add(usize::from(!same));
                if runs > MAX_RUNS {
                    break;
                }
                group.push((*ticket, waiter.ask.cost));
            }
            line.queue.pop_front();
        }
        group
    }

    fn send(&mut self, id: &LineId, by: By, group: Vec<(Ticket, u64)>, now: Now, steps: &mut Vec<Step<S>>) {
        let call = CallId(self.next());
        let Some(line) = self.lines.get_mut(id).filter(|_| !group.is_empty()) else {
            return;
        };
        line.calls.push(call);
        let asked: Vec<Run> = runs(group.iter().map(|(_, cost)| *cost));
        let timeout = line.plan.policy.limiter.timeout.times(10).max(Ms(1000));
        steps.push(Step::Call(Call {
            id: call,
            plan: line.plan.clone(),
            http: webdis::encode(&script::TOKEN_BUCKET, by, &id.key, line.limit, &asked),
            timeout,
        }));
        let out = Out { line: id.clone(), by, group, sent: now.mono, ends: now.mono + timeout, late: false };
        self.calls.insert(call, out);
    }

    /// Gives each of a group what the bucket gave it, and notes that the bucket is dry if it is.
    fn deliver(
        &mut self,
        plan: &Rc<Plan>,
        call: &Out,
        grants: &Grants,
        asked: &[Run],
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) {
        let here = call.group.iter().find_map(|(ticket, _)| self.waiters.get(ticket));
        let Some(ask) = here.map(|waiter| waiter.ask.clone()) else {
            return;
        };
        let shares = grants.shares(ask.limit, asked);
        let refused = shares.iter().any(|share| matches!(share, Share::Refused { .. }));
        // The bucket was seen no earlier than the call was sent, so from then on it has got no more than its rate.
        plan.note(self.store.as_ref(), &ask, grants.level, refused, call.sent);
        for ((ticket, _), share) in call.group.iter().zip(shares) {
            self.finish(*ticket, Outcome::Decided(ask.limit, share), now, steps);
        }
    }

    /// Tells the breaker of a failed call.
    fn break_for(&mut self, plan: &Plan, now: Now) {
        let random = self.random();
        plan.call_failed(self.store.as_ref(), now.mono, random);
    }

    fn expire(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        while let Some((deadline, ticket)) = self.deadlines.first().copied()
            && deadline <= now.mono
        {
            self.finish(ticket, Outcome::Failed(Failure::Timeout), now, steps);
        }
        let mut late = Vec::new();
        for call in self.calls.values_mut().filter(|call| !call.late) {
            if let Some(line) = self.lines.get(&call.line)
                && call.sent + line.plan.policy.limiter.timeout <= now.mono
            {
                call.late = true;
                late.push(line.plan.clone());
            }
        }
        for plan in late {
            self.break_for(&plan, now);
        }
    }

    /// The only place that ends a wait with an answer.
    fn finish(&mut self, ticket: Ticket, outcome: Outcome, now: Now, steps: &mut Vec<Step<S>>) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.deadlines.remove(&(waiter.deadline, ticket));
        let outcome = match outcome {
            Outcome::Failed(failure) => {
                steps.push(Step::Degraded(waiter.plan.clone(), failure));
                waiter.plan.on_error(self.store.as_ref(), &waiter.ask, failure, now.mono)
            }
            outcome => outcome,
        };
        let random = self.random();
        let answer = answer(&waiter.plan.policy, &outcome, now.unix, random);
        steps.push(Step::Finish(waiter.stream, answer));
    }

    fn next(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): good enough to spread clients.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
