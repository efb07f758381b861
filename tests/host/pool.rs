//! What a proxy keeps of its own in shared data: what it knows of dry buckets, its own buckets, and the breaker. Its
//! workers share them, and whatever happens to shared data, nobody passes who should not.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use serde_json::{Value, json};
use weir_sim::random::Random;

use crate::failures::{ROWS, Row, counts};
use crate::fake::{Phase, fake};
use crate::policy::{LIMITED, UNAVAILABLE, grants, local, passed, policy};
use crate::proxy::{Proxy, START_MS, in_this_thread, in_vm, with_policy};
use crate::space::Space;
use crate::vms::Vm;

const HOUR_MS: u64 = 3_600_000;

/// What one of two proxies has of 60/m.
const SHARE: usize = 30;

/// The usual policy with a local bucket for when the limiter fails.
fn on_error_local(changes: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let local = [("/proxies", json!(2)), ("/rules/0/on_error", json!("local"))];
    [&local[..], changes].concat()
}

/// How many of so many requests pass at once.
fn pass(proxy: &Proxy, root: u32, user: &str, count: usize) -> usize {
    let phases = proxy.phases(&proxy.gets(root, user, count));
    phases.into_iter().filter(|phase| *phase == Phase::Passed).count()
}

/// A request of u1 that goes the limiter's way, with this answer.
#[track_caller]
fn asks(proxy: &Proxy, root: u32, reply: &str) -> u32 {
    let stream = proxy.get(root, "u1");
    assert_eq!(proxy.phase(stream), Phase::Paused, "it asks the limiter");
    proxy.run();
    proxy.answer(reply);
    stream
}

/// The bucket of u1 is found dry.
#[track_caller]
fn dry(proxy: &Proxy, root: u32) {
    let stream = asks(proxy, root, &grants(0, &[0]));
    assert_eq!(proxy.phase(stream), Phase::Answered);
}

#[track_caller]
fn refused_at_once(proxy: &Proxy, root: u32) {
    let stream = proxy.get(root, "u1");
    assert_eq!(proxy.phase(stream), Phase::Answered, "it is refused at once");
}

/// So many calls fail.
fn fail(proxy: &Proxy, root: u32, count: usize) {
    for _ in 0..count {
        let stream = proxy.get(root, "u1");
        assert_eq!(proxy.phase(stream), Phase::Paused);
        proxy.run();
        proxy.reset(&proxy.call());
    }
}

fn breaker_is_open(proxy: &Proxy, root: u32) -> bool {
    let stream = proxy.get(root, "somebody else");
    let waits = proxy.phase(stream) == Phase::Paused;
    if waits {
        proxy.leave(stream);
        proxy.run();
    }
    !waits
}

// Buckets that are known to be dry.

#[test]
fn an_attack_on_one_key_costs_a_call_for_each_token() {
    with_policy(&[], |proxy, root| {
        dry(proxy, root);
        for second in 1..=5 {
            proxy.trace();
            for ms in 0..1000 {
                let stream = proxy.get(root, "u1");
                assert_eq!(proxy.phase(stream), Phase::Answered, "{ms} ms after the bucket was dry");
                proxy.advance(1);
            }
            assert!(proxy.trace().iter().all(|call| call != "enqueue" && !call.starts_with("http_call")));
            let crowd = proxy.gets(root, "u1", 200);
            assert_eq!(proxy.phases(&crowd), [Phase::Paused; 200]);
            proxy.run();
            assert_eq!(proxy.asked(), "rl:{user.u1}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 200");
            proxy.answer(grants(0, &[1]));
            proxy.run();
            assert_eq!(proxy.phases(&crowd)[..2], [Phase::Passed, Phase::Answered]);
            assert_eq!(proxy.counts()["calls"], 1 + second);
        }
    });
}

