//! What is read of a request, and who it is from.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::path::Malformed;
use weir::policy::ClassId;
use weir::request::{Class, Refused, classify, identify};

use crate::made::{Sent, policy_of};

const ALICE: &str = "[{\"constant\": \"alice\"}]";

type Headers<'h> = [(&'h str, &'h [u8])];

/// The tenant's text, or `refused` or `skipped`.
fn who(key: &str, missing: &str, headers: &Headers) -> String {
    let rule = if missing.is_empty() { String::new() } else { format!(r#", "missing": {missing}"#) };
    let policy = policy_of(key, r#""60/m""#, &rule, "");
    match identify(&policy.rules[0], &Sent::new(headers)) {
        Ok(Some(tenant)) => tenant.as_str().to_owned(),
        Err(Refused::Forbidden) => "refused".to_owned(),
        Ok(None) => "skipped".to_owned(),
        Err(Refused::Malformed) => "malformed".to_owned(),
        Err(Refused::Doubled) => "doubled".to_owned(),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_first_source_that_yields_a_value_names_the_tenant() {
    let key = r#"[
        {"header": {"name": "x-user", "as": "user", "trusted": true}},
        {"header": {"name": "x-org", "as": "org", "trusted": true}},
        {"authorization": {"scheme": "bearer", "as": "token", "trusted": true}}]"#;
    let table: [(&Headers, &str); 10] = [
        (&[("x-user", b"u"), ("x-org", b"o"), ("authorization", b"Bearer t")], "user.u"),
        (&[("x-org", b"o"), ("x-user", b"u")], "user.u"),
        (&[("x-user", b""), ("x-org", b"o")], "org.o"),
        (&[("x-org", b"o")], "org.o"),
        (&[("x-user", b""), ("x-org", b"")], "none.anonymous"),
        (&[("x-org", b""), ("authorization", b"Bearer k1")], "token.~c08d7bc803407e268b963d84dab029b1"),
        (&[("authorization", b"Basic YWxpY2U6cHc=")], "none.anonymous"),
        (&[], "none.anonymous"),
        (&[("x-user", b" ")], "user.%20"),
        (&[("x-user", b"\xff\x00{}:")], "user.%FF%00%7B%7D%3A"),
    ];
    for (headers, wanted) in table {
        assert_eq!(who(key, "", headers), wanted, "{headers:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_names_nobody_is_refused_skipped_or_somebody() {
    let key = r#"[{"header": {"name": "x-user", "trusted": true}}]"#;
    let table = [
        ("", "none.anonymous"),
        (r#"{"as": "guest"}"#, "none.guest"),
        (r#""deny""#, "refused"),
        (r#""skip""#, "skipped"),
    ];
    for (missing, wanted) in table {
        assert_eq!(who(key, missing, &[]), wanted);
        assert_eq!(who(key, missing, &[("x-user", b"")]), wanted);
        assert_eq!(who(key, missing, &[("x-user", b"u")]), "header.u");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_token_of_bearer_is_hashed() {
    let key = r#"[{"authorization": {"scheme": "bearer", "trusted": true}}]"#;
    const K1: &str = "authorization.~c08d7bc803407e268b963d84dab029b1";
    let table: [(&[u8], &str); 14] = [
        (b"Bearer k1", K1),
        (b"bearer k1", K1),
        (b"BEARER k1", K1),
        (b"bEaReR   k1  ", K1),
        (b"Bearer \xff\x00", "none.anonymous"),
        (b"Bearer token-of-alice", "authorization.~4d85d75dac2641c9b03ebd8fdeca4df7"),
        (b"Bearer", "none.anonymous"),
        (b"Bearer ", "none.anonymous"),
        (b"Bearer    ", "none.anonymous"),
        (b"Bearerk1", "none.anonymous"),
        (b"Bearer\tk1", "none.anonymous"),
        (b" Bearer k1", "none.anonymous"),
        (b"Basic k1", "none.anonymous"),
        (b"", "none.anonymous"),
    ];
    for (value, wanted) in table {
        assert_eq!(who(key, "", &[("authorization", value)]), wanted, "{}", value.escape_ascii());
    }
    assert_eq!(who(key, "", &[]), "none.anonymous");
}

#[wasm_bindgen_test(unsupported = test)]
fn the_user_of_basic_is_hashed() {
    let key = r#"[{"authorization": {"scheme": "basic", "as": "user", "trusted": true}}]"#;
    const ALICE: &str = "user.~4360c67bc81025114044578d7c4e8e0f";
    let table: [(&[u8], &str); 20] = [
        (b"Basic YWxpY2U6cHc=", ALICE),
        (b"basic YWxpY2U6cHc=", ALICE),
        (b"BASIC  YWxpY2U6cHc= ", ALICE),
        (b"Basic YWxpY2U6cHc", ALICE),         // without padding
        (b"Basic YWxpY2U6cDp3", ALICE),        // alice:p:w, the password has a colon
        (b"Basic YWxpY2U6", ALICE),            // alice:
        (b"Basic YWxpY2U=", "none.anonymous"), // no colon
        (b"Basic OnB3", "none.anonymous"),     // :pw
        (b"Basic Og==", "none.anonymous"),     // :
        (b"Basic", "none.anonymous"),
        (b"Basic ", "none.anonymous"),
        (b"Basic =", "none.anonymous"),
        (b"Basic !!!!", "none.anonymous"),
        (b"Basic YWxp Y2U6cHc=", "none.anonymous"),
        (b"Basic YWxpY2U6cHc==", "none.anonymous"),
        (b"Basic YWxpY2U6cHd=", "none.anonymous"), // bits after the last byte
        (b"Basic A", "none.anonymous"),
        (b"Basic \xff\xff", "none.anonymous"),
        (b"Basic __46cHc=", "none.anonymous"), // another alphabet
        (b"Bearer YWxpY2U6cHc=", "none.anonymous"),
    ];
    for (value, wanted) in table {
        assert_eq!(who(key, "", &[("authorization", value)]), wanted, "{}", value.escape_ascii());
    }
    let bytes = who(key, "", &[("authorization", b"Basic //46cHc=")]);
    assert_eq!(bytes, "user.~318fe40a12cad857051059cdfb072e31", "a user that is no UTF-8");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_constant_is_one_tenant_for_all() {
    assert_eq!(who(r#"[{"constant": "a b"}]"#, "", &[]), "constant.a%20b");
    assert_eq!(who(r#"[{"constant": {"value": "x", "as": "all"}}]"#, "\"deny\"", &[("x", b"y")]), "all.x");
}

const CLASSES: &str = r#", "classes": [
    {"class": "health", "match": {"path": "/healthz"}, "exempt": true},
    {"class": "export", "match": {"methods": ["POST"], "path": "/v1/reports/{id}/export"}, "cost": 10},
    {"class": "write", "match": {"methods": ["POST", "PUT"]}, "cost": 2},
    {"class": "read", "match": {"methods": ["GET", "HEAD"], "path": "/v1/**"}},
    {"class": "write", "match": {"path": "/bulk"}, "cost": 3}]"#;

#[wasm_bindgen_test(unsupported = test)]
fn the_first_class_that_matches_wins() {
    let policy = policy_of(ALICE, r#""60/m""#, "", CLASSES);
    let class = |name: &str| ClassId(policy.classes.names.iter().position(|other| other == name).expect(name));
    let charged = |name: &str, cost| Ok(Class::Charged(class(name), cost));
    let table = [
        ("GET", "/healthz", Ok(Class::Exempt(ClassId(1)))),
        ("POST", "/healthz?x", Ok(Class::Exempt(ClassId(1)))),
        ("GET", "/%68ealthz", Ok(Class::Exempt(ClassId(1)))),
        ("GET", "/healthz/", charged("default", 1)),
        ("POST", "/v1/reports/7/export", charged("export", 10)),
        ("PUT", "/v1/reports/7/export", charged("write", 2)),
        ("GET", "/v1/reports/7/export", charged("read", 1)),
        ("POST", "/v1/reports//export", charged("write", 2)),
        ("POST", "/", charged("write", 2)),
        ("HEAD", "/v1", charged("read", 1)),
        ("HEAD", "/v1x", charged("default", 1)),
        ("OPTIONS", "*", charged("default", 1)),
        ("DELETE", "/bulk", charged("write", 3)),
        ("GET", "/bulk", charged("write", 3)),
        ("get", "/v1", charged("default", 1)),
        ("", "/v1", charged("default", 1)),
        ("GET", "/a b", Err(Malformed)),
        ("GET", "v1", Err(Malformed)),
        ("GET", "/v1/a//../b", Err(Malformed)),
        ("POST", "/%zz", Err(Malformed)),
    ];
    for (method, path, wanted) in table {
        assert_eq!(classify(&policy.classes, &Sent::to(method, path, &[])), wanted, "{method} {path}");
    }
    // CONNECT has no path, or an empty one: it matches no pattern, and is not malformed.
    let connect: [&Headers; 2] = [&[(":method", b"CONNECT")], &[(":method", b"CONNECT"), (":path", b"")]];
    for headers in connect {
        assert_eq!(classify(&policy.classes, &Sent::new(headers)), charged("default", 1));
    }
    assert_eq!(classify(&policy.classes, &Sent::new(&[])), charged("default", 1));
    let bytes: &Headers = &[(":method", b"\xff"), (":path", b"/v1/\xff")];
    assert_eq!(classify(&policy.classes, &Sent::new(bytes)), charged("default", 1));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_path_that_no_class_asks_for_may_be_malformed() {
    let methods_only = r#", "classes": [{"class": "write", "match": {"methods": ["POST"]}}]"#;
    let methods_first = r#", "classes": [
        {"class": "write", "match": {"methods": ["POST"]}}, {"class": "a", "match": {"path": "/a"}}]"#;
    let malformed_in = |classes, method| {
        let policy = policy_of(ALICE, r#""60/m""#, "", classes);
        classify(&policy.classes, &Sent::to(method, "/%zz", &[])).is_err()
    };
    assert!(!malformed_in("", "GET"));
    assert!(!malformed_in(methods_only, "GET"));
    assert!(!malformed_in(methods_first, "POST"));
    assert!(malformed_in(methods_first, "GET"));
}
