//! What an entry of the table means for what is asked of its bucket.

use super::{Denied, Due, Granted};
use crate::bucket::{Acquired, Share, Used};
use crate::clock::Ms;
use crate::policy::{Limit, Mode};
use crate::pool::table::{Entry, STAYS};
use crate::rule::Ask;

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
    pub(super) fn may_spend(&self, ask: &Ask, now: Ms) -> bool {
        self.known(ask, now).is_none() || self.seen(ask, now).standing(ask.limit).remaining >= ask.cost
    }

    /// How long the limiter is not asked for such a cost; None where it may be asked. What it has denied under another limit
    /// is no news for this one, unless its bucket is known to be dry, too.
    pub(super) fn quiet_for(&self, ask: &Ask, cost: u64, now: Ms) -> Option<Ms> {
        let wait = self.lease.quiet_for(now, cost)?;
        let has_it = |known: Used| known.standing(ask.limit).remaining >= cost;
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
                self.written + lease.goes_back_after(ask.limit, root_is_low)?
            }
        };
        Some(if at <= now { Due::Now } else { Due::LookIn(at - now) })
    }

    /// Has what is spent first stay in the table until the limiter has been told of it; from then on it means something
    /// until its buckets are full.
    pub(super) fn keep_unsettled(&mut self, ask: &Ask) {
        let buckets = [(self.known, Some(ask.limit)), (self.own, ask.own)];
        let full_at = buckets.into_iter().filter_map(|(used, limit)| Some(used?.full_at(limit?)));
        self.means_until = if self.lease.spent > 0 { STAYS } else { full_at.max().unwrap_or_default() };
    }

    /// What the limiter has said of the bucket, as it is now. What it has lent does not come back while it is lent.
    pub(super) fn known(&self, ask: &Ask, now: Ms) -> Option<Used> {
        let known = self.known.filter(|known| known.at <= now)?;
        let lent_until = self.lease.expires.max(known.at).min(now);
        Some(known.refilled_down_to(ask.limit, lent_until, self.lease.size).refilled(ask.limit, now))
    }

    /// The bucket as this proxy sees it: what the limiter has, as far as is known, and what it has lent.
    pub(super) fn seen(&self, ask: &Ask, now: Ms) -> Used {
        let root = self.known(ask, now).unwrap_or(Used::all(ask.limit, now));
        root.plus(ask.limit, self.lease.at_hand(now))
    }

    /// Whether the limiter may have this cost only together with what is at hand.
    pub(super) fn is_short_of(&self, ask: &Ask, cost: u64, now: Ms) -> bool {
        let has_it = |known: Used| known.standing(ask.limit).remaining >= cost;
        self.lease.at_hand(now) > 0 && !self.known(ask, now).is_some_and(has_it)
    }

    /// Refuses a request that the limiter would refuse.
    pub(super) fn refusal(&self, ask: &Ask, now: Ms) -> Option<Share> {
        if let Mode::Lease(_) = ask.mode {
            let wait = self.quiet_for(ask, ask.cost, now)?;
            return Some(self.seen(ask, now).refuse(ask.limit, ask.cost, wait));
        }
        // Others may have taken since, so it is certain only that more than this is not there.
        let share = self.known(ask, now)?.share_of(ask.limit, ask.cost);
        matches!(share, Share::Refused { .. }).then_some(share)
    }

    /// What the limiter has said: the bucket was seen no earlier than the call was sent.
    #[expect(clippy::too_many_arguments, reason = "all that a call brings")]
    pub(super) fn note(
        &mut self,
        ask: &Ask,
        acquired: &Acquired,
        sent: Ms,
        granted: Granted,
        denied: Option<Denied>,
        now: Ms,
        random: u64,
    ) {
        let used = acquired.used(ask.limit, sent);
        if let Mode::Async { .. } = ask.mode {
            // What was spent since is not settled yet.
            self.known = Some(used.minus(ask.limit, self.lease.spent));
            return self.keep_unsettled(ask);
        }
        self.means_until = self.means_until.max(used.full_at(ask.limit));
        self.known = Some(used);
        let Mode::Lease(_) = ask.mode else {
            return;
        };
        match denied {
            Some(denied) => {
                self.epoch = ask.epoch();
                self.lease.was_denied(ask.limit, denied.cost, denied.retry_after, now, random);
            }
            None => {
                self.lease.was_granted(granted);
                if acquired.lent.limited {
                    self.epoch = ask.epoch();
                    self.lease.was_limited(ask.limit, used, now, random);
                }
            }
        }
    }
}
