//! What there is to tell, in words. Where a thing stands in a file is its reader's to say.

use std::fmt;

use super::{
    BucketSeen, Charge, HeaderSeen, LimiterBecause, LimiterSeen, OnFailure, PathSeen, RepeatSeen, RuleResult,
    SourceSeen, TierBecause, TierSeen, When,
};
use crate::clock::Ms;
use crate::policy::{AddressFrom, AlgorithmName, Condition, Kind, Limit, Mode, Origin};

impl fmt::Display for PathSeen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            PathSeen::Absent => "none",
            PathSeen::Normal(path) => path,
            PathSeen::MalformedIsDefault => "malformed; paths.malformed is default: the request is in class default",
            PathSeen::Malformed => "malformed; answered with 400 where a class or a key wants the path",
        })
    }
}

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Charge::Cost(cost) => write!(f, "{cost}"),
            Charge::Exempt => f.write_str("none: it is exempt, and no rule looks at it"),
            Charge::Refused => f.write_str("none: it is refused before"),
        }
    }
}

impl fmt::Display for SourceSeen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            SourceSeen::Key { index, origin } => write!(f, "key[{index}], {}", source(origin)),
            SourceSeen::Missing => f.write_str("none yields a value: missing names the tenant"),
            SourceSeen::Nothing => f.write_str("none yields a value"),
        }
    }
}

impl TierSeen {
    /// The name of the tier, or what stands for one.
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or("its own limits")
    }
}

impl fmt::Display for TierBecause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            TierBecause::Named { by_overrides, by_network } => {
                let whose = if *by_overrides { "overrides" } else { "tier.tenants" };
                write!(f, "{whose} names {}", if *by_network { "a network that it is in" } else { "it" })
            }
            TierBecause::Source { index, origin, is_tier } => {
                let says = if *is_tier { "so" } else { "what is no tier: the default" };
                write!(f, "tier.sources[{index}], {}, says {says}", source(origin))
            }
            TierBecause::Only => f.write_str("the only one"),
            TierBecause::Default => f.write_str("the default"),
        }
    }
}

impl LimiterSeen {
    /// Why it is that one, or why that is not known.
    pub fn because(&self) -> String {
        match self {
            LimiterSeen::Known { because, .. } => because.to_string(),
            LimiterSeen::Unknown(_) => "it depends on the tenant's hash, and the key of the hash is unknown".to_owned(),
        }
    }
}

impl fmt::Display for LimiterSeen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            LimiterSeen::Known { name, .. } => f.write_str(name)?,
            LimiterSeen::Unknown(names) => write!(f, "unknown, {}", names.join(" or "))?,
        }
        write!(f, ": {}", self.because())
    }
}

impl fmt::Display for LimiterBecause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            LimiterBecause::Tenant { by_network: false } => "limiter.tenants names the tenant",
            LimiterBecause::Tenant { by_network: true } => "limiter.tenants names a network that the tenant is in",
            LimiterBecause::Tier => "limiter.tiers names the tier",
            LimiterBecause::Default => "the default",
            LimiterBecause::Only => "it has all buckets of the rule",
        })
    }
}

impl RuleResult {
    /// What the rule says without asking for tokens; None where it asks.
    pub fn said(&self) -> Option<&'static str> {
        Some(match self {
            RuleResult::Takes { .. } => return None,
            RuleResult::Unlimited => "passes: unlimited",
            RuleResult::Skipped => "does not look at it: missing is skip",
            RuleResult::Nobody => "refuses it: missing is deny",
            RuleResult::MalformedTenant => "refuses it: what names the tenant stands in the path, which is malformed",
            RuleResult::DoubledTenant => "refuses it: what names the tenant is sent twice",
            RuleResult::MalformedPath => "refuses it: the path is malformed",
            RuleResult::DoubledTier => "refuses it: what names the tier is sent twice",
            RuleResult::Denied => "refuses it: deny",
            RuleResult::ShadowRefuses => "has no say: it is a shadow, and would refuse the request",
        })
    }
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            OnFailure::NotAsked => f.write_str("nobody is asked, so nothing fails"),
            OnFailure::Shadow => f.write_str("a shadow has no say"),
            OnFailure::Allow => f.write_str("allow: it passes uncounted"),
            OnFailure::Local => f.write_str("local: this proxy's own bucket decides"),
            OnFailure::Deny { status, retry_after } => {
                write!(f, "deny: {status}, retry-after: {}", retry_after.as_deref().unwrap_or("none"))
            }
        }
    }
}

