//! Lines at buckets, and the calls that serve them.
//!
//! A call either asks only for those who wait, or it is about the proxy's lease as well: then it takes the place of the
//! one call about that lease that may be out in all workers, and says how it ends.

use std::collections::VecDeque;
use std::rc::Rc;

use super::tally::{mark_of, refusal};
use super::{Call, CallEnd, CallId, CallOwner, Event, Flow, Patience, State, Step, Ticket, is_final};
use crate::bucket::{Acquire, Acquired, Offer, Share, runs};
use crate::clock::{Ms, Now};
use crate::limiter::webdis::{self, By, MAX_RUNS, Reply};
use crate::limiter::{Failure, HttpEnd, script};
use crate::plan::{Denied, Due, Election, Lending, LendingEnd, Plan};
use crate::policy::Mode;
use crate::pool::lease::Wish;
use crate::record::{Effect, TokenSource};
use crate::rule::Ask;

/// More buckets than these are not looked after: their leases end by themselves.
const MOST_WATCHED: usize = 16_384;

/// In one tick no more than so many buckets are looked after, so that it stays short.
const MOST_ATTENDED: usize = 256;

/// How long a key is left alone that holds something else.
const LEFT_ALONE: Ms = Ms(1000);

/// So many such keys are kept in mind.
const MOST_BAD_KEYS: usize = 256;

/// Scripts count in doubles, which hold 53 bits of a number.
const NOT_EXACT_BITS: u32 = 11;

/// One bucket under one plan and limit, since those of another tier ask otherwise; or one request at it, where calls are
/// the request's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId {
    plan: u64,
    key: Rc<str>,
    epoch: u32,
    alone: Option<Ticket>,
}

/// Those who wait for one bucket.
#[derive(Debug)]
pub(super) struct Line {
    plan: Rc<Plan>,
    /// What is asked of the bucket, by whoever came first.
    ask: Ask,
    pub(super) queue: VecDeque<Ticket>,
    calls: Vec<CallId>,
    /// A call is wanted though nobody waits.
    wish: Option<Wish>,
    /// It is among those that may start a call.
    is_ready: bool,
    /// It is among those for which another worker has a call out.
    pub(super) waits_for_other: bool,
    /// Its lease is looked after.
    is_watched: bool,
}

/// A call that is out.
#[derive(Debug)]
pub(super) struct Out {
    line: LineId,
    by: By,
    asked: Acquire,
    /// Those whom it asks for, with their costs, in order.
    group: Vec<(Ticket, u64)>,
    /// About which lease it is.
    lending: Option<Lending>,
    sent: Ms,
    ends: Ms,
    /// It has outlived a wait, which the breaker counts as a failure, once.
    late: bool,
}

impl<S> Flow<S> {
    /// The line at a bucket, a new one where there is none.
    pub(super) fn line(&mut self, plan: &Rc<Plan>, ask: &Ask, alone: Option<Ticket>) -> LineId {
        let id = LineId { plan: plan.id, key: ask.key.as_str().into(), epoch: ask.epoch(), alone };
        self.lines.entry(id.clone()).or_insert_with(|| Line {
            plan: plan.clone(),
            ask: ask.clone(),
            queue: VecDeque::new(),
            calls: Vec::new(),
            wish: None,
            is_ready: false,
            waits_for_other: false,
            is_watched: false,
        });
        id
    }

    /// Has a line start its call: here, where calls are the request's own, or soon, in the root.
    pub(super) fn have_started(&mut self, id: LineId, now: Now, steps: &mut Vec<Step<S>>) {
        match self.owner {
            CallOwner::Request => self.start(&id, now, steps),
            CallOwner::Root if self.may_call(&id, now) => {
                self.make_ready(id);
                self.wake(steps);
            }
            CallOwner::Root => {}
        }
    }

    /// The line may start a call when the root is woken.
    pub(super) fn make_ready(&mut self, id: LineId) {
        if let Some(line) = self.lines.get_mut(&id).filter(|line| !line.is_ready) {
            line.is_ready = true;
            self.ready.push(id);
        }
    }

    /// A call may start when none is out, or when the only one out has outlived the time that a request waits.
    fn may_call(&self, id: &LineId, now: Now) -> bool {
        let Some(line) = self.lines.get(id) else {
            return false;
        };
        match line.calls.as_slice() {
            [] => true,
            // One that is not among the calls has just ended, and is being seen to.
            [only] => {
                let call = self.calls.get(only);
                call.is_some_and(|call| call.sent + line.plan.policy.limiter.timeout <= now.mono)
            }
            _ => false,
        }
    }

