//! How much one callback of the host does, and what moves on in it. The rest goes on in the next callback, which the
//! queue brings about at once.
//!
//! Envoy performs the resumes and local replies that a callback has asked for when that callback returns, and the
//! callbacks of each finished stream perform the rest of them *nested*: some hundreds in one callback exhaust the
//! stack, and the VM traps. So requests are decided into a list, and the host is told of a few of them at a time,
//! whatever the callback is: a call's end, a tick, a wake-up. Calls start in batches as well, so that other requests
//! get their turn in between.

use std::ops::Bound;

use super::line::{Line, LineId};
use super::{CallId, Flow, Patience, Step};
use crate::clock::{Ms, Now};
use crate::limiter::{Failure, HttpEnd};
use crate::plan::Plan;
use crate::policy::Policy;

/// Requests that one callback finishes: less than a tenth of what Envoy 1.40 bears, where 288 pass and 320 trap. More
/// filters on a listener take more of its stack. See `tests/envoy/crowd.rs`.
pub const FINISHED_AT_ONCE: usize = 24;

/// Lines that one callback starts calls for.
const STARTED_AT_ONCE: usize = 64;

/// Calls without an end that one callback sees to.
const ENDED_AT_ONCE: usize = 64;

/// Waiting requests that one reply serves: those of its group, and those that its lease is for.
pub(super) const MOST_SERVED: usize = 1024;

/// Lines that one tick looks at.
const LOOKED_AT_ONCE: usize = 1024;

impl<S> Flow<S> {
    /// Has one callback finish at most so many requests, instead of [`FINISHED_AT_ONCE`]; 1 at least.
    pub fn finish_at_once(&mut self, most: usize) {
        self.finished_at_once = most.max(1);
    }

    /// How often [`Flow::tick`] wants to be called under a policy. A request waits past its deadline for no longer than
    /// this, and than it takes to finish those whose deadline was before its own.
    pub fn tick_period(policy: &Policy) -> Ms {
        Ms(policy.limiter.timeout.0 / 2).clamp(Ms(5), Ms(50))
    }

    /// The root has been woken, as [`Step::Wake`] or another worker's [`Step::WakeOthers`] wanted.
    pub fn woken(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = self.move_on(now);
        self.tell(now, &mut steps);
        steps
    }

    /// Time has passed: enforces deadlines, and starts the calls that it has made possible. Also makes up for a wake-up
    /// that was lost with the root it was sent to.
    pub fn tick(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = self.move_on(now);
        self.end_calls(now, &mut steps);
        self.attend(now, &mut steps);
        self.look_at_lines();
        self.start_ready(now, &mut steps);
        self.tell(now, &mut steps);
        steps
    }

    /// A call has ended. One that is not known any more is a late or doubled answer and changes nothing.
    pub fn ended(&mut self, id: CallId, end: HttpEnd, now: Now) -> Vec<Step<S>> {
        let mut steps = self.see_end(id, end, now);
        self.tell(now, &mut steps);
        steps
    }

