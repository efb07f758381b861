//! What a request costs: every host call that it makes, literally. A call that returns bytes costs about 2 us in
//! Envoy, so these lists are the cost model.

use serde_json::{Value, json};

use crate::fake::Phase;
use crate::policy::{NO_LEASE, asks_of_u1, grants, lease, lends, local, long, policy};
use crate::proxy::{Proxy, in_vm, with_policy};
use crate::space::Space;
use crate::vms::Vm;

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

/// The host calls since this was last asked, but for those that come once in the life of a VM.
fn costs(proxy: &Proxy) -> Vec<String> {
    proxy.trace().into_iter().filter(|call| !call.starts_with("define_metric ")).collect()
}

const ALLOWED: &str = "increment_metric weir.rl.decisions.per-user.default.free.allowed";
const LIMITED: &str = "increment_metric weir.rl.decisions.per-user.default.free.limited";
const FAILED: &str = "increment_metric weir.rl.decisions.per-user.default.free.failed";
const CALL_OK: &str = "increment_metric weir.rl.limiter_calls.main.ok";
const LENT: &str = "record_metric weir.rl.lease_tokens.per-user";

/// Read of a request that is refused, and of no other: a client of gRPC is told in its own words.
const CONTENT_TYPE: &str = "get_header request content-type";

#[test]
fn a_request_that_is_exempt_by_its_method_costs_its_headers_and_a_counter() {
    in_vm(|proxy| {
        let root = proxy.root(&by_path_and_method());
        costs(proxy);
        let stream = sent(proxy, root, "OPTIONS");
        let counter = "increment_metric weir.rl.decisions.~none.preflight.~none.exempt";
        assert_eq!(costs(proxy), ["get_headers", counter]);
        proxy.serve(stream);
        assert_eq!(costs(proxy), NOTHING);
    });
}

#[test]
fn an_unlimited_request_that_nothing_is_read_of_costs_a_counter() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[
            ("/classes", json!([])),
            ("/rules/0/key", json!([{"constant": "all"}])),
            ("/rules/0/tier", json!({"default": "free"})),
            ("/rules/0/limits", json!({"free": "unlimited"})),
        ]));
        costs(proxy);
        let stream = sent(proxy, root, "GET");
        proxy.serve(stream);
        assert_eq!(costs(proxy), ["increment_metric weir.rl.decisions.per-user.default.free.unlimited"]);
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
        costs(proxy);
        proxy.request(root, &[(":method", "GET"), (":path", "/")]);
        let counter = "increment_metric weir.rl.decisions.per-user.default.~none.forbidden";
        assert_eq!(costs(proxy), ["get_header request x-user-id", counter, CONTENT_TYPE, "send_local_response 403"]);
    });
}

#[test]
fn a_limited_request_that_is_alone() {
    in_vm(|proxy| {
        let root = proxy.root(&by_path_and_method());
        costs(proxy);
        let stream = sent(proxy, root, "POST");
        let arrival = [
            "get_headers", // method, path and user at once, and once, though four classes look at them
            "get_current_time",
            "get_shared_data table", // nothing is known of the bucket
            "enqueue",
        ];
        assert_eq!(costs(proxy), arrival);
        proxy.run();
        let wake_up = [
            "dequeue",
            "dequeue", // empty
            "get_current_time",
            "http_call webdis",
        ];
        assert_eq!(costs(proxy), wake_up);
        proxy.answer(r#"{"EVALSHA":[68400000,180000,0,0,0,0,0,1]}"#);
        let reply = [
            "set_effective_context 1", // the SDK's own: the root
            "get_header call :status",
            "get_buffer call body",
            "get_current_time",
            "get_shared_data table", // nothing is known of it that would be too much now
            CALL_OK,
            "increment_metric weir.rl.decisions.per-user.export.free.allowed",
            "set_effective_context 2", // the stream
            "continue_stream",
        ];
        assert_eq!(costs(proxy), reply);
        proxy.serve(stream);
        let response = [
            "get_header response :status", // what is refused behind is told by whoever refused it
            "replace_header x-ratelimit-limit",
            "replace_header x-ratelimit-remaining",
            "replace_header x-ratelimit-reset",
        ];
        assert_eq!(costs(proxy), response);
    });
}

#[test]
fn one_more_in_a_group_costs_its_headers_the_time_and_its_end() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.get(root, "u1");
        costs(proxy);
        let second = proxy.get(root, "u1");
        assert_eq!(costs(proxy), ["get_headers", "get_current_time", "get_shared_data table",]);
        proxy.run();
        let alone = ["dequeue", "dequeue", "get_current_time", "http_call webdis"];
        assert_eq!(costs(proxy)[..4], alone);
        proxy.answer(grants(0, &[1]));
        assert_eq!(
            costs(proxy),
            [
                "set_effective_context 1",
                "get_header call :status",
                "get_buffer call body",
                "get_current_time",
                "get_shared_data table", // the bucket is dry
                "set_shared_data table",
                CALL_OK,
                ALLOWED,
                "set_effective_context 2",
                "continue_stream",
                LIMITED,
                "set_effective_context 3",
                CONTENT_TYPE,
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
        costs(proxy);
        proxy.tick(root);
        let gauges = ["record_metric weir.rl.breaker_open.main", "record_metric weir.rl.degraded"];
        let looks = ["get_current_time", "get_shared_data breaker"];
        assert_eq!(
            costs(proxy),
            [&looks[..], &gauges].concat(),
            "the first tells what a plan before may have left there"
        );
        proxy.tick(root);
        assert_eq!(costs(proxy), looks);
    });
}

