//! What clients see, case by case: the behaviour table on the fake host.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir::algorithm::TOKEN_BUCKET;

use crate::fake::Phase;
use crate::policy::{LIMITED, UNTOUCHED, grants, passed};
use crate::proxy::{AUTHORIZATION, Proxy, in_vm, with_policy};

/// Method, path and user; a user `-` is none.
type Sent = [&'static str; 3];

struct Row {
    name: &'static str,
    changes: Vec<(&'static str, Value)>,
    sent: Sent,
    /// Key, limit and runs that the limiter is asked for, and its reply.
    asked: Option<(&'static str, String)>,
    sees: String,
}

const FORBIDDEN: &str = r#"403 | content-type: application/json | {"error":"forbidden","rule":"per-user"}"#;
const MALFORMED: &str = r#"400 | content-type: application/json | {"error":"malformed_path"}"#;
const U1: &str = "rl:{user.u1}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1";
const U1_EXPORT: &str = "rl:{user.u1}:per-user:export:3600000:t3 20 3600000 20 300000 10 0 0 0 0 0 0 10 1";

fn send(proxy: &Proxy, root: u32, [method, path, user]: Sent) -> u32 {
    let mut headers = vec![(":method", method), (":path", path)];
    headers.retain(|(name, value)| *name != ":path" || !value.is_empty());
    if user != "-" {
        headers.push(("x-user-id", user));
    }
    proxy.request(root, &headers)
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let row = |name, sent, asked: Option<(&'static str, String)>, sees: &str| Row { name, changes: vec![], sent, asked, sees: sees.to_owned() };
    let changed = |name, changes, sent, asked: Option<(&'static str, String)>, sees: &str| Row { name, changes, sent, asked, sees: sees.to_owned() };
    let with_missing = |word: Value| vec![("/rules/0/missing", word)];
    let with_response = |word: &'static str, value: Value| vec![("/response", json!({"retry_after_jitter": 0, word: value}))];
    let limited = || Some((U1, grants(0, &[0])));
    let export = |reply: &str| Some((U1_EXPORT, reply.to_owned()));
    vec![
        row("a request that fits passes and is told how it stands", ["GET", "/v1/items", "u1"], Some((U1, grants(59, &[1]))), &passed(59)),
        row("the last token is as good as the first",               ["GET", "/v1/items", "u1"], Some((U1, grants(0, &[1]))), &passed(0)),
        row("a request that finds no token is limited",             ["GET", "/v1/items", "u1"], limited(), LIMITED),
        row("a wait of half a second is told as one",               ["GET", "/v1/items", "u1"], Some((U1, r#"{"EVALSHA":[30000,59500,0,0,0,0,0,0]}"#.to_owned())), LIMITED),
        row("a level below nothing, as under a lowered burst, has none left", ["GET", "/v1/items", "u1"], Some((U1, r#"{"EVALSHA":[-60000,61000,0,0,0,0,0,0]}"#.to_owned())),
            "429 | content-type: application/json | retry-after: 2 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000061 | {\"error\":\"rate_limited\",\"rule\":\"per-user\",\"retry_after\":2}"),
        row("HEAD is counted as any method",                        ["HEAD", "/v1/items", "u1"], Some((U1, grants(59, &[1]))), &passed(59)),
        row("a request of no class is in the default bucket",       ["BREW", "/", "u1"], Some((U1, grants(59, &[1]))), &passed(59)),
        row("CONNECT has no path and is in the default bucket",     ["CONNECT", "", "u1"], Some((U1, grants(59, &[1]))), &passed(59)),
        row("the asterisk is no path of any class",                 ["DELETE", "*", "u1"], Some((U1, grants(59, &[1]))), &passed(59)),
        row("a class without a limit of its own pays its cost",     ["GET", "/v1/bulk", "u1"], Some(("rl:{user.u1}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 5 1", grants(55, &[1]))), &passed(55)),
        row("a class with a limit has a bucket and pays its cost",  ["POST", "/v1/reports/7/export", "u1"], export(r#"{"EVALSHA":[36000000,1800000,0,0,0,0,0,1]}"#),
            "200 | server: upstream | x-ratelimit-limit: 20 | x-ratelimit-remaining: 10 | x-ratelimit-reset: 1700001800 | hello"),
        row("the wait is until this cost fits",                     ["POST", "/v1/reports/7/export", "u1"], export(r#"{"EVALSHA":[18000000,2700000,0,0,0,0,0,0]}"#),
            "429 | content-type: application/json | retry-after: 900 | x-ratelimit-limit: 20 | x-ratelimit-remaining: 5 | x-ratelimit-reset: 1700002700 | {\"error\":\"rate_limited\",\"rule\":\"per-user\",\"retry_after\":900}"),
        row("another spelling of a path is in the same class",      ["POST", "//v1/./reports/%37/export?x=/../y", "u1"], export(r#"{"EVALSHA":[36000000,1800000,0,0,0,0,0,1]}"#),
            "200 | server: upstream | x-ratelimit-limit: 20 | x-ratelimit-remaining: 10 | x-ratelimit-reset: 1700001800 | hello"),
        row("an exempt path is not looked at",                      ["GET", "/healthz", "u1"], None, UNTOUCHED),
        row("an exempt method is not looked at",                    ["OPTIONS", "/v1/items", "u1"], None, UNTOUCHED),
        row("an unlimited tenant passes untouched",                 ["GET", "/v1/items", "acme"], None, UNTOUCHED),
        row("the word deny refuses",                                ["GET", "/admin/users", "u1"], None, FORBIDDEN),
        row("the word deny refuses in every tier",                  ["GET", "/admin", "acme"], None, FORBIDDEN),
        row("a path with a broken escape is malformed",             ["GET", "/v1/%zz", "u1"], None, MALFORMED),
        row("a path that servers disagree about is malformed",      ["GET", "/a//../admin", "u1"], None, MALFORMED),
        row("a path without a slash is malformed",                  ["GET", "v1/items", "acme"], None, MALFORMED),
        row("requests without a tenant share a bucket",             ["GET", "/v1/items", "-"], Some(("rl:{none.anonymous}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1", grants(59, &[1]))), &passed(59)),
        changed("a missing tenant is refused if the policy says so", with_missing(json!("deny")), ["GET", "/v1/items", "-"], None, FORBIDDEN),
        changed("a missing tenant passes if the policy says so",    with_missing(json!("skip")), ["GET", "/v1/items", "-"], None, UNTOUCHED),
        changed("a missing tenant is who the policy says",          with_missing(json!({"as": "guest"})), ["GET", "/v1/items", "-"],
            Some(("rl:{none.guest}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 1", grants(59, &[1]))), &passed(59)),
        changed("the status of a limited request can be chosen",    with_response("status", json!(503)), ["GET", "/v1/items", "u1"], limited(), &LIMITED.replace("429", "503")),
        changed("the body and its type can be chosen",              vec![("/response", json!({"retry_after_jitter": 0, "content_type": "text/plain", "body": "{rule}: {retry_after}s {x}"}))], ["GET", "/v1/items", "u1"], limited(),
            "429 | content-type: text/plain | retry-after: 1 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000060 | per-user: 1s {x}"),
        changed("the reset can be a wait",                          with_response("reset", json!("seconds")), ["GET", "/v1/items", "u1"], Some((U1, grants(59, &[1]))),
            "200 | server: upstream | x-ratelimit-limit: 60 | x-ratelimit-remaining: 59 | x-ratelimit-reset: 1 | hello"),
        changed("without families a passed response is untouched",  with_response("headers", json!([])), ["GET", "/v1/items", "u1"], Some((U1, grants(59, &[1]))), UNTOUCHED),
        changed("the family of the draft names the rule",           with_response("headers", json!(["ratelimit"])), ["GET", "/v1/items", "u1"], Some((U1, grants(59, &[1]))),
            "200 | server: upstream | x-ratelimit-limit: 7 | ratelimit-policy: \"per-user\";q=60;w=60 | ratelimit: \"per-user\";r=59;t=1 | hello"),
        changed("both families can be sent, on refusals as well",   with_response("headers", json!(["x-ratelimit", "ratelimit"])), ["GET", "/v1/items", "u1"], limited(),
            "429 | content-type: application/json | retry-after: 1 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000060 | ratelimit-policy: \"per-user\";q=60;w=60 | ratelimit: \"per-user\";r=0;t=1 | {\"error\":\"rate_limited\",\"rule\":\"per-user\",\"retry_after\":1}"),
        changed("a family that the service has sent can be kept",   vec![("/response", json!({"headers": ["x-ratelimit", "ratelimit"], "upstream_headers": "keep"}))], ["GET", "/v1/items", "u1"], Some((U1, grants(59, &[1]))),
            "200 | server: upstream | x-ratelimit-limit: 7 | ratelimit-policy: \"per-user\";q=60;w=60 | ratelimit: \"per-user\";r=59;t=1 | hello"),
        changed("a refusal is no answer of the service",            with_response("upstream_headers", json!("keep")), ["GET", "/v1/items", "u1"], limited(), LIMITED),
        changed("without families a refusal still says when",       with_response("headers", json!([])), ["GET", "/v1/items", "u1"], limited(),
            "429 | content-type: application/json | retry-after: 1 | {\"error\":\"rate_limited\",\"rule\":\"per-user\",\"retry_after\":1}"),
    ]
}

#[test]
fn every_row_of_the_table_holds() {
    for Row { name, changes, sent, asked, sees } in rows() {
        with_policy(&changes, |proxy, root| {
            let stream = send(proxy, root, sent);
            match asked {
                None => assert_ne!(proxy.phase(stream), Phase::Paused, "{name}"),
                Some((key, reply)) => {
                    assert_eq!(proxy.phase(stream), Phase::Paused, "{name}");
                    proxy.run();
                    assert_eq!(proxy.asked(), key, "{name}");
                    proxy.answer(reply);
                }
            }
            assert_eq!(proxy.sees(stream), sees, "{name}");
            assert_eq!(proxy.calls().len(), 0, "{name}");
        });
    }
}

#[test]
fn a_response_that_was_refused_behind_keeps_its_own_headers() {
    let both = json!({"headers": ["x-ratelimit", "ratelimit"]});
    let behind = [
        (
            &[(":status", "429"), ("retry-after", "7"), ("x-ratelimit-remaining", "0")][..],
            false,
            "429 | retry-after: 7 | x-ratelimit-remaining: 0 | hello",
        ),
        (&[(":status", "503"), ("retry-after", "7")], false, "503 | retry-after: 7 | hello"),
        (&[(":status", "200"), ("grpc-status", "8")], true, "200 | grpc-status: 8 | "),
        (
            &[(":status", "204")],
            true,
            "204 | x-ratelimit-limit: 60 | x-ratelimit-remaining: 59 | x-ratelimit-reset: 1700000001 | ratelimit-policy: \"per-user\";q=60;w=60 | ratelimit: \"per-user\";r=59;t=1 | ",
        ),
    ];
    for word in ["replace", "keep"] {
        let mut response = both.clone();
        response["upstream_headers"] = json!(word);
        for (upstream, ends, sees) in behind {
            with_policy(&[("/response", response.clone())], |proxy, root| {
                let stream = proxy.get(root, "u1");
                proxy.run();
                proxy.answer(grants(59, &[1]));
                proxy.serve_with(stream, upstream, ends);
                assert_eq!(proxy.sees(stream), sees, "{word}");
            });
        }
    }
}

#[test]
fn a_request_before_any_good_policy_is_answered_with_503() {
    in_vm(|proxy| {
        let root = proxy.root_without_policy();
        let stream = proxy.get(root, "u1");
        assert_eq!(proxy.sees(stream), "503 | ");
    });
}

#[test]
fn a_call_is_a_post_to_the_limiter_with_the_script_by_its_name() {
    let limiter = json!({"main": {
        "transport": "webdis", "cluster": "webdis", "authority": "redis.example", "timeout": "150ms", "auth_env": "CANARY_AUTH",
    }});
    with_policy(&[("/limiters", limiter)], |proxy, root| {
        proxy.get(root, "u1");
        proxy.run();
        let call = proxy.call();
        let headers = [
            (":method", "POST"),
            (":path", "/"),
            (":authority", "redis.example"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("authorization", AUTHORIZATION),
        ];
        assert_eq!(call.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(call.cluster, "webdis");
        assert_eq!(call.timeout_ms, 1500, "ten times the wait");
        let number = call.number();
        let arguments = format!(
            "1/rl%3A%7Buser%2Eu1%7D%3Aper-user%3Adefault%3A60000%3At3/60/60000/60/300000/30/0/0/0/0/0/0/{number}/1/1"
        );
        assert_eq!(call.body, format!("EVALSHA/{}/{arguments}", TOKEN_BUCKET.sha));
    });
}

#[test]
fn a_call_without_a_credential_carries_none_and_lasts_a_second_at_least() {
    with_policy(&[], |proxy, root| {
        proxy.get(root, "u1");
        proxy.run();
        let call = proxy.call();
        assert!(call.headers.iter().all(|(name, _)| name != "authorization"));
        assert_eq!(call.timeout_ms, 1000);
    });
}

#[test]
fn retry_after_is_jittered_upward_and_no_further_than_the_policy_says() {
    let changes = [
        ("/classes", json!([])),
        ("/rules/0/limits", json!({"free": "1/h", "gold": "1/h"})),
        ("/response", json!({"retry_after_jitter": 0.5})),
    ];
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        seen.insert(with_policy(&changes, |proxy, root| {
            let stream = proxy.get(root, "u1");
            proxy.run();
            proxy.answer(r#"{"EVALSHA":[0,3600000,0,0,0,0,0,0]}"#);
            let line = proxy.sees(stream);
            let (_, after) = line.split_once("retry-after: ").expect("the header");
            let (seconds, _) = after.split_once(" | ").expect("more headers");
            seconds.parse::<u64>().expect("a number")
        }));
    }
    assert!(seen.iter().all(|seconds| (3600..=5400).contains(seconds)), "{seen:?}");
    assert!(seen.len() > 5, "every VM has a seed of its own: {seen:?}");
}

/// Sends a request of gRPC and gives what its client sees, after the limiter's reply if it is asked.
fn grpc(proxy: &Proxy, root: u32, path: &str, reply: Option<&str>) -> String {
    let headers =
        [(":method", "POST"), (":path", path), ("x-user-id", "u1"), ("content-type", "application/grpc+proto")];
    let stream = proxy.request(root, &headers);
    if let Some(reply) = reply {
        assert_eq!(proxy.phase(stream), Phase::Paused);
        proxy.run();
        proxy.answer(reply);
    }
    proxy.sees(stream)
}

#[test]
fn a_request_of_grpc_is_refused_by_status_and_without_a_body() {
    with_policy(&[], |proxy, root| {
        assert_eq!(grpc(proxy, root, "/pkg.Service/Call", Some(&grants(59, &[1]))), passed(59), "it is counted as any");
        let limits = "x-ratelimit-limit: 60 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000060";
        let limited = format!(
            "200 | {limits} | content-type: application/grpc | grpc-status: 8 | grpc-message: rate_limited: per-user \
             | grpc-retry-pushback-ms: 1000 | "
        );
        assert_eq!(grpc(proxy, root, "/pkg.Service/Call", Some(&grants(0, &[0]))), limited, "while it waits");
        assert_eq!(grpc(proxy, root, "/pkg.Service/Call", None), limited, "at once");
        let forbidden = "200 | content-type: application/grpc | grpc-status: 7 | grpc-message: forbidden: per-user | ";
        assert_eq!(grpc(proxy, root, "/admin/x", None), forbidden);
        let malformed = "200 | content-type: application/grpc | grpc-status: 3 | grpc-message: malformed_path | ";
        assert_eq!(grpc(proxy, root, "/pkg%zz/Call", None), malformed);
        let failed = "200 | content-type: application/grpc | grpc-status: 14 \
            | grpc-message: limiter_unavailable: per-user | grpc-retry-pushback-ms: 1000 | ";
        assert_eq!(grpc(proxy, root, "/v1/reports/7/export", Some("no reply")), failed);
    });
    in_vm(|proxy| {
        let root = proxy.root_without_policy();
        let nothing = "200 | content-type: application/grpc | grpc-status: 14 | grpc-message: no_policy | ";
        assert_eq!(grpc(proxy, root, "/pkg.Service/Call", None), nothing);
    });
}
