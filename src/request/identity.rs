//! The tenant of a request.

use std::rc::Rc;

use super::address::client_ip;
use super::credentials::{basic_user, bearer, credentials_are_joined, end_of_first};
use super::{Reading, Request};
use crate::hostname::host;
use crate::path::Malformed;
use crate::percent::{byte_of, escape_into};
use crate::policy::{Kind, Missing, Origin, Rule, Source};
use crate::tenant::Tenant;

/// Why a request is refused before any bucket is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its path, which something has to be told from, has no normal form.
    Malformed,
    /// It sends twice what names its tenant or tier.
    Doubled,
    /// By the word `deny`, or because it names no tenant.
    Forbidden,
}

/// Names the tenant: the first source that yields a value does. None where nobody is named and the rule does not look at
/// such requests.
///
/// # Errors
/// The rule refuses the request.
pub fn identify(rule: &Rule, request: &dyn Request) -> Result<Option<Tenant>, Refused> {
    tenant_of(rule, &Reading::new(request))
}

/// The value that one source yields; an empty one is none. For people who ask why.
///
/// # Errors
/// The request is to be refused: [`Refused::Malformed`] or [`Refused::Doubled`].
#[cfg(feature = "explain")]
pub fn value_of(source: &Source, request: &dyn Request) -> Result<Option<Vec<u8>>, Refused> {
    Ok(value(source, &Reading::new(request))?.map(|value| value.to_vec()))
}

pub(crate) fn tenant_of<'r>(rule: &'r Rule, reading: &Reading<'r>) -> Result<Option<Tenant>, Refused> {
    for source in &rule.sources {
        if let Some(value) = value(source, reading)? {
            return Ok(Some(Tenant::new(&source.label, &value, source.storage, &rule.hash_key)));
        }
    }
    match &rule.missing {
        Missing::Deny => Err(Refused::Forbidden),
        Missing::Skip => Ok(None),
        Missing::As(tenant) => Ok(Some(tenant.clone())),
    }
}

/// The tier that the sources of tiers name; None where it is the default one.
pub(crate) fn tier_of<'r>(rule: &'r Rule, reading: &Reading<'r>) -> Result<Option<usize>, Refused> {
    for source in &rule.tier_sources {
        if let Some(value) = value(source, reading)? {
            // Limits of single tenants have no name, and no value is empty.
            return Ok(rule.tiers.iter().position(|tier| tier.name.as_bytes() == &*value));
        }
    }
    Ok(None)
}

type Value = Option<Rc<[u8]>>;

/// The value of a source; an empty one is none.
fn value<'r>(source: &'r Source, reading: &Reading<'r>) -> Result<Value, Refused> {
    let value = match &source.origin {
        Origin::PathSegment(number, paths) => match reading.path(*paths) {
            Ok(path) => path.and_then(|path| path.split('/').nth(*number)).map(|segment| segment.as_bytes().into()),
            Err(Malformed) if paths.malformed_is_default => None,
            Err(Malformed) => return Err(Refused::Malformed),
        },
        Origin::All(parts) => {
            let mut joined = String::new();
            for part in parts {
                let Some(value) = value(part, reading)? else {
                    return Ok(None);
                };
                if !joined.is_empty() {
                    joined.push(',');
                }
                // Escaped, no value holds a comma.
                escape_into(&mut joined, &value);
            }
            Some(joined.as_bytes().into())
        }
        Origin::Header(name) => reading.header(name).map(|value| match end_of_first(name, &value) {
            Some(end) => value.get(..end).unwrap_or_default().trim_ascii().into(),
            None => value,
        }),
        origin => sent(origin, reading),
    };
    if source.refuses_doubled && is_doubled(&source.origin, value.is_some(), reading) {
        return Err(Refused::Doubled);
    }
    Ok(value.filter(|value| !value.is_empty()))
}

/// Whether a request sends two values where the first one counts. All headers are looked at only where there is a value.
fn is_doubled<'r>(origin: &'r Origin, has_value: bool, reading: &Reading<'r>) -> bool {
    let on_lines = |name: &str| has_value && reading.is_doubled(name);
    match origin {
        Origin::Header(name) => {
            let joined = |value: Rc<[u8]>| end_of_first(name, &value).is_some();
            reading.header(name).is_some_and(joined) || on_lines(name)
        }
        Origin::Bearer => credentials_are_joined(reading, b"bearer") || on_lines("authorization"),
        Origin::BasicUser => credentials_are_joined(reading, b"basic") || on_lines("authorization"),
        Origin::Query(name) => has_value && parameter(reading, name, 1).is_some(),
        Origin::Cookie(name) => has_value && cookie(reading, name, 1).is_some(),
        _ => false,
    }
}

