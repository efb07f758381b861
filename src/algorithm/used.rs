//! How much of a bucket is used, and what that gives a request. A proxy keeps its own buckets so, and what it knows of the
//! limiter's.

use super::{Limit, signed};
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
    /// Until it is full.
    pub reset: Ms,
}

/// How much was used of a bucket, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Units that have not come back yet; more than a full bucket where that was larger, or more was spent than there was.
    pub units: u64,
    /// By the clock of whoever keeps it.
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

    /// A bucket of this limit with such a level.
    pub(super) fn at_level(limit: Limit, level: i64, at: Ms) -> Used {
        Used { units: u64::try_from(capacity(limit).saturating_sub(level)).unwrap_or_default(), at }
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
        limit.algorithm().refilled(self, now, lent)
    }

    /// Takes the cost of one request; where it does not fit, the bucket stays as it is, so that nothing is to be
    /// written, but for a clock that was set.
    pub fn take(&mut self, limit: Limit, now: Ms, cost: u64) -> Share {
        let refilled = self.refilled(limit, now);
        let share = refilled.share_of(limit, cost);
        match share {
            Share::Granted(_) => *self = refilled.minus(limit, cost),
            Share::Refused { .. } if refilled.at < self.at => *self = refilled,
            Share::Refused { .. } => {}
        }
        share
    }

    /// What one request would get of this bucket as it is.
    pub fn share_of(self, limit: Limit, cost: u64) -> Share {
        let (level, wanted) = (self.level(limit), signed(units(limit, cost)));
        let rest = level.saturating_sub(wanted);
        if rest >= 0 { Share::Granted(standing(limit, rest, self.at)) } else { self.refuse(limit, cost, Ms(1)) }
    }

    /// How it stands.
    pub fn standing(self, limit: Limit) -> Standing {
        standing(limit, self.level(limit), self.at)
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
    pub fn refuse(self, limit: Limit, cost: u64, at_least: Ms) -> Share {
        let (level, wanted) = (self.level(limit), signed(units(limit, cost)));
        let below = level.min(wanted.saturating_sub(1));
        let retry_after = limit.algorithm().time_to(level, wanted, self.at).max(at_least).max(Ms(1));
        Share::Refused { standing: standing(limit, below, self.at), retry_after }
    }

    /// Whether it is full to the half at most.
    pub fn is_low(self, limit: Limit) -> bool {
        self.level(limit) <= capacity(limit) / 2
    }

    /// When the bucket will be full.
    pub fn full_at(self, limit: Limit) -> Ms {
        self.at + limit.algorithm().time_to(self.level(limit), capacity(limit), self.at)
    }
}

/// How many units so many tokens are.
fn units(limit: Limit, tokens: u64) -> u64 {
    tokens.saturating_mul(limit.algorithm().units_of_a_token())
}

/// Units in a full bucket.
fn capacity(limit: Limit) -> i64 {
    signed(units(limit, limit.burst()))
}

fn standing(limit: Limit, level: i64, at: Ms) -> Standing {
    let whole = u64::try_from(level).unwrap_or_default().checked_div(limit.algorithm().units_of_a_token());
    let reset = limit.algorithm().time_to(level, capacity(limit), at);
    Standing { remaining: whole.unwrap_or_default(), reset }
}
