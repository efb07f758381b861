//! What one rule makes of a request: whose it is, by which tier, and from which buckets it takes.

use super::{Asking, LimiterSeen};
use crate::clock::Ms;
use crate::limiter::{Failure, transport_of};
use crate::policy::{Allowance, ClassId, Limit, Mode, OnError, Origin, Policy, Rule};
use crate::request::{Refused, Request, identify, value_of};
use crate::response::{Answer, Outcome, answer};
use crate::rules::{Ask, Ruling, judge};
use crate::tenant::Tenant;

/// What one rule makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSeen {
    /// Its index among the rules of the policy.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Where its tokens are.
    pub mode: Mode,
    /// It counts, and refuses nothing.
    pub is_shadow: bool,
    /// Clients are told how its buckets stand.
    pub tells_clients: bool,
    /// What names the tenant.
    pub source: SourceSeen,
    /// Whose the request is; None where it is nobody's.
    pub tenant: Option<String>,
    /// The tenant's tier.
    pub tier: Option<TierSeen>,
    /// The entry of the tier's limits.
    pub entry: Option<String>,
    /// What comes of it.
    pub result: RuleResult,
}

/// What names the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSeen {
    /// This source of `key`, the first that yields a value.
    Key {
        /// Its index.
        index: usize,
        /// What it is read from.
        origin: Origin,
    },
    /// No source yields a value, and `missing` names the tenant.
    Missing,
    /// Nothing.
    Nothing,
}

/// A tenant's tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSeen {
    /// Its name; None where the tenant has limits of its own.
    pub name: Option<String>,
    /// Why it is that one.
    pub because: TierBecause,
}

/// Why a tenant is in its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierBecause {
    /// It is named there.
    Named {
        /// By `overrides`, or else by `tier.tenants`.
        by_overrides: bool,
        /// Not itself, but a network that its address is in.
        by_network: bool,
    },
    /// This source of `tier.sources` is the first that yields a value.
    Source {
        /// Its index.
        index: usize,
        /// What it is read from.
        origin: Origin,
        /// The value names a tier; else it is the default one.
        is_tier: bool,
    },
    /// There is no other.
    Only,
    /// Nothing says another one.
    Default,
}

/// What comes of a request by one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// It takes tokens of these buckets.
    Takes {
        /// One for each limit.
        buckets: Vec<BucketSeen>,
        /// What the failure of the limiter means.
        on_failure: OnFailure,
        /// How a repeated request is known.
        repeat: Option<RepeatSeen>,
    },
    /// It passes: its limit is unlimited.
    Unlimited,
    /// The rule does not look at it: nothing names a tenant, and `missing` is `skip`.
    Skipped,
    /// It is refused: nothing names a tenant, and `missing` is `deny`.
    Nobody,
    /// It is refused: what names the tenant stands in the path, which is malformed.
    MalformedTenant,
    /// It is refused: what names the tenant is sent twice.
    DoubledTenant,
    /// It is refused: what names the tier stands in the path, which is malformed.
    MalformedPath,
    /// It is refused: what names the tier is sent twice.
    DoubledTier,
    /// It is refused: its limit is `deny`.
    Denied,
    /// It would be refused, by a shadow, which has no say.
    ShadowRefuses,
}

/// A bucket that a request takes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSeen {
    /// Its name where the tokens are.
    pub key: String,
    /// The limiter that has it, where there are several.
    pub limiter: Option<LimiterSeen>,
    /// It is nowhere but in the proxy.
    pub is_local: bool,
    /// Its limit.
    pub limit: Limit,
    /// The share of one proxy, where that may decide.
    pub own: Option<Limit>,
    /// How long after multiples of the period its windows begin, where the limiter has it and they are spread.
    pub offset: Option<Ms>,
}

/// What the failure of the limiter means for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing: nobody is asked.
    NotAsked,
    /// Nothing: a shadow has no say.
    Shadow,
    /// It passes uncounted.
    Allow,
    /// The proxy's own bucket decides.
    Local,
    /// It is refused.
    Deny {
        /// HTTP status.
        status: u16,
        /// When to come again, in seconds.
        retry_after: Option<String>,
    },
}

/// How a repeated request is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatSeen {
    /// The header that names it.
    pub header: String,
    /// How long it is known.
    pub keep: Ms,
    /// Whether this request has the header.
    pub is_sent: bool,
}

