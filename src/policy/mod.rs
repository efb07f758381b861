//! The policy, decoded once: from JSON to a plan in which nothing is invalid.
//!
//! The language is described in the README. Decoding tells every problem at once and changes nothing; whoever decodes
//! keeps the old plan until a new one is there. This room must not know how requests are read or limits are kept.

mod classes;
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
use std::fmt;

pub use limit::{EXACT_IN_A_DOUBLE, Limit, NoLimit};
pub use networks::Networks;
pub use observe::Observe;
pub use problem::{Found, Path, Problem, Segment};
pub use routing::{LimiterId, Limiters, Routing};
pub use tree::{NotJson, Tree};

use crate::clock::Ms;
use crate::path::{Paths, Pattern, Regex};
use crate::tenant::{HashKey, Storage, Tenant};
use crate::trie::Trie;

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

/// A Redis limiter behind Webdis.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// Its name in the policy.
    pub name: String,
    /// The host's name for where it is.
    pub cluster: String,
    /// `Host` of the calls.
    pub authority: String,
    /// How long a request waits.
    pub timeout: Ms,
    /// Value of `Authorization`, if there is one.
    pub authorization: Option<Credential>,
    /// When it is left alone.
    pub breaker: BreakerLimits,
    /// How many keys that this proxy does not know may ask in a second.
    pub max_new_keys_per_second: Option<Limit>,
}

/// When a limiter is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// After so many failed calls,
    pub failures: u64,
    /// if they are so many thousandths of all calls,
    pub share: u16,
    /// within this time,
    pub within: Ms,
    /// and then asked again about this often.
    pub probe_every: Ms,
}

/// A secret that must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub String);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// The class of a request: an index into [`Classes::names`]; 0 is the class `default`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassId(pub usize);

/// The ordered list of class matches and the names that they use.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Names by [`ClassId`]; the first is `default`.
    pub names: Vec<String>,
    /// In the order of the policy: the first that matches wins.
    pub matches: Vec<ClassMatch>,
    /// Which paths are one.
    pub paths: Paths,
    /// How the matches that a request may meet are found among many.
    pub index: ClassIndex,
}

/// Indices into [`Classes::matches`], each list in ascending order.
#[derive(Clone, Debug, Default)]
pub struct ClassIndex {
    /// The matches that have a path.
    pub by_path: Trie,
    /// The others.
    pub without_path: Vec<usize>,
    /// By method, the first match that needs the path of such a request.
    pub first_by_method: Vec<(String, usize)>,
    /// The first that needs the path of a request with any other method.
    pub first_by_other: Option<usize>,
    /// The first of all that have a path.
    pub first: Option<usize>,
}

/// One entry of `classes`.
#[derive(Clone, Debug)]
pub struct ClassMatch {
    /// The class of a request that matches.
    pub class: ClassId,
    /// Methods, any of which matches; None matches all.
    pub methods: Option<Vec<String>>,
    /// The path; None matches all.
    pub path: Option<Pattern>,
    /// What the whole path has to match as well.
    pub regex: Option<Regex>,
    /// What else must hold, all of it.
    pub conditions: Vec<Condition>,
    /// What a request takes from a bucket.
    pub cost: u64,
    /// No rule looks at the request.
    pub exempt: bool,
}

/// What must hold of one value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which value.
    pub origin: Origin,
    /// What it has to be; None where it only has to be there. A host may be `*.` and what it ends in.
    pub exact: Option<String>,
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

/// How a proxy borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a small lease lives.
    pub life: Ms,
    /// How much of the burst may be lent freely, in thousandths.
    pub lend: u16,
}

impl Terms {
    /// How many tokens of a limit are lent freely.
    pub fn lent_freely(self, limit: Limit) -> u64 {
        limit.burst().saturating_mul(u64::from(self.lend)) / 1000
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

/// Something that a tenant's value is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// First part of the tenant.
    pub label: String,
    /// What is read.
    pub origin: Origin,
    /// Whether the value may be stored as it is.
    pub storage: Storage,
    /// Whether clients cannot make the value up.
    pub trusted: bool,
    /// Whether a request that sends it twice is answered with 400.
    pub refuses_doubled: bool,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A header, by its lower-case name.
    Header(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
    /// The user of `Authorization: Basic`.
    BasicUser,
    /// A parameter of the query, by its name.
    Query(String),
    /// A cookie, by its name.
    Cookie(String),
    /// The host that the request is for.
    Host,
    /// A segment of the path, counted from 1.
    PathSegment(usize, Paths),
    /// What the host of the module knows, by its path.
    Property(Vec<String>, Kind),
    /// The client's address, an IPv6 one cut to so many bits.
    ClientIp(AddressFrom, u32),
    /// Several values, all of which must be there.
    All(Vec<Source>),
    /// A value that stands in the policy: one bucket for all.
    Constant(String),
}

/// How the bytes of a property are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As they are: in conditions of classes.
    Bytes,
    /// UTF-8 without control characters; all else is none.
    Text,
    /// 8 bytes, a double or an integer, that are an integer below 2^53; written as a decimal.
    Number,
    /// One byte; written as `true` or `false`.
    Bool,
}

/// Where the address of a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFrom {
    /// By the host.
    Host,
    /// By X-Forwarded-For: so many entries before its last one.
    Forwarded(usize),
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

/// The limits of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name in the policy.
    pub name: String,
    /// The limits that differ.
    pub entries: Vec<Entry>,
    /// By [`ClassId`], an index into `entries`.
    pub by_class: Vec<usize>,
}

/// One limit of a tier: a bucket belongs to it, whichever of its classes a request is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A class or `default`; part of the Redis key.
    pub name: String,
    /// What it allows.
    pub allowance: Allowance,
    /// The share of one proxy, where the rule needs one.
    pub own: Option<Limit>,
    /// Limits that must hold as well, each with the share of one proxy; their periods differ.
    pub also: Vec<(Limit, Option<Limit>)>,
}

/// What an entry allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Nothing: 403.
    Deny,
    /// Everything.
    Unlimited,
    /// A token bucket.
    Limited(Limit),
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

/// What clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status of a limited request.
    pub status: u16,
    /// Content type of the body.
    pub content_type: String,
    /// Body of a limited request; `{rule}` and `{retry_after}` are replaced.
    pub body: String,
    /// Whether `x-ratelimit-limit`, `-remaining` and `-reset` are sent.
    pub x_ratelimit: bool,
    /// Whether `ratelimit-policy` and `ratelimit` are sent.
    pub ratelimit: bool,
    /// How `x-ratelimit-reset` is told.
    pub reset: Reset,
    /// What becomes of the same headers of the service behind.
    pub upstream_headers: UpstreamHeaders,
    /// Added to Retry-After at random, in whole seconds: at most this many thousandths of the wait.
    pub retry_after_jitter: u16,
}

/// What becomes of limit headers that the service behind has sent itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamHeaders {
    /// Those of this proxy stand in their place.
    Replace,
    /// They stay. A family of which the service has sent a header is the service's.
    Keep,
}

/// How a reset is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// As a moment: seconds since 1970.
    Epoch,
    /// As a wait in seconds.
    Seconds,
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
