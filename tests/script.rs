//! Holds `lua/token_bucket.lua`, behind its prelude, in a real, private Redis against a naive oracle: equal in every
//! reply, every write and every expiry, and true to its promises.
//!
//! Histories are random, from a fixed seed; `WEIR_SEED=n` takes another. The script's text runs byte for byte, inside
//! a function that hands it a clock and notes its calls (`script/server.rs`).

#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::disallowed_methods,
    reason = "those are rules for the core; a test reads the environment and waits for Redis"
)]

#[path = "script/callers.rs"]
mod callers;
#[path = "script/examples.rs"]
mod examples;
#[path = "script/history.rs"]
mod history;
#[path = "script/limits.rs"]
mod limits;
#[path = "script/met.rs"]
mod met;
#[path = "script/server.rs"]
mod server;
#[path = "script/windows.rs"]
mod windows;

use std::{env, iter};

use history::{History, Step};
use limits::{Limit, YEAR_MS};
use met::Met;
use redis::{Connection, Value, cmd, pipe};
use server::{KEPT_MS, Redis, Script};
use weir::algorithm::TOKEN_BUCKET;
use weir_sim::random::Random;
use weir_sim::root::{Acquire, EXACT, Run};

/// A reply, and the calls for TIME, GET and SET that led to it.
type Noted = (Vec<i64>, Value, Value, Vec<u8>);

const TEN_AN_HOUR: Limit = Limit { requests: 10, period_ms: 3_600_000, burst: 10 };

/// Where the level stands in a reply.
const LEVEL: usize = 1;

/// The largest that a call may have.
const NUMBER: u64 = (1 << 53) - 1;

/// Where the counts of granted requests begin in a reply.
const GRANTED: usize = 8;

#[test]
fn random_histories_are_equal_to_the_oracle_and_keep_the_limit() {
    let seed = seed();
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::clocked(&mut connection);
    let mut met = Met::default();
    let mut last_steps = Vec::new();
    for number in 0..550 {
        let history = history::history(&mut Random::new(seed, number), 400);
        let key = format!("bucket:{number}");
        replay(&mut connection, &script, &key, &history.steps);
        assert_lent_tokens_count_against_the_burst_until_their_slot_ends(&key, &history.steps);
        met.note(&history);
        if history.honest {
            met.note_tight(assert_limits_kept(&key, &history));
        }
        last_steps.push((key, history.steps.last().cloned().expect("a history has a step")));
    }
    met.assert_wild();

    let keys: usize = cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, last_steps.len(), "keys that nobody declared");
    for (key, step) in last_steps {
        let left: i64 = cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        let added = left - expiry_ms(&step) as i64;
        // The clock of Redis has gone on for some seconds since.
        assert!((1..=KEPT_MS as i64).contains(&added), "{key}: {left} ms left after {step:?}");
    }
}

/// All calls of one key in one pipeline, since the oracle knows the replies beforehand.
fn replay(connection: &mut Connection, script: &Script, key: &str, steps: &[Step]) {
    let mut calls = pipe();
    for (number, step) in steps.iter().enumerate() {
        assert_eq!(Acquire::from_args(&step.call.to_args()).as_ref(), Some(&step.call));
        if step.missing {
            calls.cmd("DEL").arg(key).ignore();
        }
        let clock_us = step.clock * 1000 + number as u64 * 7 % 1000;
        calls.add_command(script.call_at(clock_us, key, &step.call));
    }
    let replies: Vec<Value> = calls.query(connection).unwrap_or_else(|error| panic!("{key}: {error}"));
    assert_eq!(replies.len(), steps.len());
    for (number, (found, step)) in replies.iter().zip(steps).enumerate() {
        let wanted = reply_and_calls(key, step);
        assert!(*found == wanted, "{key}, step {number}\nfound  {found:?}\nwanted {wanted:?}\nat {step:#?}");
    }
}

