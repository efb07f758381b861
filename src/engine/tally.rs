//! What the buckets of one request have said, and what follows for the request.

use super::plan::{Due, Plan, Receipt};
use crate::algorithm::{Share, Standing};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{Limit, LimiterId};
use crate::response::Outcome;
use crate::rules::Ask;
use crate::telemetry::{Effect, Mark, TokenSource};

/// What was found out about a request, and by which rules, the deciding one first.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) outcome: Outcome,
    pub(super) marks: Vec<Mark>,
}

/// What the buckets of one request have said, in whatever order.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) due: Vec<(usize, Due)>,
    /// Of the rules that let it pass; that of the bucket with the least left, for its size, is the first.
    pub(super) granted: Vec<Mark>,
    pub(super) tightest: Option<(Limit, Standing)>,
    /// Clients are told how that bucket stands; one of which they are told comes before all others.
    pub(super) tells: bool,
    /// The refusal that holds longest.
    pub(super) refused: Option<(Mark, Limit, Share, Ms)>,
    pub(super) failed: Option<(Mark, LimiterId, Failure)>,
    pub(super) is_missing: bool,
}

impl Tally {
    /// `tells` says whether clients are told how the buckets of its rule stand.
    pub(super) fn granted(&mut self, mark: Mark, standing: Option<(Limit, Standing)>, tells: bool) {
        // a/b < c/d, without dividing.
        let left =
            |standing: Standing, of: Limit| u128::from(standing.remaining).saturating_mul(u128::from(of.burst()));
        let is_tighter = standing.is_some_and(|(limit, standing)| {
            let is_less = |(limit_before, before)| left(standing, limit_before) < left(before, limit);
            self.tightest.is_none_or(|before| if tells == self.tells { is_less(before) } else { tells })
        });
        let scope = mark.scope;
        add_mark(&mut self.granted, mark);
        if is_tighter {
            (self.tightest, self.tells) = (standing, tells);
            let at = self.granted.iter().position(|mark| mark.scope == scope);
            self.granted.swap(0, at.unwrap_or_default());
        }
    }

    pub(super) fn refused(&mut self, mark: Mark, limit: Limit, share: Share) {
        if let Share::Refused { retry_after, .. } = share
            && self.refused.as_ref().is_none_or(|(.., longest)| retry_after > *longest)
        {
            self.refused = Some((mark, limit, share, retry_after));
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether nothing that other buckets say lets the request pass.
    pub(super) fn is_decided(&self) -> bool {
        self.is_refused() || self.failed.is_some()
    }

    pub(super) fn failed(&mut self, mut mark: Mark, limiter: LimiterId, failure: Failure) {
        mark.effect = Effect::Failed;
        self.failed.get_or_insert((mark, limiter, failure));
    }

    pub(super) fn refusal(&mut self) -> Option<Decided> {
        if let Some((mark, limit, share, _)) = self.refused.take() {
            return Some(refusal(mark, limit, share));
        }
        let (mark, limiter, failure) = self.failed.take()?;
        let rule = mark.scope.rule.unwrap_or_default();
        Some(Decided { outcome: Outcome::Failed { rule, limiter, failure }, marks: vec![mark] })
    }

    /// `others` have let it pass uncounted, or have no say.
    pub(super) fn admission(mut self, others: Vec<Mark>) -> Decided {
        let rule = self.granted.first().and_then(|mark| mark.scope.rule).unwrap_or_default();
        let outcome = match self.tightest {
            Some((limit, standing)) => Outcome::Decided { rule, limit, share: Share::Granted(standing) },
            None => Outcome::Pass,
        };
        others.into_iter().for_each(|mark| add_mark(&mut self.granted, mark));
        Decided { outcome, marks: self.granted }
    }
}

/// A bucket has refused a request.
fn refusal(mut mark: Mark, limit: Limit, share: Share) -> Decided {
    mark.effect = Effect::Limited;
    let rule = mark.scope.rule.unwrap_or_default();
    Decided { outcome: Outcome::Decided { rule, limit, share }, marks: vec![mark] }
}

/// Adds a decision of a rule: several limits of one rule are one decision, and one by `on_error` is told before others.
pub(super) fn add_mark(marks: &mut Vec<Mark>, mark: Mark) {
    match marks.iter_mut().find(|before| before.scope == mark.scope) {
        Some(before) if before.degraded.is_none() && (mark.degraded.is_some() || mark.effect > before.effect) => {
            *before = mark;
        }
        Some(_) => {}
        None => marks.push(mark),
    }
}

pub(super) fn source_of(receipt: Receipt) -> TokenSource {
    match receipt {
        Receipt::Lease(_) => TokenSource::Lease,
        Receipt::Own => TokenSource::Local,
        Receipt::Unsettled => TokenSource::Async,
    }
}

/// The decision about what is asked of a bucket.
pub(super) fn mark_of(plan: &Plan, ask: &Ask, effect: Effect) -> Mark {
    let bucket = plan.policy.shows_keys().then(|| ask.bucket.clone());
    Mark { bucket, ..Mark::new(ask.scope(), effect) }
}