impl Asking<'_> {
    pub(super) fn rule(self, index: usize, rule: &Rule, class: ClassId) -> RuleSeen {
        let identity = identify(rule, self.request);
        let mut seen = RuleSeen {
            index,
            name: rule.name.clone(),
            mode: rule.mode,
            is_shadow: rule.shadow,
            tells_clients: rule.headers,
            source: self.source(rule, &identity),
            tenant: None,
            tier: None,
            entry: None,
            result: RuleResult::Unlimited,
        };
        let tenant = match &identity {
            Ok(Some(tenant)) => tenant,
            nobody => return RuleSeen { result: without_tenant(nobody), ..seen },
        };
        seen.tenant = Some(self.masked(tenant.as_str()));
        let (tier, because) = self.tier(rule, tenant);
        let found = rule.tiers.get(tier);
        let name = found.map(|tier| tier.name.clone()).filter(|name| !name.is_empty());
        seen.tier = Some(TierSeen { name, because });
        let entry = found.and_then(|tier| tier.entries.get(*tier.by_class.get(class.0)?));
        seen.entry = entry.map(|entry| entry.name.clone());
        // Alone: an earlier rule that refuses the request would hide this one.
        let limiter = self.limiter(rule, tenant, tier, class);
        let alone = Policy { rules: vec![rule.clone()], ..self.policy.clone() };
        seen.result = match (judge(&alone, self.request).ruling, entry.map(|entry| &entry.allowance)) {
            (Ruling::Ask(asks), _) => RuleResult::Takes {
                buckets: asks.iter().map(|ask| self.bucket(ask, limiter.clone())).collect(),
                on_failure: self.on_failure(index, rule),
                repeat: self.repeat(rule),
            },
            (Ruling::Pass, Some(Allowance::Unlimited)) => RuleResult::Unlimited,
            (Ruling::Pass, _) => RuleResult::ShadowRefuses,
            (Ruling::Refuse(Refused::Malformed, _), _) => RuleResult::MalformedPath,
            (Ruling::Refuse(Refused::Doubled, _), _) => RuleResult::DoubledTier,
            (Ruling::Refuse(Refused::Forbidden, _), _) => RuleResult::Denied,
        };
        seen
    }

    /// Which source names the tenant, or refuses the request.
    fn source(self, rule: &Rule, identity: &Identity) -> SourceSeen {
        let mut sources = rule.sources.iter().enumerate();
        match sources.find(|(_, source)| value_of(source, self.request) != Ok(None)) {
            Some((index, source)) => SourceSeen::Key { index, origin: source.origin.clone() },
            None if matches!(identity, Ok(Some(_))) => SourceSeen::Missing,
            None => SourceSeen::Nothing,
        }
    }

    /// Index of the tier and why it is that one.
    fn tier(self, rule: &Rule, tenant: &Tenant) -> (usize, TierBecause) {
        if let Some(tier) = rule.tier_of_tenant(tenant) {
            let because = TierBecause::Named {
                by_overrides: rule.tiers.get(tier).is_none_or(|tier| tier.name.is_empty()),
                // It may stand there itself, too, under what does not win.
                by_network: rule.tenants.get(tenant) != Some(&tier),
            };
            return (tier, because);
        }
        for (index, source) in rule.tier_sources.iter().enumerate() {
            // One that refuses the request is told as the rule's result.
            let Ok(Some(value)) = value_of(source, self.request) else {
                continue;
            };
            let found = rule.tiers.iter().position(|tier| tier.name.as_bytes() == value);
            let because = TierBecause::Source { index, origin: source.origin.clone(), is_tier: found.is_some() };
            return (found.unwrap_or(rule.default_tier), because);
        }
        let is_only = rule.tiers.iter().filter(|tier| !tier.name.is_empty()).count() < 2;
        (rule.default_tier, if is_only { TierBecause::Only } else { TierBecause::Default })
    }

    fn bucket(self, ask: &Ask, limiter: Option<LimiterSeen>) -> BucketSeen {
        let own = ask.own.filter(|_| ask.mode == Mode::Local || ask.on_error == OnError::Local);
        let in_limiter = self.policy.limiters.get(ask.bucket.limiter);
        let is_local = ask.mode == Mode::Local;
        let key = transport_of(in_limiter).name_of(self.policy, &ask.bucket);
        let offset = ask.limit.window_offset(&key).filter(|offset| *offset > Ms(0) && !is_local);
        BucketSeen { key: self.masked(&key), limiter, is_local, limit: ask.limit, own, offset }
    }

    fn on_failure(self, index: usize, rule: &Rule) -> OnFailure {
        match (rule.mode, rule.on_error, rule.shadow) {
            (Mode::Local, ..) => OnFailure::NotAsked,
            (.., true) => OnFailure::Shadow,
            (_, OnError::Allow, _) => OnFailure::Allow,
            (_, OnError::Local, _) => OnFailure::Local,
            (_, OnError::Deny, _) => match answer(
                self.policy,
                &Outcome::Failed { rule: index, limiter: rule.routing.default, failure: Failure::Timeout },
                Ms(0),
                0,
            ) {
                Answer::Refuse(refusal) => {
                    let mut headers = refusal.headers.into_iter();
                    let retry_after = headers.find(|(name, _)| *name == "retry-after").map(|(_, wait)| wait);
                    OnFailure::Deny { status: refusal.status, retry_after }
                }
                Answer::Pass(_) => OnFailure::Allow,
            },
        }
    }

    fn repeat(self, rule: &Rule) -> Option<RepeatSeen> {
        let idempotency = rule.idempotency.as_ref()?;
        let is_sent = self.request.header(&idempotency.header).is_some_and(|value| !value.is_empty());
        Some(RepeatSeen { header: idempotency.header.clone(), keep: idempotency.keep, is_sent })
    }
}

/// Whose request it is, as the rule sees it.
type Identity = Result<Option<Tenant>, Refused>;

/// What becomes of a request that is nobody's.
fn without_tenant(identity: &Identity) -> RuleResult {
    match identity {
        Ok(_) => RuleResult::Skipped,
        Err(Refused::Malformed) => RuleResult::MalformedTenant,
        Err(Refused::Doubled) => RuleResult::DoubledTenant,
        Err(Refused::Forbidden) => RuleResult::Nobody,
    }
}
