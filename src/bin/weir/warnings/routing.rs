//! What `limiter` of a rule says and no bucket follows.

use weir::policy::{LimiterId, Mode, Path, Policy, Routing, Rule, Tier};
use weir::tenant::{Storage, Tenant};

use super::Warnings;
use crate::document::Node;

impl Warnings<'_> {
    /// Routing of one rule that changes nothing.
    pub(super) fn routing(&mut self, rule: &Rule, policy: &Policy, rule_path: &Path) {
        let path = rule_path.word("limiter");
        if self.node_at(&path).is_none() {
            return;
        }
        if rule.mode == Mode::Local {
            let is_left_out = policy.limiters.iter().count() > 1 && self.names_no_default(&path);
            let default = if is_left_out { ", which needs a default, too" } else { "" };
            let message = "has no meaning with mode: local, which asks no limiter; it holds again with another mode";
            self.warn(&path, format!("{message}{default}"));
            return;
        }
        self.routed_tiers(rule, &path);
        self.routed_tenants(rule, policy, &path);
        if !uses_default(rule) {
            let message = match self.node_at(&rule_path.word("tier")) {
                Some(_) => {
                    "is never used: tiers sends every tier elsewhere; write the limiter of one of them here, and leave that \
                     tier out of tiers"
                }
                None => {
                    "is never used: a rule without tier has the one tier default, and tiers sends that elsewhere; write \
                     its limiter here, and leave tiers out"
                }
            };
            self.warn(&path.word("default"), message);
        }
    }

    /// Whether `limiter` of a rule is an object without `default`.
    pub(super) fn names_no_default(&self, path: &Path) -> bool {
        self.node_at(path).is_some_and(|limiter| limiter.text().is_none() && limiter.get("default").is_none())
    }

    fn routed_tiers(&mut self, rule: &Rule, path: &Path) {
        for (index, limiter) in &rule.routing.tiers {
            let Some(tier) = rule.tiers.get(*index) else { continue };
            let at = self.chosen(&path.word("tiers"), &tier.name);
            if !has_buckets(tier) {
                let message = "changes nothing: the tier has no buckets, for all of its limits are unlimited or deny; leave it out";
                self.warn(&at, message);
            } else if *limiter == rule.routing.default {
                self.warn(&at, "changes nothing: it is the default limiter; leave it out");
            }
        }
    }

    fn routed_tenants(&mut self, rule: &Rule, policy: &Policy, path: &Path) {
        let path = path.word("tenants");
        let pairs = self.node_at(&path).map(Node::pairs).unwrap_or_default().iter();
        let changes = pairs.map(|(key, _)| match tenant_of(rule, &key.text) {
            Some(tenant) => without_tenant(rule, &tenant),
            None => without_network(rule, &key.text),
        });
        let changes: Vec<Changed> = changes.collect();
        for (position, changed) in changes.into_iter().enumerate() {
            let message = match changed {
                Changed::Something => continue,
                Changed::NoBucket => {
                    "changes nothing: the tenant has no buckets, for all of its limits are unlimited or deny; leave it out"
                        .to_owned()
                }
                Changed::Nothing(limiter) => format!(
                    "changes nothing: without it the buckets are in limiter {}, too; leave it out",
                    policy.limiters.get(limiter).name
                ),
            };
            self.warn(&self.nth(&path, position), message);
        }
    }
}

/// What an entry of `limiter.tenants` changes.
enum Changed {
    Something,
    /// There are no buckets.
    NoBucket,
    /// They are in this limiter without it, too.
    Nothing(LimiterId),
}

fn without_tenant(rule: &Rule, tenant: &Tenant) -> Changed {
    let is_possible = |index: usize, tier: &Tier| match rule.tier_of_tenant(tenant) {
        Some(own) => index == own,
        None if rule.tier_sources.is_empty() => index == rule.default_tier,
        // They may say any.
        None => !tier.name.is_empty(),
    };
    let tiers = rule.tiers.iter().enumerate();
    let mut tiers = tiers.filter(|(index, tier)| is_possible(*index, tier) && has_buckets(tier)).peekable();
    if tiers.peek().is_none() {
        return Changed::NoBucket;
    }
    let mut without = rule.routing.clone();
    let Some(limiter) = without.tenants.remove(tenant) else { return Changed::Something };
    match tiers.all(|(index, _)| without.limiter_of(tenant, index) == limiter) {
        true => Changed::Nothing(limiter),
        false => Changed::Something,
    }
}

/// Who is in a network may have any tier, and be in others: it surely changes nothing where all of them are in the
/// default limiter.
fn without_network(rule: &Rule, key: &str) -> Changed {
    let Routing { default, tiers, networks, .. } = &rule.routing;
    let is_default = |limiter: usize| LimiterId(limiter) == *default;
    let is_one = key.contains('/') && tiers.iter().all(|(_, limiter)| limiter == default);
    match is_one && networks.tiers().all(is_default) {
        true => Changed::Nothing(*default),
        false => Changed::Something,
    }
}

/// The tenant that a key of `limiter.tenants` names; None where it is a network.
fn tenant_of(rule: &Rule, key: &str) -> Option<Tenant> {
    let (label, value) = key.split_once('.')?;
    let source = rule.sources.iter().find(|source| source.label == label);
    let named = |value: &str| match source.map(|source| source.storage) {
        Some(Storage::Secret) => Tenant::from_hash(label, value),
        Some(Storage::Plain) | None => Some(Tenant::new(label, value.as_bytes(), Storage::Plain, &rule.hash_key)),
    };
    // A network of a single address is that one.
    let one = value.split_once('/').and_then(|(address, _)| named(address));
    [named(value), one].into_iter().flatten().find(|tenant| rule.routing.tenants.contains_key(tenant))
}

/// Whether requests of a tier take from a bucket.
pub(super) fn has_buckets(tier: &Tier) -> bool {
    tier.entries.iter().any(|entry| entry.limits().next().is_some())
}

/// Whether a bucket may be in the default limiter by no other word than that, or there are none anyway.
pub(super) fn uses_default(rule: &Rule) -> bool {
    let Routing { default, tiers, tenants, networks } = &rule.routing;
    let is_sent_elsewhere = |index: usize| tiers.iter().any(|(tier, limiter)| *tier == index && limiter != default);
    let mut with_buckets = rule.tiers.iter().enumerate().filter(|(_, tier)| has_buckets(tier)).peekable();
    // Whose tier has no name has overrides, and only their own entry sends them elsewhere.
    let is_override = |index: usize| rule.tiers.get(index).is_some_and(|tier| tier.name.is_empty());
    let names_all_with = |index: usize| {
        let mut of = rule.tenants.iter().filter(|(_, tier)| **tier == index).map(|(tenant, _)| tenant);
        let is_sent = |tenant: &Tenant| tenants.contains_key(tenant) || networks.find(tenant).is_some();
        of.all(is_sent) && !rule.networks.tiers().any(|tier| tier == index)
    };
    with_buckets.peek().is_none()
        || with_buckets.any(|(index, _)| match is_override(index) {
            true => !names_all_with(index),
            false => !is_sent_elsewhere(index),
        })
}
