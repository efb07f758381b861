//! Random numbers that a seed repeats exactly, for all tests.

use weir::random::{GOLDEN_GAMMA, SplitMix64, mix};

/// Numbers, and what tests make of them.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The numbers of a seed.
    pub fn seeded(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// One stream of numbers among many of the same seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random::seeded(mix(seed.wrapping_add(GOLDEN_GAMMA)) ^ mix(stream.wrapping_mul(GOLDEN_GAMMA)))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 0 to `end`, without `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    /// `first` to `last`.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// 1 to `last`, each order of magnitude as likely as the others.
    pub fn of_any_size(&mut self, last: u64) -> u64 {
        let bits = self.within(1, u64::from(last.ilog2()) + 1);
        self.within(1, last.min((1 << bits) - 1))
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// True with a probability of so many thousandths.
    pub fn thousandths(&mut self, of: u64) -> bool {
        self.below(1000) < of
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn bytes(&mut self, at_most: u64) -> Vec<u8> {
        (0..self.below(at_most + 1)).map(|_| self.draw() as u8).collect()
    }

    /// Pieces joined at random: nearer to what parsers take than bytes at random are.
    pub fn joined(&mut self, pieces: &[&str], at_most: u64) -> String {
        (0..self.below(at_most + 1)).map(|_| self.pick(pieces)).collect()
    }
}
