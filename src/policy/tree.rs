//! A policy as it was written: a tree that keeps the order of keys and keys that stand twice.
//!
//! serde_json's own value forgets both. It must not judge: what a tree means is [`super::decode`]'s to say.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::SipHasher13;

use super::wire;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// One node of a JSON (or YAML) document.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without a fraction. Hosts hand integers on as doubles, so `1e3` is one.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// An object: every pair, in order, a key that stands twice being there twice.
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// Reads what a host hands to the module: JSON, or a `google.protobuf.Struct` in wire format.
    ///
    /// # Errors
    /// Where (line and column) the text stops being JSON.
    pub fn from_host(bytes: &[u8]) -> Result<Tree, NotJson> {
        Tree::from_json(bytes).or_else(|error| wire::read_struct(bytes).ok_or(error))
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// Where (line and column) the text stops being JSON.
    #[inline(never)] // Replies of limiters are read by it, too: see `Fields::get`.
    pub fn from_json(bytes: &[u8]) -> Result<Tree, NotJson> {
        serde_json::from_slice(bytes).map_err(|error| NotJson { line: error.line(), column: error.column() })
    }

    /// A number that tells policies apart, whatever the order of keys in objects is, and whatever they are written in,
    /// but for a fraction: Envoy's YAML hands that over as a text, which is another value here. Two policies have the same
    /// one by a chance of 1 in 2^32.
    pub fn fingerprint(&self) -> u32 {
        u32::try_from(self.hash() >> 32).unwrap_or_default()
    }

    fn hash(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(self.kind().as_bytes());
        match self {
            Tree::Null => {}
            Tree::Bool(value) => hasher.write(&[u8::from(*value)]),
            Tree::Int(value) => hasher.write(&value.to_le_bytes()),
            Tree::Float(value) => hasher.write(&value.to_le_bytes()),
            Tree::Text(text) => hasher.write(text.as_bytes()),
            Tree::List(items) => items.iter().for_each(|item| hasher.write(&item.hash().to_le_bytes())),
            Tree::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| {
                    let mut pair = SipHasher13::new();
                    pair.write(&value.hash().to_le_bytes());
                    pair.write(key.as_bytes());
                    pair.finish()
                });
                hasher.write(&pairs.fold(0, u64::wrapping_add).to_le_bytes());
            }
        }
        hasher.finish()
    }

    /// The integer that this is.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Tree::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn number(value: f64) -> Tree {
        if value.fract() == 0.0 && value.abs() <= EXACT { Tree::Int(value as i64) } else { Tree::Float(value) }
    }

    /// What kind of thing this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Tree::Null => "null",
            Tree::Bool(_) => "a boolean",
            Tree::Int(_) => "a number",
            Tree::Float(_) => "a number that is no exact integer",
            Tree::Text(_) => "a text",
            Tree::List(_) => "a list",
            Tree::Map(_) => "an object",
        }
    }
}

/// Where a text stops being JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1; 0 where the line ended too early.
    pub column: usize,
}

/// The largest integer below which every integer is exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        struct TreeVisitor;

        impl<'de> Visitor<'de> for TreeVisitor {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a policy")
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Int(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
                Ok(match i64::try_from(value) {
                    Ok(value) => Tree::Int(value),
                    Err(_) => Tree::Float(value as f64),
                })
            }
            fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
                Ok(Tree::number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = access.next_element()? {
                    list.push(item);
                }
                Ok(Tree::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
                let mut map = Vec::new();
                while let Some(pair) = access.next_entry()? {
                    map.push(pair);
                }
                Ok(Tree::Map(map))
            }
        }

        deserializer.deserialize_any(TreeVisitor)
    }
}

impl Serialize for Tree {
    /// Writes the tree as it was read, pairs in their order.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Bool(value) => serializer.serialize_bool(*value),
            Tree::Int(value) => serializer.serialize_i64(*value),
            Tree::Float(value) => serializer.serialize_f64(*value),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::List(items) => serializer.collect_seq(items),
            Tree::Map(pairs) => serializer.collect_map(pairs.iter().map(|(key, value)| (key, value))),
        }
    }
}
