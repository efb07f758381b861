//! Policies that come, go and are refused while requests wait; several roots in one VM.

use serde_json::{Value, json};

use crate::fake::Phase;
use crate::policy::{UNAVAILABLE, UNTOUCHED, grants, passed, policy};
use crate::proxy::{Proxy, in_vm, with_policy};

/// The policy of another rule, which lets requests pass when the limiter fails.
fn other() -> Value {
    policy(&[
        ("/rules/0/name", json!("other")),
        ("/rules/0/on_error", json!("allow")),
        ("/limiters/main/timeout", json!("40ms")),
    ])
}

fn keys(proxy: &Proxy) -> Vec<(u32, String)> {
    let calls = proxy.calls().into_iter();
    calls.map(|call| (call.owner, call.asks().split(' ').next().unwrap_or_default().to_owned())).collect()
}

const KEY: &str = "rl:{user.u1}:per-user:default:60000:t3";
const OTHER_KEY: &str = "rl:{user.u1}:other:default:60000:t3";

#[test]
fn a_policy_defines_its_counters_and_its_ticks() {
    in_vm(|proxy| {
        let root = proxy.root(&policy(&[]));
        let mut calls: Vec<String> = [
            "get_buffer configuration",
            "define_metric weir.rl.breaker_open.main",
            "define_metric weir.rl.degraded",
            "define_metric weir.rl.policy",
            "record_metric weir.rl.policy",
        ]
        .map(str::to_owned)
        .into();
        calls.extend(
            [
                "register_queue",
                "get_shared_data weir.workers", // by its queue the others wake this worker
                "set_shared_data weir.workers",
                "get_shared_data seed",
                "set_shared_data seed",
                "log 2",
                "set_tick_period 10",
            ]
            .map(str::to_owned),
        );
        assert_eq!(proxy.trace(), calls);
        for (timeout, period) in [("1ms", 5), ("9ms", 5), ("20ms", 10), ("90ms", 45), ("100ms", 50), ("60s", 50)] {
            assert!(proxy.configure(root, policy(&[("/limiters/main/timeout", json!(timeout))]).to_string()));
            assert_eq!(proxy.trace().pop(), Some(format!("set_tick_period {period}")), "{timeout}");
        }
    });
}

#[test]
fn requests_that_wait_are_answered_by_the_policy_that_they_came_with() {
    in_vm(|proxy| {
        let old = proxy.root(&policy(&[]));
        let waits_for_call = proxy.get(old, "u1");
        proxy.run();
        let waits_for_wake_up = proxy.get(old, "u2");
        let new = proxy.root(&other());
        assert_eq!(proxy.queue_names().len(), 1, "the queue belongs to the VM");
        let of_new = proxy.get(new, "u1");
        proxy.run();
        let [_, (_, second), (_, third)] = keys(proxy).try_into().expect("three calls");
        assert_eq!([&second, &third], [KEY.replace("u1", "u2").as_str(), OTHER_KEY], "no call is for two plans");
        for call in proxy.calls() {
            proxy.reset(&call);
        }
        assert_eq!(proxy.sees(waits_for_call), UNAVAILABLE);
        assert_eq!(proxy.sees(waits_for_wake_up), UNAVAILABLE);
        assert_eq!(proxy.sees(of_new), UNTOUCHED);
    });
}

#[test]
fn every_wait_ends_in_its_own_time_whichever_root_ticks() {
    in_vm(|proxy| {
        let old = proxy.root(&policy(&[]));
        let new = proxy.root(&other());
        let of_old = proxy.get(old, "u1");
        let of_new = proxy.get(new, "u1");
        proxy.run();
        proxy.advance(39);
        assert_eq!(proxy.sees(of_old), UNAVAILABLE);
        assert_eq!(proxy.phase(of_new), Phase::Paused);
        proxy.advance(1);
        assert_eq!(proxy.sees(of_new), UNTOUCHED);
    });
}

#[test]
fn a_root_is_configured_again_while_requests_wait() {
    with_policy(&[], |proxy, root| {
        let before = proxy.get(root, "u1");
        proxy.run();
        assert!(proxy.configure(root, other().to_string()));
        let after = proxy.get(root, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(root, KEY.to_owned()), (root, OTHER_KEY.to_owned())]);
        for call in proxy.calls() {
            proxy.reset(&call);
        }
        assert_eq!(proxy.sees(before), UNAVAILABLE);
        assert_eq!(proxy.sees(after), UNTOUCHED);
        assert_eq!(proxy.counts()["reset"], 2, "counters of one name are one");
    });
}

#[test]
fn a_request_that_has_passed_keeps_its_headers_when_the_policy_changes() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(59, &[1]));
        assert!(proxy.configure(root, policy(&[("/response", json!({"headers": []}))]).to_string()));
        assert_eq!(proxy.sees(stream), passed(59));
    });
}

#[test]
fn a_bad_policy_is_refused_and_the_one_in_force_goes_on() {
    with_policy(&[], |proxy, root| {
        let waiting = proxy.get(root, "u1");
        proxy.run();
        let bad = policy(&[("/rules/0/limits/free/default", json!("10/x"))]);
        assert!(!proxy.configure(root, bad.to_string()));
        let errors = proxy.take_errors();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert_eq!(errors[0], "weir: the policy is refused; it has 1 problem(s)");
        assert!(errors[1].contains("\"10/x\" is no limit"), "{errors:?}");
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.sees(waiting), passed(59));
        let after = proxy.get(root, "u1");
        proxy.run();
        proxy.answer(grants(58, &[1]));
        assert_eq!(proxy.sees(after), passed(58));
    });
}

