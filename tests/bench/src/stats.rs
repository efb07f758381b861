//! Medians and their intervals.

use std::fmt;

/// A median of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    pub value: f64,
    /// Between these two it lies with 95 % at least, whatever the distribution; with fewer than 6 rounds, what there was.
    pub low: f64,
    pub high: f64,
}

impl Median {
    /// By order statistics: a round is below the true median as often as a coin falls on one side.
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Median {
        let mut sorted: Vec<f64> = rounds.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        if n == 0 {
            return Median { value: f64::NAN, low: f64::NAN, high: f64::NAN };
        }
        let (mut outside, mut ways, mut cut) = (0.0, 1.0, 0);
        while cut + 1 < n / 2 {
            outside += 2.0 * ways / 2f64.powi(n as i32);
            if outside > 0.05 {
                break;
            }
            cut += 1;
            ways = ways * (n - cut + 1) as f64 / cut as f64;
        }
        // With `cut` the k-th from below and from above leave at most 5 % outside.
        let cut = cut.saturating_sub(1);
        Median { value: percentile(&sorted, 0.5), low: sorted[cut], high: sorted[n - 1 - cut] }
    }

    /// Whether the interval of a difference says anything: that there is one, or that it is less than what it is added to.
    pub fn says_something(&self, base: f64) -> bool {
        self.low > 0.0 || self.high < 0.0 || self.high - self.low < base
    }
}

/// `0.21 [0.19, 0.24]`; the digits are those of the format.
impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Median { value, low, high } = self;
        write!(f, "{value:.digits$} [{low:.digits$}, {high:.digits$}]")
    }
}

/// Of sorted values; between two of them where it falls there.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = part * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::Median;

    fn interval(n: u32) -> (f64, f64) {
        let median = Median::of((1..=n).map(f64::from));
        assert_eq!(median.value, f64::from(n + 1) / 2.0);
        (median.low, median.high)
    }

    /// The ranks of the tables of the sign test.
    #[test]
    fn the_interval_holds_the_median_with_95_per_cent() {
        assert_eq!(interval(3), (1.0, 3.0));
        assert_eq!(interval(7), (1.0, 7.0));
        assert_eq!(interval(8), (1.0, 8.0));
        assert_eq!(interval(9), (2.0, 8.0));
        assert_eq!(interval(11), (2.0, 10.0));
        assert_eq!(interval(12), (3.0, 10.0));
        assert_eq!(interval(20), (6.0, 15.0));
    }
}
