//! No bytes make the core panic: a test that gets to its end has shown it.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquire, Acquired, Lent, Offer, Run};
use weir::clock::Ms;
use weir::limiter::redis::webdis::{By, decode};
use weir::limiter::{HttpEnd, Reply};
use weir::path::{Pattern, normalise};
use weir::policy::limit::{duration, parse};
use weir::policy::{Policy, Tree};

use crate::made::{ENVIRONMENT, Random, limit, only_for, rounds};

#[wasm_bindgen_test(unsupported = test)]
fn no_bytes_that_a_host_hands_on_as_a_policy() {
    let mut random = Random::seeded(3);
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\"version\"",
        "1",
        "\"limiters\"",
        "\"rules\"",
        "\"key\"",
        "\"limits\"",
        "\"classes\"",
        "\"tier\"",
        "\"60/m\"",
        "\"deny\"",
        "null",
        "true",
        "1e400",
        "-0.0",
        "\\u0000",
        "\u{7f}",
        "é",
    ];
    for _ in 0..rounds(20_000) {
        for bytes in [random.bytes(64), random.joined(&pieces, 24).into_bytes()] {
            if let Err(problems) = Policy::from_host(&bytes, ENVIRONMENT) {
                for problem in problems {
                    let _ = (problem.for_people().to_string(), problem.for_log().to_string());
                }
            }
        }
    }
}

/// A tree of the words of the language, in places right and wrong.
fn tree(random: &mut Random, depth: u64) -> Tree {
    let words = [
        "version",
        "proxies",
        "table",
        "entries",
        "breaker",
        "failures",
        "within",
        "probe_every",
        "max_new_keys_per_second",
        "limiters",
        "main",
        "limiter",
        "tiers",
        "transport",
        "webdis",
        "cluster",
        "classes",
        "class",
        "match",
        "methods",
        "path",
        "cost",
        "exempt",
        "rules",
        "name",
        "key",
        "header",
        "constant",
        "authorization",
        "as",
        "trusted",
        "mode",
        "exact",
        "local",
        "limits",
        "default",
        "requests",
        "per",
        "burst",
        "tier",
        "tenants",
        "user.acme",
        "on_error",
        "allow",
        "60/m",
        "1m",
        "deny",
        "unlimited",
        "response",
        "status",
        "headers",
        "retry_after_jitter",
        "",
        "/a/{id}/**",
        "é",
    ];
    let text = |random: &mut Random| random.pick(&words).to_owned();
    match if depth == 0 { random.below(6) } else { random.below(10) } {
        0 => Tree::Null,
        1 => Tree::Bool(random.one_in(2)),
        2 => Tree::Int(random.pick(&[0, 1, -1, 429, i64::MAX, i64::MIN, 1 << 53])),
        3 => Tree::Float(random.pick(&[0.5, f64::NAN, f64::INFINITY, -1e300])),
        4 | 5 => Tree::Text(text(random)),
        6 => Tree::List((0..random.below(4)).map(|_| tree(random, depth - 1)).collect()),
        _ => Tree::Map((0..random.below(8)).map(|_| (text(random), tree(random, depth - 1))).collect()),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_tree_of_the_words_of_the_language() {
    let mut random = Random::seeded(4);
    let good = r#"{"version": 1, "proxies": 3, "table": {"entries": 64},
        "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "1s", "max_new_keys_per_second": 9,
            "breaker": {"failures": 5, "share": 0.5, "within": "1s", "probe_every": "200ms"}}},
        "classes": [{"class": "write", "match": {"methods": ["POST"], "path": "/a/**"}, "cost": 2}],
        "rules": [{"name": "r", "key": [{"header": {"name": "x", "trusted": true}}, {"constant": "all"}], "mode": "exact",
            "missing": {"as": "nobody"}, "limiter": {"default": "main", "tiers": {"b": "main"}, "tenants": {"header.x": "main"}},
            "tier": {"default": "a", "tenants": {"header.x": "b"}}, "on_error": "local",
            "limits": {"a": {"default": "5/m", "write": {"requests": 3, "per": "1s", "burst": 4}}, "b": "unlimited"}}],
        "response": {"status": 429, "headers": [], "retry_after_jitter": 0.5}}"#;
    let good = Tree::from_host(good.as_bytes()).expect("a policy");
    assert!(Policy::from_tree(&good, ENVIRONMENT).is_ok());
    for _ in 0..rounds(20_000) {
        let mut mutant = good.clone();
        // One subtree of the good policy becomes anything.
        let nth = random.below(70);
        replace(&mut mutant, &mut nth.clone(), &mut random);
        for tree in [mutant, tree(&mut random, 5)] {
            for problem in Policy::from_tree(&tree, ENVIRONMENT).err().unwrap_or_default() {
                let _ = (problem.for_people().to_string(), problem.for_log().to_string());
            }
        }
    }
}

