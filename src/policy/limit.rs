//! The words for limits and durations.

pub use crate::algorithm::{EXACT_IN_A_DOUBLE, Limit, NoLimit};
use crate::clock::Ms;

/// Reads `60/m`: requests and a unit (s, m, h, d), the burst being the requests. None where the text is no limit.
pub fn parse(text: &str) -> Option<Result<Limit, NoLimit>> {
    let (requests, period) = numbers(text)?;
    Some(Limit::new(requests, period, requests))
}

/// The requests and the period of such a text, whatever counts them.
pub(super) fn numbers(text: &str) -> Option<(u64, Ms)> {
    let (requests, unit) = text.split_once('/')?;
    let period = unit_of(unit).filter(|_| unit != "ms")?;
    Some((digits(requests)?, period))
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
#[inline(never)] // It is small, and so is the module to be.
pub(super) fn told(duration: Ms) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let whole = units.into_iter().find(|(_, size)| duration.0 > 0 && duration.0.is_multiple_of(*size));
    let (unit, size) = whole.unwrap_or(("ms", 1));
    format!("{}{unit}", duration.0.checked_div(size).unwrap_or_default())
}
