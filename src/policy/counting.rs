//! `algorithm`, with its own words: how limits are counted, as their rule says or as they say themselves.

use super::language::ALGORITHMS;
use super::problem::Found;
use super::read::{Fields, Reader};
use super::{AlgorithmName, Limit, NoLimit};
use crate::clock::Ms;

/// How a limit is counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Counting {
    /// None where it could not be read.
    algorithm: Option<AlgorithmName>,
    /// Windows of each key begin at an offset of its own.
    spread: bool,
}

/// What a rule says of its limits.
pub(super) fn of_rule(reader: &mut Reader, fields: &Fields) -> Counting {
    let algorithm = reader.choice(fields, "algorithm", ALGORITHMS);
    let spread = reader.flag(fields, "spread").unwrap_or_default();
    misplaced(reader, fields, algorithm);
    Counting { algorithm, spread }
}

/// The same with what a limit says of itself; None where that could not be read.
pub(super) fn of_limit(reader: &mut Reader, fields: &Fields, rule: Counting) -> Option<Counting> {
    let own = reader.if_written(fields, "algorithm", |reader, fields, word| reader.choice(fields, word, ALGORITHMS));
    let spread = reader.if_written(fields, "spread", Reader::flag);
    let algorithm = own?.or(rule.algorithm);
    misplaced(reader, fields, algorithm);
    Some(Counting { algorithm, spread: spread?.unwrap_or(rule.spread) })
}

/// Notes the words that an algorithm has no use for.
fn misplaced(reader: &mut Reader, fields: &Fields, algorithm: Option<AlgorithmName>) {
    let (word, wrong, wanted) = match algorithm {
        Some(AlgorithmName::TokenBucket) => {
            ("spread", "has no meaning with algorithm: token_bucket", "leave it out, or write algorithm: fixed_window")
        }
        Some(AlgorithmName::FixedWindow) => (
            "burst",
            "has no meaning with algorithm: fixed_window",
            "leave it out: a window has `requests`, all at once if they come so; or write algorithm: token_bucket",
        ),
        None => return,
    };
    if let Some((_, path)) = fields.get(word) {
        reader.note(&path, Found::Nothing, wrong, wanted);
    }
}

impl Counting {
    /// The limit with these numbers.
    pub fn limit(self, requests: u64, period: Ms, burst: Option<u64>) -> Result<Limit, NoLimit> {
        match self.algorithm.unwrap_or_default() {
            AlgorithmName::TokenBucket => Limit::new(requests, period, burst.unwrap_or(requests)),
            AlgorithmName::FixedWindow => Limit::fixed_window(requests, period, self.spread),
        }
    }
}
