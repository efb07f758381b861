//! How tenants are written.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::percent::escape;
use weir::tenant::{HashKey, Storage, Tenant};

fn plain(label: &str, value: &[u8]) -> String {
    Tenant::new(label, value, Storage::Plain, &HashKey::new("secret")).as_str().to_owned()
}

fn secret(key: impl Into<Vec<u8>>, value: &[u8]) -> String {
    Tenant::new("key", value, Storage::Secret, &HashKey::new(key)).as_str().to_owned()
}

#[wasm_bindgen_test(unsupported = test)]
fn of_all_bytes_only_letters_digits_underscore_and_hyphen_stay() {
    for byte in 0..=255_u8 {
        let wanted = match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        assert_eq!(escape(&[byte]), wanted);
        assert_eq!(plain("user", &[b'x', byte]), format!("user.x{wanted}"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn values_are_written_in_one_way() {
    let table: [(&[u8], &str); 8] = [
        (b"acme", "user.acme"),
        (b"Acme-1_x", "user.Acme-1_x"),
        (b"a.b", "user.a%2Eb"),
        (b"a:b{c}", "user.a%3Ab%7Bc%7D"),
        (b"%41", "user.%2541"),
        (b"a b+c", "user.a%20b%2Bc"),
        ("ä".as_bytes(), "user.%C3%A4"),
        (b"\r\n\0\xff", "user.%0D%0A%00%FF"),
    ];
    for (value, wanted) in table {
        assert_eq!(plain("user", value), wanted);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_value_over_64_bytes_is_hashed() {
    let table = [
        (1, "user.a".to_owned()),
        (64, format!("user.{}", "a".repeat(64))),
        (65, "user.~a51013b279a056e7ead7a1eedcbae2d3".to_owned()),
    ];
    for (length, wanted) in table {
        assert_eq!(plain("user", "a".repeat(length).as_bytes()), wanted);
    }
    // The bytes count as they were sent, not as they are written.
    assert_eq!(plain("user", &[b'.'; 64]), format!("user.{}", "%2E".repeat(64)));
    let without_key = Tenant::new("user", "a".repeat(65).as_bytes(), Storage::Plain, &HashKey::default());
    assert_eq!(without_key.as_str(), "user.~becd66ba9aa73efdb9dd8998166e8616");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_secret_value_is_the_hash_that_openssl_prints() {
    // printf %s VALUE | openssl dgst -sha256 -hmac KEY | cut -c1-32
    let long_key = "k".repeat(200);
    let long = "a".repeat(64);
    let table: [(&str, &[u8], &str); 6] = [
        ("secret", b"k1", "c08d7bc803407e268b963d84dab029b1"),
        ("other", b"k1", "c8cf1e4261adc0105b20274fa31069aa"),
        (&long_key, b"k1", "9b50854423e507cb747c564f6dd1e54c"),
        ("secret", long.as_bytes(), "1785e99f81ba5d48603d542c0fd9e7ab"),
        ("secret", b"\xff\x00", "f5414477cbf1995df52083ff7be2191b"),
        ("secret", b"", "f9e66e179b6747ae54108f82f8ade8b3"),
    ];
    for (key, value, hash) in table {
        assert_eq!(secret(key, value), format!("key.~{hash}"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_hash_in_a_policy_is_the_tenant_that_sends_the_value() {
    let sent = Tenant::new("key", b"k1", Storage::Secret, &HashKey::new("secret"));
    assert_eq!(Tenant::from_hash("key", "~c08d7bc803407e268b963d84dab029b1"), Some(sent));
    let table = [
        "",
        "~",
        "c08d7bc803407e268b963d84dab029b1",
        "~c08d7bc803407e268b963d84dab029b",
        "~c08d7bc803407e268b963d84dab029b10",
        "~C08D7BC803407E268B963D84DAB029B1",
        "~c08d7bc803407e268b963d84dab029bg",
        "~~08d7bc803407e268b963d84dab029b1",
        " ~c08d7bc803407e268b963d84dab029b1",
        "~c08d7bc803407e268b963d84dab029é",
    ];
    for text in table {
        assert_eq!(Tenant::from_hash("key", text), None, "{text}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_plain_value_looks_like_a_hash() {
    for value in ["~", "~c08d7bc803407e268b963d84dab029b1"] {
        let written = plain("key", value.as_bytes());
        assert_eq!(written, format!("key.{}", value.replace('~', "%7E")));
        assert!(!written.contains('~'));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_key_is_not_printed() {
    assert_eq!(format!("{:?}", HashKey::new("secret")), "HashKey(..)");
}
