//! Calls to a limiter: how they are sent, and what comes of them.

use std::rc::Rc;

use super::admission::{Patience, State, is_final};
use super::plan::{Denied, Lending, LendingEnd, Plan, Said};
use super::wait_queue::{LineId, Served};
use super::{Call, CallEnd, CallId, Engine, Event, Step, Ticket};
use crate::algorithm::{Acquire, Acquired, Offer, Share, runs};
use crate::clock::Ms;
use crate::limiter::{Attempt, Failure, HttpEnd, Reply};
use crate::policy::LimiterId;
use crate::rules::Ask;

/// Scripts count in doubles, which hold 53 bits of a number.
const NOT_EXACT_BITS: u32 = 11;

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

impl Out {
    pub fn new(
        line: LineId,
        asked: Acquire,
        group: Vec<(Ticket, u64)>,
        lending: Option<Lending>,
        plan: &Plan,
        now: Ms,
    ) -> Out {
        let (ends, late_at) = (now + call_timeout(plan, line.bucket.limiter), now + wait_of(plan, line.bucket.limiter));
        Out { line, attempt: Attempt::FIRST, asked, group, lending, sent: now, ends, late_at, late: false }
    }
}

impl<S> Engine<S> {
    pub(super) fn send(&mut self, mut out: Out) {
        let id = CallId(self.next());
        out.asked.number = self.random() >> NOT_EXACT_BITS;
        let Some(line) = self.lines.get_mut(&out.line) else {
            return;
        };
        for (ticket, _) in &out.group {
            let charges = self.waiters.get_mut(ticket).map(|waiter| waiter.charges.as_mut_slice()).unwrap_or_default();
            if let Some(charge) = charges.iter_mut().find(|charge| charge.ask.bucket == line.ask.bucket) {
                charge.asked = charge.asked.saturating_add(1);
            }
        }
        line.calls.push(id);
        let (plan, bucket) = (line.plan.clone(), &out.line.bucket);
        self.steps.push(Step::Call(Call {
            id,
            limiter: bucket.limiter,
            http: plan.transport(bucket.limiter).encode(&plan.policy, bucket, &out.asked, out.attempt),
            plan,
            timeout: out.ends - self.now.mono,
        }));
        self.calls.insert(id, out);
    }

    /// See [`Engine::on_reply`]; what is decided by it waits to be told.
    pub(super) fn see_end(&mut self, id: CallId, end: HttpEnd) {
        self.expire();
        let Some(mut call) = self.calls.remove(&id) else {
            return;
        };
        let Some(line) = self.lines.get(&call.line) else {
            return;
        };
        let (plan, ask) = (line.plan.clone(), line.ask.clone());
        if !call.late && call.late_at <= self.now.mono {
            call.late = true;
            self.count_failure(&plan, ask.bucket.limiter);
        }
        // An answer after the call's own end is none.
        let end = if self.now.mono < call.ends { end } else { HttpEnd::NoAnswer };
        let reply = plan.transport(ask.bucket.limiter).decode(end, &call.asked, call.attempt);
        let call_end = match &reply {
            Reply::Acquired(_) => CallEnd::Ok,
            Reply::Again(_) => CallEnd::NoScript,
            Reply::Failure(failure) => CallEnd::Failed(*failure),
        };
        self.steps.push(Step::Count(plan.clone(), Event::CallEnded(ask.bucket.limiter, call_end)));
        match reply {
            Reply::Acquired(acquired) => {
                // One that nobody could wait for shows no limiter that can be asked again.
                if !call.late {
                    plan.call_succeeded(ask.bucket.limiter, self.now.mono);
                }
                self.deliver(&plan, &ask, &call, &acquired);
            }
            Reply::Again(attempt) => return self.ask_again(plan, ask, Out { attempt, ..call }, id),
            Reply::Failure(failure) => {
                let is_certain = matches!(end, HttpEnd::NotStarted(_));
                self.fail(&plan, &ask, &call, failure, !is_certain && !failure.has_not_run());
            }
        }
        self.after(&call, id);
    }

    /// Those who still wait are served, by what the call has brought or by the next one.
    fn after(&mut self, call: &Out, id: CallId) {
        let served = match call.lending {
            Some(_) => self.serve_from_lease(&call.line),
            None => Served::AllThereWas,
        };
        self.forget_call(&call.line, id);
        match served {
            Served::ThereMayBeMore => self.to_serve.push_back(call.line.clone()),
            Served::AllThereWas => self.start_soon(&call.line),
        }
    }

    /// The call was not carried out, or so somebody was told: the same requests ask again, in another way. The word may be
    /// another call's, so the call may have run: its lease may be closed and is not named again, what it has spent is
    /// told again rather than lost, and those who wait may be charged twice.
    fn ask_again(&mut self, plan: Rc<Plan>, ask: Ask, call: Out, id: CallId) {
        let now = self.now.mono;
        let late_at = now + wait_of(&plan, ask.bucket.limiter);
        let mut again = Out { sent: now, late_at, late: false, ..call };
        again.group.retain(|(ticket, _)| {
            let charges = self.waiters.get(ticket).map(|waiter| waiter.charges.as_slice()).unwrap_or_default();
            charges.iter().any(|charge| charge.ask.bucket == ask.bucket && charge.deadline > now)
        });
        // In mode async a call asks for nobody by name.
        if !again.asked.runs.is_empty() {
            again.asked.runs = runs(again.group.iter().map(|(_, cost)| *cost));
        }
        let Offer { want, carry, debt, .. } = again.asked.offer;
        // What it carried goes with the old lease.
        again.asked.offer = Offer { want: want.saturating_sub(carry), debt, ..Offer::default() };
        if again.lending.is_none() {
            again.ends = now + call_timeout(&plan, ask.bucket.limiter);
        }
        if again.group.is_empty() && again.asked.offer == Offer::default() {
            if let Some(lending) = again.lending {
                self.close(&plan, &ask, lending, LendingEnd::Unknown);
            }
            self.after(&again, id);
            return;
        }
        self.forget_call(&again.line, id);
        let line = again.line.clone();
        self.send(again);
        self.start_soon(&line);
    }