#[test]
fn a_failure_costs_the_breaker_and_a_counter_more_and_now_and_then_a_line_of_log() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        for (gauge, log) in [(&["record_metric weir.rl.degraded"][..], &["log 3"][..]), (&[], &[])] {
            let stream = proxy.get(root, "u1");
            proxy.run();
            costs(proxy);
            proxy.reset(&proxy.call());
            let mut calls = vec![
                "set_effective_context 1",
                "get_current_time",
                "get_shared_data breaker",
                "set_shared_data breaker",
                "increment_metric weir.rl.limiter_calls.main.reset",
                FAILED,
                "increment_metric weir.rl.degraded_decisions.per-user.reset",
            ];
            calls.extend(gauge.iter().chain(log));
            let name_stream = format!("set_effective_context {stream}");
            calls.extend([name_stream.as_str(), CONTENT_TYPE, "send_local_response 503"]);
            assert_eq!(costs(proxy), calls);
        }
    });
}

/// The headers of a request under the usual policy, and the time.
const ARRIVAL: [&str; 2] = ["get_headers", "get_current_time"];

#[track_caller]
fn assert_arrives(proxy: &Proxy, root: u32, then: &[&str]) -> u32 {
    costs(proxy);
    let stream = proxy.get(root, "u1");
    assert_eq!(costs(proxy), [&ARRIVAL[..], then].concat());
    stream
}

#[test]
fn a_request_of_a_bucket_that_is_known_to_be_dry_costs_one_read() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(0, &[0]));
        assert_arrives(proxy, root, &["get_shared_data table", LIMITED, CONTENT_TYPE, "send_local_response 429"]);
    });
}

#[test]
fn a_request_of_a_local_bucket_costs_one_read_and_one_write_and_no_write_where_it_is_refused() {
    in_vm(|proxy| {
        let root = proxy.root(&local(&[]));
        let stream = assert_arrives(proxy, root, &["get_shared_data table", "set_shared_data table", ALLOWED]);
        assert_eq!(proxy.phase(stream), Phase::Passed);
        proxy.gets(root, "u1", 29);
        assert_arrives(proxy, root, &["get_shared_data table", LIMITED, CONTENT_TYPE, "send_local_response 429"]);
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
            let counter = "increment_metric weir.rl.degraded_decisions.per-user.breaker";
            match on_error {
                "deny" => assert_arrives(
                    proxy,
                    root,
                    &["get_shared_data table", FAILED, counter, CONTENT_TYPE, "send_local_response 503"],
                ),
                "allow" => assert_arrives(proxy, root, &["get_shared_data table", ALLOWED, counter]),
                _ => {
                    let own =
                        ["get_shared_data table", "get_shared_data table", "set_shared_data table", ALLOWED, counter];
                    assert_arrives(proxy, root, &own)
                }
            };
            // The probe.
            proxy.advance(200);
            let probe = ["get_shared_data table", "get_shared_data breaker", "set_shared_data breaker", "enqueue"];
            assert_arrives(proxy, root, &probe);
            proxy.run();
            costs(proxy);
            proxy.answer(grants(59, &[1]));
            assert_eq!(costs(proxy)[4..6], ["get_shared_data breaker", "set_shared_data breaker"]);
            assert_arrives(proxy, root, &["get_shared_data table", "enqueue"]);
        });
    }
}

#[test]
fn a_request_of_a_new_key_costs_one_more_read_and_write_where_they_are_counted() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[("/limiters/main/max_new_keys_per_second", json!(1))]));
        let counted = ["get_shared_data table", "get_shared_data new_keys", "set_shared_data new_keys", "enqueue"];
        assert_arrives(proxy, root, &counted);
        proxy.run();
        proxy.answer(grants(59, &[1]));
        // It is known now.
        assert_arrives(proxy, root, &["get_shared_data table", "enqueue"]);
    });
}

// Mode lease.