#[test]
fn a_first_policy_that_is_bad_admits_nothing() {
    for bad in ["", "{", "{}", "[]", "null", "\u{0}", "{\"version\":1}"] {
        in_vm(|proxy| {
            let root = proxy.root_without_policy();
            assert!(!proxy.configure(root, bad), "{bad}");
            assert!(!proxy.take_errors().is_empty(), "{bad}");
            let stream = proxy.get(root, "u1");
            assert_eq!(proxy.sees(stream), "503 | ");
            assert_eq!(proxy.queue_names().len(), 0);
            // Mended, it serves.
            assert!(proxy.configure(root, policy(&[]).to_string()));
            let stream = proxy.get(root, "u1");
            proxy.run();
            proxy.answer(grants(59, &[1]));
            assert_eq!(proxy.sees(stream), passed(59));
        });
    }
    in_vm(|proxy| {
        let root = proxy.root_without_policy();
        assert!(!proxy.configure(root, [0xff, 0xfe, 0x00]));
        assert_eq!(proxy.take_errors().len(), 2);
    });
}

#[test]
fn a_root_that_goes_takes_its_calls_along_and_the_other_root_answers_for_them() {
    in_vm(|proxy| {
        let stays = proxy.root(&policy(&[]));
        let goes = proxy.root(&other());
        let waiting = proxy.get(stays, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(goes, KEY.to_owned())], "the queue wakes the root that registered last");
        let behind = proxy.get(stays, "u1");
        proxy.drop_root(goes);
        assert_eq!(proxy.calls().len(), 0);
        assert_eq!(proxy.phases(&[waiting, behind]), [Phase::Paused; 2]);
        proxy.advance(10);
        assert_eq!(proxy.sees(waiting), UNAVAILABLE);
        assert_eq!(proxy.counts()["reset"], 1);
        assert_eq!(keys(proxy), [(stays, KEY.to_owned())], "the next in line is asked for in the same tick");
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(behind), Phase::Passed);
        // The queue wakes the root that is left.
        let after = proxy.get(stays, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(stays, KEY.to_owned())]);
        proxy.answer(grants(58, &[1]));
        assert_eq!(proxy.phase(after), Phase::Passed);
    });
}

#[test]
fn a_wake_up_that_is_lost_with_its_root_is_made_up_for_by_a_tick() {
    in_vm(|proxy| {
        let stays = proxy.root(&policy(&[]));
        let goes = proxy.root(&other());
        let waiting = proxy.get(stays, "u1");
        proxy.drop_root(goes);
        proxy.run();
        assert_eq!(proxy.calls().len(), 0);
        proxy.advance(10);
        assert_eq!(keys(proxy), [(stays, KEY.to_owned())]);
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(waiting), Phase::Passed);
        // The next request asks for a wake-up of its own.
        proxy.get(stays, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(stays, KEY.to_owned())]);
    });
}

#[test]
fn a_root_that_goes_without_being_the_waker_changes_nothing() {
    in_vm(|proxy| {
        let goes = proxy.root(&other());
        let stays = proxy.root(&policy(&[]));
        proxy.drop_root(goes);
        proxy.trace();
        let waiting = proxy.get(stays, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(stays, KEY.to_owned())]);
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(waiting), Phase::Passed);
        proxy.advance(10);
        assert!(!proxy.trace().contains(&"register_queue".to_owned()));
    });
}

#[test]
fn streams_of_a_root_that_has_gone_are_still_answered() {
    in_vm(|proxy| {
        let goes = proxy.root(&other());
        let stays = proxy.root(&policy(&[]));
        let [called, unanswered] = ["u1", "u2"].map(|user| proxy.get(goes, user));
        proxy.run();
        proxy.drop_root(goes);
        proxy.reply(&proxy.calls()[0], "200", grants(59, &[1]));
        assert_eq!(proxy.sees(called), passed(59));
        proxy.advance(40);
        assert_eq!(proxy.sees(unanswered), UNTOUCHED);
        let after = proxy.get(stays, "u1");
        proxy.run();
        assert_eq!(keys(proxy).last(), Some(&(stays, KEY.to_owned())));
        assert_eq!(proxy.phase(after), Phase::Paused);
    });
}

#[test]
fn a_root_that_comes_after_all_others_have_gone_takes_over() {
    in_vm(|proxy| {
        let goes = proxy.root(&policy(&[]));
        let waiting = proxy.get(goes, "u1");
        proxy.run();
        proxy.drop_root(goes);
        let comes = proxy.root(&other());
        assert_eq!(proxy.queue_names().len(), 1);
        proxy.advance(20);
        assert_eq!(proxy.sees(waiting), UNAVAILABLE);
        let after = proxy.get(comes, "u1");
        proxy.run();
        assert_eq!(keys(proxy), [(comes, OTHER_KEY.to_owned())]);
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(after), Phase::Passed);
    });
}

#[test]
fn two_vms_have_queues_of_different_names() {
    let name = || with_policy(&[("/namespace", json!("edge"))], |proxy, _| proxy.queue_names());
    let names: Vec<Vec<String>> = (0..20).map(|_| name()).collect();
    for (at, name) in names.iter().enumerate() {
        assert_eq!(name.len(), 1);
        assert!(name[0].starts_with("weir.edge.wake."), "{name:?}");
        assert!(!names[..at].contains(name), "{name:?} twice");
    }
}
