//! What a request costs: every host call that it makes, literally. A call that returns bytes costs about 2 us in
//! Envoy, so these lists are the cost model.

use serde_json::{Value, json};

use crate::fake::Phase;
use crate::policy::{grants, local, policy};
use crate::proxy::{Proxy, in_vm};

/// The policy of the dearest request that there is: its class is told by path and method, and it is limited.
fn by_path_and_method() -> Value {
    policy(&[(
        "/classes",
        json!([
            {"class": "preflight", "match": {"methods": ["OPTIONS"]}, "exempt": true},
            {"class": "export", "match": {"methods": ["POST"], "path": "/v1/reports/{id}/export"}},
            {"class": "write", "match": {"methods": ["POST", "PUT"]}},
            {"class": "admin", "match": {"path": "/admin/**"}},
        ]),
    )])
}

fn sent(proxy: &Proxy, root: u32, method: &str) -> u32 {
    proxy.request(root, &[(":method", method), (":path", "/v1/reports/7/export"), ("x-user-id", "u1")])
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_request_that_is_exempt_by_its_method_costs_one_header() {
    in_vm(|proxy| {
        let root = proxy.root(&by_path_and_method());
        proxy.trace();
        let stream = sent(proxy, root, "OPTIONS");
        assert_eq!(proxy.trace(), ["get_header request :method"]);
        proxy.serve(stream);
        assert_eq!(proxy.trace(), NOTHING);
    });
}

#[test]
fn an_unlimited_request_that_nothing_is_read_of_costs_nothing() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[
            ("/classes", json!([])),
            ("/rules/0/key", json!([{"constant": "all"}])),
            ("/rules/0/tier", json!({"default": "free"})),
            ("/rules/0/limits", json!({"free": "unlimited"})),
        ]));
        proxy.trace();
        let stream = sent(proxy, root, "GET");
        proxy.serve(stream);
        assert_eq!(proxy.trace(), NOTHING);
    });
}

#[test]
fn a_refused_request_costs_its_headers_and_the_answer() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[
            ("/classes", json!([])),
            ("/rules/0/missing", json!("deny")),
            ("/rules/0/limits", json!({"free": "60/m", "gold": "unlimited"})),
        ]));
        proxy.trace();
        proxy.request(root, &[(":method", "GET"), (":path", "/")]);
        assert_eq!(proxy.trace(), ["get_header request x-user-id", "send_local_response 403"]);
    });
}

#[test]
fn a_limited_request_that_is_alone() {
    in_vm(|proxy| {
        let root = proxy.root(&by_path_and_method());
        proxy.trace();
        let stream = sent(proxy, root, "POST");
        let arrival = [
            "get_header request :method", // each value is read once, though four classes look at them
            "get_header request :path",
            "get_header request x-user-id",
            "get_current_time",
            "get_shared_data table", // nothing is known of the bucket
            "enqueue",
        ];
        assert_eq!(proxy.trace(), arrival);
        proxy.run();
        let wake_up = [
            "dequeue",
            "dequeue", // empty
            "get_current_time",
            "http_call webdis",
            "increment_metric rl.limiter.main.calls",
        ];
        assert_eq!(proxy.trace(), wake_up);
        proxy.answer(r#"{"EVALSHA":[68400000,180000,1]}"#);
        let reply = [
            "set_effective_context 1", // the SDK's own: the root
            "get_header call :status",
            "get_buffer call body",
            "get_current_time",
            "set_effective_context 2", // the stream
            "continue_stream",
        ];
        assert_eq!(proxy.trace(), reply);
        proxy.serve(stream);
        let response = [
            "replace_header x-ratelimit-limit",
            "replace_header x-ratelimit-remaining",
            "replace_header x-ratelimit-reset",
        ];
        assert_eq!(proxy.trace(), response);
    });
}

#[test]
fn one_more_in_a_group_costs_its_headers_the_time_and_its_end() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.get(root, "u1");
        proxy.trace();
        let second = proxy.get(root, "u1");
        assert_eq!(
            proxy.trace(),
            [
                "get_header request :path",
                "get_header request :method",
                "get_header request x-user-id",
                "get_current_time",
                "get_shared_data table",
            ]
        );
        proxy.run();
        let alone = ["dequeue", "dequeue", "get_current_time", "http_call webdis"];
        assert_eq!(proxy.trace()[..4], alone);
        proxy.answer(grants(0, &[1]));
        assert_eq!(
            proxy.trace(),
            [
                "set_effective_context 1",
                "get_header call :status",
                "get_buffer call body",
                "get_current_time",
                "get_shared_data table", // the bucket is dry
                "set_shared_data table",
                "set_effective_context 2",
                "continue_stream",
                "set_effective_context 3",
                "send_local_response 429",
            ]
        );
        assert_eq!(proxy.phase(second), Phase::Answered);
    });
}

