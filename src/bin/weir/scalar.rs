//! What a plain scalar of YAML is: its readers differ.

use serde::de::{Deserialize, IntoDeserializer};
use weir::policy::Tree;

use crate::document::{Inside, Value};

/// A plain scalar as Envoy reads it (yaml-cpp, and Envoy's own rule for numbers); None where it is a text.
pub fn for_envoy(text: &str) -> Option<Value> {
    if let "" | "~" | "null" | "Null" | "NULL" = text {
        return Some(Value::Null);
    }
    let is_word = |word: &str| {
        let (first, rest) = word.split_at(1);
        text == word || text == word.to_ascii_uppercase() || text == first.to_ascii_uppercase() + rest
    };
    for (words, value) in [(["true", "yes", "on", "y"], true), (["false", "no", "off", "n"], false)] {
        if words.into_iter().any(is_word) {
            return Some(Value::Bool(value));
        }
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, radix) = match (digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")), digits) {
        (Some(hex), _) => (hex, 16),
        (None, digits) if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        (None, digits) => (digits, 10),
    };
    // Rust would take a second sign.
    let number = digits.starts_with(|letter: char| letter.is_ascii_hexdigit()).then_some(digits)?;
    let number = i64::from_str_radix(number, radix).ok()?;
    let number = if text.starts_with('-') { number.checked_neg()? } else { number };
    Some(match i32::try_from(number) {
        Ok(_) => Value::Int(number),
        Err(_) => Value::Text(number.to_string(), Inside::Somewhere),
    })
}

/// A plain scalar by the core schema of YAML 1.2; None where it is a text.
pub fn core(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let radix = |prefix, radix| text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok());
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(Value::Int(number));
    }
    // Rust reads words such as `inf` as numbers, too; YAML has dots before them, and no policy has any of them.
    let is_number = text.starts_with(|letter: char| letter.is_ascii_digit() || "+-.".contains(letter))
        && text.contains(|letter: char| letter.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if !is_number {
        return None;
    }
    if let Ok(number) = text.parse() {
        return Some(Value::Int(number));
    }
    let number: f64 = text.parse().ok()?;
    // An integer where it is one: as the core reads it.
    let read: Result<Tree, serde::de::value::Error> = Tree::deserialize(number.into_deserializer());
    Some(match read {
        Ok(Tree::Int(number)) => Value::Int(number),
        _ => Value::Float(number),
    })
}
