//! A limit: an algorithm with its numbers. And the terms on which tokens of it are lent.

use super::fixed_window::FixedWindow;
use super::token_bucket::TokenBucket;
use super::{Algorithm, Script, Standing, Used};
use crate::clock::Ms;

/// Levels of a bucket are integers that have to be exact in a double too, since scripts have nothing else.
pub const EXACT_IN_A_DOUBLE: u64 = 1 << 53;

/// An algorithm with its numbers. Valid by construction: nothing is zero and every level is exact in a double.
///
/// A new algorithm is a variant here and an arm in [`Limit::by`]; all else asks the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many requests per period, at most so many at once.
    TokenBucket(TokenBucket),
    /// So many requests in each window.
    FixedWindow(FixedWindow),
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

/// The longest period: 31 days.
const MAX_PERIOD_S: u64 = 31 * 24 * 60 * 60;

impl NoLimit {
    /// Whether these numbers can be counted exactly, whatever the algorithm is.
    pub(super) fn unless_exact(requests: u64, period: Ms, burst: u64) -> Result<(), NoLimit> {
        let whole_seconds = period.0.is_multiple_of(1000);
        if !whole_seconds || period < Ms(1000) || period > Ms(1000).times(MAX_PERIOD_S) {
            return Err(NoLimit::Period);
        }
        if requests == 0 || burst == 0 {
            return Err(NoLimit::Zero);
        }
        match burst.checked_mul(period.0) {
            Some(capacity) if capacity.max(requests) < EXACT_IN_A_DOUBLE => Ok(()),
            _ => Err(NoLimit::TooLarge),
        }
    }
}

impl Limit {
    /// A token bucket: `requests` per `period` (whole seconds, 1s to 31d), at most `burst` at once.
    ///
    /// # Errors
    /// See [`NoLimit`].
    pub fn new(requests: u64, period: Ms, burst: u64) -> Result<Limit, NoLimit> {
        TokenBucket::new(requests, period, burst).map(Limit::TokenBucket)
    }

    /// A fixed window: `requests` in each window of `period`; `spread` as in [`FixedWindow::new`].
    ///
    /// # Errors
    /// See [`NoLimit`].
    pub fn fixed_window(requests: u64, period: Ms, spread: bool) -> Result<Limit, NoLimit> {
        FixedWindow::new(requests, period, spread).map(Limit::FixedWindow)
    }

    /// Asks the algorithm that counts it. The one place that tells algorithms apart; inlined, so that the algorithm is known
    /// in each arm, and nothing is looked up.
    #[inline(always)]
    pub(super) fn by<T>(&self, ask: impl FnOnce(&dyn Algorithm) -> T) -> T {
        match self {
            Limit::TokenBucket(bucket) => ask(bucket),
            Limit::FixedWindow(window) => ask(window),
        }
    }

    /// The share of one of so many proxies, as exact as the whole. It holds at least one token and the largest cost that
    /// meets it, so where that rounds up, the proxies together admit more.
    pub fn share(self, proxies: u64, largest_cost: u64) -> Limit {
        self.by(|algorithm| algorithm.share(proxies, largest_cost))
    }

    /// The algorithm that counts it.
    pub fn algorithm(self) -> AlgorithmName {
        self.by(|algorithm| algorithm.name())
    }

    /// How long after multiples of the period windows begin at a key; None where there are none.
    pub fn window_offset(self, key: &str) -> Option<Ms> {
        self.by(|algorithm| algorithm.window_offset(key))
    }

    /// Tokens that come back per period.
    pub fn requests(self) -> u64 {
        self.by(|algorithm| algorithm.requests())
    }

    /// The period. Part of a bucket's name: limits of one entry differ in it.
    pub fn period(self) -> Ms {
        self.by(|algorithm| algorithm.period())
    }

    /// Tokens in a full bucket.
    pub fn burst(self) -> u64 {
        self.by(|algorithm| algorithm.burst())
    }

    /// Its script.
    pub fn script(self) -> &'static Script {
        self.by(|algorithm| algorithm.script())
    }

    /// What is wrong where a request costs more than a full bucket has, in words for the author of a policy.
    pub fn below_a_cost(self) -> &'static str {
        self.by(|algorithm| algorithm.below_a_cost())
    }

    /// Why a rule cannot count by it in a mode; None where it can.
    pub fn unfit_for(self, mode: ModeName) -> Option<Unfit> {
        self.by(|algorithm| algorithm.unfit_for(mode))
    }
}

/// How a proxy borrows: see [`crate::local::lease`].
impl Limit {
    /// Tokens of a lease that is small: it lives long, and waits for its tenant to come back.
    pub fn small_lease(self) -> u64 {
        self.by(|algorithm| algorithm.small_lease())
    }

    /// How long a small lease stays of which nothing is spent, where its terms give it such a life; None where it ends by
    /// itself.
    pub fn small_lease_stays(self, life: Ms) -> Option<Ms> {
        self.by(|algorithm| algorithm.small_lease_stays(life))
    }

    /// The least tokens that a lease asks for, so that no call buys nothing.
    pub fn least_lease(self) -> u64 {
        self.by(|algorithm| algorithm.least_lease())
    }

    /// Between two questions at a bucket that has nothing: 10 ms to a second.
    pub fn pace(self) -> Ms {
        self.by(|algorithm| algorithm.pace())
    }

    /// How long the limiter is not asked that has lent less than was wanted, and has so little left; None where it may be
    /// asked.
    pub fn scarce_for(self, used: Used) -> Option<Ms> {
        self.by(|algorithm| algorithm.scarce_for(used.level(self)))
    }

    /// Until there is a whole token more than is told; None where the bucket is full, and then nothing more comes.
    pub fn next_token(self, told: Standing) -> Option<Ms> {
        self.by(|algorithm| algorithm.next_token(told))
    }
}

/// An algorithm by its name alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlgorithmName {
    /// [`TokenBucket`].
    #[default]
    TokenBucket,
    /// [`FixedWindow`].
    FixedWindow,
}

/// A mode of counting by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeName {
    /// The limiter grants every request.
    Exact,
    /// The limiter lends.
    Lease,
    /// Proxies spend first and settle later.
    Async,
    /// Each proxy counts its share.
    Local,
}

/// Why a limit cannot be counted in a mode, in words for the author of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What is wrong with the limit.
    pub wrong: &'static str,
    /// What to write instead.
    pub wanted: &'static str,
}

/// How a proxy borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a small lease lives.
    pub life: Ms,
    /// How much of the burst may be lent freely, in thousandths.
    pub lend: u16,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { life: Ms(300_000), lend: 500 }
    }
}

impl Terms {
    /// How many tokens of a limit are lent freely.
    pub fn lent_freely(self, limit: Limit) -> u64 {
        limit.burst().saturating_mul(u64::from(self.lend)) / 1000
    }
}
