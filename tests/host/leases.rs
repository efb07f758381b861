//! Leases: what the limiter lends is one store for all workers of a proxy, one of them at a time calls about it, and
//! whatever becomes of that worker or of shared data, no token is spent that the limiter does not count.

use serde_json::{Value, json};

use crate::fake::{Phase, fake};
use crate::policy::{LONG_END, NO_LEASE, NOSCRIPT, UNAVAILABLE, asks_of_u1, lease, lends, long};
use crate::proxy::{Proxy, START_MS, in_vm};
use crate::space::Space;
use crate::vms::Vm;

/// Two workers of one proxy.
fn workers(changes: &[(&str, Value)]) -> (Space, [Vm; 2]) {
    let space = Space::default();
    let vms = [(); 2].map(|()| Vm::start(&space, &lease(changes)));
    (space, vms)
}

/// Requests of u1, and the wake-ups that are on their way.
fn arrive(proxy: &Proxy, root: u32, count: usize) -> Vec<u32> {
    let streams = proxy.gets(root, "u1", count);
    proxy.run();
    streams
}

/// A request of u1 that asks the limiter and passes, with a lease of so many tokens; ten seconds from now, so slow a
/// demand asks for no more.
#[track_caller]
fn borrow(proxy: &Proxy, root: u32, tokens: u64) {
    let streams = arrive(proxy, root, 1);
    proxy.answer(lends(999 - tokens, long(0, tokens), &[1]));
    assert_eq!(proxy.phases(&streams), [Phase::Passed]);
}

/// The same in a hurry: twenty come at once, and one more asks ahead for twelve.
#[track_caller]
fn borrow_and_ask_ahead(proxy: &Proxy, root: u32) {
    let streams = arrive(proxy, root, 20);
    proxy.answer(lends(977, long(0, 3), &[20]));
    assert_eq!(proxy.phases(&streams), [Phase::Passed; 20]);
    assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Passed]);
    assert_eq!(proxy.asked(), asks_of_u1(&format!("12 {LONG_END} 3 2 0 0")));
}

/// How many requests of u1 pass at once, one every ten seconds, until one has to ask the limiter.
#[track_caller]
fn pass_slowly(proxy: &Proxy, root: u32) -> usize {
    for passed in 0..100 {
        proxy.advance(10_000);
        let stream = proxy.get(root, "u1");
        match proxy.phase(stream) {
            Phase::Passed => assert_eq!(proxy.call_count(), 0),
            Phase::Paused => return passed,
            other => panic!("{other:?} after {passed}"),
        }
    }
    panic!("it never asks")
}

fn after(vms: &[Vm], ms: u64) {
    for vm in vms {
        vm.act(move |proxy, _| proxy.advance(ms));
    }
}

// Several workers.

#[test]
fn workers_spend_one_lease() {
    let (_, vms) = workers(&[]);
    vms[0].act(|proxy, root| borrow(proxy, root, 3));
    for at in [1, 0, 1] {
        after(&vms, 10_000);
        vms[at].act(|proxy, root| assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Passed]));
    }
    after(&vms, 10_000);
    vms[1].act(|proxy, root| {
        assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Paused], "all three are spent");
        // In forty seconds four were spent. What is asked for is by demand, and closes the lease that the other opened.
        assert_eq!(proxy.asked(), asks_of_u1(&format!("12 {LONG_END} 3 0 0 0 1 1")));
    });
}

