//! A limit: so many requests per period, and at most so many at once; and the durations of a policy.

use crate::clock::Ms;

/// Levels of a bucket are integers that have to be exact in a double too, since scripts have nothing else.
pub const EXACT_IN_A_DOUBLE: u64 = 1 << 53;

/// The longest period: 31 days.
const MAX_PERIOD_S: u64 = 31 * 24 * 60 * 60;

/// A token bucket's limit. Valid by construction: nothing is zero and every level is exact in a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    requests: u64,
    period: Ms,
    burst: u64,
}

/// Why numbers are no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLimit {
    /// `requests` or `burst` is 0: refusing everything is the word `deny`.
    Zero,
    /// The period is not 1s to 31d, or not whole seconds.
    Period,
    /// burst x period in milliseconds, or `requests`, reaches 2^53.
    TooLarge,
}

impl Limit {
    /// `requests` per `period` (whole seconds, 1s to 31d), at most `burst` at once.
    ///
    /// # Errors
    /// See [`NoLimit`].
    pub fn new(requests: u64, period: Ms, burst: u64) -> Result<Limit, NoLimit> {
        let whole_seconds = period.0.is_multiple_of(1000);
        if !whole_seconds || period < Ms(1000) || period > Ms(1000).times(MAX_PERIOD_S) {
            return Err(NoLimit::Period);
        }
        if requests == 0 || burst == 0 {
            return Err(NoLimit::Zero);
        }
        match burst.checked_mul(period.0) {
            Some(capacity) if capacity.max(requests) < EXACT_IN_A_DOUBLE => Ok(Limit { requests, period, burst }),
            _ => Err(NoLimit::TooLarge),
        }
    }

    /// The share of one of so many proxies, as exact as the whole: a token takes as many times as long. Its burst holds
    /// at least one token and the largest cost that meets it, so where that rounds up, the proxies together admit more.
    pub fn share(self, proxies: u64, largest_cost: u64) -> Limit {
        let burst = self.burst.checked_div(proxies).unwrap_or(self.burst).max(1).max(largest_cost);
        Limit { requests: self.requests, period: self.period.times(proxies), burst }
    }

    /// Tokens that come back per period.
    pub fn requests(self) -> u64 {
        self.requests
    }

    /// The period, also the number of units in a token.
    pub fn period(self) -> Ms {
        self.period
    }

    /// Tokens in a full bucket.
    pub fn burst(self) -> u64 {
        self.burst
    }
}

/// Reads `60/m`: requests and a unit (s, m, h, d), the burst being the requests. None where the text is no limit.
pub fn parse(text: &str) -> Option<Result<Limit, NoLimit>> {
    let (requests, unit) = text.split_once('/')?;
    let period = unit_of(unit).filter(|_| unit != "ms")?;
    let requests = digits(requests)?;
    Some(Limit::new(requests, period, requests))
}

/// Reads a duration: one integer and ms, s, m, h or d; saturates. None where the text is no duration.
pub fn duration(text: &str) -> Option<Ms> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number = digits(text.strip_suffix(unit)?)?;
    Some(unit_of(unit)?.times(number))
}

fn unit_of(text: &str) -> Option<Ms> {
    match text {
        "ms" => Some(Ms(1)),
        "s" => Some(Ms(1000)),
        "m" => Some(Ms(60_000)),
        "h" => Some(Ms(3_600_000)),
        "d" => Some(Ms(86_400_000)),
        _ => None,
    }
}

/// An integer without a sign; saturates, so that one beyond counting is told to be too large.
fn digits(text: &str) -> Option<u64> {
    let is_integer = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A duration as policies write it, in the largest unit of which it is a whole number.
pub(super) fn told(duration: Ms) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let whole = units.into_iter().find(|(_, size)| duration.0 > 0 && duration.0.is_multiple_of(*size));
    let (unit, size) = whole.unwrap_or(("ms", 1));
    format!("{}{unit}", duration.0.checked_div(size).unwrap_or_default())
}
