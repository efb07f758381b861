//! From an outcome to status, headers and body.

mod consistency;
mod families;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Share, Standing};
use weir::clock::Ms;
use weir::limiter::Failure;
use weir::policy::LimiterId;
use weir::policy::Policy;
use weir::request::Refused;
use weir::response::{Answer, Grpc, GrpcStatus, Outcome, Refusal, added, answer, is_refused_behind};

use crate::made::{Random, Sent, limit, policy_of, rounds};

const KEY: &str = r#"[{"constant": "all"}]"#;

/// Both families of limit headers.
const BOTH: &str = r#""headers": ["x-ratelimit", "ratelimit"]"#;

/// 2023-11-14 22:13:20, and a millisecond more.
const UNIX: Ms = Ms(1_700_000_000_001);

fn with(response: &str) -> Policy {
    policy_of(KEY, r#""60/m""#, "", &format!(r#", "response": {{{response}}}"#))
}

fn granted(remaining: u64, reset: u64) -> Outcome {
    let share = Share::Granted(Standing { remaining, reset: Ms(reset) });
    Outcome::Decided { rule: 0, limit: limit(60, 60, 90), share }
}

fn refused(retry_after: u64, reset: u64) -> Outcome {
    let standing = Standing { remaining: 0, reset: Ms(reset) };
    let share = Share::Refused { standing, retry_after: Ms(retry_after) };
    Outcome::Decided { rule: 0, limit: limit(60, 60, 90), share }
}

fn headers(list: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    list.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn grpc(status: GrpcStatus, message: &str, pushback: Option<u64>) -> Grpc {
    Grpc { status, message: message.to_owned(), pushback: pushback.map(Ms) }
}

/// A header of a list, which must not have it twice.
fn header<'h>(headers: &'h [(&'static str, String)], name: &str) -> Option<&'h str> {
    let mut values = headers.iter().filter(|(other, _)| *other == name).map(|(_, value)| value.as_str());
    let value = values.next();
    assert_eq!(values.next(), None, "{name} twice");
    value
}

fn refusal(policy: &Policy, outcome: &Outcome, random: u64) -> Refusal {
    match answer(policy, outcome, UNIX, random) {
        Answer::Refuse(refusal) => refusal,
        Answer::Pass(headers) => panic!("passes with {headers:?}"),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn each_outcome_has_its_answer() {
    let policy = with("");
    assert_eq!(answer(&policy, &Outcome::Pass, UNIX, 7), Answer::Pass(vec![]));
    let wanted = [("x-ratelimit-limit", "90"), ("x-ratelimit-remaining", "41"), ("x-ratelimit-reset", "1700000050")];
    assert_eq!(answer(&policy, &granted(41, 49_000), UNIX, 7), Answer::Pass(headers(&wanted)));
    let wanted = Refusal {
        status: 429,
        headers: headers(&[
            ("content-type", "application/json"),
            ("retry-after", "1"),
            ("x-ratelimit-limit", "90"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000061"),
        ]),
        body: r#"{"error":"rate_limited","rule":"per-key","retry_after":1}"#.to_owned(),
        grpc: grpc(GrpcStatus::ResourceExhausted, "rate_limited: per-key", Some(900)),
    };
    assert_eq!(refusal(&policy, &refused(900, 60_000), 0), wanted);
    let wanted = Refusal {
        status: 400,
        headers: headers(&[("content-type", "application/json")]),
        body: r#"{"error":"malformed_path"}"#.to_owned(),
        grpc: grpc(GrpcStatus::InvalidArgument, "malformed_path", None),
    };
    assert_eq!(refusal(&policy, &Outcome::Refused(Refused::Malformed, None), 7), wanted);
    // No Retry-After: it would be refused again.
    let wanted = Refusal {
        status: 403,
        headers: headers(&[("content-type", "application/json")]),
        body: r#"{"error":"forbidden","rule":"per-key"}"#.to_owned(),
        grpc: grpc(GrpcStatus::PermissionDenied, "forbidden: per-key", None),
    };
    assert_eq!(refusal(&policy, &Outcome::Refused(Refused::Forbidden, Some(0)), 7), wanted);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_failure_that_refuses_is_503_and_names_the_rule() {
    let mut two = policy_of(KEY, r#""60/m""#, r#", "on_error": "allow""#, "");
    two.rules.push(two.rules[0].clone());
    two.rules[1].name = "second".to_owned();
    let deny = policy_of(KEY, r#""60/m""#, r#", "on_error": "deny""#, r#", "response": {"status": 420, "body": "x"}"#);
    let wanted = Refusal {
        status: 503,
        headers: headers(&[("content-type", "application/json"), ("retry-after", "1")]),
        body: r#"{"error":"limiter_unavailable","rule":"per-key","retry_after":1}"#.to_owned(),
        grpc: grpc(GrpcStatus::Unavailable, "limiter_unavailable: per-key", Some(1000)),
    };
    for failure in Failure::ALL {
        assert_eq!(
            refusal(&deny, &Outcome::Failed { rule: 0, limiter: LimiterId::default(), failure }, 7),
            wanted,
            "{failure:?}"
        );
        // Whether a rule refuses what it cannot count has been decided before.
        let told = refusal(&two, &Outcome::Failed { rule: 1, limiter: LimiterId::default(), failure }, 7);
        assert_eq!((told.status, told.body), (503, wanted.body.replace("per-key", "second")));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_refusal_names_the_rule_that_refuses() {
    let mut two = with("");
    two.rules.push(two.rules[0].clone());
    two.rules[1].name = "second".to_owned();
    let standing = Standing { remaining: 0, reset: Ms(1) };
    let share = Share::Refused { standing, retry_after: Ms(1) };
    for (rule, name) in [(0, "per-key"), (1, "second")] {
        let decided = Outcome::Decided { rule, limit: limit(60, 60, 90), share };
        let wanted = format!(r#"{{"error":"rate_limited","rule":"{name}","retry_after":1}}"#);
        assert_eq!(refusal(&two, &decided, 0).body, wanted);
        let wanted = format!(r#"{{"error":"forbidden","rule":"{name}"}}"#);
        assert_eq!(refusal(&two, &Outcome::Refused(Refused::Forbidden, Some(rule)), 0).body, wanted);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_reset_is_a_moment_or_a_wait_and_rounded_up() {
    let epoch = with(r#""reset": "epoch""#);
    let seconds = with(r#""reset": "seconds""#);
    let table = [
        // Reset in ms, by the epoch, in seconds.
        (0, "1700000001", "0"),
        (1, "1700000001", "1"),
        (999, "1700000001", "1"),
        (1000, "1700000002", "1"),
        (1001, "1700000002", "2"),
        (u64::MAX, "18446744073709552", "18446744073709552"),
    ];
    for (reset, moment, wait) in table {
        for (policy, wanted) in [(&epoch, moment), (&seconds, wait)] {
            let Answer::Pass(headers) = answer(policy, &granted(1, reset), UNIX, 7) else { panic!("refused") };
            assert_eq!(headers.last(), Some(&("x-ratelimit-reset", wanted.to_owned())), "{reset}");
            assert_eq!(refusal(policy, &refused(1, reset), 0).headers.last(), headers.last());
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn without_the_family_no_header_of_it_is_sent() {
    let policy = with(r#""headers": []"#);
    assert_eq!(answer(&policy, &granted(1, 1), UNIX, 7), Answer::Pass(vec![]));
    let wanted = headers(&[("content-type", "application/json"), ("retry-after", "5")]);
    assert_eq!(refusal(&policy, &refused(5000, 1), 0).headers, wanted);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_template_is_filled_in_one_pass() {
    let table = [
        ("", ""),
        ("no", "no"),
        ("{rule}", "per-key"),
        ("{retry_after}", "5"),
        ("{rule}{retry_after}{rule}", "per-key5per-key"),
        (r#"{"a":{retry_after}}"#, r#"{"a":5}"#),
        ("{{rule}}", "{per-key}"),
        ("{{{rule}}}", "{{per-key}}"),
        ("{{rule}retry_after}", "{per-keyretry_after}"),
        ("{ru{rule}le}", "{ruper-keyle}"),
        ("{rule", "{rule"),
        ("rule}", "rule}"),
        ("{", "{"),
        ("}", "}"),
        ("{}", "{}"),
        ("{Rule}", "{Rule}"),
        ("{ rule }", "{ rule }"),
        ("{other}{retry_after}", "{other}5"),
        ("{retry_after", "{retry_after"),
        ("ä{rule}ö{", "äper-keyö{"),
    ];
    for (template, wanted) in table {
        let body = serde_json::Value::from(template);
        let policy = with(&format!(r#""body": {body}, "status": 420, "content_type": "text/plain""#));
        let refusal = refusal(&policy, &refused(5000, 1), 0);
        assert_eq!((refusal.status, refusal.body.as_str()), (420, wanted), "{template}");
        assert_eq!(refusal.headers.first(), Some(&("content-type", "text/plain".to_owned())));
    }
}

/// What a refused client is told to wait, in seconds; header and body agree.
fn retry_after(policy: &Policy, wait: u64, random: u64) -> u64 {
    let refusal = refusal(policy, &refused(wait, wait), random);
    let told = refusal.headers.iter().find(|(name, _)| *name == "retry-after").expect("a Retry-After").1.clone();
    assert_eq!(refusal.body, told);
    told.parse().expect("an integer")
}

#[wasm_bindgen_test(unsupported = test)]
fn retry_after_is_rounded_up_and_at_least_1() {
    let policy = with(r#""retry_after_jitter": 0, "body": "{retry_after}""#);
    for (wait, seconds) in
        [(1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60), (60_001, 61), (u64::MAX, u64::MAX / 1000 + 1)]
    {
        for random in [0, 1, u64::MAX] {
            assert_eq!(retry_after(&policy, wait, random), seconds, "{wait}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn jitter_is_added_upward_and_at_most_its_part_of_the_wait() {
    for (jitter, thousandths) in
        [("0.1", 100_u64), ("0.0005", 1), ("0.0004", 0), ("0.333", 333), ("1", 1000), ("1.0", 1000)]
    {
        let policy = with(&format!(r#""retry_after_jitter": {jitter}, "body": "{{retry_after}}""#));
        let mut random = Random::seeded(10);
        for _ in 0..rounds(2_000) {
            let wait = 1 + random.draw() % random.pick(&[10, 10_000, 1_000_000, 1 << 53]);
            let told = retry_after(&policy, wait, random.draw());
            let most = wait.div_ceil(1000) + wait * thousandths / 1_000_000;
            assert!((wait.div_ceil(1000)..=most).contains(&told), "{wait} {told} {most}");
        }
    }
    // Both ends are reached: 100 s and a tenth of them.
    let policy = with(r#""body": "{retry_after}""#);
    assert_eq!(retry_after(&policy, 100_000, 0), 100);
    assert_eq!(retry_after(&policy, 100_000, 999), 100);
    assert_eq!(retry_after(&policy, 100_000, 1000), 101);
    assert_eq!(retry_after(&policy, 100_000, 10_000), 110);
    assert_eq!(retry_after(&policy, 100_000, 10_001), 100);
    assert_eq!(retry_after(&policy, u64::MAX, 0), u64::MAX / 1000 + 1);
}

#[wasm_bindgen_test(unsupported = test)]
fn jitter_of_less_than_a_second_lengthens_no_wait() {
    let policy = with(r#""body": "{retry_after}""#);
    for random in (0..2_000).chain([u64::MAX]) {
        // 60/m and 6/m, just refused, and the next moment: a tenth of them is no second.
        for (wait, seconds) in [(1000, 1), (950, 1), (9_999, 10), (9_001, 10), (9_000, 9)] {
            assert_eq!(retry_after(&policy, wait, random), seconds, "{wait} {random}");
        }
    }
    // A tenth of 10 s is a second, for the one in a thousand to whom chance gives all of it.
    let told: Vec<u64> = (0..2_002).map(|random| retry_after(&policy, 10_000, random)).collect();
    assert_eq!(told.iter().filter(|told| **told == 11).count(), 2);
    assert!(told.iter().all(|told| [10, 11].contains(told)));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_breaker_that_probes_seldom_says_when_to_come_back() {
    let text = r#"{"version": 1, "rules": [{"name": "r", "key": [{"constant": "all"}], "mode": "exact", "limits": "1/s",
        "on_error": "deny"}], "limiters": {"main": {"transport": "webdis", "cluster": "c",
        "breaker": {"probe_every": "2500ms"}}}}"#;
    let policy = weir::policy::Policy::from_host(text.as_bytes(), &|_| None).unwrap();
    for (failure, seconds) in [(Failure::Breaker, "3"), (Failure::Timeout, "1")] {
        let Answer::Refuse(refusal) = answer(
            &policy,
            &Outcome::Failed { rule: 0, limiter: LimiterId::default(), failure },
            weir::clock::Ms(0),
            0,
        ) else {
            panic!("{failure:?} was to be refused");
        };
        assert!(refusal.headers.contains(&("retry-after", seconds.to_owned())), "{refusal:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_refused_behind_is_told_by_whoever_refused_it() {
    type Headers = &'static [(&'static str, &'static str)];
    let table: [(Headers, bool, bool); 8] = [
        (&[(":status", "429")], false, true),
        (&[(":status", "503")], true, true),
        (&[(":status", "200")], false, false),
        (&[(":status", "500")], false, false),
        (&[(":status", "200"), ("grpc-status", "8")], true, true),
        (&[(":status", "200"), ("grpc-status", "14")], true, true),
        (&[(":status", "200"), ("grpc-status", "0")], true, false),
        // A body follows, so it is no refusal of gRPC, and nothing more is read.
        (&[(":status", "200"), ("grpc-status", "8")], false, false),
    ];
    for (headers, ends, wanted) in table {
        let sent = |name: &str| {
            assert!(ends || name == ":status", "{name} is read");
            headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_bytes().to_vec())
        };
        assert_eq!(is_refused_behind(&sent, ends), wanted, "{headers:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_services_own_headers_are_replaced_or_kept_by_family() {
    let (x, draft) =
        (["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"], ["ratelimit-policy", "ratelimit"]);
    let all = [&x[..], &draft].concat();
    let table: [(&[&str], &[&str]); 6] = [
        // What the service has sent, what is added.
        (&[], &all),
        (&["x-ratelimit-policy"], &all),
        (&["x-ratelimit-reset"], &draft),
        (&["ratelimit"], &x),
        (&["ratelimit-policy", "x-ratelimit-limit"], &[]),
        (&["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"], &draft),
    ];
    for (sent, kept) in table {
        for (word, wanted) in [("keep", kept), ("replace", all.as_slice())] {
            let policy = with(&format!(r#"{BOTH}, "upstream_headers": "{word}""#));
            let Answer::Pass(headers) = answer(&policy, &granted(1, 1), UNIX, 7) else { panic!("refused") };
            let names: Vec<&str> =
                added(&policy, &headers, &|name| sent.contains(&name)).map(|(name, _)| *name).collect();
            assert_eq!(names, wanted, "{word} {sent:?}");
        }
    }
    // Nothing is asked for where it does not matter.
    let policy = with(BOTH);
    let Answer::Pass(headers) = answer(&policy, &granted(1, 1), UNIX, 7) else { panic!("refused") };
    assert_eq!(added(&policy, &headers, &|name| panic!("{name} is read")).count(), 5);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_of_grpc_is_refused_in_its_own_words() {
    let policy = policy_of(KEY, r#""60/m""#, "", r#", "response": {"status": 420, "retry_after_jitter": 0}"#);
    let fit = |outcome: &Outcome, content_type: &str| {
        let mut refusal = refusal(&policy, outcome, 0);
        let request = Sent::to("POST", "/package.Service/Method", &[("content-type", content_type)]);
        refusal.fit(&request);
        assert_eq!(request.read(), ["content-type"]);
        (refusal.status, refusal.headers, refusal.body)
    };
    let wanted = |status: &str, message: &str, pushback: Option<&str>| {
        let mut wanted =
            headers(&[("content-type", "application/grpc"), ("grpc-status", status), ("grpc-message", message)]);
        wanted.extend(pushback.map(|wait| ("grpc-retry-pushback-ms", wait.to_owned())));
        wanted
    };
    let limits =
        headers(&[("x-ratelimit-limit", "90"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000061")]);
    let limited = [limits, wanted("8", "rate_limited: per-key", Some("900"))].concat();
    let table = [
        (refused(900, 60_000), limited),
        (
            Outcome::Failed { rule: 0, limiter: LimiterId::default(), failure: Failure::Timeout },
            wanted("14", "limiter_unavailable: per-key", Some("1000")),
        ),
        (Outcome::Refused(Refused::Forbidden, Some(0)), wanted("7", "forbidden: per-key", None)),
        (Outcome::Refused(Refused::Malformed, None), wanted("3", "malformed_path", None)),
    ];
    for (outcome, headers) in table {
        for content_type in ["application/grpc", "application/grpc+proto", "Application/gRPC; x=y"] {
            assert_eq!(fit(&outcome, content_type), (200, headers.clone(), String::new()), "{content_type}");
        }
        // gRPC-Web: the same, in its own type.
        let (status, web, body) = fit(&outcome, "application/grpc-web+proto");
        assert_eq!((status, body.as_str()), (200, ""));
        assert_eq!(header(&web, "content-type"), Some("application/grpc-web"));
        assert_eq!(web.len(), headers.len());
        for content_type in ["application/json", "application/grp", "", "text/plain; application/grpc"] {
            let plain = refusal(&policy, &outcome, 0);
            assert_eq!(fit(&outcome, content_type), (plain.status, plain.headers, plain.body), "{content_type}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_pushback_is_jittered_as_retry_after_is_and_no_more_than_clients_can_read() {
    let policy = with(BOTH);
    for (wait, random, wanted) in
        [(1, 0, "1"), (100_000, 10_000, "110000"), (100_000, 0, "100000"), (1 << 40, 7, "2147483647")]
    {
        let mut refusal = refusal(&policy, &refused(wait, wait), random);
        refusal.fit(&Sent::to("POST", "/", &[("content-type", "application/grpc")]));
        assert_eq!(header(&refusal.headers, "grpc-retry-pushback-ms"), Some(wanted));
    }
}
