//! The numbers of a token bucket: what a proxy asks of it, and what its answer means for each request that waits.
//!
//! What is kept of a bucket is what was used of it, in units of 1/period_ms of a token: each millisecond brings back
//! `requests` units, and a token is `period_ms` units, so nothing is ever rounded. Its level is the burst of whoever asks,
//! less that; so another tier or another limit finds what was used and loses nothing. The bucket itself lives in Redis
//! (`lua/token_bucket.lua`).

use crate::clock::Ms;
use crate::policy::{EXACT_IN_A_DOUBLE, Limit, Terms};

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

/// What a proxy asks of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The bucket's limit.
    pub limit: Limit,
    /// On which terms it lends.
    pub terms: Terms,
    /// The proxy's lease and its wishes; nothing where it only asks for those who wait.
    pub offer: Offer,
    /// What is granted to those who wait is lent as well, and so is counted until it is spent.
    pub hold: bool,
    /// Those who wait, in order.
    pub runs: Vec<Run>,
    /// Which call this is: below 2^53, and hardly another call's of any proxy. A reply that does not say it again is not
    /// this call's.
    pub number: u64,
}

/// The proxy's side of a lease: what it hands back, and what it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// How many tokens it wants to hold.
    pub want: u64,
    /// The id of its lease; 0 where it has none.
    pub end: u64,
    /// What that lease is counted with.
    pub size: u64,
    /// What of it is unspent.
    pub carry: u64,
    /// What it has spent without asking.
    pub debt: u64,
}

/// What a bucket answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// The level after all of it, in units; negative where the burst was lowered, or was spent without asking.
    pub level: i64,
    /// The lease.
    pub lent: Lent,
    /// How many of each run were granted: its first ones.
    pub granted: Vec<u64>,
}

impl Acquired {
    /// How much of the bucket is used, as of this moment.
    pub fn used(&self, limit: Limit, at: Ms) -> Used {
        Used { units: u64::try_from(capacity(limit).saturating_sub(self.level)).unwrap_or_default(), at }
    }
}

/// A lease as the bucket gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Its id; 0 where nothing is lent.
    pub end: u64,
    /// How long it may be spent, from when the bucket answered.
    pub valid: Ms,
    /// What it carries on from the lease before.
    pub kept: u64,
    /// What is new.
    pub extra: u64,
    /// What was granted to those who wait, where that is held.
    pub held: u64,
    /// The bucket is scarce, and gave less than was wanted.
    pub limited: bool,
}

impl Lent {
    /// How many tokens it has.
    pub fn tokens(self) -> u64 {
        self.kept.saturating_add(self.extra).saturating_add(self.held)
    }
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

/// Clocks of the workers of one proxy differ by less than this: each counts time from its own readings.
const CLOCKS_DIFFER: Ms = Ms(1000);

impl Used {
    /// A full bucket.
    pub fn nothing(now: Ms) -> Used {
        Used { units: 0, at: now }
    }

    /// A bucket of this limit with nothing in it.
    pub fn all(limit: Limit, now: Ms) -> Used {
        Used { units: units(limit, limit.burst()), at: now }
    }

    /// What is left of a full bucket of this limit: negative where more was used.
    pub fn level(self, limit: Limit) -> i64 {
        capacity(limit).saturating_sub_unsigned(self.units)
    }

    /// The same bucket now. A clock that went back adds nothing; one that went back by more than the time to full, and
    /// by more than the clocks of workers differ, was set, and the bucket goes on from there, so that nobody is locked
    /// out for longer than that.
    pub fn refilled(self, limit: Limit, now: Ms) -> Used {
        self.refilled_down_to(limit, now, 0)
    }

    /// The same, but so many tokens do not come back meanwhile: they are lent.
    pub fn refilled_down_to(self, limit: Limit, now: Ms, lent: u64) -> Used {
        let clock_was_set = self.at - now > time_to(limit, 0, capacity(limit)).max(CLOCKS_DIFFER);
        let back = limit.requests().saturating_mul((now - self.at).0);
        let at = if clock_was_set { now } else { self.at.max(now) };
        Used { units: self.units.saturating_sub(back).max(self.units.min(units(limit, lent))), at }
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
        let level = self.level(limit);
        let rest = level.saturating_sub(signed(units(limit, cost)));
        if rest >= 0 { Share::Granted(standing(limit, rest)) } else { refused(limit, level, cost) }
    }

    /// How it stands.
    pub fn standing(self, limit: Limit) -> Standing {
        standing(limit, self.level(limit))
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
        let retry_after = time_to(limit, level, wanted).max(at_least).max(Ms(1));
        Share::Refused { standing: standing(limit, below), retry_after }
    }

    /// Whether it is full to the half at most.
    pub fn is_low(self, limit: Limit) -> bool {
        self.level(limit) <= capacity(limit) / 2
    }

