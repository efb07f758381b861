//! Several limiters of one policy: each is called where it is, fails alone, and is told of by its name.

use serde_json::{Value, json};

use crate::fake::{Call, Phase};
use crate::policy::{UNAVAILABLE, UNTOUCHED, grants, passed, policy};
use crate::proxy::{AUTHORIZATION, Proxy, in_vm, with_policy};

/// The limiter `main` has all tenants but the whale, who is at `big`.
fn two(main: &str, big: &str, on_error: &str) -> [(&'static str, Value); 3] {
    let limiter = |cluster: &str| json!({"transport": "webdis", "cluster": cluster, "timeout": "20ms"});
    [
        ("/limiters", json!({"main": limiter(main), "big": limiter(big)})),
        ("/rules/0/limiter", json!({"default": "main", "tenants": {"user.whale": "big"}})),
        ("/rules/0/on_error", json!(on_error)),
    ]
}

fn of_clusters(on_error: &str) -> [(&'static str, Value); 3] {
    two("webdis", "webdis-big", on_error)
}

/// The only call that is out to a cluster.
fn call_to(proxy: &Proxy, cluster: &str) -> Call {
    let mut calls: Vec<Call> = proxy.calls().into_iter().filter(|call| call.cluster == cluster).collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

fn warnings(proxy: &Proxy) -> Vec<String> {
    proxy.log().into_iter().filter(|line| line.contains("failed")).collect()
}

#[test]
fn each_limiter_that_fails_is_named_in_the_log_once_in_ten_seconds() {
    const MAIN: &str = "weir: the limiter main failed (reset): on_error decides";
    const BIG: &str = "weir: the limiter big failed (reset): on_error decides";
    with_policy(&of_clusters("allow"), |proxy, root| {
        let fails = |user: &str, cluster: &str| {
            let stream = proxy.get(root, user);
            proxy.run();
            proxy.reset(&call_to(proxy, cluster));
            assert_eq!(proxy.sees(stream), UNTOUCHED);
        };
        fails("u1", "webdis");
        fails("u2", "webdis");
        assert_eq!(warnings(proxy), [MAIN]);
        // The failure of another is news.
        proxy.advance(1_000);
        fails("whale", "webdis-big");
        fails("whale", "webdis-big");
        assert_eq!(warnings(proxy), [MAIN, BIG]);
        proxy.advance(8_999);
        fails("u1", "webdis");
        fails("whale", "webdis-big");
        assert_eq!(warnings(proxy), [MAIN, BIG]);
        // Ten seconds after its own last line.
        proxy.advance(1);
        fails("whale", "webdis-big");
        fails("u1", "webdis");
        assert_eq!(warnings(proxy), [MAIN, BIG, MAIN]);
        proxy.advance(1_000);
        fails("u1", "webdis");
        fails("whale", "webdis-big");
        assert_eq!(warnings(proxy), [MAIN, BIG, MAIN, BIG]);
    });
}

#[test]
fn a_request_that_two_limiters_have_failed_is_a_line_of_each() {
    let mut policy = policy(&of_clusters("allow"));
    let mut both = policy["rules"][0].clone();
    both["name"] = json!("at-big");
    both["limiter"] = json!("big");
    policy["rules"].as_array_mut().expect("rules").push(both);
    in_vm(|proxy| {
        let root = proxy.root(&policy);
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.reset(&call_to(proxy, "webdis"));
        assert_eq!(proxy.phase(stream), Phase::Paused, "the other may refuse it");
        proxy.reply(&call_to(proxy, "webdis-big"), "500", "");
        assert_eq!(proxy.sees(stream), UNTOUCHED);
        assert_eq!(
            warnings(proxy),
            [
                "weir: the limiter main failed (reset): on_error decides",
                "weir: the limiter big failed (status): on_error decides"
            ]
        );
    });
}

#[test]
fn a_call_goes_to_the_cluster_of_its_limiter_with_its_authority_and_its_credential() {
    let mut policy = policy(&of_clusters("deny"));
    policy["limiters"]["big"]["authority"] = json!("redis.big");
    policy["limiters"]["big"]["auth_env"] = json!("CANARY_AUTH");
    policy["limiters"]["big"]["timeout"] = json!("200ms");
    in_vm(|proxy| {
        let root = proxy.root(&policy);
        let (whale, other) = (proxy.get(root, "whale"), proxy.get(root, "u1"));
        proxy.run();
        let [big, main] = ["webdis-big", "webdis"].map(|cluster| call_to(proxy, cluster));
        let header = |call: &Call, name: &str| {
            let header = call.headers.iter().find(|(other, _)| other == name);
            header.map(|(_, value)| value.clone())
        };
        for (call, tenant, authority, credential, timeout) in
            [(&big, "whale", "redis.big", Some(AUTHORIZATION.to_owned()), 2_000), (&main, "u1", "webdis", None, 1_000)]
        {
            assert!(call.asks().starts_with(&format!("rl:{{user.{tenant}}}:per-user:")), "{}", call.asks());
            assert_eq!(header(call, ":authority").as_deref(), Some(authority));
            assert_eq!(header(call, "authorization"), credential);
            assert_eq!(call.timeout_ms, timeout);
        }
        // Each reply is for those who wait for it.
        proxy.reply(&main, "200", grants(7, &[1]));
        assert_eq!((proxy.phase(whale), proxy.sees(other)), (Phase::Paused, passed(7)));
        proxy.reply(&big, "200", grants(41, &[1]));
        assert_eq!(proxy.sees(whale), passed(41));
    });
}

#[test]
fn while_the_cluster_of_one_is_unknown_the_other_goes_on() {
    for (main, big, fails, goes_on, cluster) in
        [("webdis", "nowhere", "whale", "u1", "webdis"), ("nowhere", "webdis-big", "u1", "whale", "webdis-big")]
    {
        with_policy(&two(main, big, "deny"), |proxy, root| {
            // More than it takes to open the breaker of the one.
            for left in (40..60).rev() {
                let (failing, asking) = (proxy.get(root, fails), proxy.get(root, goes_on));
                proxy.run();
                assert_eq!(proxy.sees(failing), UNAVAILABLE);
                proxy.reply(&call_to(proxy, cluster), "200", grants(left, &[1]));
                assert_eq!(proxy.sees(asking), passed(left));
            }
            assert_eq!(proxy.counts()["unknown_cluster"], 5);
            assert_eq!(proxy.counts()["breaker"], 15);
        });
    }
}

#[test]
fn calls_and_breakers_are_told_by_the_name_of_their_limiter() {
    with_policy(&of_clusters("deny"), |proxy, root| {
        let ends = |user: &str, cluster: &str, end: &dyn Fn(&Call)| {
            proxy.get(root, user);
            proxy.run();
            end(&call_to(proxy, cluster));
        };
        for _ in 0..5 {
            ends("whale", "webdis-big", &|call| proxy.reset(call));
            ends("u1", "webdis", &|call| proxy.reply(call, "200", grants(50, &[1])));
        }
        ends("u1", "webdis", &|call| proxy.reply(call, "500", ""));
        proxy.get(root, "whale");
        assert_eq!(proxy.call_count(), 0, "it is left alone");
        proxy.advance(10);
        let told = |prefix: &str| {
            let all = proxy.metrics().into_iter();
            let some = all.filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value)));
            some.collect::<Vec<_>>()
        };
        let named = |metrics: &[(&str, i64)]| {
            metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Vec<_>>()
        };
        assert_eq!(told("limiter_calls."), named(&[("big.reset", 5), ("main.ok", 5), ("main.status", 1)]));
        assert_eq!(told("breaker_open."), named(&[("big", 1), ("main", 0)]));
        // A probe that goes well closes it.
        proxy.advance(200);
        ends("whale", "webdis-big", &|call| proxy.reply(call, "200", grants(59, &[1])));
        proxy.advance(10);
        assert_eq!(told("breaker_open."), named(&[("big", 0), ("main", 0)]));
        assert_eq!(told("limiter_calls.big."), named(&[("ok", 1), ("reset", 5)]));
    });
}