impl fmt::Display for RepeatSeen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let RepeatSeen { header, keep, is_sent } = self;
        match is_sent {
            true => write!(f, "{header} is sent: the same again takes nothing for {}", duration(*keep)),
            false => write!(f, "{header} is not sent: each request takes"),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            When::Always => f.write_str("always"),
            When::Full => f.write_str("every bucket is full"),
            When::Empty { rule, per, algorithm: AlgorithmName::TokenBucket } => {
                let per = per.map(|per| format!(" per {}", duration(per))).unwrap_or_default();
                write!(f, "the bucket{per} of {rule} is empty")
            }
            When::Empty { rule, per, algorithm: AlgorithmName::FixedWindow } => {
                let per = per.map(|per| format!(" of {}", duration(per))).unwrap_or_default();
                write!(f, "the window{per} of {rule} is used up")
            }
        }
    }
}

impl fmt::Display for HeaderSeen {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            HeaderSeen::Text(text) => f.write_str(text),
            HeaderSeen::FromNow(seconds) => write!(f, "<now + {seconds} s>"),
        }
    }
}

/// Where the tokens of a rule are.
pub fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exact => "exact: Redis grants each request".to_owned(),
        Mode::Lease(terms) => format!("lease: Redis lends to proxies, small leases for {}", duration(terms.life)),
        Mode::Async { sync_interval } => {
            format!("async: proxies spend, and tell Redis every {}", duration(sync_interval))
        }
        Mode::Local => "local: each proxy has its share".to_owned(),
    }
}

/// A source, in the words of a policy.
pub fn source(of: &Origin) -> String {
    match of {
        Origin::Header(name) => format!("header {name}"),
        Origin::Bearer => "authorization bearer".to_owned(),
        Origin::BasicUser => "authorization basic".to_owned(),
        Origin::Query(name) => format!("query {name}"),
        Origin::Cookie(name) => format!("cookie {name}"),
        Origin::Host => "host".to_owned(),
        Origin::PathSegment(number, _) => format!("path_segment {number}"),
        Origin::Property(path, kind) => {
            let kind = match kind {
                Kind::Number => " of type number",
                Kind::Bool => " of type bool",
                Kind::Text | Kind::Bytes => "",
            };
            format!("property {}{kind}", path.join("."))
        }
        Origin::ClientIp(AddressFrom::Host, _) => "client_ip from host".to_owned(),
        Origin::ClientIp(AddressFrom::Forwarded(_), _) => "client_ip from x_forwarded_for".to_owned(),
        Origin::All(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| source(&part.origin)).collect();
            format!("all of {}", parts.join(" and "))
        }
        Origin::Constant(_) => "constant".to_owned(),
    }
}

/// What a condition of a class wants.
pub fn condition(condition: &Condition) -> String {
    let what = match &condition.origin {
        Origin::Header(name) => format!("header {name}"),
        Origin::Query(name) => format!("query {name}"),
        Origin::Property(path, _) => path.join("."),
        _ => "host".to_owned(),
    };
    match &condition.exact {
        Some(value) => format!("{what} is {value:?}"),
        None => format!("{what} is there"),
    }
}

/// An algorithm, in the word of a policy.
pub fn algorithm(name: AlgorithmName) -> &'static str {
    match name {
        AlgorithmName::TokenBucket => "token_bucket",
        AlgorithmName::FixedWindow => "fixed_window",
    }
}

/// A limit, in full.
pub fn limit(limit: Limit) -> String {
    let (requests, period) = (limit.requests(), duration(limit.period()));
    match limit.algorithm() {
        AlgorithmName::TokenBucket => format!("{requests} per {period}, burst {}", limit.burst()),
        AlgorithmName::FixedWindow => format!("{requests} in each window of {period}"),
    }
}

/// The limit of a bucket, and from when its windows begin by the clock of Redis.
pub fn limit_of(bucket: &BucketSeen) -> String {
    let told = limit(bucket.limit);
    match (bucket.limit.algorithm(), bucket.offset) {
        (AlgorithmName::FixedWindow, Some(offset)) => {
            format!("{told}, which begins {} after a multiple of that", duration(offset))
        }
        (AlgorithmName::FixedWindow, None) if !bucket.is_local => format!("{told}, which begins at a multiple of that"),
        _ => told,
    }
}

/// A duration as policies write it: in the largest unit that needs no fraction.
pub fn duration(Ms(ms): Ms) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit = units.into_iter().find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    match unit {
        Some((length, unit)) => format!("{}{unit}", ms.checked_div(length).unwrap_or_default()),
        None => format!("{ms}ms"),
    }
}