/// The calls that return bytes, each about 2 us.
fn dear(trace: &[String]) -> usize {
    let returns_bytes = |call: &&String| {
        ["get_header", "get_buffer", "get_shared_data", "dequeue"].iter().any(|name| call.starts_with(name))
    };
    trace.iter().filter(returns_bytes).count()
}

const WAKE_UP: [&str; 3] = ["dequeue", "dequeue", "get_current_time"];
const CALL: &str = "http_call webdis";
const REPLY: [&str; 4] =
    ["set_effective_context 1", "get_header call :status", "get_buffer call body", "get_current_time"];
const LOOK: [&str; 1] = ["get_shared_data table"];
const CHANGE: [&str; 2] = ["get_shared_data table", "set_shared_data table"];

/// A first request of u1, which brings a lease of three tokens; then ten seconds without any.
fn borrow(proxy: &Proxy, root: u32) {
    let stream = proxy.get(root, "u1");
    proxy.run();
    proxy.answer(lends(996, long(0, 3), &[1]));
    assert_eq!(proxy.phase(stream), Phase::Passed);
    proxy.advance(10_000);
    assert_eq!(proxy.call_count(), 0, "a small lease is not given back");
    costs(proxy);
}

#[test]
fn a_request_that_finds_a_lent_token_costs_its_headers_the_time_one_read_and_one_write() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        borrow(proxy, root);
        let stream = proxy.get(root, "u1");
        let trace = costs(proxy);
        assert_eq!(trace, [&ARRIVAL[..], &CHANGE, &[ALLOWED]].concat());
        assert_eq!(dear(&trace), 2, "the headers, the table");
        proxy.serve(stream);
        let response = [
            "get_header response :status", // what is refused behind is told by whoever refused it
            "replace_header x-ratelimit-limit",
            "replace_header x-ratelimit-remaining",
            "replace_header x-ratelimit-reset",
        ];
        assert_eq!(costs(proxy), response);
        proxy.run();
        assert_eq!(costs(proxy), NOTHING, "nothing is left to do");
    });
}

#[test]
fn a_request_with_very_many_headers_is_read_one_by_one() {
    let names: Vec<String> = (0..64).map(|number| format!("x-{number}")).collect();
    let get = [(":method", "GET"), (":path", "/v1/items"), ("x-user-id", "u1")];
    let one_by_one = ["get_header request :path", "get_header request :method", "get_header request x-user-id"];
    for (more, read) in [(61, &["get_headers"][..]), (62, &one_by_one)] {
        in_vm(|proxy| {
            let root = proxy.root(&lease(&[]));
            borrow(proxy, root);
            let more: Vec<(&str, &str)> = names.iter().take(more).map(|name| (name.as_str(), "")).collect();
            proxy.request(root, &[&get, more.as_slice()].concat());
            assert_eq!(costs(proxy), [read, &["get_current_time"], &CHANGE, &[ALLOWED]].concat());
        });
    }
}

#[test]
fn a_request_that_finds_a_lent_token_costs_no_header_that_the_policy_does_not_need() {
    let by_method = json!([{"class": "preflight", "match": {"methods": ["OPTIONS"]}, "exempt": true}]);
    let cases = [
        (vec![("/classes", by_method)], &["get_header request :method", "get_header request x-user-id"][..]),
        (vec![("/classes", json!([]))], &["get_header request x-user-id"]),
        (
            vec![
                ("/classes", json!([])),
                ("/rules/0/key", json!([{"constant": {"value": "u1", "as": "user"}}])),
                ("/rules/0/tier", json!({"default": "free"})),
            ],
            &[],
        ),
    ];
    for (mut changes, headers) in cases {
        changes.push(("/rules/0/limits", json!({"free": {"default": "1000/s"}, "gold": "unlimited"})));
        in_vm(|proxy| {
            let root = proxy.root(&lease(&changes));
            borrow(proxy, root);
            let stream = proxy.get(root, "u1");
            let trace = costs(proxy);
            assert_eq!(trace, [headers, &["get_current_time"], &CHANGE, &[ALLOWED]].concat());
            assert_eq!(dear(&trace), headers.len() + 1);
            assert_eq!(proxy.phase(stream), Phase::Passed);
        });
    }
}

#[test]
fn a_request_of_a_cold_key_costs_a_call_and_the_table_three_times() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        let stream = assert_arrives(proxy, root, &[&LOOK[..], &["enqueue"]].concat());
        proxy.run();
        // It is this worker's call.
        assert_eq!(costs(proxy), [&WAKE_UP[..], &CHANGE, &[CALL]].concat());
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"));
        proxy.answer(lends(996, long(0, 3), &[1]));
        let resumed = [CALL_OK, LENT, ALLOWED, "set_effective_context 2", "continue_stream"];
        assert_eq!(costs(proxy), [&REPLY[..], &CHANGE, &resumed].concat());
        assert_eq!(proxy.phase(stream), Phase::Passed);
    });
}

