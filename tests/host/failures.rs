//! Each failure of the limiter under each policy for it: what the client sees, and what is counted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir::algorithm::TOKEN_BUCKET;

use crate::fake::{Call, Phase};
use crate::policy::{NOSCRIPT, UNAVAILABLE, UNTOUCHED, grants_by, passed};
use crate::proxy::{Proxy, START_MS, with_policy};

pub struct Row {
    pub name: &'static str,
    pub cluster: &'static str,
    /// What happens after the call was made.
    pub then: fn(&Proxy),
    pub reason: &'static str,
    pub calls: i64,
}

const NOSCRIPT_BY_TEXT: &str = r#"{"EVAL":[false,"NOSCRIPT No matching script. Please use EVAL."]}"#;

#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    Row { name: "no answer in time",            cluster: "webdis",   then: |proxy| proxy.advance(20),                     reason: "timeout",         calls: 1 },
    Row { name: "reset",                        cluster: "webdis",   then: |proxy| proxy.reset(&proxy.call()),            reason: "reset",           calls: 1 },
    Row { name: "a status that is no text",     cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), [0xff], ""), reason: "reset",          calls: 1 },
    Row { name: "a status that is no number",   cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "ok", ""),  reason: "reset",           calls: 1 },
    Row { name: "Envoy has no connection",      cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "503", "no healthy upstream"), reason: "status", calls: 1 },
    Row { name: "Envoy gives up",               cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "504", "upstream request timeout"), reason: "status", calls: 1 },
    Row { name: "status 500",                   cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "500", GRANTED), reason: "status",     calls: 1 },
    Row { name: "forbidden by Webdis",          cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "403", GRANTED), reason: "status",     calls: 1 },
    Row { name: "status 201",                   cluster: "webdis",   then: |proxy| proxy.reply(&proxy.call(), "201", GRANTED), reason: "status",     calls: 1 },
    Row { name: "no body",                      cluster: "webdis",   then: |proxy| proxy.answer(""),                      reason: "unreadable",      calls: 1 },
    Row { name: "no JSON",                      cluster: "webdis",   then: |proxy| proxy.answer("<html>"),                reason: "unreadable",      calls: 1 },
    Row { name: "no UTF-8",                     cluster: "webdis",   then: |proxy| proxy.answer(b"{\"EVALSHA\":[\"\xff\xfe\"]}"), reason: "unreadable", calls: 1 },
    Row { name: "another command's reply",      cluster: "webdis",   then: |proxy| proxy.answer(grants_by("EVAL", 59, &[1])), reason: "unreadable",  calls: 1 },
    Row { name: "null",                         cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":null}"#),   reason: "unreadable",      calls: 1 },
    Row { name: "too few numbers",              cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000,1000,0,0,0,0,0]}"#), reason: "unreadable", calls: 1 },
    Row { name: "too many numbers",             cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000,1000,0,0,0,0,0,1,0]}"#), reason: "unreadable", calls: 1 },
    Row { name: "more granted than asked",      cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3480000,2000,0,0,0,0,0,2]}"#), reason: "unreadable", calls: 1 },
    Row { name: "more left than there can be",  cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3600000,0,0,0,0,0,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "granted below nothing",        cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[-120000,62000,0,0,0,0,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "refused though it fits",       cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3600000,0,0,0,0,0,0,0]}"#), reason: "unreadable", calls: 1 },
    Row { name: "a negative number of grants",  cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[0,60000,0,0,0,0,0,-1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "a lease that nobody wanted",   cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3480000,2000,1700000300000,300000,0,1,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "more kept than there was",     cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000,1000,1700000300000,300000,1,0,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "a lease of nothing",           cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000,1000,1700000300000,300000,0,0,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "limited twice",                cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000,1000,0,0,0,0,2,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "a fraction",                   cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[3540000.5,1000,0,0,0,0,0,1]}"#), reason: "unreadable", calls: 1 },
    Row { name: "an oversized body",            cluster: "webdis",   then: |proxy| proxy.answer(vec![b' '; 4097]),        reason: "oversized",       calls: 1 },
    Row { name: "another call's reply",         cluster: "webdis",   then: |proxy| proxy.misdeliver(&proxy.call(), "200", MISDELIVERED), reason: "misdelivered", calls: 1 },
    Row { name: "another call's error",         cluster: "webdis",   then: |proxy| proxy.answer(NOSCRIPT_BY_TEXT),        reason: "misdelivered",    calls: 1 },
    Row { name: "a key that is no bucket",      cluster: "webdis",   then: |proxy| finds_no_bucket(proxy, &proxy.call()), reason: "bad_key",         calls: 1 },
    Row { name: "Redis is read-only",           cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[false,"READONLY You can't write against a read only replica."]}"#), reason: "redis", calls: 1 },
    Row { name: "Redis is loading",             cluster: "webdis",   then: |proxy| proxy.answer(r#"{"EVALSHA":[false,"LOADING Redis is loading the dataset in memory"]}"#), reason: "redis", calls: 1 },
    Row { name: "no script, even by its text",  cluster: "webdis",   then: |proxy| { proxy.answer(NOSCRIPT); proxy.answer(NOSCRIPT_BY_TEXT) }, reason: "redis", calls: 2 },
    Row { name: "no script, then reset",        cluster: "webdis",   then: |proxy| { proxy.answer(NOSCRIPT); proxy.reset(&proxy.call()) }, reason: "reset", calls: 2 },
    Row { name: "no script, then no answer",    cluster: "webdis",   then: |proxy| { proxy.answer(NOSCRIPT); proxy.advance(20) }, reason: "timeout", calls: 2 },
    Row { name: "an unknown cluster",           cluster: "nowhere",  then: |_| {},                                        reason: "unknown_cluster", calls: 0 },
    Row { name: "a cluster without hosts",      cluster: "no-hosts", then: |_| {},                                        reason: "unreachable",     calls: 0 },
];

/// It fits, but for its number.
const MISDELIVERED: &str = r#"{"EVALSHA":[4242,3540000,1000,0,0,0,0,0,1]}"#;

/// The script answers that the key holds something else.
fn finds_no_bucket(proxy: &Proxy, call: &Call) {
    let body = format!(r#"{{"EVALSHA":[{},"WEIR the key holds no token bucket"]}}"#, call.number());
    // As it is: the number stands in it.
    proxy.misdeliver(call, "200", body);
}

const GRANTED: &str = r#"{"EVALSHA":[3540000,1000,0,0,0,0,0,1]}"#;

pub fn counts(calls: i64, degraded: &[(&str, i64)]) -> BTreeMap<String, i64> {
    let degraded = degraded.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
    let calls = ("calls".to_owned(), calls);
    degraded.chain([calls]).filter(|(_, count)| *count > 0).collect()
}

fn changes(on_error: &str, cluster: &str) -> [(&'static str, Value); 2] {
    [("/rules/0/on_error", json!(on_error)), ("/limiters/main/cluster", json!(cluster))]
}

#[test]
fn every_failure_is_answered_as_on_error_says_and_counted() {
    for Row { name, cluster, then, reason, calls } in ROWS {
        for (on_error, sees) in [("allow", UNTOUCHED), ("deny", UNAVAILABLE)] {
            with_policy(&changes(on_error, cluster), |proxy, root| {
                let stream = proxy.get(root, "u1");
                proxy.run();
                then(proxy);
                assert_eq!(proxy.sees(stream), sees, "{name}, on_error: {on_error}");
                assert_eq!(proxy.counts(), counts(*calls, &[(reason, 1)]), "{name}, on_error: {on_error}");
            });
        }
    }
}

#[test]
fn every_request_of_a_group_is_counted_and_the_log_has_one_line() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 20);
        proxy.run();
        proxy.reset(&proxy.call());
        assert_eq!(proxy.phases(&streams), [Phase::Answered; 20]);
        assert_eq!(proxy.counts(), counts(1, &[("reset", 20)]));
        let warnings: Vec<String> = proxy.log().into_iter().filter(|line| line.contains("failed")).collect();
        assert_eq!(warnings, ["weir: the limiter main failed (reset): on_error decides"]);
    });
}

