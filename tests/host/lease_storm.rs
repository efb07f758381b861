//! Random histories of several workers that borrow: whatever is lost, late or wiped, in no time is more admitted than
//! the burst and the rate allow, each request is finished once and in time, and one call at a time is about a lease.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_sim::random::Random;

use crate::fake::{Call, Phase, fake};
use crate::limiter::Limiter;
use crate::policy::{NOSCRIPT, lease};
use crate::proxy::START_MS;
use crate::space::Space;
use crate::vms::Vm;

/// The wait, the longest time between two ticks, and one for the way.
const LONGEST_WAIT_MS: u64 = 20 + 10 + 1;

/// A second's worth of tokens is the burst.
const OF_USER: u64 = 100;
const OF_ALL: u64 = 150;

/// One or two rules: each user has a bucket, and maybe all have one together.
fn storm_policy(rules: usize, jitter: f64) -> Value {
    let mut policy = lease(&[
        ("/rules/0/limits", json!({"free": format!("{OF_USER}/s"), "gold": "unlimited"})),
        ("/response", json!({"retry_after_jitter": jitter})),
    ]);
    let all = json!({
        "name": "all", "key": [{"constant": "all"}], "mode": "lease", "limits": format!("{OF_ALL}/s"), "on_error": "deny",
    });
    if rules == 2 {
        policy["rules"].as_array_mut().expect("rules").push(all);
    }
    policy
}

/// An error that another call has met.
const READ_ONLY: &str = r#"{"EVALSHA":[false,"READONLY You can't write against a read only replica."]}"#;

/// A call on its way: by its worker and token.
struct Flying {
    call: Call,
    reply: Option<String>,
}

struct Storm {
    seed: u64,
    dice: Random,
    space: Space,
    policy: Value,
    vms: Vec<(u64, Vm)>,
    vm_count: u64,
    now_ms: u64,
    limiter: Limiter,
    flying: BTreeMap<(u64, u32), Flying>,
    /// The last reply that went astray, with its call's number.
    astray: Option<Vec<u8>>,
    /// Of workers that are gone.
    admitted: Vec<Admitted>,
    /// Shared data is damaged now and then.
    is_rough: bool,
}

