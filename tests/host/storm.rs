//! Random histories: whatever happens in whatever order, each request is finished once and in time, nobody passes
//! without a token of the limiter's, and the filter breaks no rule of the host.

use serde_json::{Value, json};
use weir_sim::random::Random;

use crate::fake::{Call, Phase, fake};
use crate::policy::{NOSCRIPT, policy};
use crate::proxy::{Proxy, in_vm};

/// The longest wait of the policies below, and the longest time between two ticks.
const LONGEST_WAIT_MS: u64 = 40 + 20;

struct Storm<'p> {
    proxy: &'p Proxy,
    dice: Random,
    roots: Vec<u32>,
    streams: Vec<u32>,
    /// Tokens.
    granted: u64,
}

#[test]
fn whatever_happens_each_request_is_finished_once_and_in_time() {
    let mut passed = 0;
    for seed in 0..200 {
        passed += in_vm(|proxy| {
            let mut storm =
                Storm { proxy, dice: Random::seeded(seed), roots: Vec::new(), streams: Vec::new(), granted: 0 };
            storm.root();
            for _ in 0..300 {
                storm.step();
            }
            storm.check(seed)
        });
    }
    assert!(passed > 5_000, "only {passed} tokens were spent");
}

impl Storm<'_> {
    fn step(&mut self) {
        let proxy = self.proxy;
        match self.dice.below(103) {
            0..45 => {
                let root = self.dice.pick(&self.roots);
                let user = self.dice.pick(&["u1", "u2", "u3"]);
                let path = self.dice.pick(&["/v1/items", "/v1/bulk", "/\u{fffd}"]);
                self.streams.push(proxy.request(root, &[(":method", "GET"), (":path", path), ("x-user-id", user)]));
            }
            45..55 => proxy.run(),
            55..75 => {
                let calls = proxy.calls();
                if !calls.is_empty() {
                    let at = self.dice.below(calls.len() as u64) as usize;
                    self.end(&calls[at]);
                }
            }
            75..83 => {
                let stream = self.streams.get(self.streams.len().saturating_sub(1 + self.dice.below(8) as usize));
                if let Some(stream) = stream.filter(|s| matches!(proxy.phase(**s), Phase::Paused | Phase::Passed)) {
                    proxy.leave(*stream);
                }
            }
            83..93 => {
                let ms = self.dice.below(15);
                proxy.advance(ms);
            }
            93 => proxy.advance(500),
            94 => proxy.set_clock(fake(|host| host.now_ms) - 5),
            95 => proxy.tick(self.dice.pick(&self.roots)),
            96 => self.root(),
            97 => {
                let (root, policy) = (self.dice.pick(&self.roots), self.policy());
                assert!(proxy.configure(root, policy.to_string()));
            }
            98 => {
                assert!(!proxy.configure(self.dice.pick(&self.roots), "{}"));
                proxy.take_errors();
            }
            99 => proxy.space().wipe(),
            100 => {
                let dice = &mut self.dice;
                for part in ["table", "breaker"] {
                    proxy.space().corrupt(part, |value| {
                        let at = dice.below(1 + value.len() as u64) as usize;
                        value.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x10);
                    });
                }
            }
            101 => {
                let (part, writes) = (self.dice.pick(&["table", "breaker"]), self.dice.pick(&[1, 7, 8, 20]));
                proxy.space().lose(part, writes);
            }
            _ if self.roots.len() > 1 => {
                let at = self.dice.below(self.roots.len() as u64) as usize;
                proxy.drop_root(self.roots.remove(at));
            }
            _ => {}
        }
    }

    fn policy(&mut self) -> Value {
        policy(&[
            ("/limiters/main/timeout", json!(self.dice.pick(&["1ms", "20ms", "40ms"]))),
            ("/limiters/main/cluster", json!(self.dice.pick(&["webdis", "webdis", "webdis", "nowhere", "no-hosts"]))),
        ])
    }

    fn root(&mut self) {
        let policy = self.policy();
        self.roots.push(self.proxy.root(&policy));
    }

    /// The limiter grants some of what it was asked for, or fails.
    fn end(&mut self, call: &Call) {
        let proxy = self.proxy;
        match self.dice.below(13) {
            0 => proxy.reset(call),
            1 => proxy.reply(call, "503", ""),
            2 => proxy.reply(call, "200", "{}"),
            3 if call.command() == "EVALSHA" => proxy.reply(call, "200", NOSCRIPT),
            // Another call's reply, which fits but for its number.
            4 => {
                let (reply, _) = self.grants(call);
                let number = call.number() ^ self.dice.pick(&[1, 2, 1 << 52]);
                proxy.misdeliver(call, "200", reply.replacen('[', &format!("[{number},"), 1));
            }
            5 => proxy.misdeliver(call, "200", r#"{"EVALSHA":[false,"READONLY"]}"#),
            _ => {
                let (reply, granted) = self.grants(call);
                self.granted += granted;
                proxy.reply(call, "200", reply);
            }
        }
    }

    /// Grants as the script would out of a level that is picked: what fits, in order.
    fn grants(&mut self, call: &Call) -> (String, u64) {
        let asks = call.asks();
        let numbers: Vec<u64> = asks.split(' ').skip(12).map(|number| number.parse().expect("a number")).collect();
        let start = self.dice.below(61);
        let mut left = start;
        let mut granted = Vec::new();
        for run in numbers.chunks(2) {
            let count = run[1].min(left / run[0]);
            left -= count * run[0];
            granted.push(count);
        }
        let mut reply = vec![left * 60_000, (60 - left) * 1000, 0, 0, 0, 0, 0];
        reply.extend(granted);
        (format!("{{\"{}\":{reply:?}}}", call.command()), start - left)
    }

    /// Lets everybody's time pass and looks at what has become of them; returns the tokens spent.
    fn check(&mut self, seed: u64) -> u64 {
        self.proxy.run();
        self.proxy.advance(LONGEST_WAIT_MS + 50);
        let mut passed = 0;
        for stream in &self.streams {
            let (phase, since, until, cost) = fake(|host| {
                let stream = &host.streams[stream];
                let bulk = stream.request.iter().any(|(_, value)| value == b"/v1/bulk");
                (stream.phase, stream.since_ms, stream.until_ms, if bulk { 5 } else { 1 })
            });
            assert_ne!(phase, Phase::Paused, "seed {seed}: stream {stream} still waits");
            if let Some(until) = until {
                let took = until.saturating_sub(since);
                assert!(took <= LONGEST_WAIT_MS, "seed {seed}: stream {stream} took {took} ms");
                passed += if phase == Phase::Answered { 0 } else { cost };
            }
        }
        assert!(passed <= self.granted, "seed {seed}: {passed} tokens spent of {} granted", self.granted);
        passed
    }
}
