//! The token bucket: `requests` tokens come back per period, and at most `burst` are there at once.
//!
//! Units are 1/period_ms of a token: each millisecond brings back `requests` units, and a token is `period_ms` units, so
//! nothing is ever rounded. The bucket itself lives in Redis (`lua/token_bucket.lua`).

use super::{
    Acquired, Algorithm, EXACT_IN_A_DOUBLE, Limit, ModeName, NoLimit, Run, Script, Share, Standing, Unfit, Used,
};
use super::{LENT_FREELY_FROM, SHORTEST_PACE, signed};
use crate::clock::Ms;

/// Closes the lease of the caller at a token bucket, grants the costs of those who wait, and lends more.
pub const TOKEN_BUCKET: Script = Script {
    text: concat!(include_str!("../../lua/prelude.lua"), include_str!("../../lua/token_bucket.lua")),
    sha: "ae1d2c722fd39f24717f0fd93adc9142df96b22c",
    format: "t3",
};

/// The longest period: 31 days.
const MAX_PERIOD_S: u64 = 31 * 24 * 60 * 60;

/// Clocks of the workers of one proxy differ by less than this: each counts time from its own readings.
const CLOCKS_DIFFER: Ms = Ms(1000);

/// The smallest burst of which a part can be lent while a part stays.
const LENDABLE: u64 = 2;

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
        let whole_seconds = period.0.is_multiple_of(1000);
        if !whole_seconds || period < Ms(1000) || period > Ms(1000).times(MAX_PERIOD_S) {
            return Err(NoLimit::Period);
        }
        if requests == 0 || burst == 0 {
            return Err(NoLimit::Zero);
        }
        match burst.checked_mul(period.0) {
            Some(capacity) if capacity.max(requests) < EXACT_IN_A_DOUBLE => Ok(TokenBucket { requests, period, burst }),
            _ => Err(NoLimit::TooLarge),
        }
    }

    fn units(&self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.period.0)
    }

    /// Units in a full bucket.
    fn capacity(&self) -> i64 {
        signed(self.units(self.burst))
    }

    fn time_between(&self, level: i64, wanted: i64) -> Ms {
        let missing = u64::try_from(wanted.saturating_sub(level)).unwrap_or_default();
        let rounded_up = missing.saturating_add(self.requests.saturating_sub(1));
        Ms(rounded_up.checked_div(self.requests).unwrap_or(u64::MAX))
    }

    fn standing(&self, level: i64) -> Standing {
        let whole = u64::try_from(level).unwrap_or_default().checked_div(self.period.0);
        Standing { remaining: whole.unwrap_or_default(), reset: self.time_between(level, self.capacity()) }
    }
}

impl Algorithm for TokenBucket {
    fn requests(&self) -> u64 {
        self.requests
    }

    fn period(&self) -> Ms {
        self.period
    }

    fn burst(&self) -> u64 {
        self.burst
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

    fn units_of_a_token(&self) -> u64 {
        self.period.0
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

    /// A bucket fills at one rate, whenever that is.
    fn time_to(&self, level: i64, wanted: i64, _at: Ms) -> Ms {
        self.time_between(level, wanted)
    }

    fn next_token(&self, told: Standing) -> Option<Ms> {
        let later = self.burst.saturating_sub(told.remaining).checked_sub(1)?;
        Some(told.reset - Ms(self.period.times(later).0.checked_div(self.requests)?))
    }

    fn small_lease(&self) -> u64 {
        (self.burst / 64).clamp(3, 64)
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

    fn arguments(&self) -> [u64; 3] {
        [self.requests, self.period.0, self.burst]
    }

    fn may_answer(&self, acquired: &Acquired, full_in: Ms, runs: &[Run]) -> bool {
        let level = acquired.level;
        // From the last run back to the first: the level before each.
        let mut before = level.saturating_add(signed(self.units(acquired.lent.extra)));
        for (count, run) in acquired.granted.iter().zip(runs).rev() {
            // Whoever fits is granted.
            let passed_over = *count < run.count && before >= signed(self.units(run.cost));
            if passed_over || (*count > 0 && before < 0) {
                return false;
            }
            before = before.saturating_add(signed(self.units(run.cost.saturating_mul(*count))));
        }
        let is_counted = self.capacity().saturating_sub(level) < signed(EXACT_IN_A_DOUBLE);
        before <= self.capacity() && is_counted && self.time_between(level, self.capacity()) == full_in
    }

    fn shares(&self, acquired: &Acquired, runs: &[Run]) -> Vec<Share> {
        let grants = || runs.iter().zip(&acquired.granted);
        let lent = acquired.lent.kept.saturating_add(acquired.lent.extra);
        let here = acquired.level.saturating_add(signed(self.units(lent)));
        let mut level = grants().fold(here, |level, (run, granted)| {
            level.saturating_add(signed(self.units(run.cost.saturating_mul(*granted))))
        });
        let mut shares = Vec::new();
        for (run, granted) in grants() {
            let cost = signed(self.units(run.cost));
            for _ in 0..*granted {
                level = level.saturating_sub(cost);
                // A lease of a time in which the burst was larger may be more than it.
                shares.push(Share::Granted(self.standing(level.min(self.capacity()))));
            }
            for _ in *granted..run.count {
                let retry_after = self.time_between(acquired.level, cost).max(Ms(1));
                shares.push(Share::Refused { standing: self.standing(acquired.level), retry_after });
            }
        }
        shares
    }
}