/// User, time and cost.
type Admitted = (&'static str, u64, u64);

#[test]
fn whatever_happens_to_leases_no_time_admits_more_than_the_burst_and_the_rate() {
    let mut admitted = 0;
    for seed in 0..30 {
        let space = Space::default();
        let policy = storm_policy(1 + (seed / 2 % 2) as usize, 0.0);
        let mut storm = Storm {
            seed,
            dice: Random::seeded(seed),
            space,
            policy,
            vms: Vec::new(),
            vm_count: 0,
            now_ms: START_MS,
            limiter: Limiter::default(),
            flying: BTreeMap::new(),
            admitted: Vec::new(),
            astray: None,
            is_rough: seed % 2 == 1,
        };
        (0..3).for_each(|_| storm.start());
        for _ in 0..400 {
            storm.step();
            if !storm.is_rough {
                storm.assert_one_call_about_a_lease();
            }
        }
        admitted += storm.check();
    }
    assert!(admitted > 5_000, "only {admitted} tokens were spent");
}

impl Storm {
    fn start(&mut self) {
        let vm = Vm::start(&self.space, &self.policy);
        let now_ms = self.now_ms;
        vm.act(move |proxy, _| proxy.set_clock(now_ms));
        self.vm_count += 1;
        self.vms.push((self.vm_count, vm));
    }

    fn step(&mut self) {
        let at = self.dice.below(self.vms.len() as u64) as usize;
        match self.dice.below(100) {
            0..30 => {
                let (user, bulk) = (self.dice.pick(&["u1", "u2"]), self.dice.pick(&[false, false, true]));
                let count = self.dice.pick(&[1, 1, 3, 20]);
                let path = if bulk { "/v1/bulk" } else { "/v1/items" };
                self.act(at, move |proxy, root| {
                    for _ in 0..count {
                        proxy.request(root, &[(":method", "GET"), (":path", path), ("x-user-id", user)]);
                    }
                });
            }
            30..50 => self.act(at, |proxy, _| proxy.run()),
            50..80 => self.answer(),
            80..94 => {
                let ms = self.dice.pick(&[0, 1, 1, 2, 5, 10, 30, 300, 1000, 3000]);
                self.pass(ms);
            }
            94 => {
                // A worker dies, and another comes.
                self.gather(at);
                self.vms.remove(at);
                self.start();
            }
            95 => {
                let policy =
                    storm_policy(self.policy["rules"].as_array().map_or(1, Vec::len), self.dice.pick(&[0.0, 0.5]));
                self.act(at, move |proxy, root| assert!(proxy.configure(root, policy.to_string())));
            }
            96 if self.is_rough => self.space.wipe(),
            97 if self.is_rough => {
                let dice = &mut self.dice;
                self.space.corrupt("table", |value| {
                    let at = dice.below(1 + value.len() as u64) as usize;
                    value.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x10);
                });
            }
            98 if self.is_rough => self.space.lose("table", self.dice.pick(&[1, 8, 20])),
            _ => {
                // The limiter executes what nobody waits for any more.
                let (now_ms, limiter) = (self.now_ms, &mut self.limiter);
                for flying in self.flying.values_mut().filter(|flying| flying.reply.is_none()).take(1) {
                    flying.reply = Some(limiter.execute(now_ms, &flying.call));
                }
            }
        }
    }

    /// A worker does something; then its new calls are on their way.
    fn act(&mut self, at: usize, act: impl FnOnce(&crate::proxy::Proxy, u32) + Send + 'static) {
        let (vm, worker) = &self.vms[at];
        let calls = worker.act(move |proxy, root| {
            act(proxy, root);
            proxy.calls()
        });
        for call in calls {
            self.flying.entry((*vm, call.token)).or_insert(Flying { call, reply: None });
        }
    }

    fn assert_one_call_about_a_lease(&self) {
        let out = self.vms.iter().flat_map(|(_, worker)| worker.act(|proxy, _| proxy.calls()));
        let mut about = BTreeMap::new();
        for call in out {
            let asks = call.asks();
            let numbers: Vec<&str> = asks.split(' ').collect();
            // Want, lease and hold; or nobody waits.
            if numbers[6..11].iter().any(|number| *number != "0") || numbers.len() == 12 {
                *about.entry(numbers[0].to_owned()).or_insert(0) += 1;
            }
        }
        assert!(about.values().all(|count| *count == 1), "seed {}: {about:?}", self.seed);
    }

    /// A call of a worker that is still there ends, in one way or another.
    fn answer(&mut self) {
        let out: Vec<(usize, Call)> = (0..self.vms.len())
            .flat_map(|at| self.vms[at].1.act(|proxy, _| proxy.calls()).into_iter().map(move |call| (at, call)))
            .collect();
        if out.is_empty() {
            return;
        }
        let (at, call) = out[self.dice.below(out.len() as u64) as usize].clone();
        let (now_ms, limiter) = (self.now_ms, &mut self.limiter);
        let flying = self.flying.get_mut(&(self.vms[at].0, call.token)).expect("a call that is known");
        let fate = self.dice.below(23);
        if fate == 0 && flying.reply.is_none() && call.command() == "EVALSHA" {
            self.act(at, move |proxy, _| proxy.reply(&call, "200", NOSCRIPT));
            return;
        }
        if fate != 1 && flying.reply.is_none() {
            flying.reply = Some(limiter.execute(now_ms, &flying.call));
        }
        match (fate, flying.reply.clone()) {
            // Its answer is on the way.
            (2..5, _) => {}
            (6..20, Some(reply)) => self.act(at, move |proxy, _| proxy.reply(&call, "200", reply)),
            (5, _) => self.act(at, move |proxy, _| proxy.reply(&call, "503", "")),
            // Webdis gives it another call's reply, also one that says nothing of whose it is.
            (20, Some(own)) => {
                let Some(astray) = self.astray.replace(call.numbered(own.as_bytes())) else { return };
                self.act(at, move |proxy, _| proxy.misdeliver(&call, "200", astray));
            }
            (21, Some(_)) => self.act(at, move |proxy, _| proxy.misdeliver(&call, "200", NOSCRIPT)),
            (22, Some(_)) => self.act(at, move |proxy, _| proxy.misdeliver(&call, "200", READ_ONLY)),
            _ => self.act(at, move |proxy, _| proxy.reset(&call)),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        for at in 0..self.vms.len() {
            self.act(at, move |proxy, _| proxy.advance(now_ms - fake(|host| host.now_ms)));
        }
        // After so long nothing is on its way any more.
        self.flying.retain(|_, flying| flying.call.sent_ms + 5000 > now_ms);
    }

    /// Notes what has become of a worker's requests.
    fn gather(&mut self, at: usize) {
        let seed = self.seed;
        let admitted = self.vms[at].1.act(move |_, _| {
            fake(|host| {
                let mut admitted = Vec::new();
                for stream in host.streams.values() {
                    let until = stream.until_ms.unwrap_or(host.now_ms.min(stream.since_ms));
                    let took = if stream.phase == Phase::Paused { host.now_ms } else { until } - stream.since_ms;
                    assert!(took <= LONGEST_WAIT_MS, "seed {seed}: took {took} ms");
                    let has = |value: &[u8]| stream.request.iter().any(|(_, other)| other == value);
                    let (user, cost) = (if has(b"u1") { "u1" } else { "u2" }, if has(b"/v1/bulk") { 5 } else { 1 });
                    if stream.phase == Phase::Passed {
                        admitted.push((user, until, cost));
                    }
                }
                admitted
            })
        });
        self.admitted.extend(admitted);
    }

    /// Looks at every interval between two admissions; returns the tokens spent.
    fn check(mut self) -> u64 {
        self.pass(LONGEST_WAIT_MS);
        (0..self.vms.len()).for_each(|at| self.gather(at));
        self.pass(10_000);
        for (_, worker) in &self.vms {
            worker.act(|proxy, _| assert_eq!((proxy.call_count(), proxy.paused()), (0, 0), "nothing is left to do"));
        }
        for user in ["u1", "u2"] {
            let of_user: Vec<Admitted> = self.admitted.iter().filter(|(of, ..)| *of == user).copied().collect();
            self.assert_within(OF_USER, of_user);
        }
        if self.policy["rules"].as_array().is_some_and(|rules| rules.len() == 2) {
            self.assert_within(OF_ALL, self.admitted.clone());
        }
        self.admitted.iter().map(|(.., cost)| cost).sum()
    }

    /// For a request that waits, the moment of admission is the limiter's, maybe so much earlier.
    fn assert_within(&self, burst: u64, admitted: Vec<Admitted>) {
        let mut by_time: BTreeMap<u64, u64> = BTreeMap::new();
        admitted.iter().for_each(|(_, at, cost)| *by_time.entry(*at).or_default() += cost);
        for from in by_time.keys() {
            let mut sum = 0;
            for (to, cost) in by_time.range(from..) {
                sum += cost;
                let allowed = burst * 1000 + burst * (to - from + LONGEST_WAIT_MS);
                assert!(sum * 1000 <= allowed, "seed {}: {sum} in {} ms", self.seed, to - from);
            }
        }
    }
}