/// What the clocked script returns: the reply, and then every call that the script made, word for word.
fn reply_and_calls(key: &str, step: &Step) -> Value {
    let reply = step.reply.to_list().into_iter().map(Value::Int).collect();
    let [get, set] = ["GET", "SET"].map(|name| format!("{name} {key}"));
    let value = step.after.encode().expect("a call stores the bucket");
    let expiry = format!(" PX {}", expiry_ms(step));
    let set = [set.as_bytes(), b" ", &value, expiry.as_bytes()].concat();
    let calls = ["TIME".into(), get.into(), set].map(Value::BulkString);
    let noted = iter::once(Value::Array(reply)).chain(calls);
    Value::Array(noted.collect())
}

fn expiry_ms(step: &Step) -> u64 {
    step.after.expires_at.expect("a call stores the bucket") - step.clock
}

/// Whatever callers report: lent x period <= used, and no slot is stored that has ended.
fn assert_lent_tokens_count_against_the_burst_until_their_slot_ends(key: &str, steps: &[Step]) {
    for step in steps {
        assert!(step.call.units(step.after.lent()) <= step.after.used, "{key}: {step:#?}");
        assert!(step.after.slots.iter().all(|slot| slot.end > step.after.time), "{key}: {step:#?}");
    }
}

/// In every interval, from each moment to each later one: what was spent x period <= burst x period + requests x
/// length. Returns how often at most a tenth of that was left.
fn assert_limits_kept(key: &str, history: &History) -> usize {
    let mut promise: Option<Promise> = None;
    let mut tight = 0;
    for (number, step) in history.steps.iter().enumerate() {
        let spends = step.spent.iter().copied();
        let mut count = |promise: &mut Promise, time: u64, tokens: u64| {
            promise.count(time, tokens);
            let Promise { limit, most, used, .. } = *promise;
            assert!(used <= most, "{key}, step {number}: {used} of {most} units by {limit:?} at {time}: {step:#?}");
            tight += usize::from(tokens > 0 && used > most - most / 10);
        };
        if let Some(promise) = &mut promise {
            spends.for_each(|(time, tokens)| count(promise, time, tokens));
        } else {
            assert_eq!(spends.len(), 0, "{key}: spent before the first call");
        }
        // A changed limit begins a promise of its own.
        let mut current = promise.take().filter(|promise| promise.limit == step.limit);
        let current = current.get_or_insert_with(|| Promise::beginning_with(step));
        count(current, step.after.time + step.shift, step.admitted);
        promise = Some(*current);
    }
    tight
}

/// The limit as a bucket that leaks: in all intervals up to now the most that is spent above the rate. It is at most
/// the burst exactly if every interval keeps the limit.
#[derive(Clone, Copy)]
struct Promise {
    limit: Limit,
    most: i128,
    used: i128,
    time: u64,
}

impl Promise {
    fn beginning_with(step: &Step) -> Promise {
        let time = step.after.time + step.shift;
        // Where the burst was lowered below what is lent, that may still be spent.
        let lent = step.before.slots.iter().filter(|slot| slot.end > step.before.time).map(|slot| slot.tokens).sum();
        let most = step.call.capacity().max(step.call.units(lent));
        Promise { limit: step.limit, most, used: 0, time }
    }

    fn count(&mut self, time: u64, tokens: u64) {
        let leaked = i128::from(time - self.time) * i128::from(self.limit.requests);
        self.used = (self.used - leaked).max(0) + self.limit.exact().units(tokens);
        self.time = time;
    }
}

#[test]
fn after_a_denial_every_moment_before_retry_after_is_denied_and_that_moment_is_granted() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::clocked(&mut connection);
    let seed = seed();
    let mut probes = 0;
    for number in 0..600 {
        let random = &mut Random::new(seed, number);
        let key = format!("retry:{number}");
        probes += probe_retry_after(&mut connection, &script, random, &key);
    }
    println!("{probes} probes");
}

