//! Where tokens come from: the limiters of a policy.

use std::fmt;

use super::decode::variable;
use super::language::{BREAKER, HEADER_VALUE, LIMITER, NAME, POLICY, TRANSPORTS, Value};
use super::problem::{Found, Path};
use super::read::{Fields, Reader};
use super::tree::Tree;
use super::{Environment, Limit, Limiters};
use crate::clock::Ms;

/// How a limiter is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// Through `weir bridge`.
    Bridge,
    /// Through Webdis.
    Webdis,
}

/// A Redis limiter.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// Its name in the policy.
    pub name: String,
    /// How it is reached.
    pub transport: TransportName,
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

impl Limiter {
    /// How long a call may take: a reply that is late for the one who waited still serves those who came after.
    pub fn call_timeout(&self) -> Ms {
        self.timeout.times(10).max(Ms(1000))
    }
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

/// All limiters, in the order of their names, as [`super::routing::names`] counts them.
pub(super) fn read(reader: &mut Reader, fields: &Fields, environment: Environment) -> Option<Limiters> {
    let (tree, path) = reader.needed(fields, "limiters")?;
    let chosen = reader.chosen(&path, tree, fields.wanted("limiters"))?;
    if let Some(Value::Map(map)) = POLICY.field("limiters").map(|field| &field.value)
        && !reader.is_as_many(&path, chosen.len(), map.least, map.most)
    {
        return None;
    }
    let count = chosen.len();
    let mut limiters: Vec<Limiter> = Vec::new();
    for (name, path, tree) in chosen {
        if let Some(limiter) = limiter(reader, name, &path, tree, environment) {
            // A sort would be 6 kB of module.
            limiters.insert(limiters.partition_point(|other| other.name < limiter.name), limiter);
        }
    }
    let is_complete = limiters.len() == count;
    let mut limiters = limiters.into_iter();
    let first = limiters.next().filter(|_| is_complete)?;
    Some(Limiters::new(first, limiters.collect()))
}

fn limiter(reader: &mut Reader, name: &str, path: &Path, tree: &Tree, environment: Environment) -> Option<Limiter> {
    let is_name = reader.of_form(path, name, &NAME);
    let fields = reader.object(path, tree, &LIMITER)?;
    let transport = reader.choice(&fields, "transport", TRANSPORTS);
    let cluster = reader.text_of(&fields, "cluster");
    let authority = reader.if_written(&fields, "authority", Reader::text_of);
    let timeout = reader.duration(&fields, "timeout");
    let breaker = breaker(reader, &fields);
    let new_keys = reader.if_written(&fields, "max_new_keys_per_second", new_keys);
    let authorization = variable(reader, &fields, "auth_env", environment);
    if let (Some(value), Some((_, path))) = (&authorization, fields.get("auth_env"))
        && !HEADER_VALUE.holds(value)
    {
        // The value stays unsaid.
        reader.note(&path, Found::Nothing, "names a variable whose value is no header value", "use visible ASCII");
    }
    match (transport, cluster, authority, timeout, breaker, new_keys) {
        (Some(transport), Some(cluster), Some(authority), Some(timeout), Some(breaker), Some(new_keys)) if is_name => {
            Some(Limiter {
                name: name.to_owned(),
                transport,
                authority: authority.unwrap_or_else(|| cluster.clone()),
                cluster,
                timeout,
                authorization: authorization.map(Credential),
                breaker,
                max_new_keys_per_second: new_keys,
            })
        }
        _ => None,
    }
}

fn breaker(reader: &mut Reader, fields: &Fields) -> Option<BreakerLimits> {
    let fields = reader.object_of(fields, "breaker", &BREAKER)?;
    let failures = reader.integer(&fields, "failures");
    let share = reader.part(&fields, "share");
    let within = reader.duration(&fields, "within");
    let probe_every = reader.duration(&fields, "probe_every");
    Some(BreakerLimits { failures: failures?, share: share?, within: within?, probe_every: probe_every? })
}

/// So many new keys a second, as a limit of their own.
fn new_keys(reader: &mut Reader, fields: &Fields, word: &'static str) -> Option<Limit> {
    let keys = reader.integer(fields, word)?;
    Limit::new(keys, Ms(1000), keys).ok()
}
