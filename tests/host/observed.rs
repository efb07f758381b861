//! What those who run the proxy see: metrics, the decision in filter state, the debug header, the busiest tenants.

use serde_json::{Value, json};

use crate::fake::{Phase, fake};
use crate::policy::{grants, lease, lends, local, long, policy};
use crate::proxy::{HASH_SECRET, Proxy, in_vm, with_policy};

fn metrics(proxy: &Proxy) -> Vec<(String, i64)> {
    // The fingerprint of a policy says nothing here.
    proxy.metrics().into_iter().filter(|(name, _)| name != "policy").collect()
}

fn named(metrics: &[(&str, i64)]) -> Vec<(String, i64)> {
    metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn decisions_are_counted_by_rule_class_tier_and_outcome() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.get(root, "u1");
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(0, &[1]));
        proxy.get(root, "acme");
        for path in ["/healthz", "/admin/x", "/%zz"] {
            proxy.request(root, &[(":method", "GET"), (":path", path), ("x-user-id", "u1")]);
        }
        let told = [
            ("decisions.per-user.admin.free.forbidden", 1),
            ("decisions.per-user.default.free.allowed", 1),
            ("decisions.per-user.default.free.limited", 1),
            ("decisions.per-user.default.gold.unlimited", 1),
            ("decisions.~none.health.~none.exempt", 1),
            ("decisions.~none.~none.~none.malformed", 1),
            ("limiter_calls.main.ok", 1),
        ];
        assert_eq!(metrics(proxy), named(&told));
    });
}

#[test]
fn a_lease_is_recorded_with_its_size_and_a_call_with_its_end() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[("/rules/0/on_error", json!("allow"))]));
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(r#"{"EVALSHA":[false,"NOSCRIPT No matching script."]}"#);
        proxy.answer(lends(996, long(0, 3), &[1]).replace("EVALSHA", "EVAL"));
        proxy.get(root, "u2");
        proxy.run();
        proxy.reset(&proxy.call());
        let told = [
            ("decisions.per-user.default.free.allowed", 2),
            ("degraded", 1),
            ("degraded_decisions.per-user.reset", 1),
            ("lease_tokens.per-user", 3),
            ("limiter_calls.main.no_script", 1),
            ("limiter_calls.main.ok", 1),
            ("limiter_calls.main.reset", 1),
        ];
        assert_eq!(metrics(proxy), named(&told));
    });
}

#[test]
fn gauges_tell_of_an_open_breaker_and_of_degraded_decisions_and_of_their_end() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        let gauges = |proxy: &Proxy| {
            let metrics = proxy.metrics();
            [metrics.get("breaker_open.main").copied(), metrics.get("degraded").copied()]
        };
        assert_eq!(gauges(proxy), [None, None], "defined, and never set");
        for _ in 0..5 {
            proxy.get(root, "u1");
            proxy.run();
            proxy.reset(&proxy.call());
        }
        assert_eq!(gauges(proxy), [None, Some(1)]);
        proxy.advance(10);
        assert_eq!(gauges(proxy), [Some(1), Some(1)]);
        proxy.advance(200);
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(59, &[1]));
        proxy.advance(10);
        assert_eq!(gauges(proxy), [Some(0), Some(1)]);
        // Two seconds after the last of them.
        proxy.advance(1780);
        assert_eq!(gauges(proxy), [Some(0), Some(1)]);
        proxy.advance(20);
        assert_eq!(gauges(proxy), [Some(0), Some(0)]);
    });
}