/// Takes from a full bucket, asks too early for more, and then asks at the moments around retry-after: of copies of
/// the key, and again of the key itself, since what is denied must not cost anything. Returns how often it asked.
fn probe_retry_after(connection: &mut Connection, script: &Script, random: &mut Random, key: &str) -> usize {
    let (limit, first, cost, too_early) = loop {
        let limit = Limit::random(random);
        let first = random.within(1, limit.burst);
        let cost = random.within(limit.burst - first + 1, limit.burst);
        let call = limit.exact();
        let too_early = call.wait(call.units(first) + call.units(cost) - call.capacity());
        if too_early <= YEAR_MS {
            break (limit, first, cost, too_early);
        }
    };
    let call = |key: &str, clock: u64, cost: u64| script.call_at(clock * 1000 + 999, key, &asking(limit, &[(cost, 1)]));
    let mut ask = |clock: u64, cost: u64| {
        let (reply, ..): Noted = call(key, clock, cost).query(connection).unwrap();
        (reply[LEVEL], reply[GRANTED])
    };
    let start = history::clock(random);
    let (_, granted) = ask(start, first);
    assert_eq!(granted, 1, "{key}: a full bucket of {limit:?} has {first}");
    let now = start + random.below(too_early);
    let (level, granted) = ask(now, cost);
    assert_eq!(granted, 0, "{key}: {limit:?} grants {cost} at {level}");
    let gone_back = ask(now - random.below(1001), cost);
    assert_eq!(gone_back, (level, 0), "{key}: {limit:?}");

    let call_of = limit.exact();
    let retry_after = call_of.wait(call_of.units(cost) - i128::from(level));
    let mut denied: Vec<u64> = (0..retry_after.min(32)).collect();
    denied.extend((0..8).map(|_| random.below(retry_after)));
    denied.extend([retry_after.saturating_sub(2), retry_after - 1]);
    denied.sort_unstable();
    let later = [0, 1, random.below(YEAR_MS)].map(|more| retry_after + more);
    let of_copies = [&denied[..], &later].concat();
    let of_the_key = [&denied[..], &[retry_after]].concat();
    let mut calls = pipe();
    for wait in &of_copies {
        calls.cmd("COPY").arg(&[key, "probe", "REPLACE"]).ignore();
        calls.add_command(call("probe", now + wait, cost));
    }
    for wait in &of_the_key {
        calls.add_command(call(key, now + wait, cost));
    }
    let replies: Vec<Noted> = calls.query(connection).unwrap();
    let waits = [of_copies, of_the_key].concat();
    assert_eq!(replies.len(), waits.len());
    for (&wait, (reply, ..)) in waits.iter().zip(replies) {
        assert_eq!(
            reply[GRANTED],
            i64::from(wait >= retry_after),
            "{key}: {cost} of {limit:?} at level {level}, retry-after {retry_after} ms, asked after {wait} ms",
        );
    }
    waits.len()
}

