//! Something fails: what clients get, that the limit holds, and that it is over when it is over.
//!
//! Times are upper bounds on hanging and on recovery only, with room for a machine that is busy.

use std::time::{Duration, Instant};

use weir::algorithm::TOKEN_BUCKET;
use weir_stack::{Client, Outcome, Response, burst};

use crate::rig::{CONNECTIONS, Limiter, Options, Rig, answers, count, of, policy};

/// How long after the end of a failure decisions may still be the failure's.
const RECOVERY: Duration = Duration::from_secs(2);

/// How much longer than its deadline a request may take: a tick, and a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

fn one_envoy(limiter: Limiter<'_>) -> Options<'_> {
    Options { envoys: 1, limiter, ..Options::default() }
}

fn assert_unavailable(answer: &Response) {
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.text(), r#"{"error":"limiter_unavailable","rule":"per-user","retry_after":1}"#);
}

/// Asserts that a request under each policy gets what the policy says of this failure, and that it is counted.
fn assert_failure(limiter: Limiter<'_>, cluster: &str, reason: &str) {
    let under = |on_error: &str| {
        policy("9/d", "500ms", on_error).replace(r#""cluster": "webdis""#, &format!(r#""cluster": "{cluster}""#))
    };
    let mut rig = Rig::start(&under("deny"), one_envoy(limiter));
    let port = rig.envoys[0].port();
    assert_unavailable(&Client::new(port).send(&of("acme")).unwrap());
    rig.envoys[0].push_policy(&under("allow")).unwrap();
    let answer = Client::new(port).send(&of("acme")).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert_eq!(answer.header("x-ratelimit-limit"), None, "nothing is known of the bucket, so nothing is told");
    assert_eq!((rig.counted(&format!("degraded_decisions.per-user.{reason}")), rig.degraded()), (2, 2), "{reason}");
    rig.assert_no_errors_logged();
}

#[test]
fn a_limiter_that_is_absent_is_a_status_or_a_reset() {
    // Envoy answers its own calls with 503 where it cannot connect.
    assert_failure(Limiter::Absent, "webdis", "status");
}

/// What the script answers to the first request under 9/d that is numbered so: 8 tokens are left, no lease, one request granted.
const GRANTED: &str = r#"{"EVALSHA":[4242,691200000,9600000,0,0,0,0,0,1]}"#;

#[test]
fn a_bad_status_is_a_failure_whatever_its_body_says() {
    assert_failure(Limiter::Answering(500, GRANTED), "webdis", "status");
}

#[test]
fn a_reply_with_another_number_is_another_calls() {
    assert_failure(Limiter::Answering(200, GRANTED), "webdis", "misdelivered");
}

#[test]
fn a_reply_that_is_none_is_a_failure() {
    let body = GRANTED.replace("[4242", "[false");
    assert_failure(Limiter::Answering(200, &body), "webdis", "unreadable");
}

#[test]
fn a_reply_of_the_script_before_leases_is_a_failure() {
    // Level, reset, and what was granted.
    let body = r#"{"EVALSHA":[691200000,9600000,1]}"#;
    assert_failure(Limiter::Answering(200, body), "webdis", "misdelivered");
}

#[test]
fn an_endless_reply_is_a_failure() {
    let body = "7".repeat(20 * 1024);
    assert_failure(Limiter::Answering(200, &body), "webdis", "oversized");
}

#[test]
fn an_error_of_redis_in_a_200_is_a_failure() {
    let body = r#"{"EVALSHA":[false,"OOM command not allowed when used memory > 'maxmemory'."]}"#;
    assert_failure(Limiter::Answering(200, body), "webdis", "redis");
}

#[test]
fn a_key_that_is_no_bucket_degrades_its_tenant_and_nobody_else() {
    let rig = Rig::start(&policy("1000/d", "500ms", "deny"), one_envoy(Limiter::Webdis));
    let mut redis = rig.redis.operator().unwrap();
    let key = format!("rl:{{user.bob}}:per-user:default:86400000:{}", TOKEN_BUCKET.format);
    redis::cmd("LPUSH").arg(&key).arg("x").exec(&mut redis).unwrap();
    let mut bad = 0;
    for round in 0..20 {
        let others: Vec<_> = (0..8).map(|number| of(&format!("tenant {round} {number}"))).collect();
        let others = rig.send(&others);
        assert_eq!(count(&others, 200), 8, "round {round}: {others:?}");
        let of_bob = rig.send(&vec![of("bob"); 8]);
        of_bob.iter().for_each(assert_unavailable);
        bad += of_bob.len() as u64;
    }
    assert_eq!((rig.counted("degraded_decisions.per-user.bad_key"), rig.degraded()), (bad, bad));
    // Each worker has asked in vain once a second; those who waited for that share the call.
    let asked = rig.counted("limiter_calls.main.bad_key");
    assert!((1..=40).contains(&asked), "{asked} calls");
    redis::cmd("DEL").arg(&key).exec(&mut redis).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(count(&rig.send(&vec![of("bob"); 8]), 200), 8, "it is over a second after the key is gone");
    rig.assert_no_errors_logged();
}

#[test]
fn an_unknown_cluster_is_a_failure() {
    assert_failure(Limiter::Webdis, "nowhere", "unknown_cluster");
}

#[test]
fn a_limiter_that_is_slower_than_the_timeout_is_a_timeout() {
    assert_failure(Limiter::Delayed(3000), "webdis", "timeout");
}

/// Sends requests until all workers of all Envoys decide by the limiter again, and asserts that it does not take long.
fn assert_recovers(rig: &Rig) {
    let since = Instant::now();
    for port in rig.ports() {
        // As many connections as it takes to meet each worker.
        loop {
            let answers = answers(burst(&[port], 16, &vec![of("somebody else"); 16]));
            answers.iter().filter(|answer| answer.status != 200).for_each(assert_unavailable);
            if count(&answers, 200) == 16 {
                break;
            }
            assert!(since.elapsed() < RECOVERY, "no recovery after {RECOVERY:?}");
        }
    }
}

/// Sends requests while the limiter is away: each gets the policy's answer, none later than its deadline.
fn assert_all_unavailable(outcomes: Vec<Outcome>) {
    let deadline = Duration::from_secs(2) + SLACK;
    for outcome in &outcomes {
        assert!(outcome.took <= deadline, "a request took {:?}", outcome.took);
    }
    answers(outcomes).iter().for_each(assert_unavailable);
}

#[test]
fn a_redis_that_comes_back_empty_adds_at_most_one_burst() {
    let mut rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    assert_eq!(count(&rig.send(&vec![of("acme"); 300]), 200), 300);
    rig.redis.kill();
    assert_all_unavailable(burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); 128]));
    rig.redis.restart().unwrap();
    assert_recovers(&rig);
    rig.webdis.wait_connected().unwrap();
    let answers = rig.send(&vec![of("acme"); 800]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (500, 300));
    rig.assert_no_errors_logged();
}

