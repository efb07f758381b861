//! Those who wait: group commit, late and doubled replies, clients that leave.

use serde_json::json;

use crate::fake::Phase;
use crate::policy::{LIMITED, NOSCRIPT, UNAVAILABLE, grants, grants_by, passed};
use crate::proxy::{Proxy, START_MS, with_policy};

/// Requests of one user that cost so much each.
fn charged(proxy: &Proxy, root: u32, costs: &[u64]) -> Vec<u32> {
    let path = |cost: &u64| if *cost == 5 { "/v1/bulk" } else { "/v1/items" };
    let sent = |cost| proxy.request(root, &[(":method", "GET"), (":path", path(cost)), ("x-user-id", "u1")]);
    costs.iter().map(sent).collect()
}

/// The arguments of a call for the user u1.
fn u1(runs: &str) -> String {
    format!("rl:{{user.u1}}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 {runs}")
}

fn count(trace: &[String], call: &str) -> usize {
    trace.iter().filter(|other| *other == call).count()
}

/// The streams that were finished, in order.
fn finished(trace: &[String]) -> Vec<u32> {
    // Of one that is refused, its content type is read in between.
    let is_read = |call: &&String| *call == "get_header request content-type";
    let trace: Vec<&String> = trace.iter().filter(|call| !is_read(call)).collect();
    let of = |pair: &[&String]| {
        let finishes = pair[1] == "continue_stream" || pair[1].starts_with("send_local_response");
        pair[0].strip_prefix("set_effective_context ").filter(|_| finishes)?.parse().ok()
    };
    trace.windows(2).filter_map(of).collect()
}

#[test]
fn requests_for_one_bucket_share_one_call_and_are_answered_in_order() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 64);
        assert_eq!(proxy.phases(&streams), [Phase::Paused; 64]);
        assert_eq!(count(&proxy.trace(), "enqueue"), 1, "one wake-up for all");
        // No tick comes between: no time passes at all.
        proxy.run();
        assert_eq!(count(&proxy.trace(), "http_call webdis"), 1);
        assert_eq!(proxy.asked(), u1("1 64"));
        proxy.answer(grants(0, &[60]));
        proxy.run();
        assert_eq!(finished(&proxy.trace()), streams);
        for (stream, left) in streams.iter().zip((0..60).rev()) {
            assert_eq!(proxy.sees(*stream), passed(left));
        }
        for stream in &streams[60..] {
            assert_eq!(proxy.sees(*stream), LIMITED);
        }
        assert_eq!(proxy.calls().len(), 0);
    });
}

#[test]
fn requests_that_come_while_a_call_is_out_share_the_next_one() {
    with_policy(&[], |proxy, root| {
        let first = charged(proxy, root, &[1]);
        proxy.run();
        let later = charged(proxy, root, &[1, 1, 5, 1]);
        proxy.run();
        assert_eq!(proxy.asked(), u1("1 1"), "one call at a time");
        proxy.trace();
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phases(&first), [Phase::Passed]);
        assert_eq!(proxy.asked(), u1("1 2 5 1 1 1"), "at once, without a wake-up, in the order of arrival");
        assert_eq!(count(&proxy.trace(), "enqueue"), 0);
        proxy.answer(grants(0, &[2, 1, 0]));
        assert_eq!(proxy.phases(&later), [Phase::Passed, Phase::Passed, Phase::Passed, Phase::Answered]);
    });
}

#[test]
fn a_wake_up_serves_every_bucket() {
    with_policy(&[], |proxy, root| {
        let streams: Vec<u32> = ["a", "b", "a", "c"].map(|user| proxy.get(root, user)).into();
        assert_eq!(count(&proxy.trace(), "enqueue"), 1);
        proxy.run();
        let calls = proxy.calls();
        let asks: Vec<String> = calls.iter().map(|call| call.asks()).collect();
        let of = |user: &str, count| {
            format!("rl:{{user.{user}}}:per-user:default:60000:t3 60 60000 60 300000 30 0 0 0 0 0 0 1 {count}")
        };
        assert_eq!(asks, [of("a", 2), of("b", 1), of("c", 1)]);
        // The limiter answers in another order.
        for (at, granted) in [(2, 1), (0, 2), (1, 1)] {
            proxy.reply(&calls[at], "200", grants(0, &[granted]));
        }
        assert_eq!(proxy.phases(&streams), [Phase::Passed; 4]);
    });
}