#[test]
fn a_clock_that_goes_back_adds_nothing_and_one_that_was_set_back_locks_nobody_out() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::clocked(&mut connection);
    let start = 1_700_000_000_000;
    let (second, hour) = (1000, 3_600_000);
    // At 10 an hour a token comes every 360 s. The expiry is what the clock is behind, the time to full, and a second.
    let set = start - 24 * hour;
    let rows = [
        (start, 10, [0, hour, 10], hour + second),
        // By a second at most: time stands still until the clock has caught up.
        (start - 1, 1, [0, hour, 0], 1 + hour + second),
        (start - second, 1, [0, hour, 0], second + hour + second),
        (start, 1, [0, hour, 0], hour + second),
        (start + 359_999, 1, [3_599_990, 3_240_001, 0], 3_241_001),
        (start + 360_000, 1, [0, hour, 1], hour + second),
        (start + 359_999, 1, [0, hour, 0], 1 + hour + second),
        // By more: it goes on from there.
        (start + 360_000 - second - 1, 1, [0, hour, 0], hour + second),
        (start + 720_000 - second - 2, 1, [3_599_990, 3_240_001, 0], 3_241_001),
        (start + 720_000 - second - 1, 1, [0, hour, 1], hour + second),
        // By a day: after the time for a token there is one, and no sooner.
        (set, 1, [0, hour, 0], hour + second),
        (set + 359_999, 1, [3_599_990, 3_240_001, 0], 3_241_001),
        (set + 360_000, 1, [0, hour, 1], hour + second),
        // And forward again: it is full, and no more than that.
        (start, 11, [0, hour, 10], hour + second),
    ];
    for (clock, count, wanted, expiry) in rows {
        let call = script.call_at(clock * 1000, "bucket", &asking(TEN_AN_HOUR, &[(1, count)]));
        let (reply, _, _, set): Noted = call.query(&mut connection).unwrap();
        let [level, reset_ms, granted] = wanted.map(|number| number as i64);
        assert_eq!(reply, [0, level, reset_ms, 0, 0, 0, 0, 0, granted], "at {clock}");
        let expiry = format!(" PX {expiry}");
        assert!(set.ends_with(expiry.as_bytes()), "at {clock}: {set:?}");
    }
}

#[test]
fn the_script_as_it_is_reads_the_clock_of_redis_and_lets_the_key_expire() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::plain(&mut connection);
    let before = redis_time_ms(&mut connection);
    let asked = asking(TEN_AN_HOUR, &[(3, 2), (7, 1), (2, 1), (1, 9)]);
    let call = script.call("bucket", &Acquire { number: NUMBER, ..asked });
    let reply: Vec<u64> = call.query(&mut connection).unwrap();
    let after = redis_time_ms(&mut connection);
    let left: u64 = cmd("PTTL").arg("bucket").query(&mut connection).unwrap();
    let value: Vec<u8> = cmd("GET").arg("bucket").query(&mut connection).unwrap();

    assert_eq!(reply, [NUMBER, 0, 3_600_000, 0, 0, 0, 0, 0, 2, 0, 1, 2]);
    assert!((3_540_000..=3_601_000).contains(&left), "{left} ms left");
    let (used, time) = value.split_at(8);
    assert_eq!(used, 36_000_000f64.to_le_bytes());
    let time = f64::from_le_bytes(time.try_into().expect("two doubles"));
    assert!((before..=after).contains(&(time as u64)), "{before} <= {time} <= {after}");
}

/// A call without a lease: costs, each with the number of requests that cost it.
fn asking(limit: Limit, runs: &[(u64, u64)]) -> Acquire {
    let runs = runs.iter().map(|&(cost, count)| Run { cost, count }).collect();
    Acquire { runs, ..limit.exact() }
}

fn redis_time_ms(connection: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = cmd("TIME").query(connection).unwrap();
    seconds * 1000 + micros / 1000
}

