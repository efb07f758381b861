//! Several limiters of one policy, event by event: each with its breaker, its deadline and its buckets.
//!
//! Steps are told in short: `wake`, `a 200 59` (request a passes, 59 tokens are left), `a 429 0 in 2`, `a 503 timeout`. A
//! call is told with its limiter and bucket and what is said of the lease: `call 0 big r x.x want 3`, then
//! `lease 7 of 3 with 2` (its end, its size, what is unspent), `hold`, `debt 4` and those who wait, `1x2` (two of cost 1).

use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, Call, CallOwner, Decision, Engine, Event, Step, Ticket, Verdict, decide};
use weir::limiter::{Failure, HttpEnd};
use weir::local::new_keys::NewKeys;
use weir::local::table::{Entry, STAYS, Table};
use weir::policy::{Limit, Policy};
use weir::response::{Answer, Refusal};

use crate::made::{Sent, Shared, bucket_at, limit, number_of, numbered, policy};

/// Where the tests' time begins.
const START: u64 = 1_700_000_000_000;

const EXACT: &str = r#""mode": "exact", "on_error": "deny""#;
const LEASE: &str = r#""mode": "lease", "on_error": "deny""#;
const ASYNC: &str = r#""mode": "async", "sync_interval": "100ms", "on_error": "deny""#;

/// A rule of 1000/s by tenant, with these words.
fn rule(name: &str, words: &str) -> String {
    format!(
        r#"{{"name": "{name}", "key": [{{"header": {{"name": "x", "as": "x", "trusted": true}}}}],
            "limits": "1000/s", {words}}}"#
    )
}

