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

mod batch;
mod by_age;
mod line;
pub mod plan;
mod tally;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use batch::Budget;
pub use batch::MOST_FINISHED;
use by_age::ByAge;
use line::{Line, LineId, Out};
use tally::{Decided, Tally, add_mark, mark_of, source_of};

use crate::algorithm::{Share, Standing};
use crate::clock::{Ms, Now};
use crate::engine::plan::{Plan, Receipt, Taken};
use crate::limiter::{Failure, HttpCall};
use crate::local::Store;
use crate::policy::{Limit, Mode, OnError, Policy};
use crate::request::Request;
use crate::response::{Answer, Outcome, answer, answer_among};
use crate::rules::{Ask, Ruling, judge};
use crate::telemetry::{Effect, Mark, Record, TokenSource};

/// What a request gets, and what there is to tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For the client.
    pub answer: Answer,
    /// For those who watch.
    pub record: Record,
}

/// What becomes of a request that needs tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This proxy has decided it.
    Decided(Verdict),
    /// It waits.
    Waits(Ticket),
}

/// What the policy alone says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request gets this.
    Answer(Verdict),
    /// It needs tokens, and some rules let it pass uncounted: see [`Flow::arrive`].
    Ask(Vec<Ask>, Vec<Mark>),
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
    /// Make a call; [`Flow::ended`] wants to know how it ends, or [`Flow::lost`] that it never began.
    Call(Call),
    /// Resume or answer a paused request.
    Finish(S, Verdict),
    /// Count what has happened under a plan, apart from the fate of requests.
    Count(Rc<Plan>, Event),
}

/// What happens between a proxy and its limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call has been answered, well or with the word that Redis does not know the script; or it has failed.
    CallEnded(CallEnd),
    /// A rule's lease has been renewed, and has so many tokens.
    Lent(usize, u64),
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEnd {
    /// With a reply of the script.
    Ok,
    /// Redis does not know the script; it is sent again with its text.
    NoScript,
    /// Not at all, or with something else.
    Failed(Failure),
}

impl CallEnd {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            CallEnd::Ok => "ok",
            CallEnd::NoScript => "no_script",
            CallEnd::Failed(failure) => failure.name(),
        }
    }
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
    let judgement = judge(policy, request);
    let outcome = match judgement.ruling {
        Ruling::Ask(asks) => return Decision::Ask(asks, judgement.marks),
        Ruling::Pass => Outcome::Pass,
        Ruling::Malformed => Outcome::Malformed,
        Ruling::Forbidden(rule) => Outcome::Forbidden(rule),
        Ruling::Doubled(rule) => Outcome::Doubled(rule),
    };
    let record = Record { marks: judgement.marks, remaining: None };
    Decision::Answer(Verdict { answer: answer(policy, &outcome, Ms::default(), 0), record })
}

/// Everything that waits in one VM.
#[derive(Debug)]
pub struct Flow<S> {
    owner: CallOwner,
    budget: Budget,
    /// This worker's bit among those of its proxy.
    worker: u32,
    store: Box<dyn Store>,
    waiters: ByAge<Ticket, Waiter<S>>,
    deadlines: BTreeSet<(Ms, Ticket)>,
    lines: BTreeMap<LineId, Line>,
    calls: ByAge<CallId, Out>,
    /// Decided requests that the host has not been told of yet.
    finished: VecDeque<(Ticket, S, Verdict)>,
    /// Calls that never began, with the reason, or whose end the host will never tell: see [`Flow::lost`].
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
    /// Keys that hold something else than a bucket, and until when they are left alone.
    bad_keys: BTreeMap<Rc<str>, Ms>,
    woken: bool,
    next: u64,
    random: u64,
}

#[derive(Debug)]
struct Waiter<S> {
    stream: S,
    plan: Rc<Plan>,
    wants: Vec<Want>,
    /// What rules have decided that want nothing.
    marks: Vec<Mark>,
    deadline: Ms,
}

/// What a request wants of one bucket.
#[derive(Clone, Debug)]
struct Want {
    ask: Ask,
    state: State,
    /// How many calls have asked for it.
    asked: u8,
}

