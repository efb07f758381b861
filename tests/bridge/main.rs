//! `weir bridge` in front of real Redis: what it refuses, what it tells of failures, and how it stands what breaks.
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is outside")]

mod cluster;
mod ends;
mod failures;
mod refusals;
mod secrets;
mod start;
mod ways;

use std::path::Path;
use std::time::{Duration, Instant};

use weir::algorithm::{Acquire, Offer, Run, TOKEN_BUCKET};
use weir::clock::Ms;
use weir::limiter::Failure;
use weir::limiter::redis::bridge::{Answer, PATH, add_part, answers, begin};
use weir::policy::{Limit, Terms};
use weir_stack::{Bridge, BridgeOptions, Client, Redis, RedisOptions, Request, Response, Scratch};

/// The tool with the bridge in it.
fn tool() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weir"))
}

/// A Redis and a bridge. They end from the front to the back.
struct Pair {
    bridge: Bridge,
    redis: Redis,
    _scratch: Scratch,
}

impl Pair {
    fn start() -> Pair {
        Pair::with(RedisOptions::default(), |options| options)
    }

    fn with(redis: RedisOptions, more: impl FnOnce(BridgeOptions) -> BridgeOptions) -> Pair {
        let scratch = Scratch::new().unwrap();
        let redis = Redis::start(&scratch, redis).unwrap();
        let bridge = Bridge::start(&scratch, more(BridgeOptions::new(tool(), &redis))).unwrap();
        Pair { bridge, redis, _scratch: scratch }
    }

    fn call(&self, body: &str) -> Response {
        call(self.bridge.port(), body)
    }

    /// What one part at a tenant's key gets.
    fn ask(&self, tenant: &str) -> Result<Vec<i64>, Failure> {
        ask(self.bridge.port(), tenant)
    }
}

/// 100 requests an hour, of which one is asked for.
fn asked(number: u64) -> Acquire {
    let limit = Limit::new(100, Ms(3_600_000), 100).unwrap();
    let runs = vec![Run { cost: 1, count: 1 }];
    Acquire { limit, terms: Terms::default(), offer: Offer::default(), hold: false, runs, number }
}

fn key(tenant: &str) -> String {
    format!("rl:{{{tenant}}}:per-user:default:3600000:t3")
}

/// A call with a part for each tenant, numbered from 1.
fn call_of(deadline: Ms, tenants: &[&str]) -> String {
    let mut call = begin(deadline);
    for (number, tenant) in (1..).zip(tenants) {
        add_part(&mut call, &TOKEN_BUCKET, &key(tenant), &asked(number));
    }
    call
}

fn post(body: &str) -> Request {
    Request::new("POST", PATH).body(body)
}

fn call(port: u16, body: &str) -> Response {
    Client::new(port).send(&post(body)).unwrap()
}

fn told(response: &Response) -> Vec<Answer> {
    answers(&response.body).unwrap_or_else(|| panic!("{} {:?}", response.status, response.text()))
}

/// What all parts got, in order; their numbers are those of the call.
fn results(response: &Response) -> Vec<Result<Vec<i64>, Failure>> {
    let answers = told(response);
    let numbers: Vec<Option<u64>> = answers.iter().map(|answer| answer.number).collect();
    assert_eq!(numbers, (1..=answers.len() as u64).map(Some).collect::<Vec<_>>());
    answers.into_iter().map(|answer| answer.result).collect()
}

fn ask(port: u16, tenant: &str) -> Result<Vec<i64>, Failure> {
    let response = call(port, &call_of(Ms(900), &[tenant]));
    assert_eq!(response.status, 200, "{}", response.text());
    results(&response).remove(0)
}

/// How many of the one that was asked for were granted.
fn granted(result: &Result<Vec<i64>, Failure>) -> i64 {
    *result.as_ref().unwrap_or_else(|failure| panic!("{}", failure.name())).last().unwrap()
}

/// Waits until it is so, and says for how long that took.
fn until(bound: Duration, mut is_so: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < bound {
        if is_so() {
            return Some(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// What a process holds in memory, in bytes.
fn memory(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}