#[test]
fn what_is_known_is_told_as_the_limiter_would_tell_it() {
    with_policy(&[], |proxy, root| {
        // Half a token is there.
        asks(proxy, root, r#"{"EVALSHA":[30000,59500,0,0,0,0,0,0]}"#);
        let stream = proxy.get(root, "u1");
        assert_eq!(proxy.sees(stream), LIMITED);
        proxy.advance(499);
        let stream = proxy.get(root, "u1");
        assert_eq!(proxy.sees(stream), LIMITED, "all of it is in one second");
        proxy.advance(1);
        asks(proxy, root, &grants(0, &[1]));
        // A request that costs five has to wait for longer, and one that costs one is not held up by it. What was granted
        // since it was known to be dry counts: one has come back of five.
        proxy.advance(1000);
        let bulk = [(":method", "GET"), (":path", "/v1/bulk"), ("x-user-id", "u1")];
        let dear = proxy.request(root, &bulk);
        let sees = proxy.sees(dear);
        assert!(sees.contains("retry-after: 4 |") && sees.contains("x-ratelimit-remaining: 1 |"), "{sees}");
        asks(proxy, root, &grants(0, &[1]));
    });
}

#[test]
fn a_bucket_that_is_dry_says_nothing_of_another() {
    with_policy(&[], |proxy, root| {
        dry(proxy, root);
        refused_at_once(proxy, root);
        let other = proxy.get(root, "u2");
        let export = [(":method", "POST"), (":path", "/v1/reports/7/export"), ("x-user-id", "u1")];
        let export = proxy.request(root, &export);
        assert_eq!(proxy.phases(&[other, export]), [Phase::Paused; 2]);
    });
}

#[test]
fn a_limit_of_another_policy_holds_with_the_next_request() {
    // All 60 are used, so a raised limit has room at once.
    for changed in ["61/m", "120/m"] {
        with_policy(&[], |proxy, root| {
            dry(proxy, root);
            refused_at_once(proxy, root);
            let changes = [("/rules/0/limits/free/default", json!(changed))];
            assert!(proxy.configure(root, policy(&changes).to_string()));
            let stream = proxy.get(root, "u1");
            assert_eq!(proxy.phase(stream), Phase::Paused, "{changed}");
            proxy.run();
            let requests = changed.trim_end_matches("/m");
            let lent_freely = requests.parse::<u64>().expect("a number") / 2;
            let terms = format!("{requests} 60000 {requests} 300000 {lent_freely}");
            assert_eq!(proxy.asked(), format!("rl:{{user.u1}}:per-user:default:60000:t3 {terms} 0 0 0 0 0 0 1 1"));
        });
    }
    // A lowered one has none: 31 tokens have to come back.
    for (changed, sees) in [("30/m", "429"), ("deny", "403"), ("unlimited", "200")] {
        with_policy(&[], |proxy, root| {
            dry(proxy, root);
            let changes = [("/rules/0/limits/free/default", json!(changed))];
            assert!(proxy.configure(root, policy(&changes).to_string()));
            let stream = proxy.get(root, "u1");
            assert!(proxy.sees(stream).starts_with(sees), "{changed}");
        });
    }
}

// Several workers.

#[test]
fn a_bucket_that_one_worker_knows_to_be_dry_is_dry_for_all() {
    let space = Space::default();
    let [one, other] = [(); 2].map(|()| Vm::start(&space, &policy(&[])));
    one.act(dry);
    for vm in [&one, &other] {
        vm.act(|proxy, root| {
            let stream = proxy.get(root, "u1");
            assert_eq!(proxy.sees(stream), LIMITED);
        });
    }
    other.act(|proxy, _| assert_eq!(proxy.counts().len(), 0, "it has called nobody"));
    // What one finds out later holds for the other as well.
    for vm in [&one, &other] {
        vm.act(|proxy, _| proxy.advance(1000));
    }
    other.act(dry);
    one.act(refused_at_once);
}

#[test]
fn a_local_bucket_is_one_for_all_workers() {
    let failing = on_error_local(&[("/limiters/main/cluster", json!("no-hosts"))]);
    for policy in [local(&[]), policy(&failing)] {
        let space = Space::default();
        let vms = [(); 3].map(|()| Vm::start(&space, &policy));
        let mut passed = 0;
        for round in 0..40 {
            let vm = &vms[round % 3];
            passed += vm.act(|proxy, root| {
                let stream = proxy.get(root, "u1");
                proxy.run();
                usize::from(proxy.phase(stream) == Phase::Passed)
            });
            assert_eq!(passed, SHARE.min(round + 1));
        }
        // After a minute, half of it is there again.
        for vm in &vms {
            vm.act(|proxy, _| proxy.advance(60_000));
        }
        let more: usize = vms
            .iter()
            .map(|vm| {
                vm.act(|proxy, root| {
                    let streams = proxy.gets(root, "u1", 20);
                    proxy.run();
                    proxy.phases(&streams).into_iter().filter(|phase| *phase == Phase::Passed).count()
                })
            })
            .sum();
        assert_eq!(more, 30, "60 tokens come back in two minutes");
    }
}

#[test]
fn workers_open_and_close_the_breaker_together_and_send_one_probe_at_a_time() {
    let space = Space::default();
    let [one, other] = [(); 2].map(|()| Vm::start(&space, &policy(&[])));
    one.act(|proxy, root| {
        fail(proxy, root, 4);
        assert!(!breaker_is_open(proxy, root), "after four failures");
        proxy.calls().iter().for_each(|call| proxy.reset(call));
    });
    one.act(|proxy, root| {
        fail(proxy, root, 1);
        assert!(breaker_is_open(proxy, root), "after five");
        assert_eq!(proxy.counts()["breaker"], 1);
    });
    other.act(|proxy, root| {
        assert!(!breaker_is_open(proxy, root), "before a tick it does not know");
        proxy.advance(10);
        assert!(breaker_is_open(proxy, root));
        assert_eq!(proxy.call_count(), 0);
    });
    one.act(|proxy, _| proxy.advance(10));
    for _ in 0..3 {
        // Within the time between probes, exactly one worker may send one.
        for vm in [&one, &other] {
            vm.act(|proxy, _| proxy.advance(200));
        }
        other.act(|proxy, root| {
            let probe = proxy.get(root, "u1");
            assert_eq!(proxy.phase(probe), Phase::Paused);
            refused_at_once(proxy, root);
            proxy.run();
            proxy.reset(&proxy.call());
            assert_eq!(proxy.sees(probe), UNAVAILABLE);
        });
        one.act(|proxy, root| {
            assert_eq!(pass(proxy, root, "u1", 10), 0);
            assert_eq!((proxy.call_count(), proxy.paused()), (0, 0), "it has not seen the probe, and asks");
        });
    }
    for vm in [&one, &other] {
        vm.act(|proxy, _| proxy.advance(200));
    }
    one.act(|proxy, root| {
        let probe = asks(proxy, root, &grants(59, &[1]));
        assert_eq!(proxy.phase(probe), Phase::Passed);
        asks(proxy, root, &grants(58, &[1]));
    });
    other.act(|proxy, root| {
        proxy.advance(10);
        asks(proxy, root, &grants(57, &[1]));
    });
}

#[test]
fn workers_that_touch_a_bucket_at_once_lose_no_token() {
    const WORKERS: usize = 4;
    for round in 0..20 {
        // They agree on a seed at the same time as well.
        let (space, barrier) = (Space::default(), Barrier::new(WORKERS));
        let worker = || {
            in_this_thread(&space, |proxy| {
                barrier.wait();
                let root = proxy.root(&local(&[]));
                barrier.wait();
                ["u1", "u2", "u3"].map(|user| {
                    barrier.wait();
                    pass(proxy, root, user, 40)
                })
            })
        };
        let passed: Vec<[usize; 3]> = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
        });
        for user in 0..3 {
            let sum: usize = passed.iter().map(|passed| passed[user]).sum();
            assert_eq!(sum, SHARE, "round {round}: {passed:?}");
        }
        assert_eq!(space.values().keys().filter(|key| key.ends_with(".seed")).count(), 1);
    }
}

