//! What a proxy decides alone: workers that share a store, and a limiter that is made up.
//!
//! What a request gets is told in short: `asked 200`, `429 in 10` (decided here, Retry-After 10), `503 breaker`.

use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, Call, CallOwner, Decision, Engine, Step, Verdict, decide};
use weir::limiter::{Failure, HttpEnd};
use weir::local::table::Table;
use weir::local::{Nowhere, Store};
use weir::response::{Answer, Refusal};
use weir::rules::Ask;

use crate::made::{Random, Sent, Shared, bucket_at, limit, number_of, policy, rounds};

/// Where the tests' time begins.
const START: u64 = 1_700_000_000_000;

/// A policy with this limit, and more fields of the rule, of the limiter and of the policy.
fn plan_of(limit: &str, rule: &str, limiter: &str, top: &str, store: &(impl Store + Clone + 'static)) -> Rc<Plan> {
    let policy = policy(&format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis" {limiter}}}}},
            "rules": [{{"name": "r", "key": [{{"header": {{"name": "x", "trusted": true}}}}], "limits": {limit} {rule}}}],
            "response": {{"retry_after_jitter": 0}} {top}}}"#
    ));
    Rc::new(Plan::new(1, policy, Rc::new(store.clone()), (1, 2)))
}

const EXACT: &str = r#", "mode": "exact", "on_error": "deny""#;
const ON_ERROR_LOCAL: &str = r#", "mode": "exact", "on_error": "local""#;
const LOCAL: &str = r#", "mode": "local""#;
const OF_THREE: &str = r#", "proxies": 3"#;

fn ask(plan: &Plan, tenant: &str, cost: u64) -> Ask {
    match decide(&plan.policy, &Sent::to("GET", "/", &[("x", tenant)])) {
        Decision::Ask(asks, _) => {
            let [ask] = asks.try_into().expect("one rule");
            Ask { cost, ..ask }
        }
        Decision::Answer(verdict) => panic!("{verdict:?}"),
    }
}

/// How the limiter answers a call: with the units that are left and how many it granted, or not at all.
type Redis<'r> = &'r dyn Fn(&Call) -> Option<(u64, u64)>;

const DOWN: Redis = &|_| None;

/// A call takes a token from a full bucket of 60/m.
const FULL: Redis = &|_| Some((59 * 60_000, 1));

fn dry(units: u64) -> impl Fn(&Call) -> Option<(u64, u64)> {
    move |_| Some((units, 0))
}

struct Worker {
    flow: Engine<()>,
    shared: Shared,
}

fn at(ms: u64) -> Now {
    Now { mono: Ms(START + ms), unix: Ms(START + ms) }
}

impl Worker {
    fn of(shared: &Shared) -> Worker {
        Worker { flow: Engine::new(CallOwner::Root, 1, 0), shared: shared.clone() }
    }

    fn comes(&mut self, plan: &Rc<Plan>, tenant: &str, cost: u64, ms: u64, redis: Redis) -> String {
        self.comes_and_loses(plan, tenant, cost, ms, redis, 0)
    }

