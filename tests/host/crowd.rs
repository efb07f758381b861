//! Thousands of requests of one worker that are decided together: a few are finished in each callback, whatever the
//! callback is, and each once. [`crate::proxy`] makes it a violation where one callback finishes more.

use serde_json::{Value, json};
use weir::engine::MOST_FINISHED;

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
fn a_crowd_whose_calls_cannot_begin_or_fail_at_once_is_decided_at_once() {
    for (cluster, reason) in [("no-hosts", "unreachable"), ("overloaded", "reset")] {
        let mut changes = patient("deny");
        changes.push(("/limiters/main/cluster", json!(cluster)));
        // So that none is decided without a call.
        changes.push(("/limiters/main/breaker", json!({"failures": 1_000_000})));
        with_policy(&changes, |proxy, root| {
            let streams: Vec<u32> = (0..CROWD).map(|number| proxy.get(root, &format!("u{}", number / 2))).collect();
            proxy.run();
            assert_eq!(of(proxy, &streams, Phase::Answered), CROWD, "{cluster}");
            assert_eq!(proxy.counts()[reason], CROWD as i64, "{cluster}");
        });
    }
}

#[test]
fn nobody_is_charged_whose_time_is_over() {
    with_policy(&patient("deny"), |proxy, root| {
        let streams = proxy.gets(root, "u1", 2000);
        proxy.run();
        proxy.keep_calls_for_ever();
        proxy.advance(900);
        let late = proxy.get(root, "u1");
        proxy.run();
        assert_eq!(proxy.call_count(), 1, "one call at a time");
        proxy.advance(150);
        assert_eq!(of(proxy, &streams, Phase::Answered), 2000);
        // The first call has outlived a wait: the second asks for the one who still waits.
        let asks: Vec<String> = proxy.calls().iter().map(|call| call.asks()).collect();
        assert!(asks[0].ends_with(" 1 1024") && asks[1].ends_with(" 1 1") && asks.len() == 2, "{asks:?}");
        assert_eq!(proxy.phase(late), Phase::Paused);
        proxy.advance(900);
        assert_eq!(proxy.phase(late), Phase::Answered);
    });
}

#[test]
fn a_crowd_is_served_from_the_lease_that_its_first_call_brings() {
    let mut changes = patient("deny");
    changes.extend([("/rules/0/mode", json!("lease")), ("/rules/0/limits/free/default", json!("10000/s"))]);
    with_policy(&changes, |proxy, root| {
        let reply = |left: u64, lent: &str, granted| {
            let used = 10_000 - left;
            format!(r#"{{"EVALSHA":[{},{},{lent},{granted}]}}"#, left * 1000, used.div_ceil(10))
        };
        // A tenant of some demand: what it wants to hold grows with each call.
        for _ in 0..7 {
            proxy.gets(root, "u1", 1000);
            proxy.run();
            proxy.answer(reply(9000, "0,0,0,0,0", 1000));
            proxy.run();
            assert_eq!((proxy.paused(), proxy.call_count()), (0, 0));
        }
        let streams = proxy.gets(root, "u1", 3000);
        proxy.run();
        // The first 1,024 are granted, and 1,500 more are lent.
        let lent = format!("{},3000,0,1500,0", crate::proxy::START_MS + 3000);
        proxy.answer(reply(10_000 - 1024 - 1500, &lent, 1024));
        proxy.run();
        assert_eq!(proxy.phases(&streams[..2524]), [Phase::Passed; 2524], "in order");
        assert_eq!(proxy.paused(), 476);
        assert!(proxy.asked().ends_with(" 1 476"), "{}", proxy.asked());
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
        let (told, waiting) = streams.split_at(MOST_FINISHED);
        assert_eq!(proxy.phases(told), [Phase::Passed; MOST_FINISHED]);
        waiting.iter().for_each(|stream| proxy.leave(*stream));
        proxy.run();
        assert_eq!(of(proxy, waiting, Phase::Left), 100 - MOST_FINISHED);
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
        let streams = proxy.gets(root, "u1", MOST_FINISHED);
        proxy.run();
        proxy.answer(grants(60 - MOST_FINISHED as u64, &[MOST_FINISHED as u64]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed; MOST_FINISHED]);
    });
}
