//! Families of headers that tell limits: which are sent, and what they say.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Share, Standing};
use weir::clock::Ms;
use weir::policy::Policy;
use weir::response::{Answer, Outcome, answer, answer_among};

use super::{BOTH, UNIX, granted, header, headers, refusal, refused, with};
use crate::made::limit;

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
