//! The host that a request is for, in requests and in policies.

use std::net::Ipv6Addr;

/// The host in `:authority` in its one spelling: in lower case, without port and dots at the end, an IPv6 address in
/// brackets as RFC 5952 writes it.
pub(crate) fn host(authority: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(authority).ok();
    let in_brackets = text.and_then(|text| text.strip_prefix('[')?.split_once(']')).map(|(address, _)| address);
    if let Some(address) = in_brackets.or(text).and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        return format!("[{address}]").into_bytes();
    }
    let mut name = match authority.starts_with(b"[") && authority.contains(&b']') {
        true => authority.split_inclusive(|byte| *byte == b']').next().unwrap_or_default(),
        false => authority.split(|byte| *byte == b':').next().unwrap_or_default(),
    };
    while let Some(without_dot) = name.strip_suffix(b".") {
        name = without_dot;
    }
    name.to_ascii_lowercase()
}

/// A host of a policy in the spelling of [`host`].
pub(crate) fn normal_host(text: &str) -> String {
    String::from_utf8_lossy(&host(text.as_bytes())).into_owned()
}