/// The limiter's bucket of one user.
struct Bucket {
    requests: u64,
    used: u64,
    at_ms: u64,
}

impl Bucket {
    fn refill(&mut self, now_ms: u64) {
        self.used = self.used.saturating_sub((now_ms - self.at_ms) * self.requests);
        self.at_ms = now_ms;
    }

    fn reply(&mut self, now_ms: u64, cost: u64) -> (bool, String) {
        self.refill(now_ms);
        let capacity = self.requests * 60_000;
        let fits = self.used + cost * 60_000 <= capacity;
        self.used += if fits { cost * 60_000 } else { 0 };
        let (level, reset) = (capacity as i64 - self.used as i64, self.used.div_ceil(self.requests));
        (fits, format!("{{\"EVALSHA\":[{level},{reset},0,0,0,0,0,{}]}}", u64::from(fits)))
    }
}

#[test]
fn a_request_is_refused_without_a_call_only_where_the_limiter_would_refuse_it() {
    let (mut at_once, mut asked) = (0, 0);
    for seed in 0..5 {
        let mut dice = Random::seeded(seed);
        let space = Space::default();
        let (mut requests, mut reloads) = (60, 0);
        let limited = |requests: u64| policy(&[("/rules/0/limits/free/default", json!(format!("{requests}/m")))]);
        let vms = [(); 3].map(|()| Vm::start(&space, &limited(requests)));
        let bucket = Bucket { requests, used: 55 * 60_000, at_ms: START_MS };
        let bucket = Arc::new(Mutex::new(bucket));
        for _ in 0..600 {
            let ms = dice.pick(&[0, 0, 1, 10, 100, 500, 1500]);
            for vm in &vms {
                vm.act(move |proxy, _| proxy.advance(ms));
            }
            match dice.below(100) {
                0..3 => {
                    // Up and down.
                    reloads += 1;
                    requests = if reloads % 2 == 0 { 60 + reloads } else { 600 - reloads };
                    let policy = limited(requests).to_string();
                    for vm in &vms {
                        let policy = policy.clone();
                        vm.act(move |proxy, root| assert!(proxy.configure(root, policy)));
                    }
                    bucket.lock().expect("a bucket").requests = requests;
                }
                3 => space.wipe(),
                4 => space.lose("table", dice.pick(&[1, 7, 8, 20])),
                _ => {}
            }
            let (path, cost) = dice.pick(&[("/v1/items", 1), ("/v1/items", 1), ("/v1/bulk", 5)]);
            let bucket = bucket.clone();
            let vm = &vms[dice.below(3) as usize];
            let asks = vm.act(move |proxy, root| {
                let stream = proxy.request(root, &[(":method", "GET"), (":path", path), ("x-user-id", "u1")]);
                let now_ms = fake(|host| host.now_ms);
                let (fits, reply) = bucket.lock().expect("a bucket").reply(now_ms, cost);
                let asks = proxy.phase(stream) == Phase::Paused;
                if asks {
                    proxy.run();
                    proxy.answer(reply);
                    let phase = if fits { Phase::Passed } else { Phase::Answered };
                    assert_eq!(proxy.phase(stream), phase);
                } else {
                    assert_eq!((proxy.phase(stream), fits), (Phase::Answered, false), "seed {seed}");
                }
                asks
            });
            if asks { asked += 1 } else { at_once += 1 }
        }
    }
    assert!(at_once > 300 && asked > 300, "{at_once} at once, {asked} asked");
}

