//! Which limiter has the buckets that a tenant has by a rule, and why.

use super::Asking;
use crate::policy::{Allowance, ClassId, LimiterId, Mode, Rule};
use crate::tenant::{Storage, Tenant};

/// Which limiter has a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimiterSeen {
    /// This one.
    Known {
        /// Its name.
        name: String,
        /// Why it is that one.
        because: LimiterBecause,
    },
    /// One of these, by their names: the rule sends hashes to different ones, and nobody has told the key of the hash.
    Unknown(Vec<String>),
}

/// Why a bucket is in its limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterBecause {
    /// `limiter.tenants` names the tenant.
    Tenant {
        /// Not itself, but a network that its address is in.
        by_network: bool,
    },
    /// `limiter.tiers` names its tier.
    Tier,
    /// Nothing says another one.
    Default,
    /// All buckets of the rule are there.
    Only,
}

impl Asking<'_> {
    /// None where no limiter has it, or where there is one alone.
    pub(super) fn limiter(self, rule: &Rule, tenant: &Tenant, tier: usize, class: ClassId) -> Option<LimiterSeen> {
        let limiters = &self.policy.limiters;
        if rule.mode == Mode::Local || limiters.iter().count() < 2 {
            return None;
        }
        let name = |limiter: &LimiterId| limiters.get(*limiter).name.clone();
        let found = rule.routing.limiter_of(tenant, tier);
        let mut among = vec![found];
        for hash in self.may_be(rule, tenant) {
            let tier = rule.tier_of_tenant(hash).unwrap_or(tier);
            among.extend(takes(rule, tier, class).then(|| rule.routing.limiter_of(hash, tier)));
        }
        among.sort();
        among.dedup();
        Some(match among.as_slice() {
            [only] => LimiterSeen::Known { name: name(only), because: because(rule, tenant, tier) },
            several => LimiterSeen::Unknown(several.iter().map(name).collect()),
        })
    }

    /// The hashes that the rule names and that may be this tenant's: the tenant has one by a key that nobody has told.
    fn may_be<'r>(self, rule: &'r Rule, tenant: &Tenant) -> impl Iterator<Item = &'r Tenant> {
        let label = tenant.as_str().split_once('.').map(|(label, _)| label);
        let source = rule.sources.iter().find(|source| Some(source.label.as_str()) == label);
        let is_unknown = self.subject.unknown_hash_key.is_some();
        let hashed = source.filter(|source| is_unknown && source.storage == Storage::Secret);
        let start = hashed.map(|source| [&source.label, ".~"].concat());
        let named = rule.routing.tenants.keys().chain(rule.tenants.keys());
        named.filter(move |named| start.as_ref().is_some_and(|start| named.as_str().starts_with(start)))
    }
}

/// Whether requests of a tier and a class take from buckets.
fn takes(rule: &Rule, tier: usize, class: ClassId) -> bool {
    let entry = rule.tiers.get(tier).and_then(|tier| tier.entries.get(*tier.by_class.get(class.0)?));
    entry.is_some_and(|entry| matches!(entry.allowance, Allowance::Limited(_)))
}

fn because(rule: &Rule, tenant: &Tenant, tier: usize) -> LimiterBecause {
    let routing = &rule.routing;
    if routing.tenants.contains_key(tenant) {
        LimiterBecause::Tenant { by_network: false }
    } else if routing.networks.find(tenant).is_some() {
        LimiterBecause::Tenant { by_network: true }
    } else if routing.tiers.iter().any(|(of, _)| *of == tier) {
        LimiterBecause::Tier
    } else if routing.limiters().count() == 1 {
        LimiterBecause::Only
    } else {
        LimiterBecause::Default
    }
}
