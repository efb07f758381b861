//! Bytes as a policy: they are refused with words that tell a log nothing of a user's, or they can be decided by.

#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, CallOwner, Decision, Engine, Step, decide};
use weir::limiter::HttpEnd;
use weir::policy::{Policy, Problem, Tree};
use weir::telemetry::Effect;
use weir_fuzz::{SECRET, Sent, Shared, environment};

/// Texts up to this length may be told to a log, where they can only be a limit.
const SHORT: usize = 16;

/// Words of the policy's language that are longer.
const OURS: [&str; 2] = ["max_new_keys_per_second", "retry_after_jitter"];

fuzz_target!(|bytes: &[u8]| {
    match Policy::from_host(bytes, &environment) {
        Ok(policy) => decisions(policy),
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a word");
            messages(bytes, &problems);
        }
    }
});

fn messages(bytes: &[u8], problems: &[Problem]) {
    let people: String = problems.iter().map(|problem| format!("{}\n", problem.for_people())).collect();
    let log = log_of(problems);
    // The variable's value is nowhere, unless somebody has written it into the policy too.
    if !bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
        assert!(!people.contains(SECRET) && !log.contains(SECRET), "{people}{log}");
    }
    let Ok(tree) = Tree::from_host(bytes) else { return };
    let mut texts = Vec::new();
    collect(&tree, &mut texts);
    for text in texts.into_iter().filter(|text| text.len() > SHORT && !OURS.contains(text)) {
        // Our own words may happen to be the user's: then they stand there without the user too.
        if log.contains(text) {
            let mut without = tree.clone();
            replace(&mut without, text, &"q".repeat(text.len()));
            let problems = Policy::from_tree(&without, &environment).err().unwrap_or_default();
            assert!(log_of(&problems).contains(text), "told to a log: {text:?}\n{log}");
        }
    }
}

fn log_of(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{}\n", problem.for_log())).collect()
}

fn collect<'t>(tree: &'t Tree, texts: &mut Vec<&'t str>) {
    match tree {
        Tree::Text(text) => texts.push(text),
        Tree::List(items) => items.iter().for_each(|item| collect(item, texts)),
        Tree::Map(pairs) => {
            for (key, value) in pairs {
                texts.push(key);
                collect(value, texts);
            }
        }
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => {}
    }
}

fn replace(tree: &mut Tree, text: &str, by: &str) {
    let swap = |found: &mut String| {
        if found == text {
            by.clone_into(found);
        }
    };
    match tree {
        Tree::Text(found) => swap(found),
        Tree::List(items) => items.iter_mut().for_each(|item| replace(item, text, by)),
        Tree::Map(pairs) => {
            for (key, value) in pairs {
                swap(key);
                replace(value, text, by);
            }
        }
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => {}
    }
}

/// Every request is decided, whatever the policy is: at once, or when its limiter has failed.
fn decisions(policy: Policy) {
    let store = Shared::default();
    let plan = Rc::new(Plan::new(1, policy, Rc::new(store.clone()), (1, 2)));
    let mut flow = Engine::new(CallOwner::Root, 3, 0);
    let mut now = Now { mono: Ms(1_700_000_000_000), unix: Ms(1_700_000_000_000) };
    let authorizations: [&[u8]; 3] = [b"Bearer a", b"Basic YTpi", b""];
    let paths: [&[u8]; 5] = [b"/", b"/v1/reports/7/export?a", b"/healthz", b"*", b"no path"];
    let (mut asked, mut decided, mut finished) = (0_usize, 0, 0);
    for method in [b"GET".as_slice(), b"POST"] {
        for path in paths {
            for authorization in authorizations {
                let request = Sent(vec![
                    (":method", method),
                    (":path", path),
                    ("authorization", authorization),
                    ("x-api-key", b"key"),
                    ("x-user-id", b"\xff"),
                ]);
                let Decision::Ask(asks, marks) = decide(&plan.policy, &request) else { continue };
                // A rule may have a list of up to four limits.
                assert!((1..=4 * plan.policy.rules.len()).contains(&asks.len()), "{asks:?}");
                assert!(asks.is_sorted_by_key(|ask| ask.rule), "{asks:?}");
                for ask in &asks {
                    assert!((1..=ask.limit.burst()).contains(&ask.cost), "{ask:?}");
                    assert!(ask.own.is_none_or(|own| ask.cost <= own.burst()), "{ask:?}");
                    let rule = &plan.policy.rules[ask.rule];
                    assert_eq!((ask.shadow, ask.on_error), (rule.shadow, rule.on_error));
                }
                asked += 1;
                let (arrival, mut steps) = flow.charge(&plan, asks, marks, (), now);
                decided += usize::from(matches!(arrival, Arrival::Decided(_)));
                while let Some(step) = steps.pop() {
                    match step {
                        Step::Wake => steps.extend(flow.on_wake(now)),
                        Step::Call(call) => steps.extend(flow.on_reply(call.id, HttpEnd::NoAnswer, now)),
                        Step::Finish((), verdict) => {
                            finished += 1;
                            for mark in &verdict.record.marks {
                                let rule = &plan.policy.rules[mark.scope.rule.expect("a rule was asked")];
                                assert!(mark.effect != Effect::Shadow || rule.shadow);
                            }
                        }
                        Step::WakeOthers(_) => panic!("there are no others"),
                        Step::Count(..) => {}
                    }
                }
                now.mono = now.mono + Ms(7);
            }
        }
    }
    assert_eq!(asked, decided + finished);
    // Whatever was to be settled or given back is tried, and comes to nothing.
    for seconds in [60_u64, 120, 4_000, 8_000] {
        let later = Now { mono: now.mono + Ms(seconds * 1000), unix: now.unix };
        let mut steps = flow.on_timer(later);
        while let Some(step) = steps.pop() {
            if let Step::Call(call) = step {
                steps.extend(flow.on_reply(call.id, HttpEnd::NoAnswer, later));
            }
        }
    }
    assert!(flow.is_idle());
}
