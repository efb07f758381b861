//! The fixed window: at most `requests` in each window of a period.
//!
//! Windows begin at multiples of the period by the limiter's clock, or all of a key's so much later. A unit is a token. The
//! window itself lives in Redis (`lua/fixed_window.lua`). Of what a proxy keeps, [`Used::at`] is when the window ends by
//! its own clock: the limiter tells how much of it is left. The proxy's own windows follow each other from the first
//! request that it counts.

use super::script::PRELUDE;
use super::{
    Acquired, Algorithm, AlgorithmName, EXACT_IN_A_DOUBLE, Impossible, Limit, ModeName, NoLimit, Script, Standing,
    Unfit, Used,
};
use super::{CLOCKS_DIFFER, LENDABLE, LENT_FREELY_FROM, SHORTEST_PACE, hash_of, signed};
use crate::clock::Ms;

/// Closes the lease of the caller at a fixed window, grants the costs of those who wait, and lends more.
pub const FIXED_WINDOW: Script = Script {
    prelude: PRELUDE,
    own: include_str!("../../lua/fixed_window.lua"),
    sha: "3b7439e786882fb1a24dc031321d719bf6a2656f",
    format: "w1",
};

/// The numbers of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    requests: u64,
    period: Ms,
    spread: bool,
}

impl FixedWindow {
    /// `requests` in each window of `period` (whole seconds, 1s to 31d). `spread`: the windows of each key begin at an
    /// offset of its own.
    ///
    /// # Errors
    /// See [`NoLimit`].
    pub fn new(requests: u64, period: Ms, spread: bool) -> Result<FixedWindow, NoLimit> {
        NoLimit::unless_exact(requests, period, requests)?;
        Ok(FixedWindow { requests, period, spread })
    }

    fn offset(&self, key: &str) -> Ms {
        let hash = if self.spread { hash_of(key) } else { 0 };
        Ms(hash.checked_rem(self.period.0).unwrap_or_default())
    }

    /// What is left of a window that ends then; at least 1 ms, since nobody sees one that is over.
    fn left(&self, ends: Ms, now: Ms) -> Ms {
        (ends - now).max(Ms(1))
    }
}

impl Algorithm for FixedWindow {
    fn name(&self) -> AlgorithmName {
        AlgorithmName::FixedWindow
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn period(&self) -> Ms {
        self.period
    }

    fn burst(&self) -> u64 {
        self.requests
    }

    fn below_a_cost(&self) -> &'static str {
        "is a window with fewer requests than a class that meets it costs"
    }

    fn unfit_for(&self, mode: ModeName) -> Option<Unfit> {
        (mode == ModeName::Lease && self.requests < LENDABLE).then_some(Unfit {
            wrong: "has 1 request in a window, which cannot be lent",
            wanted: "raise it to at least 2, or write mode: exact",
        })
    }

    /// Where that rounds up, windows are as much longer.
    fn share(&self, proxies: u64, largest_cost: u64) -> Limit {
        let requests = self.requests.checked_div(proxies).unwrap_or(self.requests).max(1).max(largest_cost);
        let all = requests.saturating_mul(proxies);
        let periods = all.div_ceil(self.requests.max(1)).max(1);
        Limit::FixedWindow(FixedWindow { requests, period: self.period.times(periods), ..*self })
    }

    fn window_offset(&self, key: &str) -> Option<Ms> {
        Some(self.offset(key))
    }

    fn units_of_a_token(&self) -> u64 {
        1
    }

    fn full(&self) -> u64 {
        self.requests
    }

    /// The whole of its window.
    fn is_told_by(&self, used: Used, now: Ms) -> bool {
        used.at - self.period <= now
    }

    /// Nothing comes back until the window is over, and no lease outlives it. One that ends later than any may was told by
    /// a clock that has been set.
    fn refilled(&self, used: Used, now: Ms, _lent: u64) -> Used {
        if now < used.at {
            let clock_was_set = used.at - now > self.period + CLOCKS_DIFFER;
            return if clock_was_set { Used { at: now + self.period, ..used } } else { used };
        }
        let into = (now - used.at).0.checked_rem(self.period.0).unwrap_or_default();
        Used { units: 0, at: now + (self.period - Ms(into)) }
    }

    /// Leases end with their window.
    fn with_lent(&self, used: Used, lent: u64, then: Ms) -> Used {
        let later = self.refilled(used, then, 0);
        if self.is_over(used, then) { later } else { Used { units: later.units.max(lent), ..later } }
    }

    fn is_over(&self, used: Used, now: Ms) -> bool {
        used.at <= now
    }

    fn time_to(&self, used: Used, wanted: i64, now: Ms) -> Ms {
        let level = signed(self.requests).saturating_sub_unsigned(used.units);
        if level >= wanted { Ms(0) } else { self.left(used.at, now) }
    }

    /// When the window is over, whatever is left in it.
    fn reset(&self, used: Used, now: Ms) -> Ms {
        self.left(used.at, now)
    }

    fn full_at(&self, used: Used) -> Ms {
        used.at
    }

    fn next_token(&self, told: Standing) -> Option<Ms> {
        (told.remaining < self.requests).then_some(told.reset)
    }

    fn small_lease(&self) -> u64 {
        (self.requests / 64).clamp(3, 64)
    }

    /// What is left of it would be lost to the others for the rest of the window, which may be days.
    fn small_lease_stays(&self, life: Ms) -> Option<Ms> {
        Some(life)
    }

    fn least_lease(&self) -> u64 {
        (self.requests / 256).clamp(1, 4)
    }

    /// A quarter of the window.
    fn pace(&self) -> Ms {
        Ms(self.period.0 / 4).clamp(SHORTEST_PACE, Ms(1000))
    }

    /// While it has less than what a window has for one pace.
    fn scarce_for(&self, level: i64) -> Option<Ms> {
        let for_a_pace = self.requests.saturating_mul(self.pace().0).checked_div(self.period.0).unwrap_or_default();
        (self.requests >= LENT_FREELY_FROM && level < signed(for_a_pace)).then(|| self.pace())
    }

    fn script(&self) -> &'static Script {
        &FIXED_WINDOW
    }

    fn arguments(&self, key: &str) -> [u64; 3] {
        [self.requests, self.period.0, self.offset(key).0]
    }

    fn window_left(&self, level: i64, reset: Ms) -> Result<Ms, Impossible> {
        let is_counted = signed(self.requests).saturating_sub(level) < signed(EXACT_IN_A_DOUBLE);
        if is_counted && reset > Ms(0) && reset <= self.period { Ok(reset) } else { Err(Impossible) }
    }

    /// A reply takes time: so the window ends no later, and nothing comes back too early.
    fn told(&self, acquired: &Acquired, _sent: Ms, heard: Ms) -> Used {
        let units = signed(self.requests).saturating_sub(acquired.level);
        Used { units: u64::try_from(units).unwrap_or_default(), at: heard + acquired.window_left }
    }
}
