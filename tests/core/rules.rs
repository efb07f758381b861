//! Which limit applies, under which key, and what is read for it.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::Policy;
use weir::request::{Class, Refused, classify};
use weir::rules::{Ask, Ruling, judge};

use crate::made::{Sent, ask_of, key_of, limit, policy_of};

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
    match judge(policy, &Sent::to(method, path, &[("x-user", user)])).ruling {
        Ruling::Pass => "pass".to_owned(),
        Ruling::Refuse(Refused::Malformed, None) => "malformed".to_owned(),
        Ruling::Refuse(Refused::Forbidden, Some(0)) => "forbidden".to_owned(),
        Ruling::Refuse(Refused::Doubled, Some(rule)) => format!("doubled {rule}"),
        Ruling::Refuse(refused, rule) => panic!("{refused:?} by {rule:?}"),
        Ruling::Ask(asks) => {
            let [ask] = asks.as_slice() else { panic!("{asks:?}") };
            let (limit, cost) = (ask.limit, ask.cost);
            let told = Ask { class: ask.class, tier: ask.tier, bucket: ask.bucket.clone(), ..ask_of("", limit, cost) };
            assert_eq!(*ask, told);
            let (key, period) = (key_of(policy, ask), limit.period().0);
            format!("{key} {}/{period} burst {} cost {cost}", limit.requests(), limit.burst())
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn class_and_tier_of_the_tenant_choose_the_limit() {
    let policy = tiers();
    let table = [
        ("GET", "/", "joe", "rl:{user.joe}:per-key:default:60000:t3 60/60000 burst 60 cost 1"),
        ("POST", "/", "joe", "rl:{user.joe}:per-key:write:1000:t3 5/1000 burst 5 cost 1"),
        ("POST", "/export", "joe", "rl:{user.joe}:per-key:export:3600000:t3 20/3600000 burst 30 cost 10"),
        ("TRACE", "/", "joe", "forbidden"),
        ("GET", "/healthz", "joe", "pass"),
        ("GET", "/%", "joe", "malformed"),
        ("GET", "/", "acme", "rl:{user.acme}:per-key:default:90000:t3 600/90000 burst 600 cost 1"),
        // All classes that fall to an entry share its bucket.
        ("POST", "/", "acme", "rl:{user.acme}:per-key:default:90000:t3 600/90000 burst 600 cost 1"),
        ("TRACE", "/", "acme", "rl:{user.acme}:per-key:default:90000:t3 600/90000 burst 600 cost 1"),
        ("POST", "/export", "acme", "pass"),
        ("GET", "/", "mallory", "forbidden"),
        ("POST", "/export", "mallory", "forbidden"),
        ("GET", "/healthz", "mallory", "pass"),
        ("GET", "/%", "mallory", "malformed"),
        ("GET", "/", "o:ps", "pass"),
        ("TRACE", "/", "o:ps", "pass"),
        // Tenants are written escaped, so none can look like another or leave the braces.
        ("GET", "/", "o%3Aps", "rl:{user.o%253Aps}:per-key:default:60000:t3 60/60000 burst 60 cost 1"),
        ("GET", "/", "acme}:x:{", "rl:{user.acme%7D%3Ax%3A%7B}:per-key:default:60000:t3 60/60000 burst 60 cost 1"),
        ("GET", "/", "Acme", "rl:{user.Acme}:per-key:default:60000:t3 60/60000 burst 60 cost 1"),
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
    assert_eq!(ruling(&policy, "POST", "/", "acme"), "rl:{user.acme}:per-key:write:60000:t3 10/60000 burst 10 cost 1");
    // A changed quota keeps the bucket; a changed period, namespace or entry is another.
    let changed = policy_of(USER, r#"{"requests": 7, "per": "60s", "burst": 9}"#, "", r#", "namespace": "shop""#);
    assert_eq!(
        ruling(&changed, "POST", "/", "acme"),
        "shop:{user.acme}:per-key:default:60000:t3 7/60000 burst 9 cost 1"
    );
    let secret = policy_of(r#"[{"authorization": {"scheme": "basic", "trusted": true}}]"#, r#""1/d""#, "", "");
    let sent = Sent::to("GET", "/", &[("authorization", "Basic YWxpY2U6cHc=")]);
    let key = "rl:{authorization.~4360c67bc81025114044578d7c4e8e0f}:per-key:default:86400000:t3";
    let Ruling::Ask(asks) = judge(&secret, &sent).ruling else { panic!("a limit applies") };
    assert_eq!(asks.iter().map(|ask| key_of(&secret, ask)).collect::<Vec<_>>(), [key]);
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
        ("x-key", "k2", Ruling::Refuse(Refused::Forbidden, Some(0))),
        ("x-user", "k1", Ruling::Refuse(Refused::Forbidden, Some(0))),
        ("x-user", long.as_str(), Ruling::Pass),
        // In a plain source this is a value like any other.
        ("x-user", "~c08d7bc803407e268b963d84dab029b1", Ruling::Pass),
        ("x-key", "~c08d7bc803407e268b963d84dab029b1", Ruling::Refuse(Refused::Forbidden, Some(0))),
    ];
    for (header, value, wanted) in table {
        assert_eq!(judge(&policy, &Sent::to("GET", "/", &[(header, value)])).ruling, wanted, "{header}: {value}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_names_nobody_is_what_missing_says() {
    let rulings = |missing: &str| {
        let policy =
            policy_of(USER, r#""60/m""#, &format!(r#", "missing": {missing}"#), CLASSES.replace("10}", "1}").as_str());
        [ruling(&policy, "GET", "/", ""), ruling(&policy, "GET", "/healthz", ""), ruling(&policy, "GET", "/%", "")]
    };
    let asks = "rl:{none.guest}:per-key:default:60000:t3 60/60000 burst 60 cost 1";
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
        (both, "", ["GET", "/"], &[("authorization", "Bearer t")], &["authorization"]),
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

/// Each bucket's key, or the name of the ruling.
fn keys(policy: &Policy, headers: &Headers) -> Vec<String> {
    match judge(policy, &Sent::to("GET", "/", headers)).ruling {
        Ruling::Ask(asks) => asks.iter().map(|ask| format!("{} {}", key_of(policy, ask), ask.limit.burst())).collect(),
        other => vec![format!("{other:?}")],
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn all_limits_of_a_list_hold() {
    let limits = r#"["10/s", "60/m", {"requests": 100, "per": "1h", "burst": 200}]"#;
    let rule = r#", "idempotency": {"header": "x-once"}, "on_error": "local""#;
    let policy = policy_of(USER, limits, rule, r#", "proxies": 10"#);
    let sent = Sent::to("GET", "/", &[("x-user", "joe"), ("x-once", "1")]);
    let Ruling::Ask(asks) = judge(&policy, &sent).ruling else { panic!("a limit applies") };
    let told: Vec<_> = asks.iter().map(|ask| (ask.rule, key_of(&policy, ask), ask.limit, ask.own)).collect();
    let key = |period: &str| format!("rl:{{user.joe}}:per-key:default:{period}:t3");
    let own = |requests, seconds, burst| Some(limit(requests, seconds, burst));
    assert_eq!(
        told,
        [
            (0, key("1000"), limit(10, 1, 10), own(10, 10, 1)),
            (0, key("60000"), limit(60, 60, 60), own(60, 600, 6)),
            (0, key("3600000"), limit(100, 3600, 200), own(100, 36_000, 20)),
        ]
    );
    // Each is charged, so each remembers by a name of its own.
    let names: std::collections::BTreeSet<_> =
        asks.iter().filter_map(|ask| ask.repeat.as_ref()).map(|repeat| &repeat.key).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    // What a repetition has to be the same in is read only of a request that may be one.
    assert_eq!(sent.read(), ["x-user", "x-once", ":path", ":method"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_repetition_is_the_same_in_class_cost_method_and_path() {
    let rule = r#", "idempotency": {"header": "x-once"}"#;
    let classes = r#", "classes": [
        {"class": "report", "match": {"methods": ["POST"], "path": "/v1/reports/{id}/export"}, "cost": 10},
        {"class": "report", "match": {"headers": {"x-large": {"present": true}}}, "cost": 5},
        {"class": "other", "match": {"headers": {"x-other": {"present": true}}}},
        {"class": "report", "match": {"path": "/v1/**"}}], "paths": {"malformed": "default"}"#;
    let policy = policy_of(USER, r#""60/m""#, rule, classes);
    let key = |method: &str, path: &str, more: &[(&str, &str)]| {
        let sent = Sent::to(method, path, &[&[("x-user", "joe"), ("x-once", "1")], more].concat());
        let Ruling::Ask(asks) = judge(&policy, &sent).ruling else { panic!("a limit applies") };
        asks[0].repeat.as_ref().map(|repeat| repeat.key.clone())
    };
    let one = key("GET", "/v1/reports/7", &[]);
    assert!(one.is_some());
    // Another spelling of the same, and another query.
    assert_eq!(key("GET", "//v1/./reports/%37?x=1", &[]), one);
    let others = [
        key("POST", "/v1/reports/7/export", &[]),
        key("GET", "/v1/reports/7/export", &[]),
        key("GET", "/v1/reports/8", &[]),
        key("POST", "/v1/reports/7", &[]),
        key("GET", "/v1/reports/7", &[("x-large", "")]),
        key("GET", "/v1/reports/7", &[("x-other", "")]),
        key("GET 7", "/v1/reports/7", &[]),
        one,
    ];
    let distinct: std::collections::BTreeSet<_> = others.iter().flatten().collect();
    assert_eq!(distinct.len(), 8, "{others:?}");
    // What has no normal form is always charged.
    assert_eq!(key("GET", "/v1/%zz", &[]), None);
}

#[wasm_bindgen_test(unsupported = test)]
fn an_override_wins_over_the_tier_and_the_tier_of_a_tenant_over_that_of_a_source() {
    let limits = r#"{"free": "1/m", "gold": ["2/m", "20/h"], "closed": "deny", "open": "unlimited"}"#;
    let rule = r#", "tier": {"default": "free", "tenants": {"user.acme": "gold", "user.both": "gold"},
            "sources": [{"header": {"name": "x-plan", "trusted": true}}, {"property": {"path": ["plan"], "trusted": true}}]},
        "overrides": {"user.both": "3/m", "user.mallory": "deny", "user.ops": "unlimited", "user.list": ["4/m", "40/h"],
            "none.anonymous": "deny"}"#;
    let policy = policy_of(USER, limits, rule, "");
    let key = |user: &str, period, burst| format!("rl:{{user.{user}}}:per-key:default:{period}:t3 {burst}");
    let minute = |user: &str, burst| vec![key(user, 60_000, burst)];
    let both = |user: &str, burst, of_hour| vec![key(user, 60_000, burst), key(user, 3_600_000, of_hour)];
    let (pass, forbidden) = (vec!["Pass".to_owned()], vec!["Refuse(Forbidden, Some(0))".to_owned()]);
    let table: &[(&Headers, Vec<String>, &[&str])] = &[
        (&[("x-user", "joe")], minute("joe", 1), &["x-user", "x-plan", ".plan"]),
        (&[("x-user", "joe"), ("x-plan", "gold")], both("joe", 2, 20), &["x-user", "x-plan"]),
        (&[("x-user", "joe"), (".plan", "gold")], both("joe", 2, 20), &["x-user", "x-plan", ".plan"]),
        (&[("x-user", "joe"), ("x-plan", ""), (".plan", "gold")], both("joe", 2, 20), &["x-user", "x-plan", ".plan"]),
        // The first source that yields a value decides, and what is no tier is the default one.
        (&[("x-user", "joe"), ("x-plan", "silver"), (".plan", "gold")], minute("joe", 1), &["x-user", "x-plan"]),
        (&[("x-user", "joe"), ("x-plan", "Gold")], minute("joe", 1), &["x-user", "x-plan"]),
        (&[("x-user", "joe"), ("x-plan", "closed")], forbidden.clone(), &["x-user", "x-plan"]),
        (&[("x-user", "joe"), ("x-plan", "open")], pass.clone(), &["x-user", "x-plan"]),
        // For whom the policy names, nothing more is read.
        (&[("x-user", "acme"), ("x-plan", "open")], both("acme", 2, 20), &["x-user"]),
        (&[("x-user", "both"), ("x-plan", "open")], minute("both", 3), &["x-user"]),
        (&[("x-user", "mallory"), ("x-plan", "open")], forbidden.clone(), &["x-user"]),
        (&[("x-user", "ops")], pass, &["x-user"]),
        (&[("x-user", "list")], both("list", 4, 40), &["x-user"]),
        (&[("x-plan", "open")], forbidden, &["x-user"]),
    ];
    for (headers, wanted, read) in table {
        assert_eq!(keys(&policy, headers), *wanted, "{headers:?}");
        let sent = Sent::to("GET", "/", headers);
        judge(&policy, &sent);
        assert_eq!(sent.read(), *read, "{headers:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn classes_match_more_than_methods_and_paths() {
    let classes = r#", "classes": [
        {"class": "preflight", "match": {"methods": ["OPTIONS"], "headers": {"access-control-request-method": {"present": true}}}},
        {"class": "beta", "match": {"host": "*.beta.example.com", "query": {"v": {"exact": "2"}}}},
        {"class": "shop", "match": {"host": "shop.example.com"}},
        {"class": "local", "match": {"host": "[2001:db8::1]"}},
        {"class": "cart", "match": {"grpc": {"service": "shop.v1.Cart", "method": "Get"}}},
        {"class": "carts", "match": {"grpc": {"service": "shop.v1.Cart"}}},
        {"class": "watch", "match": {"grpc": {"method": "Watch"}}},
        {"class": "exact", "match": {"headers": {"x-a": {"exact": "1"}, "x-b": {"exact": ""}}}},
        {"class": "route", "match": {"route_name": "checkout"}},
        {"class": "metadata", "match": {"route_metadata": {"path": ["weir", "class"], "exact": "slow"}}}]"#;
    let policy = policy_of(r#"[{"constant": "all"}]"#, r#""60/m""#, "", classes);
    let table: &[(&str, &str, &Headers, &str)] = &[
        ("OPTIONS", "/", &[("access-control-request-method", "GET")], "preflight"),
        ("OPTIONS", "/", &[("access-control-request-method", "")], "preflight"),
        ("OPTIONS", "/", &[], "default"),
        ("GET", "/", &[("access-control-request-method", "GET")], "default"),
        ("GET", "/?v=2", &[(":authority", "a.beta.example.com")], "beta"),
        ("GET", "/?%76=%32", &[(":authority", "A.b.BETA.example.com.:443")], "beta"),
        ("GET", "/?v=3", &[(":authority", "a.beta.example.com")], "default"),
        ("GET", "/?v=3&v=2", &[(":authority", "a.beta.example.com")], "default"),
        ("GET", "/?v=2", &[(":authority", "beta.example.com")], "default"),
        ("GET", "/?v=2", &[(":authority", ".beta.example.com")], "default"),
        ("GET", "/?v=2", &[(":authority", "a.beta.example.com.evil.org")], "default"),
        ("GET", "/", &[(":authority", "Shop.Example.Com:8443")], "shop"),
        ("GET", "/", &[(":authority", "shop.example.com..:8443")], "shop"),
        ("GET", "/", &[(":authority", "[2001:DB8:0:0::1]:8443")], "local"),
        ("GET", "/", &[(":authority", "[2001:db8::2]")], "default"),
        ("GET", "/?v=2", &[(":authority", "a.beta.example.com..")], "beta"),
        ("GET", "/", &[(":authority", "xshop.example.com")], "default"),
        ("POST", "/shop.v1.Cart/Get", &[("content-type", "application/grpc")], "cart"),
        ("POST", "/shop.v1.Cart/Get", &[], "cart"),
        ("POST", "//shop.v1.Cart/%47et", &[], "cart"),
        ("POST", "/shop.v1.Cart/Put", &[], "carts"),
        ("POST", "/other.Service/Watch", &[], "watch"),
        ("POST", "/shop.v1.Cart", &[], "default"),
        ("POST", "/x/shop.v1.Cart/Get", &[], "default"),
        ("GET", "/", &[("x-a", "1"), ("x-b", "")], "exact"),
        ("GET", "/", &[("x-a", "1")], "default"),
        ("GET", "/", &[("x-a", "2"), ("x-b", "")], "default"),
        ("GET", "/", &[(".xds.route_name", "checkout")], "route"),
        ("GET", "/", &[(".xds.route_name", "checkouts")], "default"),
        ("GET", "/", &[(".xds.route_metadata.filter_metadata.weir.class", "slow")], "metadata"),
        ("GET", "/", &[(".xds.route_metadata.filter_metadata.weir.class", "fast")], "default"),
    ];
    for (method, path, headers, wanted) in table {
        let Ok(Class::Charged(class, 1)) = classify(&policy.classes, &Sent::to(method, path, headers)) else {
            panic!("{method} {path} {headers:?}")
        };
        assert_eq!(policy.classes.names[class.0], *wanted, "{method} {path} {headers:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_malformed_path_is_refused_or_in_default() {
    let classes = |paths: &str| {
        format!(
            r#", "paths": {{"malformed": {paths}}}, "classes": [
            {{"class": "options", "match": {{"methods": ["OPTIONS"]}}}}, {{"class": "a", "match": {{"path": "/a"}}}},
            {{"class": "post", "match": {{"methods": ["POST"]}}}}]"#
        )
    };
    let class = |paths: &str, method| {
        let policy = policy_of(r#"[{"constant": "all"}]"#, r#""60/m""#, "", &classes(paths));
        match classify(&policy.classes, &Sent::to(method, "/%zz", &[])) {
            Ok(Class::Charged(class, _)) => policy.classes.names[class.0].clone(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(
        ["OPTIONS", "GET", "POST"].map(|method| class("400", method)),
        ["options", "Err(Malformed)", "Err(Malformed)"]
    );
    assert_eq!(
        ["OPTIONS", "GET", "POST"].map(|method| class("\"default\"", method)),
        ["options", "default", "default"]
    );
}

#[cfg(feature = "regex")]
#[wasm_bindgen_test(unsupported = test)]
fn an_expression_is_for_the_whole_path_in_normal_form() {
    let classes = |regex: &str| format!(r#", "classes": [{{"class": "a", "match": {{"path_regex": "{regex}"}}}}]"#);
    let table = [
        ("/v[0-9]+/users/.*", "/v1/users/7", true),
        ("/v[0-9]+/users/.*", "//v%31/x/../users/7?q", true),
        ("/v[0-9]+/users/.*", "/x/v1/users/7", false),
        ("/v[0-9]+/users/.*", "/vx/users/7", false),
        ("/a|/b", "/b", true),
        ("/a|/b", "/b/c", false),
        ("/a|/b", "/x/a", false),
        (".*", "*", true),
        (".*", "", false),
        ("(a*)*b", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    ];
    for (regex, path, wanted) in table {
        let policy = policy_of(r#"[{"constant": "all"}]"#, r#""60/m""#, "", &classes(regex));
        let class = classify(&policy.classes, &Sent::to("GET", path, &[]));
        assert_eq!(class == Ok(Class::Charged(weir::policy::ClassId(1), 1)), wanted, "{regex} {path}");
    }
    let policy = policy_of(r#"[{"constant": "all"}]"#, r#""60/m""#, "", &classes("/a"));
    assert_eq!(classify(&policy.classes, &Sent::to("GET", "/%zz", &[])), Err(weir::path::Malformed));
    for bad in ["(", "a)(b", "[", "(?:(?:(?:a{900}){900}){900})"] {
        assert!(weir::path::Regex::parse(bad).is_none(), "{bad}");
    }
}
