//! Lines as a request: method, path, x-api-key, x-org and authorization, a second path, a pattern, and how to respell the
//! path. One path has one normal form, and all that is decided is decided by that.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::path::{Pattern, normalise};
use weir::policy::{ClassId, Policy};
use weir::request::{Class, classify, identify};
use weir::rules::{Ruling, judge};
use weir_fuzz::{Pieces, Sent, environment};

thread_local! {
    static POLICY: Policy =
        Policy::from_host(include_bytes!("../corpus/policy/everything"), &environment).expect("a policy");
}

fuzz_target!(|bytes: &[u8]| POLICY.with(|policy| look(policy, bytes)));

fn look(policy: &Policy, bytes: &[u8]) {
    let mut lines = Pieces(bytes);
    let (method, path) = (lines.line(), lines.line());
    let (key, org, authorization) = (lines.line(), lines.line(), lines.line());
    let (other, pattern, respelling) = (lines.line(), lines.line(), lines.0);
    let sent = |path| {
        let headers = [(":method", method), (":path", path)];
        let more = [("x-api-key", key), ("x-org", org), ("authorization", authorization)];
        Sent(headers.into_iter().chain(more.into_iter().filter(|(_, value)| !value.is_empty())).collect())
    };

    let request = sent(path);
    let (class, ruling) = (classify(&policy.classes, &request), judge(policy, &request).ruling);
    whose(policy, &request, key, &ruling);
    if let Ok(Class::Charged(class, cost)) = class {
        assert!(class.0 < policy.classes.names.len() && cost >= 1);
    }

    let Ok(normal) = normalise(path) else {
        return;
    };
    assert_eq!(normalise(normal.as_bytes()).as_ref(), Ok(&normal), "not idempotent");
    let respelt = respell(&normal, respelling);
    assert_eq!(normalise(&respelt).as_ref(), Ok(&normal), "{}", respelt.escape_ascii());
    for path in [normal.as_bytes(), &respelt] {
        let request = sent(path);
        assert_eq!(classify(&policy.classes, &request), class, "{}", path.escape_ascii());
        assert_eq!(judge(policy, &request).ruling, ruling, "{}", path.escape_ascii());
    }
    // An exempt class is reached by its one path alone.
    assert_eq!(matches!(class, Ok(Class::Exempt(_))), normal == "/healthz");
    let below_v1 = normal == "/v1" || normal.starts_with("/v1/");
    assert_eq!(class == Ok(Class::Charged(ClassId(4), 1)), below_v1 && matches!(method, b"GET" | b"HEAD"));

    // A path as a pattern is that path and no other.
    if !normal.contains('*') {
        let literal = Pattern::parse(&normal).expect("a path in normal form is a pattern");
        assert!(literal.matches(&normal));
        if let Ok(other) = normalise(other) {
            assert_eq!(literal.matches(&other), other == normal, "{normal} {other}");
        }
    }
    if let Some((text, pattern)) =
        str::from_utf8(pattern).ok().and_then(|text| Some((text, Pattern::parse(text).ok()?)))
    {
        assert_eq!(pattern.matches(&normal), wanted(text, &normal), "{text} {normal}");
    }
}

/// Whether a pattern is for a path, in another way: segment by segment, from the text.
fn wanted(pattern: &str, normal: &str) -> bool {
    let (plain, below) = match pattern.strip_suffix("/**") {
        Some(plain) => (plain, true),
        None => (pattern, false),
    };
    let (wanted, found): (Vec<&str>, Vec<&str>) = (plain.split('/').collect(), normal.split('/').collect());
    let enough = if below { found.len() >= wanted.len() } else { found.len() == wanted.len() };
    enough
        && wanted.iter().zip(found).all(|(wanted, found)| match wanted.starts_with('{') {
            true => !found.is_empty(),
            false => *wanted == found,
        })
}

/// The same path in another spelling, as the bytes want it.
fn respell(normal: &str, how: &[u8]) -> Vec<u8> {
    let mut how = Pieces(how);
    let mut path = Vec::new();
    if !normal.starts_with('/') {
        return normal.as_bytes().to_vec();
    }
    if how.byte() % 4 == 1 {
        path.extend(b"hTTp://host:80");
    }
    let mut escape = 0_u8;
    for byte in normal.bytes() {
        // The two digits of an escape stay, in upper case or lower.
        if let Some(left) = escape.checked_sub(1) {
            escape = left;
            path.push(if how.byte() % 2 == 1 { byte.to_ascii_lowercase() } else { byte });
            continue;
        }
        escape = if byte == b'%' { 2 } else { 0 };
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match (byte, how.byte() % 4) {
            (b'/', 1) => path.extend(b"/./"),
            (b'/', 2) => path.extend(b"///"),
            (b'/', 3) => path.extend(b"/x/%2e./"),
            (_, 1) if unreserved => path.extend(format!("%{byte:02x}").bytes()),
            (_, 2) if unreserved => path.extend(format!("%{byte:02X}").bytes()),
            _ => path.push(byte),
        }
    }
    match how.byte() % 4 {
        1 => path.extend(b"?/../%zz"),
        2 => path.extend(b"#?"),
        _ => {}
    }
    path
}

/// Tenants are safe in keys, and a secret value is hashed.
fn whose(policy: &Policy, request: &Sent, key: &[u8], ruling: &Ruling) {
    let identity = identify(&policy.rules[0], request);
    let Ok(Some(tenant)) = identity else {
        panic!("the policy names everybody: {identity:?}");
    };
    let (label, value) = tenant.as_str().split_once('.').expect("label.value");
    assert!(["key", "authorization", "user", "header", "all", "none"].contains(&label), "{label}");
    assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-%~".contains(&byte)), "{value}");
    if !key.is_empty() {
        assert!(label == "key" && value.len() == 33 && value.starts_with('~'), "{label}.{value}");
    }
    if let Ruling::Ask(asks) = ruling {
        let [ask] = asks.as_slice() else { panic!("the policy has one rule: {asks:?}") };
        let key = weir::limiter::redis::key(policy, &ask.bucket);
        assert!(key.starts_with(&format!("shop_2:{{{label}.{value}}}:per-key:")), "{key}");
        assert!((1..=ask.limit.burst()).contains(&ask.cost), "{ask:?}");
    }
}
