//! Which limit applies, under which key, and what is read for it.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::Policy;
use weir::rule::{Ruling, judge};

use crate::made::{Sent, ask_of, limit, policy_of};

const USER: &str = r#"[{"header": {"name": "x-user", "as": "user", "trusted": true}}]"#;

const CLASSES: &str = r#", "classes": [
    {"class": "health", "match": {"path": "/healthz"}, "exempt": true},
    {"class": "export", "match": {"methods": ["POST"], "path": "/export"}, "cost": 10},
    {"class": "write", "match": {"methods": ["POST"]}},
    {"class": "read", "match": {"methods": ["GET"]}},
    {"class": "ban", "match": {"methods": ["TRACE"]}}]"#;

fn tiers() -> Policy {
    let limits = r#"{
        "free": {"default": "60/m", "write": "5/s", "export": {"requests": 20, "per": "1h", "burst": 30}, "ban": "deny"},
        "gold": {"default": {"requests": 600, "per": "90s"}, "export": "unlimited"},
        "none": "deny",
        "ops": "unlimited"}"#;
    let tier = r#", "tier": {"default": "free",
        "tenants": {"user.acme": "gold", "user.mallory": "none", "user.o:ps": "ops", "none.anonymous": "none"}}"#;
    policy_of(USER, limits, tier, CLASSES)
}

type Headers<'h> = [(&'h str, &'h str)];

/// Key and classes of a policy, method and path, headers, and what is read.
type Reading<'h> = (&'h str, &'h str, [&'h str; 2], &'h Headers<'h>, &'h [&'h str]);

