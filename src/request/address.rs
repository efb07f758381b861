//! The address of a client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Reading;
use crate::policy::AddressFrom;

/// The address in its one spelling (RFC 5952), an IPv6 one cut to so many bits; None where none is told.
pub(super) fn client_ip(from: AddressFrom, ipv6_prefix: u32, reading: &Reading) -> Option<String> {
    let told = match from {
        AddressFrom::Host => reading.property(&["source", "address"])?,
        AddressFrom::Forwarded(_) => reading.header("x-forwarded-for")?,
    };
    let text = match from {
        AddressFrom::Host => &told,
        AddressFrom::Forwarded(before) => told.rsplit(|byte| *byte == b',').nth(before)?,
    };
    match address(text)? {
        IpAddr::V4(address) => Some(address.to_string()),
        IpAddr::V6(address) => {
            let cut = u128::MAX.checked_shl(128_u32.saturating_sub(ipv6_prefix)).unwrap_or_default();
            Some(Ipv6Addr::from_bits(address.to_bits() & cut).to_string())
        }
    }
}

/// Reads `1.2.3.4`, `1.2.3.4:80`, `::1`, `[::1]`, `[::1]:80`, each IPv6 with or without a zone. IPv4-mapped IPv6 is IPv4.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':').or(empty(port))))?,
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, Some("0")),
        },
    };
    port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    if !host.contains(':') {
        return host.parse::<Ipv4Addr>().ok().filter(|_| !text.starts_with('[')).map(IpAddr::V4);
    }
    let without_zone = host.split_once('%').map_or(host, |(address, _)| address);
    let address: Ipv6Addr = without_zone.parse().ok()?;
    Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

fn empty(text: &str) -> Option<&str> {
    text.is_empty().then_some(text)
}