#[test]
fn one_worker_at_a_time_calls_about_a_lease_and_wakes_those_who_wait() {
    let space = Space::default();
    let vms = [(); 4].map(|()| Vm::start(&space, &lease(&[("/limiters/main/timeout", json!("1s"))])));
    let [caller, short, served, elsewhere] = &vms;
    let called = caller.act(|proxy, root| arrive(proxy, root, 2));
    elsewhere.act(|proxy, root| {
        proxy.get(root, "u2");
        proxy.run();
        assert_eq!(proxy.call_count(), 1, "it is about another key");
    });
    let of_served = served.act(|proxy, root| arrive(proxy, root, 3));
    let of_short = short.act(|proxy, root| arrive(proxy, root, 2));
    // Time passes, ticks as well; so slow a demand does not ask ahead.
    after(&vms, 600);
    for vm in [short, served] {
        vm.act(|proxy, _| assert_eq!(proxy.call_count(), 0, "one call at a time"));
    }
    caller.act(move |proxy, _| {
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 2"));
        proxy.trace();
        proxy.answer(lends(995, long(0, 3), &[2]));
        assert_eq!(proxy.phases(&called), [Phase::Passed; 2]);
        let wakes = proxy.trace().into_iter().filter(|call| call == "enqueue of another worker");
        assert_eq!(wakes.count(), 2, "each that waits is woken, and nobody else");
    });
    served.act(move |proxy, _| {
        proxy.run();
        assert_eq!(proxy.phases(&of_served), [Phase::Passed; 3], "there are three");
    });
    short.act(move |proxy, _| {
        proxy.run();
        assert_eq!(proxy.phases(&of_short), [Phase::Paused; 2]);
        // It is the caller now, and the lease that it closes is the one that the first has opened.
        let asks = proxy.asked();
        assert!(asks.ends_with(&format!(" {LONG_END} 3 0 0 0 1 2")), "{asks}");
        proxy.answer(lends(993, NO_LEASE, &[2]));
        assert_eq!(proxy.phases(&of_short), [Phase::Passed; 2]);
    });
}

#[test]
fn a_worker_is_woken_as_well_where_the_call_fails_and_asks_itself() {
    let (_, [caller, waiter]) = workers(&[]);
    let called = caller.act(|proxy, root| arrive(proxy, root, 1));
    let waiting = waiter.act(|proxy, root| arrive(proxy, root, 1));
    caller.act(move |proxy, _| {
        proxy.reset(&proxy.call());
        assert_eq!(proxy.sees(called[0]), UNAVAILABLE);
    });
    waiter.act(move |proxy, _| {
        proxy.run();
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"), "there is no lease");
        proxy.answer(lends(996, long(0, 3), &[1]));
        assert_eq!(proxy.phases(&waiting), [Phase::Passed]);
    });
}

#[test]
fn a_worker_that_waits_for_a_forgotten_script_waits_for_its_text() {
    let (_, [caller, waiter]) = workers(&[]);
    caller.act(|proxy, root| {
        arrive(proxy, root, 1);
        proxy.answer(NOSCRIPT);
        assert_eq!((proxy.call().command().as_str(), proxy.asked()), ("EVAL", asks_of_u1("3 0 0 0 0 0 1 1")));
    });
    let waiting = waiter.act(|proxy, root| arrive(proxy, root, 1));
    caller.act(|proxy, _| proxy.answer(lends(996, long(0, 3), &[1]).replace("EVALSHA", "EVAL")));
    waiter.act(move |proxy, _| {
        assert_eq!(proxy.call_count(), 0);
        proxy.run();
        assert_eq!(proxy.phases(&waiting), [Phase::Passed]);
    });
}

#[test]
fn requests_that_are_refused_for_another_worker_are_refused_here() {
    let (_, [caller, waiter]) = workers(&[]);
    caller.act(|proxy, root| arrive(proxy, root, 1));
    let waiting = waiter.act(|proxy, root| arrive(proxy, root, 2));
    caller.act(|proxy, _| proxy.answer(lends(0, NO_LEASE, &[0])));
    waiter.act(move |proxy, root| {
        proxy.run();
        assert_eq!(proxy.phases(&waiting), [Phase::Answered; 2]);
        assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Answered], "it is quiet for all");
        assert_eq!((proxy.call_count(), proxy.counts().len()), (0, 0));
    });
}

