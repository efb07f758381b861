//! The one way of a request: decided at once, or waiting for tokens until its deadline.
//!
//! A request may need tokens of several buckets: it takes all of them or none. Those it misses it waits for, in a line
//! at each bucket. While a call for a bucket is out, later ones wait and share the next call (group commit), served in
//! order. All modes go this way: they differ in what a proxy may take by itself, and in what a call asks for. The flow
//! does nothing itself: it takes what happened and the time, and returns steps for the host to perform, in order. It
//! must not know how a host calls, resumes or counts.
//!
//! A waiting request keeps the plan that it came with, so a replaced policy still answers it. Each is finished exactly
//! once: finishing takes it off the list, and everything that happens later finds it gone. What was granted to one
//! that is gone is dropped: nobody else gets it, and nobody gives it back, unless it is held as a lease.

mod line;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use line::{Line, LineId, Out};

use crate::answer::{Answer, Outcome, answer};
use crate::bucket::{Share, Standing};
use crate::clock::{Ms, Now};
use crate::limiter::{Failure, HttpCall};
use crate::plan::{Due, Plan, Receipt, Taken};
use crate::policy::{Limit, OnError, Policy};
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
    /// It needs tokens: see [`Flow::arrive`].
    Ask(Vec<Ask>),
}

/// Whose calls to the limiter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOwner {
    /// The root's: they outlive every request, and a group shares one. The root is woken to make them.
    Root,
    /// The request's own: made where it arrives, shared with nobody, one at a time.
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
    /// Have it called in other workers of this proxy, a bit for each: a call that they wait for is over.
    WakeOthers(u32),
    /// Make a call; [`Flow::ended`] wants to know how it ends.
    Call(Call),
    /// Resume or answer a paused request.
    Finish(S, Answer),
    /// Count a request that `on_error` has decided, for this reason.
    Degraded(Rc<Plan>, Failure),
    /// Count a request that this rule would have refused, were it no shadow.
    Shadow(Rc<Plan>, usize),
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
pub fn decide(policy: &Policy, request: &dyn Request) -> Decision {
    let outcome = match judge(policy, request) {
        Ruling::Ask(asks) => return Decision::Ask(asks),
        Ruling::Pass => Outcome::Pass,
        Ruling::Malformed => Outcome::Malformed,
        Ruling::Forbidden(rule) => Outcome::Forbidden(rule),
        Ruling::Doubled(rule) => Outcome::Doubled(rule),
    };
    Decision::Answer(answer(policy, &outcome, Ms::default(), 0))
}

/// Everything that waits in one VM.
#[derive(Debug)]
pub struct Flow<S> {
    owner: CallOwner,
    /// This worker's bit among those of its proxy.
    worker: u32,
    store: Box<dyn Store>,
    waiters: BTreeMap<Ticket, Waiter<S>>,
    deadlines: BTreeSet<(Ms, Ticket)>,
    lines: BTreeMap<LineId, Line>,
    calls: BTreeMap<CallId, Out>,
    /// Lines that may start a call once the root is woken.
    ready: Vec<LineId>,
    /// Lines for which another worker has a call out.
    others_call: Vec<LineId>,
    /// Lines to look after, and when.
    watches: BTreeSet<(Ms, LineId)>,
    woken: bool,
    next: u64,
    random: u64,
}

#[derive(Debug)]
struct Waiter<S> {
    stream: S,
    plan: Rc<Plan>,
    wants: Vec<Want>,
    deadline: Ms,
}

/// What a request wants of one bucket.
#[derive(Clone, Debug)]
struct Want {
    ask: Ask,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has to be taken.
    Open,
    /// The limiter has to be asked.
    Missing,
    /// It stands in line.
    InLine,
    /// The limiter has granted it to this request.
    Granted(Standing),
    /// The limiter has failed.
    Failed(Failure),
}

/// What was taken for a request, and could be put back.
type Receipts = Vec<(usize, Receipt)>;