#[test]
fn a_value_that_the_script_did_not_write_is_told_with_the_number_and_stays_as_it_is() {
    let doubles = |level: f64, time: f64| [level.to_le_bytes(), time.to_le_bytes()].concat();
    let now = 1_700_000_000_000.0;
    let bucket = doubles(1.0, now);
    // Kind, tokens and end; the kind is all that a slot can be known by.
    let slot = |kind: u8| [&[kind][..], &[1, 0, 0, 0, 0, 0], &[0xff; 6]].concat();
    let with_slots = |kinds: &[u8]| kinds.iter().fold(bucket.clone(), |value, &kind| [value, slot(kind)].concat());
    let values = [
        vec![],
        b"1".to_vec(),
        vec![0; 15],
        vec![0; 17],
        vec![0; 28],
        vec![0; 29],
        vec![0; 32],
        vec![0; 42],
        vec![0; 68],
        vec![0; 81],
        vec![0xff; 16],
        vec![0xff; 29],
        vec![b'1'; 16 + 13],
        vec![b'1'; 16 + 2 * 13],
        [&bucket[..], b"thirteen more"].concat(),
        with_slots(&[0]),
        with_slots(&[3]),
        with_slots(&[1, 2, 0xff]),
        with_slots(&[0, 1, 2, 1]),
        with_slots(&[1, 2, 1, 2, 1]),
        [with_slots(&[1]), vec![1]].concat(),
        with_slots(&[1, 2])[..41].to_vec(),
        [doubles(f64::NAN, now), slot(1)].concat(),
        b"0000000000000000".to_vec(),
        b"0123456789abcdef".to_vec(),
        b"{\"tokens\": 1000}".to_vec(),
        doubles(f64::NAN, now),
        doubles(0.0, f64::NAN),
        doubles(f64::INFINITY, now),
        doubles(0.0, f64::INFINITY),
        doubles(0.0, f64::NEG_INFINITY),
        doubles(0.0, -1.0),
        doubles(0.5, now),
        doubles(0.0, now + 0.5),
        doubles(EXACT as f64, now),
        doubles(-EXACT as f64, now),
        doubles(0.0, EXACT as f64),
    ];
    let other_types: [(&str, &[&str]); 5] = [
        ("RPUSH", &["1"]),
        ("SADD", &["1"]),
        ("HSET", &["level", "1"]),
        ("ZADD", &["1", "1"]),
        ("XADD", &["*", "level", "1"]),
    ];
    let set = |value: Vec<u8>| cmd("SET").arg("bucket").arg(value).clone();
    let add = |(name, words)| cmd(name).arg("bucket").arg::<&[&str]>(words).clone();
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::plain(&mut connection);
    for write in values.map(set).into_iter().chain(other_types.map(add)) {
        cmd("DEL").arg("bucket").exec(&mut connection).unwrap();
        write.exec(&mut connection).unwrap();
        let mut look = pipe();
        look.cmd("DUMP").arg("bucket").cmd("PTTL").arg("bucket");
        let before: (Vec<u8>, i64) = look.query(&mut connection).unwrap();
        let call = script.call("bucket", &Acquire { number: NUMBER, ..asking(TEN_AN_HOUR, &[(1, 1)]) });
        let reply: (u64, String) = call.query(&mut connection).unwrap();
        let write = String::from_utf8_lossy(&write.get_packed_command()).into_owned();
        assert_eq!(reply, (NUMBER, "WEIR the key holds no token bucket".to_owned()), "after {write:?}");
        let after: (Vec<u8>, i64) = look.query(&mut connection).unwrap();
        assert_eq!(before, after, "{write:?}");
    }
}

#[test]
fn a_call_that_was_cut_short_is_an_error_and_writes_nothing() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::plain(&mut connection);
    let mut words = asking(TEN_AN_HOUR, &[(1, 1), (2, 1)]).to_args();
    words[5] = 1;
    for length in (0..12).chain([13, 15]) {
        let mut call = cmd("EVALSHA");
        call.arg(&script.0).arg(1).arg("bucket").arg(&words[..length]);
        let reply = call.query::<Value>(&mut connection);
        assert!(reply.is_err(), "{reply:?} to {length} arguments");
    }
    let mut no_key = cmd("EVALSHA");
    no_key.arg(&script.0).arg(0).arg(&words);
    let reply = no_key.query::<Value>(&mut connection);
    assert!(reply.is_err(), "{reply:?} to a call without a key");
    let keys: usize = cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0);
}

#[test]
fn the_pinned_sha_is_the_one_that_redis_gives_the_script() {
    let redis = Redis::start();
    let named = Script::plain(&mut redis.connect()).0;
    assert_eq!(TOKEN_BUCKET.sha, named, "the script has changed; pin its new name in src/algorithm/token_bucket.rs");
}

/// Shown where a test fails.
fn seed() -> u64 {
    let seed = env::var("WEIR_SEED").map_or(1, |text| text.parse().expect("WEIR_SEED is a number"));
    println!("WEIR_SEED={seed}");
    seed
}
