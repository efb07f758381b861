//! How requests are counted: the numbers of each algorithm, what a proxy asks of a bucket, and what its answer means for
//! each request that waits.
//!
//! What all algorithms share: a bucket has a *level* in units, a whole number of them a token; what is kept is what was
//! *used* of it ([`Used`]), its level is the capacity of whoever asks, less that. So another tier or another limit finds
//! what was used and loses nothing. A call asks in one way and is answered in one way ([`Acquire`], [`Acquired`]).
//!
//! What an algorithm says for itself is [`Algorithm`], each in a file of its own with its script beside it. One more is
//! one more file, and one more variant of [`Limit`].

mod acquire;
mod limit;
mod script;
mod token_bucket;
mod used;

pub use acquire::{Acquire, Acquired, Impossible, Lent, Offer, Run, runs};
pub use limit::{EXACT_IN_A_DOUBLE, Limit, ModeName, NoLimit, Terms};
pub use script::Script;
pub use token_bucket::{TOKEN_BUCKET, TokenBucket};
pub use used::{Share, Standing, Used};

use crate::clock::Ms;

/// However fast a bucket fills, the limiter is not asked more often than this.
const SHORTEST_PACE: Ms = Ms(10);

/// Below this burst nothing is lent ahead of need, so that small limits are not hoarded.
const LENT_FREELY_FROM: u64 = 64;

/// What an algorithm gives, asked of a limit's numbers.
///
/// Times are of whoever counts: a proxy for its own buckets and for what it knows of the limiter's. Nothing here may
/// round in favour of the client, overflow or panic, whatever it is handed: entries of the table are bytes of others.
trait Algorithm {
    // Numbers that are told, in policies, keys and headers.

    /// Tokens that come back per period.
    fn requests(&self) -> u64;

    /// The period.
    fn period(&self) -> Ms;

    /// Tokens in a full bucket.
    fn burst(&self) -> u64;

    /// The modes that it has.
    fn modes(&self) -> &'static [ModeName];

    /// The share of one of so many proxies: see [`Limit::share`].
    fn share(&self, proxies: u64, largest_cost: u64) -> Limit;

    // The local step.

    /// Units in a token, at least 1.
    fn units_of_a_token(&self) -> u64;

    /// The same bucket now, where so many tokens are lent and do not come back meanwhile. It comes back as the limiter's
    /// does, never sooner. A clock that went back brings nothing back; one that was set is gone along with, so that nobody
    /// is locked out for longer than the bucket takes to be full.
    fn refilled(&self, used: Used, now: Ms, lent: u64) -> Used;

    /// The first whole millisecond, from `at` on, in which a level of then has risen to another.
    fn time_to(&self, level: i64, wanted: i64, at: Ms) -> Ms;

    /// Until there is a whole token more than is told; None where the bucket is full, and then nothing more comes.
    fn next_token(&self, told: Standing) -> Option<Ms>;

    // Pacing: how a proxy borrows. The limiter's side of it is in the script.

    /// Tokens of a lease that is small: it lives long, and waits for its tenant to come back.
    fn small_lease(&self) -> u64;

    /// The least tokens that a lease asks for, so that no call buys nothing.
    fn least_lease(&self) -> u64;

    /// Between two questions at a bucket that has nothing.
    fn pace(&self) -> Ms;

    /// How long the limiter is not asked that has lent less than was wanted, with so much left; None where it lends nothing
    /// ahead of need in any case.
    fn scarce_for(&self, level: i64) -> Option<Ms>;

    // The call.

    /// Its script.
    fn script(&self) -> &'static Script;

    /// Its numbers as the script wants them, in front of what all scripts are handed.
    fn arguments(&self) -> [u64; 3];

    /// Whether the script may have answered so to these, in this order: what it computes is computed here anew. `full_in`
    /// is how long the bucket takes to be full. What all algorithms share has been checked.
    fn may_answer(&self, acquired: &Acquired, full_in: Ms, runs: &[Run]) -> bool;

    /// What each request of the group gets, in order: see [`Acquired::shares`].
    fn shares(&self, acquired: &Acquired, runs: &[Run]) -> Vec<Share>;
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
