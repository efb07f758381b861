//! Clocks that are wrong. True time is in microseconds since the start of a run.

/// Where every clock stands at the start, in ms since 1970.
pub const START: u64 = 1_700_000_000_000;

/// A clock that drifts and that somebody sets.
#[derive(Clone, Debug)]
pub struct WrongClock {
    /// True time of the last change, and what the clock said then.
    anchor: (u64, u64),
    /// Millionths that it runs too fast.
    drift: i64,
}

impl WrongClock {
    pub fn new(offset_ms: i64, drift: i64) -> WrongClock {
        WrongClock { anchor: (0, START.saturating_add_signed(offset_ms) * 1000), drift }
    }

    fn micros(&self, now: u64) -> u64 {
        let passed = now - self.anchor.0;
        let drifted = i128::from(passed) * i128::from(self.drift) / 1_000_000;
        (self.anchor.1 + passed).saturating_add_signed(drifted as i64)
    }

    /// What the clock says, in ms.
    pub fn ms(&self, now: u64) -> u64 {
        self.micros(now) / 1000
    }

    /// True time until this clock shows at least `ms`.
    pub fn until(&self, now: u64, ms: u64) -> u64 {
        let missing = (ms * 1000).saturating_sub(self.micros(now));
        (i128::from(missing) * 1_000_000 / (1_000_000 + i128::from(self.drift))) as u64 + 1
    }

    pub fn set(&mut self, now: u64, by_ms: i64) {
        self.anchor = (now, self.micros(now).saturating_add_signed(by_ms * 1000));
    }

    pub fn drift(&mut self, now: u64, drift: i64) {
        self.anchor = (now, self.micros(now));
        self.drift = drift;
    }
}