// Several policies in one space.

#[test]
fn policies_of_other_names_do_not_touch_each_other_and_those_of_the_same_share() {
    let named = |namespace: &str, rule: &str| {
        let changes = [("/namespace", json!(namespace)), ("/rules/0/name", json!(rule))];
        (format!("weir.{namespace}.2."), changes)
    };
    // Seed, set and breaker are of the namespace; buckets are of the rule.
    let names = [("rl", "per-user", 3), ("rl", "other", 1), ("edge", "per-user", 3), ("edge", "per-user-2", 1)];
    in_vm(|proxy| {
        let mut before = Space::default().values();
        for (namespace, rule, new) in names {
            let (prefix, changes) = named(namespace, rule);
            let root = proxy.root(&local(&changes));
            assert_eq!(pass(proxy, root, "u1", 40), SHARE, "{prefix}");
            // A second root of the same policy shares the bucket.
            let second = proxy.root(&local(&changes));
            assert_eq!(pass(proxy, second, "u1", 1), 0, "{prefix}");
            let failing = policy(&[&changes[..], &on_error_local(&[])].concat());
            fail(proxy, proxy.root(&failing), if new == 1 { 0 } else { 5 });
            let mut after = proxy.space().values();
            assert!(after.remove("weir.workers").is_some(), "it is nobody's");
            let mut touched = after.iter().filter(|(key, value)| before.get(*key) != Some(value)).map(|(key, _)| key);
            assert!(touched.all(|key| key.starts_with(&prefix)), "{prefix}: {:?}", after.keys());
            assert_eq!(after.len(), before.len() + new, "{prefix}: {:?}", after.keys());
            before = after;
        }
    });
}

