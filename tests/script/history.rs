//! Random histories of one bucket, out of one seed and drawn to where arithmetic breaks: the next token, the full
//! bucket, the expiry, 2^53.

use super::oracle::{Answer, Bucket, EXACT, Limit, Run};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// No single step is longer, so that clocks stay far below 2^53.
pub const YEAR_MS: u64 = 365 * DAY_MS;

/// No call of ours has more.
const MOST_RUNS: u64 = 128;

/// What is served at most one by one where a run asks for a huge number of requests.
const ONE_BY_ONE: u64 = 64;

/// One call, and what the oracle answers.
#[derive(Clone, Debug)]
pub struct Step {
    pub limit: Limit,
    /// Redis has no such key: this is the first call, or the key has expired.
    pub missing: bool,
    pub clock: u64,
    pub runs: Vec<Run>,
    pub answer: Answer,
}

/// Up to `length` calls at one key, from a full bucket on.
pub fn history(random: &mut Random, length: u64) -> Vec<Step> {
    let mut limit = limit(random);
    let mut clock = clock(random);
    let mut bucket = Bucket::full(limit, clock);
    let mut steps: Vec<Step> = Vec::new();
    let limits_change = random.one_in(3);
    for _ in 0..random.within(1, length) {
        if limits_change && random.one_in(20) {
            limit = changed(random, limit);
        }
        clock = next_clock(random, limit, bucket, clock);
        let last = steps.last();
        let may_be_missing = last.is_none_or(|last| last.expires() <= clock.into());
        let missing = may_be_missing && (last.is_none() || random.one_in(2));
        if missing {
            if last.is_some_and(|last| last.limit == limit) {
                let kept = bucket.refilled(limit, clock).level;
                assert_eq!(kept, limit.capacity(), "a key expired before it was full");
            }
            bucket = Bucket::full(limit, clock);
        }
        let runs = runs(random, limit, bucket);
        let answer = bucket.serve(limit, clock, &runs);
        steps.push(Step { limit, missing, clock, runs, answer });
    }
    steps
}

impl Step {
    /// The moment at which Redis drops what this call has written.
    fn expires(&self) -> u128 {
        u128::from(self.clock) + self.answer.expiry_ms
    }

    /// The units that this call was granted.
    pub fn granted(&self) -> u128 {
        let granted = self.runs.iter().zip(&self.answer.granted);
        granted.map(|(run, &count)| self.limit.units(run.cost) * u128::from(count)).sum()
    }
}

/// What the histories met, so that a generator that has become tame fails the test.
#[derive(Debug, Default)]
pub struct Met {
    steps: usize,
    granted: usize,
    calls_that_refuse: usize,
    runs_cut: usize,
    levels_over_2_52: usize,
    levels_just_under_2_53: usize,
    clocks_back: usize,
    limits_changed: usize,
    keys_missing: usize,
}

impl Met {
    pub fn note(&mut self, steps: &[Step]) {
        self.steps += steps.len();
        for step in steps {
            let counts = || step.answer.granted.iter().zip(&step.runs);
            self.granted += counts().filter(|(granted, _)| **granted > 0).count();
            self.calls_that_refuse += usize::from(counts().any(|(&granted, run)| granted < run.count));
            self.runs_cut += counts().filter(|&(&granted, run)| 0 < granted && granted < run.count).count();
            self.levels_over_2_52 += usize::from(step.answer.level > EXACT / 2);
            self.levels_just_under_2_53 += usize::from(step.answer.level > EXACT - EXACT / 1000);
            self.keys_missing += usize::from(step.missing);
        }
        for pair in steps.windows(2) {
            self.clocks_back += usize::from(pair[1].clock < pair[0].clock);
            self.limits_changed += usize::from(pair[1].limit != pair[0].limit);
        }
    }

    pub fn assert_wild(&self) {
        println!("{self:?}");
        let rows = [
            (self.steps, 100_000),
            (self.granted, 50_000),
            (self.calls_that_refuse, 30_000),
            (self.runs_cut, 10_000),
            (self.levels_over_2_52, 2_000),
            (self.levels_just_under_2_53, 500),
            (self.clocks_back, 5_000),
            (self.limits_changed, 500),
            (self.keys_missing, 3_000),
        ];
        for (found, wanted) in rows {
            assert!(found >= wanted, "{found} is less than {wanted} in {self:?}");
        }
    }
}

/// Splitmix64.
pub struct Random(u64);