    /// A request comes, and the limiter answers at once; then so many writes are lost.
    fn comes_and_loses(
        &mut self,
        plan: &Rc<Plan>,
        tenant: &str,
        cost: u64,
        ms: u64,
        redis: Redis,
        lost: u32,
    ) -> String {
        let now = at(ms);
        let (arrival, mut steps) = self.flow.charge(plan, vec![ask(plan, tenant, cost)], vec![], (), now);
        let (mut answer, mut reason, mut asked) = (None, None, "");
        if let Arrival::Decided(decided) = arrival {
            assert!(steps.is_empty(), "no call and no wake: {steps:?}");
            steps.push(Step::Finish((), decided));
        }
        while !steps.is_empty() {
            for step in std::mem::take(&mut steps) {
                match step {
                    Step::Wake => steps.extend(self.flow.on_wake(now)),
                    Step::Count(..) => {}
                    Step::Finish((), Verdict { answer: finished, record, .. }) => {
                        reason = record.marks.iter().find_map(|mark| mark.degraded).map(Failure::name);
                        assert_eq!(answer.replace(finished), None);
                    }
                    Step::Call(call) => {
                        asked = "asked ";
                        let body = redis(&call).map(|reply| reply_to(&call, reply));
                        let end = match &body {
                            Some(body) => HttpEnd::Answer { status: 200, body: body.as_bytes() },
                            None => HttpEnd::NoAnswer,
                        };
                        self.shared.lose(lost);
                        steps.extend(self.flow.on_reply(call.id, end, now));
                    }
                    Step::WakeOthers(_) => panic!("nobody else is concerned: {step:?}"),
                }
            }
        }
        self.shared.lose(0);
        assert!(self.flow.is_idle());
        let (status, headers) = match answer.expect("an answer") {
            Answer::Pass(headers) => (200, headers),
            Answer::Refuse(Refusal { status, headers, .. }) => (status, headers),
        };
        let after = headers.iter().find(|(name, _)| *name == "retry-after").filter(|_| status == 429);
        let after = after.map(|(_, seconds)| format!(" in {seconds}")).unwrap_or_default();
        let reason = reason.map(|reason| format!(" {reason}")).unwrap_or_default();
        format!("{asked}{status}{after}{reason}")
    }
}

fn reply_to(call: &Call, (level, granted): (u64, u64)) -> String {
    let numbers: Vec<u64> = call.http.body.split('/').skip(4).map(|part| part.parse().expect("a number")).collect();
    let reset = (numbers[1] * numbers[2] - level).div_ceil(numbers[0]);
    serde_json::json!({ "EVALSHA": [number_of(&call.http), level, reset, 0, 0, 0, 0, 0, granted] }).to_string()
}