#[test]
fn a_local_bucket_goes_on_under_another_limit_and_what_was_used_counts() {
    let limited = |limit| local(&[("/rules/0/limits/free/default", json!(limit))]).to_string();
    in_vm(|proxy| {
        let root = proxy.root(&local(&[]));
        assert_eq!(pass(proxy, root, "u1", 5), 5);
        // Five are used of ten.
        assert!(proxy.configure(root, limited("20/m")));
        assert_eq!(pass(proxy, root, "u1", 3), 3);
        // Of a raised limit all is there but what was used; and back again, more is used than there is.
        assert!(proxy.configure(root, limited("1000/m")));
        assert_eq!(pass(proxy, root, "u1", 493), 492);
        assert!(proxy.configure(root, limited("20/m")));
        assert_eq!(pass(proxy, root, "u1", 1), 0);
        assert!(proxy.configure(root, limited("deny")));
        let stream = proxy.get(root, "u1");
        assert!(proxy.sees(stream).starts_with("403"));
    });
}

// Shared data that fails.

#[test]
fn a_space_that_is_wiped_costs_a_call() {
    with_policy(&[], |proxy, root| {
        for _ in 0..3 {
            dry(proxy, root);
            refused_at_once(proxy, root);
            proxy.space().wipe();
        }
        // The breaker is closed by it.
        fail(proxy, root, 5);
        assert!(breaker_is_open(proxy, root));
        proxy.space().wipe();
        proxy.tick(root);
        fail(proxy, root, 5);
        assert!(breaker_is_open(proxy, root));
    });
}

fn corrupted(proxy: &Proxy, part: &str, corrupt: impl Fn(&mut Vec<u8>)) {
    assert!(proxy.space().corrupt(part, corrupt) > 0, "nothing to corrupt in {part}");
}

type Corruption = fn(&mut Vec<u8>);

const CORRUPTIONS: [(&str, Corruption); 6] = [
    ("empty", |value| value.clear()),
    ("short", |value| value.truncate(value.len() - 1)),
    ("long", |value| value.push(0)),
    ("foreign", |value| *value = b"somebody else's".to_vec()),
    ("zeros", |value| value.fill(0)),
    ("ones", |value| value.fill(0xff)),
];

