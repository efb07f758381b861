//! The token bucket: `requests` tokens come back per period, and at most `burst` are there at once.
//!
//! Units are 1/period_ms of a token: each millisecond brings back `requests` units, and a token is `period_ms` units, so
//! nothing is ever rounded. The bucket itself lives in Redis (`lua/token_bucket.lua`).

use super::script::PRELUDE;
use super::{
    Acquired, Algorithm, AlgorithmName, EXACT_IN_A_DOUBLE, Impossible, Limit, ModeName, NoLimit, Script, Standing,
    Unfit, Used,
};
use super::{CLOCKS_DIFFER, LENDABLE, LENT_FREELY_FROM, SHORTEST_PACE, signed};
use crate::clock::Ms;

/// Closes the lease of the caller at a token bucket, grants the costs of those who wait, and lends more.
pub const TOKEN_BUCKET: Script = Script {
    prelude: PRELUDE,
    own: include_str!("../../lua/token_bucket.lua"),
    sha: "ae1d2c722fd39f24717f0fd93adc9142df96b22c",
    format: "t3",
};

/// The numbers of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    requests: u64,
    period: Ms,
    burst: u64,
}

impl TokenBucket {
    /// `requests` per `period` (whole seconds, 1s to 31d), at most `burst` at once.
    ///
    /// # Errors
    /// See [`NoLimit`].
    pub fn new(requests: u64, period: Ms, burst: u64) -> Result<TokenBucket, NoLimit> {
        NoLimit::unless_exact(requests, period, burst)?;
        Ok(TokenBucket { requests, period, burst })
    }

    fn units(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.period.0)
    }

    /// Units in a full bucket.
    fn capacity(&self) -> i64 {
        signed(self.full())
    }

    fn time_between(&self, level: i64, wanted: i64) -> Ms {
        let missing = u64::try_from(wanted.saturating_sub(level)).unwrap_or_default();
        let rounded_up = missing.saturating_add(self.requests.saturating_sub(1));
        Ms(rounded_up.checked_div(self.requests).unwrap_or(u64::MAX))
    }
}

impl Algorithm for TokenBucket {
    fn name(&self) -> AlgorithmName {
        AlgorithmName::TokenBucket
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn period(&self) -> Ms {
        self.period
    }

    fn burst(&self) -> u64 {
        self.burst
    }

    fn below_a_cost(&self) -> &'static str {
        "is a burst below the cost of a class that meets it"
    }

    fn unfit_for(&self, mode: ModeName) -> Option<Unfit> {
        (mode == ModeName::Lease && self.burst < LENDABLE).then_some(Unfit {
            wrong: "has a burst of 1, which cannot be lent",
            wanted: "raise the burst to at least 2, or write mode: exact",
        })
    }

    /// A token takes as many times as long.
    fn share(&self, proxies: u64, largest_cost: u64) -> Limit {
        let burst = self.burst.checked_div(proxies).unwrap_or(self.burst).max(1).max(largest_cost);
        Limit::TokenBucket(TokenBucket { burst, period: self.period.times(proxies), ..*self })
    }

    fn window_offset(&self, _key: &str) -> Option<Ms> {
        None
    }

    fn units_of_a_token(&self) -> u64 {
        self.period.0
    }

    fn full(&self) -> u64 {
        self.units(self.burst)
    }

    /// Of one moment.
    fn is_told_by(&self, used: Used, now: Ms) -> bool {
        used.at <= now
    }

    /// A clock that went back by more than the time to full, and by more than the clocks of workers differ, was set, and
    /// the bucket goes on from there.
    fn refilled(&self, used: Used, now: Ms, lent: u64) -> Used {
        // The first half is nearly always enough, and spares a division.
        let clock_was_set = used.at > now && used.at - now > self.time_between(0, self.capacity()).max(CLOCKS_DIFFER);
        let back = self.requests.saturating_mul((now - used.at).0);
        let at = if clock_was_set { now } else { used.at.max(now) };
        Used { units: used.units.saturating_sub(back).max(used.units.min(self.units(lent))), at }
    }

    /// A bucket refills to what is not lent.
    fn with_lent(&self, used: Used, lent: u64, then: Ms) -> Used {
        let later = self.refilled(used, then, 0);
        Used { units: later.units.max(self.units(lent)), ..later }
    }

    /// What was spent comes back little by little.
    fn is_over(&self, _used: Used, _now: Ms) -> bool {
        false
    }

    /// A bucket fills at one rate, whenever that is.
    fn time_to(&self, used: Used, wanted: i64, _now: Ms) -> Ms {
        self.time_between(self.capacity().saturating_sub_unsigned(used.units), wanted)
    }

    /// When it is full.
    fn reset(&self, used: Used, now: Ms) -> Ms {
        self.time_to(used, self.capacity(), now)
    }

    fn full_at(&self, used: Used) -> Ms {
        used.at + self.reset(used, used.at)
    }

    fn next_token(&self, told: Standing) -> Option<Ms> {
        let later = self.burst.saturating_sub(told.remaining).checked_sub(1)?;
        Some(told.reset - Ms(self.period.times(later).0.checked_div(self.requests)?))
    }

    fn small_lease(&self) -> u64 {
        (self.burst / 64).clamp(3, 64)
    }

    fn small_lease_stays(&self, _life: Ms) -> Option<Ms> {
        None
    }

    fn least_lease(&self) -> u64 {
        (self.burst / 256).clamp(1, 4)
    }

    /// A quarter of the time to full.
    fn pace(&self) -> Ms {
        let quarter = self.units(self.burst).checked_div(self.requests.saturating_mul(4));
        Ms(quarter.unwrap_or(u64::MAX)).clamp(SHORTEST_PACE, Ms(1000))
    }

    /// Until it has what comes back in one pace.
    fn scarce_for(&self, level: i64) -> Option<Ms> {
        let comes_back = self.requests.saturating_mul(self.pace().0);
        let missing = u64::try_from(signed(comes_back).saturating_sub(level)).unwrap_or_default();
        let wait = missing.checked_div(self.requests).unwrap_or_default();
        (self.burst >= LENT_FREELY_FROM && wait > 0).then(|| Ms(wait).clamp(SHORTEST_PACE, self.pace()))
    }

    fn script(&self) -> &'static Script {
        &TOKEN_BUCKET
    }

    fn arguments(&self, _key: &str) -> [u64; 3] {
        [self.requests, self.period.0, self.burst]
    }

    fn window_left(&self, level: i64, reset: Ms) -> Result<Ms, Impossible> {
        let is_counted = self.capacity().saturating_sub(level) < signed(EXACT_IN_A_DOUBLE);
        if is_counted && self.time_between(level, self.capacity()) == reset { Ok(Ms(0)) } else { Err(Impossible) }
    }

    fn told(&self, acquired: &Acquired, sent: Ms, _heard: Ms) -> Used {
        let units = self.capacity().saturating_sub(acquired.level);
        Used { units: u64::try_from(units).unwrap_or_default(), at: sent }
    }
}
