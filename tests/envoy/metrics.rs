//! What a real Envoy exports of weir, and what its access log and those who know the secret are told.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use weir_stack::{Client, Listeners, Request, Response};

use crate::lifecycle::{patterns, start};
use crate::listener::{listener, manager, weir};
use crate::rig::{Options, Rig, of};

/// A policy with a lease, a local bucket, tiers and classes; nothing comes back to a bucket while the test runs.
const POLICY: &str = r#"{"version": 1, "proxies": 1,
    "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "2s"}},
    "classes": [{"class": "health", "match": {"path": "/healthz"}, "exempt": true},
        {"class": "write", "match": {"methods": ["POST"]}}],
    "rules": [
        {"name": "per-user", "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
            "tier": {"default": "free", "tenants": {"user.acme": "gold"}},
            "limits": {"free": {"default": "500/d", "write": "3/d"}, "gold": "unlimited"}, "on_error": "deny"},
        {"name": "here", "key": [{"constant": "all"}], "mode": "local", "limits": "20/d"}],
    "observe": {"secret_env": "WEIR_DEBUG_SECRET", "top_path": "/.weir/top"}}"#;

const SECRET: &str = "open sesame";

fn observed() -> Rig {
    Rig::start(POLICY, Options { envoys: 1, env: &[("WEIR_DEBUG_SECRET", SECRET)], ..Options::default() })
}

fn send(rig: &Rig, request: &Request) -> Response {
    Client::new(rig.envoys[0].port()).send(request).unwrap()
}

/// The samples of weir as Prometheus gets them, by name and labels; of a histogram its count.
fn prometheus(rig: &Rig) -> BTreeMap<String, u64> {
    let text = rig.envoys[0].admin("/stats/prometheus").unwrap().text();
    let samples = text.lines().filter(|line| line.starts_with("weir_") && !line.contains("_bucket{"));
    let samples = samples.filter(|line| !line.contains("_sum{"));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("an integer"))
    };
    samples.map(sample).collect()
}