/// The rule `r` at `main`, but for the tenant `whale`, who is at `big`.
fn of_whale(words: &str) -> String {
    rule("r", &format!(r#"{words}, "limiter": {{"default": "main", "tenants": {{"x.whale": "big"}}}}"#))
}

/// The rules `r` at `main` and `q` at `big`.
fn at_both(of_main: &str, of_big: &str) -> [String; 2] {
    [rule("r", &format!(r#"{of_main}, "limiter": "main""#)), rule("q", &format!(r#"{of_big}, "limiter": "big""#))]
}

/// A policy of these rules and two limiters: a request waits for `main` 20 ms, and for `big` 50 ms.
fn policy_of(rules: &[String], words_of_main: &str) -> Policy {
    let limiter = |cluster: &str, timeout: &str, words: &str| {
        format!(
            r#"{{"transport": "webdis", "cluster": "{cluster}", "timeout": "{timeout}",
                "breaker": {{"failures": 2, "within": "1s", "probe_every": "200ms"}} {words}}}"#
        )
    };
    policy(&format!(
        r#"{{"version": 1, "proxies": 1, "rules": [{}], "response": {{"retry_after_jitter": 0}},
            "limiters": {{"main": {}, "big": {}}}}}"#,
        rules.join(", "),
        limiter("webdis", "20ms", words_of_main),
        limiter("webdis-big", "50ms", "")
    ))
}

/// A lease as the script tells it: its end, what it carries on, and what is new.
type Lends = [u64; 3];

const NOTHING_LENT: Lends = [0; 3];

const NOTHING: [&str; 0] = [];

/// A worker of a proxy.
struct Worker {
    flow: Engine<&'static str>,
    plan: Rc<Plan>,
    shared: Shared,
    calls: Vec<Call>,
    tickets: Vec<(&'static str, Ticket)>,
    /// Calls that have ended: the limiter and how.
    ended: Vec<String>,
}

fn at(ms: u64) -> Now {
    Now { mono: Ms(START + ms), unix: Ms(START + ms) }
}

impl Worker {
    fn new(policy: Policy, shared: &Shared) -> Worker {
        let plan = Rc::new(Plan::new(1, policy, Rc::new(shared.clone()), (1, 2)));
        let flow = Engine::new(CallOwner::Root, 1, 0);
        Worker { flow, plan, shared: shared.clone(), calls: vec![], tickets: vec![], ended: vec![] }
    }

    fn of(rules: &[String]) -> Worker {
        Worker::new(policy_of(rules, ""), &Shared::default())
    }

    /// A request of a tenant comes, decided or not.
    fn comes(&mut self, ms: u64, name: &'static str, tenant: &str) -> Vec<String> {
        self.costs(ms, name, tenant, 1)
    }

    fn costs(&mut self, ms: u64, name: &'static str, tenant: &str, cost: u64) -> Vec<String> {
        let mut asks = match decide(&self.plan.policy, &Sent::to("GET", "/", &[("x", tenant)])) {
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

    fn woken(&mut self, ms: u64) -> Vec<String> {
        let steps = self.flow.on_wake_by_other(at(ms));
        self.tell(steps)
    }

    fn tick(&mut self, ms: u64) -> Vec<String> {
        self.plan.refresh(at(ms).mono);
        let steps = self.flow.on_timer(at(ms));
        self.tell(steps)
    }

    fn ends(&mut self, ms: u64, call: usize, end: HttpEnd) -> Vec<String> {
        let steps = self.flow.on_reply(self.calls[call].id, end, at(ms));
        self.tell(steps)
    }

    fn fails(&mut self, ms: u64, call: usize) -> Vec<String> {
        self.ends(ms, call, HttpEnd::NoAnswer)
    }

    /// The script's answer: so many tokens are left, this is lent, and so many of each run are granted.
    fn answers(&mut self, ms: u64, call: usize, left: u64, lends: Lends, granted: &[u64]) -> Vec<String> {
        let [end, kept, extra] = lends;
        let parts = numbers_of(&self.calls[call]);
        let [requests, period, burst] = [parts[0], parts[1], parts[2]];
        let valid = if end > 0 { 3_000 } else { 0 };
        let reset = ((burst - left) * period).div_ceil(requests);
        let reply = [&[left * period, reset, end, valid, kept, extra, 0][..], granted].concat();
        let body = numbered(number_of(&self.calls[call].http), &serde_json::json!({ "EVALSHA": reply }).to_string());
        self.ends(ms, call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    /// The script says that the key holds something else.
    fn finds_no_bucket(&mut self, ms: u64, call: usize) -> Vec<String> {
        let number = number_of(&self.calls[call].http);
        let body = format!(r#"{{"EVALSHA":[{number},"WEIR the key holds no token bucket"]}}"#);
        self.ends(ms, call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    /// What this proxy knows of the bucket of a rule and a tenant at a limiter.
    fn knows(&self, limiter: &str, rule_and_tenant: &str) -> Option<Entry> {
        let table = Table::open(&self.shared, "weir.rl.1.65536", 65_536, (1, 2)).expect("shared data");
        let (rule, tenant) = rule_and_tenant.split_once(' ').expect("a rule and a tenant");
        table.read(&self.shared, bucket_at(limiter, &table, rule, tenant, limit(1, 1, 1)))
    }

    fn tokens(&self, limiter: &str, rule_and_tenant: &str) -> u64 {
        self.knows(limiter, rule_and_tenant).map(|entry| entry.lease.tokens).unwrap_or_default()
    }

    fn tell(&mut self, steps: Vec<Step<&'static str>>) -> Vec<String> {
        let mut told = Vec::new();
        for step in steps {
            match step {
                Step::Wake => told.push("wake".to_owned()),
                Step::WakeOthers(workers) => told.push(format!("others {workers}")),
                Step::Count(plan, Event::CallEnded(limiter, end)) => {
                    self.ended.push(format!("{} {}", plan.policy.limiters.get(limiter).name, end.name()));
                }
                Step::Count(..) => {}
                Step::Call(call) => {
                    told.push(format!("call {} {}", self.calls.len(), what(&call)));
                    self.calls.push(call);
                }
                Step::Finish(name, verdict) => told.push(finished(name, verdict)),
            }
        }
        told
    }
}

/// The numbers that a call carries after its key.
fn numbers_of(call: &Call) -> Vec<u64> {
    call.http.body.split('/').skip(4).map(|part| part.parse().expect("a number")).collect()
}

/// What a call asks for, and of whom.
fn what(call: &Call) -> String {
    let numbers = numbers_of(call);
    let [_, _, _, _, _, want, end, size, carry, hold, debt, _, runs @ ..] = numbers.as_slice() else {
        panic!("{numbers:?}")
    };
    // rl:{x.tenant}:rule:default:1000:t3
    let key = call.http.body.split('/').nth(3).expect("a key").replace("%3A", ":").replace("%2E", ".");
    let key = key.replace("%7B", "").replace("%7D", "").replace(['{', '}'], "");
    let key: Vec<&str> = key.split(':').collect();
    let mut line = format!("{} {} {} want {want}", call.plan.policy.limiters.get(call.limiter).name, key[2], key[1]);
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
    line
}

fn finished(name: &str, Verdict { answer, record, .. }: Verdict) -> String {
    let degraded = record.marks.iter().find_map(|mark| mark.degraded).map(Failure::name);
    let (status, headers) = match answer {
        Answer::Pass(headers) => (200, headers),
        Answer::Refuse(Refusal { status, headers, .. }) => (status, headers),
    };
    let header = |wanted| headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
    let mut line = format!("{name} {status}");
    for word in [header("x-ratelimit-remaining"), degraded].into_iter().flatten() {
        line += &format!(" {word}");
    }
    if let Some(seconds) = header("retry-after").filter(|_| status == 429) {
        line += &format!(" in {seconds}");
    }
    line
}

/// Calls of one wake-up, whose order is nobody's affair.
fn sorted(mut told: Vec<String>) -> Vec<String> {
    told.sort_by_key(|line| line.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>());
    told
}

#[wasm_bindgen_test(unsupported = test)]
fn while_one_limiter_is_left_alone_the_buckets_of_another_are_as_ever() {
    for (words, want, lends) in [(EXACT, 0, NOTHING_LENT), (LEASE, 3, [7, 0, 3]), (ASYNC, 0, NOTHING_LENT)] {
        let is_async = words == ASYNC;
        let mut worker = Worker::of(&[of_whale(words)]);
        let runs = if is_async { "" } else { " 1x1" };
        for (nth, name) in [(0, "a"), (1, "b")] {
            assert_eq!(worker.comes(nth, name, "x"), ["wake"]);
            assert_eq!(worker.woken(nth), [format!("call {nth} main r x.x want {want}{runs}")]);
            assert_eq!(worker.fails(nth, nth as usize), [format!("{name} 503 reset")]);
        }
        assert_eq!(worker.comes(2, "c", "x"), ["c 503 breaker"]);
        // The whale's limiter has not failed.
        assert_eq!(worker.comes(3, "d", "whale"), ["wake"]);
        assert_eq!(worker.woken(3), [format!("call 2 big r x.whale want {want}{runs}")]);
        let granted: &[u64] = if is_async { &[] } else { &[1] };
        let (left, told) = if is_async { (1000, 999) } else { (996, 996 + lends[2]) };
        assert_eq!(worker.answers(4, 2, left, lends, granted), [format!("d 200 {told}")]);
        assert_eq!(worker.comes(5, "e", "x"), ["e 503 breaker"]);
        // Nor is it taken for the one that has: what it has lent, or let be spent, serves without a call.
        match words {
            EXACT => {
                assert_eq!(worker.comes(5, "f", "whale"), ["wake"]);
                assert_eq!(worker.woken(5), ["call 3 big r x.whale want 0 1x1"]);
                assert_eq!(worker.answers(6, 3, 995, lends, &[1]), ["f 200 995"]);
            }
            LEASE => assert_eq!(worker.comes(5, "f", "whale").len(), 1),
            _ => assert_eq!(worker.comes(5, "f", "whale"), ["f 200 999"]),
        }
        assert_eq!(worker.ended[..3], ["main reset", "main reset", "big ok"]);
        // Both go on once a probe has found the one well again.
        let call = worker.calls.len();
        assert_eq!(worker.comes(202, "g", "x"), ["wake"]);
        let told = worker.woken(202);
        let probe = told.iter().position(|line| line.contains(" main ")).expect("a probe");
        assert_eq!(told[probe], format!("call {} main r x.x want {want}{runs}", call + probe));
        let (left, remaining) = if is_async { (1000, 999) } else { (996, 996 + lends[2]) };
        assert_eq!(worker.answers(203, call + probe, left, lends, granted), [format!("g 200 {remaining}")]);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_probe_is_made_by_a_request_that_has_two_buckets_at_its_limiter() {
    // Two rules, as well as two limits of one rule.
    let main = format!(r#"{EXACT}, "limiter": "main""#);
    let two_limits = rule("r", &main).replace(r#""1000/s""#, r#"["1000/s", "9000/m"]"#);
    for rules in [vec![rule("r", &main), rule("q", &main)], vec![two_limits]] {
        let mut worker = Worker::of(&rules);
        assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
        assert_eq!(worker.woken(0).len(), 2);
        assert_eq!(worker.fails(0, 0), ["a 503 reset"]);
        assert_eq!(worker.fails(0, 1), NOTHING);
        assert_eq!(worker.comes(1, "b", "x"), ["b 503 breaker"]);
        assert_eq!(worker.comes(200, "c", "x"), ["wake"]);
        assert_eq!(worker.woken(200).len(), 2);
        // It is one probe: the next request waits for its end.
        assert_eq!(worker.comes(200, "d", "x"), ["d 503 breaker"]);
        assert_eq!(worker.answers(201, 2, 999, [7, 0, 0], &[1]), NOTHING);
        let left = if worker.calls[3].http.body.contains("/60000/") { 8_999 } else { 999 };
        assert_eq!(worker.answers(201, 3, left, [7, 0, 0], &[1]), ["c 200 999"]);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn of_two_limiters_that_are_left_alone_no_probe_is_spent_that_asks_nobody() {
    let mut worker = Worker::of(&at_both(EXACT, EXACT));
    for (nth, name) in [(0, "a"), (1, "b")] {
        assert_eq!(worker.comes(nth, name, "x"), ["wake"]);
        assert_eq!(worker.woken(nth).len(), 2);
        let call = 2 * nth as usize;
        assert_eq!(worker.fails(nth, call), [format!("{name} 503 reset")]);
        // The second fails later, so that its next probe is due later.
        assert_eq!(worker.fails(nth, call + 1), NOTHING);
    }
    // However often somebody comes who needs both, each asks as soon as both may be asked.
    let mut asked = None;
    for ms in (2..402).step_by(2) {
        let told = worker.comes(ms, "c", "x");
        if told == ["wake"] {
            asked = Some(ms);
            break;
        }
        assert_eq!(told, ["c 503 breaker"], "{ms}");
    }
    let asked = asked.expect("a probe");
    assert!((100..=202).contains(&asked), "{asked}");
    assert_eq!(sorted(worker.woken(asked)).len(), 2);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_a_request_needs_at_two_limiters_it_takes_of_both_or_of_none() {
    for main_first in [true, false] {
        let asks = |worker: &mut Worker, name| {
            assert_eq!(worker.costs(0, name, "x", 2), ["wake"]);
            // Both are asked at once, and what one grants is held until the other has spoken.
            assert_eq!(worker.woken(0), ["call 0 main r x.x want 0 hold 2x1", "call 1 big q x.x want 0 hold 2x1"]);
        };
        let in_order = |worker: &mut Worker, granted_by_big: u64| {
            let mut told = Vec::new();
            for is_main in [main_first, !main_first] {
                told.extend(match is_main {
                    true => worker.answers(1, 0, 400, [7, 0, 0], &[1]),
                    false => worker.answers(1, 1, 300 * granted_by_big, [8 * granted_by_big, 0, 0], &[granted_by_big]),
                });
            }
            told
        };
        let mut worker = Worker::of(&at_both(EXACT, EXACT));
        asks(&mut worker, "a");
        assert_eq!(in_order(&mut worker, 1), ["a 200 301"]);
        assert_eq!([worker.tokens("main", "r x.x"), worker.tokens("big", "q x.x")], [0, 0]);

        let mut worker = Worker::of(&at_both(EXACT, EXACT));
        asks(&mut worker, "b");
        assert_eq!(in_order(&mut worker, 0), ["b 429 0 in 1"]);
        assert_eq!([worker.tokens("main", "r x.x"), worker.tokens("big", "q x.x")], [2, 0]);
        // Nobody wants what is held: it goes back, to the one that has granted it.
        assert_eq!(worker.tick(250), NOTHING);
        assert_eq!(worker.tick(251), ["call 2 main r x.x want 0 lease 7 of 2 with 2"]);
        assert_eq!(worker.answers(252, 2, 402, NOTHING_LENT, &[]), NOTHING);
        assert_eq!(worker.tokens("main", "r x.x"), 0);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn each_bucket_is_waited_for_as_long_as_its_limiter_says() {
    for on_error in ["allow", "local", "deny"] {
        let of_main = EXACT.replace("deny", on_error);
        let asked = || {
            let mut worker = Worker::of(&at_both(&of_main, EXACT));
            assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
            assert_eq!(worker.woken(0).len(), 2);
            assert_eq!(worker.tick(19), NOTHING);
            worker
        };
        let mut worker = asked();
        if on_error == "deny" {
            assert_eq!(worker.tick(20), ["a 503 timeout"]);
            // What comes too late for it is held for others, and goes back.
            assert_eq!(worker.answers(21, 0, 900, [7, 0, 0], &[1]), NOTHING);
            assert_eq!(worker.answers(22, 1, 900, [8, 0, 0], &[1]), NOTHING);
            assert_eq!([worker.tokens("main", "r x.x"), worker.tokens("big", "q x.x")], [1, 1]);
            continue;
        }
        // `main` is not waited for any longer, and `big` may still say no.
        assert_eq!(worker.tick(20), NOTHING);
        assert_eq!(worker.flow.waiting(), 1);
        assert_eq!(worker.answers(49, 1, 900, [8, 0, 0], &[1]), ["a 200 949 timeout"], "{on_error}");
        let mut worker = asked();
        assert_eq!(worker.tick(20), NOTHING);
        assert_eq!(worker.answers(49, 1, 0, NOTHING_LENT, &[0]), ["a 429 0 in 1"], "{on_error}");
        let mut worker = asked();
        assert_eq!([worker.tick(20), worker.tick(49)], [NOTHING; 2]);
        assert_eq!(worker.tick(50), ["a 503 timeout"]);
        assert_eq!(worker.flow.waiting(), 0);
    }
    // The one that takes longer fails by the word of its own rule; the other has granted long before.
    for (on_error, told) in [("allow", "a 200 950 timeout"), ("local", "a 200 950 timeout"), ("deny", "a 503 timeout")]
    {
        let mut worker = Worker::of(&at_both(EXACT, &EXACT.replace("deny", on_error)));
        assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
        worker.woken(0);
        assert_eq!(worker.answers(5, 0, 900, [7, 0, 0], &[1]), NOTHING);
        assert_eq!([worker.tick(20), worker.tick(49)], [NOTHING; 2]);
        assert_eq!(worker.tick(50), [told]);
        assert_eq!(worker.tokens("main", "r x.x"), u64::from(on_error == "deny"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_held_and_is_gone_is_asked_for_again_as_long_as_the_request_waits() {
    let mut worker = Worker::of(&at_both(EXACT, EXACT));
    assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
    assert_eq!(worker.woken(0).len(), 2);
    assert_eq!(worker.answers(5, 0, 900, [7, 0, 0], &[1]), NOTHING);
    // Longer than `main` is waited for, but nobody waits for `main`.
    assert_eq!(worker.tick(30), NOTHING);
    worker.shared.wipe();
    let asked = [worker.answers(40, 1, 900, [8, 0, 0], &[1]), worker.woken(41)].concat();
    let calls: Vec<&str> = asked.iter().filter_map(|step| step.strip_prefix("call ")).collect();
    assert_eq!(calls, ["2 big q x.x want 0 hold 1x1", "3 main r x.x want 0 hold 1x1"]);
    assert_eq!(worker.answers(42, 3, 800, [9, 0, 0], &[1]), NOTHING);
    assert_eq!(worker.answers(43, 2, 800, [10, 0, 0], &[1]), ["a 200 802"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn no_request_waits_after_its_last_deadline_though_it_could_be_the_probe_of_a_limiter() {
    let mut worker = Worker::of(&at_both(&EXACT.replace("deny", "allow"), ASYNC));
    worker.flow = Engine::new(CallOwner::Request, 1, 0);
    let of_big = worker.plan.policy.limiters.iter().find(|(_, limiter)| limiter.name == "big").expect("big").0;
    for ms in [0, 1] {
        worker.plan.call_failed(of_big, at(ms).mono, 0);
    }
    assert!(worker.plan.is_open(of_big));
    // `main` is asked first; the next probe of `big` is due.
    assert_eq!(worker.comes(500, "a", "x"), ["call 0 main r x.x want 0 hold 1x1"]);
    assert_eq!(worker.tick(600), ["a 503 timeout"]);
    assert_eq!(worker.flow.waiting(), 0);
}

#[wasm_bindgen_test(unsupported = test)]
fn it_is_the_limiter_that_failed_which_is_told() {
    let mut worker = Worker::of(&at_both(EXACT, EXACT));
    assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
    assert_eq!(worker.woken(0).len(), 2);
    assert_eq!(worker.answers(1, 0, 900, [7, 0, 0], &[1]), NOTHING);
    // What `main` had granted is gone when `big` fails: nobody asks for it again, and `main` has not failed.
    worker.shared.wipe();
    assert_eq!(worker.fails(2, 1), ["a 503 reset"]);
    assert_eq!(worker.ended, ["main ok", "big reset"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn the_limiter_is_that_of_the_tenant_else_of_the_network_else_of_the_tier_else_the_default_one() {
    let by_tier = rule(
        "r",
        &format!(
            r#"{EXACT}, "tier": {{"tenants": {{"x.acme": "gold", "x.minnow": "gold"}}, "default": "free"}},
               "limiter": {{"default": "main", "tiers": {{"gold": "big"}}, "tenants": {{"x.whale": "big", "x.minnow": "main"}}}}"#
        ),
    )
    .replace(r#""limits": "1000/s""#, r#""limits": {"free": "1000/s", "gold": "1000/s"}"#);
    let by_network = format!(
        r#"{{"name": "ip", "key": [{{"client_ip": {{"from": "host", "as": "ip"}}}}], "limits": "1000/s", {EXACT},
             "limiter": {{"default": "main", "tenants": {{"ip.10.0.0.0/8": "big", "ip.10.0.0.7": "main"}}}}}}"#
    );
    let policy = policy_of(&[by_tier, by_network], "");
    for (tenant, address, limiters) in [
        ("x", "192.0.2.1:1", ["main", "main"]),
        ("acme", "192.0.2.1:1", ["big", "main"]),
        ("whale", "10.1.2.3:1", ["big", "big"]),
        ("minnow", "10.0.0.7:1", ["main", "main"]),
        ("x", "10.0.0.8:1", ["main", "big"]),
    ] {
        let sent = Sent::to("GET", "/", &[("x", tenant), (".source.address", address)]);
        let Decision::Ask(asks, _) = decide(&policy, &sent) else { panic!("limits apply") };
        let found: Vec<&str> = asks.iter().map(|ask| policy.limiters.get(ask.bucket.limiter).name.as_str()).collect();
        assert_eq!(found, limiters, "{tenant} at {address}");
    }
}

/// Two policies of one proxy: in the first the whale is at `main`, in the second at `big`.
fn before_and_after(words: &str) -> [Worker; 2] {
    let shared = Shared::default();
    [rule("r", &format!(r#"{words}, "limiter": "main""#)), of_whale(words)]
        .map(|rule| Worker::new(policy_of(&[rule], ""), &shared))
}

#[wasm_bindgen_test(unsupported = test)]
fn a_tenant_that_changes_its_limiter_has_a_bucket_in_each() {
    let [mut before, mut after] = before_and_after(LEASE);
    assert_eq!(before.comes(0, "a", "whale"), ["wake"]);
    assert_eq!(before.woken(0), ["call 0 main r x.whale want 3 1x1"]);
    assert_eq!(before.answers(1, 0, 996, [7, 0, 3], &[1]), ["a 200 999"]);
    // The lease of one is neither spent at the other nor reported to it.
    assert_eq!(after.comes(2, "b", "whale"), ["wake"]);
    assert_eq!(after.woken(2), ["call 0 big r x.whale want 3 1x1"]);
    assert_eq!(after.answers(3, 0, 500, [9, 0, 3], &[1]), ["b 200 503"]);
    let leases = |worker: &Worker| {
        ["main", "big"].map(|limiter| {
            let lease = worker.knows(limiter, "r x.whale").expect("an entry").lease;
            (lease.end, lease.tokens)
        })
    };
    assert_eq!(leases(&after), [(7, 3), (9, 3)]);
    assert_eq!(after.comes(4, "c", "whale").len(), 1);
    assert_eq!(leases(&after), [(7, 3), (9, 2)]);
    assert_eq!(before.comes(4, "d", "whale").len(), 1);
    assert_eq!(leases(&after), [(7, 2), (9, 2)]);
    // Each goes back to where it came from.
    assert_eq!(before.costs(5, "e", "whale", 500), ["wake"]);
    assert_eq!(before.woken(5).len(), 1);
    assert!(what(&before.calls[1]).starts_with("main r x.whale want"), "{}", what(&before.calls[1]));
    assert!(what(&before.calls[1]).contains(" lease 7 of 3 with 2"), "{}", what(&before.calls[1]));
    // What one knows to be dry the other does not.
    let [mut before, mut after] = before_and_after(EXACT);
    assert_eq!(before.comes(0, "a", "whale"), ["wake"]);
    before.woken(0);
    assert_eq!(before.answers(0, 0, 0, NOTHING_LENT, &[0]), ["a 429 0 in 1"]);
    assert_eq!(before.comes(0, "b", "whale"), ["b 429 0 in 1"]);
    assert_eq!(after.comes(0, "c", "whale"), ["wake"]);
    assert_eq!(after.woken(0), ["call 0 big r x.whale want 0 1x1"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_key_that_is_no_bucket_is_left_alone_at_its_limiter_only() {
    let [mut worker, after] = before_and_after(EXACT);
    assert_eq!(worker.comes(0, "a", "whale"), ["wake"]);
    assert_eq!(worker.woken(0), ["call 0 main r x.whale want 0 1x1"]);
    assert_eq!(worker.finds_no_bucket(1, 0), ["a 503 bad_key"]);
    assert_eq!(worker.comes(2, "b", "whale"), ["b 503 bad_key"]);
    // The same worker under the other policy: the same key, at the other limiter.
    worker.plan = after.plan.clone();
    assert_eq!(worker.comes(3, "c", "whale"), ["wake"]);
    assert_eq!(worker.woken(3), ["call 1 big r x.whale want 0 1x1"]);
    assert_eq!(worker.answers(4, 1, 999, NOTHING_LENT, &[1]), ["c 200 999"]);
    assert_eq!(worker.ended, ["main bad_key", "big ok"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn each_limiter_counts_its_own_new_keys() {
    let mut worker =
        Worker::new(policy_of(&[of_whale(EXACT)], r#", "max_new_keys_per_second": 2"#), &Shared::default());
    let mut asks = |name, tenant| {
        let told = worker.comes(0, name, tenant);
        if told == ["wake"] {
            assert_eq!(worker.woken(0).len(), 1);
        }
        told
    };
    assert_eq!(["a", "b", "c"].map(|name| asks(name, name).concat()), ["wake", "wake", "c 503 new_keys"]);
    // The other has no such bound, nor has it used up a place here.
    assert_eq!(asks("d", "whale"), ["wake"]);
    assert_eq!(asks("e", "e"), ["e 503 new_keys"]);
    let names = worker.shared.names();
    assert!(names.contains(&"weir.rl.1.65536.new_keys.main".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| !name.ends_with("new_keys.big")), "{names:?}");
}

#[wasm_bindgen_test(unsupported = test)]
fn ticks_come_at_half_of_the_shortest_wait() {
    let mut policy = policy_of(&[of_whale(EXACT)], "");
    for (of_big, of_main, period) in
        [(50, 20, 10), (20, 50, 10), (50, 60, 25), (1_000, 2_000, 50), (1, 2_000, 5), (2_000, 1, 5), (81, 80, 40)]
    {
        policy.limiters.iter_mut().zip([of_big, of_main]).for_each(|(limiter, wait)| limiter.timeout = Ms(wait));
        assert_eq!(Engine::<()>::timer_period(&policy), Ms(period), "{of_big} and {of_main}");
    }
}

/// The rule `r` of each tenant at `main`, and `all` for all at `big`, which is known to be dry at the time 0.
fn where_all_is_dry(words_of_main: &str) -> Worker {
    let all = rule("all", &format!(r#"{EXACT}, "limiter": "big""#))
        .replace(r#"{"header": {"name": "x", "as": "x", "trusted": true}}"#, r#"{"constant": "all"}"#);
    let rules = [rule("r", &format!(r#"{EXACT}, "limiter": "main""#)), all];
    let mut worker = Worker::new(policy_of(&rules, words_of_main), &Shared::default());
    assert_eq!(worker.comes(0, "first", "first"), ["wake"]);
    assert_eq!(worker.woken(0).len(), 2);
    assert_eq!(worker.answers(0, 1, 0, NOTHING_LENT, &[0]), NOTHING);
    worker
}

#[wasm_bindgen_test(unsupported = test)]
fn one_that_another_bucket_refuses_spends_no_probe() {
    let mut worker = where_all_is_dry("");
    assert_eq!(worker.fails(0, 0), ["first 429 0 in 1"]);
    assert_eq!(worker.comes(10, "a", "a"), ["wake"]);
    assert_eq!(worker.woken(10).len(), 2);
    assert_eq!(worker.fails(10, 2), ["a 503 reset"]);
    assert_eq!(worker.answers(10, 3, 0, NOTHING_LENT, &[0]), NOTHING);
    assert_eq!(worker.comes(12, "b", "b"), ["b 503 breaker"]);
    // The probe is due, and `all` has 290 tokens.
    assert_eq!(worker.costs(300, "c", "c", 500), ["c 429 290 in 1"]);
    assert_eq!(worker.comes(300, "d", "d"), ["wake"]);
    assert_eq!(sorted(worker.woken(300)).len(), 2);
    assert!(what(&worker.calls[4]).starts_with("main r x.d "), "{}", what(&worker.calls[4]));
}

#[wasm_bindgen_test(unsupported = test)]
fn one_that_another_bucket_refuses_spends_no_place_of_a_new_key() {
    let mut worker = where_all_is_dry(r#", "max_new_keys_per_second": 2"#);
    assert_eq!(worker.answers(0, 0, 999, [7, 0, 0], &[1]), ["first 429 0 in 1"]);
    for name in ["a", "b", "c"] {
        assert_eq!(worker.costs(1, name, name, 100), [format!("{name} 429 1 in 1")]);
    }
    assert_eq!(worker.costs(100, "d", "d", 100), ["wake"], "the second place is still there");
    assert_eq!(worker.costs(100, "e", "e", 100), ["e 503 new_keys"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn the_count_of_new_keys_is_no_entry_of_the_table() {
    let shared = Shared::default();
    let mut policy = policy_of(&[of_whale(EXACT)], r#", "max_new_keys_per_second": 2"#);
    policy.table_entries = 64;
    // Every place is taken by what has to stay until a limiter has been told of it.
    let table = Table::open(&shared, "weir.rl.1.64", 64, (1, 2)).expect("shared data");
    for key in 0..500 {
        let key = table.fingerprint(9, &key.to_string());
        table.change(&shared, key, at(0).mono, |entry| {
            entry.means_until = STAYS;
            entry.lease.spent = 1;
        });
    }
    assert_eq!(table.change(&shared, table.fingerprint(9, "new"), at(0).mono, |entry| entry.epoch = 1), None);
    let mut worker = Worker::new(policy, &shared);
    assert_eq!(worker.comes(0, "a", "a"), ["wake"]);
    assert_eq!(worker.comes(0, "b", "b"), NOTHING);
    for ms in [0, 1, 499] {
        assert_eq!(worker.comes(ms, "c", "c"), ["c 503 new_keys"]);
    }
    assert_eq!(worker.comes(500, "d", "d"), NOTHING, "it waits");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_count_of_new_keys_that_cannot_be_read_is_none_and_one_that_cannot_be_written_spares_the_limiter() {
    let shared = Shared::default();
    let most = Limit::new(2, Ms(1000), 2).expect("a limit");
    let [one, other] = [0, 1].map(|_| NewKeys::new("n".to_owned(), most));
    let admitted = |ms| [&one, &other, &one].map(|new_keys| new_keys.admits(&shared, at(ms).mono));
    assert_eq!(admitted(0), [true, true, false], "all workers count together");
    let written = shared.value("n").expect("a value");
    assert_eq!(written.len(), 32);
    // Half a second for each; nobody gains by a clock that goes back.
    assert_eq!(admitted(499), [false; 3]);
    assert_eq!(admitted(500), [true, false, false]);
    assert_eq!(admitted(200), [false; 3]);
    shared.wipe();
    assert_eq!(admitted(501), [true, true, false]);
    // Torn anywhere, of another version, or somebody else's.
    for length in 0..written.len() {
        shared.set("n", &written[..length]);
        assert_eq!(admitted(502), [true, true, false], "{length} bytes");
    }
    for at in 0..written.len() {
        let mut torn = written.clone();
        torn[at] ^= 1;
        shared.set("n", &torn);
        assert_eq!(admitted(502), [true, true, false], "byte {at}");
    }
    shared.set("n", &[written.clone(), vec![0]].concat());
    assert_eq!(admitted(502), [true, true, false]);
    for (lost, is_admitted) in [(7, true), (8, false)] {
        shared.wipe();
        shared.lose(lost);
        assert_eq!(one.admits(&shared, at(503).mono), is_admitted, "{lost} writes are lost");
        shared.lose(0);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_first_question_keeps_its_place_only_until_it_is_answered() {
    let means_until = |worker: &Worker| worker.knows("main", "r x.x").expect("an entry").means_until;
    let asks = |worker: &mut Worker| {
        assert_eq!(worker.comes(0, "a", "x"), ["wake"]);
        assert_eq!(worker.woken(0), ["call 0 main r x.x want 0"]);
        // Nothing is owed: it makes room once the call is over, whoever says so.
        let entry = worker.knows("main", "r x.x").expect("an entry");
        assert_eq!((entry.means_until, entry.lease.spent, entry.lease.call_ends), (STAYS, 0, at(1000).mono));
    };
    let mut worker = Worker::of(&[of_whale(ASYNC)]);
    asks(&mut worker);
    assert_eq!(worker.fails(1, 0), ["a 503 reset"]);
    assert!(means_until(&worker) <= at(1000).mono);
    let mut worker = Worker::of(&[of_whale(ASYNC)]);
    asks(&mut worker);
    // What is spent then has to stay until the limiter has been told of it.
    assert_eq!(worker.answers(1, 0, 900, NOTHING_LENT, &[]), ["a 200 900"]);
    assert_eq!(means_until(&worker), STAYS);
    assert_eq!(worker.tick(101), ["call 1 main r x.x want 0 debt 1"]);
    assert_eq!(means_until(&worker), STAYS);
    assert_eq!(worker.answers(102, 1, 990, NOTHING_LENT, &[]), NOTHING);
    assert_eq!(means_until(&worker), at(111).mono);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_being_settled_is_not_forgotten_for_an_answer_that_knows_nothing_of_it() {
    // What a call without a lease brings is noted where it denies, or where new keys are counted.
    for (granted, left, words) in [(1, 200, r#", "max_new_keys_per_second": 1000"#), (0, 700, "")] {
        let shared = Shared::default();
        let mut policy = policy_of(&[of_whale(ASYNC)], words);
        // Late calls are failures.
        policy.limiters.iter_mut().for_each(|limiter| limiter.breaker.failures = 9);
        let [mut one, mut other] = [0, 1].map(|_| Worker::new(policy.clone(), &shared));
        assert_eq!(one.costs(0, "a", "x", 1), ["wake"]);
        assert_eq!(one.woken(0), ["call 0 main r x.x want 0"]);
        assert_eq!(one.tick(20), ["a 503 timeout"]);
        // It has outlived a wait, so that the next asks for itself.
        assert_eq!(one.costs(25, "b", "x", 800), ["wake"]);
        assert_eq!(one.woken(25), ["call 1 main r x.x want 0 800x1"]);
        assert_eq!(one.answers(30, 0, 1000, NOTHING_LENT, &[]), NOTHING);
        assert_eq!(other.costs(31, "c", "x", 950), ["c 200 50"]);
        assert_eq!(one.tick(45), ["b 503 timeout"]);
        assert_eq!(other.tick(131), ["call 0 main r x.x want 0 debt 950"]);
        assert_eq!(one.answers(140, 1, left, NOTHING_LENT, &[granted]), NOTHING);
        // 50, and what has come back in 110 ms.
        assert_eq!(other.costs(141, "d", "x", 500), ["d 429 160 in 1"], "{granted}");
    }
}
