//! Requests that wait: from the moment they stand in line until they are told what they get.

use std::rc::Rc;

use super::admission::{Charge, Patience, State, is_final, last_deadline};
use super::tally::Decided;
use super::{CallOwner, Engine, Plan, Step, Ticket, Verdict};
use crate::algorithm::Share;
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{Limit, Mode, Policy};
use crate::response::{Outcome, answer_among};
use crate::rules::Ask;
use crate::telemetry::{Mark, Record};

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter<S> {
    pub stream: S,
    pub plan: Rc<Plan>,
    pub charges: Vec<Charge>,
    /// What rules have decided that want nothing.
    pub marks: Vec<Mark>,
    /// The next of the deadlines of its charges.
    pub deadline: Ms,
}

impl<S> Engine<S> {
    /// A request waits for what it misses: at all those buckets at once, or, where it can make only one call at a time,
    /// at the first.
    pub(super) fn stand_in_line(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return;
        };
        let plan = waiter.plan.clone();
        let at_once = if self.owner == CallOwner::Root { usize::MAX } else { 1 };
        let (now, last) = (self.now.mono, last_deadline(&waiter.charges));
        let missing = waiter.charges.iter_mut().filter(|charge| charge.state == State::Missing).take(at_once);
        let asks: Vec<Ask> = missing
            .map(|charge| {
                charge.state = State::InLine;
                if charge.deadline <= now {
                    // It did not wait when that came.
                    charge.deadline = last;
                }
                charge.ask.clone()
            })
            .collect();
        for ask in asks {
            let alone = (self.owner == CallOwner::Request).then_some(ticket);
            let id = self.line(&plan, &ask, alone);
            if let Some(line) = self.lines.get_mut(&id) {
                line.queue.push_back(ticket);
            }
            self.have_started(id);
        }
    }

    /// The answers of all calls that a request has waited for are there, or a failure has decided it.
    pub(super) fn go_on(&mut self, ticket: Ticket, patience: Patience) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return;
        };
        if patience == Patience::Waits && waiter.charges.iter().any(|charge| charge.state == State::InLine) {
            return;
        }
        let plan = waiter.plan.clone();
        let (mut charges, mut marks) = (std::mem::take(&mut waiter.charges), std::mem::take(&mut waiter.marks));
        let decided = self.take_all(&plan, &mut charges, &mut marks);
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            (waiter.charges, waiter.marks) = (charges, marks);
        }
        match decided {
            Some(decided) => self.finish(ticket, decided),
            None => self.stand_in_line(ticket),
        }
    }

    /// The time is over for which a request waits at some of its buckets. It may have more at others, whose limiter may
    /// take longer.
    pub(super) fn time_out(&mut self, ticket: Ticket) {
        let now = self.now.mono;
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return;
        };
        let mut patience = Patience::Waits;
        for charge in waiter.charges.iter_mut().filter(|charge| charge.state == State::InLine && charge.deadline <= now)
        {
            charge.state = State::Failed(Failure::Timeout);
            if is_final(&charge.ask) {
                patience = Patience::Fails;
            }
        }
        self.go_on(ticket, patience);
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            let later = waiter.charges.iter().map(|charge| charge.deadline).filter(|deadline| *deadline > now);
            match later.min() {
                Some(deadline) => {
                    waiter.deadline = deadline;
                    self.deadlines.insert((deadline, ticket));
                }
                None => {
                    // Nobody waits without a deadline.
                    let in_line = waiter.charges.iter_mut().filter(|charge| charge.state == State::InLine);
                    in_line.for_each(|charge| charge.state = State::Failed(Failure::Timeout));
                    self.go_on(ticket, Patience::Fails);
                }
            }
        }
    }

    /// One of the buckets that a request waits for has said something.
    pub(super) fn told(&mut self, ticket: Ticket, bucket: &Ask, state: State) {
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            let waits = |charge: &&mut Charge| charge.state == State::InLine && charge.ask.bucket == bucket.bucket;
            waiter.charges.iter_mut().filter(waits).for_each(|charge| charge.state = state);
        }
    }

    /// The only place that ends a wait with an answer.
    fn finish(&mut self, ticket: Ticket, decided: Decided) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.deadlines.remove(&(waiter.deadline, ticket));
        let verdict = self.verdict(&waiter.plan, decided, waiter.charges);
        self.finished.push_back((ticket, waiter.stream, verdict));
    }

    pub(super) fn verdict(&mut self, plan: &Plan, decided: Decided, charges: Vec<Charge>) -> Verdict {
        let random = self.random();
        let Decided { outcome, marks } = decided;
        let remaining = match outcome {
            Outcome::Decided { share: Share::Granted(standing) | Share::Refused { standing, .. }, .. } => {
                Some(standing.remaining)
            }
            _ => None,
        };
        let others = others(&plan.policy, &outcome, &charges);
        let answer = answer_among(&plan.policy, &outcome, &others, self.now.unix, random);
        Verdict { answer, record: Record { marks, remaining }, charges }
    }

    /// Has the root woken, unless that is on its way.
    pub(super) fn wake(&mut self) {
        if !self.woken {
            self.woken = true;
            self.steps.push(Step::Wake);
        }
    }
}

/// The limits that a request met beside the one that is told, where clients are told all of them.
fn others(policy: &Policy, outcome: &Outcome, charges: &[Charge]) -> Vec<(usize, Limit)> {
    let Outcome::Decided { rule, limit, .. } = outcome else {
        return Vec::new();
    };
    if !policy.response.ratelimit {
        return Vec::new();
    }
    let is_told = |ask: &Ask| ask.rule == *rule && ask.limit.period() == limit.period();
    let limit_of = |ask: &Ask| if ask.mode == Mode::Local { ask.own.unwrap_or(ask.limit) } else { ask.limit };
    let asks = charges.iter().map(|charge| &charge.ask).filter(|ask| !ask.shadow && !is_told(ask));
    asks.map(|ask| (ask.rule, limit_of(ask))).collect()
}
