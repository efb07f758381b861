//! Tiers that nobody is in, and tenants that are listed for nothing.

use weir::policy::{Entry, Path, Rule, Tier};

use super::Warnings;
use crate::document::Node;

impl Warnings<'_> {
    pub(super) fn tiers(&mut self, rule: &Rule, path: &Path) {
        if !rule.tier_sources.is_empty() {
            return;
        }
        for (index, tier) in rule.tiers.iter().enumerate().filter(|(_, tier)| !tier.name.is_empty()) {
            let mut used = rule.tenants.values().copied().chain(rule.networks.tiers());
            let is_used = index == rule.default_tier || used.any(|used| used == index);
            if !is_used {
                let at = self.tier_path(path, tier);
                let wanted = "is a tier that nobody can be in: it is not the default, tier.tenants names nobody for it, \
                              and tier has no sources; add one of them, or leave it out";
                self.warn(&at, wanted);
            }
        }
    }

    /// Entries of tenants that change nothing.
    pub(super) fn tenants(&mut self, rule: &Rule, path: &Path) {
        let (tenants, overrides) = (path.word("tier").word("tenants"), path.word("overrides"));
        let keys = |found: &Warnings, path: &Path| -> Vec<String> {
            let pairs = found.node_at(path).map(Node::pairs).unwrap_or_default();
            pairs.iter().map(|(key, _)| key.text.clone()).collect()
        };
        let (listed, overridden) = (keys(self, &tenants), keys(self, &overrides));
        for tenant in listed.iter().filter(|tenant| overridden.contains(tenant)) {
            let at = self.chosen(&tenants, tenant);
            self.warn(&at, "changes nothing: the tenant has an override, which wins; leave one of them out");
        }
        // What is the default elsewhere is an exception from a network.
        if !rule.tier_sources.is_empty() || !rule.networks.is_empty() {
            return;
        }
        let default = rule.tiers.get(rule.default_tier);
        for tenant in listed.iter().filter(|tenant| !overridden.contains(tenant)) {
            let at = self.chosen(&tenants, tenant);
            let tier = self.node_at(&at).and_then(Node::text);
            if tier.is_some() && tier == default.map(|tier| tier.name.as_str()) {
                self.warn(&at, "changes nothing: it is the default tier; leave it out");
            }
        }
        let named = rule.tiers.iter().filter(|tier| !tier.name.is_empty()).count();
        for (position, tenant) in overridden.iter().enumerate().filter(|(_, tenant)| !listed.contains(tenant)) {
            let own = rule.tiers.get(named.saturating_add(position));
            if let (Some(own), Some(default)) = (own, default)
                && is_same(own, default)
            {
                let at = self.nth(&overrides, position);
                self.warn(&at, format!("changes nothing: {tenant} has these limits by the default tier; leave it out"));
            }
        }
    }
}

/// Whether two tiers give the same to every class from the same kind of buckets.
fn is_same(one: &Tier, other: &Tier) -> bool {
    let entries = |tier: &Tier| -> Vec<Option<Entry>> {
        tier.by_class.iter().map(|entry| tier.entries.get(*entry).cloned()).collect()
    };
    entries(one) == entries(other)
}
