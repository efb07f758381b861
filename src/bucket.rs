//! The numbers of a token bucket: what a group of requests asks of it, and what its answer means for each of them.
//!
//! A level counts units of 1/period_ms of a token: each millisecond adds `requests` units, and a token is `period_ms`
//! units, so nothing is ever rounded. The bucket itself lives in Redis (`lua/token_bucket.lua`).

use crate::clock::Ms;
use crate::policy::Limit;

/// Requests in a row that cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Tokens for each, at least 1.
    pub cost: u64,
    /// How many of them, at least 1.
    pub count: u64,
}

/// Codes costs, in order, as runs.
pub fn runs(costs: impl IntoIterator<Item = u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for cost in costs {
        match runs.last_mut() {
            Some(run) if run.cost == cost => run.count = run.count.saturating_add(1),
            _ => runs.push(Run { cost, count: 1 }),
        }
    }
    runs
}

/// What the bucket says to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// The level after the last of them, in units.
    pub level: u64,
    /// How many of each run were granted: its first ones.
    pub granted: Vec<u64>,
}

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

/// How much was in a bucket, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// In units of the limit.
    pub units: u64,
    /// By the clock of whoever keeps it.
    pub at: Ms,
}

/// Clocks of the workers of one proxy differ by less than this: each counts time from its own readings.
const CLOCKS_DIFFER: Ms = Ms(1000);

impl Level {
    /// A full bucket.
    pub fn full(limit: Limit, now: Ms) -> Level {
        Level { units: units(limit, limit.burst()), at: now }
    }

    /// The same bucket now. A clock that went back adds nothing; one that went back by more than the time to full, and
    /// by more than the clocks of workers differ, was set, and the bucket goes on from there, so that nobody is locked
    /// out for longer than that.
    pub fn refilled(self, limit: Limit, now: Ms) -> Level {
        let capacity = units(limit, limit.burst());
        let clock_was_set = self.at - now > time_to(limit, 0, capacity).max(CLOCKS_DIFFER);
        let grown = limit.requests().saturating_mul((now - self.at).0);
        let at = if clock_was_set { now } else { self.at.max(now) };
        Level { units: self.units.saturating_add(grown).min(capacity), at }
    }

    /// Takes the cost of one request, or nothing.
    pub fn take(&mut self, limit: Limit, now: Ms, cost: u64) -> Share {
        *self = self.refilled(limit, now);
        let share = self.share_of(limit, cost);
        if let Share::Granted(_) = share {
            self.units = self.units.saturating_sub(units(limit, cost));
        }
        share
    }

    /// What one request would get of this bucket as it is.
    pub fn share_of(self, limit: Limit, cost: u64) -> Share {
        match self.units.checked_sub(units(limit, cost)) {
            Some(rest) => Share::Granted(standing(limit, rest)),
            None => Share::Refused {
                standing: standing(limit, self.units),
                retry_after: time_to(limit, self.units, units(limit, cost)).max(Ms(1)),
            },
        }
    }

    /// When the bucket will be full.
    pub fn full_at(self, limit: Limit) -> Ms {
        self.at + time_to_full(limit, self.units)
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

/// A reply whose numbers cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl Grants {
    /// Reads the reply of the script: level, reset in ms, and for each run how many were granted.
    ///
    /// # Errors
    /// [`Impossible`] where the numbers do not fit the question. The reset is checked against the level, for they are
    /// computed in two languages.
    pub fn from_reply(reply: &[i64], limit: Limit, runs: &[Run]) -> Result<Grants, Impossible> {
        let [level, reset, granted @ ..] = reply else {
            return Err(Impossible);
        };
        let level = u64::try_from(*level).map_err(|_| Impossible)?;
        let granted: Vec<u64> =
            granted.iter().map(|count| u64::try_from(*count)).collect::<Result<_, _>>().map_err(|_| Impossible)?;
        if granted.len() != runs.len() {
            return Err(Impossible);
        }
        // From the last run back to the first: the level before each.
        let mut before = level;
        for (count, run) in granted.iter().zip(runs).rev() {
            let cost = units(limit, run.cost);
            // Whoever fits is granted.
            let passed_over = *count < run.count && before >= cost;
            if *count > run.count || passed_over {
                return Err(Impossible);
            }
            before = cost.checked_mul(*count).and_then(|units| before.checked_add(units)).ok_or(Impossible)?;
        }
        let fits = before <= units(limit, limit.burst()) && Ok(time_to_full(limit, level).0) == u64::try_from(*reset);
        if !fits {
            return Err(Impossible);
        }
        Ok(Grants { level, granted })
    }

    /// What each request of the group gets, in order: one share for each of them.
    ///
    /// Those granted see the bucket as their own debit left it, those refused as the group left it.
    pub fn shares(&self, limit: Limit, runs: &[Run]) -> Vec<Share> {
        let grants = || runs.iter().zip(&self.granted);
        let mut level = grants().fold(self.level, |level, (run, granted)| {
            level.saturating_add(units(limit, run.cost).saturating_mul(*granted))
        });
        let mut shares = Vec::new();
        for (run, granted) in grants() {
            for _ in 0..*granted {
                level = level.saturating_sub(units(limit, run.cost));
                shares.push(Share::Granted(standing(limit, level)));
            }
            for _ in *granted..run.count {
                shares.push(Share::Refused {
                    standing: standing(limit, self.level),
                    retry_after: time_to(limit, self.level, units(limit, run.cost)).max(Ms(1)),
                });
            }
        }
        shares
    }
}

/// How many units so many tokens are.
fn units(limit: Limit, tokens: u64) -> u64 {
    tokens.saturating_mul(limit.period().0)
}

fn standing(limit: Limit, level: u64) -> Standing {
    Standing { remaining: level.checked_div(limit.period().0).unwrap_or_default(), reset: time_to_full(limit, level) }
}

fn time_to_full(limit: Limit, level: u64) -> Ms {
    time_to(limit, level, units(limit, limit.burst()))
}

/// The first whole millisecond at which a level has risen to another.
fn time_to(limit: Limit, level: u64, wanted: u64) -> Ms {
    Ms(wanted
        .saturating_sub(level)
        .checked_add(limit.requests().saturating_sub(1))
        .and_then(|units| units.checked_div(limit.requests()))
        .unwrap_or(u64::MAX))
}
