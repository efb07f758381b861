//! What tells a tenant's buckets apart.

use std::hash::Hasher;

use siphasher::sip128::SipHasher13;

use super::Limit;
use crate::clock::Ms;

/// Which of a tenant's buckets. The limit itself is no part of it, so that a changed quota goes on with the level that is
/// there, and so does a tenant whose tier changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketKind {
    /// A hash of all the rest, so that the way of every request need not hash it.
    hash: u64,
    /// The name of the rule.
    pub rule: String,
    /// The name of the entry of `limits`: a class or `default`.
    pub entry: String,
    /// The period of the limit: those of a list differ in it.
    pub period: Ms,
    /// How the algorithm stores a bucket: its name and version.
    pub format: &'static str,
}

impl BucketKind {
    /// The kind of the buckets that a limit has in an entry of a rule.
    pub fn new(rule: &str, entry: &str, limit: Limit) -> BucketKind {
        let (period, format) = (limit.period(), limit.script().format);
        let mut hasher = SipHasher13::new();
        for part in [rule.as_bytes(), entry.as_bytes(), &period.0.to_le_bytes(), format.as_bytes()] {
            // No name holds this byte.
            hasher.write(part);
            hasher.write(&[0]);
        }
        BucketKind { hash: hasher.finish(), rule: rule.to_owned(), entry: entry.to_owned(), period, format }
    }

    /// A hash of what it is made of: the same in every proxy and under every policy that has such buckets.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