#[test]
fn an_oversized_body_is_not_even_read() {
    with_policy(&[], |proxy, root| {
        proxy.get(root, "u1");
        proxy.run();
        proxy.trace();
        proxy.answer(vec![b' '; 4097]);
        assert!(!proxy.trace().contains(&"get_buffer call body".to_owned()));
    });
}

#[test]
fn the_longest_reply_that_can_be_true_is_read() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.answer({
            let longest = 4096 - format!("{},", proxy.call().number()).len();
            format!("{GRANTED:longest$}")
        });
        assert_eq!(proxy.sees(stream), passed(59));
    });
}

#[test]
fn a_script_that_redis_has_forgotten_is_sent_as_text_at_once() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.get(root, "u1");
        proxy.run();
        let by_name = proxy.call();
        assert_eq!(by_name.command(), "EVALSHA");
        proxy.answer(NOSCRIPT);
        let by_text = proxy.call();
        assert_eq!((by_text.command().as_str(), by_text.owner), ("EVAL", root));
        assert_eq!(by_text.script(), TOKEN_BUCKET.text());
        assert_eq!(by_text.asks(), by_name.asks());
        assert_ne!(by_text.number(), by_name.number());
        assert_eq!(proxy.phase(stream), Phase::Paused);
        proxy.answer(grants_by("EVAL", 59, &[1]));
        assert_eq!(proxy.sees(stream), passed(59));
        assert_eq!(proxy.counts(), counts(2, &[]));
    });
}