#[test]
fn a_worker_that_dies_with_its_call_is_succeeded_when_that_call_is_over() {
    let (_, [dies, lives]) = workers(&[]);
    dies.act(borrow_and_ask_ahead);
    drop(dies);
    lives.act(|proxy, root| {
        // What it has left behind may be spent as long as it surely counts.
        assert_eq!(proxy.phases(&arrive(proxy, root, 2)), [Phase::Passed; 2]);
        assert_eq!(proxy.call_count(), 0);
        proxy.advance(999);
        assert_eq!(proxy.paused(), 0);
        proxy.advance(1);
        let waits = arrive(proxy, root, 1);
        assert_eq!(proxy.phases(&waits), [Phase::Paused]);
        // Nobody knows what has become of the lease: it is not reported.
        let asks = proxy.asked();
        assert!(asks.ends_with(" 0 0 0 0 0 1 1"), "{asks}");
        proxy.answer(lends(990, long(0, 3), &[1]));
        assert_eq!(proxy.phases(&waits), [Phase::Passed]);
        assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Passed]);
    });
}

#[test]
fn requests_behind_a_dead_worker_ask_for_themselves_once_its_call_has_outlived_a_wait_and_borrow_once_it_is_over() {
    let (_, [dies, lives]) = workers(&[]);
    dies.act(|proxy, root| arrive(proxy, root, 1));
    drop(dies);
    lives.act(|proxy, root| {
        proxy.advance(10);
        let waits = arrive(proxy, root, 1);
        assert_eq!((proxy.phases(&waits), proxy.call_count()), (vec![Phase::Paused], 0), "it may come back");
        proxy.advance(10);
        assert_eq!(proxy.asked(), asks_of_u1("0 0 0 0 0 0 1 1"));
        proxy.answer(lends(999, [0; 5], &[1]));
        assert_eq!(proxy.phases(&waits), [Phase::Passed]);
        proxy.advance(980);
        let waits = arrive(proxy, root, 1);
        proxy.advance(10);
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"), "a second after the call was sent");
        proxy.answer(lends(996, long(0, 3), &[1]));
        assert_eq!(proxy.phases(&waits), [Phase::Passed]);
    });
}

#[test]
fn tokens_that_a_dead_worker_has_reported_are_dropped_when_its_call_is_over() {
    let (_, [dies, lives]) = workers(&[]);
    dies.act(borrow_and_ask_ahead);
    drop(dies);
    lives.act(|proxy, root| {
        proxy.advance(5000);
        let waits = arrive(proxy, root, 3);
        assert_eq!(proxy.phases(&waits), [Phase::Paused; 3], "two are left, and not certain any more");
        let asks = proxy.asked();
        assert!(asks.ends_with(" 0 0 0 0 0 1 3"), "{asks}");
    });
}

#[test]
fn a_late_answer_to_a_worker_that_was_succeeded_changes_nothing() {
    let (_, [late, other]) = workers(&[]);
    late.act(|proxy, root| {
        arrive(proxy, root, 1);
        proxy.keep_calls_for_ever();
    });
    other.act(|proxy, root| {
        proxy.advance(1000);
        borrow(proxy, root, 3);
    });
    late.act(|proxy, root| {
        let call = proxy.call();
        proxy.set_clock(START_MS + 1000);
        proxy.reply(&call, "200", lends(900, long(0, 99), &[1]));
        proxy.set_clock(START_MS + 11_000);
        assert_eq!(pass_slowly(proxy, root), 3, "by the other's lease");
    });
}

#[test]
fn a_line_that_waits_for_another_worker_costs_the_same_at_each_tick() {
    let (space, [caller, waiter]) = workers(&[("/limiters/main/timeout", json!("1s"))]);
    caller.act(|proxy, root| arrive(proxy, root, 1));
    waiter.act(|proxy, root| arrive(proxy, root, 1));
    for _ in 0..15 {
        let before = space.calls("table");
        waiter.act(|proxy, _| proxy.advance(50));
        let [reads, writes, late] = space.calls("table");
        assert_eq!([reads - before[0], writes - before[1], late - before[2]], [2, 0, 0]);
    }
}

