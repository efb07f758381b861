//! What the filter and the bridge say to each other, byte for byte.

use std::rc::Rc;
use wasm_bindgen_test::wasm_bindgen_test;

use weir::algorithm::{Acquire, Acquired, Lent, Offer, Run, SCRIPTS, TOKEN_BUCKET};
use weir::bucket::BucketId;
use weir::clock::Ms;
use weir::limiter::redis::bridge::{
    Answer, Bridge, Call, MAX_ARGUMENTS, MAX_CALL, MAX_DEADLINE, MAX_KEY, MAX_PARTS, MAX_REPLY, MAX_RUNS, NoCall, Part,
    add_part, answers, begin, decode, is_in, reply, script,
};
use weir::limiter::{Attempt, Failure, HttpEnd, Transport, transport_of};
use weir::policy::{Limit, Policy, Terms};

use crate::made::{NUMBER, Random, ask_of, limit, only_for, rounds};

const SCRIPT: &str = "t3/ae1d2c722fd39f24717f0fd93adc9142df96b22c";

/// Two of cost 1 and one of cost 10, of 60/m: 48 tokens are left of a full bucket.
fn asked() -> Acquire {
    only_for(limit(60, 60, 60), &[Run { cost: 1, count: 2 }, Run { cost: 10, count: 1 }])
}

fn granted(level: i64, granted: &[u64]) -> Acquired {
    Acquired { level, lent: Lent::default(), granted: granted.to_vec(), window_left: Ms(0) }
}

fn policy(timeout: &str) -> Policy {
    let json = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "bridge", "cluster": "bridge", "timeout": "{timeout}"}}}},
            "rules": [{{"name": "per-key", "key": [{{"constant": "all"}}], "limits": "60/m", "on_error": "deny"}}]}}"#
    );
    Policy::from_host(json.as_bytes(), &|_| None).expect("a policy")
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_is_these_bytes() {
    let policy = policy("20ms");
    let transport = transport_of(policy.limiters.first());
    let bucket: Rc<BucketId> = ask_of("a.b", limit(60, 60, 90), 1).bucket;
    let call = transport.encode(&policy, &bucket, &Acquire { limit: limit(60, 60, 90), ..asked() }, Attempt::FIRST);
    assert_eq!((call.path, call.content_type), ("/v1/run", "text/plain"));
    let line = "rl:{t.a%2Eb}:per-key:default:60000:t3 60 60000 90 300000 45 0 0 0 0 0 0 4242 1 2 10 1";
    assert_eq!(call.body, format!("weir 1 900\n4242 {SCRIPT} {line}\n"));
    // Terms, want, end, size, carry, hold and debt, and nobody who waits.
    let offer = Offer { want: 21, end: 22, size: 23, carry: 24, debt: 25 };
    let terms = Terms { life: Ms(20), lend: 250 };
    let lease = Acquire { terms, offer, hold: true, ..only_for(limit(60, 60, 90), &[]) };
    let mut call = begin(Ms(7));
    add_part(&mut call, &TOKEN_BUCKET, "k", &lease);
    assert_eq!(call, format!("weir 1 7\n4242 {SCRIPT} k 60 60000 90 20 22 21 22 23 24 1 25 4242\n"));
}

