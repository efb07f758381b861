//! What is told of a decision: by whom it was made, and in which words of the policy.

use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Ms, Now};
use weir::engine::plan::Plan;
use weir::engine::{Arrival, CallEnd, CallOwner, Decision, Engine, Event, Step, decide};
use weir::limiter::{Failure, HttpEnd};
use weir::policy::{LimiterId, Policy};
use weir::telemetry::Record;

use crate::made::{Sent, Shared, number_of, numbered, policy};

/// A proxy with one worker, whose limiter answers each call with this, or not at all.
struct Proxy {
    plan: Rc<Plan>,
    flow: Engine<()>,
    shared: Shared,
    reply: Option<&'static str>,
    events: Vec<Event>,
}

impl Proxy {
    fn new(policy: Policy, reply: Option<&'static str>) -> Proxy {
        let shared = Shared::default();
        let plan = Rc::new(Plan::new(1, policy, Rc::new(shared.clone()), (1, 2)));
        let flow = Engine::new(CallOwner::Root, 1, 0);
        Proxy { plan, flow, shared, reply, events: vec![] }
    }

    /// A request comes: what is told of its fate.
    fn sends(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Record {
        let now = Now { mono: Ms(1_000_000), unix: Ms(1_000_000) };
        let (asks, marks) = match decide(&self.plan.policy, &Sent::to(method, path, headers)) {
            Decision::Answer(verdict) => return verdict.record,
            Decision::Ask(asks, marks) => (asks, marks),
        };
        let (arrival, mut steps) = self.flow.charge(&self.plan, asks, marks, (), now);
        let mut told = match arrival {
            Arrival::Decided(verdict) => vec![verdict.record],
            Arrival::Waits(_) => vec![],
        };
        while !steps.is_empty() {
            for step in std::mem::take(&mut steps) {
                match step {
                    Step::Wake => steps.extend(self.flow.on_wake(now)),
                    Step::Call(call) => {
                        let reply = self.reply.map(|body| numbered(number_of(&call.http), body));
                        let end = match &reply {
                            Some(body) => HttpEnd::Answer { status: 200, body: body.as_bytes() },
                            None => HttpEnd::NoAnswer,
                        };
                        steps.extend(self.flow.on_reply(call.id, end, now));
                    }
                    Step::Finish((), verdict) => told.push(verdict.record),
                    Step::Count(plan, event) => {
                        assert!(Rc::ptr_eq(&plan, &self.plan));
                        self.events.push(event);
                    }
                    Step::WakeOthers(_) => panic!("there are no others"),
                }
            }
        }
        let [record] = told.try_into().expect("each request is decided once");
        self.plan.watch(&record);
        record
    }

    fn line(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let record = self.sends(method, path, headers);
        record.line(&self.plan.policy)
    }

    fn lines(&mut self, headers: &[(&str, &str)]) -> String {
        let record = self.sends("GET", "/", headers);
        record.lines(&self.plan.policy)
    }
}

const OBSERVE: &str = r#", "observe": {"secret_env": "WEIR_HASH_SECRET", "top_path": "/top"}"#;

fn by_user(name: &str, fields: &str) -> String {
    format!(
        r#"{{"name": "{name}", "key": [{{"header": {{"name": "x-user", "as": "user", "trusted": true}}}}], {fields}}}"#
    )
}

fn of(rules: &[String], top: &str) -> Policy {
    policy(&format!(
        r#"{{"version": 1, "proxies": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "webdis"}}}},
            "rules": [{}] {top}}}"#,
        rules.join(", ")
    ))
}

const TIERS: &str = r#""mode": "local", "missing": "deny",
    "tier": {"default": "free", "tenants": {"user.acme": "gold"}},
    "limits": {"free": {"default": "2/h", "w": "deny"}, "gold": {"default": "9/h", "read": "unlimited"}},
    "overrides": {"user.own": "1/h"}"#;

const CLASSES: &str = r#", "classes": [{"class": "health", "match": {"path": "/healthz"}, "exempt": true},
    {"class": "w", "match": {"methods": ["POST"]}}, {"class": "read", "match": {"path": "/v1/**"}}]"#;