impl Random {
    /// One of many that have nothing in common.
    pub fn new(seed: u64, number: u64) -> Random {
        Random(Random(seed).next() ^ number)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// `first` to `last`.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// 1 to `last`, each order of magnitude as likely as the others.
    pub fn of_any_size(&mut self, last: u64) -> u64 {
        let bits = self.within(1, u64::from(last.ilog2()) + 1);
        self.within(1, last.min((1 << bits) - 1))
    }

    /// `middle` or one beside it, and no more than a year.
    fn around(&mut self, middle: u128) -> i64 {
        let middle = middle.min(u128::from(YEAR_MS)) as i64;
        middle + self.below(3) as i64 - 1
    }
}

pub fn limit(random: &mut Random) -> Limit {
    let below_exact = (EXACT - 1) as u64;
    let second_to_month = [1000, 60_000, HOUR_MS, DAY_MS, 31 * DAY_MS];
    let period_ms = second_to_month[random.below(5) as usize];
    match random.below(5) {
        0 => Limit { requests: random.within(1, 3), period_ms: 1000, burst: random.within(1, 3) },
        1 => {
            let requests = random.within(1, 10_000);
            let burst = random.within(1, 2 * requests);
            Limit { requests, period_ms, burst }
        }
        // Whole seconds are what a policy allows; the script has to be exact for every period.
        2 | 3 => {
            let any_period = random.of_any_size(31 * DAY_MS);
            let period_ms = if random.one_in(2) { any_period } else { period_ms };
            let burst = below_exact / period_ms;
            Limit { requests: requests(random, burst), period_ms, burst: burst - random.below(3.min(burst)) }
        }
        _ => {
            let period_ms = random.of_any_size(31 * DAY_MS);
            let burst = random.of_any_size(below_exact / period_ms);
            Limit { requests: requests(random, burst), period_ms, burst }
        }
    }
}

/// Another limit with the same period, which is the unit of what is stored.
fn changed(random: &mut Random, limit: Limit) -> Limit {
    let most = (EXACT - 1) as u64 / limit.period_ms;
    let burst = match random.below(4) {
        0 => limit.burst,
        1 => random.within(1, limit.burst),
        2 => limit.burst.saturating_mul(2).min(most),
        _ => random.of_any_size(most),
    };
    let requests = if random.one_in(2) { limit.requests } else { requests(random, burst) };
    Limit { requests, burst, ..limit }
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

/// A realistic moment to begin at.
pub fn clock(random: &mut Random) -> u64 {
    1_700_000_000_000 + random.below(100 * DAY_MS)
}

/// The clock at the next call.
fn next_clock(random: &mut Random, limit: Limit, bucket: Bucket, clock: u64) -> u64 {
    let to_full = limit.wait(limit.capacity().saturating_sub(bucket.level));
    let passed = match random.below(12) {
        0..3 => 0,
        3 => 1,
        4..6 => {
            let wanted = limit.units(cost(random, limit, bucket));
            let to_fit = limit.wait(wanted.saturating_sub(bucket.level));
            random.around(to_fit)
        }
        6 => random.around(to_full),
        7 => random.around(to_full + 1000),
        8 => random.below(60_000) as i64,
        9 => random.below(2 * DAY_MS) as i64,
        10 => -(random.of_any_size(HOUR_MS) as i64),
        // Where the clock went back before: to around the latest moment that the bucket knows.
        _ => random.around(u128::from(bucket.time.saturating_sub(clock))),
    };
    clock.saturating_add_signed(passed)
}

fn runs(random: &mut Random, limit: Limit, bucket: Bucket) -> Vec<Run> {
    let usual = [0, 1, 1, 1, 2, 2, 3, 5][random.below(8) as usize];
    let length = if random.one_in(100) { MOST_RUNS } else { usual };
    let run = |_| {
        let cost = cost(random, limit, bucket);
        let count = match random.below(6) {
            0 => random.below(3),
            1 | 2 => 1,
            3 => random.within(2, 5),
            4 => random.within(6, 40),
            _ if cost >= limit.burst / ONE_BY_ONE => random.of_any_size(1 << 53),
            _ => ONE_BY_ONE,
        };
        Run { cost, count }
    };
    (0..length).map(run).collect()
}

/// 1 to the burst.
fn cost(random: &mut Random, limit: Limit, bucket: Bucket) -> u64 {
    let held = (bucket.level / u128::from(limit.period_ms)) as u64;
    let cost = match random.below(8) {
        0 => 1,
        1 => random.within(1, 10),
        2 => random.of_any_size(limit.burst),
        3 | 4 => random.within(1, limit.burst),
        5 => limit.burst,
        6 => limit.burst / random.within(2, ONE_BY_ONE),
        _ => (held + random.below(3)).saturating_sub(1),
    };
    cost.clamp(1, limit.burst)
}
