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
use weir::local::table::{Entry, Table};
use weir::policy::Policy;
use weir::response::{Answer, Refusal};

use crate::made::{Sent, Shared, number_of, numbered, policy};

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
        let bucket = table.fingerprint(&format!("rl:{{{tenant}}}:{rule}:default:1000:t3"));
        table.read(&self.shared, bucket.at(table.fingerprint(&format!("limiter {limiter}"))))
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
