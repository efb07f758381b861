//! What a proxy gives a request of one bucket without asking anybody.

use std::ops::ControlFlow;

use super::{Due, Plan};
use crate::algorithm::{Share, Standing, Used};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::local::lease::Moment;
use crate::policy::{Limit, Mode, OnError};
use crate::rules::Ask;

/// What this proxy alone gives a request of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its cost.
    Granted {
        /// The limit that it was taken under.
        limit: Limit,
        /// How that bucket stands.
        standing: Standing,
        /// For putting it back.
        receipt: Receipt,
        /// What is to be done about the bucket.
        due: Option<Due>,
    },
    /// Nothing.
    Refused {
        /// The limit that says so.
        limit: Limit,
        /// The refusal.
        share: Share,
    },
    /// The limiter has failed.
    Failed(Failure),
    /// The limiter has to be asked, if no other bucket refuses the request: see [`Plan::may_ask`].
    Missing {
        /// This proxy knows nothing of the bucket.
        is_new: bool,
    },
    /// The limiter is left alone, and this request may be the next to try it, if no other bucket refuses it.
    Probe,
}

/// Where something was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// From what was lent, at this moment.
    Lease(Moment),
    /// From the proxy's own bucket.
    Own,
    /// From what is spent first and settled later.
    Unsettled,
}

impl Plan {
    /// Takes what a request needs of one bucket, if this proxy has it, or says what else this proxy knows.
    pub fn take(&self, ask: &Ask, now: Ms) -> Taken {
        match ask.mode {
            Mode::Local => self.take_own(ask, now, Failure::Unreachable),
            Mode::Async { .. } if self.is_open(ask.bucket.limiter) => Taken::Probe,
            Mode::Async { sync_interval } => self.take_unsettled(ask, sync_interval, now),
            Mode::Exact | Mode::Lease(_) => self.take_lent(ask, now),
        }
    }

    /// Whether a request may ask for what this proxy alone could not decide. Called once no other bucket refuses the
    /// request, so that neither a probe nor the place of a new key is spent on one that does not pass anyway.
    /// `is_in_probe` says that the request asks the limiter for another bucket already, as its probe.
    ///
    /// [`Taken::Missing`] where it may, and what this proxy gives it where that needs no answer.
    pub fn may_ask(&self, ask: &Ask, taken: Taken, is_in_probe: bool, now: Ms, random: u64) -> Taken {
        let passes = || if is_in_probe { Ok(()) } else { self.passes_breaker(ask.bucket.limiter, now, random) };
        let has_place = |is_new| if is_new { self.count_new_key(ask.bucket.limiter, now) } else { Ok(()) };
        let allowed = match (taken, ask.mode) {
            // Those who spend first have had their answer from the breaker.
            (Taken::Missing { is_new }, Mode::Async { .. }) => has_place(is_new),
            (Taken::Missing { .. }, _) if !is_in_probe && self.is_barred(ask.bucket.limiter, now) => {
                Err(Failure::Breaker)
            }
            // A key that has no place is no probe.
            (Taken::Missing { is_new }, _) => has_place(is_new).and_then(|()| passes()),
            (Taken::Probe, _) => passes(),
            _ => Ok(()),
        };
        match (allowed, taken, ask.mode) {
            (Err(failure), ..) => Taken::Failed(failure),
            (Ok(()), Taken::Probe, Mode::Async { sync_interval }) => self.probe(ask, sync_interval, now),
            (Ok(()), ..) => taken,
        }
    }

    /// What is spent first is settled at once, as the probe of a limiter that is left alone.
    fn probe(&self, ask: &Ask, sync_interval: Ms, now: Ms) -> Taken {
        match self.take_unsettled(ask, sync_interval, now) {
            Taken::Granted { limit, standing, receipt, .. } => {
                Taken::Granted { limit, standing, receipt, due: Some(Due::Now) }
            }
            Taken::Missing { is_new: true } => match self.count_new_key(ask.bucket.limiter, now) {
                Ok(()) => Taken::Missing { is_new: true },
                Err(failure) => Taken::Failed(failure),
            },
            taken => taken,
        }
    }

