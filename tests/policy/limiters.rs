//! Which limiter a bucket is in.

use weir::clock::Ms;
use weir::policy::{Limiter, Policy};
use weir::tenant::{HashKey, Storage, Tenant};

use crate::good;

/// The names of the limiters that rules have buckets of these tenants and tiers in.
fn limiter_of(policy: &Policy, rule: usize, tenant: (&str, &str), tier: usize) -> String {
    let tenant = Tenant::new(tenant.0, tenant.1.as_bytes(), Storage::Plain, &HashKey::default());
    policy.limiters.get(policy.rules[rule].routing.limiter_of(&tenant, tier)).name.clone()
}

#[test]
fn a_bucket_is_in_the_limiter_of_its_tenant_else_of_its_tier_else_in_the_default_one() {
    let policy = good("limiters");
    let names: Vec<&str> = policy.limiters.iter().map(|(_, limiter)| limiter.name.as_str()).collect();
    assert_eq!(names, ["big", "main", "own"]);
    let words = |limiter: &Limiter| (limiter.timeout, limiter.breaker.failures, limiter.authorization.is_some());
    let words: Vec<_> = policy.limiters.iter().map(|(_, limiter)| words(limiter)).collect();
    assert_eq!(words, [(Ms(50), 9, false), (Ms(20), 5, false), (Ms(20), 5, true)]);
    let (free, gold, overridden) = (0, 1, 2);
    for (rule, tenant, tier, limiter) in [
        (0, ("user", "alice"), free, "main"),
        (0, ("user", "acme"), gold, "big"),
        // A tenant with limits of its own is in no tier.
        (0, ("user", "dan"), overridden, "main"),
        (0, ("user", "whale"), free, "own"),
        (0, ("user", "whale"), gold, "own"),
        (0, ("none", "anonymous"), free, "big"),
        (1, ("client_ip", "192.0.2.1"), 0, "big"),
        (1, ("client_ip", "10.9.9.9"), 0, "main"),
        (1, ("client_ip", "10.0.0.7"), 0, "own"),
        (1, ("client_ip", "2001:db8:7::"), 0, "own"),
        (2, ("constant", "all"), 0, "big"),
        (4, ("constant", "all"), 0, "big"),
        // It asks none, so it needs no default.
        (5, ("constant", "all"), 0, "big"),
    ] {
        assert_eq!(limiter_of(&policy, rule, tenant, tier), limiter, "{rule}, {tenant:?}, {tier}");
    }
    let hashed = Tenant::from_hash("key", "~0123456789abcdef0123456789abcdef").expect("a hash");
    let of_hash = policy.rules[0].routing.limiter_of(&hashed, free);
    assert_eq!(policy.limiters.get(of_hash).name, "own");
    // It needs no limits of its own for that.
    let whale = Tenant::new("user", b"whale", Storage::Plain, &HashKey::default());
    assert_eq!(policy.rules[0].tier_of_tenant(&whale), None);
}

#[test]
fn with_one_limiter_a_rule_need_not_name_it() {
    let policy = good("limiter_by_words_of_one");
    for (rule, tenant) in [(0, ("user", "whale")), (0, ("user", "alice")), (1, ("constant", "all"))] {
        assert_eq!(limiter_of(&policy, rule, tenant, 0), "main");
    }
}