#[test]
fn a_redis_that_hangs_holds_no_request_past_its_deadline() {
    let mut rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    assert_eq!(count(&rig.send(&vec![of("acme"); 100]), 200), 100);
    rig.redis.stop();
    assert_all_unavailable(burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); CONNECTIONS]));
    assert_eq!(rig.counted("degraded_decisions.per-user.timeout"), CONNECTIONS as u64);
    rig.redis.cont();
    assert_recovers(&rig);
    // What Redis granted to those who had left is spent, and nobody else's.
    let admitted = count(&rig.send(&vec![of("acme"); 600]), 200);
    assert!((400 - CONNECTIONS as u64..=400).contains(&admitted), "admitted {admitted} of the 400 that were left");
    rig.assert_no_errors_logged();
}

#[test]
fn a_webdis_that_dies_and_comes_back_changes_no_bucket() {
    let mut rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    assert_eq!(count(&rig.send(&vec![of("acme"); 300]), 200), 300);
    rig.webdis.kill();
    assert_all_unavailable(burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); 128]));
    rig.webdis.restart().unwrap();
    assert_recovers(&rig);
    let answers = rig.send(&vec![of("acme"); 400]);
    assert_eq!((count(&answers, 200), count(&answers, 429)), (200, 200));
    rig.assert_no_errors_logged();
}

#[test]
fn envoys_that_start_before_their_limiter_serve_and_find_it_later() {
    let mut rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    rig.webdis.kill();
    assert_all_unavailable(burst(&rig.ports(), CONNECTIONS, &vec![of("acme"); 64]));
    rig.webdis.restart().unwrap();
    assert_recovers(&rig);
    assert_eq!(count(&rig.send(&vec![of("acme"); 600]), 200), 500);
    rig.assert_no_errors_logged();
}

#[test]
fn scripts_that_are_flushed_are_sent_again_and_nobody_notices() {
    let rig = Rig::start(&policy("500/d", "2s", "deny"), Options::default());
    let mut operator = rig.redis.operator().unwrap();
    let mut admitted = 0;
    for _ in 0..4 {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut operator).unwrap();
        admitted += count(&rig.send(&vec![of("acme"); 200]), 200);
    }
    assert_eq!((admitted, rig.degraded()), (500, 0));
    assert_eq!(rig.calls(), rig.redis.script_runs().unwrap());
    rig.assert_no_errors_logged();
}
