//! From an outcome to status, headers and body.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquired, Lent, Share, Standing, Used, runs};
use weir::clock::Ms;
use weir::limiter::Failure;
use weir::policy::Policy;
use weir::response::{Answer, Grpc, GrpcStatus, Outcome, Refusal, added, answer, answer_among, is_refused_behind};

use crate::made::{Random, Sent, limit, policy_of, rounds};

const KEY: &str = r#"[{"constant": "all"}]"#;

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
    assert_eq!(refusal(&policy, &Outcome::Malformed, 7), wanted);
    // No Retry-After: it would be refused again.
    let wanted = Refusal {
        status: 403,
        headers: headers(&[("content-type", "application/json")]),
        body: r#"{"error":"forbidden","rule":"per-key"}"#.to_owned(),
        grpc: grpc(GrpcStatus::PermissionDenied, "forbidden: per-key", None),
    };
    assert_eq!(refusal(&policy, &Outcome::Forbidden(0), 7), wanted);
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
        assert_eq!(refusal(&deny, &Outcome::Failed(0, failure), 7), wanted, "{failure:?}");
        // Whether a rule refuses what it cannot count has been decided before.
        let told = refusal(&two, &Outcome::Failed(1, failure), 7);
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
        assert_eq!(refusal(&two, &Outcome::Forbidden(rule), 0).body, wanted);
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
        let Answer::Refuse(refusal) = answer(&policy, &Outcome::Failed(0, failure), weir::clock::Ms(0), 0) else {
            panic!("{failure:?} was to be refused");
        };
        assert!(refusal.headers.contains(&("retry-after", seconds.to_owned())), "{refusal:?}");
    }
}

const BOTH: &str = r#""headers": ["x-ratelimit", "ratelimit"]"#;

