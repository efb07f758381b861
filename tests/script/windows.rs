//! The same of `lua/fixed_window.lua`: random histories against its oracle, and its promise, window by window.

use std::collections::BTreeMap;
use std::{iter, mem};

use redis::{Connection, Value, cmd, pipe};
use weir::algorithm::FIXED_WINDOW;
use weir_sim::random::Random;
use weir_sim::root::{Acquire, Algorithm, EXACT, Reply, Root, Run};

use super::callers::{self, Caller, Fate, Lease};
use super::history::clock;
use super::limits::{DAY_MS, HOUR_MS};
use super::server::{KEPT_MS, Redis, Script};
use super::{GRANTED, LEVEL, Noted, seed};

/// So many requests in each window, which begin so long after multiples of the period; and the terms of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    requests: u64,
    period_ms: u64,
    offset_ms: u64,
    lend: u64,
}

impl Limit {
    fn random(random: &mut Random) -> Limit {
        let second_to_month = [1000, 1000, 2000, 60_000, HOUR_MS, DAY_MS, 31 * DAY_MS];
        let period_ms = second_to_month[random.below(7) as usize];
        // Whole seconds are what a policy allows; the script has to be exact for every period.
        let period_ms = if random.one_in(4) { random.of_any_size(31 * DAY_MS) } else { period_ms };
        let offset_ms = if random.one_in(2) { random.below(period_ms) } else { 0 };
        Limit { requests: 1, period_ms, offset_ms, lend: 1 }.changed(random)
    }

    /// Another limit with the same windows, which nothing that is stored depends on.
    fn changed(self, random: &mut Random) -> Limit {
        let most = ((EXACT - 1) as u64 / self.period_ms).min((1 << 48) - 1);
        let requests = match random.below(6) {
            0 => random.within(1, 4),
            1..4 => random.within(1, 1000),
            4 => most - random.below(3),
            _ => random.of_any_size(most),
        };
        let requests = requests.clamp(1, most);
        let lend = if random.one_in(4) { random.within(0, requests) } else { requests / 2 };
        Limit { requests, lend, ..self }
    }

    /// A call that wants nothing.
    fn call(self) -> Acquire {
        let Limit { requests, period_ms, offset_ms, lend } = self;
        let algorithm = Algorithm::FixedWindow;
        Acquire {
            algorithm,
            offset_ms,
            requests,
            period_ms,
            burst: requests,
            life_ms: 300_000,
            lend,
            ..Acquire::default()
        }
    }

    fn asking(self, cost: u64) -> Acquire {
        Acquire { runs: vec![Run { cost, count: 1 }], ..self.call() }
    }
}

/// One call that reached the window, and what the oracle makes of it.
#[derive(Clone, Debug)]
struct Step {
    /// Redis has no such key: this is the first call, or the key has expired.
    missing: bool,
    clock: u64,
    before: Root,
    call: Acquire,
    reply: Reply,
    after: Root,
}

/// What was spent in the window of the key's time: a border that it passes begins one, and no clock that is set back.
struct Promise {
    time: u64,
    spent: u64,
    /// The largest limit of the window, or what was out when it began: more only where the limit was lowered, and the
    /// clock set back from when that was lent.
    most: u64,
}

impl Promise {
    fn pass(&mut self, to: u64, limit: Limit, root: &Root) {
        let begin = limit.call().window_begin(to);
        if begin > self.time {
            let out = root.slots.iter().filter(|slot| slot.end > begin).map(|slot| slot.tokens).sum();
            (self.spent, self.most) = (0, out);
        }
        self.time = to;
        self.most = self.most.max(limit.requests);
    }
}

struct World {
    /// No caller lies, and windows stay where they are, so the promise is kept.
    honest: bool,
    limit: Limit,
    clock: u64,
    root: Root,
    callers: Vec<Caller>,
    past: Vec<Lease>,
    /// Calls that are still under way, though nobody waits for them any more.
    late: Vec<Acquire>,
    promise: Promise,
    /// How often at most a tenth of a window was left.
    tight: usize,
}

fn history(random: &mut Random, length: u64, met: &mut Met) -> Vec<Step> {
    let limit = Limit::random(random);
    let clock = clock(random);
    let mut world = World {
        honest: !random.one_in(3),
        limit,
        clock,
        root: Root::default(),
        callers: vec![Caller::default(); random.within(1, 4) as usize],
        past: Vec::new(),
        late: Vec::new(),
        promise: Promise { time: clock, spent: 0, most: limit.requests },
        tight: 0,
    };
    let changes = random.one_in(3);
    let length = random.within(1, length);
    let mut steps = Vec::new();
    while (steps.len() as u64) < length {
        if changes && random.one_in(20) {
            world.limit = world.limit.changed(random);
            if !world.honest && random.one_in(2) {
                world.limit.offset_ms = random.below(world.limit.period_ms);
            }
            world.late.clear();
        }
        steps.extend(world.step(random, met));
    }
    met.add("window nearly used", world.tight);
    steps
}

