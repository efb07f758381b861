//! Those who wait for one bucket, and when the next call for them starts.
//!
//! A call either asks only for those who wait, or it is about the proxy's lease as well: then it takes the place of the
//! one call about that lease that may be out in all workers, and says how it ends.

use std::collections::VecDeque;
use std::rc::Rc;

use super::admission::{Charge, Patience, State};
use super::calls::{Out, call_timeout};
use super::plan::{Election, Plan};
use super::{CallId, CallOwner, Engine, Ticket};
use crate::algorithm::{Acquire, Offer, runs};
use crate::bucket::BucketId;
use crate::local::lease::Wish;
use crate::policy::Mode;
use crate::rules::Ask;

/// Requests in the group of one call; as many again are served from the lease that the call brings.
pub(super) const MOST_SERVED: usize = 1024;

/// What became of a line that was served from what was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Nobody waits any more, or there is not enough for somebody.
    AllThereWas,
    /// All that were looked at had enough, and others wait.
    ThereMayBeMore,
}

/// One bucket under one plan and limit, since those of another tier ask otherwise; or one request at it, where calls are
/// the request's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineId {
    plan: u64,
    pub(super) bucket: Rc<BucketId>,
    epoch: u32,
    alone: Option<Ticket>,
}

/// Those who wait for one bucket.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) plan: Rc<Plan>,
    /// What is asked of the bucket, by whoever came first.
    pub(super) ask: Ask,
    pub(super) queue: VecDeque<Ticket>,
    pub(super) calls: Vec<CallId>,
    /// A call is wanted though nobody waits.
    pub(super) wish: Option<Wish>,
    /// It is among those that may start a call.
    is_ready: bool,
    /// It is among those for which another worker has a call out.
    pub(super) waits_for_other: bool,
    /// Its lease is looked after.
    pub(super) is_watched: bool,
}

