//! Which limits apply to a request, by its class and its tenants' tiers.

use std::rc::Rc;

use crate::bucket::BucketId;
use crate::clock::Ms;
use crate::path::Malformed;
use crate::policy::{Allowance, Bounded, ClassId, Entry, Limit, Mode, OnError, Policy, Rule, Terms};
use crate::request::{Class, Identity, Reading, Request, class_of, tenant_of, tier_of};
use crate::telemetry::{Effect, Mark, Scope};
use crate::tenant::{Storage, Tenant};

/// What the policy says of a request, and which of its words say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What it says.
    pub ruling: Ruling,
    /// What is decided by that: the refusal, or the rules that let the request pass uncounted.
    pub marks: Vec<Mark>,
}

/// What the policy says of a request before anybody is asked for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It passes: exempt, skipped or unlimited.
    Pass,
    /// Its path is none that a class could be told from.
    Malformed,
    /// This rule refuses it: by the word `deny`, or because it names no tenant.
    Forbidden(usize),
    /// This rule refuses it, for it names its tenant twice.
    Doubled(usize),
    /// It needs tokens, of each of these.
    Ask(Vec<Ask>),
}

/// The tokens that a request needs of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose bucket: an index into the rules of the policy.
    pub rule: usize,
    /// The class that the request is in.
    pub class: ClassId,
    /// The tier that its tenant is in: an index into the tiers of the rule.
    pub tier: usize,
    /// Which bucket.
    pub bucket: Rc<BucketId>,
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
    /// Its name.
    pub key: String,
    /// How long it is known.
    pub keep: Ms,
}

/// How often a shadow rule settles: it never waits, so its bucket is spent first.
const SHADOW_INTERVAL: Ms = Ms(1000);

impl Ask {
    /// Tells limits apart: tiers of a rule, and versions of a policy.
    pub fn epoch(&self) -> u32 {
        let number = self.limit.requests().rotate_left(32) ^ self.limit.burst().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper half, in which all bits meet.
        u32::try_from(number.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32).unwrap_or_default()
    }

    /// Where in the policy it belongs.
    pub fn scope(&self) -> Scope {
        Scope { rule: Some(self.rule), class: Some(self.class), tier: Some(self.tier) }
    }

    /// Whether each token comes from the limiter: in other modes the proxy has its own bucket, or spends first once it knows
    /// what there is.
    pub fn asks_limiter(&self) -> bool {
        matches!(self.mode, Mode::Exact | Mode::Lease(_))
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
pub fn judge(policy: &Policy, request: &dyn Request) -> Judgement {
    let reading = Reading::new(request);
    let decided = |ruling, scope, effect| Judgement { ruling, marks: vec![Mark::new(scope, effect)] };
    let (class, cost) = match class_of(&policy.classes, &reading) {
        Ok(Class::Charged(class, cost)) => (class, cost),
        Ok(Class::Exempt(class)) => {
            return decided(Ruling::Pass, Scope { class: Some(class), ..Scope::default() }, Effect::Exempt);
        }
        Err(Malformed) => return decided(Ruling::Malformed, Scope::default(), Effect::Malformed),
    };
    let mut asks = Vec::with_capacity(policy.rules.len());
    let mut marks = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let mut scope = Scope { rule: Some(index), class: Some(class), tier: None };
        match judge_by(index, rule, &mut scope, &reading) {
            Ok(Some((tenant, entry))) => {
                if let Allowance::Limited(_) = entry.allowance {
                    ask(policy, scope, rule, tenant, entry, cost, &reading, &mut asks);
                } else {
                    marks.push(Mark::new(scope, Effect::Unlimited));
                }
            }
            Err(ruling) if !rule.shadow => {
                let effect = match ruling {
                    Ruling::Malformed => Effect::Malformed,
                    Ruling::Doubled(_) => Effect::Doubled,
                    _ => Effect::Forbidden,
                };
                return decided(ruling, scope, effect);
            }
            Err(_) => marks.push(Mark::new(scope, Effect::Shadow)),
            Ok(None) => {}
        }
    }
    Judgement { ruling: if asks.is_empty() { Ruling::Pass } else { Ruling::Ask(asks) }, marks }
}

/// The tenant that one rule sees in a request, and what it has there; None where the rule does not look at it. Notes
/// the tier, once it is known.
fn judge_by<'p>(
    index: usize,
    rule: &'p Rule,
    scope: &mut Scope,
    reading: &Reading,
) -> Result<Option<(Tenant, &'p Entry)>, Ruling> {
    let refused = |identity| match identity {
        Identity::Malformed => Ruling::Malformed,
        Identity::Doubled => Ruling::Doubled(index),
        _ => Ruling::Forbidden(index),
    };
    let tenant = match tenant_of(rule, reading) {
        Identity::Tenant(tenant) => tenant,
        Identity::Skipped => return Ok(None),
        identity => return Err(refused(identity)),
    };
    let tier = match rule.tier_of_tenant(&tenant) {
        Some(tier) => tier,
        None => tier_of(rule, reading).map_err(refused)?.unwrap_or(rule.default_tier),
    };
    scope.tier = Some(tier);
    let entry = rule.tiers.get(tier).and_then(|tier| {
        let entry = tier.by_class.get(scope.class?.0)?;
        tier.entries.get(*entry)
    });
    match entry {
        // A plan has an entry for each class in each tier; an error is never read as allowed.
        None | Some(Entry { allowance: Allowance::Deny, .. }) => Err(Ruling::Forbidden(index)),
        Some(entry) => Ok(Some((tenant, entry))),
    }
}