impl<S> Flow<S> {
    /// Nobody waits yet. `seed` is for jitter, `worker` the number of this worker in its proxy: where there are more
    /// than 32, some share one, and are woken in vain now and then.
    pub fn new(owner: CallOwner, seed: u64, store: Box<dyn Store>, worker: u32) -> Flow<S> {
        Flow {
            owner,
            worker: 1_u32.rotate_left(worker),
            store,
            waiters: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            lines: BTreeMap::new(),
            calls: BTreeMap::new(),
            ready: Vec::new(),
            others_call: Vec::new(),
            watches: BTreeSet::new(),
            woken: false,
            next: 0,
            random: seed,
        }
    }

    /// Says which worker this is, once that is known.
    pub fn set_worker(&mut self, worker: u32) {
        self.worker = 1_u32.rotate_left(worker);
    }

    /// How often [`Flow::tick`] wants to be called under a policy, so that no request waits past its deadline for
    /// longer than this.
    pub fn tick_period(policy: &Policy) -> Ms {
        Ms(policy.limiter.timeout.0 / 2).clamp(Ms(5), Ms(50))
    }

    /// A request needs tokens: this proxy decides it, where it can, or it waits, paused by the host.
    pub fn arrive(&mut self, plan: &Rc<Plan>, asks: Vec<Ask>, stream: S, now: Now) -> (Arrival, Vec<Step<S>>) {
        let mut steps = Vec::new();
        let is_new = |ask: &Ask| match &ask.repeat {
            Some(repeat) => !plan.is_repeat(self.store.as_ref(), repeat, now.mono),
            None => true,
        };
        let mut wants: Vec<Want> =
            asks.into_iter().filter(is_new).map(|ask| Want { ask, state: State::Open }).collect();
        if let Some(outcome) = self.take_all(plan, &mut wants, Patience::Waits, now, &mut steps) {
            let random = self.random();
            return (Arrival::Decided(answer(&plan.policy, &outcome, now.unix, random)), steps);
        }
        let ticket = Ticket(self.next());
        let deadline = now.mono + plan.policy.limiter.timeout;
        self.deadlines.insert((deadline, ticket));
        self.waiters.insert(ticket, Waiter { stream, plan: plan.clone(), wants, deadline });
        self.stand_in_line(ticket, now, &mut steps);
        (Arrival::Waits(ticket), steps)
    }

    /// The root has been woken, as [`Step::Wake`] or another worker's [`Step::WakeOthers`] wanted.
    pub fn woken(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.expire(now, &mut steps);
        // Until all is done, nobody needs to wake the root again.
        self.woken = true;
        for id in std::mem::take(&mut self.others_call) {
            self.serve_from_pool(&id, now, &mut steps);
            self.make_ready(id);
        }
        while !self.ready.is_empty() {
            for id in std::mem::take(&mut self.ready) {
                self.start(&id, now, &mut steps);
            }
        }
        self.woken = false;
        steps
    }

    /// Time has passed: enforces deadlines, and starts the calls that it has made possible. Also makes up for a wake-up
    /// that was lost with the root it was sent to.
    pub fn tick(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = self.woken(now);
        self.end_calls(now, &mut steps);
        self.attend(now, &mut steps);
        let is_left = |line: &Line| !line.queue.is_empty() && !line.waits_for_other;
        let waiting: Vec<LineId> =
            self.lines.iter().filter(|(_, line)| is_left(line)).map(|(id, _)| id.clone()).collect();
        for id in waiting {
            self.start(&id, now, &mut steps);
        }
        steps
    }