#[test]
fn prometheus_gets_rules_classes_tiers_and_outcomes_as_labels() {
    let rig = observed();
    for (path, user, count) in [("/healthz", "bob", 2), ("/", "acme", 3), ("/", "bob", 4), ("/%zz", "bob", 1)] {
        for _ in 0..count {
            send(&rig, &Request::get(path).header("x-user-id", user));
        }
    }
    let statuses: Vec<u16> =
        (0..5).map(|_| send(&rig, &Request::new("POST", "/").header("x-user-id", "bob")).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429], "{}", rig.envoys[0].log());
    let decision = |rule: &str, class: &str, tier: &str, outcome: &str| {
        format!(
            r#"weir_decisions{{weir_namespace="rl",weir_rule="{rule}",weir_class="{class}",weir_tier="{tier}",weir_outcome="{outcome}"}}"#
        )
    };
    let wanted: BTreeMap<String, u64> = [
        (decision("~none", "health", "~none", "exempt"), 2),
        (decision("~none", "~none", "~none", "malformed"), 1),
        (decision("per-user", "default", "gold", "unlimited"), 3),
        (decision("per-user", "default", "free", "allowed"), 4),
        (decision("per-user", "write", "free", "allowed"), 3),
        (decision("per-user", "write", "free", "limited"), 2),
        (decision("here", "default", "default", "allowed"), 7),
        (decision("here", "write", "default", "allowed"), 3),
    ]
    .into();
    let told = prometheus(&rig);
    let decisions: BTreeMap<_, _> = told
        .iter()
        .filter(|(name, _)| name.starts_with("weir_decisions"))
        .map(|(name, n)| (name.clone(), *n))
        .collect();
    assert_eq!(decisions, wanted);
    let told = |name: &str| told.get(name).copied();
    let limiter = |name: &str, more: &str| format!(r#"{name}{{weir_namespace="rl"{more},weir_limiter="main"}}"#);
    let calls = told(&limiter("weir_limiter_calls", r#",weir_outcome="ok""#)).expect("calls");
    // The first call finds a Redis that does not know the script.
    assert_eq!(told(&limiter("weir_limiter_calls", r#",weir_outcome="no_script""#)), Some(1));
    assert_eq!(calls + 1, rig.redis.script_runs().unwrap());
    assert_eq!(told(&limiter("weir_breaker_open", "")), Some(0));
    assert_eq!(told(r#"weir_degraded{weir_namespace="rl"}"#), Some(0));
    assert!(told(r#"weir_policy{weir_namespace="rl"}"#).is_some_and(|policy| policy > 0));
    // Histograms are merged now and then.
    let count = limiter("weir_limiter_call_microseconds_count", "");
    let merged = |_: &_| prometheus(&rig).get(&count) == Some(&(calls + 1));
    assert!(rig.envoys[0].wait_for(Duration::from_secs(10), merged), "{:#?}", prometheus(&rig));
    let waits = prometheus(&rig)[r#"weir_wait_microseconds_count{weir_namespace="rl"}"#];
    assert!((2..=9).contains(&waits), "the first of a bucket waits: {waits}");
    let leases = prometheus(&rig)[r#"weir_lease_tokens_count{weir_namespace="rl",weir_rule="per-user"}"#];
    assert!((1..=calls).contains(&leases), "{leases} leases of {calls} calls");
    rig.assert_no_errors_logged();
}

#[test]
fn the_filters_own_time_is_taken_of_one_request_in_thirty_two_of_a_worker() {
    let rig = Rig::start(
        POLICY,
        Options { envoys: 1, concurrency: 1, env: &[("WEIR_DEBUG_SECRET", SECRET)], ..Options::default() },
    );
    let mut client = Client::new(rig.envoys[0].port());
    for _ in 0..70 {
        client.send(&Request::get("/healthz")).unwrap();
    }
    let name = r#"weir_filter_microseconds_count{weir_namespace="rl"}"#;
    // Envoy merges histograms now and then.
    rig.envoys[0].wait_for(Duration::from_secs(15), |_| prometheus(&rig).get(name) == Some(&2));
    assert_eq!(prometheus(&rig).get(name), Some(&2));
}

#[test]
fn an_access_log_tells_each_decision() {
    let patterns = patterns();
    let rig = start(&patterns, Options::default());
    for request in [of("acme"), of("acme"), Request::get("/status")] {
        send(&rig, &request);
    }
    let told = || -> Vec<String> {
        let log = rig.envoys[0].log();
        let lines = log.lines().filter(|line| line.contains(" weir("));
        lines.map(|line| line.split_once(' ').expect("a time").1.to_owned()).collect()
    };
    // Envoy writes it now and then.
    rig.envoys[0].wait_for(Duration::from_secs(15), |_| told().len() == 3);
    let decision = |remaining: u32| {
        format!(
            "GET /v1/things 200 weir(rule=per-user class=default tier=default outcome=allowed source=limiter remaining={remaining})"
        )
    };
    assert_eq!(told(), [decision(9), decision(8), "GET /status 200 weir(-)".to_owned()]);
}

#[test]
fn who_knows_the_secret_sees_why_and_who_comes_most() {
    let rig = observed();
    let with = |request: Request, secret: &str| send(&rig, &request.header("x-weir-debug", secret));
    let told = with(of("bob"), SECRET);
    assert_eq!(told.status, 200);
    assert_eq!(
        told.header("x-weir-debug"),
        Some(
            "rule=here class=default tier=default outcome=allowed source=local remaining=19 \
             key=rl:{constant.all}:here:default:86400000:t3; \
             rule=per-user class=default tier=free outcome=allowed source=lease \
             key=rl:{user.bob}:per-user:default:86400000:t3"
        )
    );
    assert_eq!(with(of("bob"), "open").header("x-weir-debug"), None);
    let refused: Vec<u16> = (0..20).map(|_| with(of("eve"), "").status).collect();
    assert_eq!(refused.iter().filter(|status| **status == 429).count(), 2);
    let top = |_: &_| with(Request::get("/.weir/top"), SECRET).text().contains("user.eve");
    assert!(rig.envoys[0].wait_for(Duration::from_secs(10), top), "both workers have told each other");
    let busiest = || {
        let text = with(Request::get("/.weir/top"), SECRET).text();
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let list = |rule: usize, kind: &str| -> Vec<(String, u64)> {
            let tenants = told["rules"][rule][kind]["tenants"].as_array().expect("tenants").clone();
            tenants
                .iter()
                .map(|of| (of["tenant"].as_str().unwrap().to_owned(), of["count"].as_u64().unwrap()))
                .collect()
        };
        (list(0, "busiest"), list(1, "busiest"), list(1, "refused"))
    };
    // What refuses a request counts it; those that would have let it pass do not.
    let counts = |counts: &[(&str, u64)]| -> Vec<(String, u64)> {
        counts.iter().map(|(tenant, count)| ((*tenant).to_owned(), *count)).collect()
    };
    let wanted =
        (counts(&[("user.eve", 18), ("user.bob", 2)]), counts(&[("constant.all", 22)]), counts(&[("constant.all", 2)]));
    rig.envoys[0].wait_for(Duration::from_secs(10), |_| busiest() == wanted);
    assert_eq!(busiest(), wanted);
    assert_eq!(
        with(Request::get("/.weir/top").header("x-user-id", "acme"), "wrong").status,
        429,
        "a path like any other"
    );
    rig.assert_no_errors_logged();
}

#[test]
fn what_a_filter_behind_has_told_in_the_debug_header_stays() {
    let policy = |name: &str, limit: &str, header: &str| {
        json!({
            "version": 1, "namespace": name, "proxies": 1,
            "limiters": {"main": {"transport": "webdis", "cluster": "webdis"}},
            "rules": [{"name": name, "key": [{"constant": "all"}], "mode": "local", "limits": limit}],
            "observe": {"secret_env": "WEIR_HASH_SECRET", "debug_header": header},
        })
    };
    let filters =
        vec![weir("outer", &policy("outer", "9/d", "x-outer")), weir("inner", &policy("inner", "1/d", "x-inner"))];
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]);
    let chain = json!({"filters": manager(json!({}), filters, routes)});
    let options = Options {
        envoys: 1,
        env: &[("WEIR_HASH_SECRET", SECRET)],
        upstream_headers: &[("x-outer", "rule=behind outcome=allowed")],
        ..Options::default()
    };
    let rig = Rig::listening(Listeners::File(&listener(&[chain])), options);
    let ask = || send(&rig, &Request::get("/").header("x-outer", SECRET).header("x-inner", SECRET));
    let line = |rule: &str, outcome: &str, left: u64| {
        format!(
            "rule={rule} class=default tier=default outcome={outcome} source=local remaining={left} \
             key={rule}:{{constant.all}}:{rule}:default:86400000:t3"
        )
    };
    let told =
        |answer: &Response| ["x-outer", "x-inner"].map(|name| answer.header(name).unwrap_or_default().to_owned());
    let passed = ask();
    let behind = format!("rule=behind outcome=allowed; {}", line("outer", "allowed", 8));
    assert_eq!((passed.status, told(&passed)), (200, [behind, line("inner", "allowed", 0)]));
    // The one that refuses says so, whatever the one before it has decided.
    let refused = ask();
    assert_eq!((refused.status, told(&refused)), (429, [line("outer", "allowed", 7), line("inner", "limited", 0)]));
    rig.assert_no_errors_logged();
}