// Time.

#[test]
fn a_lease_is_spent_until_just_before_it_ends() {
    // A life of 3 s, less a thousandth and one.
    for (ms, phase) in [(2995, Phase::Passed), (2996, Phase::Paused)] {
        in_vm(|proxy| {
            let root = proxy.root(&lease(&[]));
            proxy.get(root, "u1");
            proxy.run();
            proxy.answer(lends(499, [START_MS + 3000, 3000, 0, 3, 0], &[1]));
            // Without a tick, for it would be given back.
            proxy.set_clock(START_MS + ms);
            let stream = proxy.get(root, "u1");
            assert_eq!(proxy.phase(stream), phase, "{ms} ms after the call was sent");
            proxy.run();
            if phase == Phase::Paused {
                // Want by demand: nearly nothing. The limiter takes off what it still counts, and nothing is carried on.
                let asks = proxy.asked();
                assert!(asks.ends_with(&format!(" {} 3 0 0 0 1 1", START_MS + 3000)), "{asks}");
            }
        });
    }
}

#[test]
fn a_lease_that_is_not_small_goes_back_when_it_is_idle_for_five_seconds_and_is_not_spent_meanwhile() {
    // A minute's worth is the burst, so that large leases live for three.
    let (limit, end) = (64_000, START_MS + 180_000);
    let reply = |left: u64, lent: [u64; 2], granted: &[u64]| {
        let [kept, extra] = lent;
        let (end, valid) = if kept + extra > 0 { (end, 180_000) } else { (0, 0) };
        let mut reply = vec![left * 60_000, ((limit - left) * 60_000).div_ceil(limit), end, valid, kept, extra, 0];
        reply.extend(granted);
        format!("{{\"EVALSHA\":{reply:?}}}")
    };
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[("/rules/0/limits/free/default", json!("64000/m"))]));
        arrive(proxy, root, 1000);
        proxy.answer(reply(62_996, [0, 4], &[1000]));
        // Each of the next asks ahead, for four times as many as the one before at most.
        let (mut left, mut held) = (62_996, 4);
        for (want, spent) in [(16, 1), (64, 1), (256, 20)] {
            assert_eq!(proxy.phases(&arrive(proxy, root, spent)), vec![Phase::Passed; spent]);
            let kept = held - spent as u64;
            let asks = proxy.asked();
            assert!(asks.ends_with(&format!(" {want} {end} {held} {kept} 0 0")), "{asks}");
            left -= want - kept;
            proxy.answer(reply(left, [kept, want - kept], &[]));
            held = want;
        }
        proxy.advance(4990);
        assert_eq!(proxy.call_count(), 0);
        proxy.advance(20);
        let asks = proxy.asked();
        assert!(asks.ends_with(&format!(" 0 {end} 256 256 0 0")), "{asks}");
        // As soon as the limiter has it back, it may be another's.
        let streams = arrive(proxy, root, 2);
        assert_eq!(proxy.phases(&streams), [Phase::Paused; 2]);
        proxy.answer(reply(left + 256, [0, 0], &[]));
        let asks = proxy.asked();
        assert!(asks.ends_with(" 0 0 0 0 0 1 2"), "{asks}");
        proxy.answer(reply(left + 254, [0, 0], &[2]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed; 2]);
    });
}

#[test]
fn a_lease_is_spent_on_where_the_call_about_it_could_not_even_begin() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        borrow_and_ask_ahead(proxy, root);
        proxy.answer(lends(977, long(2, 0), &[]));
        assert!(proxy.configure(root, lease(&[("/limiters/main/cluster", json!("no-hosts"))]).to_string()));
        // Each asks ahead, which fails at once.
        for _ in 0..2 {
            assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Passed]);
        }
        let streams = arrive(proxy, root, 1);
        assert_eq!(proxy.sees(streams[0]), UNAVAILABLE);
        let counts = [("unreachable", 1), ("calls", 2)];
        assert_eq!(proxy.counts(), counts.map(|(name, count)| (name.to_owned(), count)).into());
    });
}

