//! What limits mean.

use weir::clock::Ms;
use weir::policy::{BreakerLimits, Limit, Missing, Mode, OnError, Origin, Policy, Problem};

use crate::{Allowed, allowed, good, limit, only, own};

#[test]
fn limits_by_class_need_no_tiers() {
    let policy = good("by_class_without_tiers");
    let [tier] = only(&policy).tiers.as_slice() else { panic!("{policy:?}") };
    let entries: Vec<_> = tier.entries.iter().map(|entry| (entry.name.as_str(), allowed(entry))).collect();
    assert_eq!(entries, [("default", Allowed::Unlimited), ("write", limit(1, 86_400, 1))]);
    assert_eq!(tier.by_class, [0, 1]);
    let rule = only(&policy);
    let [source] = rule.sources.as_slice() else { panic!("{:?}", rule.sources) };
    assert_eq!((source.label.as_str(), &source.origin), ("constant", &Origin::Constant("all".to_owned())));
    assert_eq!(rule.missing, Missing::Deny);
    assert_eq!((policy.response.x_ratelimit, policy.response.retry_after_jitter), (true, 0));
}

#[test]
fn an_integer_may_come_as_a_double() {
    let policy = good("numbers_of_doubles");
    assert_eq!(policy.limiters.first().timeout, Ms(1));
    assert_eq!(policy.classes.matches.first().map(|bulk| bulk.cost), Some(1000));
    let entry = only(&policy).tiers.first().and_then(|tier| tier.entries.first());
    assert_eq!(entry.map(allowed), Some(limit(1000, 31 * 86_400, 2000)));
    assert_eq!(only(&policy).missing, Missing::Skip);
    assert_eq!((policy.response.status, policy.response.retry_after_jitter), (429, 1000));
}

#[test]
fn the_largest_numbers_are_allowed() {
    let policy = good("largest");
    assert_eq!(policy.namespace.len(), 32);
    assert_eq!(policy.limiters.first().timeout, Ms(60_000));
    let entry = only(&policy).tiers.first().and_then(|tier| tier.entries.first());
    assert_eq!(entry.map(allowed), Some(limit(9_007_199_254_740_991, 1, 9_007_199_254_740)));
    assert_eq!(own(only(&policy)), [[Some((9_007_199_254_740_991, 100_000, 90_071_992))]]);
    let breaker = BreakerLimits { failures: i64::MAX as u64, share: 1000, within: Ms(60_000), probe_every: Ms(60_000) };
    assert_eq!((policy.limiters.first().breaker, policy.table_entries), (breaker, 16_777_216));
    let keys = Limit::new(1_000_000_000, Ms(1000), 1_000_000_000).expect("a limit");
    assert_eq!(policy.limiters.first().max_new_keys_per_second, Some(keys));
}

#[test]
fn a_local_share_is_the_limit_among_the_proxies() {
    let policy = good("local");
    assert_eq!((only(&policy).mode, only(&policy).on_error, policy.proxies), (Mode::Local, OnError::Deny, Some(3)));
    // What a rule says of a failure that it cannot have changes nothing.
    let with = good("local_with_on_error");
    assert_eq!((only(&with).mode, only(&with).on_error), (Mode::Local, OnError::Deny));
    // What is left out of a breaker is as the page says.
    let breaker = BreakerLimits { failures: 1, share: 500, within: Ms(1000), probe_every: Ms(200) };
    assert_eq!(policy.limiters.first().breaker, breaker);
    // 100 / 3 is 33, and 200 / 3 is 66, which hold 10 and 40; 2 / 3 is none, and a bucket holds one token at least.
    let wanted = [[Some((100, 180, 33)), Some((600, 3 * 3600, 66)), Some((1, 3, 1)), None]];
    assert_eq!(own(only(&policy)), wanted);
}

/// A policy whose only rule has these limits.
fn with_limits(limits: &str) -> Result<Policy, Vec<String>> {
    let text = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "w"}}}},
            "rules": [{{"name": "r", "key": [{{"constant": "all"}}], "mode": "exact", "on_error": "deny",
                "tier": {{"default": "algorithm"}}, "limits": {limits}}}]}}"#
    );
    let told = |problems: Vec<Problem>| problems.iter().map(|problem| problem.for_people().to_string()).collect();
    Policy::from_host(text.as_bytes(), &|_| None).map_err(told)
}

#[test]
fn an_object_is_a_limit_exactly_if_it_has_requests() {
    // Words that a limit may get one day are names of tiers as any other.
    let policy = with_limits(r#"{"algorithm": "5/m", "window": {"requests": 7, "per": "1m"}}"#).expect("tiers");
    let names: Vec<&str> = only(&policy).tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(names, ["algorithm", "window"]);
    // What has been no name stays none, and says what it was taken for.
    let missing = |field| format!("rules[0].limits.{field}: is missing");
    for (limits, field) in [
        (r#"{"per": "1m", "algorithm": "5/m"}"#, "requests"),
        (r#"{"burst": 5, "algorithm": "5/m"}"#, "requests"),
        (r#"{"requests": 5, "algorithm": "5/m"}"#, "per"),
    ] {
        let told = with_limits(limits).expect_err("no names");
        assert!(told.iter().any(|problem| problem.starts_with(&missing(field))), "{told:?}");
    }
}