#[test]
fn a_corrupt_value_is_a_miss() {
    for (name, corrupt) in CORRUPTIONS {
        with_policy(&[], |proxy, root| {
            dry(proxy, root);
            corrupted(proxy, "table", corrupt);
            let stream = asks(proxy, root, &grants(0, &[0]));
            assert_eq!(proxy.sees(stream), LIMITED, "{name}");
            // It has been replaced.
            refused_at_once(proxy, root);
        });
        with_policy(&[], |proxy, root| {
            fail(proxy, root, 5);
            assert!(breaker_is_open(proxy, root), "{name}");
            corrupted(proxy, "breaker", corrupt);
            proxy.tick(root);
            fail(proxy, root, 5);
            assert!(breaker_is_open(proxy, root), "{name}");
        });
        in_vm(|proxy| {
            let root = proxy.root(&local(&[]));
            assert_eq!(pass(proxy, root, "u1", 10), 10, "{name}");
            corrupted(proxy, "table", corrupt);
            assert_eq!(pass(proxy, root, "u1", 40), SHARE, "{name}: a fresh bucket, and not more");
        });
    }
    for (name, corrupt) in &CORRUPTIONS[..4] {
        in_vm(|proxy| {
            proxy.root(&local(&[]));
            corrupted(proxy, "seed", corrupt);
            let root = proxy.root(&local(&[]));
            assert_eq!(pass(proxy, root, "u1", 40), SHARE, "{name}: the seed is replaced");
        });
    }
}

/// Of a set of the table: its head, and one of its slots.
const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 144;

#[test]
fn an_entry_with_any_bit_turned_is_a_miss() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        let turned = |bit: usize| corrupted(proxy, "table", |value: &mut Vec<u8>| value[bit / 8] ^= 1 << (bit % 8));
        for bit in 0..(HEAD_BYTES + ENTRY_BYTES) * 8 {
            dry(proxy, root);
            turned(bit);
        }
        dry(proxy, root);
        for bit in ((HEAD_BYTES + ENTRY_BYTES) * 8..(HEAD_BYTES + 8 * ENTRY_BYTES) * 8).step_by(97) {
            turned(bit);
            refused_at_once(proxy, root); // those beside it are as they were
        }
    });
}

#[test]
fn a_write_that_is_always_lost_leaves_the_request_to_the_limiter() {
    with_policy(&[], |proxy, root| {
        proxy.space().lose("table", 8);
        dry(proxy, root);
        assert_eq!(proxy.space().calls("table"), [9, 0, 8], "one look, and eight tries");
        // Nobody knows; it asks again.
        proxy.space().lose("table", 7);
        dry(proxy, root);
        assert_eq!(proxy.space().calls("table"), [18, 1, 15]);
        refused_at_once(proxy, root);
    });
}

#[test]
fn a_write_that_is_always_lost_never_lets_pass() {
    in_vm(|proxy| {
        let root = proxy.root(&local(&[]));
        proxy.space().lose("table", 8);
        let stream = proxy.get(root, "u1");
        assert_eq!(proxy.sees(stream), UNAVAILABLE);
        assert_eq!(proxy.counts(), counts(0, &[("unreachable", 1)]));
        proxy.space().lose("table", 7);
        assert_eq!(pass(proxy, root, "u1", 40), SHARE, "what was refused was not taken");
        proxy.space().lose("table", u32::MAX);
        assert_eq!(pass(proxy, root, "u2", 100), 0);
    });
    let failing = on_error_local(&[("/limiters/main/cluster", json!("no-hosts"))]);
    with_policy(&failing, |proxy, root| {
        proxy.space().lose("table", u32::MAX);
        for _ in 0..20 {
            let stream = proxy.get(root, "u1");
            proxy.run();
            assert_eq!(proxy.sees(stream), UNAVAILABLE);
        }
        assert_eq!(proxy.counts(), counts(0, &[("unreachable", 5), ("breaker", 15)]));
    });
}

#[test]
fn without_writes_new_keys_do_not_ask_and_probes_are_not_sent() {
    with_policy(&[("/limiters/main/max_new_keys_per_second", json!(5))], |proxy, root| {
        proxy.space().lose("new_keys", u32::MAX);
        assert_eq!(pass(proxy, root, "u1", 10), 0);
        assert_eq!((proxy.paused(), proxy.counts()), (0, counts(0, &[("new_keys", 10)])));
    });
    with_policy(&[], |proxy, root| {
        fail(proxy, root, 5);
        proxy.space().lose("breaker", u32::MAX);
        proxy.advance(200);
        assert_eq!(pass(proxy, root, "u1", 10), 0);
        assert_eq!(proxy.paused(), 0);
        proxy.space().lose("breaker", 7);
        asks(proxy, root, &grants(59, &[1]));
    });
}