#[test]
fn a_group_with_too_many_runs_goes_in_two_calls() {
    with_policy(&[("/rules/0/limits/free/default", json!("600/m"))], |proxy, root| {
        let costs: Vec<u64> = (0..130).map(|index| if index % 2 == 0 { 1 } else { 5 }).collect();
        let streams = charged(proxy, root, &costs);
        proxy.run();
        let runs = " 1 1 5 1".repeat(64);
        assert_eq!(
            proxy.asked(),
            format!("rl:{{user.u1}}:per-user:default:60000:t3 600 60000 600 300000 300 0 0 0 0 0 0{runs}")
        );
        let left = 600 - 64 * 6;
        let ones = ",1".repeat(128);
        proxy.answer(format!("{{\"EVALSHA\":[{},{},0,0,0,0,0{ones}]}}", left * 60_000, (600 - left) * 100));
        proxy.run();
        assert_eq!(proxy.phases(&streams[..128]), [Phase::Passed; 128]);
        assert_eq!(
            proxy.asked(),
            "rl:{user.u1}:per-user:default:60000:t3 600 60000 600 300000 300 0 0 0 0 0 0 1 1 5 1"
        );
    });
}

#[test]
fn a_call_belongs_to_the_root_even_right_after_streams_were_finished() {
    with_policy(&[], |proxy, root| {
        proxy.gets(root, "u1", 3);
        proxy.run();
        let later = proxy.get(root, "u1");
        // In the callback of a call: three are finished, then the next call is made.
        proxy.answer(grants(0, &[1]));
        assert_eq!(proxy.call().owner, root);
        proxy.answer(grants(0, &[1]));
        assert_eq!(proxy.phase(later), Phase::Passed);
        // In a tick: two have waited too long, and their call has outlived them.
        proxy.gets(root, "u2", 2);
        proxy.run();
        proxy.advance(15);
        let second = proxy.get(root, "u2");
        proxy.run();
        assert_eq!(proxy.calls().len(), 1);
        proxy.advance(5);
        assert_eq!(proxy.calls().iter().map(|call| call.owner).collect::<Vec<_>>(), [root, root]);
        assert_eq!(proxy.phase(second), Phase::Paused);
        // In a wake-up, the same.
        proxy.get(root, "u3");
        proxy.advance(15);
        proxy.get(root, "u4");
        proxy.run();
        assert!(proxy.calls().iter().all(|call| call.owner == root), "{:?}", proxy.calls());
    });
}

#[test]
fn a_second_call_starts_when_the_first_has_outlived_a_wait_and_no_third() {
    with_policy(&[], |proxy, root| {
        let mut streams = Vec::new();
        for (ms, calls) in [(0, 1), (19, 1), (1, 2), (20, 2), (20, 2)] {
            proxy.advance(ms);
            streams.push(proxy.get(root, "u1"));
            proxy.run();
            assert_eq!(proxy.calls().len(), calls, "after {ms} ms more");
        }
        let [first, second] = proxy.calls().try_into().expect("two calls");
        assert_eq!(
            proxy.phases(&streams),
            [Phase::Answered, Phase::Answered, Phase::Answered, Phase::Answered, Phase::Paused]
        );
        // The older one answers last, and the one who waits is served by the next call.
        proxy.reply(&second, "200", grants(58, &[2]));
        assert_eq!(proxy.calls().len(), 2);
        proxy.reply(&first, "200", grants(57, &[1]));
        proxy.answer(grants(56, &[1]));
        assert_eq!(proxy.phase(streams[4]), Phase::Passed);
    });
}

#[test]
fn a_late_reply_changes_nothing_for_the_one_who_waited_and_serves_those_who_came_after() {
    with_policy(&[], |proxy, root| {
        let early = proxy.get(root, "u1");
        proxy.run();
        proxy.advance(15);
        let late = proxy.get(root, "u1");
        proxy.run();
        proxy.advance(4);
        let first = proxy.call();
        proxy.set_clock(START_MS + 21);
        proxy.reply(&first, "200", grants(59, &[1]));
        assert_eq!(proxy.sees(early), UNAVAILABLE, "its wait was over");
        assert_eq!(proxy.asked(), u1("1 1"));
        proxy.answer(grants(58, &[1]));
        assert_eq!(proxy.phase(late), Phase::Passed);
        assert_eq!(proxy.counts()["timeout"], 1);
    });
}