    /// Takes notice of what other workers have found out about the limiter of a plan.
    pub fn refresh(&self, plan: &Plan) {
        plan.refresh(self.store.as_ref());
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

    /// Whether nothing is kept for anybody: no request and no call, and no line but those of leases to look after.
    pub fn is_idle(&self) -> bool {
        let nobody = self.waiters.is_empty() && self.deadlines.is_empty() && self.calls.is_empty();
        nobody && self.lines.len() == self.watches.len()
    }

    /// Takes what a request wants of all its buckets, or of none. None where the limiter has to be asked first.
    fn take_all(
        &mut self,
        plan: &Rc<Plan>,
        wants: &mut [Want],
        patience: Patience,
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) -> Option<Outcome> {
        let mut tally = Tally::default();
        for (index, want) in wants.iter_mut().enumerate().filter(|(_, want)| !want.ask.shadow) {
            let taken = match want.state {
                State::Granted(standing) => {
                    tally.granted(&want.ask, want.ask.limit, standing);
                    continue;
                }
                State::Failed(failure) => Taken::Failed(failure),
                State::InLine if patience == Patience::Fails => continue,
                State::InLine => Taken::Failed(Failure::Timeout),
                State::Open | State::Missing => {
                    let random = self.random();
                    plan.take(self.store.as_ref(), &want.ask, now.mono, random)
                }
            };
            let taken = match taken {
                Taken::Missing if patience != Patience::Waits => Taken::Failed(Failure::Timeout),
                taken => taken,
            };
            let taken = match taken {
                Taken::Failed(failure) => {
                    tally.degraded.push(failure);
                    plan.on_error(self.store.as_ref(), &want.ask, failure, now.mono)
                }
                taken => Some(taken),
            };
            match taken {
                // It passes uncounted, and so is no repetition of anything should it be sent again.
                None => want.ask.repeat = None,
                Some(Taken::Granted { limit, standing, receipt, due }) => {
                    tally.granted(&want.ask, limit, standing);
                    tally.receipts.push((index, receipt));
                    tally.due.extend(due.map(|due| (index, due)));
                }
                Some(Taken::Refused { limit, share }) => tally.refused(&want.ask, limit, share),
                Some(Taken::Failed(failure)) => tally.failed = tally.failed.or(Some((want.ask.rule, failure))),
                Some(Taken::Missing) => {
                    want.state = State::Missing;
                    tally.is_missing = true;
                }
            }
        }
        let refusal = tally.refusal();
        if refusal.is_some() || !tally.is_missing {
            steps.extend(tally.degraded.iter().map(|failure| Step::Degraded(plan.clone(), *failure)));
        }
        if refusal.is_some() || tally.is_missing {
            for (index, receipt) in &tally.receipts {
                if let Some(want) = wants.get(*index) {
                    plan.put_back(self.store.as_ref(), &want.ask, *receipt, now.mono);
                }
            }
            return refusal;
        }
        for (index, due) in &tally.due {
            if let Some(want) = wants.get(*index) {
                self.look_after(plan, &want.ask, *due, now, steps);
            }
        }
        self.admitted(plan, wants, now, steps);
        Some(tally.admission())
    }

    /// What follows where a request passes: shadow rules count it, and it is known should it be sent again.
    fn admitted(&mut self, plan: &Rc<Plan>, wants: &[Want], now: Now, steps: &mut Vec<Step<S>>) {
        for want in wants {
            let mut is_charged = true;
            if want.ask.shadow {
                let random = self.random();
                let taken = plan.take(self.store.as_ref(), &want.ask, now.mono, random);
                is_charged = matches!(taken, Taken::Granted { .. });
                match taken {
                    Taken::Granted { due: Some(due), .. } => self.look_after(plan, &want.ask, due, now, steps),
                    Taken::Refused { .. } => steps.push(Step::Shadow(plan.clone(), want.ask.rule)),
                    Taken::Granted { due: None, .. } | Taken::Failed(_) | Taken::Missing => {}
                }
            }
            if let Some(repeat) = want.ask.repeat.as_ref().filter(|_| is_charged) {
                plan.remember(self.store.as_ref(), repeat, now.mono);
            }
        }
    }

    /// A request waits for what it misses: at all those buckets at once, or, where it can make only one call at a time,
    /// at the first.
    fn stand_in_line(&mut self, ticket: Ticket, now: Now, steps: &mut Vec<Step<S>>) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return;
        };
        let plan = waiter.plan.clone();
        let at_once = if self.owner == CallOwner::Root { usize::MAX } else { 1 };
        let missing = waiter.wants.iter_mut().filter(|want| want.state == State::Missing).take(at_once);
        let asks: Vec<Ask> = missing
            .map(|want| {
                want.state = State::InLine;
                want.ask.clone()
            })
            .collect();
        for ask in asks {
            let alone = (self.owner == CallOwner::Request).then_some(ticket);
            let id = self.line(&plan, &ask, alone);
            if let Some(line) = self.lines.get_mut(&id) {
                line.queue.push_back(ticket);
            }
            self.have_started(id, now, steps);
        }
    }

    /// The answers of all calls that a request has waited for are there.
    fn go_on(&mut self, ticket: Ticket, patience: Patience, now: Now, steps: &mut Vec<Step<S>>) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return;
        };
        if patience == Patience::Waits && waiter.wants.iter().any(|want| want.state == State::InLine) {
            return;
        }
        let (plan, mut wants) = (waiter.plan.clone(), std::mem::take(&mut waiter.wants));
        let outcome = self.take_all(&plan, &mut wants, patience, now, steps);
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.wants = wants;
        }
        match outcome {
            Some(outcome) => self.finish(ticket, &outcome, now, steps),
            None => self.stand_in_line(ticket, now, steps),
        }
    }

    /// One of the buckets that a request waits for has said something.
    fn told(&mut self, ticket: Ticket, key: &str, state: State) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            let wanted = waiter.wants.iter_mut().filter(|want| want.state == State::InLine && want.ask.key == key);
            wanted.for_each(|want| want.state = state);
        }
    }

    fn expire(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        while let Some((deadline, ticket)) = self.deadlines.first().copied()
            && deadline <= now.mono
        {
            self.go_on(ticket, Patience::Ends, now, steps);
            // Gone in any case, so that this ends.
            self.deadlines.remove(&(deadline, ticket));
        }
        self.notice_late_calls(now);
    }

    /// The only place that ends a wait with an answer.
    fn finish(&mut self, ticket: Ticket, outcome: &Outcome, now: Now, steps: &mut Vec<Step<S>>) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.deadlines.remove(&(waiter.deadline, ticket));
        let random = self.random();
        let answer = answer(&waiter.plan.policy, outcome, now.unix, random);
        steps.push(Step::Finish(waiter.stream, answer));
    }

    fn wake(&mut self, steps: &mut Vec<Step<S>>) {
        if !self.woken {
            self.woken = true;
            steps.push(Step::Wake);
        }
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

/// Whether a request can still wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It can.
    Waits,
    /// Its deadline has come.
    Ends,
    /// A failure has decided it.
    Fails,
}