#[test]
fn a_seed_that_cannot_be_written_leaves_everything_to_the_limiter() {
    in_vm(|proxy| {
        proxy.space().lose("seed", u32::MAX);
        let root = proxy.root(&policy(&[]));
        dry(proxy, root);
        dry(proxy, root);
        let root = proxy.root(&local(&[]));
        assert_eq!(pass(proxy, root, "u1", 10), 0);
        let root = proxy.root(&policy(&on_error_local(&[("/limiters/main/cluster", json!("no-hosts"))])));
        let streams = proxy.gets(root, "u1", 10);
        proxy.run();
        assert_eq!(proxy.phases(&streams), [Phase::Answered; 10]);
    });
}

// on_error: local.

#[test]
fn through_every_failure_a_local_bucket_admits_its_share_and_all_is_counted() {
    let all = |breaker, of_each: fn(i64) -> (i64, i64)| {
        for Row { name, cluster, then, reason, calls } in ROWS {
            let limiter = [("/limiters/main/cluster", json!(cluster)), ("/limiters/main/breaker", breaker_of(breaker))];
            with_policy(&on_error_local(&limiter), |proxy, root| {
                let mut passed = 0;
                for _ in 0..40 {
                    let stream = proxy.get(root, "u1");
                    if proxy.phase(stream) == Phase::Paused {
                        proxy.run();
                        then(proxy);
                        proxy.calls().iter().for_each(|call| proxy.reset(call));
                    }
                    passed += usize::from(proxy.phase(stream) == Phase::Passed);
                    assert_ne!(proxy.phase(stream), Phase::Paused, "{name}");
                }
                assert_eq!(passed, SHARE, "{name}");
                // A key that is no bucket is left alone, and the breaker does not count it.
                let (asked, failed, barred) = match (*reason, of_each(40)) {
                    ("bad_key", _) => (1, 40, 0),
                    (_, (failed, barred)) => (calls * failed, failed, barred),
                };
                assert_eq!(proxy.counts(), counts(asked, &[(reason, failed), ("breaker", barred)]), "{name}");
            });
        }
    };
    all(1_000_000, |requests| (requests, 0));
    all(5, |requests| (5, requests - 5));
}

fn breaker_of(failures: u64) -> Value {
    json!({"failures": failures})
}

#[test]
fn a_group_that_fails_is_served_in_order_from_the_local_bucket() {
    for Row { name, cluster, then, reason, calls } in ROWS {
        // Replies fit to a single request only.
        if name.contains("too") || name.contains("more") || name.contains("negative") || name.contains("fraction") {
            continue;
        }
        with_policy(&on_error_local(&[("/limiters/main/cluster", json!(cluster))]), |proxy, root| {
            let streams = proxy.gets(root, "u1", 40);
            proxy.run();
            then(proxy);
            proxy.run();
            let expected = [vec![Phase::Passed; SHARE], vec![Phase::Answered; 40 - SHARE]].concat();
            assert_eq!(proxy.phases(&streams), expected, "{name}");
            assert_eq!(proxy.counts(), counts(*calls, &[(reason, 40)]), "{name}");
            let last = proxy.sees(streams[39]);
            assert!(last.starts_with("429 ") && last.contains("x-ratelimit-limit: 30"), "{name}: {last}");
        });
    }
}

#[test]
fn what_the_local_bucket_has_admitted_is_not_charged_to_the_limiter() {
    with_policy(&on_error_local(&[]), |proxy, root| {
        fail(proxy, root, 4);
        let stream = asks(proxy, root, &grants(59, &[1]));
        assert_eq!(proxy.sees(stream), passed(59));
        // A bucket of the limiter that is dry is refused by what is known, whatever is in the local one.
        dry(proxy, root);
        refused_at_once(proxy, root);
        assert_eq!(proxy.counts()["reset"], 4);
    });
}

// A clock that is set.