impl<S> Engine<S> {
    /// The line at a bucket, a new one where there is none.
    pub(super) fn line(&mut self, plan: &Rc<Plan>, ask: &Ask, alone: Option<Ticket>) -> LineId {
        let id = LineId { plan: plan.id, bucket: ask.bucket.clone(), epoch: ask.epoch(), alone };
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
    pub(super) fn have_started(&mut self, id: LineId) {
        match self.owner {
            CallOwner::Request => self.start(&id),
            CallOwner::Root if self.may_call(&id) => {
                self.make_ready(id);
                self.wake();
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
    fn may_call(&self, id: &LineId) -> bool {
        let Some(line) = self.lines.get(id) else {
            return false;
        };
        match line.calls.as_slice() {
            [] => true,
            // One that is not among the calls has just ended, and is being seen to.
            [only] => {
                let call = self.calls.get(only);
                call.is_some_and(|call| call.late_at <= self.now.mono)
            }
            _ => false,
        }
    }

    /// Starts the next call of a line, if it may and somebody needs it; forgets a line that nobody needs.
    pub(super) fn start(&mut self, id: &LineId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.is_ready = false;
        }
        if self.may_call(id) {
            self.call(id);
        }
        if let Some(line) = self.lines.get(id)
            && line.queue.is_empty()
            && line.calls.is_empty()
            && !line.is_watched
        {
            self.lines.remove(id);
        }
    }

    fn call(&mut self, id: &LineId) {
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
        let is_about_lease = may_lend && line.calls.is_empty() && plan.transport(ask.bucket.limiter).can().lends;
        // What is held is held for somebody else who waits, and does not go back.
        let wish = match group.iter().map(|(_, cost)| *cost).max() {
            None => wish.unwrap_or(Wish::Borrow),
            Some(cost) if cost > 1 && !hold => Wish::BorrowFor(cost),
            Some(_) => Wish::Borrow,
        };
        let election = match is_about_lease {
            true => plan.open_call(&ask, wish, self.worker, self.now.mono, call_timeout(&plan, ask.bucket.limiter)),
            false => Election::Void,
        };
        let (offer, lending) = match election {
            Election::Won(offer, lending) => (offer, Some(lending)),
            Election::Void => (Offer::default(), None),
            Election::Lost if self.owner == CallOwner::Request => (Offer::default(), None),
            Election::Lost => return self.wait_for_other(id, &plan, &ask, group),
        };
        // Those who spend first ask what there is, and then spend it.
        let looks = lending.is_some() && matches!(ask.mode, Mode::Async { .. });
        let costs = group.iter().map(|(_, cost)| *cost);
        let asked = Acquire {
            limit: ask.limit,
            terms: ask.terms(),
            offer,
            // What is granted without a lease is admitted at once or dropped.
            hold: hold && lending.is_some() && !looks,
            runs: if looks { Vec::new() } else { runs(costs) },
            number: 0,
        };
        if asked.runs.is_empty() && lending.is_none() {
            return self.settle_later(&plan, &ask);
        }
        self.send(Out::new(id.clone(), asked, group, lending, &plan, self.now.mono));
    }

    /// Another worker has a call about the lease out: a line waits for what that call brings.
    fn wait_for_other(&mut self, id: &LineId, plan: &Rc<Plan>, ask: &Ask, group: Vec<(Ticket, u64)>) {
        let Some(line) = self.lines.get_mut(id) else {
            return;
        };
        for (ticket, _) in group.into_iter().rev() {
            line.queue.push_front(ticket);
        }
        let is_empty = line.queue.is_empty();
        if !line.waits_for_other {
            line.waits_for_other = true;
            self.others_call.push(id.clone());
        }
        if is_empty {
            self.settle_later(plan, ask);
        }
    }

    /// Takes those who wait off the queue, in order, as many as fit into one call; and whether what they get has to be
    /// held, because they wait for other buckets, too.
    fn take_group(&mut self, id: &LineId) -> (Vec<(Ticket, u64)>, bool) {
        let mut group: Vec<(Ticket, u64)> = Vec::new();
        let mut held = None;
        let Some(line) = self.lines.get_mut(id) else {
            return (group, false);
        };
        let transport = line.plan.transport(line.ask.bucket.limiter);
        let most = if transport.can().groups { MOST_SERVED } else { 1 };
        let (max_runs, mut runs) = (transport.max_runs(), 0_usize);
        while let Some(ticket) = line.queue.front() {
            // Nobody is charged for one whose time is over; it is about to be decided.
            let waiter = self.waiters.get(ticket);
            let charge =
                waiter.and_then(|waiter| waiter.charges.iter().find(|charge| charge.ask.bucket == line.ask.bucket));
            let charge = charge.filter(|charge| charge.deadline > self.now.mono);
            if let (Some(waiter), Some(charge)) = (waiter, charge) {
                let cost = charge.ask.cost;
                let hold = waiter.charges.iter().filter(|charge| !charge.ask.shadow).nth(1).is_some();
                let same = group.last().is_some_and(|(_, before)| *before == cost);
                runs = runs.saturating_add(usize::from(!same));
                if runs > max_runs || group.len() >= most || *held.get_or_insert(hold) != hold {
                    break;
                }
                group.push((*ticket, cost));
            }
            line.queue.pop_front();
        }
        (group, held.unwrap_or_default())
    }

    /// Those who wait may be served by what a call of another worker, or for others, has brought.
    pub(super) fn serve_from_lease(&mut self, id: &LineId) -> Served {
        let Some(line) = self.lines.get_mut(id) else {
            return Served::AllThereWas;
        };
        line.waits_for_other = false;
        let ask = line.ask.clone();
        // Those beyond have their turn in the next callback, if all before them are served.
        let beyond = line.queue.split_off(line.queue.len().min(MOST_SERVED));
        // Who is not served stands in line again, in the same order.
        for ticket in std::mem::take(&mut line.queue) {
            self.told(ticket, &ask, State::Open);
            self.go_on(ticket, Patience::Waits);
            if let Some(waiter) = self.waiters.get_mut(&ticket) {
                let is_open = |charge: &&mut Charge| charge.state == State::Open && charge.ask.bucket == ask.bucket;
                let open = waiter.charges.iter_mut().filter(is_open);
                let is_open = open.map(|charge| charge.state = State::InLine).count() > 0;
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
}
