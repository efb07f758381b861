//! What a rule says of single tenants: their tiers, and limits of their own.

use std::collections::HashMap;

use super::classes::DEFAULT;
use super::language::{NAME, TIER};
use super::networks::{Addresses, Misspelt, Network, Networks, addresses};
use super::problem::{Found, Path, bytes};
use super::read::{Fields, Reader};
use super::sources::NONE;
use super::tree::Tree;
use super::{Origin, Source, Tier, limits, sources};
use crate::request::normal_host;
use crate::tenant::{HashKey, Storage, Tenant};

const HOST: &str = "write a host as requests are compared: in lower case, without a port and dots at the end, an IPv6 \
                    address in brackets as RFC 5952 writes it";

/// What the tenants of a rule can be.
pub(super) struct Keys<'s> {
    /// None where they could not be read: their problem is noted already.
    pub(super) sources: Option<&'s [Source]>,
    pub(super) hash_key: HashKey,
}

impl Keys<'_> {
    pub(super) fn none(&self, name: &str) -> Tenant {
        Tenant::new(NONE, name.as_bytes(), Storage::Plain, &self.hash_key)
    }

    /// Whether clients can say that they are a tenant of the policy.
    pub(super) fn may_be_made_up(&self, text: &str) -> bool {
        let label = text.split_once('.').map(|(label, _)| label);
        let mut sources = self.sources.unwrap_or_default().iter();
        sources.any(|source| Some(source.label.as_str()) == label && !source.trusted)
    }

    /// What people get of a tenant in a policy: where it may hold the value of a secret source, the label alone.
    pub(super) fn told(&self, text: &str) -> String {
        let (label, value) = text.split_once('.').unwrap_or(("", text));
        let of_label = |source: &&Source| source.label == label;
        let may_be_secret = match self.sources {
            None => true,
            Some(sources) => match sources.iter().find(of_label) {
                Some(source) => source.storage == Storage::Secret && Tenant::from_hash(label, value).is_none(),
                None => label != NONE && sources.iter().any(|source| source.storage == Storage::Secret),
            },
        };
        if !may_be_secret {
            return text.to_owned();
        }
        let dot = if label.is_empty() { "" } else { "." };
        format!("{label}{dot}({})", bytes(value.len()))
    }
}

/// What a rule says of single tenants, and of those that it does not name.
#[derive(Default)]
pub(super) struct OfTenants {
    pub(super) tenants: HashMap<Tenant, usize>,
    pub(super) networks: Networks,
    pub(super) sources: Vec<Source>,
    pub(super) default: Option<usize>,
}

pub(super) fn tier(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    tiers: Option<&[Tier]>,
    keys: &Keys,
    setting: &mut sources::Setting,
    found: &mut OfTenants,
) {
    let Some(fields) = reader.object(path, tree, &TIER) else {
        return;
    };
    found.default = reader.needed(&fields, "default").and_then(|(tree, path)| tier_index(reader, &path, tree, tiers));
    if let Some((tree, path)) = fields.get("sources") {
        let wanted = "write a list of sources, such as [{header: {name: x-plan, trusted: true}}]";
        found.sources = sources::list(reader, &path, tree, setting, sources::Place::Tier, wanted).unwrap_or_default();
    }
    let listed = fields.get("tenants").and_then(|(tree, path)| {
        reader.chosen_and_told(&path, tree, "write tenant: tier, such as user.acme: gold", &|text| keys.told(text))
    });
    for (text, path, tree) in listed.into_iter().flatten() {
        let tier = tier_index(reader, &path, tree, tiers);
        of_tenant(reader, &path, text, tier, tiers.unwrap_or_default(), keys, found);
    }
}

/// Limits of single tenants: each as in `limits`, kept as a tier without a name.
pub(super) fn overrides(
    reader: &mut Reader,
    path: &Path,
    tree: &Tree,
    tiers: Option<&mut Vec<Tier>>,
    keys: &Keys,
    setting: limits::Setting,
    found: &mut OfTenants,
) {
    const WANTED: &str = "write tenant: limits, such as user.acme: 600/m or user.mallory: deny";
    let mut without = Vec::new();
    // Where the tiers could not be read, their problem is noted already.
    let tiers = tiers.unwrap_or(&mut without);
    let listed = reader.chosen_and_told(path, tree, WANTED, &|text| keys.told(text));
    for (text, path, tree) in listed.into_iter().flatten() {
        let tier = limits::tier_of(reader, &path, "", tree, setting).map(|tier| {
            tiers.push(tier);
            tiers.len().saturating_sub(1)
        });
        of_tenant(reader, &path, text, tier, tiers, keys, found);
    }
}

