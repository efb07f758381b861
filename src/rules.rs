//! Which limits apply to a request, by its class and its tenants' tiers.

use std::rc::Rc;

use crate::bucket::BucketId;
use crate::clock::Ms;
use crate::path::Malformed;
use crate::policy::{Allowance, Bounded, ClassId, Entry, Limit, Mode, OnError, Policy, Rule, Terms};
use crate::request::{Class, Reading, Refused, Request, class_of, tenant_of, tier_of};
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
    /// It is refused, by this rule or before all rules.
    Refuse(Refused, Option<usize>),
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
        Err(Malformed) => {
            return decided(Ruling::Refuse(Refused::Malformed, None), Scope::default(), Effect::Malformed);
        }
    };
    let mut asks = Vec::with_capacity(policy.rules.len());
    let mut marks = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let mut applied = Applied { policy, reading: &reading, index, rule, class, tier: None };
        match applied.tenant_and_entry() {
            Ok(None) => {}
            Ok(Some((tenant, entry))) => match &entry.allowance {
                Allowance::Limited(limits) => applied.ask(tenant, limits, cost, &mut asks),
                _ => marks.push(Mark::new(applied.scope(), Effect::Unlimited)),
            },
            Err(_) if rule.shadow => marks.push(Mark::new(applied.scope(), Effect::Shadow)),
            Err(refused) => {
                let rule = (refused != Refused::Malformed).then_some(index);
                return decided(Ruling::Refuse(refused, rule), applied.scope(), refused.into());
            }
        }
    }
    Judgement { ruling: if asks.is_empty() { Ruling::Pass } else { Ruling::Ask(asks) }, marks }
}

/// One rule, applied to a request of this class.
struct Applied<'a, 'p> {
    policy: &'p Policy,
    reading: &'a Reading<'p>,
    index: usize,
    rule: &'p Rule,
    class: ClassId,
    /// Once it is known.
    tier: Option<usize>,
}

impl<'p> Applied<'_, 'p> {
    fn scope(&self) -> Scope {
        Scope { rule: Some(self.index), class: Some(self.class), tier: self.tier }
    }

    /// The tenant that the rule sees, and what it has there; None where the rule does not look at the request.
    fn tenant_and_entry(&mut self) -> Result<Option<(Tenant, &'p Entry)>, Refused> {
        let (rule, reading) = (self.rule, self.reading);
        let Some(tenant) = tenant_of(rule, reading)? else {
            return Ok(None);
        };
        let tier = match rule.tier_of_tenant(&tenant) {
            Some(tier) => tier,
            None => tier_of(rule, reading)?.unwrap_or(rule.default_tier),
        };
        self.tier = Some(tier);
        let entry = rule.tiers.get(tier).and_then(|tier| tier.entries.get(*tier.by_class.get(self.class.0)?));
        match entry {
            // A plan has an entry for each class in each tier; an error is never read as allowed.
            None | Some(Entry { allowance: Allowance::Deny, .. }) => Err(Refused::Forbidden),
            Some(entry) => Ok(Some((tenant, entry))),
        }
    }

    /// What the request needs of the buckets of an entry, one for each of its limits.
    fn ask(&self, tenant: Tenant, limits: &[Bounded], cost: u64, asks: &mut Vec<Ask>) {
        let Applied { rule, index, class, .. } = *self;
        let tier = self.tier.unwrap_or_default();
        let repeat = self.repeat(&tenant, cost);
        let limiter = rule.routing.limiter_of(&tenant, tier);
        // Most entries have one limit, for which nothing is cloned.
        let tenants = std::iter::repeat_n(tenant, limits.len());
        for (number, (Bounded { kind, limit, own }, tenant)) in limits.iter().zip(tenants).enumerate() {
            asks.push(Ask {
                rule: index,
                class,
                tier,
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

    /// How the request is known should it be sent again. A client chooses the name, so the request must be the same in all
    /// that it is charged for: what a cheap request has paid does not let a dear one pass. None where it is always charged.
    fn repeat(&self, tenant: &Tenant, cost: u64) -> Option<Repeat> {
        let Applied { policy, reading, rule, class: ClassId(class), .. } = *self;
        let idempotency = rule.idempotency.as_ref()?;
        let value = reading.header(&idempotency.header).filter(|value| !value.is_empty())?;
        let path = reading.path(policy.classes.paths).ok()?.unwrap_or_default();
        let method = reading.header(":method").unwrap_or_default();
        let [name, method] =
            [&*value, &*method].map(|value| Tenant::new("repeat", value, Storage::Plain, &rule.hash_key));
        let (space, name_of_rule, tenant) = (&policy.namespace, &rule.name, tenant.as_str());
        let key =
            format!("{space} {name_of_rule} {tenant} {} {class} {cost} {} {path}", name.as_str(), method.as_str());
        Some(Repeat { key, keep: idempotency.keep })
    }
}
