//! Which limiter a bucket is in: what a rule says of it.

use std::collections::HashMap;

use super::language::ROUTING;
use super::networks::Networks;
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tenants::{Keys, Whose, tier_of_name, whose};
use super::tree::Tree;
use super::{Limiter, Tier};
use crate::tenant::Tenant;

/// A limiter of a policy: an index into its [`Limiters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimiterId(pub usize);

/// The limiters of a policy, one at least, in the order of their names.
#[derive(Clone, Debug)]
pub struct Limiters {
    first: Limiter,
    others: Vec<Limiter>,
}

impl Limiters {
    /// One limiter, and those that a policy has beside it.
    pub fn new(first: Limiter, others: Vec<Limiter>) -> Limiters {
        Limiters { first, others }
    }

    /// The one that a policy with only one has.
    pub fn first(&self) -> &Limiter {
        &self.first
    }

    /// The limiter of this id; every id of a policy has one.
    pub fn get(&self, id: LimiterId) -> &Limiter {
        let other = id.0.checked_sub(1).and_then(|at| self.others.get(at));
        other.unwrap_or(&self.first)
    }

    /// All of them, each with its id.
    pub fn iter(&self) -> impl Iterator<Item = (LimiterId, &Limiter)> {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.enumerate().map(|(at, limiter)| (LimiterId(at), limiter))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Limiter> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// Which limiter the buckets of a rule are in: by tenant, or else by tier, or else the default one.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// Where all other buckets are.
    pub default: LimiterId,
    /// Indices into the tiers of the rule, each with its limiter.
    pub tiers: Vec<(usize, LimiterId)>,
    /// Tenants with a limiter of their own.
    pub tenants: HashMap<Tenant, LimiterId>,
    /// Networks with one: for each address in them.
    pub networks: Networks,
}

impl Routing {
    /// The limiter of a tenant that is in this tier.
    pub fn limiter_of(&self, tenant: &Tenant, tier: usize) -> LimiterId {
        let by_tier = || self.tiers.iter().find(|(of, _)| *of == tier).map(|(_, limiter)| *limiter);
        // Most rules name no tenant here, and hashing one costs as much as all the rest.
        let own = if self.tenants.is_empty() { None } else { self.tenants.get(tenant).copied() };
        let by_network = || if self.networks.is_empty() { None } else { self.networks.find(tenant).map(LimiterId) };
        own.or_else(by_network).or_else(by_tier).unwrap_or(self.default)
    }

    /// Every limiter that it names.
    pub fn limiters(&self) -> impl Iterator<Item = LimiterId> + '_ {
        let of_tiers = self.tiers.iter().map(|(_, limiter)| *limiter);
        let of_tenants = self.tenants.values().copied().chain(self.networks.tiers().map(LimiterId));
        std::iter::once(self.default).chain(of_tiers).chain(of_tenants)
    }
}

/// The names of all limiters, each at the place of its [`LimiterId`]; told before the limiters are read, so that rules
/// may name those that are not valid.
pub(super) fn names(fields: &Fields) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Some((Tree::Map(pairs), _)) = fields.get("limiters") {
        for (name, _) in pairs {
            let at = names.partition_point(|other| other < name);
            if names.get(at) != Some(name) {
                names.insert(at, name.clone());
            }
        }
    }
    names
}

/// `limiter`: a name, or names by tier and tenant.
pub(super) fn read(
    reader: &mut Reader,
    fields: &Fields,
    names: &[String],
    tiers: Option<&[Tier]>,
    keys: &Keys,
    asks_nobody: bool,
) -> Option<Routing> {
    let mut routing = Routing::default();
    let Some((tree, path)) = fields.get("limiter") else {
        if names.len() > 1 && !asks_nobody {
            missing(reader, &fields.path.word("limiter"), names);
        }
        return Some(routing);
    };
    if let Tree::Text(_) = tree {
        routing.default = limiter(reader, &path, tree, names)?;
        return Some(routing);
    }
    if !matches!(tree, Tree::Map(_)) {
        const WANTED: &str =
            "write the name of a limiter, or {default: NAME, tiers: {gold: NAME}, tenants: {user.acme: NAME}}";
        reader.wrong_kind(&path, tree, WANTED);
        return None;
    }
    let fields = reader.object(&path, tree, &ROUTING)?;
    match fields.get("default") {
        Some((tree, path)) => routing.default = limiter(reader, &path, tree, names).unwrap_or_default(),
        // It is needed on the day when the mode is another one.
        None if names.len() > 1 && !asks_nobody => missing(reader, &path.word("default"), names),
        None => {}
    }
    let listed = fields
        .get("tiers")
        .and_then(|(tree, path)| reader.chosen(&path, tree, "write tier: limiter, such as gold: big"));
    for (name, path, tree) in listed.into_iter().flatten() {
        let tier = tier_of_name(reader, &path, Found::Nothing, name, tiers);
        let limiter = limiter(reader, &path, tree, names);
        routing.tiers.extend(tier.zip(limiter));
    }
    if let Some((tree, path)) = fields.get("tenants") {
        of_tenants(reader, &path, tree, names, keys, &mut routing);
    }
    Some(routing)
}

fn of_tenants(reader: &mut Reader, path: &Path, tree: &Tree, names: &[String], keys: &Keys, routing: &mut Routing) {
    const WANTED: &str = "write tenant: limiter, such as user.whale: own";
    let listed = reader.chosen_and_told(path, tree, WANTED, &|text| keys.told(text));
    for (text, path, tree) in listed.into_iter().flatten() {
        let limiter = limiter(reader, &path, tree, names);
        let (Some(whose), Some(limiter)) = (whose(reader, &path, text, keys), limiter) else {
            continue;
        };
        let is_new = match whose {
            Whose::Tenant(tenant) => routing.tenants.insert(tenant, limiter).is_none(),
            Whose::Network(label, network) => routing.networks.insert(&label, network, false, limiter.0),
        };
        if !is_new {
            reader.note(&path, Found::Nothing, "stands here in two spellings", "leave one of them out");
        }
    }
}

fn limiter(reader: &mut Reader, path: &Path, tree: &Tree, names: &[String]) -> Option<LimiterId> {
    let name = reader.text(path, tree, "write the name of a limiter")?;
    let place = names.iter().position(|known| known == name);
    // Where there are none, that is noted already, once.
    if place.is_none() && !names.is_empty() {
        let wanted = "write a name that stands under limiters";
        reader.note_choices(
            path,
            Found::Text(name.to_owned()),
            "is no limiter",
            wanted,
            names.iter().map(String::as_str),
        );
    }
    place.map(LimiterId)
}

fn missing(reader: &mut Reader, path: &Path, names: &[String]) {
    let wanted = "there are several limiters: write the name of the one that has the buckets";
    reader.note_choices(path, Found::Nothing, "is missing", wanted, names.iter().map(String::as_str));
}