#[test]
fn a_wait_ends_with_the_tick_after_its_time_and_not_before() {
    with_policy(&[], |proxy, root| {
        proxy.advance(3);
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.advance(26);
        assert_eq!(proxy.phase(stream), Phase::Paused, "29 ms after the start, 26 after its arrival");
        proxy.advance(1);
        assert_eq!(proxy.phase(stream), Phase::Answered, "with the third tick of 10 ms");
    });
}

#[test]
fn an_answer_at_the_very_end_of_the_wait_is_too_late() {
    for (wait, phase) in [(19, Phase::Passed), (20, Phase::Answered)] {
        with_policy(&[], |proxy, root| {
            // Between two ticks, so that none comes first.
            proxy.advance(5);
            let stream = proxy.get(root, "u1");
            proxy.run();
            proxy.advance(wait);
            proxy.answer(GRANTED);
            assert_eq!(proxy.phase(stream), phase, "after {wait} ms");
        });
    }
}

#[test]
fn a_clock_that_is_set_back_costs_a_wait_at_most_a_tick() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.advance(10);
        proxy.set_clock(START_MS - 3_600_000);
        proxy.advance(30);
        assert_eq!(proxy.sees(stream), UNAVAILABLE);
    });
}

#[test]
fn the_limiter_is_asked_again_after_every_failure() {
    with_policy(&[], |proxy, root| {
        for _ in 0..3 {
            proxy.get(root, "u1");
            proxy.run();
            proxy.reset(&proxy.call());
        }
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.answer(GRANTED);
        assert_eq!(proxy.sees(stream), passed(59));
        assert_eq!(proxy.counts(), counts(4, &[("reset", 3)]));
    });
}

#[test]
fn a_key_that_is_no_bucket_is_left_alone_for_a_second_and_degrades_nobody_else() {
    with_policy(&[], |proxy, root| {
        let (mut asked, mut decided) = (0, 0);
        // Two seconds, in which the breaker would open after five failures in one.
        for _ in 0..40 {
            let bad = proxy.get(root, "u1");
            proxy.run();
            if proxy.phase(bad) == Phase::Paused {
                asked += 1;
                finds_no_bucket(proxy, &proxy.call());
            }
            assert_eq!(proxy.sees(bad), UNAVAILABLE);
            let other = proxy.get(root, "u2");
            proxy.run();
            proxy.answer(GRANTED);
            decided += usize::from(proxy.sees(other).contains("x-ratelimit-remaining: 59"));
            proxy.advance(50);
        }
        assert_eq!((asked, decided), (2, 40));
        assert_eq!(proxy.counts(), counts(42, &[("bad_key", 40)]));
        let warnings: Vec<String> = proxy.log().into_iter().filter(|line| line.contains("on_error")).collect();
        assert_eq!(
            warnings,
            ["weir: a Redis key of rule per-user, class default, tier free holds something that weir did not write: \
              on_error decides for that tenant; find the key by the debug header and delete it"]
        );
    });
}

#[test]
fn more_keys_that_are_no_buckets_than_are_kept_in_mind_are_asked_for_each_time() {
    with_policy(&[], |proxy, root| {
        for turn in 0..2 {
            for number in 0..300 {
                proxy.get(root, &format!("u{number}"));
                proxy.run();
                for call in proxy.calls() {
                    finds_no_bucket(proxy, &call);
                }
            }
            assert_eq!(proxy.counts()["calls"], [300, 344][turn]);
        }
        assert_eq!(proxy.counts()["bad_key"], 600);
    });
}

#[test]
fn a_bad_key_that_a_probe_has_met_shows_that_the_limiter_is_well() {
    with_policy(&[], |proxy, root| {
        for number in 0..5 {
            proxy.get(root, &format!("u{number}"));
            proxy.run();
            proxy.reset(&proxy.call());
        }
        proxy.get(root, "u6");
        assert_eq!((proxy.call_count(), proxy.counts()["breaker"]), (0, 1));
        proxy.advance(200);
        proxy.get(root, "u7");
        proxy.run();
        finds_no_bucket(proxy, &proxy.call());
        let other = proxy.get(root, "u8");
        proxy.run();
        proxy.answer(GRANTED);
        assert!(proxy.sees(other).contains("x-ratelimit-remaining: 59"));
    });
}