#[test]
fn a_lease_is_dropped_where_nobody_knows_what_has_become_of_the_call_about_it() {
    let ends: [fn(&Proxy); 4] = [
        |proxy| proxy.reset(&proxy.call()),
        |proxy| proxy.reply(&proxy.call(), "503", ""),
        |proxy| proxy.answer("no JSON"),
        |proxy| proxy.advance(1000),
    ];
    for end in ends {
        in_vm(|proxy| {
            let root = proxy.root(&lease(&[]));
            borrow_and_ask_ahead(proxy, root);
            end(proxy);
            assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Paused], "two tokens were left");
            let asks = proxy.asked();
            assert!(asks.ends_with(" 0 0 0 0 0 1 1"), "{asks}");
        });
    }
}

#[test]
fn a_lease_of_a_bucket_that_is_low_goes_back_when_it_is_idle_for_a_quarter_of_the_time_to_full() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        proxy.get(root, "u1");
        proxy.run();
        proxy.answer(lends(400, [START_MS + 3000, 3000, 0, 3, 0], &[1]));
        proxy.advance(249);
        assert_eq!(proxy.call_count(), 0);
        proxy.advance(11);
        assert_eq!(proxy.asked(), asks_of_u1(&format!("0 {} 3 3 0 0", START_MS + 3000)));
        proxy.answer(lends(670, NO_LEASE, &[]));
        proxy.advance(10_000);
        assert_eq!(proxy.call_count(), 0, "nothing is left to give back");
    });
}

// Reloads.

#[test]
fn a_lease_outlives_the_policy_that_it_was_lent_under() {
    // The same policy, one of another limit, and one of another timeout and response.
    let changes = [
        vec![],
        vec![("/rules/0/limits/free/default", json!("10/s"))],
        vec![("/limiters/main/timeout", json!("40ms")), ("/response", json!({"headers": []}))],
    ];
    for changes in changes {
        // In the same root.
        in_vm(|proxy| {
            let root = proxy.root(&lease(&[]));
            borrow(proxy, root, 3);
            assert!(proxy.configure(root, lease(&changes).to_string()));
            assert_eq!(pass_slowly(proxy, root), 3);
        });
        // In a new root of the VM, which takes the place of the old one.
        in_vm(|proxy| {
            let old = proxy.root(&lease(&[]));
            borrow(proxy, old, 3);
            let new = proxy.root(&lease(&changes));
            proxy.drop_root(old);
            assert_eq!(pass_slowly(proxy, new), 3);
        });
        // In new VMs.
        let (space, [old, other]) = workers(&[]);
        old.act(|proxy, root| borrow(proxy, root, 3));
        let new = Vm::start(&space, &lease(&changes));
        drop((old, other));
        new.act(|proxy, root| assert_eq!(pass_slowly(proxy, root), 3));
    }
}

#[test]
fn a_call_about_a_lease_serves_those_of_the_policy_before_and_keeps_out_those_of_the_new_one_meanwhile() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        let before = arrive(proxy, root, 1);
        assert!(proxy.configure(root, lease(&[("/response", json!({"retry_after_jitter": 0.5}))]).to_string()));
        let after = arrive(proxy, root, 1);
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"), "one call, though they are two plans");
        proxy.answer(lends(996, long(0, 3), &[1]));
        proxy.run();
        assert_eq!(proxy.phases(&[before, after].concat()), [Phase::Passed; 2]);
    });
}

// Shared data that fails.