    fn take_lent(&self, ask: &Ask, now: Ms) -> Taken {
        let looked = self.change(ask, now, |entry| {
            let known = entry.known(ask, now);
            if entry.may_spend(known, ask, now) && entry.lease.spend(now, ask.cost) {
                entry.means_until = entry.means_until.max(entry.lease.expires);
                let due = match ask.mode {
                    Mode::Lease(_) => entry.lease.runs_out(now).then_some(Due::Ahead),
                    // A bucket that is nearly all lent refills from when the limiter hears that it is spent.
                    _ => entry.holds_up(ask, now).then_some(Due::Now),
                };
                return ControlFlow::Break(Taken::Granted {
                    limit: ask.limit,
                    standing: entry.seen(known, ask, now).standing(ask.limit, now),
                    receipt: Receipt::Lease(entry.lease.moment()),
                    due,
                });
            }
            match entry.refusal(ask, now) {
                Some(share) => ControlFlow::Break(Taken::Refused { limit: ask.limit, share }),
                // An own bucket is no sign that the limiter has heard of the key.
                None => ControlFlow::Continue(entry.known.is_none()),
            }
        });
        match looked {
            Some(ControlFlow::Break(taken)) => taken,
            Some(ControlFlow::Continue(is_new)) => Taken::Missing { is_new },
            None => Taken::Missing { is_new: true },
        }
    }

    /// Spends first: by what the limiter said last, less what this proxy has spent since. Of a bucket that this proxy does
    /// not know, or has no room for, the limiter has to speak first; a rule that never waits takes it for full.
    fn take_unsettled(&self, ask: &Ask, sync_interval: Ms, now: Ms) -> Taken {
        let share = self.change(ask, now, |entry| {
            if entry.known.is_none() && !ask.shadow {
                return None;
            }
            entry.forget_past_debts(ask, now);
            let known = entry.known.get_or_insert(Used::nothing(now));
            let share = known.take(ask.limit, now, ask.cost);
            if let Share::Granted(_) = share {
                if entry.lease.spent == 0 && entry.lease.since + sync_interval <= now {
                    // It is settled an interval after the first that is spent.
                    entry.lease.since = now;
                }
                entry.lease.was_granted(ask.cost);
                entry.keep_unsettled(ask, now);
            }
            let share = entry.wait_for_settling(ask, sync_interval, share, now);
            Some((share, (entry.lease.since + sync_interval) - now))
        });
        let limit = ask.limit;
        match share.flatten() {
            Some((Share::Granted(standing), settles)) => {
                Taken::Granted { limit, standing, receipt: Receipt::Unsettled, due: Some(Due::LookIn(settles)) }
            }
            Some((share, _)) => Taken::Refused { limit, share },
            None if ask.shadow => Taken::Failed(Failure::Unreachable),
            None => Taken::Missing { is_new: true },
        }
    }

    /// What the proxy's own bucket gives a request; that failure where it cannot be reached.
    fn take_own(&self, ask: &Ask, now: Ms, failure: Failure) -> Taken {
        let share = ask
            .own
            .and_then(|limit| Some((limit, self.change(ask, now, |entry| entry.take_own(limit, now, ask.cost))?)));
        match share {
            Some((limit, Share::Granted(standing))) => {
                Taken::Granted { limit, standing, receipt: Receipt::Own, due: None }
            }
            Some((limit, share)) => Taken::Refused { limit, share },
            None => Taken::Failed(failure),
        }
    }

    /// What a request gets whose limiter has failed; None where it passes uncounted.
    pub fn on_error(&self, ask: &Ask, failure: Failure, now: Ms) -> Option<Taken> {
        match ask.on_error {
            OnError::Local => Some(self.take_own(ask, now, failure)),
            OnError::Deny => Some(Taken::Failed(failure)),
            OnError::Allow => None,
        }
    }

    /// Puts back what was taken, since another bucket has refused the request. Where it cannot be put back safely, it
    /// stays spent.
    pub fn put_back(&self, ask: &Ask, receipt: Receipt, now: Ms) {
        self.change(ask, now, |entry| match receipt {
            Receipt::Lease(moment) => entry.lease.put_back(moment, ask.cost),
            Receipt::Own => {
                if let (Some(own), Some(limit)) = (entry.own, ask.own) {
                    entry.own = Some(own.plus(limit, ask.cost));
                }
            }
            // What is settled already comes back by no call.
            Receipt::Unsettled if entry.lease.spent >= ask.cost => {
                entry.lease.spent = entry.lease.spent.saturating_sub(ask.cost);
                entry.known = entry.known.map(|known| known.plus(ask.limit, ask.cost));
                entry.keep_unsettled(ask, now);
            }
            Receipt::Unsettled => {}
        });
    }
}
