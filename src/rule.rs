//! Which limits apply to a request, by its class and its tenants' tiers.

use crate::clock::Ms;
use crate::limiter::script;
use crate::path::Malformed;
use crate::policy::{Allowance, ClassId, Limit, Mode, OnError, Policy, Rule, Terms};
use crate::request::{Class, Identity, Request, classify, identify};
use crate::tenant::{Storage, Tenant};

/// What the policy says of a request before anybody is asked for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It passes: exempt, skipped or unlimited.
    Pass,
    /// Its path is none that a class could be told from.
    Malformed,
    /// This rule refuses it: by the word `deny`, or because it names no tenant.
    Forbidden(usize),
    /// It needs tokens, of each of these.
    Ask(Vec<Ask>),
}

/// The tokens that a request needs of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose bucket: an index into the rules of the policy.
    pub rule: usize,
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
    /// What the limiter's failure means.
    pub on_error: OnError,
    /// It is counted and has no say.
    pub shadow: bool,
    /// How the request is known should it be sent again.
    pub repeat: Option<Repeat>,
}

/// A request that may be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Its name, which no Redis key can be.
    pub key: String,
    /// How long it is known.
    pub keep: Ms,
}

/// How often a shadow rule settles: it never waits, so its bucket is spent first.
const SHADOW_INTERVAL: Ms = Ms(1000);

impl Ask {
    /// Tells limits apart: what a proxy has noted under another limit is void.
    pub fn epoch(&self) -> u32 {
        let number = self.limit.requests().rotate_left(32) ^ self.limit.burst().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper half, in which all bits meet.
        u32::try_from(number.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32).unwrap_or_default()
    }

    /// On which terms tokens are held.
    pub fn terms(&self) -> Terms {
        match self.mode {
            Mode::Lease(terms) => terms,
            // What is held for a moment, until other rules have answered.
            Mode::Exact | Mode::Async { .. } | Mode::Local => Terms::default(),
        }
    }
}

/// Applies a policy to a request.
pub fn judge(policy: &Policy, request: &impl Request) -> Ruling {
    let (class, cost) = match classify(&policy.classes, request) {
        Ok(Class::Charged(class, cost)) => (class, cost),
        Ok(Class::Exempt) => return Ruling::Pass,
        Err(Malformed) => return Ruling::Malformed,
    };
    let mut asks = Vec::with_capacity(policy.rules.len());
    for (index, rule) in policy.rules.iter().enumerate() {
        match judge_by(policy, index, rule, class, cost, request) {
            One::Forbidden if !rule.shadow => return Ruling::Forbidden(index),
            One::Pass | One::Forbidden => {}
            One::Ask(ask) => asks.push(ask),
        }
    }
    if asks.is_empty() { Ruling::Pass } else { Ruling::Ask(asks) }
}

/// What one rule says of a request.
enum One {
    Pass,
    Forbidden,
    Ask(Ask),
}

fn judge_by(policy: &Policy, index: usize, rule: &Rule, class: ClassId, cost: u64, request: &impl Request) -> One {
    let tenant = match identify(rule, request) {
        Identity::Tenant(tenant) => tenant,
        Identity::Skipped => return One::Pass,
        Identity::Refused => return One::Forbidden,
    };
    let tier = rule.tenants.get(&tenant).unwrap_or(&rule.default_tier);
    let entry = rule.tiers.get(*tier).and_then(|tier| {
        let entry = tier.by_class.get(class.0)?;
        tier.entries.get(*entry)
    });
    match entry.map(|entry| (entry, entry.allowance)) {
        Some((_, Allowance::Unlimited)) => One::Pass,
        Some((entry, Allowance::Limited(limit))) => One::Ask(Ask {
            rule: index,
            key: key(policy, rule, &tenant, &entry.name, limit),
            limit,
            cost,
            mode: match rule.mode {
                Mode::Exact | Mode::Lease(_) if rule.shadow => Mode::Async { sync_interval: SHADOW_INTERVAL },
                mode => mode,
            },
            own: entry.own,
            on_error: rule.on_error,
            shadow: rule.shadow,
            repeat: repeat(policy, rule, &tenant, request),
        }),
        // A plan has an entry for each class in each tier; an error is never read as allowed.
        Some((_, Allowance::Deny)) | None => One::Forbidden,
    }
}

/// `<namespace>:{<tenant>}:<rule>:<entry>:<period_ms>:<format>`: the tenant is the hash tag of Redis Cluster. The limit
/// is not in it, so that a changed quota goes on with the level that is there.
fn key(policy: &Policy, rule: &Rule, tenant: &Tenant, entry: &str, limit: Limit) -> String {
    format!(
        "{}:{{{}}}:{}:{}:{}:{}",
        policy.namespace,
        tenant.as_str(),
        rule.name,
        entry,
        limit.period().0,
        script::TOKEN_BUCKET.format,
    )
}

fn repeat(policy: &Policy, rule: &Rule, tenant: &Tenant, request: &impl Request) -> Option<Repeat> {
    let idempotency = rule.idempotency.as_ref()?;
    let value = request.header(&idempotency.header).filter(|value| !value.is_empty())?;
    let name = Tenant::new("repeat", &value, Storage::Plain, &rule.hash_key);
    let key = format!("{} {} {} {}", policy.namespace, rule.name, tenant.as_str(), name.as_str());
    Some(Repeat { key, keep: idempotency.keep })
}
