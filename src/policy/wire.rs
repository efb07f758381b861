//! A policy as Envoy hands on a `google.protobuf.Struct`: in protobuf's wire format, not as JSON.
//!
//! Message and field numbers are those of `google/protobuf/struct.proto`. Fields that it does not know are refused, for
//! no policy has them.

use super::tree::Tree;

/// How deep objects and lists may nest; more than any policy needs, and little enough for a module's stack.
const MAX_DEPTH: u8 = 32;

/// Reads a `google.protobuf.Struct`; None where the bytes are none.
pub(super) fn read_struct(bytes: &[u8]) -> Option<Tree> {
    object(bytes, MAX_DEPTH)
}

/// One field: its number and its value.
enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
}

/// `Struct`: the entries of a map as field 1.
fn object(mut bytes: &[u8], depth: u8) -> Option<Tree> {
    let depth = depth.checked_sub(1)?;
    let mut pairs = Vec::new();
    while !bytes.is_empty() {
        let (1, Wire::Bytes(mut entry)) = field(&mut bytes)? else {
            return None;
        };
        let (mut key, mut value_of_key) = (String::new(), Tree::Null);
        while !entry.is_empty() {
            match field(&mut entry)? {
                (1, Wire::Bytes(text)) => key = utf8(text)?,
                (2, Wire::Bytes(message)) => value_of_key = value(message, depth)?,
                _ => return None,
            }
        }
        pairs.push((key, value_of_key));
    }
    Some(Tree::Map(pairs))
}

/// `ListValue`: values as field 1.
fn list(mut bytes: &[u8], depth: u8) -> Option<Tree> {
    let depth = depth.checked_sub(1)?;
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (1, Wire::Bytes(message)) = field(&mut bytes)? else {
            return None;
        };
        items.push(value(message, depth)?);
    }
    Some(Tree::List(items))
}

/// `Value`: one of six fields, the last one counting.
fn value(mut bytes: &[u8], depth: u8) -> Option<Tree> {
    let mut tree = Tree::Null;
    while !bytes.is_empty() {
        tree = match field(&mut bytes)? {
            (1, Wire::Varint(_)) => Tree::Null,
            (2, Wire::Fixed64(bits)) => Tree::number(f64::from_bits(bits)),
            (3, Wire::Bytes(text)) => Tree::Text(utf8(text)?),
            (4, Wire::Varint(truth)) => Tree::Bool(truth != 0),
            (5, Wire::Bytes(message)) => object(message, depth)?,
            (6, Wire::Bytes(message)) => list(message, depth)?,
            _ => return None,
        };
    }
    Some(tree)
}

fn field<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Wire<'b>)> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => Wire::Fixed64(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Wire::Bytes(take(bytes, length)?)
        }
        _ => return None,
    };
    Some((tag >> 3, wire))
}

/// Seven bits a byte, the lowest first; at most ten bytes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64_u32).step_by(7) {
        let byte = *take(bytes, 1)?.first()?;
        value |= u64::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn utf8(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}