/// Notes that a tenant of the policy has a tier.
pub(super) fn of_tenant(
    reader: &mut Reader,
    path: &Path,
    text: &str,
    tier: Option<usize>,
    tiers: &[Tier],
    keys: &Keys,
    found: &mut OfTenants,
) {
    if keys.may_be_made_up(text) && limits::gives_more(tiers, tier, found.default) {
        let wanted = "write trusted: true at the source if something before weir sets or checks its value, or a \
                      tier that gives no more; a client that makes this value up gets what it gives";
        reader.note(path, Found::Nothing, "gives more than the default tier by a value that is not trusted", wanted);
    }
    let (Some(whose), Some(tier)) = (whose(reader, path, text, keys), tier) else {
        return;
    };
    // Limits of single tenants have no name.
    let is_override = |tier: usize| tiers.get(tier).is_some_and(|tier| tier.name.is_empty());
    let is_new = match whose {
        Whose::Tenant(tenant) => {
            let before = found.tenants.insert(tenant, tier);
            before.is_none_or(|before| is_override(before) != is_override(tier))
        }
        Whose::Network(label, network) => found.networks.insert(&label, network, is_override(tier), tier),
    };
    if !is_new {
        reader.note(path, Found::Nothing, "stands here in two spellings", "leave one of them out");
    }
}

pub(super) fn tier_index(reader: &mut Reader, path: &Path, tree: &Tree, tiers: Option<&[Tier]>) -> Option<usize> {
    let name = reader.text(path, tree, "write the name of a tier")?;
    tier_of_name(reader, path, Found::Text(name.to_owned()), name, tiers)
}

/// The index of a tier that has a name.
pub(super) fn tier_of_name(
    reader: &mut Reader,
    path: &Path,
    found: Found,
    name: &str,
    tiers: Option<&[Tier]>,
) -> Option<usize> {
    // Where the tiers could not be read, their problem is noted already.
    let tiers = tiers?;
    // Limits of single tenants have no name.
    let named = tiers.iter().filter(|tier| !tier.name.is_empty());
    let index = named.clone().position(|tier| tier.name == name);
    if index.is_none() {
        let names = named.map(|tier| tier.name.as_str());
        let wanted = "write a tier that stands under limits";
        reader.note_choices(path, found, "is no tier", wanted, names);
    }
    index
}

/// A rule without `tier` has the one tier `default`.
pub(super) fn without_tier(reader: &mut Reader, fields: &Fields, tiers: Option<&[Tier]>) -> Option<usize> {
    let tiers = tiers?;
    if let [only] = tiers
        && only.name == DEFAULT
    {
        return Some(0);
    }
    let wanted = "write tier: {default: NAME}, or limits: {default: {...}} to limit classes without tiers";
    let path = fields.path.word("limits");
    reader.note(&path, Found::Nothing, "has tiers, and the rule has no tier", wanted);
    None
}

/// Whom a key of `tenants` or `overrides` names.
pub(super) enum Whose {
    Tenant(Tenant),
    /// All whose address a source with this label reads in this network.
    Network(String, Network),
}

/// A tenant as a policy writes it: `label.value`, the value as clients send it, or its hash where it is secret.
pub(super) fn whose(reader: &mut Reader, path: &Path, text: &str, keys: &Keys) -> Option<Whose> {
    let Some((label, value)) = text.split_once('.').filter(|(_, value)| !value.is_empty()) else {
        reader.note(path, Found::Nothing, "is no tenant", "write label.value, such as user.acme");
        return None;
    };
    if label == NONE && NAME.holds(value) {
        return Some(Whose::Tenant(keys.none(value)));
    }
    let sources = keys.sources?;
    let Some(source) = sources.iter().find(|source| source.label == label) else {
        let labels = sources.iter().map(|source| source.label.as_str()).chain([NONE]);
        let wanted = "start with the label of a source of this rule";
        reader.note_choices(path, Found::Nothing, "has the label of no source", wanted, labels);
        return None;
    };
    if source.storage == Storage::Plain {
        match read_value(&source.origin, value) {
            Ok(None) => {
                return Some(Whose::Tenant(Tenant::new(label, value.as_bytes(), Storage::Plain, &keys.hash_key)));
            }
            Ok(Some(Addresses::One(address))) => {
                let address = address.to_string();
                return Some(Whose::Tenant(Tenant::new(label, address.as_bytes(), Storage::Plain, &keys.hash_key)));
            }
            Ok(Some(Addresses::Network(network))) => return Some(Whose::Network(label.to_owned(), network)),
            Err(Misspelt { wrong, wanted, right }) => {
                let choice = right.map(|right| [label, ".", &right].concat());
                reader.note_choices(path, Found::Nothing, wrong, wanted, choice.as_deref());
                return None;
            }
        }
    }
    let tenant = Tenant::from_hash(label, value);
    if tenant.is_none() {
        let wanted = "write label.~HASH: ~ and the first 32 hex digits, in lower case, of its HMAC-SHA-256";
        reader.note(path, Found::Nothing, "is no hash, and its source is secret", wanted);
    }
    tenant.map(Whose::Tenant)
}

/// Reads the value of a source as requests are compared; as addresses, where it is that.
fn read_value(origin: &Origin, value: &str) -> Result<Option<Addresses>, Misspelt> {
    let (right, wanted) = match origin {
        Origin::Constant(constant) => (constant.clone(), "write the constant as in key"),
        Origin::Host => (normal_host(value), HOST),
        Origin::ClientIp(_, ipv6_prefix) => return addresses(value, *ipv6_prefix).map(Some),
        _ => return Ok(None),
    };
    if right == value {
        return Ok(None);
    }
    let right = Some(right).filter(|right| !right.is_empty());
    Err(Misspelt { wrong: "is a tenant that no request can be", wanted: wanted.to_owned(), right })
}