    /// When the bucket will be full.
    pub fn full_at(self, limit: Limit) -> Ms {
        self.at + time_to_full(limit, self.level(limit))
    }
}

/// A reply whose numbers cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl Acquired {
    /// Reads the reply of the script after its number: level, reset in ms, the lease (end, valid in ms, kept, extra, limited), and for
    /// each run how many were granted.
    ///
    /// # Errors
    /// [`Impossible`] where the numbers do not fit the question, or more was used than the script can count. The reset is
    /// checked against the level, for they are computed in two languages.
    pub fn from_reply(reply: &[i64], asked: &Acquire) -> Result<Acquired, Impossible> {
        let [level, rest @ ..] = reply else {
            return Err(Impossible);
        };
        let rest: Vec<u64> =
            rest.iter().map(|number| u64::try_from(*number)).collect::<Result<_, _>>().map_err(|_| Impossible)?;
        let [reset, end, valid, kept, extra, limited, granted @ ..] = rest.as_slice() else {
            return Err(Impossible);
        };
        if granted.len() != asked.runs.len() || *limited > 1 {
            return Err(Impossible);
        }
        let (limit, offer) = (asked.limit, asked.offer);
        // From the last run back to the first: the level before each.
        let mut before = level.saturating_add(signed(units(limit, *extra)));
        let (mut taken, mut all) = (0_u64, true);
        for (count, run) in granted.iter().zip(&asked.runs).rev() {
            let cost = signed(units(limit, run.cost));
            // Whoever fits is granted.
            let passed_over = *count < run.count && before >= cost;
            if *count > run.count || passed_over || (*count > 0 && before < 0) {
                return Err(Impossible);
            }
            let tokens = run.cost.checked_mul(*count).ok_or(Impossible)?;
            before = before.saturating_add(signed(units(limit, tokens)));
            taken = taken.saturating_add(tokens);
            all = all && *count == run.count;
        }
        let held = if asked.hold { taken } else { 0 };
        let lent = Lent { end: *end, valid: Ms(*valid), kept: *kept, extra: *extra, held, limited: *limited == 1 };
        let is_counted = capacity(limit).saturating_sub(*level) < signed(EXACT_IN_A_DOUBLE);
        let fits = before <= capacity(limit) && is_counted && time_to_full(limit, *level).0 == *reset;
        let lends_what_it_may = *kept <= offer.carry.min(offer.want)
            && kept.saturating_add(*extra) <= offer.want.max(*kept)
            && (*extra == 0 || (all && *level >= 0));
        let is_lease = (*end > 0, *valid > 0) == (lent.size() > 0, lent.size() > 0);
        if !(fits && lends_what_it_may && is_lease) {
            return Err(Impossible);
        }
        Ok(Acquired { level: *level, lent, granted: granted.to_vec() })
    }

    /// What each request of the group gets, in order: one share for each of them.
    ///
    /// Those granted see the bucket, with what was lent to their proxy, as their own debit left it, those refused see it as
    /// the group left it.
    pub fn shares(&self, limit: Limit, runs: &[Run]) -> Vec<Share> {
        let grants = || runs.iter().zip(&self.granted);
        let here = self.level.saturating_add(signed(units(limit, self.lent.kept.saturating_add(self.lent.extra))));
        let mut level = grants().fold(here, |level, (run, granted)| {
            level.saturating_add(signed(units(limit, run.cost.saturating_mul(*granted))))
        });
        let mut shares = Vec::new();
        for (run, granted) in grants() {
            for _ in 0..*granted {
                level = level.saturating_sub(signed(units(limit, run.cost)));
                // A lease of a time in which the burst was larger may be more than it.
                shares.push(Share::Granted(standing(limit, level.min(capacity(limit)))));
            }
            for _ in *granted..run.count {
                shares.push(refused(limit, self.level, run.cost));
            }
        }
        shares
    }
}

impl Lent {
    /// What the lease is counted with.
    pub fn size(&self) -> u64 {
        self.kept.saturating_add(self.extra).saturating_add(self.held)
    }
}

/// How many units so many tokens are.
fn units(limit: Limit, tokens: u64) -> u64 {
    tokens.saturating_mul(limit.period().0)
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// Units in a full bucket.
fn capacity(limit: Limit) -> i64 {
    signed(units(limit, limit.burst()))
}

fn refused(limit: Limit, level: i64, cost: u64) -> Share {
    Share::Refused {
        standing: standing(limit, level),
        retry_after: time_to(limit, level, signed(units(limit, cost))).max(Ms(1)),
    }
}

fn standing(limit: Limit, level: i64) -> Standing {
    let whole = u64::try_from(level).unwrap_or_default().checked_div(limit.period().0);
    Standing { remaining: whole.unwrap_or_default(), reset: time_to_full(limit, level) }
}

fn time_to_full(limit: Limit, level: i64) -> Ms {
    time_to(limit, level, capacity(limit))
}

/// The first whole millisecond at which a level has risen to another.
fn time_to(limit: Limit, level: i64, wanted: i64) -> Ms {
    let missing = u64::try_from(wanted.saturating_sub(level)).unwrap_or_default();
    let rounded_up = missing.saturating_add(limit.requests().saturating_sub(1));
    Ms(rounded_up.checked_div(limit.requests()).unwrap_or(u64::MAX))
}
