//! Buckets as Redis keeps them.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::load::Limit;
use crate::rig::Rig;

/// How long idle tokens may take to come back: the longest time after which a lease goes back, and a busy machine.
pub const IDLE: Duration = Duration::from_secs(15);

/// A bucket as Redis keeps it.
#[derive(Debug)]
pub struct Root {
    /// Whole tokens, rounded down.
    pub tokens: i64,
    /// Tokens that are lent, leases that have ended included.
    pub lent: u64,
}

/// No key is a full bucket.
pub fn root(rig: &Rig, tenant: &str, rule: &str, limit: Limit) -> Root {
    let key = format!("rl:{{{tenant}}}:{rule}:default:{}:t3", limit.per_ms);
    let value: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut rig.redis.operator().unwrap()).unwrap();
    if value.is_empty() {
        return Root { tokens: limit.burst as i64, lent: 0 };
    }
    assert!(value.len() >= 16 && (value.len() - 16).is_multiple_of(13), "{} bytes at {key}", value.len());
    let used = f64::from_le_bytes(value[..8].try_into().unwrap());
    let level = (limit.burst * limit.per_ms) as f64 - used;
    let tokens_of = |slot: &[u8]| slot[1..7].iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte));
    Root {
        tokens: (level / limit.per_ms as f64).floor() as i64,
        lent: value[16..].chunks_exact(13).map(tokens_of).sum(),
    }
}

/// Waits until a bucket has so many tokens and has lent none; an upper bound on how long that takes.
pub fn assert_root_becomes(rig: &Rig, tenant: &str, rule: &str, limit: Limit, tokens: RangeInclusive<i64>) {
    let is_so = || {
        let root = root(rig, tenant, rule, limit);
        tokens.contains(&root.tokens) && root.lent == 0
    };
    let became = rig.envoys[0].wait_for(IDLE, |_| is_so());
    let root = root(rig, tenant, rule, limit);
    println!("    the bucket of {tenant} under {rule} has become {root:?}");
    assert!(became, "{root:?} of {tenant}, {rule}; wanted {tokens:?} tokens and none lent");
}