impl World {
    fn step(&mut self, random: &mut Random, met: &mut Met) -> Option<Step> {
        let (caller, fate) = (random.below(self.callers.len() as u64) as usize, Fate::random(random));
        if matches!(fate, Fate::Lost | Fate::Late) {
            let call = self.call(random, caller);
            self.late.extend((fate == Fate::Late).then_some(call));
            self.callers[caller].forget();
            return None;
        }
        let time = if self.root.expires_at.is_none() { self.clock } else { self.root.time };
        self.clock = self.next_clock(random);
        let was_set_back = time > self.clock + 1000;
        self.spend(random, time, if was_set_back { time } else { time.max(self.clock) });
        if was_set_back {
            self.callers.iter_mut().for_each(|caller| caller.set_back(time - self.clock));
            self.promise.time = self.clock;
        }
        let missing = self.root.expires_at.is_none_or(|at| self.clock > at && random.one_in(2));
        if missing {
            self.root = Root::default();
        } else if self.root.expires_at < Some(self.clock) {
            // Redis may keep a key a little longer.
            self.root.expires_at = Some(u64::MAX);
        }
        let late = !self.late.is_empty() && random.one_in(4);
        let call = if late { self.late.remove(0) } else { self.call(random, caller) };
        let before = self.root.clone();
        let time = if was_set_back { self.clock } else { before.time.max(self.clock) };
        self.promise.pass(time, self.limit, &before);
        let reply = self.root.acquire(self.clock, &call);
        assert_eq!(self.root.time, time, "one time for all");
        let admitted = match fate {
            Fate::Answered if !late => self.callers[caller].accept(&call, &reply, time),
            _ => self.callers[caller].forget(),
        };
        self.count(admitted);
        let step = Step { missing, clock: self.clock, before, call, reply, after: self.root.clone() };
        met.note(&step, was_set_back);
        Some(step)
    }

    /// What callers spend of their leases until the call, in the order of time.
    fn spend(&mut self, random: &mut Random, from: u64, to: u64) {
        let spent = self.callers.iter_mut().filter_map(|caller| caller.spend(random, from, to));
        let mut spent: Vec<(u64, u64)> = spent.collect();
        spent.sort_unstable();
        for (time, tokens) in spent {
            self.promise.pass(time, self.limit, &self.root);
            self.count(tokens);
        }
    }

    fn count(&mut self, tokens: u64) {
        let Promise { spent, most, .. } = &mut self.promise;
        *spent += tokens;
        let is_kept = !self.honest || *spent <= *most;
        assert!(is_kept, "{spent} of {most} by {:?}: {:#?}", self.limit, self.root);
        self.tight += usize::from(self.honest && tokens > 0 && *spent > *most - *most / 10);
    }

    fn next_clock(&self, random: &mut Random) -> u64 {
        let call = self.limit.call();
        let end = call.window_begin(self.clock) + call.period_ms;
        let around = |random: &mut Random, moment: u64| moment.saturating_add_signed(random.below(3) as i64 - 1);
        match random.below(20) {
            0..8 => self.clock,
            8 => self.clock + 1,
            9..12 => self.clock + random.below(call.period_ms / 4 + 1),
            12 => around(random, end),
            13 => end + random.below(call.period_ms),
            14 => {
                let later = call.period_ms * random.below(3);
                around(random, end + later)
            }
            15 => self.clock - random.of_any_size(2 * call.period_ms),
            16 => self.clock - random.of_any_size(2000),
            17 => around(random, self.root.time.max(self.clock)),
            18 => around(random, self.root.expires_at.map_or(end, |at| at.min(self.clock + 2 * DAY_MS))),
            _ => match self.root.slots.last() {
                Some(slot) => around(random, slot.end).max(self.clock),
                None => self.clock + random.below(1000),
            },
        }
    }

