//! Nothing fails: the limit is exact, and calls are few.

use std::io::Write;
use std::time::Duration;

use weir_stack::{Client, Request, Response};

use crate::rig::{CONNECTIONS, Limiter, Options, Rig, count, of, policy};

/// Tokens that have come back to a bucket of so many a day, by the clock of Redis.
fn refilled(per_day: u64, from_ms: u64, to_ms: u64) -> u64 {
    per_day * (to_ms - from_ms) / 86_400_000
}

fn remaining(answer: &Response) -> u64 {
    answer.header("x-ratelimit-remaining").expect("a limit applies").parse().expect("a number")
}

/// Runs `act`, which gives what it saw admitted, and asserts the bound, and exactness where no call failed.
fn assert_exact(rig: &Rig, burst: u64, per_day: u64, act: impl FnOnce(&Rig) -> u64) {
    let from = rig.redis.time_ms().unwrap();
    let admitted = act(rig);
    let bound = burst + refilled(per_day, from, rig.redis.time_ms().unwrap());
    assert!(admitted <= bound, "admitted {admitted}, the limit allows {bound}");
    assert_eq!((admitted, rig.degraded()), (bound, 0), "admitted, degraded");
    assert_eq!(rig.calls(), rig.redis.script_runs().unwrap(), "calls made and scripts run");
    rig.assert_no_errors_logged();
}

#[test]
fn two_envoys_share_one_limit_exactly() {
    let rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    let requests = vec![of("acme"); 1500];
    assert_exact(&rig, 500, 500, |rig| {
        let answers = rig.send(&requests);
        let admitted = count(&answers, 200);
        assert_eq!(count(&answers, 429), 1500 - admitted);
        assert_eq!(rig.peer.upstream_requests(), admitted, "what the service has seen");
        admitted
    });
}

#[test]
fn many_tenants_have_a_bucket_each() {
    let rig = Rig::start(&policy("20/d", "2s", "deny"), Options::default());
    let tenants: Vec<String> = (0..40).map(|number| format!("tenant {number}")).collect();
    let requests: Vec<Request> = (0..1200).map(|number| of(&tenants[number % 40])).collect();
    let answers = rig.send(&requests);
    for (number, tenant) in tenants.iter().enumerate() {
        let own: Vec<Response> = answers.iter().skip(number).step_by(40).cloned().collect();
        assert_eq!((count(&own, 200), count(&own, 429)), (20, 10), "{tenant}");
    }
    assert_eq!(rig.calls(), rig.redis.script_runs().unwrap());
    rig.assert_no_errors_logged();
}

#[test]
fn costs_are_taken_whole_and_small_ones_pass_where_large_ones_do_not_fit() {
    let rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    let export = Request::new("POST", "/v1/reports/9/export").header("x-user-id", "acme");
    let mixed: Vec<Request> =
        (0..400).map(|number| if number % 2 == 0 { export.clone() } else { of("acme") }).collect();
    assert_exact(&rig, 500, 500, |rig| {
        let answers = rig.send(&mixed);
        let of_kind = |kind: usize| answers.iter().skip(kind).step_by(2).cloned().collect::<Vec<_>>();
        let spent = 7 * count(&of_kind(0), 200) + count(&of_kind(1), 200);
        // What is left cannot be seen in one run; single requests use it up, one token each.
        let rest = rig.send(&vec![of("acme"); 100]);
        spent + count(&rest, 200)
    });
}

