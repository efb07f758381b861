//! Random limits, and what a call says about them.

use weir_sim::random::Random;
use weir_sim::root::{Acquire, EXACT};

pub const HOUR_MS: u64 = 3_600_000;
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// No single step is longer, so that clocks stay far below 2^53.
pub const YEAR_MS: u64 = 365 * DAY_MS;

/// So many requests per period, at most `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub requests: u64,
    pub period_ms: u64,
    pub burst: u64,
}

/// How much of a limit is lent, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub life_ms: u64,
    pub lend: u64,
}

impl Limit {
    /// A call that wants nothing: no lease, no costs.
    pub fn call(self, terms: Terms) -> Acquire {
        let Limit { requests, period_ms, burst } = self;
        let Terms { life_ms, lend } = terms;
        Acquire { requests, period_ms, burst, life_ms, lend, ..Acquire::default() }
    }

    /// A call of a caller that never holds a lease.
    pub fn exact(self) -> Acquire {
        self.call(Terms { life_ms: 300_000, lend: self.burst / 2 })
    }

    pub fn random(random: &mut Random) -> Limit {
        let second_to_month = [1000, 60_000, HOUR_MS, DAY_MS, 31 * DAY_MS];
        let period_ms = second_to_month[random.below(5) as usize];
        match random.below(8) {
            0 => Limit { requests: random.within(1, 3), period_ms: 1000, burst: random.within(1, 3) },
            1..4 => {
                let requests = random.within(1, 10_000);
                let burst = random.within(1, 2 * requests);
                Limit { requests, period_ms, burst }
            }
            4 => Limit { requests: random.within(1, 100), period_ms: 1000, burst: random.within(4, 200) },
            // Whole seconds are what a policy allows; the script has to be exact for every period.
            5 | 6 => {
                let any_period = random.of_any_size(31 * DAY_MS);
                let period_ms = if random.one_in(2) { any_period } else { period_ms };
                let burst = most(period_ms);
                Limit { requests: requests(random, burst), period_ms, burst: burst - random.below(3.min(burst)) }
            }
            _ => {
                let period_ms = random.of_any_size(31 * DAY_MS);
                let burst = random.of_any_size(most(period_ms));
                Limit { requests: requests(random, burst), period_ms, burst }
            }
        }
    }

    /// Another limit with the same period, which is the unit of what is stored.
    pub fn changed(self, random: &mut Random) -> Limit {
        let burst = match random.below(4) {
            0 => self.burst,
            1 => random.within(1, self.burst),
            2 => self.burst.saturating_mul(2).min(most(self.period_ms)),
            _ => random.of_any_size(most(self.period_ms)),
        };
        let requests = if random.one_in(2) { self.requests } else { requests(random, burst) };
        Limit { requests, burst, ..self }
    }
}

impl Terms {
    pub fn random(random: &mut Random, limit: Limit) -> Terms {
        let life_ms = match random.below(4) {
            0 => random.within(1, 3000),
            1 => random.of_any_size(31 * DAY_MS),
            _ => 300_000,
        };
        let lend = match random.below(4) {
            0 => random.within(0, limit.burst),
            _ => limit.burst / 2,
        };
        Terms { life_ms, lend }
    }
}

/// The largest burst of a period: its units are exact as doubles, and its tokens fit into the six bytes of a slot.
fn most(period_ms: u64) -> u64 {
    ((EXACT - 1) as u64 / period_ms).min((1 << 48) - 1)
}

fn requests(random: &mut Random, burst: u64) -> u64 {
    let below_exact = (EXACT - 1) as u64;
    match random.below(5) {
        0 => random.within(1, 3),
        1 => burst,
        2 => burst.saturating_mul(random.within(1, 5)).min(below_exact),
        3 => below_exact - random.below(3),
        _ => random.of_any_size(below_exact),
    }
}