/// So often a request asks for the same tokens: what is granted may be gone before all it wants is there, and a table that
/// is too small forgets it again and again.
const MOST_ASKED: u8 = 16;

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
    /// The limiter has refused it.
    Refused(Share),
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
            budget: Budget::new(MOST_FINISHED),
            worker: 1_u32.rotate_left(worker),
            store,
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
            bad_keys: BTreeMap::new(),
            woken: false,
            next: 0,
            random: seed,
        }
    }

    /// Says which worker this is, once that is known.
    pub fn set_worker(&mut self, worker: u32) {
        self.worker = 1_u32.rotate_left(worker);
    }

    /// A request needs tokens: this proxy decides it, where it can, or it waits, paused by the host.
    /// `marks` are the rules that have decided it already, and want nothing.
    pub fn arrive(
        &mut self,
        plan: &Rc<Plan>,
        asks: Vec<Ask>,
        mut marks: Vec<Mark>,
        stream: S,
        now: Now,
    ) -> (Arrival, Vec<Step<S>>) {
        let mut steps = Vec::new();
        let mut wants: Vec<Want> = Vec::with_capacity(asks.len());
        for ask in asks {
            match &ask.repeat {
                Some(repeat) if plan.is_repeat(self.store.as_ref(), repeat, now.mono) => {
                    add_mark(&mut marks, Mark::new(ask.scope(), Effect::Repeated));
                }
                _ => wants.push(Want { ask, state: State::Open, asked: 0 }),
            }
        }
        if let Some(decided) = self.take_all(plan, &mut wants, &mut marks, Patience::Waits, now, &mut steps) {
            let verdict = self.verdict(plan, decided, &wants, now);
            return (Arrival::Decided(verdict), steps);
        }
        let ticket = Ticket(self.next());
        let deadline = now.mono + plan.policy.limiters.first().timeout;
        self.deadlines.insert((deadline, ticket));
        self.waiters.insert(ticket, Waiter { stream, plan: plan.clone(), wants, marks, deadline });
        self.stand_in_line(ticket, now, &mut steps);
        (Arrival::Waits(ticket), steps)
    }

    /// Takes notice of what other workers have found out about the limiter of a plan.
    pub fn refresh(&self, plan: &Plan, now: Now) {
        plan.refresh(self.store.as_ref(), now.mono);
    }

    /// A client has left while its request waited, or before it was told what was decided.
    pub fn left(&mut self, ticket: Ticket) {
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

    /// Takes what a request wants of all its buckets, or of none. None where the limiter has to be asked first.
    /// `marks` are those of rules that want nothing; they are taken where the request is decided.
    fn take_all(
        &mut self,
        plan: &Rc<Plan>,
        wants: &mut [Want],
        marks: &mut Vec<Mark>,
        patience: Patience,
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) -> Option<Decided> {
        let mut tally = Tally::default();
        for (index, want) in wants.iter_mut().enumerate().filter(|(_, want)| !want.ask.shadow) {
            let mut mark = mark_of(plan, &want.ask, Effect::Allowed);
            let tells = plan.policy.rules.get(want.ask.rule).is_some_and(|rule| rule.headers);
            let taken = match want.state {
                State::Granted(standing) => {
                    mark.source = Some(TokenSource::Limiter);
                    tally.granted(mark, Some((want.ask.limit, standing)), tells);
                    continue;
                }
                State::Refused(share) => {
                    mark.source = Some(TokenSource::Limiter);
                    tally.refused(mark, want.ask.limit, share);
                    continue;
                }
                State::Failed(failure) => Taken::Failed(failure),
                State::InLine if patience == Patience::Fails => continue,
                State::InLine => Taken::Failed(Failure::Timeout),
                State::Open | State::Missing if want.ask.asks_limiter() && self.is_left_alone(&want.ask.key, now) => {
                    Taken::Failed(Failure::BadKey)
                }
                State::Open | State::Missing => {
                    let random = self.random();
                    plan.take(self.store.as_ref(), &want.ask, now.mono, random)
                }
            };
            let taken = match taken {
                Taken::Missing if self.is_left_alone(&want.ask.key, now) => Taken::Failed(Failure::BadKey),
                Taken::Missing if patience != Patience::Waits || want.asked >= MOST_ASKED => {
                    Taken::Failed(Failure::Timeout)
                }
                taken => taken,
            };
            let taken = match taken {
                Taken::Failed(failure) => {
                    mark.degraded = Some(failure);
                    plan.on_error(self.store.as_ref(), &want.ask, failure, now.mono)
                }
                taken => Some(taken),
            };
            match taken {
                // It passes uncounted, and so is no repetition of anything should it be sent again.
                None => {
                    want.ask.repeat = None;
                    tally.granted(mark, None, tells);
                }
                Some(Taken::Granted { limit, standing, receipt, due }) => {
                    mark.source = Some(source_of(receipt));
                    tally.granted(mark, Some((limit, standing)), tells);
                    tally.receipts.push((index, receipt));
                    tally.due.extend(due.map(|due| (index, due)));
                }
                Some(Taken::Refused { limit, share }) => {
                    let is_own = mark.degraded.is_some() || want.ask.mode == Mode::Local;
                    mark.source = Some(if is_own { TokenSource::Local } else { TokenSource::Known });
                    tally.refused(mark, limit, share);
                }
                Some(Taken::Failed(failure)) => tally.failed(mark, failure),
                Some(Taken::Missing) => {
                    want.state = State::Missing;
                    tally.is_missing = true;
                }
            }
        }
        if tally.is_refused() {
            // Nobody is asked any more, and yet what is told is when all of them have it.
            for want in wants.iter().filter(|want| want.state == State::Missing) {
                if let Some(share) = plan.expected(self.store.as_ref(), &want.ask, now.mono) {
                    let mut mark = mark_of(plan, &want.ask, Effect::Limited);
                    mark.source = Some(TokenSource::Known);
                    tally.refused(mark, want.ask.limit, share);
                }
            }
        }
        let refusal = tally.refusal();
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
        self.admitted(plan, wants, marks, now, steps);
        Some(tally.admission(std::mem::take(marks)))
    }

    /// What follows where a request passes: shadow rules count it, and it is known should it be sent again.
    fn admitted(&mut self, plan: &Rc<Plan>, wants: &[Want], marks: &mut Vec<Mark>, now: Now, steps: &mut Vec<Step<S>>) {
        for want in wants {
            let mut is_charged = true;
            if want.ask.shadow {
                let random = self.random();
                let taken = plan.take(self.store.as_ref(), &want.ask, now.mono, random);
                is_charged = matches!(taken, Taken::Granted { .. });
                let mut mark = mark_of(plan, &want.ask, Effect::Allowed);
                match taken {
                    Taken::Granted { due, receipt, .. } => {
                        mark.source = Some(source_of(receipt));
                        if let Some(due) = due {
                            self.look_after(plan, &want.ask, due, now, steps);
                        }
                    }
                    Taken::Refused { .. } => mark.effect = Effect::Shadow,
                    Taken::Failed(_) | Taken::Missing => {}
                }
                add_mark(marks, mark);
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
        let plan = waiter.plan.clone();
        let (mut wants, mut marks) = (std::mem::take(&mut waiter.wants), std::mem::take(&mut waiter.marks));
        let decided = self.take_all(&plan, &mut wants, &mut marks, patience, now, steps);
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            (waiter.wants, waiter.marks) = (wants, marks);
        }
        match decided {
            Some(decided) => self.finish(ticket, decided, now),
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

    /// The only place that ends a wait with an answer.
    fn finish(&mut self, ticket: Ticket, decided: Decided, now: Now) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.deadlines.remove(&(waiter.deadline, ticket));
        let verdict = self.verdict(&waiter.plan, decided, &waiter.wants, now);
        self.finished.push_back((ticket, waiter.stream, verdict));
    }

    fn verdict(&mut self, plan: &Plan, decided: Decided, wants: &[Want], now: Now) -> Verdict {
        let random = self.random();
        let Decided { outcome, marks } = decided;
        let remaining = match outcome {
            Outcome::Decided { share: Share::Granted(standing) | Share::Refused { standing, .. }, .. } => {
                Some(standing.remaining)
            }
            _ => None,
        };
        let others = others(&plan.policy, &outcome, wants);
        let answer = answer_among(&plan.policy, &outcome, &others, now.unix, random);
        Verdict { answer, record: Record { marks, remaining } }
    }

    /// Has the root woken, unless that is on its way.
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

/// The limits that a request met beside the one that is told, where clients are told all of them.
fn others(policy: &Policy, outcome: &Outcome, wants: &[Want]) -> Vec<(usize, Limit)> {
    let Outcome::Decided { rule, limit, .. } = outcome else {
        return Vec::new();
    };
    if !policy.response.ratelimit {
        return Vec::new();
    }
    let is_told = |ask: &Ask| ask.rule == *rule && ask.limit.period() == limit.period();
    let limit_of = |ask: &Ask| if ask.mode == Mode::Local { ask.own.unwrap_or(ask.limit) } else { ask.limit };
    let asks = wants.iter().map(|want| &want.ask).filter(|ask| !ask.shadow && !is_told(ask));
    asks.map(|ask| (ask.rule, limit_of(ask))).collect()
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

/// Whether a failure has to be answered at once, whatever other buckets say.
fn is_final(ask: &Ask) -> bool {
    ask.on_error == OnError::Deny
}
