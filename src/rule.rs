//! Which limit applies to a request, by its class and its tenant's tier.

use crate::limiter::script;
use crate::path::Malformed;
use crate::policy::{Allowance, Limit, Mode, Policy};
use crate::request::{Class, Identity, Request, classify, identify};
use crate::tenant::Tenant;

/// What the policy says of a request before anybody is asked for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It passes: exempt, skipped or unlimited.
    Pass,
    /// Its path is none that a class could be told from.
    Malformed,
    /// It is refused: by the word `deny`, or because it names no tenant.
    Forbidden,
    /// It needs tokens.
    Ask(Ask),
}

/// The tokens that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The Redis key of the bucket.
    pub key: String,
    /// The bucket's limit.
    pub limit: Limit,
    /// How many tokens; at most the limit's burst.
    pub cost: u64,
    /// Where the tokens are.
    pub mode: Mode,
    /// The share of this proxy, where the rule needs one.
    pub own: Option<Limit>,
}

impl Ask {
    /// Tells limits apart: what a proxy has noted under another limit is void.
    pub fn epoch(&self) -> u32 {
        let number = self.limit.requests().rotate_left(32) ^ self.limit.burst().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper half, in which all bits meet.
        u32::try_from(number.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32).unwrap_or_default()
    }
}

/// Applies a policy to a request.
pub fn judge(policy: &Policy, request: &impl Request) -> Ruling {
    let (class, cost) = match classify(&policy.classes, request) {
        Ok(Class::Charged(class, cost)) => (class, cost),
        Ok(Class::Exempt) => return Ruling::Pass,
        Err(Malformed) => return Ruling::Malformed,
    };
    let rule = &policy.rule;
    let tenant = match identify(rule, request) {
        Identity::Tenant(tenant) => tenant,
        Identity::Skipped => return Ruling::Pass,
        Identity::Refused => return Ruling::Forbidden,
    };
    let tier = rule.tenants.get(&tenant).unwrap_or(&rule.default_tier);
    let entry = rule.tiers.get(*tier).and_then(|tier| {
        let entry = tier.by_class.get(class.0)?;
        tier.entries.get(*entry)
    });
    match entry.map(|entry| (entry, entry.allowance)) {
        Some((_, Allowance::Unlimited)) => Ruling::Pass,
        Some((entry, Allowance::Limited(limit))) => Ruling::Ask(Ask {
            key: key(policy, &tenant, &entry.name, limit),
            limit,
            cost,
            mode: rule.mode,
            own: entry.own,
        }),
        // A plan has an entry for each class in each tier; an error is never read as allowed.
        Some((_, Allowance::Deny)) | None => Ruling::Forbidden,
    }
}

/// `<namespace>:{<tenant>}:<rule>:<entry>:<period_ms>:<format>`: the tenant is the hash tag of Redis Cluster. The limit
/// is not in it, so that a changed quota goes on with the level that is there.
fn key(policy: &Policy, tenant: &Tenant, entry: &str, limit: Limit) -> String {
    format!(
        "{}:{{{}}}:{}:{}:{}:{}",
        policy.namespace,
        tenant.as_str(),
        policy.rule.name,
        entry,
        limit.period().0,
        script::TOKEN_BUCKET.format,
    )
}