/// What a request needs of the buckets of an entry, one for each of its limits.
#[expect(clippy::too_many_arguments, reason = "all that a request and a policy say")]
fn ask(
    policy: &Policy,
    scope: Scope,
    rule: &Rule,
    tenant: Tenant,
    entry: &Entry,
    cost: u64,
    reading: &Reading,
    asks: &mut Vec<Ask>,
) {
    let limits = entry.allowance.bounded();
    let repeat = repeat(policy, rule, &tenant, &scope, cost, reading);
    let limiter = rule.routing.limiter_of(&tenant, scope.tier.unwrap_or_default());
    // Most entries have one limit, for which nothing is cloned.
    let tenants = std::iter::repeat_n(tenant, limits.len());
    for (number, (Bounded { kind, limit, own }, tenant)) in limits.iter().zip(tenants).enumerate() {
        asks.push(Ask {
            rule: scope.rule.unwrap_or_default(),
            class: scope.class.unwrap_or_default(),
            tier: scope.tier.unwrap_or_default(),
            bucket: Rc::new(BucketId { limiter, tenant, kind: kind.clone() }),
            limit: *limit,
            cost,
            mode: match rule.mode {
                Mode::Exact | Mode::Lease(_) if rule.shadow => Mode::Async { sync_interval: SHADOW_INTERVAL },
                mode => mode,
            },
            own: *own,
            on_error: rule.on_error,
            shadow: rule.shadow,
            repeat: repeat.clone().map(|mut repeat| {
                // Each bucket is charged for itself, so each remembers for itself.
                if number > 0 {
                    repeat.key.insert_str(0, &format!("{} {} ", limit.period().0, kind.format));
                }
                repeat
            }),
        });
    }
}

/// How a request is known should it be sent again. A client chooses the name, so the request must be the same in all that
/// it is charged for: what a cheap request has paid does not let a dear one pass. None where it is always charged.
fn repeat(
    policy: &Policy,
    rule: &Rule,
    tenant: &Tenant,
    scope: &Scope,
    cost: u64,
    reading: &Reading,
) -> Option<Repeat> {
    let idempotency = rule.idempotency.as_ref()?;
    let value = reading.header(&idempotency.header).filter(|value| !value.is_empty())?;
    let path = reading.path(policy.classes.paths).ok()?.unwrap_or_default();
    let method = reading.header(":method").unwrap_or_default();
    let [name, method] = [&*value, &*method].map(|value| Tenant::new("repeat", value, Storage::Plain, &rule.hash_key));
    let class = scope.class.unwrap_or_default().0;
    let (space, rule, tenant) = (&policy.namespace, &rule.name, tenant.as_str());
    let key = format!("{space} {rule} {tenant} {} {class} {cost} {} {path}", name.as_str(), method.as_str());
    Some(Repeat { key, keep: idempotency.keep })
}