/// What the buckets of one request have said, in whatever order.
#[derive(Debug, Default)]
struct Tally {
    receipts: Receipts,
    due: Vec<(usize, Due)>,
    degraded: Vec<Failure>,
    /// The bucket with the least left, for its size.
    tightest: Option<(usize, Limit, Standing)>,
    /// The refusal that holds longest.
    refused: Option<(usize, Limit, Share, Ms)>,
    failed: Option<(usize, Failure)>,
    is_missing: bool,
}

impl Tally {
    fn granted(&mut self, ask: &Ask, limit: Limit, standing: Standing) {
        // a/b < c/d, without dividing.
        let left =
            |standing: Standing, of: Limit| u128::from(standing.remaining).saturating_mul(u128::from(of.burst()));
        let is_tighter =
            self.tightest.is_none_or(|(_, limit_before, before)| left(standing, limit_before) < left(before, limit));
        if is_tighter {
            self.tightest = Some((ask.rule, limit, standing));
        }
    }

    fn refused(&mut self, ask: &Ask, limit: Limit, share: Share) {
        if let Share::Refused { retry_after, .. } = share
            && self.refused.is_none_or(|(.., longest)| retry_after > longest)
        {
            self.refused = Some((ask.rule, limit, share, retry_after));
        }
    }

    fn refusal(&self) -> Option<Outcome> {
        let refused = self.refused.map(|(rule, limit, share, _)| Outcome::Decided { rule, limit, share });
        refused.or(self.failed.map(|(rule, failure)| Outcome::Failed(rule, failure)))
    }

    fn admission(&self) -> Outcome {
        match self.tightest {
            Some((rule, limit, standing)) => Outcome::Decided { rule, limit, share: Share::Granted(standing) },
            None => Outcome::Pass,
        }
    }
}

/// Whether a failure has to be answered at once, whatever other buckets say.
fn is_final(ask: &Ask) -> bool {
    ask.on_error == OnError::Deny
}
