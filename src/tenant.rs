//! Tenants: `label.value`, written the same everywhere.
//!
//! Bytes of a value outside `A-Z a-z 0-9 _ -` are `%` and two upper-case hex digits. A value that is secret or longer
//! than 64 bytes is `~` and the first 128 bits of HMAC-SHA-256 (RFC 2104) in hex, which no plain value can look like,
//! since `~` is escaped. `printf %s "$VALUE" | openssl dgst -sha256 -hmac "$SECRET"` prints the same digits.

use std::fmt;

use hmac_sha256::HMAC;

use crate::percent::{byte_of, escape_into, push_hex};

/// Longest value in bytes that stands in a key as it is.
const MAX_PLAIN: usize = 64;

/// Hex digits of a hashed value.
pub const HASH_DIGITS: usize = 32;

/// Who is limited, as `label.value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(String);

/// The key of the HMAC. Without one, long values are hashed with the empty key and secret values cannot be.
#[derive(Clone, Default)]
pub struct HashKey(Vec<u8>);

/// How a source's values may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As they are, where they are short.
    Plain,
    /// Only hashed.
    Secret,
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// A key of any length.
    pub fn new(key: impl Into<Vec<u8>>) -> HashKey {
        HashKey(key.into())
    }

    fn push_hash(&self, name: &mut String, value: &[u8]) {
        name.push('~');
        for byte in HMAC::mac(value, &self.0).iter().take(HASH_DIGITS / 2) {
            push_hex(name, *byte, b"0123456789abcdef");
        }
    }
}

impl Tenant {
    /// The tenant that a source with this label names by this value.
    pub fn new(label: &str, value: &[u8], storage: Storage, key: &HashKey) -> Tenant {
        let is_plain = storage == Storage::Plain && value.len() <= MAX_PLAIN;
        let length = if is_plain { value.len() } else { HASH_DIGITS.saturating_add(1) };
        let mut name = String::with_capacity(label.len().saturating_add(length).saturating_add(1));
        name.push_str(label);
        name.push('.');
        if is_plain {
            escape_into(&mut name, value);
        } else {
            key.push_hash(&mut name, value);
        }
        Tenant(name)
    }

    /// A secret tenant, named by its hash: `~` and 32 lower-case hex digits. None where it is no hash.
    pub fn from_hash(label: &str, hash: &str) -> Option<Tenant> {
        let digits = hash.strip_prefix('~')?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == HASH_DIGITS && digits.bytes().all(hex)).then(|| Tenant(format!("{label}.{hash}")))
    }

    /// What a source with this label has read, where the tenant is that source's and the value stands as it was.
    pub fn plain_value(&self, label: &str) -> Option<Vec<u8>> {
        let mut rest = self.0.strip_prefix(label)?.strip_prefix('.')?.as_bytes();
        let mut value = Vec::with_capacity(rest.len());
        while let Some((byte, left)) = rest.split_first() {
            let (byte, left) = match (byte, left) {
                (b'%', [high, low, left @ ..]) => (byte_of(*high, *low)?, left),
                (b'~', _) => return None,
                _ => (*byte, left),
            };
            value.push(byte);
            rest = left;
        }
        Some(value)
    }

    /// `label.value`, safe to stand in a key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
