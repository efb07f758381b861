//! The way of waiting requests, event by event, with a clock that is made up.
//!
//! Steps are told in short: `wake`, `call 0 EVALSHA 1x2 10x1` (two of cost 1, one of cost 10), `a 200 59` (request a
//! passes, 59 tokens are left), `a 429 0` and `a 503 timeout`.

use std::collections::BTreeMap;
use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, CallId, CallOwner, Decision, Engine, MOST_FINISHED, Step, Ticket, Verdict, decide};
use weir::limiter::redis::webdis::MAX_RUNS;
use weir::limiter::{Failure, HttpEnd};
use weir::local::Nowhere;
use weir::response::{Answer, Refusal};

use crate::made::{Sent, ask_of, limit, number_of, numbered, policy_of};

/// 60/m for everybody, a wait of so many milliseconds, and what a failure means.
fn plan(id: u64, timeout: u64, on_error: &str) -> Rc<Plan> {
    let mut policy = policy_of(
        r#"[{"constant": "all"}]"#,
        r#""60/m""#,
        &format!(r#", "on_error": "{on_error}""#),
        r#", "response": {"retry_after_jitter": 0}"#,
    );
    policy.limiters.iter_mut().for_each(|limiter| limiter.timeout = Ms(timeout));
    Rc::new(Plan::new(id, policy, Rc::new(Nowhere), (1, 2)))
}

struct Vm {
    flow: Engine<&'static str>,
    plan: Rc<Plan>,
    now: u64,
    tickets: BTreeMap<&'static str, Ticket>,
    calls: Vec<CallId>,
    numbers: Vec<u64>,
    timeouts: Vec<Ms>,
}

impl Vm {
    fn new(owner: CallOwner) -> Vm {
        let flow = Engine::new(owner, 1, 0);
        Vm {
            flow,
            plan: plan(1, 20, "deny"),
            now: 0,
            tickets: BTreeMap::new(),
            calls: vec![],
            numbers: vec![],
            timeouts: vec![],
        }
    }

    fn at(&mut self, now: u64) -> &mut Vm {
        assert!(now >= self.now);
        self.now = now;
        self
    }

    fn now(&self) -> Now {
        Now { mono: Ms(1_000 + self.now), unix: Ms(1_700_000_000_000 + self.now) }
    }

    /// A request for the bucket `k` comes.
    fn comes(&mut self, name: &'static str, cost: u64) -> Vec<String> {
        self.comes_for("k", name, cost)
    }

    fn comes_for(&mut self, key: &str, name: &'static str, cost: u64) -> Vec<String> {
        let mut ask = ask_of(key, limit(60, 60, 60), cost);
        ask.on_error = self.plan.policy.rules[0].on_error;
        let (arrival, steps) = self.flow.charge(&self.plan.clone(), vec![ask], vec![], name, self.now());
        let Arrival::Waits(ticket) = arrival else { panic!("{arrival:?}") };
        self.tickets.insert(name, ticket);
        self.tell(steps)
    }

    fn leaves(&mut self, name: &str) {
        self.flow.on_end(self.tickets[name]);
    }

    fn woken(&mut self) -> Vec<String> {
        let steps = self.flow.on_wake(self.now());
        self.tell(steps)
    }

    fn tick(&mut self) -> Vec<String> {
        let steps = self.flow.on_timer(self.now());
        self.tell(steps)
    }

    fn ends(&mut self, call: usize, end: HttpEnd) -> Vec<String> {
        let steps = self.flow.on_reply(self.calls[call], end, self.now());
        self.tell(steps)
    }

    fn answers(&mut self, call: usize, body: &str) -> Vec<String> {
        let body = numbered(self.numbers[call], body);
        self.ends(call, HttpEnd::Answer { status: 200, body: body.as_bytes() })
    }

    fn tell(&mut self, steps: Vec<Step<&'static str>>) -> Vec<String> {
        let mut told = Vec::new();
        for step in steps {
            match step {
                Step::Count(..) => {}
                Step::Wake => told.push("wake".to_owned()),
                Step::Call(call) => {
                    assert!(!self.calls.contains(&call.id));
                    let parts: Vec<&str> = call.http.body.split('/').collect();
                    // A limit, terms that say nothing, and nothing that is wanted, offered, held or owed.
                    let ([command, _, "1", key, "60", "60000", "60", "300000", "30", lease @ .., _number], runs) =
                        parts.split_at(16)
                    else {
                        panic!("{parts:?}")
                    };
                    assert_eq!(lease, ["0"; 6]);
                    let mut line = format!("call {} {command}", self.calls.len());
                    let value = key.strip_prefix("rl%3A%7Bt%2E").and_then(|rest| rest.split_once("%7D%3A"));
                    let (value, kind) = value.expect("a key");
                    assert_eq!(kind, "per-key%3Adefault%3A60000%3At3");
                    if value != "k" {
                        line += &format!(" {value}");
                    }
                    if call.plan.id != 1 {
                        line += &format!(" of plan {}", call.plan.id);
                    }
                    for run in runs.chunks(2) {
                        line += &format!(" {}", run.join("x"));
                    }
                    told.push(line);
                    self.calls.push(call.id);
                    self.numbers.push(number_of(&call.http));
                    self.timeouts.push(call.timeout);
                }
                Step::Finish(name, Verdict { answer, record, .. }) => {
                    let reason = record.marks.iter().find_map(|mark| mark.degraded).map(Failure::name);
                    let (status, headers) = match answer {
                        Answer::Pass(headers) => (200, headers),
                        Answer::Refuse(Refusal { status, headers, .. }) => (status, headers),
                    };
                    let left = headers.iter().find(|(name, _)| *name == "x-ratelimit-remaining");
                    let what = reason.or(left.map(|(_, left)| left.as_str())).unwrap_or("?");
                    told.push(format!("{name} {status} {what}"));
                }
                Step::WakeOthers(_) => panic!("nobody else is concerned: {step:?}"),
            }
        }
        told
    }
}

/// The script's answer under 60/m: so many tokens are left, and so many of each run were granted.
fn grants(left: u64, granted: &[u64]) -> String {
    let mut reply = vec![left * 60_000, (60 - left) * 1000, 0, 0, 0, 0, 0];
    reply.extend(granted);
    serde_json::json!({ "EVALSHA": reply }).to_string()
}

fn grants_by_text(left: u64, granted: &[u64]) -> String {
    grants(left, granted).replace("EVALSHA", "EVAL")
}

const NOSCRIPT: &str = r#"{"EVALSHA":[false,"NOSCRIPT No matching script."]}"#;

const NOTHING: [&str; 0] = [];

#[wasm_bindgen_test(unsupported = test)]
fn the_first_wakes_and_those_who_come_before_the_call_share_it() {
    let mut vm = Vm::new(CallOwner::Root);
    assert!(vm.flow.is_idle());
    assert_eq!(vm.comes("a", 1), ["wake"]);
    assert_eq!(vm.comes("b", 1), NOTHING);
    assert_eq!(vm.at(1).comes("c", 10), NOTHING);
    assert_eq!(vm.flow.waiting(), 3);
    assert!(!vm.flow.is_idle());
    assert_eq!(vm.at(2).woken(), ["call 0 EVALSHA 1x2 10x1"]);
    assert_eq!(vm.woken(), NOTHING);
    assert_eq!(vm.at(5).answers(0, &grants(48, &[2, 1])), ["a 200 59", "b 200 58", "c 200 48"]);
    assert_eq!(vm.flow.waiting(), 0);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn those_who_come_while_a_call_is_out_share_the_next_in_order_of_arrival() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    for (name, cost) in [("b", 1), ("c", 10), ("d", 1), ("e", 1)] {
        assert_eq!(vm.at(1).comes(name, cost), NOTHING);
    }
    assert_eq!(vm.at(3).answers(0, &grants(2, &[1])), ["a 200 2", "call 1 EVALSHA 1x1 10x1 1x2"]);
    // One for b, none for c, one for d, none for e.
    let told = vm.at(5).answers(1, &grants(0, &[1, 0, 1]));
    assert_eq!(told, ["b 200 1", "c 429 0", "d 200 0", "e 429 0"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn buckets_have_lines_of_their_own_and_one_wake_serves_them_all() {
    let mut vm = Vm::new(CallOwner::Root);
    assert_eq!(vm.comes_for("x", "a", 1), ["wake"]);
    assert_eq!(vm.comes_for("y", "b", 1), NOTHING);
    assert_eq!(vm.comes_for("x", "c", 2), NOTHING);
    assert_eq!(vm.woken(), ["call 0 EVALSHA x 1x1 2x1", "call 1 EVALSHA y 1x1"]);
    assert_eq!(vm.comes_for("z", "d", 1), ["wake"]);
    assert_eq!(vm.answers(1, &grants(59, &[1])), ["b 200 59"]);
    assert_eq!(vm.answers(0, &grants(57, &[1, 1])), ["a 200 59", "c 200 57"]);
    assert_eq!(vm.woken(), ["call 2 EVALSHA z 1x1"]);
    assert_eq!(vm.answers(2, &grants(59, &[1])), ["d 200 59"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_waits_until_its_deadline_and_no_longer() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.at(1).comes("b", 1);
    vm.woken();
    assert_eq!(vm.at(19).tick(), NOTHING);
    assert_eq!(vm.at(20).tick(), ["a 503 timeout"]);
    assert_eq!(vm.tick(), NOTHING);
    // What was granted to a is dropped: b gets what it would have got.
    assert_eq!(vm.answers(0, &grants(58, &[2])), ["b 200 58"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn whatever_happens_first_at_a_deadline_ends_the_wait() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    assert_eq!(vm.at(20).answers(0, &grants(59, &[1])), ["a 503 timeout"]);
    assert!(vm.flow.is_idle());
    vm.comes("b", 1);
    assert_eq!(vm.at(40).woken(), ["b 503 timeout"]);
    assert!(vm.flow.is_idle());
    vm.comes("c", 1);
    vm.woken();
    assert_eq!(vm.at(59).answers(1, &grants(59, &[1])), ["c 200 59"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_second_call_starts_only_when_the_first_has_outlived_a_wait() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    assert_eq!(vm.woken(), ["call 0 EVALSHA 1x1"]);
    assert_eq!(vm.at(10).comes("b", 1), NOTHING);
    assert_eq!(vm.at(19).tick(), NOTHING);
    assert_eq!(vm.at(20).tick(), ["a 503 timeout", "call 1 EVALSHA 1x1"]);
    // A third never starts, however long it takes.
    assert_eq!(vm.at(21).comes("c", 1), NOTHING);
    assert_eq!(vm.at(40).tick(), ["b 503 timeout"]);
    assert_eq!(vm.at(41).tick(), ["c 503 timeout"]);
    assert_eq!(vm.at(50).comes("d", 1), NOTHING);
    assert_eq!(vm.at(60).tick(), NOTHING);
    // When the first has ended, the second has outlived a wait too: d gets a call.
    assert_eq!(vm.at(61).answers(0, &grants(59, &[1])), ["call 2 EVALSHA 1x1"]);
    assert_eq!(vm.at(62).comes("e", 1), NOTHING);
    // The newer call answers before the older one does.
    assert_eq!(vm.at(63).answers(2, &grants(58, &[1])), ["d 200 58", "call 3 EVALSHA 1x1"]);
    assert_eq!(vm.at(64).answers(1, &grants(57, &[1])), NOTHING);
    assert_eq!(vm.at(65).answers(3, &grants(56, &[1])), ["e 200 56"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn one_who_comes_while_a_call_outlives_a_wait_wakes() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    vm.at(20).tick();
    assert_eq!(vm.at(25).comes("b", 1), ["wake"]);
    assert_eq!(vm.at(26).comes("c", 1), NOTHING);
    assert_eq!(vm.at(27).woken(), ["call 1 EVALSHA 1x2"]);
    // A call that is late for the one who waited still ends the line's wait for it.
    assert_eq!(vm.at(28).answers(0, &grants(59, &[1])), NOTHING);
    assert_eq!(vm.at(29).answers(1, &grants(57, &[2])), ["b 200 58", "c 200 57"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_reply_that_is_late_for_one_serves_those_who_came_after() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    assert_eq!(vm.at(15).comes("b", 1), NOTHING);
    assert_eq!(vm.at(20).answers(0, &grants(59, &[1])), ["a 503 timeout", "call 1 EVALSHA 1x1"]);
    assert_eq!(vm.at(22).answers(1, &grants(58, &[1])), ["b 200 58"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn late_and_doubled_ends_change_nothing() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    assert_eq!(vm.answers(0, &grants(59, &[1])), ["a 200 59"]);
    assert_eq!(vm.answers(0, &grants(59, &[1])), NOTHING);
    assert_eq!(vm.ends(0, HttpEnd::NoAnswer), NOTHING);
    vm.comes("b", 1);
    vm.woken();
    for end in [NOSCRIPT, &grants(58, &[1]), "x"] {
        assert_eq!(vm.answers(0, end), NOTHING);
    }
    assert_eq!(vm.flow.waiting(), 1);
    assert_eq!(vm.answers(1, &grants(58, &[1])), ["b 200 58"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_after_the_end_of_its_call_is_ignored() {
    // By a tick that comes first ...
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    assert_eq!(vm.timeouts, [Ms(1000)]);
    vm.at(20).tick();
    assert_eq!(vm.at(999).tick(), NOTHING);
    assert!(!vm.flow.is_idle());
    assert_eq!(vm.at(1000).tick(), NOTHING);
    assert!(vm.flow.is_idle());
    assert_eq!(vm.at(1001).answers(0, &grants(59, &[1])), NOTHING);
    // ... or by the time alone: NOSCRIPT would be tried again, and is not.
    vm.comes("b", 1);
    vm.woken();
    assert_eq!(vm.at(2001).answers(1, NOSCRIPT), ["b 503 timeout"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_ends_after_ten_waits_or_a_second() {
    for (timeout, end) in [(1, 1000), (20, 1000), (100, 1000), (101, 1010), (60_000, 600_000)] {
        let mut vm = Vm::new(CallOwner::Root);
        vm.plan = plan(1, timeout, "deny");
        vm.comes("a", 1);
        vm.woken();
        assert_eq!(vm.timeouts, [Ms(end)]);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_script_that_redis_does_not_know_is_sent_once() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.comes("b", 2);
    vm.woken();
    vm.at(1).comes("c", 1);
    // c waits for the next call; it does not slip into the second try.
    assert_eq!(vm.at(2).answers(0, NOSCRIPT), ["call 1 EVAL 1x1 2x1"]);
    assert_eq!(vm.at(3).comes("d", 1), NOTHING);
    let told = vm.at(4).answers(1, &grants_by_text(57, &[1, 1]));
    assert_eq!(told, ["a 200 59", "b 200 57", "call 2 EVALSHA 1x2"]);
    // A text that is answered with NOSCRIPT too is a failure.
    assert_eq!(vm.at(5).answers(2, NOSCRIPT), ["call 3 EVAL 1x2"]);
    let told = vm.at(6).answers(3, &NOSCRIPT.replace("EVALSHA", "EVAL"));
    assert_eq!(told, ["c 503 redis", "d 503 redis"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn another_calls_reply_is_a_failure_that_nobody_is_admitted_by() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.woken();
    vm.answers(0, NOSCRIPT);
    vm.comes_for("x", "b", 1);
    vm.woken();
    let numbers: std::collections::BTreeSet<u64> = vm.numbers.iter().copied().collect();
    assert_eq!(numbers.len(), 3, "each call has a number of its own, the second try as well");
    assert!(numbers.iter().all(|number| *number < 1 << 53));
    let of_b = numbered(vm.numbers[2], &grants_by_text(59, &[1]));
    let misdelivered = HttpEnd::Answer { status: 200, body: of_b.as_bytes() };
    assert_eq!(vm.ends(1, misdelivered), ["a 503 misdelivered"]);
    let of_the_first_try = numbered(vm.numbers[0], &grants(59, &[1]));
    let misdelivered = HttpEnd::Answer { status: 200, body: of_the_first_try.as_bytes() };
    assert_eq!(vm.ends(2, misdelivered), ["b 503 misdelivered"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn those_who_have_left_or_timed_out_are_not_charged_by_the_second_try() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.at(5).comes("b", 1);
    vm.comes("c", 3);
    vm.comes("d", 1);
    vm.woken();
    vm.leaves("c");
    assert_eq!(vm.at(20).answers(0, NOSCRIPT), ["a 503 timeout", "call 1 EVAL 1x2"]);
    assert_eq!(vm.answers(1, &grants_by_text(58, &[2])), ["b 200 59", "d 200 58"]);
    assert!(vm.flow.is_idle());
    // Nobody is there any more: no second try.
    vm.comes("e", 1);
    vm.woken();
    vm.leaves("e");
    assert_eq!(vm.answers(2, NOSCRIPT), NOTHING);
    assert!(vm.flow.is_idle());
    // Only those who came later are there: they get a call of their own.
    vm.comes("f", 1);
    vm.woken();
    vm.comes("g", 1);
    vm.leaves("f");
    assert_eq!(vm.answers(3, NOSCRIPT), ["call 4 EVALSHA 1x1"]);
    assert_eq!(vm.answers(4, NOSCRIPT), ["call 5 EVAL 1x1"]);
    assert_eq!(vm.answers(5, &grants_by_text(57, &[1])), ["g 200 57"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_granted_to_one_who_has_left_is_dropped() {
    let mut vm = Vm::new(CallOwner::Root);
    for name in ["a", "b", "c"] {
        vm.comes(name, 1);
    }
    vm.woken();
    vm.leaves("a");
    vm.leaves("a");
    assert_eq!(vm.flow.waiting(), 2);
    // Two tokens were there: a's is spent, b gets the other, and c does not get a's.
    assert_eq!(vm.answers(0, &grants(0, &[2])), ["b 200 0", "c 429 0"]);
    vm.leaves("b");
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn one_who_has_left_before_the_call_is_not_asked_for() {
    let mut vm = Vm::new(CallOwner::Root);
    vm.comes("a", 1);
    vm.leaves("a");
    assert_eq!(vm.woken(), NOTHING);
    assert!(vm.flow.is_idle());
    for name in ["b", "c", "d"] {
        vm.comes(name, 1);
    }
    vm.leaves("c");
    assert_eq!(vm.woken(), ["call 0 EVALSHA 1x2"]);
    for name in ["b", "d"] {
        vm.leaves(name);
    }
    assert_eq!(vm.flow.waiting(), 0);
    assert!(!vm.flow.is_idle(), "the call is still out");
    assert_eq!(vm.answers(0, &grants(58, &[2])), NOTHING);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn requests_of_different_plans_never_share_a_call_and_keep_their_own_policy() {
    let mut vm = Vm::new(CallOwner::Root);
    let (old, new) = (vm.plan.clone(), plan(2, 50, "allow"));
    vm.comes("a", 1);
    vm.plan = new;
    assert_eq!(vm.comes("b", 1), NOTHING);
    vm.plan = old;
    vm.comes("c", 1);
    assert_eq!(vm.woken(), ["call 0 EVALSHA 1x2", "call 1 EVALSHA of plan 2 1x1"]);
    // Each waits to its own deadline and fails by its own on_error.
    assert_eq!(vm.at(20).tick(), ["a 503 timeout", "c 503 timeout"]);
    assert_eq!(vm.at(49).tick(), NOTHING);
    assert_eq!(vm.at(50).tick(), ["b 200 timeout"]);
    assert_eq!(vm.answers(1, &grants(59, &[1])), NOTHING);
    assert_eq!(vm.ends(0, HttpEnd::NoAnswer), NOTHING);
    assert!(vm.flow.is_idle());
    // Both are answered while both policies are in force.
    vm.comes("d", 1);
    vm.plan = plan(3, 50, "allow");
    vm.comes("e", 1);
    assert_eq!(vm.woken(), ["call 2 EVALSHA 1x1", "call 3 EVALSHA of plan 3 1x1"]);
    assert_eq!(vm.answers(3, "x"), ["e 200 unreadable"]);
    assert_eq!(vm.answers(2, "x"), ["d 503 unreadable"]);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn where_calls_are_the_requests_own_each_makes_one_at_once() {
    let mut vm = Vm::new(CallOwner::Request);
    assert_eq!(vm.comes("a", 1), ["call 0 EVALSHA 1x1"]);
    assert_eq!(vm.comes("b", 2), ["call 1 EVALSHA 2x1"]);
    assert_eq!(vm.comes("c", 1), ["call 2 EVALSHA 1x1"]);
    assert_eq!(vm.woken(), NOTHING);
    assert_eq!(vm.answers(1, &grants(57, &[1])), ["b 200 57"]);
    assert_eq!(vm.answers(0, NOSCRIPT), ["call 3 EVAL 1x1"]);
    assert_eq!(vm.answers(3, &grants_by_text(58, &[1])), ["a 200 58"]);
    vm.leaves("c");
    assert_eq!(vm.answers(2, NOSCRIPT), NOTHING);
    assert!(vm.flow.is_idle());
    // No second call, and the first is forgotten after its own end.
    assert_eq!(vm.comes("d", 1), ["call 4 EVALSHA 1x1"]);
    assert_eq!(vm.at(20).tick(), ["d 503 timeout"]);
    assert_eq!(vm.at(999).tick(), NOTHING);
    assert_eq!(vm.at(1000).tick(), NOTHING);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_tick_makes_up_for_a_wake_that_was_lost() {
    let mut vm = Vm::new(CallOwner::Root);
    assert_eq!(vm.comes("a", 1), ["wake"]);
    assert_eq!(vm.at(5).comes("b", 1), NOTHING);
    assert_eq!(vm.at(10).tick(), ["call 0 EVALSHA 1x2"]);
    assert_eq!(vm.at(11).woken(), NOTHING);
    assert_eq!(vm.at(12).answers(0, &grants(58, &[2])), ["a 200 59", "b 200 58"]);
    // After a tick a new one wakes again.
    assert_eq!(vm.comes("c", 1), ["wake"]);
    vm.tick();
    assert_eq!(vm.comes_for("x", "d", 1), ["wake"]);
    assert_eq!(vm.woken(), ["call 2 EVALSHA x 1x1"]);
    vm.answers(1, &grants(57, &[1]));
    vm.answers(2, &grants(59, &[1]));
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_holds_so_many_runs_and_the_rest_go_with_the_next() {
    let mut vm = Vm::new(CallOwner::Root);
    for at in 0..MAX_RUNS as u64 + 2 {
        vm.comes("a", 1 + at % 2);
    }
    // More of the last run still fit.
    let [call] = vm.woken().try_into().expect("one call");
    assert_eq!(call, format!("call 0 EVALSHA{}", " 1x1 2x1".repeat(MAX_RUNS / 2)));
    let granted: Vec<u64> = [1_u64; 40].iter().copied().chain([0; MAX_RUNS - 40]).collect();
    let mut told = vm.answers(0, &grants(0, &granted));
    assert_eq!(told.split_off(MOST_FINISHED), ["call 1 EVALSHA 1x1 2x1", "wake"]);
    while told.len() < MAX_RUNS {
        told.extend(vm.woken());
        told.retain(|line| line != "wake");
    }
    assert_eq!(told.iter().filter(|line| line.starts_with("a 200")).count(), 40);
    assert_eq!(told.iter().filter(|line| line.starts_with("a 429")).count(), MAX_RUNS - 40);
    assert_eq!(vm.answers(1, &grants(0, &[0, 0])), ["a 429 0", "a 429 0"]);
    assert!(vm.flow.is_idle());
    // Requests that cost the same are one run, however many they are.
    for _ in 0..1000 {
        vm.comes("b", 1);
    }
    assert_eq!(vm.woken(), ["call 2 EVALSHA 1x1000"]);
    let mut told = vm.answers(2, &grants(0, &[60]));
    while told.last().is_some_and(|line| line == "wake") {
        told.extend(vm.woken());
    }
    assert_eq!(told.iter().filter(|line| line.starts_with("b ")).count(), 1000);
    assert!(vm.flow.is_idle());
}

#[wasm_bindgen_test(unsupported = test)]
fn every_failure_reaches_the_whole_group_and_is_counted_for_each() {
    let answer = |status, body| HttpEnd::Answer { status, body };
    let table = [
        (HttpEnd::NoAnswer, "reset"),
        (HttpEnd::Oversized, "oversized"),
        (HttpEnd::NotStarted(Failure::UnknownCluster), "unknown_cluster"),
        (HttpEnd::NotStarted(Failure::Unreachable), "unreachable"),
        (answer(503, b""), "status"),
        (answer(200, b"x"), "unreadable"),
        (answer(200, br#"{"EVALSHA":[false,"OOM"]}"#), "redis"),
        (answer(200, br#"{"EVALSHA":[0,0,0,0,0,0,0,2]}"#), "misdelivered"),
        (answer(200, br#"{"EVALSHA":[0]"#), "unreadable"),
    ];
    for (end, reason) in table {
        for (on_error, status) in [("deny", 503), ("allow", 200)] {
            let mut vm = Vm::new(CallOwner::Root);
            vm.plan = plan(1, 20, on_error);
            vm.comes("a", 1);
            vm.comes("b", 1);
            vm.woken();
            vm.comes("c", 1);
            let wanted =
                [format!("a {status} {reason}"), format!("b {status} {reason}"), "call 1 EVALSHA 1x1".to_owned()];
            assert_eq!(vm.ends(0, end), wanted);
            assert_eq!(vm.answers(1, &grants(59, &[1])), ["c 200 59"]);
            assert!(vm.flow.is_idle());
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_tick_comes_at_half_a_wait() {
    for (timeout, period) in [(1, 5), (9, 5), (10, 5), (20, 10), (21, 10), (100, 50), (60_000, 50)] {
        assert_eq!(Engine::<()>::timer_period(&plan(1, timeout, "deny").policy), Ms(period));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_the_policy_alone_decides_needs_no_wait() {
    let limits = r#"{"a": {"default": "60/m", "w": "deny"}, "b": "unlimited"}"#;
    let policy = policy_of(
        r#"[{"header": {"name": "x", "trusted": true}}]"#,
        limits,
        r#", "tier": {"default": "a", "tenants": {"header.ops": "b"}}"#,
        r#", "classes": [{"class": "w", "match": {"path": "/w"}}]"#,
    );
    let status = |path: &str, x: &str| match decide(&policy, &Sent::to("GET", path, &[("x", x)])) {
        Decision::Answer(Verdict { answer: Answer::Pass(headers), .. }) => {
            assert!(headers.is_empty());
            200
        }
        Decision::Answer(Verdict { answer: Answer::Refuse(refusal), .. }) => refusal.status,
        Decision::Ask(asks, _) => {
            assert_eq!(asks.iter().map(|ask| (ask.limit, ask.cost)).collect::<Vec<_>>(), [(limit(60, 60, 60), 1)]);
            0
        }
    };
    assert_eq!([status("/", "u"), status("/w", "u"), status("/w", "ops"), status("/%", "u")], [0, 403, 200, 400]);
}