#[test]
fn a_tick_with_nobody_waiting_costs_the_time_and_a_look_at_the_breaker() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.trace();
        proxy.tick(root);
        assert_eq!(proxy.trace(), ["get_shared_data breaker", "get_current_time"]);
    });
}

#[test]
fn a_failure_costs_the_breaker_and_a_counter_more_and_now_and_then_a_line_of_log() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        for log in [&["log 3"][..], &[]] {
            let stream = proxy.get(root, "u1");
            proxy.run();
            proxy.trace();
            proxy.reset(&proxy.call());
            let mut calls = vec![
                "set_effective_context 1",
                "get_current_time",
                "get_shared_data breaker",
                "set_shared_data breaker",
                "increment_metric rl.degraded.reset",
            ];
            calls.extend(log);
            let name_stream = format!("set_effective_context {stream}");
            calls.extend([name_stream.as_str(), "send_local_response 503"]);
            assert_eq!(proxy.trace(), calls);
        }
    });
}

/// The headers of a request under the usual policy, and the time.
const ARRIVAL: [&str; 4] =
    ["get_header request :path", "get_header request :method", "get_header request x-user-id", "get_current_time"];

#[track_caller]
fn assert_arrives(proxy: &Proxy, root: u32, then: &[&str]) -> u32 {
    proxy.trace();
    let stream = proxy.get(root, "u1");
    assert_eq!(proxy.trace(), [&ARRIVAL[..], then].concat());
    stream
}

#[test]
fn a_request_of_a_bucket_that_is_known_to_be_dry_costs_one_read() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(0, &[0]));
        assert_arrives(proxy, root, &["get_shared_data table", "send_local_response 429"]);
    });
}

#[test]
fn a_request_of_a_local_bucket_costs_one_read_and_one_write() {
    in_vm(|proxy| {
        let root = proxy.root(&local(&[]));
        let stream = assert_arrives(proxy, root, &["get_shared_data table", "set_shared_data table"]);
        assert_eq!(proxy.phase(stream), Phase::Passed);
        proxy.gets(root, "u1", 29);
        let refused = ["get_shared_data table", "set_shared_data table", "send_local_response 429"];
        assert_arrives(proxy, root, &refused);
    });
}

#[test]
fn a_request_while_the_limiter_is_left_alone_costs_one_read_and_a_counter() {
    for on_error in ["deny", "allow", "local"] {
        let changes = [("/rules/0/on_error", json!(on_error)), ("/proxies", json!(2))];
        in_vm(|proxy| {
            let root = proxy.root(&policy(&changes));
            for _ in 0..5 {
                proxy.get(root, "u1");
                proxy.run();
                proxy.reset(&proxy.call());
            }
            let counter = "increment_metric rl.degraded.breaker";
            match on_error {
                "deny" => assert_arrives(proxy, root, &["get_shared_data table", counter, "send_local_response 503"]),
                "allow" => assert_arrives(proxy, root, &["get_shared_data table", counter]),
                _ => {
                    let own = ["get_shared_data table", "get_shared_data table", "set_shared_data table", counter];
                    assert_arrives(proxy, root, &own)
                }
            };
            // The probe.
            proxy.advance(200);
            let probe = ["get_shared_data table", "get_shared_data breaker", "set_shared_data breaker", "enqueue"];
            assert_arrives(proxy, root, &probe);
            proxy.run();
            proxy.trace();
            proxy.answer(grants(59, &[1]));
            assert_eq!(proxy.trace()[4..6], ["get_shared_data breaker", "set_shared_data breaker"]);
            assert_arrives(proxy, root, &["get_shared_data table", "enqueue"]);
        });
    }
}

#[test]
fn a_request_of_a_new_key_costs_one_more_read_and_write_where_they_are_counted() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[("/limiters/main/max_new_keys_per_second", json!(1))]));
        let counted = ["get_shared_data table", "get_shared_data table", "set_shared_data table", "enqueue"];
        assert_arrives(proxy, root, &counted);
        proxy.run();
        proxy.answer(grants(59, &[1]));
        // It is known now.
        assert_arrives(proxy, root, &["get_shared_data table", "enqueue"]);
    });
}
