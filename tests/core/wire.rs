//! A policy as Envoy hands on a `google.protobuf.Struct`, in wire format.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::policy::{NotJson, Tree};

use crate::made::{Random, rounds};

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field(number: u64, payload: Vec<u8>) -> Vec<u8> {
    [varint(number << 3 | 2), varint(payload.len() as u64), payload].concat()
}

/// As protobuf serialises a tree: numbers are doubles.
fn value(tree: &Tree) -> Vec<u8> {
    let double = |value: f64| [vec![0x11], value.to_bits().to_le_bytes().to_vec()].concat();
    match tree {
        Tree::Null => vec![8, 0],
        Tree::Bool(value) => vec![32, u8::from(*value)],
        Tree::Int(value) => double(*value as f64),
        Tree::Float(value) => double(*value),
        Tree::Text(text) => field(3, text.as_bytes().to_vec()),
        Tree::List(items) => field(6, items.iter().flat_map(|item| field(1, value(item))).collect()),
        Tree::Map(pairs) => field(5, object(pairs)),
    }
}

fn object(pairs: &[(String, Tree)]) -> Vec<u8> {
    let pair =
        |(key, tree): &(String, Tree)| field(1, [field(1, key.as_bytes().to_vec()), field(2, value(tree))].concat());
    pairs.iter().flat_map(pair).collect()
}

fn wire(tree: &Tree) -> Vec<u8> {
    match tree {
        Tree::Map(pairs) => object(pairs),
        _ => panic!("a policy is an object"),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn json_and_wire_format_of_one_policy_are_one_tree() {
    for json in [
        "{}",
        r#"{"version": 1}"#,
        r#"{"version": 1, "version": 2}"#,
        r#"{"a": null, "b": true, "c": false, "d": 0, "e": -1, "f": 1.5, "g": 9007199254740991, "h": "", "i": "é"}"#,
        r#"{"limiters": {"main": {"transport": "webdis", "cluster": "webdis"}}, "rules": [{"key": [[], {}, [1, [2]]]}]}"#,
    ] {
        let tree = Tree::from_host(json.as_bytes()).expect("JSON");
        assert_eq!(Tree::from_host(&wire(&tree)), Ok(tree), "{json}");
    }
    let long = Tree::Map(vec![("k".repeat(300), Tree::Text("v".repeat(70_000)))]);
    assert_eq!(Tree::from_host(&wire(&long)), Ok(long));
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_neither_is_refused() {
    let good = wire(&Tree::Map(vec![("version".to_owned(), Tree::Int(1))]));
    assert!(Tree::from_host(&good).is_ok());
    let refused = |bytes: &[u8]| assert!(Tree::from_host(bytes).is_err(), "{}", bytes.escape_ascii());
    for end in 1..good.len() {
        refused(&good[..end]);
    }
    refused(&[good.clone(), vec![0]].concat());
    refused(&[good.clone(), field(2, Vec::new())].concat());
    refused(&field(1, field(3, Vec::new())));
    refused(&field(1, field(1, vec![0xff])));
    refused(&field(1, field(2, field(3, vec![0xff]))));
    refused(&field(1, field(2, field(7, Vec::new()))));
    // Lengths and numbers that run over.
    refused(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    refused(&[0xff; 16]);
    refused(&[0x0a, 0x80]);
    // Text that is nearly JSON.
    assert_eq!(Tree::from_host(b"{\"version\": 1,\n}"), Err(NotJson { line: 2, column: 1 }));
    refused(b"version: 1");
    refused(b"\xef\xbb\xbf{}");
}

#[wasm_bindgen_test(unsupported = test)]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let mut tree = Tree::Null;
        for at in 0..depth {
            tree = match at % 2 {
                0 => Tree::List(vec![tree]),
                _ => Tree::Map(vec![("a".to_owned(), tree)]),
            };
        }
        wire(&Tree::Map(vec![("a".to_owned(), tree)]))
    };
    assert!(Tree::from_host(&nested(31)).is_ok());
    assert!(Tree::from_host(&nested(32)).is_err());
    assert!(Tree::from_host(&nested(300)).is_err());
}

#[wasm_bindgen_test(unsupported = test)]
fn damaged_bytes_do_no_harm() {
    let json =
        r#"{"version": 1, "rules": [{"name": "r", "limits": "60/m", "key": [{"constant": "all"}, null, true]}]}"#;
    let good = wire(&Tree::from_host(json.as_bytes()).expect("JSON"));
    let mut random = Random::seeded(11);
    for _ in 0..rounds(20_000) {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.draw() as u8;
        }
        let _ = Tree::from_host(&bytes);
    }
}
