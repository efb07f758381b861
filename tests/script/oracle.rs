//! A token bucket that is obviously right: whole numbers of 128 bits, and one request at a time.
//!
//! It must not share a shortcut with the script: no clipped times, no division of a level by a cost.

/// Scripts count in doubles, which hold every whole number up to here.
pub const EXACT: u128 = 1 << 53;

/// So many requests per period, at most `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub requests: u64,
    pub period_ms: u64,
    pub burst: u64,
}

/// `count` requests in a row that cost the same.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub cost: u64,
    pub count: u64,
}

/// What a bucket says to one call, and what has to be written with it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub level: u128,
    pub reset_ms: u128,
    pub granted: Vec<u64>,
    pub time: u64,
    pub expiry_ms: u128,
}

#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub level: u128,
    /// The latest moment that the bucket has seen, in ms.
    pub time: u64,
}

impl Limit {
    pub fn capacity(self) -> u128 {
        self.units(self.burst)
    }

    /// A token is `period_ms` units, so that each millisecond adds `requests` of them.
    pub fn units(self, tokens: u64) -> u128 {
        u128::from(tokens) * u128::from(self.period_ms)
    }

    /// The wait in ms until `missing` units have come.
    pub fn wait(self, missing: u128) -> u128 {
        missing.div_ceil(u128::from(self.requests))
    }
}

impl Bucket {
    pub fn full(limit: Limit, time: u64) -> Bucket {
        let level = limit.capacity();
        Bucket { level, time }
    }

    /// A clock that goes back adds nothing.
    pub fn refilled(self, limit: Limit, clock: u64) -> Bucket {
        let time = clock.max(self.time);
        let gained = u128::from(time - self.time) * u128::from(limit.requests);
        let level = limit.capacity().min(self.level + gained);
        Bucket { level, time }
    }

    pub fn serve(&mut self, limit: Limit, clock: u64, runs: &[Run]) -> Answer {
        *self = self.refilled(limit, clock);
        let granted = runs.iter().map(|&run| self.serve_run(limit, run)).collect();
        let reset_ms = limit.wait(limit.capacity() - self.level);
        Answer {
            level: self.level,
            reset_ms,
            granted,
            time: self.time,
            expiry_ms: u128::from(self.time - clock) + reset_ms + 1000,
        }
    }

    fn serve_run(&mut self, limit: Limit, run: Run) -> u64 {
        // All of a run cost the same, so after the first refusal all are refused.
        let granted = (0..run.count).take_while(|_| self.take(limit.units(run.cost)));
        granted.count() as u64
    }

    fn take(&mut self, cost: u128) -> bool {
        let fits = cost <= self.level;
        if fits {
            self.level -= cost;
        }
        fits
    }
}