    /// Starts the next call of a line, if it may and somebody needs it; forgets a line that nobody needs.
    pub(super) fn start(&mut self, id: &LineId, now: Now, steps: &mut Vec<Step<S>>) {
        if let Some(line) = self.lines.get_mut(id) {
            line.is_ready = false;
        }
        if self.may_call(id, now) {
            self.call(id, now, steps);
        }
        if let Some(line) = self.lines.get(id)
            && line.queue.is_empty()
            && line.calls.is_empty()
            && !line.is_watched
        {
            self.lines.remove(id);
        }
    }

    fn call(&mut self, id: &LineId, now: Now, steps: &mut Vec<Step<S>>) {
        let (group, hold) = self.take_group(id);
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        let (plan, ask) = (line.plan.clone(), line.ask.clone());
        let wish = line.wish.take();
        if group.is_empty() && wish.is_none() {
            return;
        }
        // Exact mode has a lease only where something is held, or goes back.
        let may_lend = hold || group.is_empty() || !matches!(ask.mode, Mode::Exact | Mode::Local);
        let is_about_lease = may_lend && line.calls.is_empty();
        let timeout = call_timeout(&plan);
        // What is held is held for somebody else who waits, and does not go back.
        let wish = match group.iter().map(|(_, cost)| *cost).max() {
            None => wish.unwrap_or(Wish::Borrow),
            Some(cost) if cost > 1 && !hold => Wish::BorrowFor(cost),
            Some(_) => Wish::Borrow,
        };
        let election = match is_about_lease {
            true => plan.open_call(self.store.as_ref(), &ask, wish, self.worker, now.mono, timeout),
            false => Election::Void,
        };
        let asked = |offer, hold| Acquire {
            limit: ask.limit,
            terms: ask.terms(),
            offer,
            hold,
            runs: runs(group.iter().map(|(_, cost)| *cost)),
            number: 0,
        };
        let (asked, lending) = match election {
            Election::Won(offer, lending) => (asked(offer, hold), Some(lending)),
            // What is granted without a lease is admitted at once or dropped.
            Election::Void => (asked(Offer::default(), false), None),
            Election::Lost if self.owner == CallOwner::Request => (asked(Offer::default(), false), None),
            Election::Lost => {
                for (ticket, _) in group.into_iter().rev() {
                    line.queue.push_front(ticket);
                }
                if !line.waits_for_other {
                    line.waits_for_other = true;
                    self.others_call.push(id.clone());
                }
                return;
            }
        };
        if asked.runs.is_empty() && lending.is_none() {
            return;
        }
        let ends = now.mono + timeout;
        self.send(
            Out { line: id.clone(), by: By::Sha, asked, group, lending, sent: now.mono, ends, late: false },
            now,
            steps,
        );
    }

    /// Takes those who wait off the queue, in order, as many as fit into one call; and whether what they get has to be
    /// held, because they wait for other buckets, too.
    fn take_group(&mut self, id: &LineId) -> (Vec<(Ticket, u64)>, bool) {
        let mut group: Vec<(Ticket, u64)> = Vec::new();
        let mut held = None;
        let Some(line) = self.lines.get_mut(id) else {
            return (group, false);
        };
        let mut runs: usize = 0;
        while let Some(ticket) = line.queue.front() {
            let waiter = self.waiters.get(ticket);
            let want = waiter.and_then(|waiter| waiter.wants.iter().find(|want| *want.ask.key == *id.key));
            if let (Some(waiter), Some(want)) = (waiter, want) {
                let cost = want.ask.cost;
                let hold = waiter.wants.iter().filter(|want| !want.ask.shadow).nth(1).is_some();
                let same = group.last().is_some_and(|(_, before)| *before == cost);
                runs = runs.saturating_add(usize::from(!same));
                if runs > MAX_RUNS || *held.get_or_insert(hold) != hold {
                    break;
                }
                group.push((*ticket, cost));
            }
            line.queue.pop_front();
        }
        (group, held.unwrap_or_default())
    }

