//! The limiter in Redis, which runs the scripts of the algorithms: the keys of its buckets, and the transports that carry
//! calls of the scripts there.

pub mod bridge;
pub mod webdis;

use crate::bucket::BucketId;
use crate::policy::Policy;

/// `<namespace>:{<tenant>}:<rule>:<entry>:<period_ms>:<format>`: the tenant is the hash tag of Redis Cluster.
pub fn key(policy: &Policy, bucket: &BucketId) -> String {
    let (mut period, kind) = (itoa::Buffer::new(), &bucket.kind);
    let (tenant, period) = (bucket.tenant.as_str(), period.format(kind.period.0));
    [&policy.namespace, ":{", tenant, "}:", &kind.rule, ":", &kind.entry, ":", period, ":", kind.format].concat()
}
