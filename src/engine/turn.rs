//! How much one callback of the host does, and what moves on in it. The rest goes on in the next callback, which the
//! queue brings about at once.
//!
//! Envoy performs the resumes and local replies that a callback has asked for when that callback returns, and the
//! callbacks of each finished stream perform the rest of them *nested*: some hundreds in one callback exhaust the
//! stack, and the VM traps. So requests are decided into a list, and the host is told of a few of them at a time,
//! whatever the callback is: a call's end, a tick, a wake-up. Calls start in batches as well, so that other requests
//! get their turn in between.

use std::ops::Bound;
use std::rc::Rc;

use super::wait_queue::{LineId, MOST_SERVED, Served};
use super::{CallId, CallOwner, Engine, Step};
use crate::clock::{Ms, Now};
use crate::engine::plan::Plan;
use crate::limiter::{Failure, HttpEnd};
use crate::policy::{LimiterId, Policy};

/// Requests that are finished before the host's event loop has its turn: less than a tenth of what Envoy 1.40 bears,
/// where 288 pass and 320 trap. More filters on a listener take more of its stack. See `tests/envoy/crowd.rs`.
pub const MOST_FINISHED: usize = 24;

/// Calls that are started before the event loop has its turn. One that fails at once ends in a nested callback, too.
const MOST_STARTED: usize = 32;

/// Calls that are lost or have timed out, and lines, that one callback sees to.
const MOST_SEEN_TO: usize = 64;

/// Lines that one tick looks at.
const MOST_LOOKED_AT: usize = 1024;

/// What may still be done before the event loop has its turn. A queue and a timer wake the root from there. The end of a
/// call may come nested in the callback that made the call, so it gets what is left.
#[derive(Debug)]
pub(super) struct Budget {
    /// As much as there is after each turn of the event loop.
    most_finished: usize,
    finishes: usize,
    starts: usize,
}

impl Budget {
    pub fn new(most_finished: usize) -> Budget {
        Budget { most_finished, finishes: most_finished, starts: MOST_STARTED }
    }

    fn refill(&mut self) {
        *self = Budget::new(self.most_finished);
    }
}

impl<S> Engine<S> {
    /// Has at most so many requests finished in one turn of the event loop, instead of [`MOST_FINISHED`]; 1 at least.
    pub fn finish_at_most(&mut self, most: usize) {
        self.budget = Budget::new(most.max(1));
    }

    /// How often [`Engine::on_timer`] wants to be called under a policy. A request waits past its deadline for no longer
    /// than this, and than it takes to finish those that were decided, or whose deadline came, before.
    pub fn timer_period(policy: &Policy) -> Ms {
        let shortest = policy.limiters.iter().map(|(_, limiter)| limiter.timeout).min();
        Ms(shortest.unwrap_or_default().0 / 2).clamp(Ms(5), Ms(50))
    }

    /// The root has been woken, as [`Step::Wake`] wanted.
    pub fn on_wake(&mut self, now: Now) -> Vec<Step<S>> {
        self.now = now;
        self.move_on();
        self.hand_out()
    }

    /// The root has been woken, as another worker's [`Step::WakeOthers`] wanted, and perhaps its own [`Step::Wake`].
    pub fn on_wake_by_other(&mut self, now: Now) -> Vec<Step<S>> {
        self.serve_lines_of_others();
        self.on_wake(now)
    }

    /// Time has passed: enforces deadlines, and starts the calls that it has made possible. Also makes up for a wake-up
    /// that was lost with the root it was sent to.
    pub fn on_timer(&mut self, now: Now) -> Vec<Step<S>> {
        self.now = now;
        self.serve_lines_of_others();
        self.move_on();
        self.end_calls();
        self.attend();
        self.look_at_lines();
        self.start_ready();
        self.hand_out()
    }

    /// A call has ended. One that is not known any more is a late or doubled answer and changes nothing.
    pub fn on_reply(&mut self, id: CallId, end: HttpEnd, now: Now) -> Vec<Step<S>> {
        self.now = now;
        self.see_end(id, end);
        self.hand_out()
    }

    /// A call could not be started, or it went with its root and the host will never say how it ended. What follows is
    /// done when the root is woken, for a callback may lose any number of calls.
    pub fn on_lost(&mut self, id: CallId, failure: Option<Failure>) -> Vec<Step<S>> {
        self.lost.push_back((id, failure));
        self.wake();
        std::mem::take(&mut self.steps)
    }

    fn move_on(&mut self) {
        self.budget.refill();
        // Until all is done, nobody needs to wake the root again.
        self.woken = true;
        self.expire();
        self.notice_late_calls();
        self.end_lost_calls();
        self.serve_lines();
        self.start_ready();
        self.woken = false;
    }

