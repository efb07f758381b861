//! Who of a proxy's workers calls the limiter about a lease, and what comes of the call.

use super::{Due, Plan};
use crate::algorithm::{Acquired, Offer, Share, Used};
use crate::clock::Ms;
use crate::local::lease::{Moment, Wish};
use crate::local::table::STAYS;
use crate::policy::Mode;
use crate::rules::Ask;

/// Whether this worker may call the limiter about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// It may, and has to say how the call ends.
    Won(Offer, Lending),
    /// Another call is out; its worker wakes this one.
    Lost,
    /// There is no lease to call about: shared data cannot be had, or the call that is out has outlived a wait.
    Void,
}

/// Which call about a lease is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lending {
    moment: Moment,
}

/// How a call about a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendingEnd<'a> {
    /// With an answer.
    Answered(Said<'a>),
    /// It was certainly not executed.
    NotExecuted(Offer),
    /// Nobody knows.
    Unknown,
}

/// What a limiter has said of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said<'a> {
    /// Its answer.
    pub acquired: &'a Acquired,
    /// Tokens that those who waited got, apart from what is held for them.
    pub granted: u64,
    /// The least cost that it has denied, if any.
    pub denied: Option<Denied>,
    /// When it was asked: it has seen the bucket no earlier.
    pub sent: Ms,
}

/// What is to be done after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Workers that wait for it, a bit for each.
    pub waiting: u32,
    /// What the bucket needs later.
    pub due: Option<Due>,
    /// How long the limiter is not asked for what it has denied.
    pub quiet: Ms,
}

/// The least cost that a bucket has denied, and when it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Tokens.
    pub cost: u64,
    /// The wait.
    pub retry_after: Ms,
}

impl Plan {
    /// Whether this worker makes the one call about a lease that may be out.
    pub fn open_call(&self, ask: &Ask, wish: Wish, worker: u32, now: Ms, timeout: Ms) -> Election {
        let opened = self.change(ask, now, |entry| {
            if let Mode::Async { .. } = ask.mode {
                entry.forget_past_debts(ask, now);
            }
            let unsettled = entry.lease.spent;
            // Without leases nothing is held but for a moment, for requests that wait for other buckets, too.
            let wish = match (ask.mode, wish) {
                (Mode::Exact, Wish::Borrow | Wish::BorrowFor(_)) => Wish::Keep,
                // Nothing is lent: those who wait want to know what there is.
                (Mode::Async { .. }, _) => Wish::GiveBack,
                (_, Wish::BorrowFor(cost)) if entry.is_short_of(ask, cost, now) => Wish::GiveBack,
                (_, wish) => wish,
            };
            let Some(mut offer) = entry.lease.open_call(ask.limit, ask.terms(), wish, worker, now, now + timeout)
            else {
                // One that has outlived a wait may never end: its worker may be dead.
                let is_late =
                    entry.lease.call_ends + self.policy.limiters.get(ask.bucket.limiter).timeout <= now + timeout;
                return if is_late { Election::Void } else { Election::Lost };
            };
            if let Mode::Async { .. } = ask.mode {
                offer.debt = unsettled;
                // Until the answer is noted, what is being told or asked has its place.
                entry.means_until = STAYS;
            }
            Election::Won(offer, Lending { moment: entry.lease.moment() })
        });
        opened.unwrap_or(Election::Void)
    }

    /// How a call about a lease has ended.
    pub fn close_call(&self, ask: &Ask, call: Lending, end: LendingEnd, now: Ms, random: u64) -> Closed {
        let closed = self.change(ask, now, |entry| {
            // Another call is out, or none: the lease has gone on without this one.
            if entry.lease.moment() != call.moment {
                return Closed::default();
            }
            let waiting = match end {
                LendingEnd::Answered(said) => {
                    let waiting = entry.lease.renew(&said.acquired.lent, said.sent, now);
                    entry.note(ask, said, now, random);
                    entry.means_until = entry.means_until.max(entry.lease.expires);
                    waiting
                }
                LendingEnd::NotExecuted(offer) => entry.lease.cancel_call(offer),
                LendingEnd::Unknown => entry.lease.lose_call(),
            };
            if let Mode::Async { .. } = ask.mode {
                entry.keep_unsettled(ask, now);
            }
            entry.written = now;
            let quiet = entry.quiet_for(ask, u64::MAX, now).unwrap_or_default();
            Closed { waiting, due: entry.due(ask, now), quiet }
        });
        closed.unwrap_or_default()
    }

    /// What a request is told that the limiter has refused: until when it does not fit here, `quiet` at least, in which
    /// the limiter is not asked.
    pub fn refused(&self, ask: &Ask, share: Share, quiet: Ms, now: Ms) -> Share {
        self.read(ask).unwrap_or_default().wait_for_lease(ask, share, quiet, now)
    }

    /// How long a request does not fit that the limiter is not asked for, since another bucket refuses it: as far as is
    /// known here. None where it may fit.
    pub fn expected(&self, ask: &Ask, now: Ms) -> Option<Share> {
        let entry = self.read(ask)?;
        let share = entry.known(ask, now)?.share_of(ask.limit, ask.cost, now);
        matches!(share, Share::Refused { .. }).then(|| entry.wait_for_lease(ask, share, Ms(1), now))
    }

    /// What a bucket needs whose lease nobody may want any more; None if nothing.
    pub fn due(&self, ask: &Ask, now: Ms) -> Option<Due> {
        self.read(ask)?.due(ask, now)
    }

    /// Notes what the limiter has said of a bucket to those who asked for no lease. Gives how long the limiter is not
    /// asked for what it has denied, as [`Closed::quiet`] does.
    pub fn note(&self, ask: &Ask, said: Said, now: Ms, random: u64) -> Ms {
        // What is known of a bucket that is not full would tell too short a wait without what has been granted since.
        let is_granted = said.denied.is_none() && !self.counts_new_keys(ask.bucket.limiter);
        // Where all tries are lost, the next request asks the limiter: it costs a call.
        let noted = self.change(ask, said.sent, |entry| {
            let says_less = |known: Used| entry.means_until > said.sent && said.acquired.level < known.level(ask.limit);
            if is_granted && !entry.known(ask, said.sent).is_some_and(says_less) {
                return None;
            }
            entry.note(ask, said, now, random);
            entry.quiet_for(ask, u64::MAX, now)
        });
        noted.flatten().unwrap_or_default()
    }
}