    fn call(&mut self, random: &mut Random, caller: usize) -> Acquire {
        let mut lease = self.callers[caller].report(random);
        if !self.honest && random.one_in(3) {
            lease = callers::lie(random, lease, &self.past);
        }
        self.past.push(lease);
        let Lease { end, size, tokens: carry, .. } = lease;
        let requests = self.limit.requests;
        let want = match random.below(10) {
            0 | 1 => 0,
            2 | 3 => random.within(1, 10),
            4 => (carry + random.below(3)).saturating_sub(1),
            5 => random.of_any_size((1 << 53) - 1),
            _ => random.of_any_size(requests),
        };
        let cost = |random: &mut Random| match random.below(4) {
            0 => 1,
            1 => random.within(1, requests.min(10)),
            2 => random.within(1, requests / 8 + 1).min(requests),
            _ => random.within(1, requests),
        };
        let asks_ahead = want > 0 && random.one_in(2);
        let runs = if asks_ahead { 0 } else { [0, 1, 1, 1, 2, 3][random.below(6) as usize] };
        let runs = (0..runs).map(|_| Run { cost: cost(random), count: random.below(5) });
        let runs = runs.collect();
        let debt = match random.below(50) {
            0 => random.within(1, 5).min(requests),
            1 => random.of_any_size(requests),
            2 if !self.honest => (EXACT - 1) as u64,
            _ => 0,
        };
        let (hold, number) = (random.one_in(5), random.of_any_size((1 << 53) - 1));
        Acquire { want, end, size, carry, hold, debt, number, runs, ..self.limit.call() }
    }
}

/// What the histories met, so that a generator that has become tame fails the test.
#[derive(Debug, Default)]
struct Met(BTreeMap<&'static str, usize>);

impl Met {
    fn add(&mut self, name: &'static str, times: usize) {
        *self.0.entry(name).or_default() += times;
    }

    fn note(&mut self, step: &Step, was_set_back: bool) {
        let Step { missing, before, call, reply, after, clock } = step;
        let begins = !missing && call.window_begin(after.time) > before.time;
        let runs = || reply.granted.iter().zip(call.runs.iter().map(|run| run.count));
        let all = runs().all(|(&granted, count)| granted == count);
        let alive = before.slots.iter().find(|slot| slot.end == call.end && slot.end > after.time);
        let taken = alive.map_or(0, |slot| slot.tokens.min(call.size));
        let window_end = call.window_begin(after.time) + call.period_ms;
        let was_back = was_set_back && !missing;
        let rows = [
            ("step", true),
            ("key missing", *missing),
            ("granted", reply.granted.iter().any(|&count| count > 0)),
            ("refused", !all),
            ("window begins", begins),
            ("window begins with what is lent", begins && before.slots.iter().any(|slot| slot.end > after.time)),
            ("clock behind, time stands still", !missing && *clock < before.time && !was_back),
            ("clock set back, in the window", was_back && call.window_begin(*clock) == call.window_begin(before.time)),
            ("clock set back, to one before", was_back && call.window_begin(*clock) < call.window_begin(before.time)),
            ("lends, rich", reply.extra > 0 && !reply.limited),
            ("lends, and less than is wanted", reply.extra > 0 && reply.limited),
            ("lends nothing, scarce", reply.extra == 0 && reply.limited),
            ("kept all", taken > 0 && reply.kept > 0 && reply.kept == call.carry.min(taken)),
            ("gave back", taken > 0 && call.carry.min(taken) > reply.kept),
            ("reported a lease that is over", call.size > 0 && alive.is_none()),
            ("a lease in a slot that ends later", reply.end > window_end),
            ("a lease until the window ends", reply.end == window_end),
            ("level negative", reply.level < 0),
            ("used just under 2^53", after.used > EXACT - EXACT / 1000),
            ("held", call.hold && reply.granted.iter().any(|&count| count > 0)),
            ("debt", call.debt > 0),
        ];
        for (name, met) in rows {
            self.add(name, usize::from(met));
        }
    }

    fn assert_wild(&self) {
        println!("{:#?}", self.0);
        for (&name, &times) in &self.0 {
            let wanted = match name {
                "step" => 100_000,
                "granted" | "refused" | "window begins" => 10_000,
                "window begins with what is lent" | "a lease in a slot that ends later" => 50,
                _ => 200,
            };
            assert!(times >= wanted, "{name}: only {times}");
        }
    }
}

fn expiry_ms(step: &Step) -> u64 {
    step.after.expires_at.expect("a call stores the window") - step.clock
}

#[test]
fn random_histories_of_windows_are_equal_to_the_oracle_and_no_window_admits_more() {
    let seed = seed();
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::clocked_text(&mut connection, &FIXED_WINDOW.text());
    let mut met = Met::default();
    let mut last_steps = Vec::new();
    for number in 0..600 {
        let mut steps = history(&mut Random::new(seed, 1 << 32 | number), 400, &mut met);
        let key = format!("window:{number}");
        replay(&mut connection, &script, &key, &steps);
        for step in &steps {
            assert!(i128::from(step.after.lent()) <= step.after.used, "{key}: {step:#?}");
            assert!(step.after.slots.iter().all(|slot| slot.end > step.after.time), "{key}: {step:#?}");
            let left = step.call.window_begin(step.after.time) + step.call.period_ms - step.after.time;
            assert!(step.reply.reset_ms == left && step.reply.valid_ms <= left, "{key}: {step:#?}");
        }
        last_steps.push((key, mem::take(&mut steps).pop().expect("a history has a step")));
    }
    met.assert_wild();
    let keys: usize = cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, last_steps.len(), "keys that nobody declared");
    for (key, step) in last_steps {
        let left: i64 = cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        let added = left - expiry_ms(&step) as i64;
        assert!((1..=KEPT_MS as i64).contains(&added), "{key}: {left} ms left after {step:?}");
    }
}