    /// Gives the host what there is to do, with some of those that are decided, and has the root woken where there is
    /// more.
    fn hand_out(&mut self) -> Vec<Step<S>> {
        let mut steps = std::mem::take(&mut self.steps);
        // Those who were decided come first; the calls that start now are for others.
        let calls = steps.iter().position(|step| matches!(step, Step::Call(_))).unwrap_or(steps.len());
        let calls = steps.split_off(calls);
        let some = self.finished.len().min(self.budget.finishes);
        self.budget.finishes = self.budget.finishes.saturating_sub(some);
        steps.extend(self.finished.drain(..some).map(|(_, stream, verdict)| Step::Finish(stream, verdict)));
        steps.extend(calls);
        let is_overdue = self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= self.now.mono);
        let is_more = is_overdue || !self.finished.is_empty() || !self.lost.is_empty();
        if is_more || !self.ready.is_empty() || !self.to_serve.is_empty() {
            self.wake();
        }
        steps.append(&mut self.steps);
        steps
    }

    /// Decides requests whose time is over.
    pub(super) fn expire(&mut self) {
        while self.finished.len() < self.budget.most_finished
            && let Some((deadline, ticket)) = self.deadlines.first().copied()
            && deadline <= self.now.mono
        {
            self.deadlines.remove(&(deadline, ticket));
            self.time_out(ticket);
        }
    }

    fn end_lost_calls(&mut self) {
        for _ in 0..MOST_SEEN_TO {
            if self.finished.len() >= MOST_SERVED {
                return;
            }
            let Some((id, failure)) = self.lost.pop_front() else {
                return;
            };
            self.see_end(id, failure.map_or(HttpEnd::NoAnswer, HttpEnd::NotStarted));
        }
    }

    /// Calls that have not ended by their own end have failed.
    fn end_calls(&mut self) {
        let over = self.calls.iter().filter(|(_, call)| call.ends <= self.now.mono).map(|(id, _)| *id);
        let over: Vec<CallId> = over.take(MOST_SEEN_TO).collect();
        for id in over {
            if self.finished.len() < MOST_SERVED {
                self.see_end(id, HttpEnd::NoAnswer);
            }
        }
    }

    /// Tells the breakers of calls that have outlived the time that a request waits.
    fn notice_late_calls(&mut self) {
        let now = self.now.mono;
        let calls = self.calls.values_mut().filter(|call| !call.late && call.late_at <= now);
        let late = calls.take(MOST_SEEN_TO).filter_map(|call| {
            call.late = true;
            self.lines.get(&call.line).map(|line| (line.plan.clone(), line.ask.bucket.limiter))
        });
        let late: Vec<(Rc<Plan>, LimiterId)> = late.collect();
        for (plan, limiter) in late {
            let random = self.random();
            plan.call_failed(limiter, now, random);
        }
    }

    /// The calls of other workers that lines wait for may be over. Whoever still waits then waits for the next word of
    /// another worker: asked for after each wake-up of this one's own, a line would wake the root without end.
    pub(super) fn serve_lines_of_others(&mut self) {
        self.to_serve.extend(std::mem::take(&mut self.others_call));
    }

    /// Serves lines from what was lent, and has those that it was not enough for ask for more.
    fn serve_lines(&mut self) {
        for _ in 0..self.to_serve.len().min(MOST_SEEN_TO) {
            if self.finished.len() >= MOST_SERVED {
                return;
            }
            if let Some(id) = self.to_serve.pop_front() {
                match self.serve_from_lease(&id) {
                    Served::ThereMayBeMore => self.to_serve.push_back(id),
                    Served::AllThereWas => self.make_ready(id),
                }
            }
        }
    }

    /// Starts a line's next call now, or in the next turn of the event loop.
    pub(super) fn start_soon(&mut self, id: &LineId) {
        if self.owner == CallOwner::Request || self.budget.starts > 0 {
            self.budget.starts = self.budget.starts.saturating_sub(1);
            self.start(id);
        } else {
            self.make_ready(id.clone());
        }
    }

    fn start_ready(&mut self) {
        while self.budget.starts > 0
            && let Some(id) = self.ready.pop_front()
        {
            self.start_soon(&id);
        }
    }

    /// Finds lines whose only call has outlived a wait, or whose wake-up was lost. Where there are many, the next tick goes
    /// on with those that follow.
    fn look_at_lines(&mut self) {
        let from = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let lines = self.lines.range((from, Bound::Unbounded));
        let waiting = lines.filter(|(_, line)| !line.queue.is_empty() && !line.waits_for_other);
        let some: Vec<LineId> = waiting.take(MOST_LOOKED_AT).map(|(id, _)| id.clone()).collect();
        self.looked_at = some.get(MOST_LOOKED_AT.saturating_sub(1)).cloned();
        some.into_iter().for_each(|id| self.make_ready(id));
    }
}
