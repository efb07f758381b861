//! What an entry of the table means for what is asked of its bucket.

use super::{Due, Said};
use crate::algorithm::{Share, Used};
use crate::clock::Ms;
use crate::local::table::{Entry, STAYS};
use crate::policy::{Limit, Mode};
use crate::rules::Ask;

/// From when a settlement is due until the limiter has it: a tick and a call.
const SETTLING: Ms = Ms(100);

impl Entry {
    /// Takes from the proxy's own bucket. What was used stays used when the limit changes.
    pub(super) fn take_own(&mut self, limit: Limit, now: Ms, cost: u64) -> Share {
        let own = self.own.get_or_insert(Used::nothing(now));
        let share = own.take(limit, now, cost);
        self.means_until = self.means_until.max(own.full_at(limit));
        share
    }

    /// Whether a request may have its cost of what is at hand, should that be enough. What was lent to another tier, or
    /// under a limit that has been lowered, is no way round the request's own limit: there has to be so much in its bucket
    /// as its own limit sees it. Where nothing is known the lease alone tells.
    pub(super) fn may_spend(&self, known: Option<Used>, ask: &Ask, now: Ms) -> bool {
        known.is_none_or(|known| self.with_lease(known, ask, now).has(ask.limit, ask.cost))
    }

    /// How long the limiter is not asked for such a cost; None where it may be asked. What it has denied under another limit
    /// is no news for this one, unless its bucket is known to be dry, too.
    pub(super) fn quiet_for(&self, ask: &Ask, cost: u64, now: Ms) -> Option<Ms> {
        let wait = self.lease.quiet_for(now, cost)?;
        if self.known.is_some_and(|known| known.is_over(ask.limit, now)) {
            // So is what was denied.
            return None;
        }
        let has_it = |known: Used| known.has(ask.limit, cost);
        let is_news = self.epoch != ask.epoch() && self.known(ask, now).is_none_or(has_it);
        (!is_news).then_some(wait)
    }

    /// What the bucket needs whose lease nobody may want any more.
    pub(super) fn due(&self, ask: &Ask, now: Ms) -> Option<Due> {
        let lease = self.lease;
        let at = match ask.mode {
            Mode::Async { sync_interval } => (lease.spent > 0).then(|| lease.since + sync_interval)?,
            _ if lease.size == 0 || lease.expires <= now => return None,
            mode => {
                let root_is_low = mode == Mode::Exact || self.known.is_none_or(|known| known.is_low(ask.limit));
                self.written + lease.goes_back_after(ask.limit, ask.terms(), root_is_low)?
            }
        };
        Some(if at <= now { Due::Now } else { Due::LookIn(at - now) })
    }

    /// What was spent first of a window that is over is owed to nobody: it counts in that window alone.
    pub(super) fn forget_past_debts(&mut self, ask: &Ask, now: Ms) {
        if self.known.is_some_and(|known| known.is_over(ask.limit, now)) {
            self.lease.spent = 0;
        }
    }

    /// Has what is spent first stay in the table until the limiter has been told of it; from then on it means something
    /// until its buckets are full.
    pub(super) fn keep_unsettled(&mut self, ask: &Ask, now: Ms) {
        let buckets = [(self.known, Some(ask.limit)), (self.own, ask.own)];
        let full_at = buckets.into_iter().filter_map(|(used, limit)| Some(used?.full_at(limit?)));
        let is_owed = self.lease.spent > 0 || self.lease.call_ends > now;
        self.means_until = if is_owed { STAYS } else { full_at.max().unwrap_or_default() };
    }

    /// What the limiter has said of the bucket, as it is now. What it has lent does not come back while it is lent.
    pub(super) fn known(&self, ask: &Ask, now: Ms) -> Option<Used> {
        let known = self.known.filter(|known| known.is_told_by(ask.limit, now))?;
        let lent_until = self.lease.expires.max(known.at).min(now);
        let then = known.refilled_down_to(ask.limit, lent_until, self.lease.size);
        Some(if lent_until == now { then } else { then.refilled(ask.limit, now) })
    }

    /// The bucket as this proxy sees it: what the limiter has, as far as is known, and what it has lent.
    pub(super) fn seen(&self, known: Option<Used>, ask: &Ask, now: Ms) -> Used {
        self.with_lease(known.unwrap_or_else(|| Used::all(ask.limit, now)), ask, now)
    }

    fn with_lease(&self, root: Used, ask: &Ask, now: Ms) -> Used {
        root.plus(ask.limit, self.lease.at_hand(now))
    }

    /// Whether the limiter may have this cost only together with what is at hand.
    pub(super) fn is_short_of(&self, ask: &Ask, cost: u64, now: Ms) -> bool {
        let has_it = |known: Used| known.has(ask.limit, cost);
        self.lease.at_hand(now) > 0 && !self.known(ask, now).is_some_and(has_it)
    }