/// What the family `ratelimit` tells of a bucket: its two headers, in order.
fn told(limit: weir::policy::Limit, remaining: u64, reset: u64) -> [String; 2] {
    let share = Share::Granted(Standing { remaining, reset: Ms(reset) });
    let Answer::Pass(headers) =
        answer(&with(r#""headers": ["ratelimit"]"#), &Outcome::Decided { rule: 0, limit, share }, UNIX, 7)
    else {
        panic!("refused");
    };
    assert_eq!(headers.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ratelimit-policy", "ratelimit"]);
    [headers[0].1.clone(), headers[1].1.clone()]
}

#[wasm_bindgen_test(unsupported = test)]
fn the_family_of_the_draft_tells_quota_window_what_is_left_and_when_there_is_more() {
    let most = 1 << 53;
    let table = [
        // Requests, seconds, burst; remaining, ms until full.
        ((60, 60, 60), (41, 18_500), r#""per-key";q=60;w=60"#, r#""per-key";r=41;t=1"#),
        ((60, 60, 60), (0, 60_000), r#""per-key";q=60;w=60"#, r#""per-key";r=0;t=1"#),
        ((60, 60, 90), (89, 700), r#""per-key";q=60;w=60;weir-burst=90"#, r#""per-key";r=89;t=1"#),
        ((60, 60, 10), (3, 6001), r#""per-key";q=60;w=60;weir-burst=10"#, r#""per-key";r=3;t=1"#),
        ((1, 3600, 2), (0, 7_199_001), r#""per-key";q=1;w=3600;weir-burst=2"#, r#""per-key";r=0;t=3600"#),
        ((1, 3600, 2), (0, 3_600_000), r#""per-key";q=1;w=3600;weir-burst=2"#, r#""per-key";r=0;t=1"#),
        // Below nothing: more than a token away.
        ((1, 3600, 2), (0, 10_800_000), r#""per-key";q=1;w=3600;weir-burst=2"#, r#""per-key";r=0;t=7200"#),
        // A full bucket gets no more.
        ((5, 86_400, 5), (5, 0), r#""per-key";q=5;w=86400"#, r#""per-key";r=5"#),
    ];
    for ((requests, seconds, burst), (remaining, reset), quota, left) in table {
        assert_eq!(told(limit(requests, seconds, burst), remaining, reset), [quota, left]);
    }
    // An Integer of structured fields has 15 digits.
    let [_, left] = told(limit(60, 60, 60), most, 0);
    assert_eq!(left, r#""per-key";r=999999999999999"#);
}

#[wasm_bindgen_test(unsupported = test)]
fn families_are_sent_as_listed_and_twice_is_once() {
    let names = |headers: &str| -> Vec<&'static str> {
        let policy = with(&format!(r#""headers": {headers}"#));
        let Answer::Pass(headers) = answer(&policy, &granted(1, 1), UNIX, 7) else { panic!("refused") };
        headers.iter().map(|(name, _)| *name).collect()
    };
    let (x, draft) =
        (["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"], ["ratelimit-policy", "ratelimit"]);
    assert_eq!(names("[]"), [""; 0]);
    assert_eq!(names(r#"["x-ratelimit"]"#), x);
    assert_eq!(names(r#"["ratelimit"]"#), draft);
    assert_eq!(names(r#"["ratelimit", "x-ratelimit", "ratelimit"]"#), [&x[..], &draft].concat());
}

/// Two rules, of which clients are told so much.
fn two_rules(first_is_told: bool, second_is_told: bool) -> Policy {
    let mut two = with(BOTH);
    two.rules.push(two.rules[0].clone());
    two.rules[1].name = "second".to_owned();
    (two.rules[0].headers, two.rules[1].headers) = (first_is_told, second_is_told);
    two
}

#[wasm_bindgen_test(unsupported = test)]
fn all_limits_that_are_told_stand_in_the_policy_of_the_draft_the_decisive_one_first() {
    let others = [(1, limit(25, 1, 25)), (0, limit(1000, 3600, 500))];
    let quota = |told: [bool; 2], outcome: &Outcome| {
        let headers = match answer_among(&two_rules(told[0], told[1]), outcome, &others, UNIX, 0) {
            Answer::Pass(headers) => headers,
            Answer::Refuse(refusal) => refusal.headers,
        };
        ["ratelimit-policy", "ratelimit", "x-ratelimit-limit"].map(|name| header(&headers, name).map(str::to_owned))
    };
    let left = Some(r#""per-key";r=41;t=1"#.to_owned());
    let told = |text: &str| Some(text.to_owned());
    let all = r#""per-key";q=60;w=60;weir-burst=90, "second";q=25;w=1, "per-key";q=1000;w=3600;weir-burst=500"#;
    assert_eq!(quota([true, true], &granted(41, 49_000)), [told(all), left.clone(), told("90")]);
    let without = r#""per-key";q=60;w=60;weir-burst=90, "per-key";q=1000;w=3600;weir-burst=500"#;
    assert_eq!(quota([true, false], &granted(41, 49_000)), [told(without), left, told("90")]);
    // Where the decisive rule is not told, no other is in its place.
    assert_eq!(quota([false, true], &granted(41, 49_000)), [None, None, None]);
    assert_eq!(quota([true, true], &refused(900, 60_000))[0], told(all));
    assert_eq!(quota([false, true], &refused(900, 60_000)), [None, None, None]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_refusal_of_a_rule_that_is_not_told_still_says_when_to_come_back() {
    let refusal = refusal(&two_rules(false, true), &refused(900, 60_000), 0);
    assert_eq!(refusal.headers, headers(&[("content-type", "application/json"), ("retry-after", "1")]));
    assert_eq!(refusal.body, r#"{"error":"rate_limited","rule":"per-key","retry_after":1}"#);
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
        (Outcome::Failed(0, Failure::Timeout), wanted("14", "limiter_unavailable: per-key", Some("1000"))),
        (Outcome::Forbidden(0), wanted("7", "forbidden: per-key", None)),
        (Outcome::Malformed, wanted("3", "malformed_path", None)),
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

/// A number that a header tells, maybe after a key of a structured field.
fn number(headers: &[(&'static str, String)], name: &str, key: &str) -> Option<u64> {
    let value = header(headers, name)?;
    let value = if key.is_empty() { value } else { value.split(';').find_map(|part| part.strip_prefix(key))? };
    Some(value.parse().expect("an integer"))
}

/// What an answer tells of a bucket with so many units in it (of which a token has `period_ms`) is so: a refusal leaves
/// less than the cost, what passes is told what is left, and more comes when it is said to come, not after Retry-After.
fn assert_true(policy: &Policy, limit: weir::policy::Limit, share: Share, cost: u64, units: i64, random: u64) {
    let (requests, period) = (i128::from(limit.requests()), i128::from(limit.period().0));
    let (headers, after) = match answer(policy, &Outcome::Decided { rule: 0, limit, share }, UNIX, random) {
        Answer::Pass(headers) => (headers, None),
        Answer::Refuse(refusal) => {
            let after = number(&refusal.headers, "retry-after", "").expect("when to come back");
            (refusal.headers, Some(after))
        }
    };
    let remaining = number(&headers, "x-ratelimit-remaining", "").expect("what is left");
    assert_eq!(number(&headers, "ratelimit", "r="), Some(remaining), "both families tell the same");
    assert_eq!(i128::from(remaining), i128::from(units.max(0)) / period, "what is left is told");
    if after.is_some() {
        assert!(remaining < cost, "refused {cost} with {remaining} left");
    }
    let full = i128::from(limit.burst()) * period;
    let more = number(&headers, "ratelimit", "t=");
    assert_eq!(more.is_none(), i128::from(units) >= full, "a bucket that is full, and no other, gets no more");
    let Some(more) = more.map(i128::from) else { return };
    let next = i128::from(remaining + 1) * period;
    assert!(i128::from(units) + more * 1000 * requests >= next, "there is more by then");
    if more > 1 {
        assert!(i128::from(units) + ((more - 1) * 1000 - 1) * requests < next, "and not a second before");
    }
    if let Some(after) = after.map(i128::from) {
        assert!((1..=after).contains(&more), "t={more} and retry-after: {after}");
        assert!(i128::from(units) + after * 1000 * requests >= i128::from(cost) * period, "by then it fits");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_left_and_a_refusal_never_disagree() {
    let policy = with(BOTH);
    let mut random = Random::seeded(4);
    let mut seen = [0_u64; 2];
    for _ in 0..rounds(20_000) {
        let most = random.pick(&[3, 100, 1_000_000]);
        let (requests, burst) = (1 + random.draw() % most, 1 + random.draw() % most);
        let limit = limit(requests, random.pick(&[1, 60, 86_400, 2_678_400]), burst);
        let full = i64::try_from(burst * limit.period().0).expect("it fits");
        let units = match random.draw() % 4 {
            0 => full,
            1 => -i64::try_from(random.draw() % (full as u64 + 1)).expect("it fits"),
            // Whole tokens, and a little more or less.
            2 => (random.draw() % (burst + 1)) as i64 * limit.period().0 as i64 + random.pick(&[0, 1]) as i64 - 1,
            _ => i64::try_from(random.draw() % (full as u64 + 1)).expect("it fits"),
        };
        let units = units.min(full);
        let cost = 1 + random.draw() % burst;
        // One request of a bucket.
        let mut level = Used { units: u64::try_from(full - units).expect("not more than full"), at: Ms(5) };
        let share = level.take(limit, Ms(5), cost);
        seen[usize::from(matches!(share, Share::Refused { .. }))] += 1;
        assert_true(&policy, limit, share, cost, level.level(limit), random.draw());
        // One that is refused for longer than the bucket says, for another waits for its answer.
        let quiet = level.refuse(limit, cost, Ms(random.draw() % 100_000));
        let below = level.level(limit).min(i64::try_from(cost * limit.period().0).expect("it fits") - 1);
        assert_true(&policy, limit, quiet, cost, below, random.draw());
    }
    assert!(seen.iter().all(|count| *count > rounds(20_000) / 10), "granted and refused: {seen:?}");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_left_and_a_refusal_never_disagree_in_a_group() {
    let policy = with(BOTH);
    let mut random = Random::seeded(5);
    for _ in 0..rounds(5_000) {
        let limit = limit(1 + random.draw() % 50, random.pick(&[1, 60, 3600]), 1 + random.draw() % 50);
        let period = limit.period().0;
        let mut units = i64::try_from(random.draw() % (limit.burst() * period + 1)).expect("it fits");
        let costs: Vec<u64> = (0..1 + random.draw() % 12).map(|_| 1 + random.draw() % limit.burst()).collect();
        let runs = runs(costs.iter().copied());
        // The limiter: whoever fits is granted, in order.
        let mut left = Vec::new();
        let mut granted = Vec::new();
        for run in &runs {
            let price = i64::try_from(run.cost * period).expect("it fits");
            let count = u64::try_from(units / price).expect("not below 0").min(run.count);
            for _ in 0..count {
                units -= price;
                left.push(Some(units));
            }
            left.extend((count..run.count).map(|_| None));
            granted.push(count);
        }
        let shares = Acquired { level: units, lent: Lent::default(), granted }.shares(limit, &runs);
        assert_eq!(shares.len(), costs.len());
        for ((share, cost), left) in shares.into_iter().zip(costs).zip(left) {
            assert_eq!(matches!(share, Share::Granted(_)), left.is_some());
            assert_true(&policy, limit, share, cost, left.unwrap_or(units), random.draw());
        }
    }
}