#[wasm_bindgen_test(unsupported = test)]
fn the_work_ends_before_the_host_gives_up() {
    for (timeout, deadline) in [("20ms", 900), ("100ms", 900), ("1s", 9000), ("1ms", 900), ("60s", 540_000)] {
        let policy = policy(timeout);
        let bucket = ask_of("a", limit(60, 60, 60), 1).bucket;
        let call = Bridge.encode(&policy, &bucket, &asked(), Attempt::FIRST);
        assert_eq!(Call::read(call.body.as_bytes()).expect("a call").deadline, Ms(deadline), "{timeout}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_the_filter_writes_the_bridge_reads() {
    let mut call = begin(Ms(900));
    add_part(&mut call, &TOKEN_BUCKET, "rl:{t.a}:r:e:1000:t3", &asked());
    add_part(&mut call, &TOKEN_BUCKET, "k", &Acquire { number: u64::MAX, ..only_for(limit(1, 1, 1), &[]) });
    let read = Call::read(call.as_bytes()).expect("a call");
    assert_eq!(read.deadline, Ms(900));
    let arguments = "60 60000 60 300000 30 0 0 0 0 0 0 4242 1 2 10 1".split(' ').collect();
    let first = Part { number: NUMBER, script: SCRIPT, key: "rl:{t.a}:r:e:1000:t3", arguments };
    assert_eq!(read.parts[0], first);
    assert_eq!((read.parts[1].number, read.parts.len()), (u64::MAX, 2));
    for known in SCRIPTS {
        assert_eq!(script(&format!("{}/{}", known.format, known.sha)), Some(known));
    }
    for other in
        ["", "t3", "t3/", "t2/ae1d2c722fd39f24717f0fd93adc9142df96b22c", "/ae1d2c722fd39f24717f0fd93adc9142df96b22c"]
    {
        assert_eq!(script(other), None, "{other}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_largest_call_of_a_filter_fits() {
    let largest = Limit::new((1 << 53) - 1, Ms(1000), 9_007_199_254_740).expect("a limit");
    let all = u64::MAX;
    let offer = Offer { want: all, end: all, size: all, carry: all, debt: all };
    let runs = [Run { cost: all, count: all }; MAX_RUNS];
    let mut call = begin(MAX_DEADLINE);
    let asked = Acquire { offer, hold: true, number: all, ..only_for(largest, &runs) };
    add_part(&mut call, &TOKEN_BUCKET, &"k".repeat(MAX_KEY), &asked);
    assert_eq!(Call::read(call.as_bytes()).expect("a call").parts[0].arguments.len(), MAX_ARGUMENTS);
    // One of everyday's size for each part that may be.
    let mut call = begin(MAX_DEADLINE);
    for _ in 0..MAX_PARTS {
        add_part(&mut call, &TOKEN_BUCKET, &"k".repeat(400), &only_for(largest, &runs[..5]));
    }
    assert_eq!(Call::read(call.as_bytes()).expect("a call").parts.len(), MAX_PARTS);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_no_call_is_refused() {
    use NoCall::{Line, TooLong, TooManyParts, Version};
    let line = |line: &str| format!("weir 1 900\n1 s k 1\n{line}\n");
    let table = [
        (String::new(), Version),
        ("weir 1 900\n1 s k 1".to_owned(), Version),
        ("weir 2 900\n1 s k 1\n".to_owned(), Version),
        ("weir 1\n1 s k 1\n".to_owned(), Version),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), Version),
        ("weir 1 900\r\n1 s k 1\r\n".to_owned(), Line(1)),
        ("weir 1 0\n1 s k 1\n".to_owned(), Line(1)),
        ("weir 1 -1\n1 s k 1\n".to_owned(), Line(1)),
        ("weir 1 0900\n1 s k 1\n".to_owned(), Line(1)),
        ("weir 1 900 \n1 s k 1\n".to_owned(), Line(1)),
        ("weir 1 600001\n1 s k 1\n".to_owned(), Line(1)),
        ("weir 1 900\n".to_owned(), Line(2)),
        (line(""), Line(3)),
        (line("1"), Line(3)),
        (line("1 s"), Line(3)),
        (line("1  k 1"), Line(3)),
        (line("1 s  1"), Line(3)),
        (line("1 s k "), Line(3)),
        (line("1 s k  1"), Line(3)),
        (line("1 s k 1 "), Line(3)),
        (line(" 1 s k 1"), Line(3)),
        (line("01 s k 1"), Line(3)),
        (line("+1 s k 1"), Line(3)),
        (line("* s k 1"), Line(3)),
        (line("18446744073709551616 s k 1"), Line(3)),
        (line("1 s k 18446744073709551616"), Line(3)),
        (line("1 s k x"), Line(3)),
        (line("1 s k 1.5"), Line(3)),
        (line("1 s k -1"), Line(3)),
        (line("1 s k\t1 1"), Line(3)),
        (line("1 s ké 1"), Line(3)),
        (line("1 s k\0 1"), Line(3)),
        (line(&format!("1 s {} 1", "k".repeat(MAX_KEY + 1))), Line(3)),
        (line(&format!("1 s k{}", " 1".repeat(MAX_ARGUMENTS + 1))), Line(3)),
        (format!("weir 1 900\n{}", "1 s k 1\n".repeat(MAX_PARTS + 1)), TooManyParts),
        (format!("weir 1 900\n{}", "1 s k 1\n".repeat(MAX_CALL / 8)), TooLong),
    ];
    for (call, wanted) in table {
        assert_eq!(Call::read(call.as_bytes()), Err(wanted), "{call:.200}");
    }
    assert_eq!(Call::read(b"weir 1 900\n1 s k\xff 1\n"), Err(Version));
    assert_eq!(Call::read(b"weir 1 900\n1 s k\n").map(|call| call.parts.len()), Ok(1));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_reply_is_these_bytes() {
    let all = [
        Answer { number: Some(4242), result: Ok(vec![4242, -7, 0, i64::MAX]) },
        Answer { number: Some(u64::MAX), result: Ok(vec![]) },
        Answer { number: Some(0), result: Err(Failure::ClusterDown) },
        Answer { number: None, result: Err(Failure::Overloaded) },
    ];
    let text =
        "weir 1\n4242 ok 4242 -7 0 9223372036854775807\n18446744073709551615 ok\n0 no clusterdown\n* no overloaded\n";
    assert_eq!(reply(&all), text);
    assert_eq!(answers(text.as_bytes()), Some(all.to_vec()));
    for failure in Failure::TOLD {
        let one = [Answer { number: Some(1), result: Err(failure) }];
        assert_eq!(answers(reply(&one).as_bytes()), Some(one.to_vec()));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_is_a_verdict_or_a_named_failure() {
    use Failure::{BadKey, Misdelivered, Overloaded, Refused, Status, Unreadable};
    let verdict = || Ok(granted(2_880_000, &[2, 1]));
    let table = [
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 2 1\n", verdict()),
        (200, "weir 1\n4242 no bad_key\n", Err(BadKey)),
        (200, "weir 1\n* no overloaded\n", Err(Overloaded)),
        (503, "weir 1\n* no overloaded\n", Err(Overloaded)),
        (400, "weir 1\n* no refused\n", Err(Refused)),
        // Another call's, by what the bridge or the script says.
        (200, "weir 1\n4241 ok 4242 2880000 12000 0 0 0 0 0 2 1\n", Err(Misdelivered)),
        (200, "weir 1\n4242 ok 4241 2880000 12000 0 0 0 0 0 2 1\n", Err(Misdelivered)),
        (200, "weir 1\n4242 ok -4242 2880000 12000 0 0 0 0 0 2 1\n", Err(Misdelivered)),
        (200, "weir 1\n4241 no clusterdown\n", Err(Misdelivered)),
        // Numbers that cannot be true.
        (200, "weir 1\n4242 ok\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 2\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 3 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 2 1 0\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12001 0 0 0 0 0 2 1\n", Err(Unreadable)),
        // Not as it is written.
        (200, "", Err(Unreadable)),
        (200, "weir 1\n", Err(Unreadable)),
        (200, "weir 2\n4242 no bad_key\n", Err(Unreadable)),
        (200, "weir 1\n4242 no bad_key", Err(Unreadable)),
        (200, "weir 1\n4242 no bad_key \n", Err(Unreadable)),
        (200, "weir 1\n4242 no bad_key busy\n", Err(Unreadable)),
        (200, "weir 1\n4242 no breaker\n", Err(Unreadable)),
        (200, "weir 1\n4242 no\n", Err(Unreadable)),
        (200, "weir 1\n4242 maybe 1\n", Err(Unreadable)),
        (200, "weir 1\n04242 no bad_key\n", Err(Unreadable)),
        (200, "weir 1\n* ok 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 -0 2 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 00 2 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 - 2 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 ok 4242 2880000 12000  0 0 0 0 0 2 1\n", Err(Unreadable)),
        (200, "weir 1\n4242 no bad_key\n4242 no bad_key\n", Err(Unreadable)),
        (200, r#"{"EVALSHA":[4242,2880000,12000,0,0,0,0,0,2,1]}"#, Err(Unreadable)),
        // Of something else than the bridge.
        (503, "", Err(Status)),
        (503, "no healthy upstream", Err(Status)),
        (204, "", Err(Status)),
        (500, "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 2 1\n", Err(Status)),
        (500, "weir 1\n4242 no bad_key\n", Err(Status)),
    ];
    for (status, body, wanted) in table {
        assert_eq!(decode(HttpEnd::Answer { status, body: body.as_bytes() }, &asked()), wanted, "{status} {body}");
    }
    let long = "x".repeat(MAX_REPLY + 1);
    let ends = [
        (HttpEnd::Answer { status: 200, body: long.as_bytes() }, Failure::Oversized),
        (HttpEnd::Answer { status: 200, body: b"\xff\xfe" }, Failure::Unreadable),
        (HttpEnd::Oversized, Failure::Oversized),
        (HttpEnd::NoAnswer, Failure::Reset),
        (HttpEnd::NotStarted(Failure::UnknownCluster), Failure::UnknownCluster),
    ];
    for (end, failure) in ends {
        assert_eq!(decode(end, &asked()), Err(failure), "{end:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_longest_true_reply_may_be_read() {
    let numbers = vec![-9_007_199_254_740_991_i64; MAX_RUNS + 8];
    let answer = Answer { number: Some(u64::MAX), result: Ok(numbers) };
    assert!(reply([&answer]).len() <= MAX_REPLY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_key_is_in_a_namespace_by_its_first_part_and_the_brace_after_it() {
    for (key, namespace, is) in [
        ("rl:{user.acme}:r:default:1000:t3", "rl", true),
        ("rl2:{user.acme}:r:default:1000:t3", "rl", false),
        ("rl:user.acme:r", "rl", false),
        ("rl", "rl", false),
        ("r:{x}", "rl", false),
        ("x:rl:{y}", "rl", false),
        ("{x}rl:{y}", "rl", false),
    ] {
        assert_eq!(is_in(key, namespace), is, "{key}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_says_that_nothing_has_run_is_told_by_the_bridge() {
    let not_run: Vec<&str> =
        Failure::ALL.iter().filter(|failure| failure.has_not_run()).map(|failure| failure.name()).collect();
    let wanted = [
        "redis_down",
        "overloaded",
        "unauthorized",
        "refused",
        "foreign_key",
        "unknown_script",
        "clusterdown",
        "readonly",
        "loading",
        "oom",
        "noperm",
        "noauth",
        "tryagain",
        "masterdown",
        "crossslot",
        "busy",
    ];
    assert_eq!(not_run, wanted);
}

#[wasm_bindgen_test(unsupported = test)]
fn damaged_bytes_do_no_harm_and_have_one_spelling() {
    let mut call = begin(Ms(900));
    add_part(&mut call, &TOKEN_BUCKET, "rl:{t.a}:r:e:1000:t3", &asked());
    let text = "weir 1\n4242 ok 4242 2880000 12000 0 0 0 0 0 2 1\n";
    let mut random = Random::seeded(7);
    for _ in 0..rounds(20_000) {
        let mut damage = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] =
                    if random.below(2) == 0 { random.draw() as u8 } else { b"\n 0*-"[random.below(5) as usize] };
            }
            bytes
        };
        let _ = Call::read(&damage(&call));
        let bytes = damage(text);
        if let Some(all) = answers(&bytes) {
            assert_eq!(reply(&all).as_bytes(), bytes);
        }
    }
}
