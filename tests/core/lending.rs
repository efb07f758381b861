//! Workers of one proxy that share what the limiter lends, event by event, with a limiter that is made up.
//!
//! Steps are told in short: `wake`, `others 2` (wake the workers of these bits), `a 200 59` (request a passes, 59 tokens
//! are left), `a 429 0 in 2`, `a 503 timeout`, `shadow 1` (rule 1 would have refused). A call is told with what is said
//! of the lease: `call 0 r.x want 3`, then `lease 7 of 3 with 2` (its end, its size, what is unspent), `hold`, `debt 4`
//! and those who wait, `1x2` (two of cost 1).

use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, CallId, CallOwner, Decision, Engine, Step, Ticket, Verdict, decide};
use weir::limiter::{Failure, HttpEnd};
use weir::local::table::{Entry, Table};
use weir::local::{Lost, Nowhere, Over, Store};
use weir::policy::{Idempotency, Limiter, Limiters, Policy, TransportName};
use weir::response::{Answer, Refusal};
use weir::telemetry::Effect;

use crate::made::{Sent, Shared, bucket_at, limit, numbered, policy};

/// Where the tests' time begins.
const START: u64 = 1_700_000_000_000;

/// 1000/s of each tenant: a small lease is one of at most 15, the first one holds 3, and the pace is 250 ms.
const LEASE: &str = r#""name": "r", "limits": "1000/s", "mode": "lease", "on_error": "deny""#;

/// The same, granted one by one.
const EXACT: &str = r#""name": "r", "limits": "1000/s", "mode": "exact", "on_error": "deny""#;

/// 100/s for all together.
const FOR_ALL: &str = r#""name": "all", "limits": "100/s", "mode": "exact", "on_error": "deny""#;

/// A policy of these rules; the one called `all` is for all, the others are by tenant.
fn policy_of(rules: &[&str]) -> Policy {
    let by_tenant = r#""key": [{"header": {"name": "x", "as": "x", "trusted": true}}]"#;
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| match rule.contains(r#""name": "all""#) {
            true => format!(r#"{{"key": [{{"constant": "all"}}], {rule}}}"#),
            false => format!("{{{by_tenant}, {rule}}}"),
        })
        .collect();
    policy(&format!(
        r#"{{"version": 1, "proxies": 1, "rules": [{}], "response": {{"retry_after_jitter": 0}},
            "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis", "timeout": "20ms",
                "breaker": {{"failures": 2, "within": "1s", "probe_every": "200ms"}}}}}}}}"#,
        rules.join(", ")
    ))
}

/// What the script answers about the lease: its end, how long it is valid, what it carries on, what is new, and whether
/// that is less than was wanted because little is there.
#[derive(Clone, Copy, Default)]
struct Lends {
    end: u64,
    valid: u64,
    kept: u64,
    extra: u64,
    limited: bool,
}

const NOTHING_LENT: Lends = Lends { end: 0, valid: 0, kept: 0, extra: 0, limited: false };

fn lends(end: u64, kept: u64, extra: u64) -> Lends {
    Lends { end, valid: if end > 0 { 3000 } else { 0 }, kept, extra, limited: false }
}

const NOTHING: [&str; 0] = [];

/// A worker of a proxy.
struct Worker {
    flow: Engine<&'static str>,
    plan: Rc<Plan>,
    shared: Shared,
    calls: Vec<Out>,
    tickets: Vec<(&'static str, Ticket)>,
}

/// A call that was made.
#[derive(Clone)]
struct Out {
    id: CallId,
    number: u64,
    by_text: bool,
    /// Through the bridge.
    bridged: bool,
    /// Requests, period and burst.
    limit: [i64; 3],
}

fn at(ms: u64) -> Now {
    Now { mono: Ms(START + ms), unix: Ms(START + ms) }
}

impl Worker {
    fn new(number: u32, policy: Policy, shared: &Shared) -> Worker {
        Worker::with(number, policy, shared, shared.clone(), CallOwner::Root)
    }

    fn with(number: u32, policy: Policy, shared: &Shared, store: impl Store + 'static, owner: CallOwner) -> Worker {
        let plan = Rc::new(Plan::new(1, policy, Rc::new(store), (1, 2)));
        let flow = Engine::new(owner, 1, number);
        Worker { flow, plan, shared: shared.clone(), calls: vec![], tickets: vec![] }
    }

    /// A request of the tenant `x` comes, decided or not.
    fn comes(&mut self, ms: u64, name: &'static str, cost: u64) -> Vec<String> {
        self.sends(ms, name, cost, &[("x", "x")])
    }

    fn sends(&mut self, ms: u64, name: &'static str, cost: u64, headers: &[(&str, &str)]) -> Vec<String> {
        let mut asks = match decide(&self.plan.policy, &Sent::to("GET", "/", headers)) {
            Decision::Ask(asks, _) => asks,
            Decision::Answer(verdict) => panic!("{verdict:?}"),
        };
        asks.iter_mut().for_each(|ask| ask.cost = cost);
        let (arrival, mut steps) = self.flow.charge(&self.plan.clone(), asks, vec![], name, at(ms));
        match arrival {
            Arrival::Decided(verdict) => steps.insert(0, Step::Finish(name, verdict)),
            Arrival::Waits(ticket) => self.tickets.push((name, ticket)),
        }
        self.tell(steps)
    }

    /// The limiter has said that so many tokens are there, to a request that it then refuses to spend any.
    fn knows_of(&mut self, ms: u64, level: i64) {
        assert_eq!(self.comes(ms, "first", 1_000), ["wake"]);
        let [call] = &self.woken(ms)[..] else { panic!("one call") };
        assert!(call.ends_with(" want 0"), "{call}");
        let number = self.calls.len() - 1;
        let told = self.answers(ms, number, level, NOTHING_LENT, &[]);
        assert!(told.len() == 1 && told[0].starts_with("first 429"), "{told:?}");
    }

    fn leaves(&mut self, name: &str) {
        let (_, ticket) = self.tickets.iter().find(|(other, _)| *other == name).expect("a ticket");
        self.flow.on_end(*ticket);
    }

    fn woken(&mut self, ms: u64) -> Vec<String> {
        let steps = self.flow.on_wake_by_other(at(ms));
        self.tell(steps)
    }

    fn tick(&mut self, ms: u64) -> Vec<String> {
        let steps = self.flow.on_timer(at(ms));
        self.tell(steps)
    }

    fn ends(&mut self, ms: u64, call: usize, end: HttpEnd) -> Vec<String> {
        let steps = self.flow.on_reply(self.calls[call].id, end, at(ms));
        self.tell(steps)
    }

