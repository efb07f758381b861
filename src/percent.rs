//! Percent-encoding (RFC 3986, 2.1), as tenants, keys and paths have it.

/// Percent-encodes every byte outside `A-Z a-z 0-9 _ -`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    escape_into(&mut text, bytes);
    text
}

/// Appends bytes, percent-encoded outside `A-Z a-z 0-9 _ -`.
pub fn escape_into(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            text.push(char::from(*byte));
        } else {
            push_escaped(text, *byte);
        }
    }
}

/// Appends `%` and the byte's two upper-case hex digits.
pub(crate) fn push_escaped(text: &mut String, byte: u8) {
    text.push('%');
    push_hex(text, byte, b"0123456789ABCDEF");
}

/// Appends a byte's two hex digits out of these.
pub(crate) fn push_hex(text: &mut String, byte: u8, digits: &[u8; 16]) {
    for nibble in [byte >> 4, byte & 15] {
        text.extend(digits.get(usize::from(nibble)).map(|digit| char::from(*digit)));
    }
}

/// The byte of two hex digits.
pub(crate) fn byte_of(high: u8, low: u8) -> Option<u8> {
    Some(hex(high)? << 4 | hex(low)?)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
