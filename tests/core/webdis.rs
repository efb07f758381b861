//! The transport to Redis, byte for byte.

use serde_json::json;
use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquire, Acquired, Lent, Offer, Run};
use weir::algorithm::{Script, TOKEN_BUCKET};
use weir::clock::Ms;
use weir::limiter::redis::webdis::{By, MAX_REPLY, MAX_RUNS, decode, encode};
use weir::limiter::{Failure, HttpEnd, Reply};
use weir::policy::{Limit, Terms};

use crate::made::{NUMBER, limit, numbered, only_for};

const SCRIPT: Script = Script { prelude: "return 1+1 ", own: "-- a.b/c\n", sha: "0a1b", format: "t3" };

/// Two of cost 1 and one of cost 10.
fn asked(limit: Limit) -> Acquire {
    only_for(limit, &[Run { cost: 1, count: 2 }, Run { cost: 10, count: 1 }])
}

/// What a bucket gives that lends nothing.
fn granted(level: i64, granted: &[u64]) -> Acquired {
    Acquired { level, lent: Lent::default(), granted: granted.to_vec(), window_left: Ms(0) }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_is_these_bytes() {
    let key = "rl:{user.a%2Eb}:per-key:write:60000:t3";
    let call = encode(&SCRIPT, By::Sha, key, &asked(limit(60, 60, 90)));
    assert_eq!(call.path, "/");
    assert_eq!(
        call.body,
        "EVALSHA/0a1b/1/rl%3A%7Buser%2Ea%252Eb%7D%3Aper-key%3Awrite%3A60000%3At3/60/60000/90/300000/45/0/0/0/0/0/0/4242/1/2/10/1"
    );
    let call = encode(&SCRIPT, By::Text, "k", &only_for(limit(1, 1, 1), &[Run { cost: 1, count: 1 }]));
    assert_eq!(call.path, "/");
    assert_eq!(call.body, "EVAL/return%201%2B1%20--%20a%2Eb%2Fc%0A/1/k/1/1000/1/300000/0/0/0/0/0/0/0/4242/1/1");
    // Terms, want, end, size, carry, hold and debt, and nobody who waits.
    let offer = Offer { want: 21, end: 22, size: 23, carry: 24, debt: 25 };
    let terms = Terms { life: Ms(20), lend: 250 };
    let lease = Acquire { terms, offer, hold: true, ..only_for(limit(60, 60, 90), &[]) };
    assert_eq!(encode(&SCRIPT, By::Sha, "k", &lease).body, "EVALSHA/0a1b/1/k/60/60000/90/20/22/21/22/23/24/1/25/4242");
    let largest = Limit::new((1 << 53) - 1, Ms(1000), 9_007_199_254_740).expect("a limit");
    let all = u64::MAX;
    let offer = Offer { want: all, end: all, size: all, carry: all, debt: all };
    let lease = Acquire { offer, ..only_for(largest, &[]) };
    let wanted = format!(
        "EVALSHA/0a1b/1/k/9007199254740991/1000/9007199254740/300000/4503599627370/{all}/{all}/{all}/{all}/0/{all}/4242"
    );
    assert_eq!(encode(&SCRIPT, By::Sha, "k", &lease).body, wanted);
}

#[wasm_bindgen_test(unsupported = test)]
fn every_byte_but_letters_digits_underscore_and_hyphen_is_escaped() {
    for letter in (0..=0x2ff).filter_map(char::from_u32) {
        let key = letter.to_string();
        let mut wanted = String::new();
        for byte in key.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-' => wanted.push(char::from(byte)),
                _ => wanted += &format!("%{byte:02X}"),
            }
        }
        let body = encode(&SCRIPT, By::Sha, &key, &only_for(limit(1, 1, 1), &[])).body;
        assert_eq!(body, format!("EVALSHA/0a1b/1/{wanted}/1/1000/1/300000/0/0/0/0/0/0/0/4242"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_call_holds_what_webdis_reads_otherwise() {
    for by in [By::Sha, By::Text] {
        let body = encode(&TOKEN_BUCKET, by, "rl:{user.x}:r.json:+", &asked(limit(60, 60, 60))).body;
        let strange: Vec<char> =
            body.chars().filter(|letter| !letter.is_ascii_alphanumeric() && !"/%_-".contains(*letter)).collect();
        assert!(strange.is_empty(), "{strange:?}");
        let parts: Vec<&str> = body.split('/').collect();
        assert_eq!(parts.len(), 3 + 1 + 12 + 4);
        let first = match by {
            By::Sha => ["EVALSHA", TOKEN_BUCKET.sha],
            By::Text => ["EVAL", parts[1]],
        };
        assert_eq!(parts[..3], [first[0], first[1], "1"]);
        assert_eq!(unescaped(parts[1]), if by == By::Sha { TOKEN_BUCKET.sha.to_owned() } else { TOKEN_BUCKET.text() });
    }
}

fn unescaped(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&digits, 16).expect("two hex digits"));
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// 60/m, of which two of cost 1 and one of cost 10 were asked for: 48 tokens are left of a full bucket.
fn minute() -> Limit {
    limit(60, 60, 60)
}

fn decoded(status: u16, body: &str, by: By) -> Reply {
    let body = if body.contains("[4242,") { body.to_owned() } else { numbered(NUMBER, body) };
    decode(HttpEnd::Answer { status, body: body.as_bytes() }, by, &asked(minute()))
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_is_a_verdict_or_a_named_failure() {
    use Failure::{BadKey, Oversized, Redis, Status, Unreadable};
    let verdict = || Reply::Acquired(granted(2_880_000, &[2, 1]));
    let failure = Reply::Failure;
    let table = [
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}"#, verdict()),
        (200, " {\"EVALSHA\" : [4242, 2880000,\r\n12000,0,0,0,0,0, 2, 1]} \n", verdict()),
        (200, r#"{"EVALSH\u0041":[2880000,12000,0,0,0,0,0,2,1]}"#, verdict()),
        // Errors of Redis.
        (200, r#"{"EVALSHA":[false,"NOSCRIPT No matching script. Please use EVAL."]}"#, Reply::Again(By::Text.into())),
        (200, r#"{"EVALSHA":[false,"NOPERM this user has no permissions"]}"#, failure(Redis)),
        (200, r#"{"EVALSHA":[false,"READONLY You can't write against a read only replica."]}"#, failure(Redis)),
        (200, r#"{"EVALSHA":[false,"OOM command not allowed"]}"#, failure(Redis)),
        (200, r#"{"EVALSHA":[false,"LOADING Redis is loading"]}"#, failure(Redis)),
        (200, r#"{"EVALSHA":[false,"WEIR the key holds no token bucket"]}"#, failure(Redis)),
        // Of the key alone.
        (200, r#"{"EVALSHA":[4242,"WEIR the key holds no token bucket"]}"#, failure(BadKey)),
        (200, r#"{"EVALSHA":[4242,"ERR about the key"]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[4242,"WEIR the key holds no token bucket",0]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":["4242","WEIR the key holds no token bucket"]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[false,"ERR about NOSCRIPT"]}"#, failure(Redis)),
        (200, r#"{"EVALSHA":[false,""]}"#, failure(Redis)),
        // What only looks like an error or a verdict.
        (200, r#"{"EVALSHA":[false]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[false,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[true,"NOSCRIPT"]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[true,"OK"]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":["NOSCRIPT",false]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[false,"NOSCRIPT",0]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[false,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,false]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,true,true]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,null,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[4242,"2880000","12000",0,0,0,0,0,"2","1"]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000.5,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2.5,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2.88e-6,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,[2,1]]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[4242,[2880000,12000,0,0,0,0,0,2,1]]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[4242,{"level":2880000},12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[-2880000,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,-2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1,0]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,3,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,11999,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[9223372036854775807,0,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[9223372036854775808,0,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[4242,1e999,0,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[99999999999999999999999999,0,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":null}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":false}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":1}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":"OK"}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":{}}"#, failure(Unreadable)),
        // Another command, more than one, or none.
        (200, r#"{"EVAL":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"evalsha":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"GET":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1],"EVAL":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1],"error":null}"#, failure(Unreadable)),
        (200, r#"{}"#, failure(Unreadable)),
        (200, r#"[2880000,12000,0,0,0,0,0,2,1]"#, failure(Unreadable)),
        (200, r#"[{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}]"#, failure(Unreadable)),
        (200, "null", failure(Unreadable)),
        (200, "", failure(Unreadable)),
        (200, "OK", failure(Unreadable)),
        (200, "<html>", failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]} x"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,01]}"#, failure(Unreadable)),
        (200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,+1]}"#, failure(Unreadable)),
        (200, "\u{feff}{\"EVALSHA\":[2880000,12000,0,0,0,0,0,2,1]}", failure(Unreadable)),
        // Other statuses, whatever the body says.
        (0, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Status)),
        (201, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Status)),
        (204, "", failure(Status)),
        (304, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}"#, failure(Status)),
        (403, r#"{"EVALSHA":[false,"NOSCRIPT"]}"#, failure(Status)),
        (503, "", failure(Status)),
    ];
    for (status, body, wanted) in table {
        assert_eq!(decoded(status, body, By::Sha), wanted, "{status} {body}");
    }
    assert_eq!(decoded(500, &"x".repeat(MAX_REPLY + 1), By::Sha), failure(Status));
    assert_eq!(decoded(200, &"x".repeat(MAX_REPLY + 1), By::Sha), failure(Oversized));
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_belongs_to_the_command_that_was_sent() {
    let by_text = r#"{"EVAL":[2880000,12000,0,0,0,0,0,2,1]}"#;
    assert_eq!(decoded(200, by_text, By::Text), Reply::Acquired(granted(2_880_000, &[2, 1])));
    assert_eq!(
        decoded(200, r#"{"EVALSHA":[2880000,12000,0,0,0,0,0,2,1]}"#, By::Text),
        Reply::Failure(Failure::Unreadable)
    );
    assert_eq!(decoded(200, r#"{"EVAL":[false,"NOSCRIPT x"]}"#, By::Text), Reply::Failure(Failure::Redis));
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_with_another_number_is_another_calls() {
    let verdict = "2880000,12000,0,0,0,0,0,2,1";
    let misdelivered = Reply::Failure(Failure::Misdelivered);
    let decoded = |body: &str, by| decode(HttpEnd::Answer { status: 200, body: body.as_bytes() }, by, &asked(minute()));
    let bucket = Reply::Acquired(granted(2_880_000, &[2, 1]));
    assert_eq!(decoded(&format!(r#"{{"EVALSHA":[4242,{verdict}]}}"#), By::Sha), bucket);
    for number in ["4241", "4243", "0", "-4242", "9007199254740991", "-9223372036854775808"] {
        for command in ["EVALSHA", "EVAL"] {
            for rest in [verdict, "0,60000,0,0,0,0,0,0,0", r#""WEIR the key holds no token bucket""#, r#""x""#] {
                let body = format!(r#"{{"{command}":[{number},{rest}]}}"#);
                assert_eq!([decoded(&body, By::Sha), decoded(&body, By::Text)], [(); 2].map(|()| misdelivered.clone()));
            }
        }
    }
    // An error has no number, but a command.
    for error in ["NOSCRIPT No matching script.", "READONLY", "WEIR x"] {
        assert_eq!(decoded(&format!(r#"{{"EVALSHA":[false,"{error}"]}}"#), By::Text), misdelivered);
        assert_eq!(decoded(&format!(r#"{{"EVAL":[false,"{error}"]}}"#), By::Sha), misdelivered);
    }
    // One without a number is of no call of ours.
    assert_eq!(decoded(&format!(r#"{{"EVALSHA":[{verdict}]}}"#), By::Sha), misdelivered);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_without_an_answer_is_a_failure() {
    let table = [
        (HttpEnd::NoAnswer, Failure::Reset),
        (HttpEnd::Oversized, Failure::Oversized),
        (HttpEnd::NotStarted(Failure::UnknownCluster), Failure::UnknownCluster),
        (HttpEnd::NotStarted(Failure::Unreachable), Failure::Unreachable),
        (
            HttpEnd::Answer { status: 200, body: b"{\"EVALSHA\":[2880000,12000,0,0,0,0,0,2,1],\"\xff\":1}" },
            Failure::Unreadable,
        ),
        (HttpEnd::Answer { status: 200, body: b"\xff\xfe" }, Failure::Unreadable),
        (HttpEnd::Answer { status: 200, body: b"\0" }, Failure::Unreadable),
    ];
    for (end, failure) in table {
        assert_eq!(decode(end, By::Sha, &asked(minute())), Reply::Failure(failure), "{end:?}");
    }
    let nested = "[".repeat(MAX_REPLY);
    assert_eq!(decoded(200, &nested, By::Sha), Reply::Failure(Failure::Unreadable));
}

#[wasm_bindgen_test(unsupported = test)]
fn the_longest_true_reply_may_be_read() {
    let month = Limit::new(1, Ms(31 * 86_400_000), 3_362_902).expect("a limit");
    let asked: Vec<Run> = (0..MAX_RUNS as u64).map(|at| Run { cost: 1 + at % 2, count: 10_000 }).collect();
    let counts: Vec<u64> = asked.iter().map(|run| run.count).collect();
    let taken: u64 = asked.iter().map(|run| run.cost * run.count).sum();
    let level = (3_362_902 - taken) * 31 * 86_400_000;
    let mut reply = vec![NUMBER, level, taken * 31 * 86_400_000, 0, 0, 0, 0, 0];
    reply.extend(&counts);
    let body = json!({ "EVALSHA": reply }).to_string();
    assert!(body.len() < MAX_REPLY);
    let end = HttpEnd::Answer { status: 200, body: body.as_bytes() };
    assert_eq!(decode(end, By::Sha, &only_for(month, &asked)), Reply::Acquired(granted(level as i64, &counts)));
    // The call's number and seven of at most 16 digits, of which a level may be negative, and a count of at most 16 for each run.
    let longest = format!("{{\"EVALSHA\":[-{}]}}", vec!["9007199254740991"; MAX_RUNS + 8].join(","));
    assert!(longest.len() <= MAX_REPLY, "{}", longest.len());
}

#[wasm_bindgen_test(unsupported = test)]
fn failures_have_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = Failure::ALL.iter().map(|failure| failure.name()).collect();
    assert_eq!(names.len(), Failure::ALL.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')), "{names:?}");
}