/// Key, requests, period in seconds, burst and cost; or the name of the ruling.
fn ruling(policy: &Policy, method: &str, path: &str, user: &str) -> String {
    match judge(policy, &Sent::to(method, path, &[("x-user", user)])) {
        Ruling::Pass => "pass".to_owned(),
        Ruling::Malformed => "malformed".to_owned(),
        Ruling::Forbidden(0) => "forbidden".to_owned(),
        Ruling::Forbidden(rule) => panic!("there is no rule {rule}"),
        Ruling::Ask(asks) => {
            let [ask] = asks.as_slice() else { panic!("{asks:?}") };
            let (limit, cost) = (ask.limit, ask.cost);
            assert_eq!(*ask, ask_of(&ask.key, limit, cost));
            format!("{} {}/{} burst {} cost {cost}", ask.key, limit.requests(), limit.period().0, limit.burst())
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn class_and_tier_of_the_tenant_choose_the_limit() {
    let policy = tiers();
    let table = [
        ("GET", "/", "joe", "rl:{user.joe}:per-key:default:60000:t2 60/60000 burst 60 cost 1"),
        ("POST", "/", "joe", "rl:{user.joe}:per-key:write:1000:t2 5/1000 burst 5 cost 1"),
        ("POST", "/export", "joe", "rl:{user.joe}:per-key:export:3600000:t2 20/3600000 burst 30 cost 10"),
        ("TRACE", "/", "joe", "forbidden"),
        ("GET", "/healthz", "joe", "pass"),
        ("GET", "/%", "joe", "malformed"),
        ("GET", "/", "acme", "rl:{user.acme}:per-key:default:90000:t2 600/90000 burst 600 cost 1"),
        // All classes that fall to an entry share its bucket.
        ("POST", "/", "acme", "rl:{user.acme}:per-key:default:90000:t2 600/90000 burst 600 cost 1"),
        ("TRACE", "/", "acme", "rl:{user.acme}:per-key:default:90000:t2 600/90000 burst 600 cost 1"),
        ("POST", "/export", "acme", "pass"),
        ("GET", "/", "mallory", "forbidden"),
        ("POST", "/export", "mallory", "forbidden"),
        ("GET", "/healthz", "mallory", "pass"),
        ("GET", "/%", "mallory", "malformed"),
        ("GET", "/", "o:ps", "pass"),
        ("TRACE", "/", "o:ps", "pass"),
        // Tenants are written escaped, so none can look like another or leave the braces.
        ("GET", "/", "o%3Aps", "rl:{user.o%253Aps}:per-key:default:60000:t2 60/60000 burst 60 cost 1"),
        ("GET", "/", "acme}:x:{", "rl:{user.acme%7D%3Ax%3A%7B}:per-key:default:60000:t2 60/60000 burst 60 cost 1"),
        ("GET", "/", "Acme", "rl:{user.Acme}:per-key:default:60000:t2 60/60000 burst 60 cost 1"),
        ("GET", "/", "", "forbidden"),
    ];
    for (method, path, user, wanted) in table {
        assert_eq!(ruling(&policy, method, path, user), wanted, "{method} {path} by {user}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_key_names_namespace_tenant_rule_entry_period_and_format() {
    let classes = r#", "classes": [{"class": "write", "match": {"methods": ["POST"]}}]"#;
    let limits = r#"{"default": {"default": "60/m", "write": "10/m"}}"#;
    let policy = policy_of(USER, limits, "", classes);
    assert_eq!(ruling(&policy, "POST", "/", "acme"), "rl:{user.acme}:per-key:write:60000:t2 10/60000 burst 10 cost 1");
    // A changed quota keeps the bucket; a changed period, namespace or entry is another.
    let changed = policy_of(USER, r#"{"requests": 7, "per": "60s", "burst": 9}"#, "", r#", "namespace": "shop""#);
    assert_eq!(
        ruling(&changed, "POST", "/", "acme"),
        "shop:{user.acme}:per-key:default:60000:t2 7/60000 burst 9 cost 1"
    );
    let secret = policy_of(r#"[{"authorization": {"scheme": "basic", "trusted": true}}]"#, r#""1/d""#, "", "");
    let sent = Sent::to("GET", "/", &[("authorization", "Basic YWxpY2U6cHc=")]);
    let key = "rl:{authorization.~4360c67bc81025114044578d7c4e8e0f}:per-key:default:86400000:t2";
    assert_eq!(judge(&secret, &sent), Ruling::Ask(vec![ask_of(key, limit(1, 86_400, 1), 1)]));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_tenant_of_the_policy_is_found_by_its_hash_and_by_its_long_value() {
    let long = "a".repeat(65);
    let key = r#"[{"header": {"name": "x-key", "as": "key", "secret": true, "trusted": true}},
        {"header": {"name": "x-user", "as": "user", "trusted": true}}]"#;
    let tier = format!(
        r#", "tier": {{"default": "free", "tenants": {{"key.~c08d7bc803407e268b963d84dab029b1": "ops", "user.{long}": "ops",
            "user.~c08d7bc803407e268b963d84dab029b1": "ops"}}}}"#
    );
    let policy = policy_of(key, r#"{"free": "deny", "ops": "unlimited"}"#, &tier, "");
    let table = [
        ("x-key", "k1", Ruling::Pass),
        ("x-key", "k2", Ruling::Forbidden(0)),
        ("x-user", "k1", Ruling::Forbidden(0)),
        ("x-user", long.as_str(), Ruling::Pass),
        // In a plain source this is a value like any other.
        ("x-user", "~c08d7bc803407e268b963d84dab029b1", Ruling::Pass),
        ("x-key", "~c08d7bc803407e268b963d84dab029b1", Ruling::Forbidden(0)),
    ];
    for (header, value, wanted) in table {
        assert_eq!(judge(&policy, &Sent::to("GET", "/", &[(header, value)])), wanted, "{header}: {value}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_names_nobody_is_what_missing_says() {
    let rulings = |missing: &str| {
        let policy =
            policy_of(USER, r#""60/m""#, &format!(r#", "missing": {missing}"#), CLASSES.replace("10}", "1}").as_str());
        [ruling(&policy, "GET", "/", ""), ruling(&policy, "GET", "/healthz", ""), ruling(&policy, "GET", "/%", "")]
    };
    let asks = "rl:{none.guest}:per-key:default:60000:t2 60/60000 burst 60 cost 1";
    assert_eq!(rulings(r#"{"as": "guest"}"#), [asks, "pass", "malformed"]);
    assert_eq!(rulings("\"deny\""), ["forbidden", "pass", "malformed"]);
    assert_eq!(rulings("\"skip\""), ["pass", "pass", "malformed"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn nothing_is_read_that_the_policy_does_not_ask_for() {
    let constant = r#"[{"constant": "all"}]"#;
    let two = r#"[{"header": {"name": "x-a", "as": "a", "trusted": true}}, {"constant": "all"},
        {"header": {"name": "x-b", "as": "b", "trusted": true}}]"#;
    let both = r#"[{"authorization": {"scheme": "basic", "as": "a", "trusted": true}},
        {"authorization": {"scheme": "bearer", "as": "b", "trusted": true}}]"#;
    let methods = r#", "classes": [{"class": "w", "match": {"methods": ["POST"]}}, {"class": "r", "match": {"methods": ["GET"]}}]"#;
    let paths = r#", "classes": [{"class": "a", "match": {"path": "/a"}, "exempt": true}, {"class": "b", "match": {"path": "/b"}}]"#;
    let mixed = r#", "classes": [{"class": "w", "match": {"methods": ["POST"], "path": "/a"}}, {"class": "r", "match": {"path": "/b"}}]"#;
    let table: [Reading; 12] = [
        (constant, "", ["GET", "/"], &[], &[]),
        (USER, "", ["GET", "/"], &[("x-user", "u")], &["x-user"]),
        (USER, "", ["GET", "/"], &[], &["x-user"]),
        (two, "", ["GET", "/"], &[("x-a", "u"), ("x-b", "u")], &["x-a"]),
        (two, "", ["GET", "/"], &[("x-b", "u")], &["x-a"]),
        (both, "", ["GET", "/"], &[("authorization", "Bearer t")], &["authorization", "authorization"]),
        (constant, methods, ["GET", "/"], &[], &[":method"]),
        (USER, methods, ["DELETE", "/"], &[], &[":method", "x-user"]),
        (USER, paths, ["GET", "/b"], &[], &[":path", "x-user"]),
        (USER, paths, ["GET", "/a"], &[], &[":path"]),
        (USER, mixed, ["GET", "/b"], &[], &[":method", ":path", "x-user"]),
        (USER, mixed, ["POST", "/%"], &[], &[":method", ":path"]),
    ];
    for (key, classes, [method, path], headers, wanted) in table {
        let sent = Sent::to(method, path, headers);
        judge(&policy_of(key, r#""60/m""#, "", classes), &sent);
        assert_eq!(sent.read(), wanted, "{key} {classes} {method} {path}");
    }
    // An absent method is asked for once too.
    let sent = Sent::new(&[]);
    judge(&policy_of(constant, r#""60/m""#, "", methods), &sent);
    assert_eq!(sent.read(), [":method"]);
    // And so is an absent path.
    let sent = Sent::new(&[]);
    judge(&policy_of(constant, r#""60/m""#, "", paths), &sent);
    assert_eq!(sent.read(), [":path"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn limits_that_are_near_each_other_are_told_apart() {
    let mut epochs = std::collections::BTreeSet::new();
    for requests in 1..=60 {
        for burst in 1..=60 {
            let limit = limit(requests, 60, burst);
            epochs.insert(ask_of("", limit, 1).epoch());
        }
    }
    assert_eq!(epochs.len(), 3600);
}
