//! The boundary: what the bridge does not do, whoever asks.

use weir::clock::Ms;
use weir::limiter::Failure;
use weir::limiter::redis::bridge::{MAX_CALL, MAX_PARTS, PATH};
use weir_stack::{Client, Request, Response};

use crate::{Pair, call_of, granted, key, post, results, told};

const SCRIPT: &str = "t3/ae1d2c722fd39f24717f0fd93adc9142df96b22c";

/// A call that is refused as a whole.
fn assert_refused(response: &Response, status: u16, failure: Failure) {
    assert_eq!(response.status, status, "{}", response.text());
    let answers = told(response);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].number, answers[0].result.clone()), (None, Err(failure)));
}

#[test]
fn it_runs_known_scripts_on_its_own_keys_and_each_part_has_its_own_fate() {
    let pair = Pair::start();
    let parts = [
        format!("1 {SCRIPT} {} 100 3600000 100 300000 50 0 0 0 0 0 0 1 1 1", key("a")),
        format!("2 {SCRIPT} other:{{a}}:per-user 100 3600000 100 300000 50 0 0 0 0 0 0 2 1 1"),
        format!("3 {SCRIPT} rl2:{{a}}:per-user 100 3600000 100 300000 50 0 0 0 0 0 0 3 1 1"),
        format!("4 {SCRIPT} {{a}}rl:{{b}}:per-user 100 3600000 100 300000 50 0 0 0 0 0 0 4 1 1"),
        format!("5 t3/ae1d2c722fd39f24717f0fd93adc9142df96b22d {} 1", key("a")),
        format!("6 FLUSHALL {} 1", key("a")),
        format!("7 {SCRIPT} {} 100 3600000 100 300000 50 0 0 0 0 0 0 7 1 1", key("b")),
    ];
    let answers = results(&pair.call(&format!("weir 1 900\n{}\n", parts.join("\n"))));
    assert_eq!((granted(&answers[0]), granted(&answers[6])), (1, 1));
    let foreign = Err(Failure::ForeignKey);
    let unknown = Err(Failure::UnknownScript);
    assert_eq!(answers[1..6], [foreign.clone(), foreign.clone(), foreign, unknown.clone(), unknown]);
    let mut keys: Vec<String> = pair.redis.say(&["KEYS", "*"]).unwrap();
    keys.sort();
    assert_eq!(keys, [key("a"), key("b")]);
    assert_eq!(pair.bridge.metric("weir_bridge_failures_total{reason=\"foreign_key\"}"), Some(3.0));
}

#[test]
fn another_namespace_is_served_where_it_is_named() {
    let more = |options: weir_stack::BridgeOptions| options.with(&["--namespace", "shop"]);
    let pair = Pair::with(weir_stack::RedisOptions { namespace: "shop", ..Default::default() }, more);
    assert_eq!(pair.ask("a"), Err(Failure::ForeignKey));
    let call = call_of(Ms(900), &["a"]).replace("rl:{", "shop:{");
    assert_eq!(granted(&results(&pair.call(&call))[0]), 1);
}

#[test]
fn what_is_no_call_is_refused() {
    let pair = Pair::start();
    let calls = ["", "FLUSHALL\n", "weir 1 900\n", "weir 2 900\n1 a b\n", "weir 1 900\n1 a b c\n", "weir 1 0\n1 a b\n"];
    for call in calls {
        assert_refused(&pair.call(call), 400, Failure::Refused);
    }
    let many = call_of(Ms(900), &["a"; MAX_PARTS + 1]);
    assert_refused(&pair.call(&many), 400, Failure::Refused);
    assert_refused(&pair.call(&"x".repeat(MAX_CALL + 1)), 413, Failure::Refused);
    // Without a length that says so in advance.
    let chunk = format!("{:x}\r\n{}\r\n", 40_000, "x".repeat(40_000));
    let chunked = Request::new("POST", PATH)
        .header("transfer-encoding", "chunked")
        .body([chunk.as_str(); 2].concat() + "0\r\n\r\n");
    assert_refused(&Client::new(pair.bridge.port()).send(&chunked).unwrap(), 413, Failure::Refused);
    assert_eq!(pair.redis.script_runs().unwrap(), 0);
    let all = call_of(Ms(900), &["a"; MAX_PARTS]);
    assert_eq!(results(&pair.call(&all)).iter().map(granted).sum::<i64>(), MAX_PARTS as i64);
}

#[test]
fn there_is_nothing_else_to_ask() {
    let pair = Pair::start();
    let get = |path: &str| Client::new(pair.bridge.port()).get(path, &[]).unwrap();
    assert_eq!((get("/healthz").status, get("/readyz").status, get("/metrics").status), (200, 200, 200));
    for path in ["/", "/v1", "/v1/run/", "/v1/runs", "/EVAL/x"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    let other = get(PATH);
    assert_refused(&other, 405, Failure::Refused);
    assert_eq!(other.header("allow"), Some("POST"));
    // The second listener takes no calls.
    assert_eq!(pair.bridge.admin(PATH).unwrap().status, 404);
    assert_eq!(Client::new(pair.bridge.port()).send(&post(&call_of(Ms(900), &["a"]))).unwrap().status, 200);
}

#[test]
fn nothing_that_it_tells_names_a_tenant_or_a_secret() {
    let pair = Pair::with(Default::default(), |options| options.with_env("WEIR_BRIDGE_SECRET", "hunter2hunter2"));
    let call = call_of(Ms(900), &["mallory"]);
    let known = post(&call).header("authorization", "Bearer hunter2hunter2");
    assert_eq!(Client::new(pair.bridge.port()).send(&known).unwrap().status, 200);
    let own: () = pair.redis.say(&["SET", &key("mallory"), "x"]).unwrap();
    assert_eq!(own, ());
    let answers = results(&Client::new(pair.bridge.port()).send(&known).unwrap());
    assert_eq!(answers, [Err(Failure::BadKey)]);
    let told = pair.bridge.log() + &pair.bridge.admin("/metrics").unwrap().text();
    for word in ["mallory", "hunter2", pair.redis.password()] {
        assert!(!told.contains(word), "{word} in\n{told}");
    }
}