    fn forget_call(&mut self, id: &LineId, call: CallId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.calls.retain(|out| *out != call);
        }
    }

    /// Notes what a bucket said, and gives each of a group what the bucket gave it.
    fn deliver(&mut self, plan: &Rc<Plan>, ask: &Ask, call: &Out, acquired: &Acquired) {
        let shares = acquired.shares(ask.limit, &call.asked.runs);
        let quiet = self.note(plan, ask, call, acquired, &shares);
        // They have asked for nothing yet.
        let who_looked = call.group.iter().filter(|_| call.asked.runs.is_empty());
        for (ticket, _) in who_looked {
            self.told(*ticket, ask, State::Open);
            self.go_on(*ticket, Patience::Waits);
        }
        for ((ticket, _), share) in call.group.iter().zip(&shares) {
            match share {
                Share::Granted(_) if call.asked.hold => self.told(*ticket, ask, State::Open),
                Share::Granted(standing) => self.told(*ticket, ask, State::Granted(*standing)),
                Share::Refused { .. } => {
                    let waiter = self.waiters.get(ticket);
                    let charge =
                        waiter.and_then(|waiter| waiter.charges.iter().find(|charge| charge.ask.bucket == ask.bucket));
                    if let Some(charge) = charge {
                        // Before this proxy asks again, nobody can have it.
                        let is_lent = call.lending.is_some() && acquired.lent.size() > 0;
                        let share = match is_lent {
                            true => plan.refused(&charge.ask, *share, quiet, self.now.mono),
                            false => share.not_before(quiet),
                        };
                        // Other buckets may refuse it for longer, so it waits until all that are asked have spoken.
                        self.told(*ticket, ask, State::Refused(share));
                    }
                }
            }
            self.go_on(*ticket, Patience::Waits);
        }
    }

    /// Notes what a bucket has said to a group. Gives how long the limiter is not asked for what it has denied.
    fn note(&mut self, plan: &Rc<Plan>, ask: &Ask, call: &Out, acquired: &Acquired, shares: &[Share]) -> Ms {
        let costs = call.group.iter().map(|(_, cost)| *cost);
        let refused = costs.zip(shares).filter_map(|(cost, share)| match share {
            Share::Refused { retry_after, .. } => Some(Denied { cost, retry_after: *retry_after }),
            Share::Granted(_) => None,
        });
        let denied = refused.min_by_key(|denied| denied.cost);
        let granted = call.asked.runs.iter().zip(&acquired.granted);
        let granted = granted.map(|(run, count)| run.cost.saturating_mul(*count));
        let granted = granted.fold(0, u64::saturating_add).saturating_sub(acquired.lent.held);
        let said = Said { acquired, granted, denied, sent: call.sent };
        let random = self.random();
        let Some(lending) = call.lending else {
            // The lease's demand is measured by the calls about it.
            return plan.note(ask, Said { granted: 0, ..said }, self.now.mono, random);
        };
        if acquired.lent.end > 0 {
            self.steps.push(Step::Count(plan.clone(), Event::Lent(ask.rule, acquired.lent.size())));
        }
        self.close(plan, ask, lending, LendingEnd::Answered(said))
    }

    /// A call has failed, and its requests with it.
    fn fail(&mut self, plan: &Rc<Plan>, ask: &Ask, call: &Out, failure: Failure, may_have_run: bool) {
        if failure == Failure::BadKey {
            plan.leave_alone(&ask.bucket, self.now.mono);
            if !call.late {
                // The limiter is well.
                plan.call_succeeded(ask.bucket.limiter, self.now.mono);
            }
        } else if !call.late {
            self.count_failure(plan, ask.bucket.limiter);
        }
        if let Some(lending) = call.lending {
            let end = if may_have_run { LendingEnd::Unknown } else { LendingEnd::NotExecuted(call.asked.offer) };
            self.close(plan, ask, lending, end);
        }
        let patience = if is_final(ask) { Patience::Fails } else { Patience::Waits };
        for (ticket, _) in &call.group {
            self.told(*ticket, ask, State::Failed(failure));
            self.go_on(*ticket, patience);
        }
    }

    fn count_failure(&mut self, plan: &Plan, limiter: LimiterId) {
        let random = self.random();
        plan.call_failed(limiter, self.now.mono, random);
    }
}

/// How long a request waits for a limiter.
pub(super) fn wait_of(plan: &Plan, limiter: LimiterId) -> Ms {
    plan.policy.limiters.get(limiter).timeout
}

/// How long a call may be out.
pub(super) fn call_timeout(plan: &Plan, limiter: LimiterId) -> Ms {
    plan.policy.limiters.get(limiter).call_timeout()
}