#[test]
fn a_policy_is_told_apart_by_its_fingerprint_whatever_the_order_of_its_keys() {
    in_vm(|proxy| {
        let text = policy(&[]).to_string();
        let root = proxy.root(&policy(&[]));
        let first = proxy.metrics()["policy"];
        assert!((1..1 << 32).contains(&first));
        let turned = text.replacen(r#","version":1"#, "", 1).replacen('{', r#"{"version":1.0,"#, 1);
        assert_ne!(turned, text);
        assert!(proxy.configure(root, turned));
        assert_eq!(proxy.metrics()["policy"], first);
        assert!(proxy.configure(root, policy(&[("/rules/0/limits/free/default", json!("61/m"))]).to_string()));
        assert_ne!(proxy.metrics()["policy"], first);
    });
}

#[test]
fn tenants_that_had_to_go_and_writes_that_came_too_late_are_counted() {
    in_vm(|proxy| {
        // Eight sets of eight.
        let root = proxy.root(&local(&[("/table", json!({"entries": 64}))]));
        for user in 0..200 {
            proxy.get(root, &format!("u{user}"));
        }
        proxy.advance(10);
        assert_eq!(proxy.metrics()["table_evictions"], 200 - 64);
        proxy.space().lose("table", 3);
        proxy.get(root, "u1");
        proxy.advance(10);
        assert_eq!(proxy.metrics()["shared_data_conflicts"], 3);
    });
}

#[test]
fn a_new_policy_neither_keeps_what_was_said_of_the_old_one_nor_counts_it_again() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        proxy.get(root, "u1");
        proxy.run();
        proxy.reset(&proxy.call());
        proxy.space().lose("table", 3);
        proxy.get(root, "u1");
        proxy.advance(10);
        let told = |proxy: &Proxy| ["degraded", "shared_data_conflicts"].map(|name| proxy.metrics()[name]);
        assert_eq!(told(proxy), [1, 3]);
        assert!(proxy.configure(root, lease(&[("/rules/0/limits/free/default", json!("1001/s"))]).to_string()));
        proxy.advance(10);
        assert_eq!(told(proxy), [0, 3]);
    });
}

#[test]
fn a_proxy_is_degraded_as_long_as_one_of_its_policies_is() {
    in_vm(|proxy| {
        let [often, once] = [proxy.root(&policy(&[])), proxy.root(&policy(&[]))];
        let fails = |root: u32, user: &str| {
            proxy.get(root, user);
            proxy.run();
            proxy.reset(&proxy.call());
        };
        fails(once, "u1");
        for at in 0..5 {
            fails(often, &format!("u{}", at + 2));
            proxy.advance(500);
        }
        // The one has told of the end, and the other tells that it goes on.
        for root in [once, often] {
            proxy.tick(root);
        }
        assert_eq!(proxy.metrics()["degraded"], 1);
        proxy.advance(2100);
        for root in [often, once] {
            proxy.tick(root);
        }
        assert_eq!(proxy.metrics()["degraded"], 0);
    });
}

fn observe(observe: Value) -> Value {
    local(&[("/observe", observe)])
}

fn sent(proxy: &Proxy, root: u32, path: &str, secret: &str) -> u32 {
    let headers = [(":method", "GET"), (":path", path), ("x-user-id", "u1"), ("x-weir-debug", secret)];
    proxy.request(root, &headers[..if secret.is_empty() { 3 } else { 4 }])
}