#[test]
fn a_clock_that_is_set_lets_nobody_pass_and_locks_nobody_out() {
    for to in [START_MS - HOUR_MS, START_MS + HOUR_MS, START_MS - 1, START_MS + 1, 0] {
        with_policy(&[], |proxy, root| {
            for back in [to, START_MS] {
                dry(proxy, root);
                proxy.set_clock(back);
                // The limiter has no tokens, by its own clock; nobody passes, and somebody asks within its wait.
                let mut asked = 0;
                for _ in 0..130 {
                    proxy.advance(10);
                    let stream = proxy.get(root, "u1");
                    proxy.run();
                    if proxy.phase(stream) == Phase::Paused {
                        asked += 1;
                        proxy.answer(grants(0, &[0]));
                    }
                    assert_eq!(proxy.phase(stream), Phase::Answered);
                }
                assert!((1..=2).contains(&asked), "{to}: asked {asked} times in 1.3 s");
                proxy.advance(1100);
            }
        });
    }
}

#[test]
fn a_clock_that_is_set_gives_a_local_bucket_nothing_beyond_its_burst() {
    for to in [START_MS - HOUR_MS, START_MS - 1000, 0] {
        in_vm(|proxy| {
            let root = proxy.root(&local(&[]));
            assert_eq!(pass(proxy, root, "u1", 40), SHARE);
            proxy.set_clock(to);
            assert_eq!(pass(proxy, root, "u1", 40), 0);
            proxy.advance(2000);
            assert_eq!(pass(proxy, root, "u1", 40), 1, "a token in two seconds");
            proxy.advance(120_000);
            assert_eq!(pass(proxy, root, "u1", 40), SHARE, "full after its time");
            // Forward again: at most a full bucket.
            proxy.set_clock(START_MS + HOUR_MS);
            assert!(pass(proxy, root, "u1", 40) <= SHARE);
        });
    }
}

#[test]
fn workers_whose_clocks_are_an_hour_apart_refuse_nobody_for_longer_than_the_time_to_full() {
    let space = Space::default();
    let old = Vm::start(&space, &policy(&[]));
    // Set forward and back while one worker runs: its time is an hour ahead of a worker that comes later.
    old.act(|proxy, _| {
        proxy.set_clock(START_MS + HOUR_MS);
        proxy.advance(10);
        proxy.set_clock(START_MS);
        proxy.advance(10);
    });
    let new = Vm::start(&space, &policy(&[]));
    old.act(dry);
    // It knows of a later time only that it is none of its own; it asks.
    new.act(dry);
    for vm in [&old, &new] {
        vm.act(|proxy, _| proxy.advance(1000));
    }
    new.act(|proxy, root| {
        asks(proxy, root, &grants(0, &[1]));
    });
    old.act(|proxy, root| {
        asks(proxy, root, &grants(0, &[1]));
    });
    assert!(old.act(|_, _| fake(|host| host.now_ms)) < START_MS + HOUR_MS);
}

#[test]
fn a_probe_that_another_time_has_planned_for_an_hour_from_now_is_due() {
    let space = Space::default();
    let old = Vm::start(&space, &policy(&[]));
    old.act(|proxy, root| {
        proxy.set_clock(START_MS + HOUR_MS);
        proxy.advance(10);
        proxy.set_clock(START_MS);
        proxy.advance(10);
        fail(proxy, root, 5);
    });
    drop(old);
    let new = Vm::start(&space, &policy(&[]));
    new.act(|proxy, root| {
        proxy.advance(1000);
        assert!(!breaker_is_open(proxy, root), "a probe is due");
    });
}

/// The bucket was dry when Redis was asked; by the time of the answer a token had come back.
#[test]
fn an_answer_that_comes_late_refuses_nobody_for_longer() {
    with_policy(&[("/limiters/main/timeout", json!("5s"))], |proxy, root| {
        proxy.get(root, "u1");
        proxy.run();
        proxy.advance(1000);
        proxy.answer(grants(0, &[0]));
        assert_eq!(proxy.phase(proxy.get(root, "u1")), Phase::Paused, "a token has come since");
    });
}
