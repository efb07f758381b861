//! Random numbers out of one seed.

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

    /// `middle` or one beside it, and no more than `most`.
    pub fn around(&mut self, middle: u128, most: u64) -> i64 {
        let middle = middle.min(u128::from(most)) as i64;
        middle + self.below(3) as i64 - 1
    }
}