#[test]
fn a_request_that_asks_ahead_costs_a_wake_up_more_and_does_not_wait_for_the_call() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        proxy.gets(root, "u1", 20);
        proxy.run();
        proxy.answer(lends(977, long(0, 3), &[20]));
        // At the rate at which the others came, two tokens do not last for long.
        let stream = assert_arrives(proxy, root, &[&CHANGE[..], &[ALLOWED, "enqueue"]].concat());
        assert_eq!(proxy.phase(stream), Phase::Passed);
        proxy.run();
        assert_eq!(costs(proxy), [&WAKE_UP[..], &CHANGE, &[CALL]].concat());
        assert_eq!(proxy.asked(), asks_of_u1("12 1700000300000 3 2 0 0"));
        // While the call is out, it is not asked again.
        assert_arrives(proxy, root, &[&CHANGE[..], &[ALLOWED]].concat());
        proxy.answer(lends(967, long(2, 10), &[]));
        assert_eq!(costs(proxy), [&REPLY[..], &CHANGE, &[CALL_OK, LENT]].concat(), "nobody waits for it");
    });
}

#[test]
fn a_request_that_waits_for_the_call_of_another_worker_costs_no_call_and_is_woken_by_that_worker() {
    let space = Space::default();
    let [one, other] = [(); 2].map(|()| Vm::start(&space, &lease(&[])));
    one.act(|proxy, root| {
        proxy.get(root, "u1");
        proxy.run();
    });
    let stream = other.act(|proxy, root| {
        let stream = assert_arrives(proxy, root, &[&LOOK[..], &["enqueue"]].concat());
        proxy.run();
        // It says that it waits.
        assert_eq!(costs(proxy), [&WAKE_UP[..], &CHANGE].concat());
        // So slow a demand does not ask ahead. What a tick costs meanwhile stands in `leases`.
        proxy.advance(15);
        costs(proxy);
        stream
    });
    one.act(|proxy, _| {
        proxy.advance(15);
        costs(proxy);
        proxy.answer(lends(996, long(0, 3), &[1]));
        let wakes = [CALL_OK, LENT, "get_shared_data weir.workers", "enqueue of another worker"];
        let resumed = [ALLOWED, "set_effective_context 2", "continue_stream"];
        assert_eq!(costs(proxy), [&REPLY[..], &CHANGE, &wakes, &resumed].concat());
    });
    other.act(move |proxy, _| {
        proxy.run();
        let resumed = [ALLOWED.to_owned(), format!("set_effective_context {stream}"), "continue_stream".to_owned()];
        let served = [&WAKE_UP[..], &CHANGE].concat();
        assert_eq!(costs(proxy), [served.iter().map(|call| (*call).to_owned()).collect(), resumed.to_vec()].concat());
        assert_eq!((proxy.phase(stream), proxy.counts().len()), (Phase::Passed, 0));
    });
}

#[test]
fn a_request_of_a_dry_key_costs_one_read_while_the_limiter_is_not_to_be_asked() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        proxy.get(root, "u1");
        proxy.run();
        costs(proxy);
        proxy.answer(lends(0, NO_LEASE, &[0]));
        let refused = [CALL_OK, LIMITED, "set_effective_context 2", CONTENT_TYPE, "send_local_response 429"];
        assert_eq!(costs(proxy), [&REPLY[..], &CHANGE, &refused].concat());
        for ms in [0, 100, 149] {
            proxy.advance(ms);
            assert_arrives(proxy, root, &[&LOOK[..], &[LIMITED, CONTENT_TYPE, "send_local_response 429"]].concat());
        }
        assert_eq!(proxy.counts()["calls"], 1);
    });
}

#[test]
fn services_own_headers_are_looked_for_only_where_they_are_kept() {
    let both = json!(["x-ratelimit", "ratelimit"]);
    for (word, looked_for) in [
        ("replace", vec![]),
        // One of a family is enough, and the rest of it is not looked for.
        ("keep", vec!["x-ratelimit-limit", "ratelimit-policy", "ratelimit"]),
    ] {
        let response = json!({"headers": both, "upstream_headers": word});
        with_policy(&[("/response", response)], |proxy, root| {
            let stream = proxy.get(root, "u1");
            proxy.run();
            proxy.answer(grants(59, &[1]));
            costs(proxy);
            proxy.serve(stream);
            let trace = costs(proxy);
            // The status is read in any case: what is refused behind is told by whoever refused it.
            let looked_for = [":status"].iter().chain(&looked_for);
            let looked: Vec<String> = looked_for.map(|name| format!("get_header response {name}")).collect();
            assert!(trace.starts_with(&looked), "{word}: {trace:?}");
            let written = if word == "keep" { 2 } else { 5 };
            assert_eq!(trace.len(), looked.len() + written, "{word}: {trace:?}");
        });
    }
}