    /// Refuses a request that the limiter would refuse.
    pub(super) fn refusal(&self, ask: &Ask, now: Ms) -> Option<Share> {
        if let Mode::Lease(_) = ask.mode {
            let wait = self.quiet_for(ask, ask.cost, now)?;
            let share = self.seen(self.known(ask, now), ask, now).refuse(ask.limit, ask.cost, wait, now);
            return Some(self.wait_for_lease(ask, share, wait, now));
        }
        if self.holds_up(ask, now) {
            // Only the limiter can say when there is enough.
            return None;
        }
        // Others may have taken since, so it is certain only that more than this is not there.
        let share = self.known(ask, now)?.share_of(ask.limit, ask.cost, now);
        matches!(share, Share::Refused { .. }).then(|| self.wait_for_lease(ask, share, Ms(1), now))
    }

    /// Whether what was granted and is spent still counts as lent, so that the bucket does not refill to this cost until
    /// the limiter hears of it.
    pub(super) fn holds_up(&self, ask: &Ask, now: Ms) -> bool {
        let is_spent = self.lease.size > 0 && self.lease.at_hand(now) == 0;
        is_spent && ask.limit.burst().saturating_sub(self.lease.size) < ask.cost
    }

    /// How long a cost that does not fit has to wait where so much of the bucket is lent that it does not refill to this
    /// cost before the lease goes back. `at_least` is the least that is told.
    pub(super) fn wait_for_lease(&self, ask: &Ask, share: Share, at_least: Ms, now: Ms) -> Share {
        let (limit, lease) = (ask.limit, self.lease);
        let Share::Refused { standing, .. } = share else {
            return share;
        };
        let is_lent = lease.size > 0 && now < lease.expires;
        if !is_lent || limit.burst().saturating_sub(lease.size) >= ask.cost {
            return share.not_before(at_least);
        }
        let known = self.known(ask, now).unwrap_or(Used::all(limit, now));
        let root_is_low = ask.mode == Mode::Exact || known.is_low(limit);
        let back = match ask.mode {
            // It goes back as soon as it is spent.
            Mode::Exact if lease.at_hand(now) == 0 => Ms(0),
            _ => lease.goes_back_after(limit, ask.terms(), root_is_low).unwrap_or(lease.expires - now),
        };
        let back = back + SETTLING;
        let then = known.with_lent(limit, lease.size, now + back).plus(limit, lease.at_hand(now));
        let later = match then.share_of(limit, ask.cost, now + back) {
            Share::Granted(_) => Ms(0),
            Share::Refused { retry_after, .. } => retry_after,
        };
        Share::Refused { standing, retry_after: (back + later).max(at_least) }
    }

    /// How long a cost that does not fit has to wait where what was spent is told at the next interval. The limiter may
    /// have had a full bucket until then, so from then on it may have no more than a full one less what was spent.
    pub(super) fn wait_for_settling(&self, ask: &Ask, sync_interval: Ms, share: Share, now: Ms) -> Share {
        let Share::Refused { standing, retry_after } = share else {
            return share;
        };
        // While a settlement is out, nobody knows how much of what has come back in an interval was lost to a full bucket.
        let is_out = self.lease.call_ends > now;
        let retry_after = if is_out { retry_after + sync_interval } else { retry_after };
        let share = Share::Refused { standing, retry_after };
        let settles = self.lease.since + sync_interval;
        let comes_back = now + Ms(retry_after.seconds_up().saturating_mul(1000));
        if self.lease.spent == 0 || comes_back < settles {
            return share;
        }
        let settles = settles + SETTLING;
        let known = self.known.unwrap_or(Used::nothing(settles));
        let used = known.with_lent(ask.limit, self.lease.spent, settles);
        match used.share_of(ask.limit, ask.cost, settles) {
            Share::Granted(_) => share,
            Share::Refused { retry_after: later, .. } => {
                Share::Refused { standing, retry_after: retry_after.max((settles - now) + later) }
            }
        }
    }

    /// Notes what the limiter has said.
    pub(super) fn note(&mut self, ask: &Ask, said: Said, now: Ms, random: u64) {
        let used = said.acquired.used(ask.limit, said.sent, now);
        if let Mode::Async { .. } = ask.mode {
            self.forget_past_debts(ask, now);
            // What was spent since is not settled yet.
            let used = used.minus(ask.limit, self.lease.spent);
            // Nor may be what is being settled just now, by another call than this: then the lesser level counts.
            let is_settling = self.lease.call_ends > now;
            let is_less = |known: &Used| known.units > used.refilled(ask.limit, now).units;
            let before = self.known(ask, now).filter(|known| is_settling && is_less(known));
            self.known = Some(before.unwrap_or(used));
            return self.keep_unsettled(ask, now);
        }
        self.means_until = self.means_until.max(used.full_at(ask.limit));
        self.known = Some(used);
        let Mode::Lease(_) = ask.mode else {
            return;
        };
        match said.denied {
            Some(denied) => {
                self.epoch = ask.epoch();
                self.lease.was_denied(ask.limit, denied.cost, denied.retry_after, now, random);
            }
            None => {
                self.lease.was_granted(said.granted);
                if said.acquired.lent.limited {
                    self.epoch = ask.epoch();
                    self.lease.was_limited(ask.limit, used, now, random);
                }
            }
        }
    }
}