/// All calls of one key in one pipeline, since the oracle knows the replies beforehand.
fn replay(connection: &mut Connection, script: &Script, key: &str, steps: &[Step]) {
    let mut calls = pipe();
    for (number, step) in steps.iter().enumerate() {
        let read = Acquire::read(Algorithm::FixedWindow, &step.call.to_args());
        assert_eq!(read.as_ref(), Some(&step.call));
        if step.missing {
            calls.cmd("DEL").arg(key).ignore();
        }
        calls.add_command(script.call_at(step.clock * 1000 + number as u64 * 7 % 1000, key, &step.call));
    }
    let replies: Vec<Value> = calls.query(connection).unwrap_or_else(|error| panic!("{key}: {error}"));
    assert_eq!(replies.len(), steps.len());
    for (number, (found, step)) in replies.iter().zip(steps).enumerate() {
        let reply = Value::Array(step.reply.to_list().into_iter().map(Value::Int).collect());
        let value = step.after.encode().expect("a call stores the window");
        let set = [format!("SET {key} ").as_bytes(), &value, format!(" PX {}", expiry_ms(step)).as_bytes()].concat();
        let calls = ["TIME".into(), format!("GET {key}").into(), set].map(Value::BulkString);
        let wanted = Value::Array(iter::once(reply).chain(calls).collect());
        assert!(*found == wanted, "{key}, step {number}\nfound  {found:?}\nwanted {wanted:?}\nat {step:#?}");
    }
}

#[test]
fn after_a_denial_every_moment_of_the_window_is_denied_and_the_next_window_grants() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::clocked_text(&mut connection, &FIXED_WINDOW.text());
    let seed = seed();
    for number in 0..300 {
        let random = &mut Random::new(seed, number);
        let limit = Limit::random(random);
        let key = format!("retry:{number}");
        let first = random.within(1, limit.requests);
        let cost = random.within(limit.requests - first + 1, limit.requests);
        let start = clock(random);
        let mut ask = |key: &str, clock: u64, cost: u64| {
            let command = script.call_at(clock * 1000 + 999, key, &limit.asking(cost));
            let (reply, ..): Noted = command.query(&mut connection).unwrap();
            (reply[LEVEL], reply[LEVEL + 1] as u64, reply[GRANTED])
        };
        let end = limit.call().window_begin(start) + limit.period_ms;
        assert_eq!(ask(&key, start, first), ((limit.requests - first) as i64, end - start, 1), "{limit:?}");
        for now in [start, start + random.below(end - start), end - 1] {
            assert_eq!(ask(&key, now, cost), ((limit.requests - first) as i64, end - now, 0), "{limit:?} at {now}");
        }
        let next = end + random.below(limit.period_ms);
        let wanted = ((limit.requests - cost) as i64, end + limit.period_ms - next, 1);
        assert_eq!(ask(&key, next, cost), wanted, "{limit:?} at {next}");
    }
}

#[test]
fn a_value_that_is_no_window_is_told_and_stays_and_the_sha_is_pinned() {
    let redis = Redis::start();
    let mut connection = redis.connect();
    let script = Script::load(&mut connection, &FIXED_WINDOW.text());
    assert_eq!(FIXED_WINDOW.sha, script.0, "pin the script's new name in src/algorithm/fixed_window.rs");
    let limit = Limit { requests: 10, period_ms: 60_000, offset_ms: 0, lend: 5 };
    let doubles = |used: f64, time: f64| [used.to_le_bytes(), time.to_le_bytes()].concat();
    let values: [Vec<u8>; 7] = [
        vec![],
        b"1".to_vec(),
        vec![0; 17],
        doubles(f64::NAN, 1e12),
        doubles(0.5, 1e12),
        doubles(0.0, -1.0),
        [doubles(1.0, 1e12), vec![3; 13]].concat(),
    ];
    for value in values {
        cmd("SET").arg("window").arg(&value).exec(&mut connection).unwrap();
        let call = Acquire { number: 42, ..limit.asking(1) };
        let reply: (u64, String) = script.call("window", &call).query(&mut connection).unwrap();
        assert_eq!(reply, (42, "WEIR the key holds no fixed window".to_owned()), "{value:?}");
        let stays: Vec<u8> = cmd("GET").arg("window").query(&mut connection).unwrap();
        assert_eq!(stays, value);
    }
}
