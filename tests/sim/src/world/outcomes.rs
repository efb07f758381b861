//! What a run comes to.

use crate::check::Violation;

/// What a run comes to.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    pub violation: Option<Violation>,
    pub tally: Tally,
    pub log: Vec<String>,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    /// Tokens that requests have got, and what one ideal bucket for each tenant would have given the same requests.
    pub admitted: u64,
    pub ideal: u64,
    pub refused: u64,
    pub failed: u64,
    pub waited: u64,
    pub calls: u64,
    /// Tokens over the promise, slack apart.
    pub over: u64,
    /// The longest time, in microseconds, for which a bucket refused while its tokens lay idle elsewhere.
    pub stranded: u64,
    pub steps: u64,
}

impl Tally {
    /// What has come since an earlier moment; what is a longest or a sum of wrongs counts from the start.
    pub(super) fn since(self, before: &Tally) -> Tally {
        Tally {
            requests: self.requests - before.requests,
            admitted: self.admitted - before.admitted,
            ideal: self.ideal - before.ideal,
            refused: self.refused - before.refused,
            failed: self.failed - before.failed,
            waited: self.waited - before.waited,
            calls: self.calls - before.calls,
            ..self
        }
    }
}

/// A bucket at some moment: tokens in it, lent, and unspent of those.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub level: f64,
    pub lent: f64,
    pub unspent: f64,
}