/// What was sent, empty or not.
pub(super) fn sent<'r>(origin: &'r Origin, reading: &Reading<'r>) -> Value {
    match origin {
        Origin::Header(name) => reading.header(name),
        Origin::Constant(value) => Some(value.as_bytes().into()),
        Origin::Bearer => bearer(reading).map(Rc::from),
        Origin::BasicUser => basic_user(reading).map(Rc::from),
        Origin::Query(name) => parameter(reading, name, 0).map(Rc::from),
        Origin::Cookie(name) => cookie(reading, name, 0).map(Rc::from),
        Origin::Host => Some(host(&reading.header(":authority")?).into()),
        Origin::Property(path, kind) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            reading.property(&path).and_then(|bytes| property(bytes, *kind))
        }
        Origin::ClientIp(from, prefix) => client_ip(*from, *prefix, reading).map(|text| text.as_bytes().into()),
        // Both may fail: see `value`.
        Origin::PathSegment(..) | Origin::All(_) => None,
    }
}

/// The bytes of a property, as this kind.
fn property(bytes: Rc<[u8]>, kind: Kind) -> Value {
    match kind {
        Kind::Bytes => Some(bytes),
        // A number or a whole object is no text: an object has many forms, since its fields come in no fixed order.
        Kind::Text => {
            let is_text = std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains(char::is_control));
            is_text.then_some(bytes)
        }
        Kind::Number => {
            const END: i64 = 1 << 53;
            let bytes = <[u8; 8]>::try_from(&*bytes).ok()?;
            // No number but 0 is a double with the bytes of an integer of that range: below 0 those are no numbers.
            let integer = i64::from_le_bytes(bytes);
            let double = f64::from_le_bytes(bytes);
            let number = match integer > -END / 2 && integer < END {
                true => integer,
                // Below 2^53 the cast cuts nothing off.
                false if double.fract() == 0.0 && double.abs() < END as f64 => double as i64,
                false => return None,
            };
            Some(number.to_string().as_bytes().into())
        }
        Kind::Bool => match *bytes {
            [0] => Some(b"false".as_slice().into()),
            [1] => Some(b"true".as_slice().into()),
            _ => None,
        },
    }
}

/// Whether a host is this one, or ends as `*.` and a domain say.
pub(super) fn host_is(wanted: &str, host: &[u8]) -> bool {
    match wanted.strip_prefix('*') {
        Some(end) => host.len() > end.len() && host.ends_with(end.as_bytes()),
        None => host == wanted.as_bytes(),
    }
}

/// The `nth` parameter of this name in the query, decoded as forms are (a plus is a space). Comparing is done decoded,
/// too, as applications do.
fn parameter(reading: &Reading, name: &str, nth: usize) -> Option<Vec<u8>> {
    let sent = reading.header(":path")?;
    let end = sent.iter().position(|byte| *byte == b'#').unwrap_or(sent.len());
    let start = sent.iter().position(|byte| *byte == b'?')?.saturating_add(1);
    let pairs = sent.get(start..end)?.split(|byte| *byte == b'&').map(split_pair);
    let mut values = pairs.filter(|(key, _)| form_decoded(key) == name.as_bytes()).map(|(_, value)| value);
    values.nth(nth).map(form_decoded)
}

/// What stands before the first equals sign, and after it.
fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = pair.splitn(2, |byte| *byte == b'=');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Decodes `%XX` and `+`; a percent sign that starts no escape stays.
fn form_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, left)) = rest.split_first() {
        let escaped = match (byte, left) {
            (b'%', [high, low, left @ ..]) => byte_of(*high, *low).map(|byte| (byte, left)),
            (b'+', left) => Some((b' ', left)),
            _ => None,
        };
        let (byte, left) = escaped.unwrap_or((*byte, left));
        decoded.push(byte);
        rest = left;
    }
    decoded
}

/// The `nth` cookie of this name, without the quotes that may stand around it (RFC 6265, 4.1.1).
fn cookie(reading: &Reading, name: &str, nth: usize) -> Option<Vec<u8>> {
    let sent = reading.header("cookie")?;
    let pairs = sent.split(|byte| *byte == b';').map(split_pair);
    let mut values = pairs.filter(|(key, _)| key.trim_ascii() == name.as_bytes()).map(|(_, value)| value.trim_ascii());
    let value = values.nth(nth)?;
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(quoted.unwrap_or(value).to_vec())
}
