//! A call: what a proxy asks of a bucket, and what the bucket answers. All algorithms are asked and answer alike.

use super::used::{capacity, units};
use super::{Limit, Share, Terms, Used, signed};
use crate::clock::Ms;

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
    /// What is left of the window, when the bucket answered; nothing where the algorithm has none.
    pub window_left: Ms,
}

impl Acquired {
    /// How much of the bucket is used, where it was asked and answered between these moments.
    pub fn used(&self, limit: Limit, sent: Ms, heard: Ms) -> Used {
        limit.by(|algorithm| algorithm.told(self, sent, heard))
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

impl Acquire {
    /// What the script is handed, in order: the limit, the terms, the lease, the call's number, and those who wait.
    pub fn arguments(&self, key: &str) -> impl Iterator<Item = u64> {
        let terms = [self.terms.life.0, self.terms.lent_freely(self.limit)];
        let Offer { want, end, size, carry, debt } = self.offer;
        let lease = [want, end, size, carry, u64::from(self.hold), debt, self.number];
        let runs = self.runs.iter().flat_map(|run| [run.cost, run.count]);
        self.limit.by(|algorithm| algorithm.arguments(key)).into_iter().chain(terms).chain(lease).chain(runs)
    }
}

/// A reply whose numbers cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl Acquired {
    /// Reads the reply of a script after its number: level, reset in ms, the lease (end, valid in ms, kept, extra, limited),
    /// and for each run how many were granted.
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
        let (mut taken, mut all) = (0_u64, true);
        for (count, run) in granted.iter().zip(&asked.runs) {
            if *count > run.count {
                return Err(Impossible);
            }
            taken = taken.saturating_add(run.cost.checked_mul(*count).ok_or(Impossible)?);
            all = all && *count == run.count;
        }
        let held = if asked.hold { taken } else { 0 };
        let lent = Lent { end: *end, valid: Ms(*valid), kept: *kept, extra: *extra, held, limited: *limited == 1 };
        let offer = asked.offer;
        let lends_what_it_may = *kept <= offer.carry.min(offer.want)
            && kept.saturating_add(*extra) <= offer.want.max(*kept)
            && (*extra == 0 || (all && *level >= 0));
        let is_lease = (*end > 0, *valid > 0) == (lent.size() > 0, lent.size() > 0);
        let window_left = asked.limit.by(|algorithm| algorithm.window_left(*level, Ms(*reset)))?;
        // No lease outlives its window.
        let ends_in_time = window_left == Ms(0) || lent.valid <= window_left;
        let acquired = Acquired { level: *level, lent, granted: granted.to_vec(), window_left };
        let is_true = lends_what_it_may && is_lease && ends_in_time && acquired.grants_whoever_fits(asked);
        if is_true { Ok(acquired) } else { Err(Impossible) }
    }

    /// Whether each run was granted what there was, in order, and no more was there than a full bucket.
    fn grants_whoever_fits(&self, asked: &Acquire) -> bool {
        let units = |tokens| signed(units(asked.limit, tokens));
        // From the last run back to the first: the level before each.
        let mut before = self.level.saturating_add(units(self.lent.extra));
        for (count, run) in self.granted.iter().zip(&asked.runs).rev() {
            let passed_over = *count < run.count && before >= units(run.cost);
            if passed_over || (*count > 0 && before < 0) {
                return false;
            }
            before = before.saturating_add(units(run.cost.saturating_mul(*count)));
        }
        before <= capacity(asked.limit)
    }

    /// What each request of the group gets, in order: one share for each of them.
    ///
    /// Those granted see the bucket, with what was lent to their proxy, as their own debit left it, those refused see it as
    /// the group left it.
    pub fn shares(&self, limit: Limit, runs: &[Run]) -> Vec<Share> {
        let units = |tokens| signed(units(limit, tokens));
        let grants = || runs.iter().zip(&self.granted);
        let lent = self.lent.kept.saturating_add(self.lent.extra);
        let mut level = grants().fold(self.level.saturating_add(units(lent)), |level, (run, granted)| {
            level.saturating_add(units(run.cost.saturating_mul(*granted)))
        });
        // As of the moment of the answer.
        let now = Ms(0);
        let last = self.used(limit, now, now);
        let mut shares = Vec::new();
        for (run, granted) in grants() {
            for _ in 0..*granted {
                level = level.saturating_sub(units(run.cost));
                // A lease of a time in which the burst was larger may be more than it.
                let left = last.at_level(limit, level.min(capacity(limit)));
                shares.push(Share::Granted(left.standing(limit, now)));
            }
            for _ in *granted..run.count {
                let retry_after = limit.by(|algorithm| algorithm.time_to(last, units(run.cost), now)).max(Ms(1));
                shares.push(Share::Refused { standing: last.standing(limit, now), retry_after });
            }
        }
        shares
    }
}

impl Lent {
    /// How many tokens it has, which is what it is counted with.
    pub fn size(&self) -> u64 {
        self.kept.saturating_add(self.extra).saturating_add(self.held)
    }
}