#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_that_is_dry_is_refused_here_until_its_tokens_are_back() {
    let shared = Shared::default();
    let plan = plan_of(r#""60/m""#, EXACT, "", "", &shared);
    let [mut one, mut other] = [Worker::of(&shared), Worker::of(&shared)];
    let comes = |worker: &mut Worker, cost, ms| worker.comes(&plan, "a", cost, ms, &dry(30_000));
    // Half a token is there; ten take nine seconds and a half.
    assert_eq!(comes(&mut one, 10, 0), "asked 429 in 10");
    let table = [(10, 1, "10"), (10, 499, "10"), (10, 500, "9"), (10, 8_500, "1"), (10, 9_499, "1")];
    for (cost, ms, seconds) in table {
        assert_eq!(comes(&mut other, cost, ms), format!("429 in {seconds}"), "cost {cost} after {ms}");
    }
    // A higher cost is refused too; a lower one may fit.
    assert_eq!([comes(&mut one, 11, 500), comes(&mut one, 60, 500)], ["429 in 10", "429 in 59"]);
    assert_eq!(comes(&mut one, 1, 499), "429 in 1");
    assert_eq!(one.comes(&plan, "a", 1, 500, FULL), "asked 200");
    // What was granted voids nothing: it is still certain that ten were not there.
    assert_eq!([comes(&mut one, 10, 9_499), comes(&mut one, 10, 9_500)], ["429 in 1", "asked 429 in 10"]);
    // Other tenants are not concerned.
    assert_eq!(one.comes(&plan, "b", 1, 9_501, FULL), "asked 200");
    // Without shared data everybody asks.
    let plan = plan_of(r#""60/m""#, EXACT, "", "", &Nowhere);
    let comes = |worker: &mut Worker, cost, ms| worker.comes(&plan, "a", cost, ms, &dry(30_000));
    let mut alone = Worker::of(&Shared::default());
    assert_eq!([comes(&mut alone, 10, 0), comes(&mut alone, 10, 0)], ["asked 429 in 10", "asked 429 in 10"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_fills_from_when_its_call_was_sent() {
    let shared = Shared::default();
    let plan = plan_of(r#""60/m""#, EXACT, "", "", &shared);
    let mut worker = Worker::of(&shared);
    let at = |ms| Now { mono: Ms(START + ms), unix: Ms(START + ms) };
    worker.flow.charge(&plan, vec![ask(&plan, "a", 1)], vec![], (), at(0));
    let steps = worker.flow.on_wake(at(3));
    let [Step::Call(call)] = steps.as_slice() else { panic!("{steps:?}") };
    // Half a token was there at some time between 3 and 15: at 503 there may be a whole one, and not before.
    let body = reply_to(call, (30_000, 0));
    worker.flow.on_reply(call.id, HttpEnd::Answer { status: 200, body: body.as_bytes() }, at(15));
    assert_eq!(worker.comes(&plan, "a", 1, 502, FULL), "429 in 1");
    assert_eq!(worker.comes(&plan, "a", 1, 503, FULL), "asked 200");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_known_is_what_was_used_under_whatever_limit_until_a_wipe() {
    let shared = Shared::default();
    let [plan, raised, lowered, burst, doubled] =
        [r#""60/m""#, r#""61/m""#, r#""59/m""#, r#"{"requests": 60, "per": "1m", "burst": 61}"#, r#""120/m""#]
            .map(|limit| plan_of(limit, EXACT, "", "", &shared));
    let mut worker = Worker::of(&shared);
    // All sixty are used: of a burst of 61 one is left, one of 59 is overdrawn by one, and one of 120 has sixty.
    let table = [
        (raised, "429 in 9", "429 in 10"),
        (lowered, "429 in 12", "429 in 10"),
        (burst, "429 in 9", "429 in 10"),
        // What the limiter says then, that all 120 are used, holds for the sixty, too.
        (doubled, "asked 429 in 5", "429 in 70"),
    ];
    for (other, told, back) in table {
        assert_eq!(ask(&other, "a", 1).bucket, ask(&plan, "a", 1).bucket);
        worker.comes(&plan, "a", 10, 0, &dry(0));
        assert_eq!(worker.comes(&plan, "a", 10, 1, &dry(0)), "429 in 10");
        assert_eq!(worker.comes(&other, "a", 10, 1, &dry(0)), told);
        assert_eq!(worker.comes(&plan, "a", 10, 2, &dry(0)), back);
    }
    shared.wipe();
    assert_eq!(worker.comes(&plan, "a", 10, 2, &dry(0)), "asked 429 in 10");
    assert_eq!(worker.comes(&plan, "a", 10, 3, &dry(0)), "429 in 10");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_kept_means_something_until_its_bucket_is_full() {
    let shared = Shared::default();
    let means_until = |prefix: &str| {
        let table = Table::open(&shared, prefix, 65_536, (1, 2)).expect("shared data");
        let entry =
            table.read(&shared, bucket_at("main", &table, "r", "header.a", limit(60, 60, 60))).expect("an entry");
        entry.means_until - Ms(START)
    };
    let mut worker = Worker::of(&shared);
    worker.comes(&plan_of(r#""60/m""#, EXACT, "", "", &shared), "a", 1, 100, &dry(30_000));
    assert_eq!(means_until("weir.rl.0.65536"), Ms(100 + 59_500));
    let plan = plan_of(r#""60/m""#, ON_ERROR_LOCAL, "", OF_THREE, &shared);
    worker.comes(&plan, "a", 2, 100, DOWN);
    assert_eq!(means_until("weir.rl.3.65536"), Ms(100 + 6_000));
    // Whichever of the two is full later.
    worker.comes(&plan, "a", 1, 200, &dry(59_000));
    assert_eq!(means_until("weir.rl.3.65536"), Ms(200 + 59_017));
    worker.comes(&plan, "a", 2, 1_200, DOWN);
    assert_eq!(means_until("weir.rl.3.65536"), Ms(200 + 59_017));
}

#[wasm_bindgen_test(unsupported = test)]
fn own_buckets_admit_exactly_their_share() {
    // 60/m among three: 20 at once, and one every three seconds.
    let many = r#", "breaker": {"failures": 1000000}"#;
    let table = [(ON_ERROR_LOCAL, many, "asked ", " reset"), (ON_ERROR_LOCAL, "", "", " breaker"), (LOCAL, "", "", "")];
    for (rule, limiter, asked, reason) in table {
        let shared = Shared::default();
        let plan = plan_of(r#""60/m""#, rule, limiter, OF_THREE, &shared);
        let mut workers = [Worker::of(&shared), Worker::of(&shared)];
        if reason == " breaker" {
            for _ in 0..5 {
                assert_eq!(workers[0].comes(&plan, "other", 1, 0, DOWN), "asked 200 reset");
            }
        }
        let mut told = Vec::new();
        for nth in 0..30 {
            told.push(workers[nth % 2].comes(&plan, "a", 1, 0, DOWN));
        }
        let granted = format!("{asked}200{reason}");
        assert_eq!(told[..20], vec![granted.clone(); 20], "{rule}");
        assert_eq!(told[20..], vec![format!("{asked}429 in 3{reason}"); 10], "{rule}");
        if reason == " breaker" {
            continue; // A probe would be due.
        }
        let mut at = |cost, ms| workers[0].comes(&plan, "a", cost, ms, DOWN);
        assert_eq!([at(1, 1000), at(1, 2999)], [2, 1].map(|left| format!("{asked}429 in {left}{reason}")));
        assert_eq!(at(1, 3000), granted);
        assert_eq!(at(20, 3000), format!("{asked}429 in 60{reason}"));
        // Another tenant has its own.
        assert_eq!(workers[1].comes(&plan, "b", 20, 3000, DOWN), granted);
        // What was let pass is not forgotten when the limit changes: twenty of forty are used.
        let raised = plan_of(r#""120/m""#, rule, limiter, OF_THREE, &shared);
        assert_eq!(workers[1].comes(&raised, "a", 20, 3000, DOWN), granted);
        assert_eq!(workers[1].comes(&raised, "a", 1, 3000, DOWN), format!("{asked}429 in 2{reason}"));
        assert_eq!(workers[1].comes(&plan, "a", 1, 3000, DOWN), format!("{asked}429 in 63{reason}"));
        assert_eq!(workers[1].comes(&plan, "a", 1, 120_000, DOWN), granted);
        // Two are used of the five that a bucket of the lower limit holds.
        let lowered = plan_of(r#""15/m""#, rule, limiter, OF_THREE, &shared);
        let told = [(); 6].map(|()| workers[1].comes(&lowered, "a", 1, 120_000, DOWN));
        assert_eq!(told[..3], vec![granted; 3]);
        assert_eq!(told[3], format!("{asked}429 in 12{reason}"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_that_cannot_be_written_lets_nobody_pass() {
    let shared = Shared::default();
    let mut worker = Worker::of(&shared);
    let plan = plan_of(r#""60/m""#, ON_ERROR_LOCAL, "", OF_THREE, &shared);
    assert_eq!(worker.comes_and_loses(&plan, "a", 1, 0, DOWN, 100), "asked 503 reset");
    // The breaker tries eight times to write the failure, then the bucket eight times.
    assert_eq!(worker.comes_and_loses(&plan, "a", 1, 0, DOWN, 16), "asked 503 reset");
    assert_eq!(worker.comes_and_loses(&plan, "a", 1, 0, DOWN, 15), "asked 200 reset");
    let local = plan_of(r#""60/m""#, LOCAL, "", OF_THREE, &shared);
    shared.lose(8);
    assert_eq!(worker.comes(&local, "b", 1, 0, DOWN), "503 unreachable");
    shared.lose(7);
    assert_eq!(worker.comes(&local, "b", 1, 0, DOWN), "200");
    // Nor where there is no shared data at all; on_error: allow is asked for, and passes.
    let mut alone = Worker::of(&Shared::default());
    let plans = [ON_ERROR_LOCAL, LOCAL].map(|rule| plan_of(r#""60/m""#, rule, "", OF_THREE, &Nowhere));
    assert_eq!(plans.map(|plan| alone.comes(&plan, "a", 1, 0, DOWN)), ["asked 503 reset", "503 unreachable"]);
    // A table that is wiped, torn or foreign is a fresh one.
    for bytes in [None, Some(&b"foreign"[..])] {
        for _ in 0..2 {
            assert_eq!(worker.comes(&local, "c", 20, 0, DOWN), "200");
            assert_eq!(worker.comes(&local, "c", 1, 0, DOWN), "429 in 3");
            match bytes {
                None => shared.wipe(),
                Some(bytes) => shared.names().iter().for_each(|name| shared.set(name, bytes)),
            }
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn so_many_new_keys_pass_in_a_second_and_known_ones_always() {
    for (on_error, rest) in [("deny", "503 new_keys"), ("allow", "200 new_keys"), ("local", "200 new_keys")] {
        let shared = Shared::default();
        let rule = format!(r#", "mode": "exact", "on_error": "{on_error}""#);
        let plan = plan_of(r#""60/m""#, &rule, r#", "max_new_keys_per_second": 4"#, OF_THREE, &shared);
        let [mut one, mut other] = [Worker::of(&shared), Worker::of(&shared)];
        let mut comes = |nth: usize, tenant: &str, ms| {
            let worker = if nth.is_multiple_of(2) { &mut one } else { &mut other };
            worker.comes(&plan, tenant, 1, ms, FULL)
        };
        for (nth, tenant) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert_eq!(comes(nth, tenant, 0), "asked 200");
        }
        // The fifth is one too many, however often it comes, and those who are known are not.
        for nth in 0..4 {
            assert_eq!(comes(nth, "e", 0), rest);
            assert_eq!(comes(nth, "f", 249), rest);
            assert_eq!(comes(nth, "a", 249), "asked 200");
        }
        // One more comes back in a quarter of a second, and four at most.
        assert_eq!([comes(0, "e", 250), comes(1, "f", 250), comes(1, "e", 250)], ["asked 200", rest, "asked 200"]);
        let told: Vec<String> = (0..6).map(|nth| comes(nth, &format!("later-{nth}"), 10_000)).collect();
        assert_eq!(told, ["asked 200", "asked 200", "asked 200", "asked 200", rest, rest]);
    }
    // Where the count cannot be written, the limiter is spared.
    let shared = Shared::default();
    let plan = plan_of(r#""60/m""#, EXACT, r#", "max_new_keys_per_second": 4"#, "", &shared);
    shared.lose(8);
    assert_eq!(Worker::of(&shared).comes(&plan, "a", 1, 0, FULL), "503 new_keys");
}

#[wasm_bindgen_test(unsupported = test)]
fn while_the_breaker_is_open_nobody_waits() {
    let shared = Shared::default();
    let limiter = r#", "breaker": {"failures": 2, "within": "1s", "probe_every": "200ms"}"#;
    let [plan, of_other] = [0, 1].map(|_| plan_of(r#""60/m""#, EXACT, limiter, "", &shared));
    let [mut one, mut other] = [Worker::of(&shared), Worker::of(&shared)];
    assert_eq!(one.comes(&plan, "a", 1, 0, DOWN), "asked 503 reset");
    assert_eq!(other.comes(&of_other, "b", 1, 10, DOWN), "asked 503 reset");
    // The other worker has seen it open, and this one hears of it with a tick.
    assert_eq!(other.comes(&of_other, "c", 1, 11, FULL), "503 breaker");
    plan.refresh(at(11).mono);
    for ms in [11, 50, 109] {
        assert_eq!(one.comes(&plan, "a", 1, ms, FULL), "503 breaker");
    }
    // One probe, which fails; then one that does not.
    assert_eq!(one.comes(&plan, "a", 1, 210, DOWN), "asked 503 reset");
    assert_eq!([one.comes(&plan, "a", 1, 211, FULL), other.comes(&of_other, "a", 1, 211, FULL)], ["503 breaker"; 2]);
    assert_eq!(other.comes(&of_other, "a", 1, 410, FULL), "asked 200");
    assert_eq!(other.comes(&of_other, "a", 1, 411, FULL), "asked 200");
    plan.refresh(at(411).mono);
    assert_eq!(one.comes(&plan, "a", 1, 411, FULL), "asked 200");
    // A bucket that is known to be dry is refused as that, breaker or not.
    one.comes(&plan, "dry", 10, 500, &dry(0));
    one.comes(&plan, "a", 1, 500, DOWN);
    one.comes(&plan, "a", 1, 500, DOWN);
    assert_eq!(one.comes(&plan, "a", 1, 501, DOWN), "503 breaker");
    assert_eq!(one.comes(&plan, "dry", 10, 501, DOWN), "429 in 10");
    // When all is wiped, the next tick closes it.
    shared.wipe();
    plan.refresh(at(502).mono);
    assert_eq!(one.comes(&plan, "a", 1, 502, FULL), "asked 200");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_divided_otherwise_never_meets_and_limits_alone_divide_nothing() {
    let shared = Shared::default();
    let top = |namespace: &str, proxies: u64, entries: u64| {
        format!(r#", "namespace": "{namespace}", "proxies": {proxies}, "table": {{"entries": {entries}}}"#)
    };
    let tops = [top("a", 3, 64), top("b", 3, 64), top("a", 2, 64), top("a", 3, 72), top("a-3", 64, 64)];
    let mut worker = Worker::of(&shared);
    let mut names = 0;
    for top in &tops {
        let plan = plan_of(r#""6/m""#, LOCAL, "", top, &shared);
        assert_eq!(worker.comes(&plan, "t", 1, 0, DOWN), "200");
        // The seed and a set.
        assert_eq!(shared.names().len(), names + 2, "{:?}", shared.names());
        names += 2;
    }
    let same = plan_of(r#""7/m""#, LOCAL, "", &tops[0], &shared);
    assert_eq!(worker.comes(&same, "t", 1, 0, DOWN), "200");
    assert_eq!(worker.comes(&same, "t", 1, 0, DOWN), "429 in 26");
    assert_eq!(shared.names().len(), names);
    assert!(shared.names().iter().all(|name| name.starts_with("weir.")));
}

#[wasm_bindgen_test(unsupported = test)]
fn in_every_interval_own_buckets_admit_at_most_their_burst_and_their_share() {
    let limits = [r#""60/m""#, r#""7/s""#, r#"{"requests": 3000, "per": "1s", "burst": 6}"#, r#""9/d""#];
    let mut random = Random::seeded(14);
    let mut sums = [0; 2];
    for _ in 0..rounds(400) {
        let shared = Shared::default();
        let (limit, rule) = (random.pick(&limits), random.pick(&[ON_ERROR_LOCAL, LOCAL]));
        // One plan in each worker, as in a proxy; and their clocks differ a little.
        let workers = 1 + random.below(4);
        let mut workers: Vec<_> = (0..workers)
            .map(|_| (Worker::of(&shared), plan_of(limit, rule, "", OF_THREE, &shared), random.below(6)))
            .collect();
        let mut admitted: [Vec<(u64, u64)>; 2] = [vec![], vec![]];
        let mut now = 0;
        for _ in 0..60 {
            now += random.pick(&[0, 0, 0, 1, 2, 30, 500, 3000, 100_000]);
            let tenant = random.below(2) as usize;
            let cost = 1 + random.below(2);
            let lost = random.pick(&[0, 0, 0, 1, 7, 8, 30]);
            let at = random.below(workers.len() as u64) as usize;
            let (worker, plan, ahead) = &mut workers[at];
            if rule == LOCAL {
                shared.lose(lost);
            }
            let told = worker.comes_and_loses(plan, &tenant.to_string(), cost, now + *ahead, DOWN, lost);
            let passed = told.starts_with("200") || told.starts_with("asked 200");
            // The breaker loses eight of them first.
            let most = if rule == LOCAL { 8 } else { 16 };
            assert!(!passed || lost < most || told.contains("breaker"), "{told}");
            if passed {
                admitted[tenant].push((now, cost));
            }
            sums[usize::from(passed)] += 1;
        }
        let own = ask(&workers[0].1, "0", 1).own.expect("a share");
        for list in admitted {
            for (first, (start, _)) in list.iter().enumerate() {
                let mut sum = 0;
                for (end, cost) in &list[first..] {
                    sum += cost;
                    let most = own.burst() * own.period().0 + own.requests() * (end - start + 5);
                    assert!(sum * own.period().0 <= most, "{limit} {rule}: {list:?}");
                }
            }
        }
    }
    assert!(sums.iter().all(|sum| *sum > rounds(4_000)), "{sums:?}");
}