#[test]
fn a_reply_after_its_call_was_given_up_changes_nothing() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 3);
        proxy.run();
        let call = proxy.call();
        proxy.keep_calls_for_ever();
        proxy.advance(1010);
        let waiting = proxy.get(root, "u1");
        proxy.run();
        proxy.trace();
        proxy.reply(&call, "200", grants(57, &[3]));
        assert_eq!(finished(&proxy.trace()), Vec::<u32>::new());
        for stream in streams {
            assert_eq!(proxy.sees(stream), UNAVAILABLE);
        }
        assert_eq!(proxy.phase(waiting), Phase::Paused, "it is in a call of its own");
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(waiting), Phase::Passed);
    });
}

#[test]
fn a_call_that_the_host_ends_after_the_filter_has_is_ended_once() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 2);
        proxy.run();
        // Tick and end of the call fall on the same millisecond, and the tick comes first.
        proxy.advance(1000);
        assert_eq!(proxy.calls().len(), 0);
        assert_eq!(proxy.phases(&streams), [Phase::Answered; 2]);
        assert_eq!(proxy.counts()["timeout"], 2);
        assert_eq!(proxy.counts().len(), 2, "{:?}", proxy.counts());
    });
}

#[test]
fn nobody_is_asked_for_a_client_that_leaves_before_the_wake_up() {
    with_policy(&[], |proxy, root| {
        let stream = proxy.get(root, "u1");
        proxy.leave(stream);
        proxy.run();
        assert_eq!(proxy.calls().len(), 0);
        proxy.advance(100);
        assert_eq!((proxy.calls().len(), proxy.counts().len()), (0, 0));
        // One of two: the other is asked for.
        let streams = proxy.gets(root, "u1", 2);
        proxy.leave(streams[0]);
        proxy.run();
        assert_eq!(proxy.asked(), u1("1 1"));
        proxy.answer(grants(0, &[1]));
        assert_eq!(proxy.phase(streams[1]), Phase::Passed);
    });
}

#[test]
fn what_was_granted_to_a_client_that_has_left_is_given_to_nobody() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 4);
        proxy.run();
        proxy.leave(streams[1]);
        let later = proxy.get(root, "u1");
        proxy.answer(grants(0, &[2]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed, Phase::Left, Phase::Answered, Phase::Answered]);
        assert_eq!(proxy.phase(later), Phase::Paused);
        assert_eq!(proxy.asked(), u1("1 1"), "it asks for itself");
        proxy.answer(grants(0, &[0]));
        assert_eq!(proxy.sees(later), LIMITED);
    });
}

#[test]
fn a_call_outlives_all_whom_it_was_made_for() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 5);
        proxy.run();
        for stream in &streams {
            proxy.leave(*stream);
        }
        proxy.trace();
        proxy.answer(grants(55, &[5]));
        assert_eq!(finished(&proxy.trace()), Vec::<u32>::new());
        assert_eq!(proxy.phases(&streams), [Phase::Left; 5]);
        assert_eq!(proxy.calls().len(), 0);
    });
}

#[test]
fn only_those_who_are_still_here_ask_again_after_a_forgotten_script() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 3);
        proxy.run();
        proxy.leave(streams[2]);
        proxy.answer(NOSCRIPT);
        assert_eq!(proxy.asked(), u1("1 2"));
        proxy.answer(grants_by("EVAL", 58, &[2]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed, Phase::Passed, Phase::Left]);
        // All have left: nobody asks.
        let stream = proxy.get(root, "u1");
        proxy.run();
        proxy.leave(stream);
        proxy.answer(NOSCRIPT);
        assert_eq!(proxy.calls().len(), 0);
    });
}

#[test]
fn a_client_that_leaves_after_it_was_resumed_changes_nothing() {
    with_policy(&[], |proxy, root| {
        let streams = proxy.gets(root, "u1", 2);
        proxy.run();
        proxy.answer(grants(58, &[2]));
        proxy.leave(streams[0]);
        assert_eq!(proxy.sees(streams[1]), passed(58));
    });
}

#[test]
fn a_wake_up_that_comes_late_or_twice_is_harmless() {
    with_policy(&[], |proxy, root| {
        // A tick comes before the wake-up and makes up for it.
        let stream = proxy.get(root, "u1");
        proxy.tick(root);
        assert_eq!(proxy.asked(), u1("1 1"));
        proxy.run();
        assert_eq!(proxy.asked(), u1("1 1"));
        proxy.answer(grants(59, &[1]));
        assert_eq!(proxy.phase(stream), Phase::Passed);
    });
}