#[wasm_bindgen_test(unsupported = test)]
fn a_line_names_rule_class_tier_and_outcome() {
    let mut proxy = Proxy::new(of(&[by_user("per-user", TIERS)], CLASSES), None);
    let bob = [("x-user", "bob")];
    let acme = [("x-user", "acme")];
    let own = [("x-user", "own")];
    type Row<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)], &'r str);
    let table: [Row; 9] = [
        ("GET", "/healthz", &bob, "class=health outcome=exempt"),
        ("GET", "/%zz", &bob, "outcome=malformed"),
        ("POST", "/", &bob, "rule=per-user class=w tier=free outcome=forbidden"),
        ("GET", "/", &[], "rule=per-user class=default outcome=forbidden"),
        ("GET", "/v1/a", &acme, "rule=per-user class=read tier=gold outcome=unlimited"),
        ("GET", "/", &acme, "rule=per-user class=default tier=gold outcome=allowed source=local remaining=8"),
        ("GET", "/", &own, "rule=per-user class=default tier=~override outcome=allowed source=local remaining=0"),
        ("GET", "/", &own, "rule=per-user class=default tier=~override outcome=limited source=local remaining=0"),
        ("GET", "/v1/a", &bob, "rule=per-user class=read tier=free outcome=allowed source=local remaining=1"),
    ];
    for (method, path, headers, told) in table {
        assert_eq!(proxy.line(method, path, headers), told, "{method} {path} {headers:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_line_tells_where_tokens_came_from() {
    const GRANTED: Option<&str> = Some(r#"{"EVALSHA":[996000,4,7,60000,0,3,0,1]}"#);
    const REFUSED: Option<&str> = Some(r#"{"EVALSHA":[0,1000,0,0,0,0,0,0]}"#);
    const LOOKED: Option<&str> = Some(r#"{"EVALSHA":[3600000,0,0,0,0,0,0]}"#);
    let lease = r#""limits": "1000/s", "mode": "lease", "on_error": "deny""#;
    let exact = r#""limits": "1000/s", "mode": "exact", "on_error": "deny""#;
    let asynchronous = r#""limits": "60/m", "mode": "async", "on_error": "deny""#;
    let table: [(&str, Option<&str>, [&str; 2]); 4] = [
        (lease, GRANTED, ["allowed source=limiter remaining=999", "allowed source=lease remaining=998"]),
        (lease, REFUSED, ["limited source=limiter remaining=0", "limited source=known remaining=0"]),
        (exact, REFUSED, ["limited source=limiter remaining=0", "limited source=known remaining=0"]),
        (asynchronous, LOOKED, ["allowed source=async remaining=59", "allowed source=async remaining=58"]),
    ];
    for (fields, reply, told) in table {
        let mut proxy = Proxy::new(of(&[by_user("r", fields)], ""), reply);
        for told in told {
            let line = proxy.line("GET", "/", &[("x-user", "a")]);
            assert_eq!(line, format!("rule=r class=default tier=default outcome={told}"), "{fields} {reply:?}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_line_tells_why_on_error_has_decided() {
    let table = [
        ("allow", "", ["allowed degraded=reset"; 2]),
        ("deny", "", ["failed degraded=reset"; 2]),
        (
            "local",
            "",
            ["allowed source=local degraded=reset remaining=0", "limited source=local degraded=reset remaining=0"],
        ),
        ("allow", r#", "shadow_mode": true"#, ["allowed source=async", "shadow"]),
    ];
    for (on_error, more, told) in table {
        let fields = format!(r#""limits": "1/m", "mode": "exact", "on_error": "{on_error}"{more}"#);
        let mut proxy = Proxy::new(of(&[by_user("r", &fields)], ""), None);
        for told in told {
            let line = proxy.line("GET", "/", &[("x-user", "a")]);
            assert_eq!(line, format!("rule=r class=default tier=default outcome={told}"), "{fields}");
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn of_several_rules_the_deciding_one_is_told_first_and_with_the_secret_all_and_their_keys() {
    let rules = [
        by_user("wide", r#""limits": ["100/m", "500/h"], "mode": "local""#),
        by_user("narrow", r#""limits": "2/h", "mode": "local""#),
        by_user("free", r#""limits": "unlimited", "mode": "local""#),
        by_user("shadow", r#""limits": "1/h", "mode": "local", "shadow_mode": true"#),
    ];
    let a = [("x-user", "a b")];
    let narrow = "rule=narrow class=default tier=default outcome=";
    let scope = "class=default tier=default outcome=";
    let wide = format!("rule=wide {scope}allowed source=local");
    let free = format!("rule=free {scope}unlimited");
    let shadow = |told: &str| format!("rule=shadow {scope}{told}");
    let key = |rule: &str, ms: u32| format!("key=rl:{{user.a%20b}}:{rule}:default:{ms}:t3");
    let mut proxy = Proxy::new(of(&rules, OBSERVE), None);
    let passed = |remaining: u32, told: &str| {
        [
            format!("{narrow}allowed source=local remaining={remaining} {}", key("narrow", 3_600_000)),
            format!("{wide} {}", key("wide", 60_000)),
            free.clone(),
            format!("{} {}", shadow(told), key("shadow", 3_600_000)),
        ]
        .join("; ")
    };
    assert_eq!(proxy.lines(&a), passed(1, "allowed source=local"));
    assert_eq!(proxy.lines(&a), passed(0, "shadow"));
    let refused = format!("{narrow}limited source=local remaining=0 {}", key("narrow", 3_600_000));
    assert_eq!(proxy.lines(&a), refused);
    // Where nobody may see them, no key is kept.
    let mut proxy = Proxy::new(of(&rules, ""), None);
    let record = proxy.sends("GET", "/", &a);
    assert!(record.marks.iter().all(|mark| mark.bucket.is_none()), "{record:?}");
    assert_eq!(record.line(&proxy.plan.policy), format!("{narrow}allowed source=local remaining=1"));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_repeated_request_is_told_as_one() {
    let fields = r#""limits": "5/h", "mode": "local", "idempotency": {"header": "idempotency-key"}"#;
    let mut proxy = Proxy::new(of(&[by_user("r", fields)], ""), None);
    let once = [("x-user", "a"), ("idempotency-key", "1")];
    let told = ["allowed source=local remaining=4", "repeated"];
    for told in told {
        let line = proxy.line("GET", "/", &once);
        assert_eq!(line, format!("rule=r class=default tier=default outcome={told}"));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_shadow_rule_tells_that_it_would_refuse_whom_it_cannot_name() {
    let rules = [
        by_user("s", r#""limits": "5/h", "mode": "local", "missing": "deny", "shadow_mode": true"#),
        by_user("r", r#""limits": "5/h", "mode": "local", "missing": "skip""#),
    ];
    let mut proxy = Proxy::new(of(&rules, ""), None);
    assert_eq!(proxy.line("GET", "/", &[]), "rule=s class=default outcome=shadow");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_happens_between_proxy_and_limiter_is_told() {
    let lease = r#""limits": "1000/s", "mode": "lease", "on_error": "allow""#;
    let table: [(Option<&str>, &[Event]); 4] = [
        // Carried on 0 and new 3.
        (
            Some(r#"{"EVALSHA":[996000,4,7,60000,0,3,0,1]}"#),
            &[Event::CallEnded(LimiterId::default(), CallEnd::Ok), Event::Lent(0, 3)],
        ),
        (Some(r#"{"EVALSHA":[0,1000,0,0,0,0,0,0]}"#), &[Event::CallEnded(LimiterId::default(), CallEnd::Ok)]),
        (
            Some(r#"{"EVALSHA":[false,"NOSCRIPT No matching script."]}"#),
            &[
                Event::CallEnded(LimiterId::default(), CallEnd::NoScript),
                Event::CallEnded(LimiterId::default(), CallEnd::Failed(Failure::Misdelivered)),
            ],
        ),
        (None, &[Event::CallEnded(LimiterId::default(), CallEnd::Failed(Failure::Reset))]),
    ];
    for (reply, told) in table {
        let mut proxy = Proxy::new(of(&[by_user("r", lease)], ""), reply);
        proxy.sends("GET", "/", &[("x-user", "a")]);
        assert_eq!(proxy.events, told, "{reply:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn who_comes_most_and_who_is_refused_most_is_told_by_rule() {
    let rules =
        [by_user("r", r#""limits": "2/h", "mode": "local""#), by_user("s", r#""limits": "9/h", "mode": "local""#)];
    let mut proxy = Proxy::new(of(&rules, OBSERVE), None);
    for user in ["a", "b", "a", "a", "c", "a"] {
        proxy.sends("GET", "/", &[("x-user", user)]);
    }
    let tell = |proxy: &Proxy, ms: u64| proxy.plan.top(Ms(ms));
    let none = r#"{"milliseconds":0,"tenants":[]}"#;
    let of = |refused: &str, busiest: &str| format!(r#""refused":{refused},"busiest":{busiest}"#);
    let nothing = of(none, none);
    assert_eq!(tell(&proxy, 1000), format!(r#"{{"rules":[{{"rule":"r",{nothing}}},{{"rule":"s",{nothing}}}]}}"#));
    // Told to the other workers a second after it began.
    proxy.plan.merge_top(Ms(1000));
    proxy.plan.merge_top(Ms(1999));
    assert_eq!(tell(&proxy, 1999), format!(r#"{{"rules":[{{"rule":"r",{nothing}}},{{"rule":"s",{nothing}}}]}}"#));
    proxy.plan.merge_top(Ms(2000));
    let list = |ms: u64, counts: &[(&str, u64)]| {
        let tenants: Vec<String> = counts
            .iter()
            .map(|(user, count)| format!(r#"{{"tenant":"user.{user}","count":{count},"error":0}}"#))
            .collect();
        format!(r#"{{"milliseconds":{ms},"tenants":[{}]}}"#, tenants.join(","))
    };
    let r = of(&list(1500, &[("a", 2)]), &list(1500, &[("a", 4), ("b", 1), ("c", 1)]));
    // What a rule refuses, others do not count.
    let s = of(none, &list(1500, &[("a", 2), ("b", 1), ("c", 1)]));
    assert_eq!(tell(&proxy, 2500), format!(r#"{{"rules":[{{"rule":"r",{r}}},{{"rule":"s",{s}}}]}}"#));
    // Another worker of this proxy tells the same.
    let other = Plan::new(1, proxy.plan.policy.clone(), Rc::new(proxy.shared.clone()), (3, 4));
    assert_eq!(other.top(Ms(2500)), tell(&proxy, 2500));
}