    fn send(&mut self, mut out: Out, now: Now, steps: &mut Vec<Step<S>>) {
        let id = CallId(self.next());
        out.asked.number = self.random() >> NOT_EXACT_BITS;
        let Some(line) = self.lines.get_mut(&out.line) else {
            return;
        };
        for (ticket, _) in &out.group {
            let wants = self.waiters.get_mut(ticket).map(|waiter| waiter.wants.as_mut_slice()).unwrap_or_default();
            if let Some(want) = wants.iter_mut().find(|want| *want.ask.key == *out.line.key) {
                want.asked = want.asked.saturating_add(1);
            }
        }
        line.calls.push(id);
        steps.push(Step::Call(Call {
            id,
            plan: line.plan.clone(),
            http: webdis::encode(&script::TOKEN_BUCKET, out.by, &out.line.key, &out.asked),
            timeout: out.ends - now.mono,
        }));
        self.calls.insert(id, out);
    }

    /// A call has ended. One that is not known any more is a late or doubled answer and changes nothing.
    pub fn ended(&mut self, id: CallId, end: HttpEnd, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.expire(now, &mut steps);
        let Some(call) = self.calls.remove(&id) else {
            return steps;
        };
        let Some(line) = self.lines.get(&call.line) else {
            return steps;
        };
        let (plan, ask) = (line.plan.clone(), line.ask.clone());
        // An answer after the call's own end is none.
        let end = if now.mono < call.ends { end } else { HttpEnd::NoAnswer };
        let reply = webdis::decode(end, call.by, &call.asked);
        let call_end = match &reply {
            Reply::Acquired(_) => CallEnd::Ok,
            Reply::NoScript => CallEnd::NoScript,
            Reply::Failure(failure) => CallEnd::Failed(*failure),
        };
        steps.push(Step::Count(plan.clone(), Event::CallEnded(call_end)));
        match reply {
            Reply::Acquired(acquired) => {
                // One that nobody could wait for shows no limiter that can be asked again.
                if !call.late {
                    plan.call_succeeded(self.store.as_ref());
                }
                self.deliver(&plan, &ask, &call, &acquired, now, &mut steps);
            }
            Reply::NoScript if call.by == By::Sha => {
                self.ask_again(plan, ask, call, id, now, &mut steps);
                return steps;
            }
            Reply::NoScript => self.fail(&plan, &ask, &call, Failure::Redis, true, now, &mut steps),
            Reply::Failure(failure) => {
                let is_certain = matches!(end, HttpEnd::NotStarted(_));
                self.fail(&plan, &ask, &call, failure, !is_certain, now, &mut steps);
            }
        }
        self.after(&call, id, now, &mut steps);
        steps
    }

    /// Those who still wait are served, by what the call has brought or by the next one.
    fn after(&mut self, call: &Out, id: CallId, now: Now, steps: &mut Vec<Step<S>>) {
        if call.lending.is_some() {
            self.serve_from_pool(&call.line, now, steps);
        }
        self.forget_call(&call.line, id);
        self.start(&call.line, now, steps);
    }

    /// Redis does not know the script, or so somebody was told: the same requests ask again by text, once. The word
    /// carries no number, so the call may have run: its lease may be closed and is not named again, what it has spent is
    /// told again rather than lost, and those who wait may be charged twice.
    fn ask_again(&mut self, plan: Rc<Plan>, ask: Ask, call: Out, id: CallId, now: Now, steps: &mut Vec<Step<S>>) {
        let mut again = Out { by: By::Text, sent: now.mono, late: false, ..call };
        again.group.retain(|(ticket, _)| self.waiters.contains_key(ticket));
        again.asked.runs = runs(again.group.iter().map(|(_, cost)| *cost));
        let Offer { want, carry, debt, .. } = again.asked.offer;
        // What it carried goes with the old lease.
        again.asked.offer = Offer { want: want.saturating_sub(carry), debt, ..Offer::default() };
        if again.lending.is_none() {
            again.ends = now.mono + call_timeout(&plan);
        }
        if again.asked.runs.is_empty() && again.asked.offer == Offer::default() {
            if let Some(lending) = again.lending {
                self.close(&plan, &ask, lending, LendingEnd::Unknown, now, steps);
            }
            self.after(&again, id, now, steps);
            return;
        }
        self.forget_call(&again.line, id);
        let line = again.line.clone();
        self.send(again, now, steps);
        self.start(&line, now, steps);
    }

