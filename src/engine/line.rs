//! Lines at buckets, and the calls that serve them.
//!
//! A call either asks only for those who wait, or it is about the proxy's lease as well: then it takes the place of the
//! one call about that lease that may be out in all workers, and says how it ends.

use std::collections::VecDeque;
use std::rc::Rc;

use super::batch::{MOST_SERVED, Served};
use super::{Call, CallEnd, CallId, CallOwner, Event, Flow, Patience, State, Step, Ticket, is_final};
use crate::algorithm::{Acquire, Acquired, Offer, Share, runs};
use crate::clock::{Ms, Now};
use crate::engine::plan::{Denied, Due, Election, Lending, LendingEnd, Plan};
use crate::limiter::{Attempt, Failure, HttpEnd, Reply};
use crate::local::lease::Wish;
use crate::policy::Mode;
use crate::rules::Ask;

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
    pub(super) plan: Rc<Plan>,
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
    pub(super) line: LineId,
    attempt: Attempt,
    asked: Acquire,
    /// Those whom it asks for, with their costs, in order.
    group: Vec<(Ticket, u64)>,
    /// About which lease it is.
    lending: Option<Lending>,
    sent: Ms,
    pub(super) ends: Ms,
    /// From when on it has outlived a wait.
    pub(super) late_at: Ms,
    /// The breaker knows that, and has counted a failure.
    pub(super) late: bool,
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
            self.ready.push_back(id);
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
                call.is_some_and(|call| call.late_at <= now.mono)
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
        let (group, hold) = self.take_group(id, now);
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
            // Those who spend first ask what there is, and then spend it.
            Election::Won(offer, lending) if matches!(ask.mode, Mode::Async { .. }) => {
                (Acquire { runs: Vec::new(), ..asked(offer, false) }, Some(lending))
            }
            Election::Won(offer, lending) => (asked(offer, hold), Some(lending)),
            // What is granted without a lease is admitted at once or dropped.
            Election::Void => (asked(Offer::default(), false), None),
            Election::Lost if self.owner == CallOwner::Request => (asked(Offer::default(), false), None),
            Election::Lost => {
                for (ticket, _) in group.into_iter().rev() {
                    line.queue.push_front(ticket);
                }
                let is_empty = line.queue.is_empty();
                if !line.waits_for_other {
                    line.waits_for_other = true;
                    self.others_call.push(id.clone());
                }
                if is_empty {
                    self.settle_later(&plan, &ask, now, steps);
                }
                return;
            }
        };
        if asked.runs.is_empty() && lending.is_none() {
            return self.settle_later(&plan, &ask, now, steps);
        }
        let (sent, ends, late_at) = (now.mono, now.mono + timeout, now.mono + plan.policy.limiters.first().timeout);
        let out =
            Out { line: id.clone(), attempt: Attempt::FIRST, asked, group, lending, sent, ends, late_at, late: false };
        self.send(out, now, steps);
    }

    /// Takes those who wait off the queue, in order, as many as fit into one call; and whether what they get has to be
    /// held, because they wait for other buckets, too.
    fn take_group(&mut self, id: &LineId, now: Now) -> (Vec<(Ticket, u64)>, bool) {
        let mut group: Vec<(Ticket, u64)> = Vec::new();
        let mut held = None;
        let Some(line) = self.lines.get_mut(id) else {
            return (group, false);
        };
        let (max_runs, mut runs) = (line.plan.transport.max_runs(), 0_usize);
        while let Some(ticket) = line.queue.front() {
            // Nobody is charged for one whose time is over; it is about to be decided.
            let waiter = self.waiters.get(ticket).filter(|waiter| waiter.deadline > now.mono);
            let want = waiter.and_then(|waiter| waiter.wants.iter().find(|want| *want.ask.key == *id.key));
            if let (Some(waiter), Some(want)) = (waiter, want) {
                let cost = want.ask.cost;
                let hold = waiter.wants.iter().filter(|want| !want.ask.shadow).nth(1).is_some();
                let same = group.last().is_some_and(|(_, before)| *before == cost);
                runs = runs.saturating_add(usize::from(!same));
                if runs > max_runs || group.len() >= MOST_SERVED || *held.get_or_insert(hold) != hold {
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
            http: line.plan.transport.encode(&out.line.key, &out.asked, out.attempt),
            timeout: out.ends - now.mono,
        }));
        self.calls.insert(id, out);
    }

    /// See [`Flow::ended`]; what is decided by it waits to be told.
    pub(super) fn see_end(&mut self, id: CallId, end: HttpEnd, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.expire(now, &mut steps);
        let Some(mut call) = self.calls.remove(&id) else {
            return steps;
        };
        let Some(line) = self.lines.get(&call.line) else {
            return steps;
        };
        let (plan, ask) = (line.plan.clone(), line.ask.clone());
        if !call.late && call.late_at <= now.mono {
            call.late = true;
            let random = self.random();
            plan.call_failed(self.store.as_ref(), now.mono, random);
        }
        // An answer after the call's own end is none.
        let end = if now.mono < call.ends { end } else { HttpEnd::NoAnswer };
        let reply = plan.transport.decode(end, &call.asked, call.attempt);
        let call_end = match &reply {
            Reply::Acquired(_) => CallEnd::Ok,
            Reply::Again(_) => CallEnd::NoScript,
            Reply::Failure(failure) => CallEnd::Failed(*failure),
        };
        steps.push(Step::Count(plan.clone(), Event::CallEnded(call_end)));
        match reply {
            Reply::Acquired(acquired) => {
                // One that nobody could wait for shows no limiter that can be asked again.
                if !call.late {
                    plan.call_succeeded(self.store.as_ref(), now.mono);
                }
                self.deliver(&plan, &ask, &call, &acquired, now, &mut steps);
            }
            Reply::Again(attempt) => {
                call.attempt = attempt;
                self.ask_again(plan, ask, call, id, now, &mut steps);
                return steps;
            }
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
        let served = match call.lending {
            Some(_) => self.serve_from_pool(&call.line, now, steps),
            None => Served::AllThereWas,
        };
        self.forget_call(&call.line, id);
        match served {
            Served::ThereMayBeMore => self.to_serve.push_back(call.line.clone()),
            Served::AllThereWas => self.start_soon(&call.line, now, steps),
        }
    }

    /// The call was not carried out, or so somebody was told: the same requests ask again, in another way. The word may be
    /// another call's, so the call may have run: its lease may be closed and is not named again, what it has spent is
    /// told again rather than lost, and those who wait may be charged twice.
    fn ask_again(&mut self, plan: Rc<Plan>, ask: Ask, call: Out, id: CallId, now: Now, steps: &mut Vec<Step<S>>) {
        let late_at = now.mono + plan.policy.limiters.first().timeout;
        let mut again = Out { sent: now.mono, late_at, late: false, ..call };
        again.group.retain(|(ticket, _)| self.waiters.get(ticket).is_some_and(|waiter| waiter.deadline > now.mono));
        // In mode async a call asks for nobody by name.
        if !again.asked.runs.is_empty() {
            again.asked.runs = runs(again.group.iter().map(|(_, cost)| *cost));
        }
        let Offer { want, carry, debt, .. } = again.asked.offer;
        // What it carried goes with the old lease.
        again.asked.offer = Offer { want: want.saturating_sub(carry), debt, ..Offer::default() };
        if again.lending.is_none() {
            again.ends = now.mono + call_timeout(&plan);
        }
        if again.group.is_empty() && again.asked.offer == Offer::default() {
            if let Some(lending) = again.lending {
                self.close(&plan, &ask, lending, LendingEnd::Unknown, now, steps);
            }
            self.after(&again, id, now, steps);
            return;
        }
        self.forget_call(&again.line, id);
        let line = again.line.clone();
        self.send(again, now, steps);
        self.start_soon(&line, now, steps);
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
                    steps.push(Step::Count(plan.clone(), Event::Lent(ask.rule, acquired.lent.size())));
                }
                let granted = call.asked.runs.iter().zip(&acquired.granted);
                let granted = granted.map(|(run, count)| run.cost.saturating_mul(*count));
                let granted = granted.fold(0, u64::saturating_add).saturating_sub(acquired.lent.held);
                let end = LendingEnd::Answered(acquired, granted, denied);
                self.close(plan, ask, lending, end, now, steps)
            }
            None => plan.note(self.store.as_ref(), ask, acquired, denied, call.sent, now.mono, random),
        };
        // They have asked for nothing yet.
        let who_looked = call.group.iter().filter(|_| call.asked.runs.is_empty());
        for (ticket, _) in who_looked {
            self.told(*ticket, &ask.key, State::Open);
            self.go_on(*ticket, Patience::Waits, now, steps);
        }
        for ((ticket, _), share) in call.group.iter().zip(&shares) {
            match share {
                Share::Granted(_) if call.asked.hold => self.told(*ticket, &ask.key, State::Open),
                Share::Granted(standing) => self.told(*ticket, &ask.key, State::Granted(*standing)),
                Share::Refused { .. } => {
                    let wants = self.waiters.get(ticket).map(|waiter| waiter.wants.as_slice()).unwrap_or_default();
                    if let Some(want) = wants.iter().find(|want| want.ask.key == ask.key) {
                        // Before this proxy asks again, nobody can have it.
                        let is_lent = call.lending.is_some() && acquired.lent.size() > 0;
                        let share = match is_lent {
                            true => plan.refused(self.store.as_ref(), &want.ask, *share, quiet, now.mono),
                            false => share.not_before(quiet),
                        };
                        // Other buckets may refuse it for longer, so it waits until all that are asked have spoken.
                        self.told(*ticket, &ask.key, State::Refused(share));
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
                plan.call_succeeded(self.store.as_ref(), now.mono);
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
            self.serve_lines_of_others();
            self.wake(steps);
        }
        if let Some(due) = closed.due {
            self.look_after(plan, ask, due, now, steps);
        }
        closed.quiet
    }

    /// Those who wait may be served by what a call of another worker, or for others, has brought.
    pub(super) fn serve_from_pool(&mut self, id: &LineId, now: Now, steps: &mut Vec<Step<S>>) -> Served {
        let Some(line) = self.lines.get_mut(id) else {
            return Served::AllThereWas;
        };
        line.waits_for_other = false;
        // Those beyond have their turn in the next callback, if all before them are served.
        let beyond = line.queue.split_off(line.queue.len().min(MOST_SERVED));
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
        let Some(line) = self.lines.get_mut(id) else {
            return Served::AllThereWas;
        };
        let all_served = line.queue.is_empty();
        line.queue.extend(beyond);
        if all_served && !line.queue.is_empty() { Served::ThereMayBeMore } else { Served::AllThereWas }
    }

    /// Sees to what a bucket needs though nobody waits for it, as far as the host's calls allow that.
    pub(super) fn look_after(&mut self, plan: &Rc<Plan>, ask: &Ask, due: Due, now: Now, steps: &mut Vec<Step<S>>) {
        if self.owner == CallOwner::Request || (plan.is_retired() && !settles(ask)) {
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
                if settles(ask) {
                    self.want_call(plan, ask, Wish::GiveBack, now, steps);
                }
            }
        }
    }

    /// Another call is out where this worker wanted to settle. Whoever made it may not come to settle the rest.
    fn settle_later(&mut self, plan: &Rc<Plan>, ask: &Ask, now: Now, steps: &mut Vec<Step<S>>) {
        if settles(ask) {
            self.look_after(plan, ask, Due::LookIn(call_timeout(plan)), now, steps);
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
            let due = match plan.is_retired() && !settles(&ask) {
                true => None,
                false => plan.due(self.store.as_ref(), &ask, now.mono),
            };
            match due {
                // The limiter is left alone; what is to be settled is settled later.
                Some(Due::Now) if plan.is_open() || is_left_alone => {
                    self.look_after(&plan, &ask, Due::LookIn(Ms(1000)), now, steps);
                }
                Some(Due::Now) => line.wish = Some(Wish::GiveBack),
                Some(due) => self.look_after(&plan, &ask, due, now, steps),
                None => {}
            }
            self.make_ready(id);
        }
    }
}

/// Whether what is spent has to be told to the limiter, also under a policy that is not in force any more: nobody else
/// would tell it of a tenant who does not come back.
fn settles(ask: &Ask) -> bool {
    matches!(ask.mode, Mode::Async { .. })
}

/// A reply that is late for the one who waited still serves those who came after.
fn call_timeout(plan: &Plan) -> Ms {
    plan.policy.limiters.first().timeout.times(10).max(Ms(1000))
}