    /// The script's answer: so many tokens are left, this is lent, and so many of each run are granted.
    fn answers(&mut self, ms: u64, call: usize, left: i64, lent: Lends, granted: &[i64]) -> Vec<String> {
        let [requests, period, burst] = self.calls[call].limit;
        let missing = (burst - left) * period;
        let reset = missing / requests + i64::from(missing % requests > 0);
        let numbers = [lent.end, lent.valid, lent.kept, lent.extra].map(|number| number as i64);
        let head = [left * period, reset, numbers[0], numbers[1], numbers[2], numbers[3], lent.limited.into()];
        let reply = [&head[..], granted].concat();
        if self.calls[call].bridged {
            let numbers: String = reply.iter().map(|number| format!(" {number}")).collect();
            return self.bridge_says(ms, call, &format!("ok {}{numbers}", self.calls[call].number));
        }
        let command = if self.calls[call].by_text { "EVAL" } else { "EVALSHA" };
        let body = numbered(self.calls[call].number, &serde_json::json!({ command: reply }).to_string());
        self.ends(ms, call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    /// What the bridge answers to the one part of a call.
    fn bridge_says(&mut self, ms: u64, call: usize, words: &str) -> Vec<String> {
        let body = format!("weir 1\n{} {words}\n", self.calls[call].number);
        self.ends(ms, call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    /// Redis does not know the script.
    fn does_not_know(&mut self, ms: u64, call: usize) -> Vec<String> {
        let command = if self.calls[call].by_text { "EVAL" } else { "EVALSHA" };
        let body = format!(r#"{{"{command}":[false,"NOSCRIPT No matching script."]}}"#);
        self.ends(ms, call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    /// What this proxy knows of the bucket of a rule and a tenant.
    fn knows(&self, rule_and_tenant: &str) -> Option<Entry> {
        let table = Table::open(&self.shared, "weir.rl.1.65536", 65_536, (1, 2)).expect("shared data");
        let (rule, tenant) = rule_and_tenant.split_once(' ').expect("a rule and a tenant");
        table.read(&self.shared, bucket_at("main", &table, rule, tenant, limit(1, 1, 1)))
    }

    fn tokens(&self, rule_and_tenant: &str) -> u64 {
        self.knows(rule_and_tenant).map(|entry| entry.lease.tokens).unwrap_or_default()
    }

    fn tell(&mut self, steps: Vec<Step<&'static str>>) -> Vec<String> {
        let mut told = Vec::new();
        for step in steps {
            match step {
                Step::Wake => told.push("wake".to_owned()),
                Step::WakeOthers(workers) => told.push(format!("others {workers}")),
                Step::Count(..) => {}
                Step::Call(call) => {
                    let bridged = call.http.body.strip_prefix("weir 1 900\n");
                    let parts: Vec<&str> = match bridged {
                        Some(line) => ["", ""].into_iter().chain(line.trim_end().split(' ').skip(1)).collect(),
                        None => call.http.body.split('/').collect(),
                    };
                    let numbers: Vec<i64> = parts[4..].iter().map(|part| part.parse().expect("a number")).collect();
                    let [requests, period, burst, _, _, want, end, size, carry, hold, debt, number, runs @ ..] =
                        numbers.as_slice()
                    else {
                        panic!("{parts:?}")
                    };
                    // rl:{x.tenant}:rule:default:1000:t3
                    let key = parts[3].replace("%3A", ":").replace("%7B", "{").replace("%7D", "}").replace("%2E", ".");
                    let key: Vec<&str> = key.split(':').collect();
                    let mut line = format!("call {} {} {} want {want}", self.calls.len(), key[2], key[1]);
                    if [*end, *size, *carry] != [0; 3] {
                        line += &format!(" lease {end} of {size} with {carry}");
                    }
                    if *hold == 1 {
                        line += " hold";
                    }
                    if *debt > 0 {
                        line += &format!(" debt {debt}");
                    }
                    for run in runs.chunks(2) {
                        line += &format!(" {}x{}", run[0], run[1]);
                    }
                    told.push(line.replace(['{', '}'], ""));
                    self.calls.push(Out {
                        id: call.id,
                        number: *number as u64,
                        bridged: bridged.is_some(),
                        by_text: parts[0] == "EVAL",
                        limit: [*requests, *period, *burst],
                    });
                }
                Step::Finish(name, Verdict { answer, record, .. }) => {
                    let degraded = record.marks.iter().find_map(|mark| mark.degraded).map(Failure::name);
                    let (status, headers) = match answer {
                        Answer::Pass(headers) => (200, headers),
                        Answer::Refuse(Refusal { status, headers, .. }) => (status, headers),
                    };
                    let header =
                        |wanted| headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
                    let left = header("x-ratelimit-remaining");
                    let mut line = format!("{name} {status}");
                    for word in [left, degraded].into_iter().flatten() {
                        line += &format!(" {word}");
                    }
                    if let Some(seconds) = header("retry-after").filter(|_| status == 429) {
                        line += &format!(" in {seconds}");
                    }
                    told.push(line);
                    for mark in record.marks.iter().filter(|mark| mark.effect == Effect::Shadow) {
                        told.push(format!("shadow {}", mark.scope.rule.expect("a rule")));
                    }
                }
            }
        }
        told
    }
}

/// So many workers of one proxy.
fn workers<const N: usize>(policy: &Policy) -> [Worker; N] {
    let shared = Shared::default();
    std::array::from_fn(|number| Worker::new(number as u32, policy.clone(), &shared))
}

/// Has a worker hold a lease of so many tokens, of the bucket of the tenant `x`, that has so many left: the last answer
/// has the end 7. Gives when it came.
fn borrow(worker: &mut Worker, left: i64, tokens: u64) -> u64 {
    let (mut ms, mut held) = (0, 0);
    loop {
        let call = worker.calls.len();
        // One that is not at hand, so that there is a call; what it costs makes the proxy want more.
        assert_eq!(worker.comes(ms, "borrower", held + 60), ["wake"]);
        assert_eq!(worker.woken(ms).len(), 1);
        let extra = (tokens - held).min((held * 3).max(3));
        let told = worker.answers(ms, call, left, Lends { valid: 30_000, ..lends(7, held, extra) }, &[1]);
        assert_eq!(told, [format!("borrower 200 {}", left + (held + extra) as i64)]);
        held += extra;
        if held == tokens {
            assert_eq!(worker.tokens("r x.x"), tokens);
            return ms;
        }
        ms += 1000;
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_cold_key_waits_for_one_call_and_what_it_lends_serves_the_next() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    assert_eq!(worker.comes(0, "a", 1), ["wake"]);
    assert_eq!(worker.comes(0, "b", 1), NOTHING);
    assert_eq!(worker.woken(1), ["call 0 r x.x want 3 1x2"]);
    // What is granted to those who wait is theirs; three more are lent, and are as good as left.
    assert_eq!(worker.answers(2, 0, 995, lends(7, 0, 3), &[2]), ["a 200 999", "b 200 998"]);
    assert_eq!(worker.tokens("r x.x"), 3);
    assert!(worker.flow.is_idle());
    // A second later the bucket is full as far as this proxy knows, but for what is lent, which comes back when it has been
    // spent; nobody waits, and nothing is called.
    for (name, left) in [("c", 999), ("d", 998), ("e", 997)] {
        assert_eq!(worker.comes(1001, name, 1), [format!("{name} 200 {left}")]);
    }
    assert!(worker.flow.is_idle());
    // The fourth reports what has become of them. Five were spent in a second.
    assert_eq!(worker.comes(1001, "f", 1), ["wake"]);
    assert_eq!(worker.woken(1001), ["call 1 r x.x want 12 lease 7 of 3 with 0 1x1"]);
    assert_eq!(worker.answers(1002, 1, 900, lends(8, 0, 12), &[1]), ["f 200 912"]);
    assert_eq!(worker.tokens("r x.x"), 12);
    // A cost is taken whole or not at all.
    assert_eq!(worker.comes(2002, "g", 13), ["wake"]);
    assert_eq!(worker.comes(2002, "h", 12), ["h 200 988"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn tokens_of_a_lease_end_with_it() {
    for (ms, told) in [(2995, "b 200 999"), (2996, "wake")] {
        let [mut worker] = workers(&policy_of(&[LEASE]));
        worker.comes(0, "a", 1);
        worker.woken(0);
        // It counts from when the call was sent.
        worker.answers(9, 0, 996, lends(7, 0, 3), &[1]);
        assert_eq!(worker.comes(ms, "b", 1), [told], "{ms}");
        if told == "wake" {
            // Unspent, they are reported as spent.
            assert_eq!(worker.woken(ms), ["call 1 r x.x want 12 lease 7 of 3 with 0 1x1"]);
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn tokens_that_run_low_are_asked_for_ahead_and_nobody_waits() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let since = borrow(&mut worker, 500, 40);
    let now = since + 400;
    // 72 went when it borrowed. 107 in 400 ms are five in 20 ms: as long as five are at hand, nothing is needed.
    assert_eq!(worker.comes(now, "a", 35), ["a 200 905"]);
    assert_eq!(worker.comes(now, "b", 1), ["b 200 904", "wake"]);
    // Those who come meanwhile go on spending, and start no second call.
    assert_eq!(worker.comes(now, "c", 3), ["c 200 901"]);
    assert_eq!(worker.woken(now + 1), ["call 3 r x.x want 192 lease 7 of 40 with 1"]);
    assert_eq!(worker.comes(now + 1, "e", 2), NOTHING);
    // It lends, and e, who came after it was sent, is served by that.
    assert_eq!(worker.answers(now + 3, 3, 800, lends(8, 1, 100), &[]), ["e 200 901"]);
    assert_eq!(worker.tokens("r x.x"), 99);
    assert!(worker.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_lease_is_not_named_again_after_a_script_that_redis_does_not_know() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let now = borrow(&mut worker, 500, 40) + 400;
    worker.comes(now, "a", 35);
    worker.comes(now, "b", 1);
    assert_eq!(worker.woken(now + 1), ["call 3 r x.x want 192 lease 7 of 40 with 4"]);
    assert_eq!(worker.comes(now + 1, "c", 5), NOTHING);
    // Somebody was told so; the call may have run, and have closed the lease.
    assert_eq!(worker.does_not_know(now + 2, 3), ["call 4 r x.x want 188"]);
    // What is at hand is counted until the answer is there.
    assert_eq!(worker.comes(now + 2, "d", 1), ["d 200 905"]);
    assert_eq!(worker.answers(now + 3, 4, 800, lends(8, 0, 100), &[]), ["c 200 896"]);
    assert_eq!(worker.tokens("r x.x"), 95);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_lease_is_lost_where_the_second_try_fails_or_has_nothing_to_ask_for() {
    let not_started = HttpEnd::NotStarted(Failure::Unreachable);
    for end in [HttpEnd::NoAnswer, HttpEnd::Answer { status: 200, body: br#"{"EVAL":[false,"OOM"]}"# }, not_started] {
        let [mut worker] = workers(&policy_of(&[LEASE]));
        let now = borrow(&mut worker, 500, 40) + 400;
        worker.comes(now, "a", 35);
        worker.comes(now, "b", 1);
        worker.woken(now + 1);
        worker.does_not_know(now + 2, 3);
        assert_eq!(worker.ends(now + 3, 4, end), NOTHING);
        assert_eq!(worker.tokens("r x.x"), 0, "{end:?}");
        assert!(worker.flow.is_idle());
    }
    // It goes back, and nobody waits.
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let now = borrow(&mut worker, 500, 40) + 5001;
    let told = worker.tick(now);
    assert_eq!(told, ["call 3 r x.x want 0 lease 7 of 40 with 40"]);
    assert_eq!(worker.does_not_know(now + 1, 3), NOTHING);
    assert_eq!(worker.knows("r x.x").map(|entry| (entry.lease.size, entry.lease.end)), Some((0, 0)));
    assert!(worker.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn one_worker_calls_and_the_other_is_woken_when_the_answer_is_there() {
    // It is woken, or a tick makes up for it.
    for by_tick in [false, true] {
        let [mut one, mut other] = workers(&policy_of(&[LEASE]));
        assert_eq!(one.comes(0, "a", 1), ["wake"]);
        assert_eq!(one.woken(0), ["call 0 r x.x want 3 1x1"]);
        assert_eq!(other.comes(1, "b", 1), ["wake"]);
        assert_eq!(other.woken(1), NOTHING);
        assert_eq!(other.comes(2, "c", 1), ["wake"]);
        // However often it looks, nobody has asked for those who wait here.
        for _ in 0..20 {
            assert_eq!(other.woken(2), NOTHING);
        }
        assert_eq!(one.answers(3, 0, 990, lends(7, 0, 3), &[1]), ["others 2", "a 200 993"]);
        let told = if by_tick { other.tick(4) } else { other.woken(4) };
        assert_eq!(told[..2], ["b 200 996", "c 200 995"]);
        assert_eq!(other.tokens("r x.x"), 1);
        assert!(one.flow.is_idle());
        assert_eq!(other.flow.waiting(), 0);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_worker_that_is_woken_and_finds_nothing_calls_itself() {
    let [mut one, mut other] = workers(&policy_of(&[LEASE]));
    one.comes(0, "a", 1);
    one.woken(0);
    for (name, cost) in [("b", 2), ("c", 1), ("d", 2)] {
        other.comes(1, name, cost);
        assert_eq!(other.woken(1), NOTHING);
    }
    assert_eq!(one.answers(3, 0, 990, lends(7, 0, 3), &[1]), ["others 2", "a 200 993"]);
    // In order: two for b, one for c, and d asks for himself.
    let told = other.woken(4);
    assert_eq!(told[..2], ["b 200 995", "c 200 994"]);
    assert_eq!(told[2..], ["call 0 r x.x want 12 lease 7 of 3 with 0 2x1"]);
    // Now the first waits for the other.
    assert_eq!(one.comes(5, "e", 1), ["wake"]);
    assert_eq!(one.woken(5), NOTHING);
    assert_eq!(other.answers(6, 0, 900, lends(8, 0, 12), &[1]), ["others 1", "d 200 912"]);
    let told = one.woken(7);
    assert_eq!(told[0], "e 200 914");
    assert_eq!(one.tokens("r x.x"), 11);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_that_fails_is_over_for_the_other_workers_too() {
    let table = [(HttpEnd::NoAnswer, "a 503 reset"), (HttpEnd::NotStarted(Failure::Unreachable), "a 503 unreachable")];
    for (end, told) in table {
        let [mut one, mut other] = workers(&policy_of(&[LEASE]));
        one.comes(0, "a", 1);
        one.woken(0);
        other.comes(1, "b", 1);
        assert_eq!(other.woken(1), NOTHING);
        assert_eq!(one.ends(2, 0, end), ["others 2", told]);
        assert_eq!(other.woken(3), ["call 0 r x.x want 3 1x1"]);
        assert_eq!(other.answers(4, 0, 996, lends(7, 0, 3), &[1]), ["b 200 999"]);
        assert!(one.flow.is_idle() && other.flow.is_idle());
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_call_of_a_worker_that_has_died_is_over_at_its_own_end() {
    let [mut one, mut other] = workers(&policy_of(&[LEASE]));
    one.comes(0, "a", 1);
    one.woken(0);
    one.answers(1, 0, 996, lends(7, 0, 3), &[1]);
    assert_eq!(one.comes(1500, "b", 4), ["wake"]);
    assert_eq!(one.woken(1500), ["call 1 r x.x want 12 lease 7 of 3 with 3 4x1"]);
    drop(one);
    // What is at hand is spent all the same; who finds nothing waits, until the call has outlived a wait, and then asks
    // for himself.
    assert_eq!(other.comes(1501, "c", 1), ["c 200 999"]);
    assert_eq!(other.comes(1519, "d", 4), ["wake"]);
    assert_eq!(other.woken(1519), NOTHING);
    assert_eq!(other.tick(1520), ["call 0 r x.x want 0 4x1"]);
    assert_eq!(other.answers(1522, 0, 900, lends(0, 0, 0), &[1]), ["d 200 900"]);
    // A second after that call was sent this worker takes its place. Nobody knows what became of the lease, so it
    // reports none, and what was left of it is gone.
    assert_eq!(other.comes(2500, "e", 4), ["wake"]);
    assert_eq!(other.woken(2500), ["call 1 r x.x want 15 4x1"]);
    assert_eq!(other.tokens("r x.x"), 0);
    assert_eq!(other.answers(2502, 1, 900, lends(9, 0, 3), &[1]), ["e 200 903"]);
    assert_eq!(other.tokens("r x.x"), 3);
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_after_its_own_end_or_a_second_one_lends_nothing() {
    let [mut one, mut other] = workers(&policy_of(&[LEASE]));
    one.comes(0, "a", 1);
    one.woken(0);
    assert_eq!(one.tick(20), ["a 503 timeout"]);
    // The time is over before a tick has come.
    assert_eq!(other.comes(1000, "b", 1), ["wake"]);
    assert_eq!(other.woken(1000), ["call 0 r x.x want 3 1x1"]);
    assert_eq!(one.answers(1000, 0, 996, lends(7, 0, 3), &[1]), NOTHING);
    assert_eq!(one.tokens("r x.x"), 0);
    assert_eq!(other.answers(1001, 0, 996, lends(8, 0, 3), &[1]), ["b 200 999"]);
    assert_eq!(other.answers(1002, 0, 996, lends(9, 0, 3), &[1]), NOTHING);
    assert_eq!(other.knows("r x.x").map(|entry| (entry.lease.tokens, entry.lease.end)), Some((3, 8)));
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_granted_to_one_who_has_left_is_never_pooled() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    worker.comes(0, "a", 5);
    worker.woken(0);
    worker.leaves("a");
    assert_eq!(worker.answers(1, 0, 900, lends(7, 0, 3), &[1]), NOTHING);
    assert_eq!(worker.knows("r x.x").map(|entry| (entry.lease.tokens, entry.lease.size)), Some((3, 3)));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_dry_bucket_refuses_here_and_is_asked_at_a_pace() {
    let [mut one, mut other] = workers(&policy_of(&[LEASE]));
    one.comes(0, "a", 1);
    one.comes(0, "b", 2);
    one.woken(0);
    // The two of b would be there in 2 ms; other proxies want them, too, so it is not asked again before the pace, 250 ms
    // and up to a half of it more, which is what clients are told.
    let told = one.answers(1, 0, 0, NOTHING_LENT, &[1, 0]);
    assert_eq!(told, ["a 200 0", "b 429 0 in 1"]);
    let entry = one.knows("r x.x").expect("an entry");
    let quiet = (entry.lease.quiet_until - at(1).mono).0;
    assert!((250..=375).contains(&quiet), "{quiet}");
    assert_eq!((entry.lease.quiet_cost, entry.lease.denied), (2, true));
    for ms in [2, 100, quiet] {
        assert_eq!(other.comes(ms, "c", 2), [format!("c 429 {} in 1", u64::from(ms > 1))], "{ms}");
    }
    // One that costs less may ask.
    assert_eq!(other.comes(quiet, "d", 1), ["wake"]);
    assert_eq!(other.woken(quiet), ["call 0 r x.x want 3 1x1"]);
    assert_eq!(other.answers(quiet, 0, 0, Lends { limited: true, ..NOTHING_LENT }, &[1]), ["d 200 0"]);
    // When it is over, one asks.
    let over = (other.knows("r x.x").expect("an entry").lease.quiet_until - at(0).mono).0;
    assert_eq!(one.comes(over - 1, "e", 1)[0].split(' ').nth(1), Some("429"));
    assert_eq!(one.comes(over, "f", 2), ["wake"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn an_idle_lease_goes_back() {
    // The tokens that the bucket has left, those that are lent, and after how long they go back.
    for (left, tokens, after) in [(500, 40, Some(250)), (501, 40, Some(5000)), (501, 15, None), (500, 3, Some(250))] {
        let [mut worker] = workers(&policy_of(&[LEASE]));
        let since = borrow(&mut worker, left, tokens);
        let call = worker.calls.len();
        let Some(after) = after else {
            assert_eq!(worker.tick(since + 29_000), NOTHING);
            assert_eq!(worker.tokens("r x.x"), tokens);
            continue;
        };
        assert_eq!(worker.tick(since + after - 1), NOTHING);
        let told = worker.tick(since + after);
        assert_eq!(told, [format!("call {call} r x.x want 0 lease 7 of {tokens} with {tokens}")]);
        assert_eq!(worker.answers(since + after + 1, call, left + tokens as i64, NOTHING_LENT, &[]), NOTHING);
        let lease = worker.knows("r x.x").expect("an entry").lease;
        assert_eq!((lease.tokens, lease.size, lease.end), (0, 0, 0));
        // That is all: nothing is looked after any more.
        assert_eq!(worker.tick(since + 100_000), NOTHING);
        assert!(worker.flow.is_idle());
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_lease_of_which_something_is_spent_stays() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let since = borrow(&mut worker, 400, 40);
    assert_eq!(worker.comes(since + 200, "a", 1).len(), 1);
    assert_eq!(worker.tick(since + 250), NOTHING);
    assert_eq!(worker.tick(since + 449), NOTHING);
    assert_eq!(worker.tick(since + 450), ["call 3 r x.x want 0 lease 7 of 40 with 39"]);
    // Who comes while it goes back spends nothing of it: another proxy may have it by now.
    assert_eq!(worker.comes(since + 451, "b", 1), NOTHING);
    let told = worker.answers(since + 452, 3, 1000, NOTHING_LENT, &[]);
    assert_eq!(told, ["call 4 r x.x want 192 1x1"]);
    // It was not executed: then all is there again.
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let since = borrow(&mut worker, 400, 40);
    worker.tick(since + 250);
    assert_eq!(worker.comes(since + 251, "c", 1), NOTHING);
    let end = HttpEnd::NotStarted(Failure::Unreachable);
    assert_eq!(worker.ends(since + 252, 3, end), ["c 200 691"]);
    assert_eq!(worker.tokens("r x.x"), 39);
}

#[wasm_bindgen_test(unsupported = test)]
fn while_the_breaker_is_open_tokens_at_hand_still_serve() {
    let [mut worker] = workers(&policy_of(&[LEASE]));
    let now = borrow(&mut worker, 900, 12) + 10;
    for told in ["b 503 reset"; 2] {
        assert_eq!(worker.sends(now, "b", 1, &[("x", "y")]), ["wake"]);
        worker.woken(now);
        let call = worker.calls.len() - 1;
        assert_eq!(worker.ends(now, call, HttpEnd::NoAnswer), [told]);
    }
    assert_eq!(worker.sends(now, "c", 1, &[("x", "y")]), ["c 503 breaker"]);
    for (name, left) in [("d", 921), ("e", 920)] {
        assert_eq!(worker.comes(now, name, 1), [format!("{name} 200 {left}")]);
    }
    // Nobody asks ahead meanwhile.
    assert_eq!(worker.comes(now, "f", 9), ["f 200 911"]);
    assert_eq!(worker.comes(now, "g", 2), ["g 503 breaker"]);
    assert_eq!(worker.comes(now, "h", 1), ["h 200 910"]);
    assert_eq!(worker.comes(now, "i", 1), ["i 503 breaker"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn where_nothing_is_shared_leases_are_exact() {
    let shared = Shared::default();
    let mut worker = Worker::with(0, policy_of(&[LEASE]), &shared, Nowhere, CallOwner::Root);
    worker.comes(0, "a", 1);
    worker.comes(0, "b", 2);
    assert_eq!(worker.woken(0), ["call 0 r x.x want 0 1x1 2x1"]);
    assert_eq!(worker.answers(1, 0, 997, NOTHING_LENT, &[1, 1]), ["a 200 999", "b 200 997"]);
    worker.comes(2, "c", 1);
    assert_eq!(worker.woken(2), ["call 1 r x.x want 0 1x1"]);
    // Nothing is lent that was not wanted.
    assert_eq!(worker.answers(3, 1, 993, lends(7, 0, 3), &[1]), ["c 503 unreadable"]);
    assert!(worker.flow.is_idle());
    // Several rules: what is granted is not held, since nobody could keep it.
    let mut worker = Worker::with(0, policy_of(&[LEASE, FOR_ALL]), &shared, Nowhere, CallOwner::Root);
    worker.comes(0, "a", 1);
    assert_eq!(worker.woken(0), ["call 0 r x.x want 0 1x1", "call 1 all constant.all want 0 1x1"]);
    assert_eq!(worker.answers(1, 0, 999, NOTHING_LENT, &[1]), NOTHING);
    assert_eq!(worker.answers(1, 1, 49, NOTHING_LENT, &[1]), ["a 200 49"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn where_calls_are_the_requests_own_one_of_them_is_about_the_lease() {
    let shared = Shared::default();
    let mut worker = Worker::with(0, policy_of(&[LEASE]), &shared, shared.clone(), CallOwner::Request);
    assert_eq!(worker.comes(0, "a", 1), ["call 0 r x.x want 3 1x1"]);
    // The others ask for themselves alone.
    assert_eq!(worker.comes(0, "b", 1), ["call 1 r x.x want 0 1x1"]);
    assert_eq!(worker.answers(1, 1, 999, NOTHING_LENT, &[1]), ["b 200 999"]);
    assert_eq!(worker.answers(2, 0, 995, lends(7, 0, 3), &[1]), ["a 200 998"]);
    assert_eq!(worker.comes(1000, "c", 1), ["c 200 999"]);
    assert!(worker.flow.is_idle());
}

/// What comes of calls for two rules, told by which of them answers first, and in which order the policy has them.
fn in_each_order(rules: [&str; 2], check: impl Fn(&mut Worker, [usize; 2], [usize; 2])) {
    for rules in [rules, [rules[1], rules[0]]] {
        for answered in [[0, 1], [1, 0]] {
            let [mut worker] = workers(&policy_of(&rules));
            // Which call is for the rule `r`, and which for `all`.
            let calls = if rules[0].contains(r#""name": "all""#) { [1, 0] } else { [0, 1] };
            check(&mut worker, calls, answered);
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn of_several_rules_all_are_debited_or_none() {
    for of_tenant in [EXACT, LEASE] {
        in_each_order([of_tenant, FOR_ALL], |worker, [of_r, of_all], answered| {
            assert_eq!(worker.comes(0, "a", 2), ["wake"]);
            let want = if of_tenant == LEASE { 3 } else { 0 };
            let mut calls = worker.woken(0);
            calls.sort_by_key(|call| call.contains(" all "));
            // What one grants is held until the other has answered.
            let wanted = [
                format!("call {of_r} r x.x want {want} hold 2x1"),
                format!("call {of_all} all constant.all want 0 hold 2x1"),
            ];
            assert_eq!(calls, wanted);
            let extra = if of_tenant == LEASE { 3 } else { 0 };
            let mut told = Vec::new();
            for call in answered {
                told.push(match call == of_r {
                    true => worker.answers(19, call, 990, lends(7, 0, extra), &[1]),
                    false => worker.answers(19, call, 49, lends(8, 0, 0), &[1]),
                });
            }
            // The tightest is told of, for its size: about half of 100, whoever answered first.
            assert_eq!(told, [vec![], vec!["a 200 50".to_owned()]]);
            assert_eq!([worker.tokens("r x.x"), worker.tokens("all constant.all")], [extra, 0]);
            assert!(worker.flow.is_idle());
        });
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn where_one_of_several_rules_denies_nothing_is_debited() {
    for of_tenant in [EXACT, LEASE] {
        in_each_order([of_tenant, FOR_ALL], |worker, [of_r, _], answered| {
            worker.comes(0, "a", 2);
            worker.woken(0);
            let mut told = Vec::new();
            for call in answered {
                told.extend(match call == of_r {
                    true => worker.answers(1, call, 400, lends(7, 0, 0), &[1]),
                    false => worker.answers(1, call, 0, NOTHING_LENT, &[0]),
                });
            }
            // It is refused as soon as one denies; what the other granted is held, and the next may have it.
            assert_eq!(told, ["a 429 0 in 1"]);
            let lease = worker.knows("r x.x").expect("an entry").lease;
            assert_eq!((lease.tokens, lease.size, lease.spent), (2, 2, 0));
            // Nobody wants it: it goes back after the pace.
            assert_eq!(worker.tick(250), NOTHING);
            assert_eq!(worker.tick(251), ["call 2 r x.x want 0 lease 7 of 2 with 2"]);
            assert_eq!(worker.answers(252, 2, 402, NOTHING_LENT, &[]), NOTHING);
            assert_eq!(worker.tokens("r x.x"), 0);
            assert_eq!(worker.tick(100_000), NOTHING);
            assert!(worker.flow.is_idle());
        });
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_taken_for_a_request_that_another_rule_refuses_is_put_back() {
    in_each_order([LEASE, FOR_ALL], |worker, [of_r, of_all], _| {
        worker.comes(0, "a", 1);
        worker.woken(0);
        worker.answers(1, of_r, 996, lends(7, 0, 3), &[1]);
        assert_eq!(worker.answers(1, of_all, 0, NOTHING_LENT, &[0]), ["a 429 0 in 1"]);
        // One that was held and three that were lent.
        assert_eq!(worker.tokens("r x.x"), 4);
        // `all` is known to be dry, so the tokens of `r` are taken and put back, in whichever order they are looked at.
        for ms in 2..10 {
            assert_eq!(worker.comes(ms, "b", 1), ["b 429 0 in 1"]);
            assert_eq!(worker.tokens("r x.x"), 4);
        }
        // `all` has one again: it is asked, and meanwhile nothing is taken of `r`.
        assert_eq!(worker.comes(10, "c", 1), ["wake"]);
        assert_eq!(worker.tokens("r x.x"), 4);
        let told = worker.woken(10);
        assert_eq!(told, ["call 2 all constant.all want 0 hold 1x1"]);
        assert_eq!(worker.answers(11, 2, 0, lends(8, 0, 0), &[1]), ["c 200 0"]);
        assert_eq!([worker.tokens("r x.x"), worker.tokens("all constant.all")], [3, 0]);
    });
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_held_for_one_that_has_left_or_timed_out_is_not_spent() {
    for leaves in [true, false] {
        let [mut worker] = workers(&policy_of(&[EXACT, FOR_ALL]));
        worker.comes(0, "a", 2);
        worker.woken(0);
        worker.answers(1, 0, 900, lends(7, 0, 0), &[1]);
        if leaves {
            worker.leaves("a");
        } else {
            assert_eq!(worker.tick(20), ["a 503 timeout"]);
        }
        assert_eq!(worker.answers(21, 1, 90, lends(8, 0, 0), &[1]), NOTHING);
        assert_eq!([worker.tokens("r x.x"), worker.tokens("all constant.all")], [2, 2], "{leaves}");
        // The next has them without a call.
        assert_eq!(worker.comes(22, "b", 2), ["b 200 92"]);
        assert_eq!([worker.tokens("r x.x"), worker.tokens("all constant.all")], [0, 0]);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_rule_that_fails_is_answered_by_its_own_on_error() {
    let for_all = |on_error: &str| FOR_ALL.replace("deny", on_error);
    for (on_error, told) in [("deny", "a 503 reset"), ("allow", "a 200 999 reset"), ("local", "a 200 99 reset")] {
        let [mut worker] = workers(&policy_of(&[EXACT, &for_all(on_error)]));
        worker.comes(0, "a", 1);
        worker.woken(0);
        let first = worker.ends(1, 1, HttpEnd::NoAnswer);
        let then = worker.answers(2, 0, 999, lends(7, 0, 0), &[1]);
        assert_eq!([first, then].concat(), [told], "{on_error}");
        // Where it was refused nothing is spent.
        assert_eq!(worker.tokens("r x.x"), u64::from(on_error == "deny"));
    }
}

/// Shared data that takes everything and keeps nothing, as a table does that is far too small.
#[derive(Debug)]
struct Forgetful;

impl Store for Forgetful {
    fn get(&self, _name: &str) -> Option<(Vec<u8>, u32)> {
        None
    }

    fn put(&self, _name: &str, _value: &[u8], _over: Over) -> Result<(), Lost> {
        Ok(())
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_whose_tokens_are_forgotten_again_and_again_asks_a_few_times_and_no_more() {
    let other = LEASE.replace(r#""r""#, r#""q""#);
    let policy = policy_of(&[LEASE, &other]);
    let mut worker = Worker::with(0, policy, &Shared::default(), Forgetful, CallOwner::Root);
    assert_eq!(worker.comes(0, "a", 1), ["wake"]);
    let mut told = worker.woken(0);
    let mut answered = 0;
    while answered < worker.calls.len() {
        let granted = lends(7, 0, 3);
        told.extend(worker.answers(0, answered, 996, granted, &[1]));
        answered += 1;
        told.extend(worker.woken(0));
        assert!(answered <= 100, "{told:#?}");
    }
    assert_eq!((answered, told.last().map(String::as_str)), (32, Some("a 503 timeout")));
}

#[wasm_bindgen_test(unsupported = test)]
fn what_a_proxy_holds_goes_back_where_it_and_the_limiter_have_a_cost_only_together() {
    for (left, cost, wants) in [(5, 7, 0), (5, 6, 0), (5, 5, 12), (5, 3, 12), (900, 7, 12)] {
        let [mut worker] = workers(&policy_of(&[LEASE]));
        worker.comes(0, "a", 1);
        worker.woken(0);
        assert_eq!(worker.answers(0, 0, left, lends(7, 0, 3), &[1]), [format!("a 200 {}", left + 3)]);
        if cost <= 3 {
            assert_eq!(worker.comes(0, "b", cost), [format!("b 200 {}", left)], "it is at hand");
            continue;
        }
        assert_eq!(worker.comes(0, "b", cost), ["wake"]);
        let call = format!("call 1 r x.x want {wants} lease 7 of 3 with 3 {cost}x1");
        assert_eq!(worker.woken(0), [call], "{left} left and {cost} wanted");
        assert_eq!(worker.tokens("r x.x"), if wants == 0 { 0 } else { 3 }, "what goes back is not spent meanwhile");
    }
}

/// Two at once of each tenant, that only counts.
const SHADOW: &str = r#""name": "s", "limits": "2/s", "mode": "exact", "on_error": "deny", "shadow_mode": true"#;

#[wasm_bindgen_test(unsupported = test)]
fn a_shadow_rule_counts_what_it_would_refuse_and_nobody_waits_for_it() {
    let [mut worker] = workers(&policy_of(&[SHADOW]));
    for name in ["a", "b"] {
        assert_eq!(worker.comes(0, name, 1), [format!("{name} 200")]);
    }
    assert_eq!(worker.comes(0, "c", 1), ["c 200", "shadow 0"]);
    assert_eq!(worker.comes(499, "d", 1), ["d 200", "shadow 0"]);
    assert_eq!(worker.comes(500, "e", 1), ["e 200"]);
    // What it let pass is settled within a second.
    assert_eq!(worker.tick(999), NOTHING);
    assert_eq!(worker.tick(1000), ["call 0 s x.x want 0 debt 3"]);
    // Others have spent as well: a token is owed.
    assert_eq!(worker.answers(1001, 0, -1, NOTHING_LENT, &[]), NOTHING);
    assert_eq!(worker.comes(1999, "f", 1), ["f 200", "shadow 0"]);
    assert_eq!(worker.comes(2000, "g", 1), ["g 200"]);
    assert!(worker.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_shadow_rule_has_a_bucket_of_its_own_and_counts_only_what_the_others_let_pass() {
    let [mut worker] = workers(&policy_of(&[LEASE, SHADOW]));
    // It is not waited for, so nothing is held for it.
    assert_eq!(worker.comes(0, "a", 1), ["wake"]);
    assert_eq!(worker.woken(0), ["call 0 r x.x want 3 1x1"]);
    assert_eq!(worker.knows("s x.x"), None);
    assert_eq!(worker.answers(1, 0, 0, lends(7, 0, 3), &[1]), ["a 200 3"]);
    let used = |worker: &Worker| worker.knows("s x.x").and_then(|entry| entry.known).map(|used| used.units);
    assert_eq!(used(&worker), Some(1000));
    // A second later it is full again.
    for (name, left, units) in [("b", 999, 1000), ("c", 998, 2000)] {
        assert_eq!(worker.comes(1001, name, 1), [format!("{name} 200 {left}")]);
        assert_eq!(used(&worker), Some(units));
    }
    assert_eq!(worker.comes(1001, "d", 1), ["d 200 997", "shadow 1"]);
    // One that the other rule has not let pass yet, or refuses, is not counted.
    assert_eq!(worker.comes(1001, "e", 1), ["wake"]);
    assert_eq!(worker.woken(1001), ["call 1 r x.x want 12 lease 7 of 3 with 0 1x1"]);
    assert_eq!(worker.answers(1002, 1, 0, NOTHING_LENT, &[0]), ["e 429 0 in 1"]);
    assert_eq!(worker.comes(1003, "f", 1), ["f 429 0 in 1"]);
}

/// Twenty at once of each tenant, settled ten times in a second.
const ASYNC: &str = r#""name": "r", "limits": "20/s", "mode": "async", "sync_interval": "100ms", "on_error": "deny""#;

#[wasm_bindgen_test(unsupported = test)]
fn what_is_spent_first_is_settled_at_each_interval() {
    let [mut one, mut other] = workers(&policy_of(&[ASYNC]));
    // The limiter says first what there is; nothing is taken there, and those who have waited spend it here.
    assert_eq!([one.comes(0, "a", 9), one.comes(0, "a", 1)].concat(), ["wake"]);
    assert_eq!(one.woken(0), ["call 0 r x.x want 0"]);
    assert_eq!(other.comes(0, "a", 30), ["wake"]);
    assert_eq!(other.woken(0), NOTHING);
    assert_eq!(one.answers(0, 0, 20, NOTHING_LENT, &[]), ["others 2", "a 200 11", "a 200 10"]);
    assert_eq!(other.woken(0), ["a 429 10 in 2"]);
    for (name, cost, left) in [("b", 5, 5), ("c", 4, 1)] {
        assert_eq!(one.comes(0, name, cost), [format!("{name} 200 {left}")]);
    }
    // All workers spend of one level.
    assert_eq!(other.comes(50, "d", 2), ["d 200 0"]);
    assert_eq!(other.comes(50, "e", 1), ["e 429 0 in 1"]);
    assert_eq!([one.tick(99), other.tick(99)], [NOTHING, NOTHING]);
    assert_eq!(one.tick(100), ["call 1 r x.x want 0 debt 21"]);
    // Nobody waits for it, and what is spent meanwhile is settled with the next.
    assert_eq!(other.comes(150, "f", 1), ["f 200 1"]);
    // Other proxies have spent, too: two are owed when it is sent, and the one spent since.
    assert_eq!(one.answers(152, 1, -2, NOTHING_LENT, &[]), NOTHING);
    let level = one.knows("r x.x").and_then(|entry| entry.known).expect("a level");
    assert_eq!((level.units, level.at), (23_000, at(100).mono));
    assert_eq!([one.tick(199), other.tick(199)], [NOTHING, NOTHING]);
    // Whoever comes first settles it.
    assert_eq!(other.tick(200), ["call 0 r x.x want 0 debt 1"]);
    assert_eq!(one.tick(200), NOTHING);
    assert_eq!(other.answers(201, 0, -2, NOTHING_LENT, &[]), NOTHING);
    // Three are missing from 200 on.
    assert_eq!(other.comes(349, "g", 1), ["g 429 0 in 1"]);
    assert_eq!(other.comes(350, "h", 1), ["h 200 0"]);
    assert_eq!(one.tick(450), NOTHING);
    assert_eq!(other.tick(450), ["call 1 r x.x want 0 debt 1"]);
    // An answer that takes longer than an interval is followed by the next at once.
    assert_eq!(one.comes(500, "i", 1), ["i 200 2"]);
    assert_eq!(other.answers(551, 1, 9, NOTHING_LENT, &[]), ["call 2 r x.x want 0 debt 1"]);
    assert_eq!(other.answers(552, 2, 8, NOTHING_LENT, &[]), NOTHING);
    assert_eq!([one.tick(2000), other.tick(2000)], [NOTHING, NOTHING]);
    assert!(one.flow.is_idle() && other.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_debt_is_told_whole_again_after_a_script_that_redis_does_not_know() {
    for (end, again) in [(HttpEnd::NotStarted(Failure::Unreachable), Some(2)), (HttpEnd::NoAnswer, None)] {
        let [mut worker] = workers(&policy_of(&[ASYNC]));
        worker.knows_of(0, 20);
        worker.comes(0, "a", 2);
        assert_eq!(worker.tick(100), ["call 1 r x.x want 0 debt 2"]);
        assert_eq!(worker.does_not_know(101, 1), ["call 2 r x.x want 0 debt 2"]);
        // The second try never began, so that nothing is lost; or nobody knows.
        assert_eq!(worker.ends(102, 2, end), NOTHING);
        let wanted: Vec<String> = again.iter().map(|debt| format!("call 3 r x.x want 0 debt {debt}")).collect();
        assert_eq!(worker.tick(201), wanted);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_debt_is_not_told_for_a_second_to_a_key_that_is_no_bucket() {
    let [mut worker] = workers(&policy_of(&[ASYNC]));
    worker.knows_of(0, 20);
    worker.comes(0, "a", 2);
    assert_eq!(worker.tick(100), ["call 1 r x.x want 0 debt 2"]);
    let body = format!(r#"{{"EVALSHA":[{},"WEIR the key holds no token bucket"]}}"#, worker.calls[1].number);
    worker.ends(101, 1, HttpEnd::Answer { status: 200, body: body.as_bytes() });
    assert_eq!(worker.comes(110, "b", 3), ["b 200 17"]);
    for ms in (111..1210).step_by(33) {
        assert_eq!(worker.tick(ms), NOTHING, "{ms}");
    }
    assert_eq!(worker.tick(1300), ["call 2 r x.x want 0 debt 3"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_debt_that_could_not_be_told_is_told_again_unless_it_may_have_been_heard() {
    for (end, again) in [(HttpEnd::NotStarted(Failure::Unreachable), Some(2)), (HttpEnd::NoAnswer, None)] {
        let [mut worker] = workers(&policy_of(&[ASYNC]));
        worker.knows_of(0, 20);
        assert_eq!(worker.comes(0, "a", 2), ["a 200 18"]);
        assert_eq!(worker.tick(100), ["call 1 r x.x want 0 debt 2"]);
        assert_eq!(worker.ends(101, 1, end), NOTHING);
        assert_eq!(worker.tick(199), NOTHING);
        let wanted: Vec<String> = again.iter().map(|debt| format!("call 2 r x.x want 0 debt {debt}")).collect();
        assert_eq!(worker.tick(201), wanted);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_debt_is_told_again_where_the_bridge_says_that_nothing_has_run() {
    for (failure, again) in [("clusterdown", Some(2)), ("readonly", Some(2)), ("overloaded", Some(2)), ("late", None)] {
        let mut policy = policy_of(&[ASYNC]);
        policy.limiters =
            Limiters::new(Limiter { transport: TransportName::Bridge, ..policy.limiters.first().clone() }, Vec::new());
        let [mut worker] = workers(&policy);
        worker.knows_of(0, 20);
        assert_eq!(worker.comes(0, "a", 2), ["a 200 18"]);
        assert_eq!(worker.tick(100), ["call 1 r x.x want 0 debt 2"]);
        assert_eq!(worker.bridge_says(101, 1, &format!("no {failure}")), NOTHING);
        assert_eq!(worker.tick(199), NOTHING);
        let wanted: Vec<String> = again.iter().map(|debt| format!("call 2 r x.x want 0 debt {debt}")).collect();
        assert_eq!(worker.tick(201), wanted, "{failure}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_waits_for_an_unknown_bucket_waits_until_its_deadline() {
    // The answer comes too late, or not at all: on_error decides, and the next one asks again.
    for (end, told) in
        [(HttpEnd::NoAnswer, "a 503 reset"), (HttpEnd::NotStarted(Failure::Unreachable), "a 503 unreachable")]
    {
        let [mut worker] = workers(&policy_of(&[ASYNC]));
        assert_eq!(worker.comes(0, "a", 2), ["wake"]);
        assert_eq!(worker.woken(0), ["call 0 r x.x want 0"]);
        assert_eq!(worker.ends(5, 0, end), [told]);
    }
    let [mut worker] = workers(&policy_of(&[ASYNC]));
    assert_eq!(worker.comes(6, "b", 2), ["wake"]);
    assert_eq!(worker.woken(6), ["call 0 r x.x want 0"]);
    assert_eq!(worker.tick(26), ["b 503 timeout"]);
    // A late answer serves those who come after.
    assert_eq!(worker.answers(27, 0, 20, NOTHING_LENT, &[]), NOTHING);
    assert_eq!(worker.comes(28, "c", 2), ["c 200 18"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_repeated_request_passes_free_eight_times() {
    let mut policy = policy_of(&[r#""name": "r", "limits": "60/m", "mode": "local""#]);
    policy.rules[0].idempotency = Some(Idempotency { header: "idempotency-key".to_owned(), keep: Ms(10_000) });
    let [mut one, mut other] = workers(&policy);
    let mut sends = |nth: usize, ms, tenant, key: &str| {
        let worker = if nth.is_multiple_of(2) { &mut one } else { &mut other };
        worker.sends(ms, "a", 1, &[("x", tenant), ("idempotency-key", key)]).join(", ")
    };
    assert_eq!(sends(0, 0, "x", "k"), "a 200 59");
    // Whichever worker it comes to, it takes nothing.
    for nth in 1..=8 {
        assert_eq!(sends(nth, 1, "x", "k"), "a 200", "{nth}");
    }
    // More is no retry: it is charged, and then may be repeated again.
    assert_eq!([sends(0, 2, "x", "k"), sends(1, 3, "x", "k")], ["a 200 58", "a 200"]);
    // Another tenant's request of that name is another, and so is one of another name, and one without.
    assert_eq!(
        [sends(0, 3, "y", "k"), sends(1, 3, "x", "l"), sends(0, 3, "x", "")],
        ["a 200 59", "a 200 57", "a 200 56"]
    );
    assert_eq!(sends(0, 3, "x", ""), "a 200 55");
    // It is known for as long as was said, from when it was charged.
    assert_eq!([sends(0, 10_001, "x", "k"), sends(1, 10_002, "x", "k")], ["a 200", "a 200 59"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_a_cheap_request_has_paid_lets_no_dear_one_pass() {
    let mut policy = policy_of(&[r#""name": "r", "limits": "60/m", "mode": "local""#]);
    policy.rules[0].idempotency = Some(Idempotency { header: "idempotency-key".to_owned(), keep: Ms(10_000) });
    let [mut worker] = workers(&policy);
    let mut sends = |path: &str| {
        let sent = Sent::to("GET", path, &[("x", "x"), ("idempotency-key", "k")]);
        let Decision::Ask(asks, _) = decide(&worker.plan.policy, &sent) else { panic!("a limit applies") };
        let plan = worker.plan.clone();
        let (arrival, _) = worker.flow.charge(&plan, asks, vec![], "a", at(0));
        let Arrival::Decided(verdict) = arrival else { panic!("it waits") };
        worker.tell(vec![Step::Finish("a", verdict)]).join(", ")
    };
    // Each is charged once, and repeats only itself.
    assert_eq!([sends("/preview"), sends("/export"), sends("/other")], ["a 200 59", "a 200 58", "a 200 57"]);
    assert_eq!([sends("/export"), sends("/preview"), sends("/./other")], ["a 200"; 3]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_was_refused_has_not_been_charged() {
    let mut policy = policy_of(&[r#""name": "r", "limits": "1/m", "mode": "local""#]);
    policy.rules[0].idempotency = Some(Idempotency { header: "idempotency-key".to_owned(), keep: Ms(600_000) });
    let [mut worker] = workers(&policy);
    let mut sends = |ms, key: &str| worker.sends(ms, "a", 1, &[("x", "x"), ("idempotency-key", key)]).join(", ");
    assert_eq!(sends(0, "k"), "a 200 0");
    assert_eq!([sends(1, "l"), sends(2, "l"), sends(3, "k")], ["a 429 0 in 60", "a 429 0 in 60", "a 200"]);
    assert_eq!([sends(60_000, "l"), sends(60_001, "l"), sends(60_002, "k")], ["a 200 0", "a 200", "a 200"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_passed_uncounted_has_not_been_charged() {
    let mut policy = policy_of(&[r#""name": "r", "limits": "60/m", "mode": "exact", "on_error": "allow""#]);
    policy.rules[0].idempotency = Some(Idempotency { header: "idempotency-key".to_owned(), keep: Ms(600_000) });
    let [mut worker] = workers(&policy);
    let headers = [("x", "x"), ("idempotency-key", "k")];
    assert_eq!(worker.sends(0, "a", 1, &headers), ["wake"]);
    worker.woken(0);
    assert_eq!(worker.ends(1, 0, HttpEnd::NoAnswer), ["a 200 reset"]);
    // It was let pass because nobody could count it; once somebody can, it is counted.
    assert_eq!(worker.sends(2, "a", 1, &headers), ["wake"]);
    worker.woken(2);
    assert_eq!(worker.answers(3, 1, 59, lends(0, 0, 0), &[1]), ["a 200 59"]);
    assert_eq!(worker.sends(4, "a", 1, &headers), ["a 200"]);
}
