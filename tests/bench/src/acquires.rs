//! Redis alone: what a tenant's key weighs, and what a call costs, straight and through Webdis.

use std::process::Command;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use weir::algorithm::{Acquire, Offer, Run, TOKEN_BUCKET};
use weir::clock::Ms;
use weir::limiter::redis::webdis::{By, encode};
use weir::policy::{Limit, Terms};
use weir_stack::{Redis, RedisOptions, Scratch, Webdis, WebdisOptions};

use crate::load::{self, AT_ONCE, post};
use crate::results::{AcquireSample, Acquires, InRedis};
use crate::stack::round;
use crate::{Result, cpu};

/// What is sent to Redis before its answers are read.
const AT_A_TIME: u64 = 1_000;

pub const WEBDIS: &str = "acquire through Webdis";
pub const STRAIGHT: &str = "acquire";
pub const BARE: &str = "INCR";

pub fn measure(keys: u64, rounds: usize, seconds: f64) -> Result<InRedis> {
    let scratch = Scratch::new()?;
    let redis = Redis::start(&scratch, RedisOptions::default())?;
    let mut connection = redis.operator()?;
    // A thousand keys at a time take longer than an operator may.
    connection.set_read_timeout(Some(Duration::from_secs(60)))?;
    cmd("SCRIPT").arg("LOAD").arg(TOKEN_BUCKET.text()).exec(&mut connection)?;
    let limit =
        |requests, seconds: u64, burst| Limit::new(requests, Ms(seconds * 1000), burst).map_err(|e| format!("{e:?}"));
    // The README's smallest policy, which lends a token, and a bucket that lends none; neither ends meanwhile.
    let lent = acquire(limit(100, 60, 100)?, 1);
    let exact = acquire(limit(24, 86_400, 24)?, 0);
    let bytes_lent = bytes_per_key(&mut connection, keys, |pipe, key| {
        pipe.add_command(call(key, &lent));
    })?;
    let bytes_exact = bytes_per_key(&mut connection, keys, |pipe, key| {
        pipe.add_command(call(key, &exact));
    })?;
    let bytes_bare = bytes_per_key(&mut connection, keys, |pipe, key| {
        pipe.cmd("INCR").arg(key).cmd("EXPIRE").arg(key).arg(600);
    })?;
    eprintln!("    a key: {bytes_lent} bytes with a lease, {bytes_exact} without, {bytes_bare} of INCR");
    drop(connection);
    let acquires = costs(&scratch, &redis, rounds, seconds)?;
    Ok(InRedis { keys, bytes_lent, bytes_exact, bytes_bare, acquires })
}

/// A call for one request of cost 1, which wants so many tokens on top.
fn acquire(limit: Limit, want: u64) -> Acquire {
    let offer = Offer { want, ..Offer::default() };
    Acquire {
        limit,
        terms: Terms { life: Ms(300_000), lend: 500 },
        offer,
        hold: false,
        runs: vec![Run { cost: 1, count: 1 }],
        number: 1 << 52,
    }
}

/// A call as the module sends it to Webdis; but for the key there is no byte in it that would be encoded.
fn call(key: &str, asked: &Acquire) -> redis::Cmd {
    let body = encode(&TOKEN_BUCKET, By::Sha, key, asked).body;
    let mut command = redis::Cmd::new();
    for (at, part) in body.split('/').enumerate() {
        command.arg(if at == 3 { key } else { part });
    }
    command
}

/// The key of a tenant, as the module makes it.
fn key_of(tenant: u64) -> String {
    format!("rl:{{user.{tenant:08}}}:per-user:default:60000:{}", TOKEN_BUCKET.format)
}

/// Of all that Redis has allocated, how much is due to one key of so many.
fn bytes_per_key(
    connection: &mut Connection,
    keys: u64,
    mut add: impl FnMut(&mut redis::Pipeline, &str),
) -> Result<f64> {
    cmd("FLUSHALL").exec(connection)?;
    let before = used(connection)?;
    for from in (0..keys).step_by(AT_A_TIME as usize) {
        let mut pipe = redis::pipe();
        for tenant in from..keys.min(from + AT_A_TIME) {
            add(&mut pipe, &key_of(tenant));
        }
        pipe.exec(connection)?;
    }
    // Its table may still be growing.
    std::thread::sleep(Duration::from_secs(1));
    let after = used(connection)?;
    let found: u64 = cmd("DBSIZE").query(connection)?;
    if found != keys {
        return Err(format!("{found} keys of {keys} are there: some have ended while the others were made").into());
    }
    Ok(round((after - before) as f64 / keys as f64))
}

