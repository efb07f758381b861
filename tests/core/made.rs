//! What tests make up: policies, requests, chance.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir::algorithm::{Acquire, Offer, Run};
use weir::clock::Ms;
use weir::limiter::HttpCall;
use weir::local::table::{Fingerprint, Table};
use weir::local::{Lost, Over, Store};
use weir::policy::{ClassId, Environment, Limit, Mode, OnError, Policy, Terms};
use weir::request::Request;
use weir::rules::Ask;

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

/// What a request needs of the bucket `key` of the first rule, granted by the limiter alone.
pub fn ask_of(key: &str, limit: Limit, cost: u64) -> Ask {
    Ask {
        limiter: weir::policy::LimiterId::default(),
        rule: 0,
        class: ClassId::default(),
        tier: 0,
        key: key.to_owned(),
        limit,
        cost,
        mode: Mode::Exact,
        own: None,
        on_error: OnError::Deny,
        shadow: false,
        repeat: None,
    }
}

/// The fingerprint of a bucket at the limiter `main`.
pub fn at_main(table: &Table, key: &str) -> Fingerprint {
    table.fingerprint(key).at(table.fingerprint("limiter main"))
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

/// Shared data in memory; clones are other workers' hands on the same.
#[derive(Clone, Debug, Default)]
pub struct Shared(Rc<RefCell<Values>>);

#[derive(Debug, Default)]
struct Values {
    /// By name, with their numbers, which start from 1.
    values: BTreeMap<String, (Vec<u8>, u32)>,
    /// So many puts more come too late.
    lost: u32,
    gets: u64,
    puts: u64,
}

impl Shared {
    /// The next puts come too late, as if another worker had written meanwhile.
    pub fn lose(&self, puts: u32) {
        self.0.borrow_mut().lost = puts;
    }

    /// All is gone.
    pub fn wipe(&self) {
        self.0.borrow_mut().values.clear();
    }

    /// Somebody who is not asked writes.
    pub fn set(&self, name: &str, value: &[u8]) {
        let mut inside = self.0.borrow_mut();
        let number = inside.values.get(name).map_or(1, |(_, number)| number + 1);
        inside.values.insert(name.to_owned(), (value.to_vec(), number));
    }

    pub fn value(&self, name: &str) -> Option<Vec<u8>> {
        self.0.borrow().values.get(name).map(|(value, _)| value.clone())
    }

    pub fn names(&self) -> Vec<String> {
        self.0.borrow().values.keys().cloned().collect()
    }

    pub fn bytes(&self) -> usize {
        self.0.borrow().values.values().map(|(value, _)| value.len()).sum()
    }

    /// How often it was read and written.
    pub fn uses(&self) -> [u64; 2] {
        let inside = self.0.borrow();
        [inside.gets, inside.puts]
    }
}

impl Store for Shared {
    fn get(&self, name: &str) -> Option<(Vec<u8>, u32)> {
        let mut inside = self.0.borrow_mut();
        inside.gets += 1;
        inside.values.get(name).cloned()
    }

    fn put(&self, name: &str, value: &[u8], over: Over) -> Result<(), Lost> {
        let mut inside = self.0.borrow_mut();
        inside.puts += 1;
        if inside.lost > 0 {
            inside.lost -= 1;
            if let Some((_, number)) = inside.values.get_mut(name) {
                *number += 1;
            }
            return Err(Lost);
        }
        let next = match (inside.values.get(name), over) {
            (None, Over::Nothing) => 1,
            (Some((_, number)), Over::This(of)) if *number == of => number + 1,
            _ => return Err(Lost),
        };
        inside.values.insert(name.to_owned(), (value.to_vec(), next));
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn bytes(&mut self, at_most: u64) -> Vec<u8> {
        (0..self.below(at_most + 1)).map(|_| self.next() as u8).collect()
    }

    /// Pieces joined at random: nearer to what parsers take than bytes at random are.
    pub fn joined(&mut self, pieces: &[&str], at_most: u64) -> String {
        (0..self.below(at_most + 1)).map(|_| self.pick(pieces)).collect()
    }
}

/// How many rounds of a random test: under Node fewer, for it is slower and finds nothing else.
pub const fn rounds(native: u64) -> u64 {
    if cfg!(target_arch = "wasm32") { native / 20 } else { native }
}
