//! Claims that are no texts: numbers and booleans are read as what they are, and nothing else is a tenant.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::rules::{Ruling, judge};

use crate::made::{Sent, policy_of};

const NOBODY: &str = "none.anonymous";

fn who(kind: &str, value: &[u8]) -> String {
    let key = format!(r#"[{{"property": {{"path": ["sub"], "as": "user", "trusted": true {kind}}}}}]"#);
    let policy = policy_of(&key, r#""60/m""#, r#", "overrides": {"user.12345": "deny"}"#, "");
    match judge(&policy, &Sent::new(&[(".sub", value)])).ruling {
        Ruling::Ask(asks) => asks.first().map(|ask| ask.bucket.tenant.as_str().to_owned()).unwrap_or_default(),
        Ruling::Refuse(refused, _) => format!("{refused:?}").to_lowercase(),
        Ruling::Pass => "pass".to_owned(),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_number_is_a_decimal_and_an_override_holds_for_it() {
    const NUMBER: &str = r#", "type": "number""#;
    let doubles: [(f64, &str); 12] = [
        (12345.0, "forbidden"),
        (7.0, "user.7"),
        (0.0, "user.0"),
        (-0.0, "user.0"),
        (-5.0, "user.-5"),
        (9_007_199_254_740_991.0, "user.9007199254740991"),
        (9_007_199_254_740_992.0, NOBODY),
        (1e300, NOBODY),
        (1.5, NOBODY),
        (f64::NAN, NOBODY),
        (f64::INFINITY, NOBODY),
        (f64::NEG_INFINITY, NOBODY),
    ];
    for (value, wanted) in doubles {
        assert_eq!(who(NUMBER, &value.to_le_bytes()), wanted, "{value}");
    }
    assert_eq!(who(NUMBER, &12345_i64.to_le_bytes()), "forbidden");
    assert_eq!(who(NUMBER, &(-5_i64).to_le_bytes()), "user.-5");
    for value in [b"12345".as_slice(), b"", b"\x01", b"123456789"] {
        assert_eq!(who(NUMBER, value), NOBODY, "{}", value.escape_ascii());
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_no_text_is_nobody_without_a_type() {
    assert_eq!(who("", b"12345"), "forbidden");
    assert_eq!(who(r#", "type": "text""#, "\u{e4} b".as_bytes()), "user.%C3%A4%20b");
    for value in [12345_f64.to_le_bytes().as_slice(), b"\x01", b"\xff", b"a\nb", b"\x7f", b"\x0a\x03abc"] {
        assert_eq!(who("", value), NOBODY, "{}", value.escape_ascii());
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_boolean_is_a_word() {
    const BOOL: &str = r#", "type": "bool""#;
    for (value, wanted) in
        [(b"\x01".as_slice(), "user.true"), (b"\x00", "user.false"), (b"\x02", NOBODY), (b"true", NOBODY)]
    {
        assert_eq!(who(BOOL, value), wanted, "{}", value.escape_ascii());
    }
}
