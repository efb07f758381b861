//! Spellings of the same resources: none reaches a looser limit than the plain spelling.

mod listed;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::Policy;
use weir::rules::{Ruling, judge};

use crate::made::{Sent, policy_of};
use listed::{EVERYWHERE, MALFORMED, SOMEWHERE};

/// Everything is tighter than `default`, so that a spelling that slips through would gain.
fn policy(paths: &str) -> Policy {
    let classes = r#", "classes": [
        {"class": "admin", "match": {"path": "/admin/**"}},
        {"class": "login", "match": {"methods": ["POST"], "path": "/login"}},
        {"class": "report", "match": {"path": "/v1/reports/{id}/export"}},
        {"class": "open", "match": {"path": "/open/**"}}]"#;
    let limits =
        r#"{"default": {"default": "1000/m", "admin": "1/m", "login": "2/m", "report": "3/m", "open": "unlimited"}}"#;
    policy_of(r#"[{"constant": "all"}]"#, limits, "", &format!("{classes}, \"paths\": {paths}"))
}

/// How much a minute passes, 0 where it is refused.
fn rate(policy: &Policy, path: &[u8]) -> u64 {
    match judge(policy, &Sent::new(&[(":method", b"POST"), (":path", path)])).ruling {
        Ruling::Ask(asks) => asks.iter().map(|ask| ask.limit.requests()).min().unwrap_or(u64::MAX),
        Ruling::Pass => u64::MAX,
        _ => 0,
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_spelling_reaches_a_looser_limit() {
    let mut count = 0;
    let everywhere = EVERYWHERE.iter().map(|(plain, spellings)| (r#"{"malformed": 400}"#, *plain, *spellings));
    for (paths, plain, spellings) in everywhere.chain(SOMEWHERE.iter().copied()) {
        let policy = policy(paths);
        let allowed = rate(&policy, plain.as_bytes());
        assert!((1..=3).contains(&allowed), "{plain}");
        for spelling in spellings {
            let rate = rate(&policy, spelling.as_bytes());
            assert!(rate <= allowed, "{plain} as {spelling} under {paths}: {rate}");
            count += 1;
        }
    }
    let (refusing, passing) = (policy("{}"), policy(r#"{"malformed": "default"}"#));
    for spelling in MALFORMED {
        // An empty path is CONNECT's: it is none, and it is in `default`.
        let wanted = if spelling.is_empty() { 1000 } else { 0 };
        assert_eq!(rate(&refusing, spelling), wanted, "{}", spelling.escape_ascii());
        assert_eq!(rate(&passing, spelling), 1000, "{}", spelling.escape_ascii());
        count += 1;
    }
    assert!(count >= 300, "{count}");
}

/// What is another resource to a server that keeps to RFC 3986: the words of `paths` are there for the others, and a
/// spelling that escapes a class is in `default`, never in a class that is open.
#[wasm_bindgen_test(unsupported = test)]
fn what_escapes_a_class_is_in_default() {
    let strict = policy("{}");
    let others = [
        "/Admin/users",
        "/admin%2Fusers",
        "/admin%2fusers",
        "/admin;x/users",
        "/..;/admin/users",
        "/open%2f..%2fadmin",
        "/%2561dmin/users",
        "/%252e%252e/admin",
        "/admin%5cusers",
        "/admin\\users",
        "/login/",
        "/login;x",
        "/LOGIN",
        "/%c1%a1dmin",
        "/%c0%ae%c0%ae/admin",
        "/login%20",
        "/login%0a",
        "/login.",
        "/login%3fx",
        "/login%23",
        "/v1/reports/export",
        "/v1/reports/7/export/",
        "/v1/reports/7/8/export",
        "/v1/reports/7%2Fexport",
        "/\u{ff0f}admin",
        "/ａdmin/users",
        "/%ef%bc%8fadmin",
        "/loginx",
        "/adminx",
        "/xadmin",
        "*",
    ];
    for path in others {
        assert_eq!(rate(&strict, path.as_bytes()), 1000, "{path}");
    }
}