#[test]
fn each_answer_tells_its_own_remaining() {
    let rig = Rig::start(&policy("100/d", "2s", "deny"), Options::default());
    let answers = rig.send(&vec![of("acme"); 100]);
    let mut told: Vec<u64> = answers.iter().map(remaining).collect();
    told.sort_unstable();
    assert_eq!(told, (0..100).collect::<Vec<u64>>());
    let refused = rig.send(&[of("acme")]).remove(0);
    assert_eq!((refused.status, remaining(&refused)), (429, 0));
    assert_eq!(refused.header("x-ratelimit-limit"), Some("100"));
    assert_eq!(refused.header("content-type"), Some("application/json"));
    // A token takes 864 s; jitter adds at most a tenth.
    let retry_after: u64 = refused.header("retry-after").expect("a 429 says when to come back").parse().unwrap();
    assert!((855..=951).contains(&retry_after), "retry-after: {retry_after}");
    let body = format!(r#"{{"error":"rate_limited","rule":"per-user","retry_after":{retry_after}}}"#);
    assert_eq!(refused.text(), body);
    let reset: u64 = refused.header("x-ratelimit-reset").expect("a limit applies").parse().unwrap();
    let now_s = rig.redis.time_ms().unwrap() / 1000;
    assert!((now_s + 86_390..=now_s + 86_401).contains(&reset), "reset: {reset}, now: {now_s}");
}

#[test]
fn exempt_requests_pass_without_a_call_and_without_headers() {
    let rig = Rig::start(&policy("9/d", "2s", "deny"), Options { envoys: 1, ..Options::default() });
    let answers = rig.send(&vec![Request::get("/healthz").header("x-user-id", "acme"); 20]);
    assert_eq!(count(&answers, 200), 20);
    assert!(answers.iter().all(|answer| answer.header("x-ratelimit-limit").is_none()));
    assert_eq!(rig.redis.script_runs().unwrap(), 0);
    rig.assert_no_errors_logged();
}

#[test]
fn the_services_own_limit_headers_are_replaced() {
    let headers = &[("x-ratelimit-limit", "7"), ("x-ratelimit-policy", "theirs")];
    let rig = Rig::start(
        &policy("9/d", "2s", "deny"),
        Options { envoys: 1, upstream_headers: headers, ..Options::default() },
    );
    let answer = rig.send(&[of("acme")]).remove(0);
    let limits: Vec<&(String, String)> =
        answer.headers.iter().filter(|(name, _)| name == "x-ratelimit-limit").collect();
    assert_eq!(limits, [&("x-ratelimit-limit".to_owned(), "9".to_owned())]);
    assert_eq!(answer.header("x-ratelimit-policy"), Some("theirs"));
}

#[test]
fn requests_that_wait_for_one_bucket_share_a_call() {
    let options = Options { envoys: 1, limiter: Limiter::Delayed(20), ..Options::default() };
    let rig = Rig::start(&policy("500/d", "2s", "deny"), options);
    let requests = vec![of("acme"); 20 * CONNECTIONS];
    assert_exact(&rig, 500, 500, |rig| count(&rig.send(&requests), 200));
    let (calls, requests) = (rig.redis.script_runs().unwrap(), requests.len() as u64);
    assert!(calls <= requests / 8, "{calls} calls for {requests} requests");
}

#[test]
fn a_client_that_leaves_while_it_waits_costs_its_tokens_and_nobody_elses_answer() {
    let options = Options { envoys: 1, limiter: Limiter::Delayed(300), ..Options::default() };
    let rig = Rig::start(&policy("100/d", "2s", "deny"), options);
    let port = rig.envoys[0].port();
    // Redis learns the script: EVALSHA, then EVAL.
    assert_eq!(Client::new(port).send(&of("another")).unwrap().status, 200);
    assert_eq!(rig.redis.script_runs().unwrap(), 2);
    let mut leaving = Client::connect_raw(port).unwrap();
    leaving.write_all(&of("acme").encode()).unwrap();
    // The delayed listener has the call; Redis does not yet.
    let out = rig.envoys[0].wait_for(Duration::from_secs(5), |_| rig.peer.delayed_requests(0) == 3);
    assert!(out, "the call of the one who leaves is out");
    drop(leaving);
    let reached = rig.envoys[0].wait_for(Duration::from_secs(5), |_| rig.redis.script_runs().unwrap() == 3);
    assert!(reached, "its call reaches Redis all the same");
    let answer = Client::new(port).send(&of("acme")).unwrap();
    assert_eq!((answer.status, remaining(&answer)), (200, 98), "two tokens are gone: one granted to nobody");
    assert_eq!(rig.peer.upstream_requests(), 2, "the one who left did not reach the service");
    rig.assert_no_errors_logged();
}
