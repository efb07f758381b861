//! The policy that most cases use, and the limiter's replies under it.

use serde_json::{Value, json};

use crate::proxy::START_MS;

/// The usual policy with some values set by JSON pointer.
pub fn policy(changes: &[(&str, Value)]) -> Value {
    let mut policy = json!({
        "version": 1,
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "20ms"}},
        "classes": [
            {"class": "health", "match": {"path": "/healthz"}, "exempt": true},
            {"class": "preflight", "match": {"methods": ["OPTIONS"]}, "exempt": true},
            {"class": "export", "match": {"methods": ["POST"], "path": "/v1/reports/{id}/export"}, "cost": 10},
            {"class": "bulk", "match": {"path": "/v1/bulk"}, "cost": 5},
            {"class": "admin", "match": {"path": "/admin/**"}},
        ],
        "rules": [{
            "name": "per-user",
            "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
            "tier": {"tenants": {"user.acme": "gold"}, "default": "free"},
            "mode": "exact",
            "limits": {
                "free": {
                    "default": "60/m",
                    "admin": "deny",
                    "export": {"requests": 20, "per": "1h", "burst": 20},
                },
                "gold": {"default": "unlimited", "admin": "deny"},
            },
            "on_error": "deny",
        }],
        "response": {"retry_after_jitter": 0},
    });
    set(&mut policy, changes);
    policy
}

/// The same with buckets of the proxy's own: 30 tokens in each of two proxies.
pub fn local(changes: &[(&str, Value)]) -> Value {
    let mut policy = policy(&[("/proxies", json!(2)), ("/rules/0/mode", json!("local"))]);
    policy["rules"][0].as_object_mut().expect("a rule").remove("on_error");
    set(&mut policy, changes);
    policy
}

/// The same with buckets of 1000/s of which the limiter lends.
pub fn lease(changes: &[(&str, Value)]) -> Value {
    let mut policy = policy(&[("/rules/0/mode", json!("lease")), ("/rules/0/limits/free/default", json!("1000/s"))]);
    set(&mut policy, changes);
    policy
}

fn set(policy: &mut Value, changes: &[(&str, Value)]) {
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        let parent = policy.pointer_mut(parent).expect("a place in the policy");
        match parent {
            Value::Array(items) => items[field.parse::<usize>().expect("an index")] = value.clone(),
            object => object[field] = value.clone(),
        }
    }
}

/// The reply under 60/m without a lease: tokens left, and how many of each run were granted.
pub fn grants(left: u64, granted: &[u64]) -> String {
    grants_by("EVALSHA", left, granted)
}

pub fn grants_by(command: &str, left: u64, granted: &[u64]) -> String {
    let mut reply = vec![left * 60_000, (60 - left) * 1000, 0, 0, 0, 0, 0];
    reply.extend(granted);
    format!("{{\"{command}\":{reply:?}}}")
}

/// A lease as the limiter lends it: its id, how long it may be spent, what is kept, what is new, and 1 where that is
/// less than was wanted.
pub type Lent = [u64; 5];

pub const NO_LEASE: Lent = [0; 5];

/// The id of the first long lease.
pub const LONG_END: u64 = START_MS + 300_000;

/// A lease that lives long, of so many tokens that are kept, and so many new ones.
pub fn long(kept: u64, extra: u64) -> Lent {
    [LONG_END, 300_000, kept, extra, 0]
}

/// The reply under 1000/s: tokens left, the lease, and how many of each run were granted.
pub fn lends(left: u64, lent: Lent, granted: &[u64]) -> String {
    let mut reply = vec![left * 1000, 1000 - left];
    reply.extend(lent);
    reply.extend(granted);
    format!("{{\"EVALSHA\":{reply:?}}}")
}

/// What a call asks of the bucket of u1 under 1000/s: want, end, size, carry, hold, debt and runs.
pub fn asks_of_u1(offer_and_runs: &str) -> String {
    format!("rl:{{user.u1}}:per-user:default:1000:t3 1000 1000 1000 300000 500 {offer_and_runs}")
}

pub const NOSCRIPT: &str = r#"{"EVALSHA":[false,"NOSCRIPT No matching script. Please use EVAL."]}"#;

/// What a client sees of a request that passed with so many tokens left.
pub fn passed(left: u64) -> String {
    let reset = 1_700_000_060 - left;
    format!(
        "200 | server: upstream | x-ratelimit-limit: 60 | x-ratelimit-remaining: {left} | x-ratelimit-reset: {reset} | hello"
    )
}

/// What a client sees of a request that found no token.
pub const LIMITED: &str = "429 | content-type: application/json | retry-after: 1 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 \
     | x-ratelimit-reset: 1700000060 | {\"error\":\"rate_limited\",\"rule\":\"per-user\",\"retry_after\":1}";

/// What a client sees when the limiter fails.
pub const UNTOUCHED: &str = "200 | server: upstream | x-ratelimit-limit: 7 | hello";
pub const UNAVAILABLE: &str = "503 | content-type: application/json | retry-after: 1 \
     | {\"error\":\"limiter_unavailable\",\"rule\":\"per-user\",\"retry_after\":1}";
