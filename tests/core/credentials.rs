//! One token, however it is spelled, is one tenant or nobody's; and what is sent on two lines is sent twice.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::rules::{Ruling, judge};

use crate::made::{Sent, policy_of};

type Headers<'h> = [(&'h str, &'h [u8])];

const NOBODY: &str = "none.anonymous";

const DOUBLED: &str = "doubled";

/// The tenant of the bucket that is asked, or the name of the ruling.
fn who(key: &str, headers: &Headers) -> String {
    match judge(&policy_of(key, r#""60/m""#, "", ""), &Sent::new(headers)).ruling {
        Ruling::Ask(asks) => asks.first().map(|ask| ask.bucket.tenant.as_str().to_owned()).unwrap_or_default(),
        Ruling::Refuse(refused, _) => format!("{refused:?}").to_lowercase(),
        Ruling::Pass => "pass".to_owned(),
    }
}

fn source(kind: &str, main: &str, doubled: &str) -> String {
    format!(r#"[{{"{kind}": {{{main}, "as": "t", "trusted": true {doubled}}}}}]"#)
}

const REFUSE: &str = r#", "doubled": "refuse""#;

/// HMAC-SHA-256 with the key `secret`, as `openssl dgst` prints it.
const OF_JWT: &str = "t.~74a614902618854f9f6f8caf6c7ac745";

#[wasm_bindgen_test(unsupported = test)]
fn a_bearer_token_has_one_spelling_or_is_none() {
    let bearer = source("authorization", r#""scheme": "bearer""#, "");
    let refusing = source("authorization", r#""scheme": "bearer""#, REFUSE);
    let of = |sent: &[u8]| who(&bearer, &[("authorization", sent)]);
    let jwt = of(b"Bearer aa.bb.cc");
    assert_eq!(jwt, OF_JWT);
    let one: &[&[u8]] = &[
        b"bearer aa.bb.cc",
        b"BEARER aa.bb.cc",
        b"bEaReR    aa.bb.cc",
        // Padding, which no JWT has (RFC 7515, 2) and which verifiers pass over.
        b"Bearer aa.bb.cc=",
        b"Bearer aa.bb.cc==",
        b"Bearer aa.bb.cc========",
        // Spaces at the end of a line are no part of it.
        b"Bearer aa.bb.cc ",
    ];
    for sent in one {
        assert_eq!(of(sent), jwt, "{}", sent.escape_ascii());
        assert_eq!(who(&refusing, &[("authorization", sent)]), jwt, "{}", sent.escape_ascii());
    }
    // Tokens of any other form are what they are.
    let opaque: &[&[u8]] = &[
        b"Bearer ab",
        b"Bearer ab=",
        b"Bearer ab==",
        b"Bearer Ab",
        b"Bearer -._~+/9",
        b"Bearer a.b",
        b"Bearer a.b.c.d=",
    ];
    for (number, sent) in opaque.iter().enumerate() {
        assert!(of(sent).starts_with("t.~"), "{}", sent.escape_ascii());
        assert!(opaque.iter().take(number).all(|other| of(other) != of(sent)), "{}", sent.escape_ascii());
    }
    let none: &[&[u8]] = &[
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer =",
        b"Beareraa.bb.cc",
        b" Bearer aa.bb.cc",
        b"Bearer\taa.bb.cc",
        b"Bearer aa.bb.cc x",
        b"Bearer x aa.bb.cc",
        b"Bearer aa.bb.cc;x",
        b"Bearer \"aa.bb.cc\"",
        b"Bearer Bearer aa.bb.cc",
        b"Bearer aa.b=b.cc",
        b"Bearer =aa.bb.cc",
        b"Bearer aa.bb.cc\xff",
        b"Bearer aa.bb.cc\x00",
        b"Basic aa.bb.cc",
        b"aa.bb.cc",
    ];
    for sent in none {
        assert_eq!(of(sent), NOBODY, "{}", sent.escape_ascii());
        assert_eq!(who(&refusing, &[("authorization", sent)]), NOBODY, "{}", sent.escape_ascii());
    }
    // A comma beside the scheme is another line, which Envoy has joined.
    let joined: &[&[u8]] = &[
        b"Bearer ,aa.bb.cc",
        b"Bearer aa.bb.cc,X",
        b"Bearer aa.bb.cc,",
        b",Bearer aa.bb.cc",
        b"Bearer aa.bb.cc,Bearer aa.bb.cc",
        b"Bearer aa.bb.cc, Bearer other",
        b"Basic QTpC,Bearer aa.bb.cc",
        b"Bearer,aa.bb.cc",
        b"Basic QTpC,bEARER",
        b"Digest u=a, n=b,Bearer aa.bb.cc",
        b"Digest u=a, n=b, bearer\taa.bb.cc",
        // Some verifiers take the first one that they find, wherever it stands.
        b"Digest u=a, n=\"Bearer aa.bb.cc\"",
        b"Digest u=a, xBearer aa.bb.cc",
    ];
    for sent in joined {
        assert_eq!(of(sent), NOBODY, "{}", sent.escape_ascii());
        assert_eq!(who(&refusing, &[("authorization", sent)]), DOUBLED, "{}", sent.escape_ascii());
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn other_schemes_may_hold_commas_and_name_nobody() {
    let aws =
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host;x-bearer-id, Signature=0f";
    let others: &[&[u8]] = &[
        aws.as_bytes(),
        b"Digest username=\"bearers\", realm=\"a\", bearer=\"b\"",
        b"Digest u=a, n=b",
        b"Negotiate QQ==,Negotiate Qg==",
        b",",
    ];
    for scheme in ["bearer", "basic"] {
        for doubled in ["", REFUSE] {
            let key = source("authorization", &format!(r#""scheme": "{scheme}""#), doubled);
            for sent in others {
                assert_eq!(who(&key, &[("authorization", sent)]), NOBODY, "{scheme}: {}", sent.escape_ascii());
            }
        }
    }
    let bearer = source("authorization", r#""scheme": "bearer""#, REFUSE);
    assert_eq!(who(&bearer, &[("authorization", b"Basic QTpC,Basic QTpC")]), NOBODY);
    let basic = source("authorization", r#""scheme": "basic""#, REFUSE);
    assert_eq!(who(&basic, &[("authorization", b"Bearer a,Bearer b")]), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_joined_user_of_basic_credentials_is_sent_twice() {
    let basic = source("authorization", r#""scheme": "basic""#, "");
    let refusing = source("authorization", r#""scheme": "basic""#, REFUSE);
    let of = |key: &str, sent: &[u8]| who(key, &[("authorization", sent)]);
    assert!(of(&refusing, b"Basic QTpC").starts_with("t.~"));
    assert_eq!(of(&refusing, b"basic   QTpC"), of(&basic, b"Basic QTpC"));
    for sent in [b"Basic QTpC,Basic QTpC".as_slice(), b"Basic QTpC,", b"Basic ,QTpC", b"Bearer x,Basic QTpC"] {
        assert_eq!(of(&basic, sent), NOBODY, "{}", sent.escape_ascii());
        assert_eq!(of(&refusing, sent), DOUBLED, "{}", sent.escape_ascii());
    }
    assert_eq!(of(&basic, b"Basic QTpC QTpC"), NOBODY);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_header_that_hosts_join_and_that_holds_no_comma_is_sent_twice_where_it_holds_one() {
    let first = [
        "origin",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-request-id",
        "grpc-timeout",
        "access-control-request-method",
    ];
    for name in first {
        let (header, refusing) = (
            source("header", &format!(r#""name": "{name}""#), ""),
            source("header", &format!(r#""name": "{name}""#), REFUSE),
        );
        assert_eq!(who(&header, &[(name, b"a")]), "t.a", "{name}");
        assert_eq!(who(&refusing, &[(name, b"a")]), "t.a", "{name}");
        // The first counts, as where the host does not join.
        assert_eq!(who(&header, &[(name, b"a,b")]), "t.a", "{name}");
        assert_eq!(who(&header, &[(name, b"a , b")]), "t.a", "{name}");
        assert_eq!(who(&header, &[(name, b",b")]), NOBODY, "{name}");
        for sent in [b"a,b".as_slice(), b"a,a", b"a,", b",a", b","] {
            assert_eq!(who(&refusing, &[(name, sent)]), DOUBLED, "{name}: {}", sent.escape_ascii());
        }
    }
    // What a list is for, or a comment, holds commas as it likes.
    for name in ["user-agent", "referer", "accept", "via", "x-user"] {
        let refusing = source("header", &format!(r#""name": "{name}""#), REFUSE);
        assert_eq!(who(&refusing, &[(name, b"a,b")]), "t.a%2Cb", "{name}");
    }
    // Two credentials are none; the parameters of one are one.
    let (header, refusing) =
        (source("header", r#""name": "authorization""#, ""), source("header", r#""name": "authorization""#, REFUSE));
    let joined: &[&[u8]] = &[
        b"Key a,Key b",
        b"Key YQ==,Key b",
        b"Bearer ,a",
        b"Key,b",
        b"a,b",
        b"Digest u=a, n=b,Bearer c",
        b"Bearer c=d,e",
    ];
    for sent in joined {
        assert_eq!(who(&header, &[("authorization", sent)]), NOBODY, "{}", sent.escape_ascii());
        assert_eq!(who(&refusing, &[("authorization", sent)]), DOUBLED, "{}", sent.escape_ascii());
    }
    let params = b"Digest u=a, n=b";
    assert_eq!(who(&refusing, &[("authorization", params)]), "t.Digest%20u%3Da%2C%20n%3Db");
    assert_eq!(who(&refusing, &[("authorization", b"Key a")]), "t.Key%20a");
}

#[wasm_bindgen_test(unsupported = test)]
fn cookies_are_those_of_all_lines() {
    let (cookie, refusing) = (source("cookie", r#""name": "sid""#, ""), source("cookie", r#""name": "sid""#, REFUSE));
    let rows: &[(&Headers, &str, &str)] = &[
        (&[("cookie", b"a=b"), ("cookie", b"sid=acme")], "t.acme", "t.acme"),
        (&[("cookie", b"sid=acme"), ("cookie", b"a=b")], "t.acme", "t.acme"),
        (&[("cookie", b"sid=acme"), ("cookie", b"sid=other")], "t.acme", DOUBLED),
        (&[("cookie", b"a=b"), ("cookie", b"sid=acme; sid=acme")], "t.acme", DOUBLED),
        (&[("cookie", b"a=b,sid=x"), ("cookie", b"sid=acme")], "t.acme", "t.acme"),
        (&[("cookie", b"a=b"), ("cookie", b"c=d")], NOBODY, NOBODY),
    ];
    for (headers, wanted, wanted_refusing) in rows {
        assert_eq!(who(&cookie, headers), *wanted, "{headers:?}");
        assert_eq!(who(&refusing, headers), *wanted_refusing, "{headers:?}");
    }
    let header = source("header", r#""name": "cookie""#, "");
    assert_eq!(who(&header, &[("cookie", b"a=b"), ("cookie", b"c=d")]), "t.a%3Db%3B%20c%3Dd");
}
