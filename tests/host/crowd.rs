//! Thousands of requests of one worker that are decided together: a few are finished in each callback, whatever the
//! callback is, and each once. [`crate::proxy`] makes it a violation where one callback finishes more.

use serde_json::{Value, json};
use weir::flow::FINISHED_AT_ONCE;

use crate::fake::Phase;
use crate::policy::grants;
use crate::proxy::{Proxy, in_vm, with_policy};

const CROWD: usize = 5000;

/// A limit for a crowd, and enough time for it to come.
fn patient(on_error: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("/rules/0/limits/free/default", json!("3000/m")),
        ("/limiters/main/timeout", json!("1s")),
        ("/rules/0/on_error", json!(on_error)),
    ]
}

fn of(proxy: &Proxy, streams: &[u32], phase: Phase) -> usize {
    proxy.phases(streams).iter().filter(|is| **is == phase).count()
}

#[test]
fn a_crowd_at_one_bucket_is_admitted_and_refused_in_order() {
    with_policy(&patient("deny"), |proxy, root| {
        let streams = proxy.gets(root, "u1", CROWD);
        proxy.run();
        // One call for the first of them, and one for each group that follows.
        for (at, left) in [(1024, 1976), (1024, 952), (952, 0), (0, 0), (0, 0)] {
            proxy.answer(format!(r#"{{"EVALSHA":[{},{},0,0,0,0,0,{at}]}}"#, left * 60_000, (3000 - left) * 20));
            proxy.run();
        }
        assert_eq!(proxy.call_count(), 0);
        assert_eq!(proxy.phases(&streams[..3000]), [Phase::Passed; 3000]);
        assert_eq!(proxy.phases(&streams[3000..]), [Phase::Answered; 2000]);
    });
}

#[test]
fn a_crowd_whose_call_fails_is_decided_by_on_error() {
    for (on_error, phase) in [("deny", Phase::Answered), ("allow", Phase::Passed)] {
        with_policy(&patient(on_error), |proxy, root| {
            let streams = proxy.gets(root, "u1", CROWD);
            proxy.run();
            while let Some(call) = proxy.calls().first() {
                proxy.reset(call);
                proxy.run();
            }
            assert_eq!(of(proxy, &streams, phase), CROWD, "{on_error}");
        });
    }
}

#[test]
fn a_crowd_of_tenants_whose_calls_never_end_is_decided_at_its_deadline() {
    for (on_error, phase) in [("deny", Phase::Answered), ("allow", Phase::Passed), ("local", Phase::Passed)] {
        let mut changes = patient(on_error);
        changes.push(("/proxies", json!(2)));
        with_policy(&changes, |proxy, root| {
            let streams: Vec<u32> = (0..CROWD).map(|user| proxy.get(root, &format!("u{user}"))).collect();
            proxy.run();
            assert_eq!(proxy.call_count(), CROWD, "a call for each");
            proxy.keep_calls_for_ever();
            proxy.advance(999);
            assert_eq!(proxy.paused(), CROWD);
            // A tick later at the latest.
            proxy.advance(51);
            assert_eq!(of(proxy, &streams, phase), CROWD, "{on_error}");
        });
    }
}

#[test]
fn a_crowd_whose_calls_cannot_begin_is_decided_at_once() {
    let mut changes = patient("deny");
    changes.push(("/limiters/main/cluster", json!("no-hosts")));
    // So that none is decided without a call.
    changes.push(("/limiters/main/breaker", json!({"failures": 1_000_000})));
    with_policy(&changes, |proxy, root| {
        let streams: Vec<u32> = (0..CROWD).map(|user| proxy.get(root, &format!("u{user}"))).collect();
        proxy.run();
        assert_eq!(of(proxy, &streams, Phase::Answered), CROWD);
        assert_eq!(proxy.counts()["unreachable"], CROWD as i64);
    });
}

#[test]
fn a_crowd_outlives_its_root() {
    in_vm(|proxy| {
        let policy = crate::policy::policy(&[("/limiters/main/timeout", json!("1s"))]);
        let gone = proxy.root(&policy);
        let stays = proxy.root(&policy);
        let streams: Vec<u32> = (0..CROWD).map(|user| proxy.get(gone, &format!("u{user}"))).collect();
        proxy.run();
        assert_eq!(proxy.call_count(), CROWD);
        proxy.drop_root(stays);
        proxy.drop_root(gone);
        let heir = proxy.root(&policy);
        assert_eq!(proxy.call_count(), 0, "its calls went with it");
        proxy.tick(heir);
        proxy.run();
        assert_eq!(of(proxy, &streams, Phase::Answered), CROWD);
    });
}

#[test]
fn those_who_leave_while_they_are_about_to_be_told_are_left_alone() {
    with_policy(&patient("deny"), |proxy, root| {
        let streams = proxy.gets(root, "u1", 100);
        proxy.run();
        proxy.answer(grants_of(100));
        let (told, waiting) = streams.split_at(FINISHED_AT_ONCE);
        assert_eq!(proxy.phases(told), [Phase::Passed; FINISHED_AT_ONCE]);
        waiting.iter().for_each(|stream| proxy.leave(*stream));
        proxy.run();
        assert_eq!(of(proxy, waiting, Phase::Left), 100 - FINISHED_AT_ONCE);
        // Nothing is kept for them.
        let next = proxy.get(root, "u1");
        proxy.run();
        proxy.answer(format!(r#"{{"EVALSHA":[{},{},0,0,0,0,0,1]}}"#, 2899 * 60_000, 101 * 20));
        assert_eq!(proxy.phase(next), Phase::Passed);
    });
}

fn grants_of(count: u64) -> String {
    let left = 3000 - count;
    format!(r#"{{"EVALSHA":[{},{},0,0,0,0,0,{count}]}}"#, left * 60_000, count * 20)
}

#[test]
fn a_crowd_that_comes_to_a_policy_which_is_replaced_is_decided_under_its_own() {
    with_policy(&patient("deny"), |proxy, root| {
        let streams = proxy.gets(root, "u1", CROWD);
        proxy.run();
        assert!(proxy.configure(root, crate::policy::policy(&[]).to_string()));
        proxy.answer(grants_of(1024));
        proxy.run();
        assert_eq!(of(proxy, &streams, Phase::Passed), 1024);
        proxy.advance(1050);
        assert_eq!(of(proxy, &streams, Phase::Answered), CROWD - 1024);
        assert_eq!(proxy.paused(), 0);
    });
}

#[test]
fn small_groups_are_finished_in_the_callback_that_decides_them() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", FINISHED_AT_ONCE);
        proxy.run();
        proxy.answer(grants(60 - FINISHED_AT_ONCE as u64, &[FINISHED_AT_ONCE as u64]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed; FINISHED_AT_ONCE]);
    });
}
