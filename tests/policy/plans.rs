//! Each word of good policies arrives in the plan.

use weir::clock::Ms;
use weir::path::{Paths, Pattern};
use weir::policy::{
    AddressFrom, BreakerLimits, ClassId, Condition, Credential, Idempotency, Kind, Limit, Missing, Mode, Observe,
    OnError, Origin, Reset, Rule, Source, Terms, UpstreamHeaders,
};
use weir::tenant::{HashKey, Storage, Tenant};

use crate::{Allowed, allowed, first_own, good, limit, only, own};

#[test]
fn what_is_observed_arrives_in_the_plan() {
    let told = Observe {
        secret: Some(Credential("secret".to_owned())),
        debug_header: "x-why".to_owned(),
        top_path: Some("/.weir/top".to_owned()),
        filter_state: true,
    };
    assert_eq!(good("observe").observe, Some(told));
    assert_eq!(good("smallest").observe, None);
}

#[test]
fn what_the_smallest_policy_leaves_out_is_as_the_page_says() {
    let policy = good("smallest");
    assert_eq!(policy.namespace, "rl");
    let limiter = policy.limiters.first();
    assert_eq!((limiter.name.as_str(), limiter.cluster.as_str()), ("main", "webdis"));
    assert_eq!((limiter.authority.as_str(), limiter.timeout), ("webdis", Ms(20)));
    assert_eq!(limiter.authorization, None);
    assert_eq!(limiter.breaker, BreakerLimits { failures: 5, share: 500, within: Ms(1000), probe_every: Ms(200) });
    assert_eq!(limiter.max_new_keys_per_second, None);
    assert_eq!((policy.proxies, policy.table_entries), (None, 65_536));
    assert_eq!(policy.classes.names, ["default"]);
    assert!(policy.classes.matches.is_empty());
    let rule = only(&policy);
    assert_eq!(rule.name, "per-user");
    let [source] = rule.sources.as_slice() else { panic!("{:?}", rule.sources) };
    assert_eq!((source.label.as_str(), source.storage), ("header", Storage::Plain));
    assert_eq!(source.origin, Origin::Header("x-user-id".to_owned()));
    let anonymous = Tenant::new("none", b"anonymous", Storage::Plain, &HashKey::default());
    assert_eq!(rule.missing, Missing::As(anonymous));
    assert_eq!((rule.tenants.len(), rule.default_tier, rule.on_error), (0, 0, OnError::Allow));
    let [tier] = rule.tiers.as_slice() else { panic!("{:?}", rule.tiers) };
    assert_eq!((tier.name.as_str(), tier.by_class.as_slice()), ("default", [0].as_slice()));
    let [entry] = tier.entries.as_slice() else { panic!("{:?}", tier.entries) };
    assert_eq!((entry.name.as_str(), allowed(entry), first_own(entry)), ("default", limit(100, 60, 100), None));
    assert_eq!(rule.mode, Mode::Lease(Terms { life: Ms(300_000), lend: 500 }));
    assert_eq!((rule.shadow, &rule.idempotency, rule.headers), (false, &None, true));
    let response = &policy.response;
    assert_eq!((response.status, response.content_type.as_str()), (429, "application/json"));
    assert_eq!(response.body, r#"{"error":"rate_limited","rule":"{rule}","retry_after":{retry_after}}"#);
    assert_eq!((response.x_ratelimit, response.ratelimit, response.reset), (true, false, Reset::Epoch));
    assert_eq!((response.upstream_headers, response.retry_after_jitter), (UpstreamHeaders::Replace, 100));
}

#[test]
fn each_word_that_is_built_arrives_in_the_plan() {
    let policy = good("everything");
    assert_eq!(policy.namespace, "shop_2");
    let limiter = policy.limiters.first();
    assert_eq!(limiter.cluster, "outbound|7379||webdis.infra.svc.cluster.local");
    assert_eq!((limiter.authority.as_str(), limiter.timeout), ("webdis.infra", Ms(1000)));
    assert_eq!(limiter.authorization, Some(Credential("secret".to_owned())));
    assert_eq!(limiter.breaker, BreakerLimits { failures: 3, share: 250, within: Ms(2000), probe_every: Ms(10) });
    assert_eq!(limiter.max_new_keys_per_second, Some(Limit::new(500, Ms(1000), 500).expect("a limit")));
    assert_eq!((policy.proxies, policy.table_entries), (Some(7), 1000));
    assert_eq!(policy.classes.names, ["default", "health", "export", "write", "read"]);
    let pattern = |text| Some(Pattern::parse(text).expect("a pattern"));
    let methods = |list: &[&str]| Some(list.iter().map(|method| (*method).to_owned()).collect::<Vec<_>>());
    let wanted = [
        (1, None, pattern("/healthz"), 1, true),
        (2, methods(&["POST"]), pattern("/v1/reports/{id}/export"), 10, false),
        (3, methods(&["POST", "PUT", "PATCH", "DELETE"]), None, 1, false),
        (4, methods(&["GET", "HEAD"]), pattern("/v1/**"), 1, false),
        (3, None, pattern("/%7Bbulk%7D/**"), 3, false),
    ];
    assert_eq!(policy.classes.matches.len(), wanted.len());
    for (found, (class, methods, path, cost, exempt)) in policy.classes.matches.iter().zip(wanted) {
        assert_eq!((found.class, &found.methods, &found.path), (ClassId(class), &methods, &path));
        assert_eq!((found.cost, found.exempt), (cost, exempt));
    }
    let rule = only(&policy);
    let sources: Vec<_> =
        rule.sources.iter().map(|source| (source.label.as_str(), &source.origin, source.storage)).collect();
    let wanted = [
        ("key", &Origin::Header("x-api-key".to_owned()), Storage::Secret),
        ("authorization", &Origin::Bearer, Storage::Secret),
        ("user", &Origin::BasicUser, Storage::Secret),
        ("header", &Origin::Header("x-org".to_owned()), Storage::Plain),
        ("all", &Origin::Constant("all of them".to_owned()), Storage::Plain),
    ];
    assert_eq!(sources, wanted);
    let key = HashKey::new("secret");
    let plain = |label, value: &str| Tenant::new(label, value.as_bytes(), Storage::Plain, &key);
    assert_eq!(rule.missing, Missing::As(plain("none", "nobody")));
    let tenants = [
        (plain("header", "acme"), 1),
        (plain("header", "a:b/c"), 1),
        (Tenant::from_hash("key", "~000102030405060708090a0b0c0d0e0f").expect("a hash"), 1),
        (plain("none", "nobody"), 2),
    ];
    assert_eq!(rule.tenants, tenants.into());
    assert_eq!((rule.default_tier, rule.mode, rule.on_error), (0, Mode::Exact, OnError::Local));
    let secret = |value: &str| Tenant::new("key", value.as_bytes(), Storage::Secret, &rule.hash_key);
    assert_eq!(
        secret("v"),
        Tenant::new("key", b"v", Storage::Secret, &key),
        "the key of the hash is the variable's value"
    );
    let tiers: Vec<_> = rule
        .tiers
        .iter()
        .map(|tier| {
            let entries = tier.entries.iter().map(|entry| (entry.name.as_str(), allowed(entry))).collect::<Vec<_>>();
            (tier.name.as_str(), entries, tier.by_class.clone())
        })
        .collect();
    let wanted = [
        (
            "free",
            vec![("default", limit(60, 60, 60)), ("write", limit(10, 60, 10)), ("export", limit(20, 3600, 30))],
            vec![0, 0, 2, 1, 0],
        ),
        (
            "gold",
            vec![("default", limit(600, 90, 600)), ("export", Allowed::Unlimited), ("read", Allowed::Deny)],
            vec![0, 0, 1, 0, 2],
        ),
        ("closed", vec![("default", Allowed::Deny)], vec![0, 0, 0, 0, 0]),
    ];
    assert_eq!(tiers, wanted);
    // A seventh of 60, 10 and 30 is 8, 1 and 4, but the largest costs that meet them are 1, 3 and 10.
    let wanted = [
        vec![Some((60, 7 * 60, 8)), Some((10, 7 * 60, 3)), Some((20, 7 * 3600, 10))],
        vec![Some((600, 7 * 90, 85)), None, None],
        vec![None],
    ];
    assert_eq!(own(only(&policy)), wanted);
    let response = &policy.response;
    assert_eq!((response.status, response.content_type.as_str()), (503, "text/plain; charset=utf-8"));
    assert_eq!(response.body, "{rule}: come back in {retry_after} s");
    // 0.2345 is kept to three digits.
    assert_eq!((response.x_ratelimit, response.ratelimit, response.reset), (false, true, Reset::Seconds));
    assert_eq!((response.upstream_headers, response.retry_after_jitter), (UpstreamHeaders::Keep, 235));
}

#[test]
fn each_mode_has_its_own_words() {
    let policy = good("modes");
    let lease = |life, lend| Mode::Lease(Terms { life: Ms(life), lend });
    let wanted = [
        ("exact", Mode::Exact, OnError::Allow, false),
        ("lease", lease(300_000, 500), OnError::Local, false),
        ("lease-short", lease(1000, 100), OnError::Deny, false),
        ("lease-long", lease(3_600_000, 900), OnError::Deny, false),
        ("lease-life", lease(60_000, 500), OnError::Deny, false),
        // 0.2345 is kept to three digits.
        ("lease-lend", lease(300_000, 235), OnError::Deny, true),
        ("async", Mode::Async { sync_interval: Ms(1000) }, OnError::Allow, false),
        ("async-often", Mode::Async { sync_interval: Ms(10) }, OnError::Allow, false),
        ("async-seldom", Mode::Async { sync_interval: Ms(60_000) }, OnError::Allow, false),
        ("local", Mode::Local, OnError::Deny, false),
    ];
    let rules = policy.rules.iter().map(|rule| (rule.name.as_str(), rule.mode, rule.on_error, rule.shadow));
    assert_eq!(rules.collect::<Vec<_>>(), wanted);
    // A local share stands where a rule needs one, and nowhere else.
    let shares = policy.rules.iter().filter(|rule| own(rule) != [[None]]).map(|rule| (rule.name.as_str(), own(rule)));
    let wanted = [("lease", vec![vec![Some((2, 4 * 60, 1))]]), ("local", vec![vec![Some((8, 4 * 60, 2))]])];
    assert_eq!(shares.collect::<Vec<_>>(), wanted);
    let idempotency = policy.rules.last().and_then(|rule| rule.idempotency.clone());
    assert_eq!(idempotency, Some(Idempotency { header: "x-request-id".to_owned(), keep: Ms(600_000) }));
}

#[test]
fn rules_are_kept_in_order_each_with_its_own_words() {
    let policy = good("several");
    let idempotency = |header: &str, keep| Some(Idempotency { header: header.to_owned(), keep: Ms(keep) });
    let wanted = [
        ("per-client", 3, false, idempotency("idempotency-key", 86_400_000)),
        ("reads", 2, false, None),
        ("writes", 1, false, idempotency("x-once", 1000)),
        ("per-user", 1, true, None),
    ];
    let told = |rule: &Rule| (rule.tiers.len(), rule.shadow, rule.idempotency.clone());
    let rules: Vec<_> = policy.rules.iter().map(|rule| (rule.name.as_str(), told(rule))).collect();
    assert_eq!(rules, wanted.map(|(name, tiers, shadow, idempotency)| (name, (tiers, shadow, idempotency))));
    let labels: Vec<_> =
        policy.rules.iter().flat_map(|rule| &rule.sources).map(|source| source.label.as_str()).collect();
    assert_eq!(labels, ["header", "device", "constant", "header", "constant", "header"]);
    let trusted: Vec<_> = policy.rules.iter().flat_map(|rule| &rule.sources).map(|source| source.trusted).collect();
    assert_eq!(trusted, [false, false, true, true, true, true]);
    assert_eq!(good("sixteen").rules.len(), 16);
}

#[test]
fn whatever_names_tenant_class_and_limit_arrives_in_the_plan() {
    let policy = good("identity");
    let paths =
        Paths { malformed_is_default: true, ignore_case: true, ignore_trailing_slash: true, strip_parameters: true };
    assert_eq!(policy.classes.paths, paths);
    let pattern = |text| Some(Pattern::parse(text).expect("a pattern"));
    let property = |parts: &[&str]| Origin::Property(parts.iter().map(|part| (*part).to_owned()).collect(), Kind::Text);
    let is = |origin, exact: &str| Condition { origin, exact: Some(exact.to_owned()) };
    let there = |origin| Condition { origin, exact: None };
    let bytes = |origin: Origin| match origin {
        Origin::Property(path, _) => Origin::Property(path, Kind::Bytes),
        other => other,
    };
    let route = || bytes(property(&["xds", "route_metadata", "filter_metadata", "weir", "class"]));
    let (header, query) = (|name: &str| Origin::Header(name.to_owned()), |name: &str| Origin::Query(name.to_owned()));
    let wanted = [
        ("preflight", None, vec![there(header("access-control-request-method"))]),
        (
            "beta",
            None,
            vec![
                is(Origin::Host, "*.beta.example.com"),
                is(header("x-beta"), "1"),
                is(query("v"), "2"),
                there(query("debug")),
            ],
        ),
        ("cart", pattern("/shop.v1.cart/{any}"), vec![]),
        ("cart", pattern("/shop.v1.cart/get"), vec![]),
        ("cart", pattern("/{any}/watch"), vec![]),
        ("route", None, vec![is(bytes(property(&["xds", "route_name"])), "checkout")]),
        ("route", None, vec![is(route(), "checkout")]),
        ("route", None, vec![is(Origin::Host, "[::1]"), there(route())]),
    ];
    let found: Vec<_> = policy
        .classes
        .matches
        .iter()
        .map(|found| (policy.classes.names[found.class.0].as_str(), found.path.clone(), found.conditions.clone()))
        .collect();
    assert_eq!(found, wanted);
    let [per_ip, per_user] = policy.rules.as_slice() else { panic!("{:?}", policy.rules) };
    let told = |rule: &Rule| -> Vec<(String, Origin, Storage, bool, bool)> {
        let told = |source: &Source| {
            (source.label.clone(), source.origin.clone(), source.storage, source.trusted, source.refuses_doubled)
        };
        rule.sources.iter().map(told).collect()
    };
    let row = |label: &str, origin, storage, trusted, doubled| (label.to_owned(), origin, storage, trusted, doubled);
    let (plain, secret) = (Storage::Plain, Storage::Secret);
    let forwarded = |entry, prefix| Origin::ClientIp(AddressFrom::Forwarded(entry), prefix);
    let wanted = [
        row("client_ip", Origin::ClientIp(AddressFrom::Host, 56), plain, true, false),
        row("edge", forwarded(1, 64), plain, true, false),
        row("inner", forwarded(0, 128), plain, true, false),
        row("peer", forwarded(0, 64), plain, true, false),
    ];
    assert_eq!(told(per_ip), wanted);
    let part = |label: &str, origin, storage, trusted| Source {
        label: label.to_owned(),
        origin,
        storage,
        trusted,
        refuses_doubled: false,
    };
    let both = vec![part("host", Origin::Host, plain, true), part("header", header("x-org"), plain, true)];
    let three = vec![
        part("query", query("q"), secret, false),
        part("path_segment", Origin::PathSegment(1, paths), plain, false),
        part("client_ip", Origin::ClientIp(AddressFrom::Host, 64), plain, true),
    ];
    let wanted = [
        row("user", header("x-user"), plain, false, true),
        row("authorization", Origin::Bearer, secret, false, true),
        row("query", query("api_key"), secret, false, false),
        row("cookie", Origin::Cookie("sid".to_owned()), plain, false, false),
        row("host", Origin::Host, plain, false, false),
        row("path_segment", Origin::PathSegment(2, paths), plain, false, false),
        row("property", property(&["metadata", "sub"]), plain, false, false),
        row("all", Origin::All(both), plain, true, false),
        row("three", Origin::All(three), secret, false, false),
        row("constant", Origin::Constant("rest".to_owned()), plain, true, false),
    ];
    assert_eq!(told(per_user), wanted);
    let [entry] = per_ip.tiers[0].entries.as_slice() else { panic!("{:?}", per_ip.tiers) };
    let told = |limit: Limit| (limit.requests(), limit.period().0 / 1000, limit.burst());
    let limits: Vec<_> = entry.limits().map(told).collect();
    assert_eq!(limits, [(100, 1, 100), (1000, 60, 1000), (5000, 3600, 10_000)]);
    let own: Vec<_> = entry.allowance.bounded().iter().map(|bounded| bounded.own.map(told)).collect();
    assert_eq!(own, [Some((100, 10, 10)), Some((1000, 600, 100)), Some((5000, 36_000, 1000))]);
    let names: Vec<_> = per_user.tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(names, ["free", "gold", "", "", ""]);
    let sources: Vec<_> = per_user.tier_sources.iter().map(|source| source.origin.clone()).collect();
    assert_eq!(sources, [property(&["metadata", "plan"]), header("x-plan")]);
    let key = HashKey::new("secret");
    let tenant = |label, value: &str| Tenant::new(label, value.as_bytes(), plain, &key);
    let tenants = [
        (tenant("all", "a,b"), 1),
        (tenant("user", "ltd"), 0),
        (tenant("user", "mallory"), 2),
        (tenant("constant", "rest"), 3),
        (tenant("all", "a,acme"), 4),
    ];
    assert_eq!(per_user.tenants, tenants.into());
    let words: Vec<_> = per_user.tiers.iter().map(|tier| allowed(&tier.entries[0])).collect();
    let both = |minute: u64, hour: u64| {
        let limits = [(minute, 60_000), (hour, 3_600_000)];
        Allowed::Limits(
            limits.map(|(requests, per)| Limit::new(requests, Ms(per), requests).expect("a limit")).to_vec(),
        )
    };
    assert_eq!(words, [limit(60, 60, 60), both(600, 6000), Allowed::Deny, both(60, 600), Allowed::Unlimited]);
}

#[test]
fn a_limit_is_counted_as_its_rule_says_or_as_it_says_itself() {
    let policy = good("windows");
    let bucket = |requests, seconds: u64, burst| Limit::new(requests, Ms(seconds * 1000), burst).expect("a limit");
    let window =
        |requests, seconds: u64, spread| Limit::fixed_window(requests, Ms(seconds * 1000), spread).expect("a limit");
    let limits =
        |rule: usize, tier: usize| -> Vec<Limit> { policy.rules[rule].tiers[tier].entries[0].limits().collect() };
    assert_eq!(limits(0, 0), [window(100, 60, true), window(1000, 3600, false), bucket(20, 60, 30)]);
    assert_eq!(limits(0, 1), [bucket(600, 60, 600)]);
    assert_eq!(limits(1, 0), [bucket(100, 60, 100), window(100, 60, true), window(1, 86_400, false)]);
    let bounded = policy.rules[1].tiers[0].entries[0].allowance.bounded();
    let names: Vec<_> = bounded.iter().map(|bounded| (bounded.kind.period.0 / 1000, bounded.kind.format)).collect();
    assert_eq!(names, [(60, "t3"), (60, "w1"), (86_400, "w1")]);
    // A share of 33 of 100, of 333 of 1000, and of a bucket.
    let own: Vec<_> =
        policy.rules[0].tiers[0].entries[0].allowance.bounded().iter().map(|bounded| bounded.own).collect();
    let shares = [window(100, 60, true), window(1000, 3600, false), bucket(20, 60, 30)].map(|limit| limit.share(3, 1));
    assert_eq!(own, shares.map(Some));
    assert_eq!(shares.map(|share| share.burst()), [33, 333, 10]);
}
