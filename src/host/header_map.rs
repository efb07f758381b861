//! All headers of a request, read in one call to the host and looked at where they are.

use std::cell::OnceCell;

use super::Host;
use crate::request::Request;

/// From so many headers on that a policy wants, one call for all of them costs less than one for each. A call that
/// returns bytes costs the host some 10,000 instructions, whatever the bytes are.
const FROM: usize = 3;

/// Where a request has more headers than this, the host would write too many that nobody wants.
const MOST: usize = 64;

/// Whether the headers of a request are read at once, where it has so many and a policy wants so many.
pub(super) fn pays(wanted: usize, headers: usize) -> bool {
    wanted >= FROM && headers <= MOST
}

/// The headers of the current request, read when the first of them is wanted. What is no header, and what the map does not
/// hold although the host may know it, is asked of the host.
pub(super) struct HeaderMap<'h> {
    host: &'h dyn Host,
    bytes: OnceCell<Option<Vec<u8>>>,
}

impl<'h> HeaderMap<'h> {
    pub fn of(host: &'h dyn Host) -> HeaderMap<'h> {
        HeaderMap { host, bytes: OnceCell::new() }
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get_or_init(|| self.host.header_map()).as_deref()
    }

    fn all<'m>(bytes: &'m [u8], name: &'m str) -> impl Iterator<Item = &'m [u8]> {
        Pairs::of(bytes).filter(move |(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }
}

impl Request for HeaderMap<'_> {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        match self.bytes() {
            Some(bytes) => Self::all(bytes, name).next().map(<[u8]>::to_vec),
            None => self.host.header(name),
        }
    }

    fn authority(&self) -> Option<Vec<u8>> {
        self.header(":authority").or_else(|| self.host.authority())
    }

    fn cookies(&self) -> Option<Vec<u8>> {
        let Some(bytes) = self.bytes() else {
            return self.host.cookies();
        };
        let lines: Vec<&[u8]> = Self::all(bytes, "cookie").collect();
        (!lines.is_empty()).then(|| lines.join(b"; ".as_slice()))
    }

    fn is_doubled(&self, name: &str) -> bool {
        match self.bytes() {
            Some(bytes) => Self::all(bytes, name).nth(1).is_some(),
            None => self.host.is_doubled(name),
        }
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.host.property(path)
    }
}

/// The pairs of a map as hosts write them (proxy-wasm 0.2.1, "Serialized map"): their number, the lengths of each name and
/// value, and then each name and value with a NUL after it. Numbers have 32 bits, little-endian. What is cut off has no
/// pairs.
struct Pairs<'m> {
    lengths: &'m [u8],
    values: &'m [u8],
}

impl<'m> Pairs<'m> {
    fn of(bytes: &'m [u8]) -> Pairs<'m> {
        let split = || {
            let (count, rest) = split_number(bytes)?;
            rest.split_at_checked(count.checked_mul(LENGTHS)?)
        };
        let (lengths, values) = split().unwrap_or_default();
        Pairs { lengths, values }
    }
}

/// Bytes of the two lengths of a pair.
const LENGTHS: usize = 8;

impl<'m> Iterator for Pairs<'m> {
    type Item = (&'m [u8], &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, lengths) = split_number(self.lengths)?;
        let (value, lengths) = split_number(lengths)?;
        let (name, rest) = self.values.split_at_checked(name)?;
        let (value, rest) = rest.get(1..)?.split_at_checked(value)?;
        (self.lengths, self.values) = (lengths, rest.get(1..)?);
        Some((name, value))
    }
}

fn split_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}
