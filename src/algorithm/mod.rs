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
mod fixed_window;
mod limit;
mod script;
mod token_bucket;
mod used;

pub use acquire::{Acquire, Acquired, Impossible, Lent, Offer, Run, runs};
pub use fixed_window::{FIXED_WINDOW, FixedWindow};
pub use limit::{AlgorithmName, EXACT_IN_A_DOUBLE, Limit, ModeName, NoLimit, Terms, Unfit};
pub use script::Script;
pub use token_bucket::{TOKEN_BUCKET, TokenBucket};
pub use used::{Share, Standing, Used};

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::clock::Ms;

/// The script of each algorithm: what a bridge runs.
pub const SCRIPTS: [&Script; 2] = [&TOKEN_BUCKET, &FIXED_WINDOW];

/// However fast a bucket fills, the limiter is not asked more often than this.
const SHORTEST_PACE: Ms = Ms(10);

/// Clocks of the workers of one proxy differ by less than this: each counts time from its own readings.
const CLOCKS_DIFFER: Ms = Ms(1000);

/// The smallest burst of which a part can be lent while a part stays.
const LENDABLE: u64 = 2;

/// Below this burst nothing is lent ahead of need, so that small limits are not hoarded.
const LENT_FREELY_FROM: u64 = 64;

/// What an algorithm gives, asked of a limit's numbers.
///
/// Times are of whoever counts: a proxy for its own buckets and for what it knows of the limiter's. Nothing here may
/// round in favour of the client, overflow or panic, whatever it is handed: entries of the table are bytes of others.
trait Algorithm {
    // Numbers that are told, in policies, keys and headers.

    /// Its name.
    fn name(&self) -> AlgorithmName;

    /// Tokens that come back per period.
    fn requests(&self) -> u64;

    /// The period.
    fn period(&self) -> Ms;

    /// Tokens in a full bucket.
    fn burst(&self) -> u64;

    /// What is wrong where a request costs more than a full bucket has, in words for the author of a policy.
    fn below_a_cost(&self) -> &'static str;

    /// Why a rule cannot count by it in a mode: see [`Limit::unfit_for`].
    fn unfit_for(&self, mode: ModeName) -> Option<Unfit>;

    /// The share of one of so many proxies: see [`Limit::share`].
    fn share(&self, proxies: u64, largest_cost: u64) -> Limit;

    /// How long after multiples of the period windows begin at a key; None where there are none.
    fn window_offset(&self, key: &str) -> Option<Ms>;

    // The local step.

    /// Units in a token, at least 1.
    fn units_of_a_token(&self) -> u64;

    /// Units in a full bucket.
    fn full(&self) -> u64;

    /// Whether it tells how the bucket stood at some moment; else it was noted later, or by a clock that has been set.
    fn is_told_by(&self, used: Used, now: Ms) -> bool;

    /// The same bucket now, where so many tokens are lent and do not come back meanwhile. It comes back as the limiter's
    /// does, never sooner. A clock that went back brings nothing back; one that was set is gone along with, so that nobody
    /// is locked out for longer than the bucket takes to be full.
    fn refilled(&self, used: Used, now: Ms, lent: u64) -> Used;

    /// The bucket at a later moment, where the limiter will count so many tokens as used until it hears what became of
    /// them.
    fn with_lent(&self, used: Used, lent: u64, then: Ms) -> Used;

    /// Whether what it tells is over: what was spent or denied meanwhile means nothing any more.
    fn is_over(&self, used: Used, now: Ms) -> bool;

    /// Of a bucket as it is now: until its level has risen to this, in whole milliseconds.
    fn time_to(&self, used: Used, wanted: i64, now: Ms) -> Ms;

    /// Of a bucket as it is now: what clients are told as its reset.
    fn reset(&self, used: Used, now: Ms) -> Ms;

    /// From when on a bucket that is not known is as good: it will be full.
    fn full_at(&self, used: Used) -> Ms;

    /// Until there is a whole token more than is told; None where the bucket is full, and then nothing more comes.
    fn next_token(&self, told: Standing) -> Option<Ms>;

    // Pacing: how a proxy borrows. The limiter's side of it is in the script.

    /// Tokens of a lease that is small: it lives long, and waits for its tenant to come back.
    fn small_lease(&self) -> u64;

    /// How long a small lease stays of which nothing is spent, on such terms; None where it ends by itself.
    fn small_lease_stays(&self, life: Ms) -> Option<Ms>;

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

    /// Its numbers as the script wants them for a key, in front of what all scripts are handed.
    fn arguments(&self, key: &str) -> [u64; 3];

    /// What is left of the window, by the reset that the script tells with such a level; nothing where there is no window.
    ///
    /// # Errors
    /// It cannot be true: what the script computes is computed here anew. What all algorithms share is checked elsewhere.
    fn window_left(&self, level: i64, reset: Ms) -> Result<Ms, Impossible>;

    /// What an answer says of the bucket: it was asked and answered between these moments.
    fn told(&self, acquired: &Acquired, sent: Ms, heard: Ms) -> Used;
}

/// A number that a key has in every proxy.
fn hash_of(key: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key.as_bytes());
    hasher.finish()
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