    fn forget_call(&mut self, id: &LineId, call: CallId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.calls.retain(|out| *out != call);
        }
    }

    /// Gives each of a group what the bucket gave it, and notes what the bucket said.
    fn deliver(
        &mut self,
        plan: &Rc<Plan>,
        ask: &Ask,
        call: &Out,
        acquired: &Acquired,
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) {
        let shares = acquired.shares(ask.limit, &call.asked.runs);
        let costs = call.group.iter().map(|(_, cost)| *cost);
        let refused = costs.zip(&shares).filter_map(|(cost, share)| match share {
            Share::Refused { retry_after, .. } => Some(Denied { cost, retry_after: *retry_after }),
            Share::Granted(_) => None,
        });
        let denied = refused.min_by_key(|denied| denied.cost);
        let random = self.random();
        let quiet = match call.lending {
            Some(lending) => {
                if acquired.lent.end > 0 {
                    steps.push(Step::Count(plan.clone(), Event::Lent(ask.rule, acquired.lent.tokens())));
                }
                let granted = call.asked.runs.iter().zip(&acquired.granted);
                let granted = granted.map(|(run, count)| run.cost.saturating_mul(*count));
                let granted = granted.fold(0, u64::saturating_add).saturating_sub(acquired.lent.held);
                let end = LendingEnd::Answered(acquired, granted, denied);
                self.close(plan, ask, lending, end, now, steps)
            }
            None => plan.note(self.store.as_ref(), ask, acquired, denied, call.sent, now.mono, random),
        };
        for ((ticket, _), share) in call.group.iter().zip(&shares) {
            match share {
                Share::Granted(_) if call.asked.hold => self.told(*ticket, &ask.key, State::Open),
                Share::Granted(standing) => self.told(*ticket, &ask.key, State::Granted(*standing)),
                Share::Refused { standing, retry_after } => {
                    // Before this proxy asks again, nobody can have it.
                    let share = Share::Refused { standing: *standing, retry_after: (*retry_after).max(quiet) };
                    let wants = self.waiters.get(ticket).map(|waiter| waiter.wants.as_slice()).unwrap_or_default();
                    if let Some(want) = wants.iter().find(|want| want.ask.key == ask.key) {
                        let mut mark = mark_of(plan, &want.ask, Effect::Limited);
                        mark.source = Some(TokenSource::Limiter);
                        self.finish(*ticket, refusal(mark, ask.limit, share), now, steps);
                    }
                }
            }
            self.go_on(*ticket, Patience::Waits, now, steps);
        }
    }

    /// A call has failed, and its requests with it.
    #[expect(clippy::too_many_arguments, reason = "all that is known of it")]
    fn fail(
        &mut self,
        plan: &Rc<Plan>,
        ask: &Ask,
        call: &Out,
        failure: Failure,
        may_have_run: bool,
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) {
        if failure == Failure::BadKey {
            self.leave_alone(&call.line.key, now);
            if !call.late {
                // The limiter is well.
                plan.call_succeeded(self.store.as_ref());
            }
        } else if !call.late {
            let random = self.random();
            plan.call_failed(self.store.as_ref(), now.mono, random);
        }
        if let Some(lending) = call.lending {
            let end = if may_have_run { LendingEnd::Unknown } else { LendingEnd::NotExecuted(call.asked.offer) };
            self.close(plan, ask, lending, end, now, steps);
        }
        let patience = if is_final(ask) { Patience::Fails } else { Patience::Waits };
        for (ticket, _) in &call.group {
            self.told(*ticket, &ask.key, State::Failed(failure));
            self.go_on(*ticket, patience, now, steps);
        }
    }

    /// A key holds something that is no bucket, and is not asked for a while.
    fn leave_alone(&mut self, key: &Rc<str>, now: Now) {
        if self.bad_keys.len() >= MOST_BAD_KEYS {
            self.bad_keys.retain(|_, until| now.mono < *until);
        }
        // Where there are more, those are asked each time.
        if self.bad_keys.len() < MOST_BAD_KEYS {
            self.bad_keys.insert(key.clone(), now.mono + LEFT_ALONE);
        }
    }

    /// Whether a key is left alone, since it held something that is no bucket.
    pub(super) fn is_left_alone(&self, key: &str, now: Now) -> bool {
        // An end that is further away was set by a clock that was set back since.
        self.bad_keys.get(key).is_some_and(|until| now.mono < *until && *until - now.mono <= LEFT_ALONE)
    }

    /// The one call about a lease is over. Gives how long the limiter is not asked for what it has denied.
    fn close(
        &mut self,
        plan: &Rc<Plan>,
        ask: &Ask,
        lending: Lending,
        end: LendingEnd,
        now: Now,
        steps: &mut Vec<Step<S>>,
    ) -> Ms {
        let random = self.random();
        let closed = plan.close_call(self.store.as_ref(), ask, lending, end, now.mono, random);
        let others = closed.waiting & !self.worker;
        if others != 0 && self.owner == CallOwner::Root {
            steps.push(Step::WakeOthers(others));
        }
        if closed.waiting != others && self.owner == CallOwner::Root {
            // Another plan of this worker has a line at the same bucket.
            self.wake(steps);
        }
        if let Some(due) = closed.due {
            self.look_after(plan, ask, due, now, steps);
        }
        closed.quiet
    }

    /// Those who wait may be served by what a call of another worker, or for others, has brought.
    pub(super) fn serve_from_pool(&mut self, id: &LineId, now: Now, steps: &mut Vec<Step<S>>) {
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        line.waits_for_other = false;
        // Who is not served stands in line again, in the same order.
        for ticket in std::mem::take(&mut line.queue) {
            self.told(ticket, &id.key, State::Open);
            self.go_on(ticket, Patience::Waits, now, steps);
            if let Some(waiter) = self.waiters.get_mut(&ticket) {
                let wanted =
                    waiter.wants.iter_mut().filter(|want| want.state == State::Open && *want.ask.key == *id.key);
                let is_open = wanted.map(|want| want.state = State::InLine).count() > 0;
                if let Some(line) = self.lines.get_mut(id).filter(|_| is_open) {
                    line.queue.push_back(ticket);
                }
            }
        }
    }

    /// Calls that have not ended by their own end have failed.
    pub(super) fn end_calls(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        let over: Vec<CallId> =
            self.calls.iter().filter(|(_, call)| call.ends <= now.mono).map(|(id, _)| *id).collect();
        for id in over {
            steps.extend(self.ended(id, HttpEnd::NoAnswer, now));
        }
    }

    /// Tells the breaker of calls that have outlived the time that a request waits.
    pub(super) fn notice_late_calls(&mut self, now: Now) {
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
            let random = self.random();
            plan.call_failed(self.store.as_ref(), now.mono, random);
        }
    }

    /// Sees to what a bucket needs though nobody waits for it, as far as the host's calls allow that.
    pub(super) fn look_after(&mut self, plan: &Rc<Plan>, ask: &Ask, due: Due, now: Now, steps: &mut Vec<Step<S>>) {
        if self.owner == CallOwner::Request || plan.is_retired() {
            return;
        }
        match due {
            Due::Ahead if plan.is_open() => {}
            Due::Ahead => self.want_call(plan, ask, Wish::Borrow, now, steps),
            Due::Now => self.want_call(plan, ask, Wish::GiveBack, now, steps),
            Due::LookIn(wait) if self.watches.len() < MOST_WATCHED => {
                let id = self.line(plan, ask, None);
                if let Some(line) = self.lines.get_mut(&id).filter(|line| !line.is_watched) {
                    line.is_watched = true;
                    self.watches.insert((now.mono + wait, id));
                }
            }
            Due::LookIn(_) => {
                if let Mode::Async { .. } = ask.mode {
                    self.want_call(plan, ask, Wish::GiveBack, now, steps);
                }
            }
        }
    }

    fn want_call(&mut self, plan: &Rc<Plan>, ask: &Ask, wish: Wish, now: Now, steps: &mut Vec<Step<S>>) {
        let id = self.line(plan, ask, None);
        if let Some(line) = self.lines.get_mut(&id) {
            line.wish = Some(wish);
        }
        self.have_started(id, now, steps);
    }

    /// Looks after the buckets whose time has come.
    pub(super) fn attend(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        for _ in 0..MOST_ATTENDED {
            let Some((at, id)) = self.watches.first().filter(|(at, _)| *at <= now.mono).cloned() else {
                return;
            };
            self.watches.remove(&(at, id.clone()));
            let is_left_alone = self.is_left_alone(&id.key, now);
            let Some(line) = self.lines.get_mut(&id) else {
                continue;
            };
            line.is_watched = false;
            let (plan, ask) = (line.plan.clone(), line.ask.clone());
            let due = if plan.is_retired() { None } else { plan.due(self.store.as_ref(), &ask, now.mono) };
            match due {
                // The limiter is left alone; what is to be settled is settled later.
                Some(Due::Now) if plan.is_open() || is_left_alone => {
                    self.look_after(&plan, &ask, Due::LookIn(Ms(1000)), now, steps);
                }
                Some(Due::Now) => line.wish = Some(Wish::GiveBack),
                Some(due) => self.look_after(&plan, &ask, due, now, steps),
                None => {}
            }
            self.start(&id, now, steps);
        }
    }
}

/// A reply that is late for the one who waited still serves those who came after.
fn call_timeout(plan: &Plan) -> Ms {
    plan.policy.limiter.timeout.times(10).max(Ms(1000))
}
