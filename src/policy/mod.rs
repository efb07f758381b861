//! The policy, decoded once: from JSON to a plan in which nothing is invalid.
//!
//! The language is described in docs/policy.md. Decoding tells every problem at once and changes nothing; whoever decodes
//! keeps the old plan until a new one is there. This room must not know how requests are read or limits are kept.

mod bucket_kind;
mod classes;
mod counting;
mod decode;
pub mod language;
pub mod limit;
mod limiters;
mod limits;
mod mode;
mod networks;
mod observe;
mod open;
mod problem;
mod read;
mod response;
mod routing;
mod rules;
mod sources;
mod tenants;
mod tree;
mod wire;
mod words;

use std::collections::HashMap;

pub use bucket_kind::BucketKind;
pub use classes::{ClassId, ClassIndex, ClassMatch, Classes, Condition};
pub use limit::{EXACT_IN_A_DOUBLE, Limit, NoLimit};
pub use limiters::{BreakerLimits, Credential, Limiter, TransportName};
pub use limits::{Allowance, Bounded, Entry, Tier};
pub use networks::Networks;
pub use observe::Observe;
pub use problem::{Found, Path, Problem, Segment};
pub use response::{Reset, Response, UpstreamHeaders};
pub use routing::{LimiterId, Limiters, Routing};
pub use sources::{AddressFrom, Kind, Origin, Source};
pub use tree::{NotJson, Tree};

pub use crate::algorithm::{AlgorithmName, Terms};

use crate::algorithm::ModeName;
use crate::clock::Ms;
use crate::tenant::{HashKey, Tenant};

/// A valid policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// First part of every Redis key, queue name and metric.
    pub namespace: String,
    /// Among how many proxies a local share is divided.
    pub proxies: Option<u64>,
    /// Entries of the proxy's table.
    pub table_entries: u64,
    /// Where tokens come from.
    pub limiters: Limiters,
    /// How requests are sorted.
    pub classes: Classes,
    /// What is limited: 1 to 16 rules, each with a name of its own.
    pub rules: Vec<Rule>,
    /// What clients see.
    pub response: Response,
    /// What those who run it see, apart from counters.
    pub observe: Option<Observe>,
    /// Tells it from other policies: see [`Tree::fingerprint`].
    pub fingerprint: u32,
}

impl Policy {
    /// Whether somebody may see the keys of buckets.
    pub fn shows_keys(&self) -> bool {
        self.observe.as_ref().is_some_and(|observe| observe.secret.is_some())
    }
}

/// What is limited, and how.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name in the policy.
    pub name: String,
    /// Where the tenant comes from: the first source that yields a value names it.
    pub sources: Vec<Source>,
    /// Key of the hash of secret and long values.
    pub hash_key: HashKey,
    /// What happens when no source yields a value.
    pub missing: Missing,
    /// Tenants that have another tier than the default one, or limits of their own: an index into `tiers`.
    pub tenants: HashMap<Tenant, usize>,
    /// The same of all tenants whose address is in a network.
    pub networks: Networks,
    /// Where the tier of every other tenant comes from: the first source that yields a value names it.
    pub tier_sources: Vec<Source>,
    /// Index of the tier of everyone else.
    pub default_tier: usize,
    /// The tiers, and after them the limits of single tenants, as tiers without a name.
    pub tiers: Vec<Tier>,
    /// Where its tokens are.
    pub mode: Mode,
    /// Which limiter has its buckets.
    pub routing: Routing,
    /// What a request gets when the limiter fails.
    pub on_error: OnError,
    /// It counts what it would refuse, and refuses nothing.
    pub shadow: bool,
    /// How a repeated request is known, so that it takes nothing again.
    pub idempotency: Option<Idempotency>,
    /// Whether clients are told how its buckets stand.
    pub headers: bool,
}

impl Rule {
    /// The tier that `overrides` or else `tier.tenants` say of a tenant, an index into `tiers`; in each of them a tenant
    /// itself wins over the networks that its address is in, and a longer network over a shorter one.
    pub fn tier_of_tenant(&self, tenant: &Tenant) -> Option<usize> {
        let own = self.tenants.get(tenant).copied();
        if self.networks.is_empty() {
            return own;
        }
        // Limits of single tenants have no name.
        let is_override = |tier: &usize| self.tiers.get(*tier).is_some_and(|tier| tier.name.is_empty());
        let found = || self.networks.find(tenant);
        own.filter(is_override).or_else(|| found().filter(is_override)).or(own).or_else(found)
    }
}

/// Where a rule's tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the limiter, which grants every request.
    Exact,
    /// In the limiter, which lends some to each proxy.
    Lease(Terms),
    /// In each proxy, which tells the limiter now and then what it has spent.
    Async {
        /// How often.
        sync_interval: Ms,
    },
    /// In each proxy its share; nobody is asked.
    Local,
}

impl Mode {
    /// Which mode it is.
    pub fn name(self) -> ModeName {
        match self {
            Mode::Exact => ModeName::Exact,
            Mode::Lease(_) => ModeName::Lease,
            Mode::Async { .. } => ModeName::Async,
            Mode::Local => ModeName::Local,
        }
    }
}

/// How a repeated request is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The header that names a request, in lower case.
    pub header: String,
    /// How long it is kept.
    pub keep: Ms,
}

/// What happens to a request that names no tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is refused.
    Deny,
    /// The rule does not look at it.
    Skip,
    /// It shares the bucket of this tenant.
    As(Tenant),
}

/// What a request gets when the limiter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It passes.
    Allow,
    /// 503 with Retry-After.
    Deny,
    /// The proxy's own bucket decides.
    Local,
}

/// Gives the value of an environment variable of the host, if it is set.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Policy {
    /// Decodes what a host hands to the module: see [`Tree::from_host`].
    ///
    /// # Errors
    /// Every problem of the policy, in the order of the text as far as possible.
    pub fn from_host(bytes: &[u8], environment: Environment) -> Result<Policy, Vec<Problem>> {
        match Tree::from_host(bytes) {
            Ok(tree) => Policy::from_tree(&tree, environment),
            Err(NotJson { line, column }) => Err(vec![Problem {
                path: Path::default(),
                found: Found::Nothing,
                wrong: "is no JSON",
                wanted: format!("look at line {line}, column {column}"),
                choices: Vec::new(),
            }]),
        }
    }

    /// Decodes a tree, from whatever it was read.
    ///
    /// # Errors
    /// As [`Policy::from_host`].
    pub fn from_tree(tree: &Tree, environment: Environment) -> Result<Policy, Vec<Problem>> {
        decode::policy(tree, environment)
    }
}