#[test]
fn the_debug_header_answers_those_who_know_the_secret() {
    in_vm(|proxy| {
        let root = proxy.root(&observe(json!({"secret_env": "CANARY_HASH"})));
        let told = "rule=per-user class=default tier=free outcome=allowed source=local remaining=29 \
                    key=rl:{user.u1}:per-user:default:60000:t3";
        let debug = |proxy: &Proxy, stream| {
            proxy.sees(stream).split(" | ").find_map(|line| line.strip_prefix("x-weir-debug: ").map(str::to_owned))
        };
        let stream = sent(proxy, root, "/", HASH_SECRET);
        assert!(fake(|host| host.streams[&stream].request.iter().all(|(name, _)| name != "x-weir-debug")));
        assert_eq!(debug(proxy, stream).as_deref(), Some(told));
        let longer = format!("{HASH_SECRET}x");
        for wrong in ["", "x", &HASH_SECRET[1..], longer.as_str(), &HASH_SECRET.to_uppercase()] {
            let stream = sent(proxy, root, "/", wrong);
            assert_eq!(debug(proxy, stream), None, "{wrong}");
        }
        proxy.gets(root, "u1", 30);
        let stream = sent(proxy, root, "/", HASH_SECRET);
        assert_eq!(proxy.phase(stream), Phase::Answered);
        let refused = told.replace("allowed", "limited").replace("29", "0");
        assert_eq!(debug(proxy, stream), Some(refused));
        let exempt = sent(proxy, root, "/healthz", HASH_SECRET);
        assert_eq!(debug(proxy, exempt).as_deref(), Some("class=health outcome=exempt"));
    });
    // Under another name, and for one that waits.
    with_policy(&[("/observe", json!({"secret_env": "CANARY_HASH", "debug_header": "x-why"}))], |proxy, root| {
        let headers = [(":method", "GET"), (":path", "/"), ("x-user-id", "u1"), ("x-why", HASH_SECRET)];
        let stream = proxy.request(root, &headers);
        proxy.run();
        proxy.answer(grants(59, &[1]));
        let told = "x-why: rule=per-user class=default tier=free outcome=allowed source=limiter remaining=59 \
                    key=rl:{user.u1}:per-user:default:60000:t3";
        assert!(proxy.sees(stream).contains(told), "{}", proxy.sees(stream));
    });
    // Without `observe` the header is nothing, and stays.
    with_policy(&[], |proxy, root| {
        let stream = sent(proxy, root, "/healthz", HASH_SECRET);
        assert!(fake(|host| host.streams[&stream].request.iter().any(|(name, _)| name == "x-weir-debug")));
        assert!(!proxy.sees(stream).contains("x-weir-debug"));
    });
}

#[test]
fn each_decision_is_in_the_filter_state_where_the_policy_has_it_there() {
    let state = |stream: u32| fake(|host| host.streams[&stream].filter_state.get("weir").cloned());
    in_vm(|proxy| {
        let root = proxy.root(&observe(json!({"filter_state": true})));
        let stream = sent(proxy, root, "/", "");
        let told = "rule=per-user class=default tier=free outcome=allowed source=local remaining=29";
        assert_eq!(state(stream).as_deref(), Some(told));
    });
    with_policy(&[("/observe", json!({"filter_state": true}))], |proxy, root| {
        let stream = sent(proxy, root, "/", "");
        assert_eq!(state(stream), None, "it waits");
        proxy.run();
        proxy.answer(grants(0, &[0]));
        let told = "rule=per-user class=default tier=free outcome=limited source=limiter remaining=0";
        assert_eq!(state(stream).as_deref(), Some(told));
    });
    with_policy(&[], |proxy, root| assert_eq!(state(sent(proxy, root, "/healthz", "")), None));
}

#[test]
fn the_filter_itself_tells_who_comes_most_to_those_who_know_the_secret() {
    in_vm(|proxy| {
        let root = proxy.root(&observe(json!({"secret_env": "CANARY_HASH", "top_path": "/.weir/top"})));
        // The first tick begins the first second.
        proxy.tick(root);
        proxy.gets(root, "u1", 31);
        proxy.get(root, "u2");
        proxy.advance(1000);
        let stream = sent(proxy, root, "/.weir/top?x", HASH_SECRET);
        assert_eq!(proxy.phase(stream), Phase::Answered);
        let sees = proxy.sees(stream);
        let body = r#"{"rules":[{"rule":"per-user","refused":{"milliseconds":1000,"tenants":[{"tenant":"user.u1","count":1,"error":0}]},"busiest":{"milliseconds":1000,"tenants":[{"tenant":"user.u1","count":31,"error":0},{"tenant":"user.u2","count":1,"error":0}]}}]}"#;
        assert_eq!(sees, format!("200 | content-type: application/json | cache-control: no-store | {body}"));
        // It is no request of a tenant's.
        assert_eq!(proxy.metrics()["decisions.per-user.default.free.allowed"], 31);
        // Without the secret it is a path like any other.
        for wrong in ["", "x"] {
            let stream = sent(proxy, root, "/.weir/top", wrong);
            assert_eq!(proxy.phase(stream), Phase::Answered);
            assert!(proxy.sees(stream).starts_with("429"), "{}", proxy.sees(stream));
        }
        let other = sent(proxy, root, "/.weir/top/x", HASH_SECRET);
        assert!(proxy.sees(other).starts_with("429"));
    });
}