#[test]
fn where_no_write_is_ever_in_time_every_request_asks_for_itself_alone() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        proxy.space().lose("table", u32::MAX);
        for left in (0..3).rev() {
            let streams = arrive(proxy, root, 2);
            assert_eq!(proxy.phases(&streams), [Phase::Paused; 2]);
            assert_eq!(proxy.asked(), asks_of_u1("0 0 0 0 0 0 1 2"), "as in mode exact");
            proxy.answer(lends(left * 2, NO_LEASE, &[2]));
            assert_eq!(proxy.phases(&streams), [Phase::Passed; 2]);
        }
        let streams = arrive(proxy, root, 1);
        proxy.answer(lends(0, NO_LEASE, &[0]));
        assert_eq!(proxy.phases(&streams), [Phase::Answered]);
        assert_eq!(proxy.counts(), [("calls".to_owned(), 4)].into());
    });
}

#[test]
fn tokens_that_cannot_be_taken_are_not_spent() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        borrow(proxy, root, 3);
        proxy.advance(10_000);
        // Eight tries to spend and eight to start the call about the lease.
        proxy.space().lose("table", 16);
        let streams = arrive(proxy, root, 1);
        assert_eq!(proxy.phases(&streams), [Phase::Paused]);
        assert_eq!(proxy.asked(), asks_of_u1("0 0 0 0 0 0 1 1"));
        proxy.answer(lends(995, NO_LEASE, &[1]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed]);
        assert_eq!(pass_slowly(proxy, root), 3, "all are still there");
    });
}

#[test]
fn a_lease_that_cannot_be_noted_is_not_spent() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        let streams = arrive(proxy, root, 1);
        proxy.space().lose("table", 8);
        proxy.answer(lends(996, long(0, 3), &[1]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed]);
        proxy.advance(1000);
        let next = arrive(proxy, root, 1);
        assert_eq!(proxy.phases(&next), [Phase::Paused]);
        assert!(proxy.asked().ends_with(" 0 0 0 0 0 1 1"), "{}", proxy.asked());
    });
}

#[test]
fn a_space_that_is_wiped_takes_the_leases_along() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        borrow(proxy, root, 3);
        proxy.space().wipe();
        let streams = arrive(proxy, root, 1);
        assert_eq!(proxy.phases(&streams), [Phase::Paused]);
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"));
        // While the call is out, once more: its lease is nobody's.
        proxy.space().wipe();
        proxy.answer(lends(993, long(0, 3), &[1]));
        assert_eq!(proxy.phases(&streams), [Phase::Passed]);
        assert_eq!(proxy.phases(&arrive(proxy, root, 1)), [Phase::Paused]);
        assert_eq!(proxy.asked(), asks_of_u1("3 0 0 0 0 0 1 1"));
    });
}

#[test]
fn a_wake_up_of_others_that_is_wiped_away_is_made_up_for_by_a_tick() {
    let (space, vms) = workers(&[]);
    vms[0].act(|proxy, root| arrive(proxy, root, 1));
    let waiting = vms[1].act(|proxy, root| arrive(proxy, root, 1));
    space.corrupt("weir.workers", |value| value.clear());
    vms[0].act(|proxy, _| proxy.answer(lends(996, long(0, 3), &[1])));
    vms[1].act(move |proxy, _| {
        proxy.run();
        assert_eq!(proxy.phases(&waiting), [Phase::Paused]);
        proxy.advance(10);
        assert_eq!(proxy.phases(&waiting), [Phase::Passed]);
    });
}

#[test]
fn a_damaged_lease_is_none() {
    in_vm(|proxy| {
        let root = proxy.root(&lease(&[]));
        for byte in 8..152 {
            borrow(proxy, root, 3);
            assert!(proxy.space().corrupt("table", |value| value[byte] ^= 0x10) > 0);
            proxy.advance(10_000);
            let asks = {
                arrive(proxy, root, 1);
                proxy.asked()
            };
            assert_eq!(asks, asks_of_u1("3 0 0 0 0 0 1 1"), "byte {byte}");
            proxy.answer(lends(999, NO_LEASE, &[1]));
            proxy.space().wipe();
            fake(|host| host.trace.clear());
            assert!(proxy.configure(root, lease(&[]).to_string()));
        }
    });
}
