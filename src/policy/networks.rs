//! Networks among the tenants of a rule: each stands for all addresses in it, and every address keeps a bucket of its own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::tenant::Tenant;

/// The networks that a rule names, in the order in which they are tried: overrides first, then the longest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<SameLength>);

/// Networks of one length, so that an address is in one of them at most.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SameLength {
    kind: Kind,
    /// The first address of each, in order, and its index into the tiers of the rule.
    tiers: Vec<(u128, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    is_override: bool,
    length: u32,
    is_ipv6: bool,
    /// Of the source that reads the address.
    label: String,
}

/// A network, by any of its addresses and its length in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) address: IpAddr,
    pub(super) length: u32,
}

impl Networks {
    /// Whether a rule names none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tiers of all networks.
    pub fn tiers(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|same| same.tiers.iter().map(|(_, tier)| *tier))
    }

    /// The tiers of networks of all addresses: `0.0.0.0/0` and `::/0`.
    pub(super) fn tiers_of_all(&self) -> impl Iterator<Item = usize> + '_ {
        let of_all = self.0.iter().filter(|same| same.kind.length == 0);
        of_all.flat_map(|same| same.tiers.iter().map(|(_, tier)| *tier))
    }

    /// The tier of the first network that a tenant's address is in; in a [`super::Routing`] that is a limiter, likewise.
    pub fn find(&self, tenant: &Tenant) -> Option<usize> {
        let mut labels = self.0.iter().map(|same| same.kind.label.as_str());
        let (label, value) = labels.find_map(|label| Some((label, tenant.plain_value(label)?)))?;
        let address: IpAddr = std::str::from_utf8(&value).ok()?.parse().ok()?;
        let mut of_its_kind =
            self.0.iter().filter(|same| same.kind.label == label && same.kind.is_ipv6 == address.is_ipv6());
        of_its_kind.find_map(|same| {
            let first = bits(Network { address, length: same.kind.length }.first());
            let at = same.tiers.binary_search_by_key(&first, |(bits, _)| *bits).ok()?;
            same.tiers.get(at).map(|(_, tier)| *tier)
        })
    }

    /// Adds a network of a source; false where it is there already.
    pub(super) fn insert(&mut self, label: &str, network: Network, is_override: bool, tier: usize) -> bool {
        let (length, is_ipv6) = (network.length, network.address.is_ipv6());
        let kind = Kind { is_override, length, is_ipv6, label: label.to_owned() };
        let at = self.0.iter().position(|same| same.kind == kind).unwrap_or_else(|| {
            let comes_first = |same: &SameLength| (same.kind.is_override, same.kind.length) >= (is_override, length);
            let at = self.0.partition_point(comes_first);
            self.0.insert(at, SameLength { kind, tiers: Vec::new() });
            at
        });
        let Some(same) = self.0.get_mut(at) else {
            return false;
        };
        let first = bits(network.first());
        match same.tiers.binary_search_by_key(&first, |(bits, _)| *bits) {
            Ok(_) => false,
            Err(at) => {
                same.tiers.insert(at, (first, tier));
                true
            }
        }
    }
}

impl Network {
    /// Its first address.
    pub(super) fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let cut = u32::MAX.checked_shl(32_u32.saturating_sub(self.length)).unwrap_or_default();
                IpAddr::V4((address.to_bits() & cut).into())
            }
            IpAddr::V6(address) => {
                let cut = u128::MAX.checked_shl(128_u32.saturating_sub(self.length)).unwrap_or_default();
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & cut))
            }
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// What a key of `tenants` or `overrides` says of addresses.
pub(super) enum Addresses {
    /// What one tenant is named by.
    One(IpAddr),
    /// More than one tenant.
    Network(Network),
}

/// Why a key names nothing that requests have.
pub(super) struct Misspelt {
    pub(super) wrong: &'static str,
    pub(super) wanted: String,
    /// How it is to be written, if that can be told.
    pub(super) right: Option<String>,
}

/// Reads an address, or a network as `10.0.0.0/8`, of a source that cuts IPv6 addresses to so many bits.
pub(super) fn addresses(text: &str, ipv6_prefix: u32) -> Result<Addresses, Misspelt> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let parsed = || -> Option<(IpAddr, Option<u32>)> {
        let without_port = address.parse::<SocketAddr>().map(|address| address.ip());
        let parsed: IpAddr = without_port.or_else(|_| address.parse()).ok()?;
        let length = length.map(str::parse::<u32>).transpose().ok()?;
        let mapped = parsed.is_ipv6() && parsed.to_canonical().is_ipv4() && length.is_none_or(|length| length >= 96);
        let address = if mapped { parsed.to_canonical() } else { parsed };
        let length = length.map(|length| if mapped { length.saturating_sub(96) } else { length });
        let most = if address.is_ipv4() { 32 } else { 128 };
        length.is_none_or(|length| length <= most).then_some((address, length))
    };
    let Some((address, length)) = parsed() else {
        return Err(Misspelt {
            wrong: "is a tenant that no request can be",
            wanted: "write an address or a network, such as 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32".to_owned(),
            right: None,
        });
    };
    // So many bits tell tenants apart.
    let whole = if address.is_ipv4() { 32 } else { ipv6_prefix };
    let network = Network { address, length: length.unwrap_or(whole).min(whole) };
    let first = network.first();
    let right = if length.is_some() { format!("{first}/{}", network.length) } else { first.to_string() };
    if right == text {
        return Ok(if network.length == whole { Addresses::One(first) } else { Addresses::Network(network) });
    }
    let (wrong, wanted) = match length {
        Some(length) if length > whole => (
            "is a network that no request can be in",
            format!("requests are cut to ipv6_prefix: {whole}, so write a network of at most so many bits"),
        ),
        Some(_) if first != address => {
            ("is no network: bits are set behind its length", "write the first address of the network".to_owned())
        }
        None if first != address => (
            "is a tenant that no request can be",
            format!(
                "requests are cut to ipv6_prefix: {whole}, so write the first address, which stands for the whole /{whole}"
            ),
        ),
        _ => (
            "is a tenant that no request can be",
            "write the address as RFC 5952 does and without a port, and the length as a plain number".to_owned(),
        ),
    };
    Err(Misspelt { wrong, wanted, right: Some(right) })
}