    /// A call could not be started, or it went with its root and the host will never say how it ended. What follows is
    /// done when the root is woken, for a callback may lose any number of calls.
    pub fn lost(&mut self, id: CallId, failure: Option<Failure>) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        self.lost.push_back((id, failure));
        self.wake(&mut steps);
        steps
    }

    fn move_on(&mut self, now: Now) -> Vec<Step<S>> {
        let mut steps = Vec::new();
        // Until all is done, nobody needs to wake the root again.
        self.woken = true;
        self.expire(now, &mut steps);
        self.end_lost_calls(now, &mut steps);
        self.serve_others_lines(now, &mut steps);
        self.start_ready(now, &mut steps);
        self.woken = false;
        steps
    }

    /// Tells the host of some that are decided, and has the root woken where there is more to do.
    fn tell(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        // Those who were decided come first; the calls that start now are for others.
        let calls = steps.iter().position(|step| matches!(step, Step::Call(_))).unwrap_or(steps.len());
        let calls = steps.split_off(calls);
        let some = self.finished.len().min(self.finished_at_once);
        steps.extend(self.finished.drain(..some).map(|(_, stream, verdict)| Step::Finish(stream, verdict)));
        steps.extend(calls);
        let is_overdue = self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now.mono);
        let is_more = is_overdue || !self.finished.is_empty() || !self.lost.is_empty();
        if is_more || !self.ready.is_empty() || !self.to_serve.is_empty() {
            self.wake(steps);
        }
    }

    /// Decides requests whose time is over.
    pub(super) fn expire(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        while self.finished.len() < self.finished_at_once
            && let Some((deadline, ticket)) = self.deadlines.first().copied()
            && deadline <= now.mono
        {
            self.go_on(ticket, Patience::Ends, now, steps);
            // Gone in any case, so that this ends.
            self.deadlines.remove(&(deadline, ticket));
        }
        self.notice_late_calls(now);
    }

    fn end_lost_calls(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        for _ in 0..ENDED_AT_ONCE {
            let Some((id, failure)) = self.lost.pop_front() else {
                return;
            };
            let end = failure.map_or(HttpEnd::NoAnswer, HttpEnd::NotStarted);
            steps.extend(self.see_end(id, end, now));
        }
    }

    /// Calls that have not ended by their own end have failed.
    fn end_calls(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        let over = self.calls.iter().filter(|(_, call)| call.ends <= now.mono).map(|(id, _)| *id);
        let over: Vec<CallId> = over.take(ENDED_AT_ONCE).collect();
        for id in over {
            steps.extend(self.see_end(id, HttpEnd::NoAnswer, now));
        }
    }

    /// Tells the breaker of calls that have outlived the time that a request waits.
    fn notice_late_calls(&mut self, now: Now) {
        let lines = &self.lines;
        let is_late = |line: &LineId, sent: Ms| {
            let line = lines.get(line)?;
            (sent + line.plan.policy.limiter.timeout <= now.mono).then(|| line.plan.clone())
        };
        let calls = self.calls.values_mut().filter(|call| !call.late);
        let late = calls.filter_map(|call| {
            let plan = is_late(&call.line, call.sent)?;
            call.late = true;
            Some(plan)
        });
        let late: Vec<std::rc::Rc<Plan>> = late.take(ENDED_AT_ONCE).collect();
        for plan in late {
            let random = self.random();
            plan.call_failed(self.store.as_ref(), now.mono, random);
        }
    }

    /// Lines that another worker's call may serve now. They are taken once for each wake-up of another worker, or a line
    /// whose other call is still out would wake the root without end.
    fn serve_others_lines(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        if self.to_serve.is_empty() {
            self.to_serve.extend(std::mem::take(&mut self.others_call));
        }
        for _ in 0..STARTED_AT_ONCE {
            let Some(id) = self.to_serve.pop_front() else {
                return;
            };
            self.serve_from_pool(&id, now, steps);
            self.make_ready(id);
        }
    }

    fn start_ready(&mut self, now: Now, steps: &mut Vec<Step<S>>) {
        for _ in 0..STARTED_AT_ONCE {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            self.start(&id, now, steps);
        }
    }

    /// Finds lines whose only call has outlived a wait, or whose wake-up was lost; a tick looks at some, the next at those
    /// that follow.
    fn look_at_lines(&mut self) {
        let from = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let lines = self.lines.range((from, Bound::Unbounded)).take(LOOKED_AT_ONCE);
        let looked_at: Vec<(LineId, bool)> = lines
            .map(|(id, line): (&LineId, &Line)| (id.clone(), !line.queue.is_empty() && !line.waits_for_other))
            .collect();
        self.looked_at = looked_at.get(LOOKED_AT_ONCE.saturating_sub(1)).map(|(id, _)| id.clone());
        for (id, is_left) in looked_at {
            if is_left {
                self.make_ready(id);
            }
        }
    }
}
