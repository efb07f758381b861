//! What `Authorization` says, and lines that a host has joined.

use super::Reading;

/// Headers whose values hold no comma: one that does was sent on several lines, which Envoy joins before a filter sees
/// them. Of those that Envoy joins, the others are lists or hold commas in comments, quotes or URIs.
const WITHOUT_COMMA: [&str; 6] = [
    "access-control-request-method",
    "grpc-timeout",
    "origin",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Whether credentials of this scheme were sent on more than one line: a token holds no comma (RFC 9110, 11.2). What other
/// schemes hold, such as the parameters of Digest, says nothing about it.
pub(super) fn credentials_are_joined(reading: &Reading, scheme: &[u8]) -> bool {
    reading.header("authorization").is_some_and(|value| value.contains(&b',') && names(&value, scheme))
}

/// Whether a value names a scheme, wherever: some verifiers take the first that they find, in a line behind another one or
/// in quotes.
fn names(value: &[u8], scheme: &[u8]) -> bool {
    let mut rests = (0..value.len()).filter_map(|at| value.get(at..)?.split_at_checked(scheme.len()));
    rests.any(|(word, rest)| {
        word.eq_ignore_ascii_case(scheme) && matches!(rest.first(), None | Some(b' ' | b'\t' | b','))
    })
}

/// Where the first line of a header ends that a host has joined; None where it is one line, or may be.
pub(super) fn end_of_first(name: &str, value: &[u8]) -> Option<usize> {
    let comma = value.iter().position(|byte| *byte == b',')?;
    match name {
        "authorization" => {
            let first = value.get(..comma).unwrap_or_default();
            // Of two credentials neither is believed.
            (!has_parameters(first) || names(value, b"bearer")).then_some(0)
        }
        _ => WITHOUT_COMMA.contains(&name).then_some(comma),
    }
}

/// Whether credentials are parameters, such as `Digest username="a"`, which commas separate (RFC 9110, 11.4).
fn has_parameters(credentials: &[u8]) -> bool {
    let mut words = credentials.splitn(2, |byte| *byte == b' ');
    let value = words.nth(1).unwrap_or_default();
    let mut after_equals_sign = value.splitn(2, |byte| *byte == b'=').skip(1);
    // What ends in equals signs is a token with its padding.
    after_equals_sign.next().is_some_and(|rest| rest.iter().any(|byte| *byte != b'='))
}

/// The token of Bearer credentials (RFC 6750, 2.1). What a verifier passes over in one of three parts, the padding at its
/// end, is cut: a JWT has none (RFC 7515, 2).
pub(super) fn bearer(reading: &Reading) -> Option<Vec<u8>> {
    let token = credentials(reading, b"bearer")?;
    let end = token.iter().position(|byte| *byte == b'=').unwrap_or(token.len());
    let (text, padding) = token.split_at_checked(end)?;
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    if text.is_empty() || !text.iter().all(is_of_token) || !padding.iter().all(|byte| *byte == b'=') {
        return None;
    }
    let dots = text.iter().filter(|byte| **byte == b'.').count();
    Some(if dots == 2 { text.to_vec() } else { token })
}

/// The user of Basic credentials: what stands before the first colon (RFC 7617, 2).
pub(super) fn basic_user(reading: &Reading) -> Option<Vec<u8>> {
    let mut user = base64(&credentials(reading, b"basic")?)?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    user.truncate(colon);
    Some(user)
}

/// What stands behind this scheme, which is compared without case, and the spaces after it (RFC 9110, 11.4). Spaces
/// at the end of a line are no part of its value (RFC 9110, 5.5).
fn credentials(reading: &Reading, scheme: &[u8]) -> Option<Vec<u8>> {
    let value = reading.header("authorization")?;
    let value = value.trim_ascii_end();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (given, rest) = value.split_at_checked(space)?;
    let start = rest.iter().position(|byte| *byte != b' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| rest.get(start..).unwrap_or_default().to_vec())
}

/// Decodes base64 (RFC 4648, 4), its padding written or left out, in the one spelling that each text has.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let (digits, padding) = text.split_at_checked(end)?;
    let is_padded = text.len().is_multiple_of(4) && matches!(padding, b"=" | b"==");
    if !(padding.is_empty() || is_padded) {
        return None;
    }
    let mut decoded = Vec::with_capacity(digits.len());
    // So many bits are left of the digits before.
    let (mut bits, mut left) = (0_u32, 0_u32);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit.wrapping_sub(b'A'),
            b'a'..=b'z' => digit.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => digit.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits.wrapping_shl(6) | u32::from(value);
        left = left.wrapping_add(6);
        if left >= 8 {
            left = left.wrapping_sub(8);
            let [byte, ..] = bits.wrapping_shr(left).to_le_bytes();
            decoded.push(byte);
            bits &= 1_u32.wrapping_shl(left).wrapping_sub(1);
        }
    }
    (bits == 0 && left < 6).then_some(decoded)
}