fn replace(at: &mut Tree, nth: &mut u64, random: &mut Random) -> bool {
    if *nth == 0 {
        *at = tree(random, 3);
        return true;
    }
    *nth -= 1;
    match at {
        Tree::List(items) => items.iter_mut().any(|item| replace(item, nth, random)),
        Tree::Map(pairs) => pairs.iter_mut().any(|(_, value)| replace(value, nth, random)),
        _ => false,
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_path_and_no_pattern() {
    let mut random = Random::seeded(5);
    let pieces =
        ["/", "/", "..", ".", "%", "%2", "%2e", "%2F", "%00", "http://", "?", "#", "*", "**", "{", "}", "a", "é"];
    for _ in 0..rounds(50_000) {
        let _ = normalise(&random.bytes(24));
        let text = random.joined(&pieces, 10);
        let normal = normalise(text.as_bytes());
        if let (Ok(pattern), Ok(normal)) = (Pattern::parse(&text), &normal) {
            let _ = pattern.matches(normal);
            let _ = pattern.matches(&text);
        }
        if let Ok(normal) = normal {
            assert_eq!(normalise(normal.as_bytes()), Ok(normal.clone()), "{text}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_limit_and_no_duration() {
    let mut random = Random::seeded(6);
    for _ in 0..rounds(50_000) {
        let text = random.joined(&["0", "1", "9999999999", "/", "s", "m", "ms", "d", "-", "é", " "], 6);
        let _ = (parse(&text), duration(&text));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_reply_of_a_limiter() {
    let mut random = Random::seeded(7);
    let runs = [Run { cost: 1, count: 3 }, Run { cost: 2, count: 1 }];
    let offer = Offer { want: 3, end: 1, size: 4, carry: 2, debt: 1 };
    let asked = Acquire { offer, ..only_for(limit(60, 60, 60), &runs) };
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"EVALSHA\"",
        "\"EVAL\"",
        "0",
        "-1",
        "3600000",
        "18446744073709551616",
        "4242",
        "false",
        "\"NOSCRIPT\"",
        "null",
        "1.0",
        "\"",
        "\\",
    ];
    let numbers = [0, 1, 2, 3, 4, -1, 3_600_000, 3_599_000, i64::MAX, i64::MIN, 1 << 53];
    for _ in 0..rounds(50_000) {
        let status = random.pick(&[200, 200, 200, 0, 500]);
        for body in [random.bytes(64), format!("{{\"EVALSHA\":[{}", random.joined(&pieces, 12)).into_bytes()] {
            let reply = decode(HttpEnd::Answer { status, body: &body }, By::Sha, &asked);
            assert!(!matches!(reply, Reply::Acquired(_)), "{}", body.escape_ascii());
        }
        let reply: Vec<i64> = (0..random.below(12)).map(|_| random.pick(&numbers)).collect();
        if let Ok(acquired) = Acquired::from_reply(&reply, &asked) {
            assert_eq!(acquired.shares(asked.limit, &runs).len(), 4);
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_answer_that_is_made_up() {
    // Answers come from from_reply, but their fields are open.
    let mut random = Random::seeded(8);
    for _ in 0..rounds(5_000) {
        let numbers = [0, 1, 2, 5, 1 << 53, u64::MAX];
        let levels = [0, 1, -1, 60_000, 1 << 53, i64::MIN, i64::MAX];
        let runs = [Run { cost: random.pick(&numbers), count: random.below(4) }, Run { cost: 1, count: 2 }];
        let mut any = || random.pick(&numbers);
        let lent = Lent { end: any(), valid: Ms(any()), kept: any(), extra: any(), held: any(), limited: true };
        let granted = vec![random.below(4), random.below(3)];
        let acquired = Acquired { level: random.pick(&levels), lent, granted, window_left: Ms(random.pick(&numbers)) };
        let _ = (acquired.shares(limit(60, 60, 60), &runs), acquired.lent.size());
    }
}
