//! How much of a bucket is used, and what that gives a request. A proxy keeps its own buckets so, and what it knows of the
//! limiter's.

use super::{Algorithm, Limit, signed};
use crate::clock::Ms;

/// What one request gets from its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Its tokens.
    Granted(Standing),
    /// None of them.
    Refused {
        /// The bucket after the group.
        standing: Standing,
        /// Until this request's cost fits, if nobody else comes; at least 1 ms.
        retry_after: Ms,
    },
}

impl Share {
    /// Where it is refused, for so long at least.
    pub fn not_before(self, at_least: Ms) -> Share {
        match self {
            Share::Granted(_) => self,
            Share::Refused { standing, retry_after } => {
                Share::Refused { standing, retry_after: retry_after.max(at_least) }
            }
        }
    }
}

/// How a bucket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whole tokens in it.
    pub remaining: u64,
    /// Until it is full, or its window ends.
    pub reset: Ms,
}

/// How much was used of a bucket, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Units that have not come back yet; more than a full bucket where that was larger, or more was spent than there was.
    pub units: u64,
    /// When that was, by the clock of whoever keeps it; of a window when it ends.
    pub at: Ms,
}

impl Used {
    /// A full bucket.
    pub fn nothing(now: Ms) -> Used {
        Used { units: 0, at: now }
    }

    /// A bucket of this limit with nothing in it.
    pub fn all(limit: Limit, now: Ms) -> Used {
        Used { units: units(limit, limit.burst()), at: now }
    }

    /// What is left of a full bucket of this limit, in units: negative where more was used.
    pub fn level(self, limit: Limit) -> i64 {
        capacity(limit).saturating_sub_unsigned(self.units)
    }

    /// The same bucket now. A clock that went back adds nothing, but one that was set locks nobody out.
    pub fn refilled(self, limit: Limit, now: Ms) -> Used {
        self.refilled_down_to(limit, now, 0)
    }

    /// The same, but so many tokens do not come back meanwhile: they are lent.
    pub fn refilled_down_to(self, limit: Limit, now: Ms, lent: u64) -> Used {
        limit.by(|algorithm| algorithm.refilled(self, now, lent))
    }

    /// Takes the cost of one request; where it does not fit, the bucket stays as it is, so that nothing is to be
    /// written, but for a clock that was set.
    pub fn take(&mut self, limit: Limit, now: Ms, cost: u64) -> Share {
        let refilled = self.refilled(limit, now);
        let share = refilled.share_of(limit, cost, now);
        match share {
            Share::Granted(_) => *self = refilled.minus(limit, cost),
            Share::Refused { .. } if refilled.at < self.at => *self = refilled,
            Share::Refused { .. } => {}
        }
        share
    }

    /// What one request would get of this bucket as it is.
    pub fn share_of(self, limit: Limit, cost: u64, now: Ms) -> Share {
        let rest = self.level(limit).saturating_sub(signed(units(limit, cost)));
        if rest >= 0 {
            Share::Granted(self.minus(limit, cost).standing(limit, now))
        } else {
            self.refuse(limit, cost, Ms(1), now)
        }
    }

    /// Whether such a cost, at least 1, is in the bucket as it is.
    pub fn has(self, limit: Limit, cost: u64) -> bool {
        limit.by(|algorithm| self.level_by(algorithm) >= signed(cost.saturating_mul(algorithm.units_of_a_token())))
    }

    /// What is left, asked where the algorithm is known already.
    #[inline(always)]
    fn level_by(self, algorithm: &dyn Algorithm) -> i64 {
        signed(algorithm.full()).saturating_sub_unsigned(self.units)
    }

    /// How it stands.
    pub fn standing(self, limit: Limit, now: Ms) -> Standing {
        limit.by(|algorithm| {
            let whole = u64::try_from(self.level_by(algorithm)).unwrap_or_default();
            Standing {
                remaining: whole.checked_div(algorithm.units_of_a_token()).unwrap_or_default(),
                reset: algorithm.reset(self, now),
            }
        })
    }

    /// Whether it tells how the bucket stood at some moment; else it was noted later, or by a clock that has been set.
    pub fn is_told_by(self, limit: Limit, now: Ms) -> bool {
        limit.by(|algorithm| algorithm.is_told_by(self, now))
    }

    /// The bucket at a later moment, where the limiter will count so many tokens as used until it hears what became of
    /// them.
    pub fn with_lent(self, limit: Limit, lent: u64, then: Ms) -> Used {
        limit.by(|algorithm| algorithm.with_lent(self, lent, then))
    }

    /// Whether what it tells is over: what was spent or denied meanwhile means nothing any more.
    pub fn is_over(self, limit: Limit, now: Ms) -> bool {
        limit.by(|algorithm| algorithm.is_over(self, now))
    }

    /// With so many tokens more in the bucket.
    pub fn plus(self, limit: Limit, tokens: u64) -> Used {
        Used { units: self.units.saturating_sub(units(limit, tokens)), ..self }
    }

    /// With so many tokens less in it.
    pub fn minus(self, limit: Limit, tokens: u64) -> Used {
        Used { units: self.units.saturating_add(units(limit, tokens)), ..self }
    }

    /// Refuses such a cost for so long at least, whatever may be in the bucket: what is told to be left does not
    /// contradict that.
    pub fn refuse(self, limit: Limit, cost: u64, at_least: Ms, now: Ms) -> Share {
        let (level, wanted) = (self.level(limit), signed(units(limit, cost)));
        let below = self.at_level(limit, level.min(wanted.saturating_sub(1)));
        let retry_after = limit.by(|algorithm| algorithm.time_to(self, wanted, now));
        let retry_after = retry_after.max(at_least).max(Ms(1));
        Share::Refused { standing: below.standing(limit, now), retry_after }
    }

    /// The same bucket with another level.
    pub(super) fn at_level(self, limit: Limit, level: i64) -> Used {
        Used { units: u64::try_from(capacity(limit).saturating_sub(level)).unwrap_or_default(), ..self }
    }

    /// Whether it is full to the half at most.
    pub fn is_low(self, limit: Limit) -> bool {
        self.level(limit) <= capacity(limit) / 2
    }

    /// When the bucket will be full.
    pub fn full_at(self, limit: Limit) -> Ms {
        limit.by(|algorithm| algorithm.full_at(self))
    }
}

/// How many units so many tokens are.
pub(super) fn units(limit: Limit, tokens: u64) -> u64 {
    tokens.saturating_mul(limit.by(|algorithm| algorithm.units_of_a_token()))
}

/// Units in a full bucket.
pub(super) fn capacity(limit: Limit) -> i64 {
    signed(limit.by(|algorithm| algorithm.full()))
}
