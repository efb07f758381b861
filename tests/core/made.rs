//! What tests make up: policies, requests, chance.

use std::cell::RefCell;
use std::rc::Rc;

use weir::algorithm::{Acquire, Offer, Run};
use weir::bucket::BucketId;
use weir::clock::Ms;
use weir::limiter::HttpCall;
use weir::limiter::redis::key;
use weir::local::table::{Fingerprint, Table};
use weir::policy::{BucketKind, ClassId, Environment, Limit, LimiterId, Mode, OnError, Policy, Terms};
use weir::request::Request;
use weir::rules::Ask;
use weir::tenant::{HashKey, Storage, Tenant};
pub use weir_sim::random::Random;
pub use weir_sim::shared::Shared;

pub const ENVIRONMENT: Environment = &|name| (name == "WEIR_HASH_SECRET").then(|| "secret".to_owned());

/// A policy from JSON.
pub fn policy(json: &str) -> Policy {
    Policy::from_host(json.as_bytes(), ENVIRONMENT).unwrap_or_else(|problems| {
        let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
        panic!("{told:#?}\n{json}")
    })
}

/// A policy with this key and these limits, and more fields of the rule and of the policy.
pub fn policy_of(key: &str, limits: &str, rule: &str, top: &str) -> Policy {
    policy(&format!(
        r#"{{"version": 1, "hash_secret_env": "WEIR_HASH_SECRET",
            "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}},
            "rules": [{{"name": "per-key", "mode": "exact", "key": {key}, "limits": {limits}
                {rule} {on_error}}}] {top}}}"#,
        on_error = if rule.contains("on_error") { "" } else { r#", "on_error": "deny""# },
    ))
}

/// A limit of the tests.
pub fn limit(requests: u64, seconds: u64, burst: u64) -> Limit {
    Limit::new(requests, Ms(seconds * 1000), burst).expect("a limit")
}

/// What a proxy asks only for those who wait.
pub fn only_for(limit: Limit, runs: &[Run]) -> Acquire {
    Acquire {
        limit,
        terms: Terms::default(),
        offer: Offer::default(),
        hold: false,
        runs: runs.to_vec(),
        number: NUMBER,
    }
}

/// The number of a call that stands for any.
pub const NUMBER: u64 = 4242;

/// The number in the body of a call.
pub fn number_of(call: &HttpCall) -> u64 {
    call.body.split('/').nth(15).and_then(|part| part.parse().ok()).expect("a number")
}

/// A reply's body with the number of its call before the numbers that it has.
pub fn numbered(number: u64, body: &str) -> String {
    let has_numbers = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    match body.split_once("\":[") {
        Some((command, rest)) if has_numbers(rest) => format!("{command}\":[{number},{rest}"),
        _ => body.to_owned(),
    }
}

/// What a request of the tenant `t.<value>` needs of its bucket of the rule `per-key`, granted by the limiter alone.
pub fn ask_of(value: &str, limit: Limit, cost: u64) -> Ask {
    let tenant = Tenant::new("t", value.as_bytes(), Storage::Plain, &HashKey::default());
    Ask {
        rule: 0,
        class: ClassId::default(),
        tier: 0,
        bucket: Rc::new(BucketId {
            limiter: LimiterId::default(),
            tenant,
            kind: Rc::new(BucketKind::new("per-key", "default", limit)),
        }),
        limit,
        cost,
        mode: Mode::Exact,
        own: None,
        on_error: OnError::Deny,
        shadow: false,
        repeat: None,
    }
}

/// The Redis key of what is asked.
pub fn key_of(policy: &Policy, ask: &Ask) -> String {
    key(policy, &ask.bucket)
}

/// The fingerprint of a tenant's bucket of an entry `default` at a limiter.
pub fn bucket_at(limiter: &str, table: &Table, rule: &str, tenant: &str, limit: Limit) -> Fingerprint {
    let kind = BucketKind::new(rule, "default", limit);
    table.fingerprint(kind.hash(), tenant).at(table.fingerprint(0, limiter))
}

/// A request that remembers what was read of it.
pub struct Sent {
    headers: Vec<(String, Vec<u8>)>,
    read: RefCell<Vec<String>>,
}

impl Sent {
    pub fn new(headers: &[(&str, &[u8])]) -> Sent {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        Sent { headers, read: RefCell::default() }
    }

    /// `GET /v1/a`, or another method and path, and a few headers.
    pub fn to(method: &str, path: &str, headers: &[(&str, &str)]) -> Sent {
        let mut all = vec![(":method", method.as_bytes()), (":path", path.as_bytes())];
        all.extend(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
        Sent::new(&all)
    }

    /// The names that were asked for, in order.
    pub fn read(&self) -> Vec<String> {
        self.read.borrow().clone()
    }
}

impl Request for Sent {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.read.borrow_mut().push(name.to_owned());
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    fn cookies(&self) -> Option<Vec<u8>> {
        self.read.borrow_mut().push("cookie".to_owned());
        let lines = self.headers.iter().filter(|(name, _)| name == "cookie");
        let lines: Vec<&[u8]> = lines.map(|(_, value)| value.as_slice()).collect();
        (!lines.is_empty()).then(|| lines.join(b"; ".as_slice()))
    }

    fn is_doubled(&self, name: &str) -> bool {
        self.read.borrow_mut().push("all".to_owned());
        self.headers.iter().filter(|(other, _)| other == name).nth(1).is_some()
    }

    /// Properties are told as headers: their parts joined by dots, after a dot.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.header(&format!(".{}", path.join(".")))
    }
}

/// How many rounds of a random test: under Node fewer, for it is slower and finds nothing else.
pub const fn rounds(native: u64) -> u64 {
    if cfg!(target_arch = "wasm32") { native / 20 } else { native }
}
