//! Leases and debts that are looked after though nobody waits: asked for ahead of need, given back, settled.

use std::rc::Rc;

use super::calls::call_timeout;
use super::plan::{Due, Lending, LendingEnd, Plan};
use super::{CallOwner, Engine, Step};
use crate::clock::Ms;
use crate::local::lease::Wish;
use crate::policy::Mode;
use crate::rules::Ask;

/// More buckets than these are not looked after: their leases end by themselves.
const MOST_WATCHED: usize = 16_384;

/// In one tick no more than so many buckets are looked after, so that it stays short.
const MOST_ATTENDED: usize = 256;

impl<S> Engine<S> {
    /// The one call about a lease is over. Gives how long the limiter is not asked for what it has denied.
    pub(super) fn close(&mut self, plan: &Rc<Plan>, ask: &Ask, lending: Lending, end: LendingEnd) -> Ms {
        let random = self.random();
        let closed = plan.close_call(ask, lending, end, self.now.mono, random);
        let others = closed.waiting & !self.worker;
        if others != 0 && self.owner == CallOwner::Root {
            self.steps.push(Step::WakeOthers(others));
        }
        if closed.waiting != others && self.owner == CallOwner::Root {
            // Another plan of this worker has a line at the same bucket.
            self.serve_lines_of_others();
            self.wake();
        }
        if let Some(due) = closed.due {
            self.look_after(plan, ask, due);
        }
        closed.quiet
    }

    /// Sees to what a bucket needs though nobody waits for it, as far as the host's calls allow that.
    pub(super) fn look_after(&mut self, plan: &Rc<Plan>, ask: &Ask, due: Due) {
        if self.owner == CallOwner::Request || (plan.is_retired() && !settles(ask)) {
            return;
        }
        match due {
            Due::Ahead if plan.is_open(ask.bucket.limiter) => {}
            Due::Ahead => self.want_call(plan, ask, Wish::Borrow),
            Due::Now => self.want_call(plan, ask, Wish::GiveBack),
            Due::LookIn(wait) if self.watches.len() < MOST_WATCHED => {
                let id = self.line(plan, ask, None);
                if let Some(line) = self.lines.get_mut(&id).filter(|line| !line.is_watched) {
                    line.is_watched = true;
                    self.watches.insert((self.now.mono + wait, id));
                }
            }
            Due::LookIn(_) => {
                if settles(ask) {
                    self.want_call(plan, ask, Wish::GiveBack);
                }
            }
        }
    }

    /// Another call is out where this worker wanted to settle. Whoever made it may not come to settle the rest.
    pub(super) fn settle_later(&mut self, plan: &Rc<Plan>, ask: &Ask) {
        if settles(ask) {
            self.look_after(plan, ask, Due::LookIn(call_timeout(plan, ask.bucket.limiter)));
        }
    }

    fn want_call(&mut self, plan: &Rc<Plan>, ask: &Ask, wish: Wish) {
        let id = self.line(plan, ask, None);
        if let Some(line) = self.lines.get_mut(&id) {
            line.wish = Some(wish);
        }
        self.have_started(id);
    }

    /// Looks after the buckets whose time has come.
    pub(super) fn attend(&mut self) {
        for _ in 0..MOST_ATTENDED {
            let Some((at, id)) = self.watches.first().filter(|(at, _)| *at <= self.now.mono).cloned() else {
                return;
            };
            self.watches.remove(&(at, id.clone()));
            let Some(line) = self.lines.get_mut(&id) else {
                continue;
            };
            line.is_watched = false;
            let (plan, ask) = (line.plan.clone(), line.ask.clone());
            let is_left_alone = plan.is_left_alone(&ask.bucket, self.now.mono);
            if plan.is_retired() {
                // Ticks refresh the plan that is in force.
                plan.refresh(self.now.mono);
            }
            let due = match plan.is_retired() && !settles(&ask) {
                true => None,
                false => plan.due(&ask, self.now.mono),
            };
            match due {
                // The limiter is left alone; what is to be settled is settled later.
                Some(Due::Now) if plan.is_open(ask.bucket.limiter) || is_left_alone => {
                    self.look_after(&plan, &ask, Due::LookIn(Ms(1000)));
                }
                Some(Due::Now) => line.wish = Some(Wish::GiveBack),
                Some(due) => self.look_after(&plan, &ask, due),
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