fn used(connection: &mut Connection) -> Result<u64> {
    let info: String = cmd("INFO").arg("memory").query(connection)?;
    let value = info.lines().find_map(|line| line.strip_prefix("used_memory:")).ok_or("no used_memory")?;
    Ok(value.trim().parse()?)
}

/// Calls from 64 connections for one bucket: straight, through Webdis, and a bare INCR.
fn costs(scratch: &Scratch, redis: &Redis, rounds: usize, seconds: f64) -> Result<Vec<Acquires>> {
    let webdis = Webdis::start(scratch, redis, WebdisOptions::default())?;
    let mut connection = redis.operator()?;
    cmd("FLUSHALL").exec(&mut connection)?;
    cmd("ACL").arg(&["SETUSER", "bench", "on", ">bench", "~*", "+@all"]).exec(&mut connection)?;
    let key = "rl:{user.acme}:per-user:default:1000:t3";
    let asked = acquire(Limit::new(1_000_000, Ms(1000), 1_000_000).map_err(|e| format!("{e:?}"))?, 0);
    let body = scratch.path().join("acquire");
    std::fs::write(&body, encode(&TOKEN_BUCKET, By::Sha, key, &asked).body)?;
    let command = call(key, &asked);
    let words = |command: &redis::Cmd| -> Vec<String> {
        let simple = |argument| match argument {
            redis::Arg::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        command.args_iter().filter_map(simple).collect()
    };
    let (straight, bare) = (words(&command), vec!["INCR".to_owned(), "bare".to_owned()]);
    let mut all: Vec<Acquires> =
        [STRAIGHT, WEBDIS, BARE].map(|name| Acquires { name: name.to_owned(), samples: Vec::new() }).into();
    let run = |at: usize, calls: u64| -> Result<AcquireSample> {
        let before = (cpu::nanoseconds(redis.id())?, cpu::nanoseconds(webdis.id())?);
        let per_second = match at {
            0 => benchmark(redis.port(), calls, &straight)?,
            1 => post(webdis.port(), calls, &body)?.per_second,
            _ => benchmark(redis.port(), calls, &bare)?,
        };
        let after = (cpu::nanoseconds(redis.id())?, cpu::nanoseconds(webdis.id())?);
        let each = |from: u64, to: u64| round((to - from) as f64 / calls as f64 / 1000.0);
        let webdis_us = if at == 1 { each(before.1, after.1) } else { 0.0 };
        Ok(AcquireSample { per_second: per_second.round(), redis_us: each(before.0, after.0), webdis_us })
    };
    let mut calls = Vec::new();
    for at in 0..all.len() {
        calls.push((run(at, 20_000)?.per_second * seconds).max(1000.0) as u64);
    }
    let mut order = load::shuffled(all.len(), 0);
    for number in 0..rounds {
        for at in &order {
            all[*at].samples.push(run(*at, calls[*at])?);
        }
        order = load::shuffled(all.len(), number + 1);
    }
    // Each of them was executed, and refused nothing.
    let level: Vec<i64> = command.query(&mut connection)?;
    if level.last() != Some(&1) {
        return Err(format!("the script answered {level:?}").into());
    }
    Ok(all)
}

/// Calls per second from as many connections as h2load has.
fn benchmark(port: u16, calls: u64, words: &[String]) -> Result<f64> {
    let started = Instant::now();
    let output = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "--user", "bench", "-a", "bench", "-q"])
        .args(["-c", &AT_ONCE.to_string(), "-n", &calls.to_string()])
        .args(words)
        .output()?;
    let elapsed = started.elapsed();
    if !output.status.success() || !output.stderr.is_empty() {
        return Err(format!("redis-benchmark: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(calls as f64 / elapsed.as_secs_f64())
}
