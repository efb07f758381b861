//! Which requests nobody counts by what clients cannot make up.
//!
//! A value that clients make up gives a fresh bucket for each invention, so a source that is not trusted needs another rule
//! that counts every client, whatever it sends, and can refuse it.

use super::{Allowance, ClassId, Classes, Missing, Origin, Rule, Source, Tier};
use crate::tenant::Tenant;

/// What is known of a rule, which may have problems.
pub(super) struct Known {
    /// Where it is not whole, what has nothing to do with whose requests it limits may be made up.
    pub(super) rule: Option<Rule>,
    pub(super) is_whole: bool,
    /// Something is wrong with whom it limits and how, and once that is mended it may limit every client: it is believed
    /// to, for its own problem is told, and the other rule's might be none.
    pub(super) may_limit_all: bool,
}

impl Known {
    /// Whether this is so of the rule, or may be.
    fn may(&self, so: impl FnOnce(&Rule) -> bool) -> bool {
        self.may_limit_all || self.rule.as_ref().is_some_and(so)
    }
}

/// The classes that a rule limits and that no other rule limits for all clients together.
pub(super) fn classes<'c>(rules: &[Known], index: usize, classes: &'c Classes) -> Vec<&'c str> {
    let is_limit = |allowance: Option<&Allowance>| matches!(allowance, Some(Allowance::Limited(_)));
    let own = rules.get(index).and_then(|known| known.rule.as_ref());
    let others = || rules.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, known)| known);
    let limits_any = |tier: &Tier| tier.entries.iter().any(|entry| is_limit(Some(&entry.allowance)));
    if own.is_some_and(|rule| !rule.tiers.iter().any(limits_any)) {
        // It only lets pass and refuses. Who makes up its values is refused by nobody, unless another rule counts them.
        let is_counted = others().any(|known| known.may(|rule| looks_at_all(Some(&rule.sources), Some(rule.shadow))));
        return if is_counted { Vec::new() } else { classes.names.iter().map(String::as_str).collect() };
    }
    let is_exempt = |class: usize| {
        let mut matches = classes.matches.iter().filter(|class_match| class_match.class == ClassId(class)).peekable();
        matches.peek().is_some() && matches.all(|class_match| class_match.exempt)
    };
    let is_limited =
        |class: usize| own.is_none_or(|rule| rule.tiers.iter().any(|tier| is_limit(allowance(tier, class))));
    let is_limited_for_all = |class: usize| others().any(|known| known.may(|rule| limits_all(rule, class)));
    let names = classes.names.iter().enumerate();
    let open = names.filter(|(class, _)| is_limited(*class) && !is_exempt(*class) && !is_limited_for_all(*class));
    open.map(|(_, name)| name.as_str()).collect()
}

/// Whether a rule looks at every client, whatever it sends, and can refuse it; or may, as far as it could be read.
pub(super) fn looks_at_all(sources: Option<&[Source]>, shadow: Option<bool>) -> bool {
    let of_all = |source: &Source| matches!(source.origin, Origin::Constant(_) | Origin::ClientIp(..));
    shadow != Some(true) && sources.is_none_or(|sources| sources.first().is_some_and(of_all))
}

fn allowance(tier: &Tier, class: usize) -> Option<&Allowance> {
    tier.entries.get(*tier.by_class.get(class)?).map(|entry| &entry.allowance)
}

/// Whether a rule limits a class for every client, whatever it sends.
fn limits_all(rule: &Rule, class: usize) -> bool {
    if rule.shadow {
        return false;
    }
    let tenant = match rule.sources.first() {
        Some(Source { label, origin: Origin::Constant(value), storage, .. }) => {
            Some(Tenant::new(label, value.as_bytes(), *storage, &rule.hash_key))
        }
        // Where it yields nothing, the next source names the tenant, or nobody does.
        Some(Source { origin: Origin::ClientIp(..), .. })
            if rule.missing != Missing::Skip && rule.sources.iter().all(|source| source.trusted) =>
        {
            None
        }
        _ => return false,
    };
    let is_limited = |tier: &Tier| allowance(tier, class) != Some(&Allowance::Unlimited);
    let is_limited_at = |tier: usize| rule.tiers.get(tier).is_some_and(is_limited);
    if !rule.networks.tiers_of_all().all(is_limited_at) {
        return false;
    }
    match tenant.and_then(|tenant| rule.tier_of_tenant(&tenant)) {
        Some(tier) => is_limited_at(tier),
        None if rule.tier_sources.is_empty() => is_limited_at(rule.default_tier),
        None => rule.tiers.iter().filter(|tier| !tier.name.is_empty()).all(is_limited),
    }
}
