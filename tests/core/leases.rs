//! The proxy's side of a lease, call by call.

use std::rc::Rc;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquired, Lent, Offer, Used};
use weir::clock::Ms;
use weir::engine::plan::{Closed, Election, Lending, LendingEnd, Plan, Said};
use weir::local::lease::{Lease, Wish};
use weir::local::table::Table;
use weir::policy::{Limit, Mode, Terms};
use weir::rules::Ask;

use crate::made::{Random, Shared, ask_of, bucket_at, limit, policy_of, rounds};

/// Where the tests' time begins.
const START: u64 = 1_000_000;

/// As leases are by default.
const TERMS: Terms = Terms { life: Ms(300_000), lend: 500 };

/// 1000/s: full in a second, so large leases live for 3 s, and the pace is 250 ms.
fn fast() -> Limit {
    limit(1000, 1, 1000)
}

fn at(ms: u64) -> Ms {
    Ms(START + ms)
}

fn lent(end: u64, valid: u64, kept: u64, extra: u64, held: u64) -> Lent {
    Lent { end, valid: Ms(valid), kept, extra, held, limited: false }
}

/// Starts a call that is over after a second.
fn open(lease: &mut Lease, limit: Limit, ms: u64) -> Offer {
    lease.open_call(limit, TERMS, Wish::Borrow, 1, at(ms), at(ms + 1000)).expect("no other call is out")
}

/// A lease of so many tokens, of a call that was sent and answered at once, for 3 s; the next call wants 12.
fn of(tokens: u64) -> Lease {
    let mut lease = Lease { rate: 10_000_000, ..Lease::default() };
    open(&mut lease, fast(), 0);
    lease.renew(&lent(7, 3000, 0, tokens, 0), at(0), at(0));
    lease
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_at_hand_is_spent_whole_or_not_at_all() {
    let mut lease = of(5);
    assert_eq!((lease.tokens, lease.size, lease.end, lease.at_hand(at(0))), (5, 5, 7, 5));
    assert!(lease.spend(at(1), 2));
    assert!(!lease.spend(at(1), 4));
    assert_eq!((lease.tokens, lease.spent), (3, 2));
    assert!(lease.spend(at(1), 3));
    assert!(!lease.spend(at(1), 1));
    // What it is counted with stays until the next call.
    assert_eq!((lease.tokens, lease.spent, lease.size), (0, 5, 5));
    assert!(!Lease::default().spend(at(0), 1));
}

#[wasm_bindgen_test(unsupported = test)]
fn nothing_is_spent_from_its_end_on_by_a_clock_that_is_slow() {
    // Valid for, counted from the sending, less a thousandth and a millisecond.
    for (valid, lasts) in [(3000, 2996), (300_000, 299_699), (999, 998), (1000, 998), (1, 0), (0, 0)] {
        let mut lease = Lease::default();
        open(&mut lease, fast(), 0);
        // It is answered late: what counts is when it was sent.
        lease.renew(&lent(7, valid, 0, 5, 0), at(0), at(900));
        assert_eq!(lease.expires, at(lasts), "{valid}");
        if lasts > 0 {
            assert_eq!(lease.at_hand(at(lasts - 1)), 5);
        }
        assert_eq!(lease.at_hand(at(lasts)), 0);
        assert!(!lease.spend(at(lasts), 1));
        assert!(!lease.spend(Ms(u64::MAX), 1));
        assert_eq!(lease.tokens, 5);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_offers_what_is_at_hand_and_one_is_out_at_a_time() {
    let mut lease = of(5);
    lease.spend(at(1), 2);
    let mut open = |worker, ms: u64| lease.open_call(fast(), TERMS, Wish::Borrow, worker, at(ms), at(ms + 1000));
    let offer = Offer { want: 12, end: 7, size: 5, carry: 3, debt: 0 };
    assert_eq!(open(1, 2), Some(offer));
    // Others wait for it until its own end, and are named when it is over.
    assert_eq!([open(2, 3), open(8, 4), open(2, 5), open(1, 1001)], [None; 4]);
    assert_eq!(lease.cancel_call(offer), 0b1011);
    assert_eq!((lease.waiting, lease.call_ends), (0, Ms(0)));
    // Tokens that have ended are not offered, though what they were counted with is.
    let offer = lease.open_call(fast(), TERMS, Wish::Borrow, 1, at(2996), at(3996)).expect("no call is out");
    assert_eq!((offer.end, offer.size, offer.carry), (7, 5, 0));
}

#[wasm_bindgen_test(unsupported = test)]
fn while_a_call_is_out_tokens_last_no_longer_than_the_lease_that_it_may_have_opened() {
    // Whatever the limit is: another tier with shorter lives may have opened the slot that the lease was put into.
    for limit in [fast(), limit(60, 60, 60), limit(1000, 1, 1), limit(10, 3600, 10), limit(3, 1, 10_001)] {
        let mut lease = Lease::default();
        lease.open_call(limit, TERMS, Wish::Borrow, 1, at(0), at(1000));
        lease.renew(&lent(7, 300_000, 0, 1, 0), at(0), at(0));
        assert_eq!(lease.expires, at(299_699));
        let offer = lease.open_call(limit, TERMS, Wish::Borrow, 1, at(100), at(1100)).expect("no call is out");
        assert_eq!(lease.expires, at(100 + 2_996), "{limit:?}");
        // The call came to nothing: the cut stays, and is not made longer by the next.
        lease.cancel_call(offer);
        let before = lease.expires;
        lease.open_call(limit, TERMS, Wish::Borrow, 1, at(200), at(1200));
        assert_eq!(lease.expires, before);
    }
    // A shorter life is no longer than that.
    let mut lease = of(5);
    lease.expires = at(100_000);
    lease.open_call(fast(), Terms { life: Ms(1000), ..TERMS }, Wish::Borrow, 1, at(0), at(1000));
    assert_eq!(lease.expires, at(998));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_that_is_lost_leaves_nothing() {
    let mut lease = of(5);
    lease.open_call(fast(), TERMS, Wish::Borrow, 1, at(1), at(1001));
    lease.open_call(fast(), TERMS, Wish::Borrow, 4, at(2), at(1002));
    assert_eq!(lease.lose_call(), 4);
    assert_eq!((lease.tokens, lease.size, lease.end, lease.expires, lease.call_ends), (0, 0, 0, Ms(0), Ms(0)));
    // The next reports none, so that nothing is taken off twice.
    let offer = open(&mut lease, fast(), 3);
    assert_eq!((offer.end, offer.size, offer.carry), (0, 0, 0));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_of_which_nobody_has_said_how_it_ended_is_lost_at_its_own_end() {
    let mut lease = of(5);
    lease.expires = at(100_000);
    let turn = lease.turn;
    assert!(lease.open_call(fast(), TERMS, Wish::Borrow, 1, at(1), at(1001)).is_some());
    let moment = lease.moment();
    // Whoever comes may still spend what is at hand ...
    assert!(lease.spend(at(1000), 1));
    assert_eq!(lease.open_call(fast(), TERMS, Wish::Borrow, 2, at(1000), at(2000)), None);
    // ... until somebody calls again.
    let offer = lease.open_call(fast(), TERMS, Wish::Borrow, 2, at(1001), at(2001)).expect("the call is over");
    assert_eq!((offer.end, offer.size, offer.carry), (0, 0, 0));
    assert_eq!((lease.at_hand(at(1001)), lease.turn), (0, turn.wrapping_add(1)));
    // Its answer would be for another turn.
    assert_ne!(lease.moment(), moment);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_call_that_was_not_executed_leaves_all_as_it_was() {
    let mut lease = of(5);
    lease.spend(at(0), 1);
    let offer = open(&mut lease, fast(), 1);
    lease.spend(at(2), 1);
    lease.cancel_call(offer);
    assert_eq!((lease.tokens, lease.size, lease.end, lease.at_hand(at(3))), (3, 5, 7, 3));
    let offer = open(&mut lease, fast(), 4);
    assert_eq!((offer.end, offer.size, offer.carry), (7, 5, 3));
    // What was spent without asking is still owed.
    lease.spent = 2;
    lease.cancel_call(Offer { debt: 9, ..offer });
    assert_eq!(lease.spent, 11);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_a_call_gives_back_is_not_spent_meanwhile() {
    // To give back wants nothing.
    let mut lease = of(5);
    let wanted = lease.wanted;
    let offer = lease.open_call(fast(), TERMS, Wish::GiveBack, 1, at(1), at(1001)).expect("no call is out");
    assert_eq!(offer, Offer { want: 0, end: 7, size: 5, carry: 5, debt: 0 });
    assert!(!lease.spend(at(2), 1));
    // It says nothing of what will be wanted.
    assert_eq!(lease.wanted, wanted);
    let mut answered = lease;
    answered.renew(&Lent::default(), at(1), at(3));
    assert_eq!((answered.at_hand(at(3)), answered.size), (0, 0));
    // It was not executed, so all of it is there again.
    lease.cancel_call(offer);
    assert_eq!((lease.at_hand(at(3)), lease.size, lease.end), (5, 5, 7));
    // To keep wants what there is, whatever the demand.
    let mut lease = of(5);
    let offer = lease.open_call(fast(), TERMS, Wish::Keep, 1, at(1), at(1001)).expect("no call is out");
    assert_eq!((offer.want, offer.carry, lease.at_hand(at(2)), lease.wanted), (5, 5, 5, wanted));
    // Of a lease that has become too large, what is still wanted can be spent.
    let mut lease = Lease { rate: 0, expires: at(300_000), ..of(100) };
    let offer = open(&mut lease, fast(), 200_000);
    assert_eq!((offer.want, offer.carry, lease.at_hand(at(200_000))), (3, 100, 3));
    assert!(lease.spend(at(200_001), 2));
    let mut answered = lease;
    answered.renew(&lent(8, 3000, 3, 0, 0), at(200_000), at(200_002));
    assert_eq!((answered.tokens, answered.size), (1, 3));
    lease.cancel_call(offer);
    assert_eq!(lease.tokens, 98);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_spent_goes_back_only_where_no_call_has_begun_or_ended_since() {
    let mut lease = of(5);
    lease.spend(at(1), 2);
    lease.put_back(lease.moment(), 2);
    assert_eq!((lease.tokens, lease.spent), (5, 0));
    lease.spend(at(1), 2);
    let moment = lease.moment();
    // The call that is out has reported it as spent.
    let offer = open(&mut lease, fast(), 2);
    lease.put_back(moment, 2);
    assert_eq!((lease.tokens, lease.spent), (3, 0));
    // What was spent since that call began is part of what it carries on.
    lease.spend(at(3), 1);
    let meanwhile = lease.moment();
    lease.put_back(meanwhile, 1);
    assert_eq!((lease.tokens, lease.spent), (3, 0));
    lease.spend(at(3), 1);
    // None of it comes back after that call, however it ended.
    for end in 0..3 {
        let mut after = lease;
        match end {
            0 => after.renew(&lent(8, 3000, 3, 1, 0), at(2), at(3)),
            1 => after.cancel_call(offer),
            _ => after.lose_call(),
        };
        let tokens = after.tokens;
        after.put_back(moment, 2);
        after.put_back(meanwhile, 1);
        assert_eq!(after.tokens, tokens, "end {end}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_was_spent_while_a_call_was_out_is_part_of_what_it_carries_on() {
    let table = [
        // Spent meanwhile, kept, extra, held; what is there then.
        (0, 5, 3, 0, 8),
        (2, 5, 3, 0, 6),
        (5, 5, 3, 0, 3),
        (0, 2, 0, 0, 2),
        (4, 2, 0, 0, 1),
        (2, 4, 0, 0, 3),
        (0, 0, 3, 0, 3),
        (0, 0, 0, 4, 4),
        (1, 5, 3, 2, 9),
    ];
    for (spent, kept, extra, held, wanted) in table {
        let mut lease = of(5);
        open(&mut lease, fast(), 1);
        assert!(lease.spend(at(2), spent));
        lease.renew(&lent(8, 3000, kept, extra, held), at(1), at(3));
        assert_eq!(lease.tokens, wanted, "{spent} {kept} {extra} {held}");
        assert_eq!((lease.size, lease.end, lease.call_ends), (kept + extra + held, 8, Ms(0)));
        assert!(lease.tokens <= lease.size);
    }
    // Tokens that have ended meanwhile are carried on by nobody.
    let mut lease = of(5);
    open(&mut lease, fast(), 2900);
    lease.renew(&lent(8, 3000, 5, 3, 0), at(2900), at(2996));
    assert_eq!((lease.tokens, lease.size), (3, 8));
    // An answer that lends nothing ends what was there.
    let mut lease = of(5);
    open(&mut lease, fast(), 1);
    lease.renew(&Lent::default(), at(1), at(2));
    assert_eq!((lease.at_hand(at(2)), lease.size, lease.end), (0, 0, 0));
}

/// A plan on shared data, and a bucket that is borrowed from.
fn lending(shared: &Shared) -> (Rc<Plan>, Ask) {
    let plan =
        Plan::new(1, policy_of(r#"[{"constant": "all"}]"#, r#""1000/s""#, "", ""), Rc::new(shared.clone()), (1, 2));
    (Rc::new(plan), Ask { mode: Mode::Lease(TERMS), ..ask_of("k", fast(), 1) })
}

fn lease_of(shared: &Shared) -> Lease {
    let table = Table::open(shared, "weir.rl.0.65536", 65_536, (1, 2)).expect("shared data");
    table.read(shared, bucket_at("main", &table, "per-key", "t.k", fast())).expect("an entry").lease
}

#[wasm_bindgen_test(unsupported = test)]
fn an_answer_for_another_turn_changes_nothing() {
    let shared = Shared::default();
    let (plan, ask) = lending(&shared);
    let opened = |ms: u64| -> Lending {
        match plan.open_call(&ask, Wish::Borrow, 1, at(ms), Ms(1000)) {
            Election::Won(_, lending) => lending,
            other => panic!("{other:?}"),
        }
    };
    let acquired = |end, extra| Acquired {
        level: 500_000,
        lent: lent(end, 3000, 0, extra, 0),
        granted: vec![],
        window_left: Ms(0),
    };
    let said = |acquired| Said { acquired, granted: 0, denied: None, sent: at(0) };
    let close = |call, end, ms| plan.close_call(&ask, call, end, at(ms), 0);
    let first = opened(0);
    let answer = acquired(7, 3);
    close(first, LendingEnd::Answered(said(&answer)), 1);
    let held = lease_of(&shared);
    assert_eq!((held.tokens, held.size, held.end), (3, 3, 7));
    // Doubled, in each way that a call can end.
    let other = acquired(8, 2);
    let ends = [LendingEnd::Answered(said(&other)), LendingEnd::Unknown, LendingEnd::NotExecuted(Offer::default())];
    for end in ends {
        assert_eq!(close(first, end, 2), Closed::default());
        assert_eq!(lease_of(&shared), held);
    }
    // Late: another call is out by now.
    let second = opened(3);
    let out = lease_of(&shared);
    for end in ends {
        assert_eq!(close(first, end, 4), Closed::default());
        assert_eq!(lease_of(&shared), out);
    }
    // The call that is out is lost when the third is made, and its answer says nothing any more.
    let third = opened(1003);
    let out = lease_of(&shared);
    assert_eq!((out.tokens, out.size, out.end), (0, 0, 0));
    for end in ends {
        assert_eq!(close(second, end, 1004), Closed::default());
        assert_eq!(lease_of(&shared), out);
    }
    close(third, LendingEnd::Answered(said(&other)), 1005);
    assert_eq!((lease_of(&shared).tokens, lease_of(&shared).end), (2, 8));
}

#[wasm_bindgen_test(unsupported = test)]
fn workers_that_wait_are_told_of_by_the_one_that_calls() {
    let shared = Shared::default();
    let (plan, ask) = lending(&shared);
    let open = |worker, ms: u64| plan.open_call(&ask, Wish::Borrow, worker, at(ms), Ms(1000));
    let Election::Won(offer, lending) = open(1, 0) else { panic!("no call is out") };
    assert_eq!(offer, Offer { want: 3, ..Offer::default() });
    assert_eq!([open(2, 1), open(1 << 31, 2), open(2, 3)], [Election::Lost; 3]);
    let closed = plan.close_call(&ask, lending, LendingEnd::Unknown, at(4), 0);
    assert_eq!(closed, Closed { waiting: 1 << 31 | 2, due: None, quiet: Ms(0) });
    // To give back wants nothing, and neither does a bucket that is not borrowed from.
    let Election::Won(offer, lending) = plan.open_call(&ask, Wish::GiveBack, 1, at(5), Ms(1000)) else {
        panic!("no call is out")
    };
    assert_eq!(offer, Offer::default());
    plan.close_call(&ask, lending, LendingEnd::Unknown, at(6), 0);
    let exact = Ask { mode: Mode::Exact, ..ask.clone() };
    let Election::Won(offer, _) = plan.open_call(&exact, Wish::Borrow, 1, at(7), Ms(1000)) else {
        panic!("no call is out")
    };
    assert_eq!(offer, Offer::default());
    // Where nothing can be written, nobody is elected.
    shared.lose(8);
    assert_eq!(open(1, 5000), Election::Void);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_that_denies_is_left_alone_at_a_pace() {
    let slow = limit(60, 60, 60);
    let table = [
        // Limit, retry after, what comes of it at first, and if it had denied before.
        (fast(), 1, 250, 500),
        (fast(), 250, 250, 500),
        (fast(), 251, 251, 500),
        (fast(), 700, 700, 700),
        (slow, 1, 1000, 1000),
        (slow, 4_999, 4_999, 4_999),
        // Another proxy may give back what it does not need: it is asked after five seconds at most.
        (slow, 30_000, 5_000, 5_000),
        (limit(1000, 1, 1), 1, 10, 20),
        (limit(1000, 1, 2000), 1, 500, 1000),
        (limit(1000, 1, 2400), 1, 600, 1000),
    ];
    for (limit, retry_after, first, again) in table {
        let mut lease = Lease::default();
        lease.was_denied(limit, 2, Ms(retry_after), at(0), 0);
        assert_eq!((lease.quiet_until, lease.quiet_cost), (at(first), 2), "{limit:?} {retry_after}");
        // Until then, for such a cost or a higher one.
        assert_eq!(lease.quiet_for(at(0), 2), Some(Ms(first)));
        assert_eq!(lease.quiet_for(at(first - 1), 100), Some(Ms(1)));
        assert_eq!([lease.quiet_for(at(first), 2), lease.quiet_for(at(0), 1)], [None; 2]);
        lease.was_denied(limit, 3, Ms(retry_after), at(first), 0);
        assert_eq!((lease.quiet_until, lease.quiet_cost), (at(first + again), 3), "{limit:?} {retry_after}");
        // Who got something starts anew.
        lease.was_granted(1);
        lease.was_denied(limit, 2, Ms(retry_after), at(0), 0);
        assert_eq!(lease.quiet_until, at(first));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_scarce_bucket_that_has_little_is_not_asked_for_more_for_a_while() {
    let limited = |limit: Limit, units: i64| {
        let mut lease = Lease::default();
        let used = limit.burst() * limit.period().0;
        lease.was_limited(limit, Used { units: used.saturating_add_signed(-units), at: at(0) }, at(0), 0);
        assert!(lease.quiet_cost == u64::from(lease.quiet_until > Ms(0)) && !lease.denied);
        lease.quiet_until - at(0)
    };
    // Little is less than comes back in one pace: 250 tokens. It is left alone until it has them.
    let told = [249_000, 200_000, 0, -1_000, -i64::MAX, 250_000, i64::MAX].map(|units| limited(fast(), units));
    assert_eq!(told, [10, 50, 250, 250, 250, 0, 0].map(Ms));
    // A small one is asked each time.
    assert_eq!([limited(limit(64, 1, 64), 0), limited(limit(63, 1, 63), 0)], [Ms(250), Ms(0)]);
}

#[wasm_bindgen_test(unsupported = test)]
fn proxies_do_not_come_back_together() {
    let quiet = |retry_after, random| {
        let mut lease = Lease::default();
        lease.was_denied(fast(), 1, Ms(retry_after), at(0), random);
        lease.quiet_until - at(0)
    };
    // Up to a half longer, and a second at most; both ends are reached.
    for (wait, most) in [(250, 375), (251, 376), (1000, 1500), (2000, 3000), (2001, 3001), (5000, 6000)] {
        assert_eq!(
            [quiet(wait, 0), quiet(wait, most - wait), quiet(wait, most - wait + 1)],
            [wait, most, wait].map(Ms)
        );
        let mut random = Random::seeded(16);
        for _ in 0..rounds(2_000) {
            let quiet = quiet(wait, random.draw());
            assert!(Ms(wait) <= quiet && quiet <= Ms(most), "{wait} {quiet:?}");
        }
    }
    assert_eq!([quiet(5001, 0), quiet(u64::MAX, 0), quiet(u64::MAX, 1000)], [5000, 5000, 6000].map(Ms));
}

#[wasm_bindgen_test(unsupported = test)]
fn tokens_run_out_when_they_last_for_less_than_20_ms() {
    let with = |tokens, spent, ms| {
        let mut lease = Lease { spent, since: at(0), ..of(tokens) };
        lease.rate = 0;
        lease.runs_out(at(ms))
    };
    // A hundred in a second are two in 20 ms; fifty are one; less than that is nothing.
    assert_eq!([with(0, 100, 1000), with(1, 100, 1000), with(2, 100, 1000)], [true, true, false]);
    assert_eq!([with(0, 50, 1000), with(1, 50, 1000), with(0, 49, 1000)], [true, false, false]);
    assert_eq!([with(0, 0, 1000), with(0, 50, 1001)], [false, false]);
    // What was measured before counts where it is more.
    let lease = |rate| Lease { rate, since: at(0), ..of(1) };
    assert_eq!([lease(100_000).runs_out(at(1000)), lease(99_999).runs_out(at(1000))], [true, false]);
    // Tokens that have ended are none.
    assert!(Lease { rate: 50_000, ..lease(0) }.runs_out(at(2996)));
    assert!(!Lease { rate: 50_000, ..lease(0) }.runs_out(at(2995)));
    // Not while a call is out, and not while the limiter is left alone.
    let busy = Lease { call_ends: at(1001), ..lease(100_000) };
    assert_eq!([busy.runs_out(at(1000)), busy.runs_out(at(1001))], [false, true]);
    let quiet = Lease { quiet_until: at(1001), quiet_cost: 500, ..lease(100_000) };
    assert_eq!([quiet.runs_out(at(1000)), quiet.runs_out(at(1001))], [false, true]);
}

/// What is wanted by calls that come each so many milliseconds and find so many tokens spent.
fn wants(limit: Limit, terms: Terms, calls: &[(u64, u64)]) -> Vec<u64> {
    let mut lease = Lease::default();
    let mut ms = 0;
    let calls = calls.iter().map(|(after, spent)| {
        ms += after;
        lease.spent = *spent;
        let offer = lease.open_call(limit, terms, Wish::Borrow, 1, at(ms), at(ms + 1)).expect("no call is out");
        lease.cancel_call(offer);
        offer.want
    });
    calls.collect()
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_wanted_follows_demand() {
    // It starts with a 256th of the burst, between one and four.
    let first = |burst| wants(limit(1000, 1, burst), TERMS, &[(1, 0)])[0];
    let starts = [1, 511, 512, 1023, 1024, 1280, 100_000].map(first);
    assert_eq!(starts, [1, 1, 2, 3, 4, 4, 4]);
    // Whatever was spent before the first call.
    assert_eq!(wants(fast(), TERMS, &[(1, 1_000_000)]), [3]);
    // Ten a second, then a hundred: at most four times the last, and in the end what is spent in ten seconds. What is
    // measured is averaged with what was measured before.
    let hundred = (1000, 100);
    let grown = wants(fast(), TERMS, &[(1, 0), hundred, hundred, hundred, hundred, hundred, hundred]);
    assert_eq!(grown, [3, 12, 48, 192, 768, 968, 984]);
    // Demand that has gone falls by half each time, rests at what a small lease holds, and then falls to the least.
    let calls = [&[(1, 0)][..], &[hundred; 5], &[(1000, 0); 14]].concat();
    let fallen = [484, 242, 121, 60, 30, 15, 15, 15, 15, 15, 14, 6, 3, 3];
    assert_eq!(wants(fast(), TERMS, &calls)[6..], fallen);
    // However great it is, four times the last is the most.
    let crowd = (1, 1 << 40);
    assert_eq!(wants(fast(), TERMS, &[(1, 0), crowd, crowd, crowd]), [3, 12, 48, 192]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_tenant_that_comes_seldom_wants_a_small_lease() {
    // One in ten seconds: thirty in the life of a lease, of which a small one holds fifteen.
    let seldom = (10_000, 1);
    assert_eq!(wants(fast(), TERMS, &[(1, 0), seldom, seldom, seldom]), [3, 12, 15, 15]);
    // In the life of a shorter one it is less.
    let short = Terms { life: Ms(60_000), ..TERMS };
    assert_eq!(wants(fast(), short, &[(1, 0), seldom, seldom, seldom, seldom]), [3, 3, 4, 5, 5]);
    // One in an hour is not worth more than the least.
    let never = (3_600_000, 1);
    assert_eq!(wants(fast(), TERMS, &[(1, 0), never, never]), [3, 3, 3]);
}

#[wasm_bindgen_test(unsupported = test)]
fn an_idle_lease_goes_back_unless_it_is_small() {
    let table = [
        // Limit, size; after how long where the bucket has little, and where it has much.
        (fast(), 16, Some(250), Some(5000)),
        (fast(), 15, Some(250), None),
        (limit(60, 60, 60), 4, Some(1000), Some(5000)),
        (limit(60, 60, 60), 3, Some(1000), None),
        (limit(1000, 1, 4), 4, Some(10), Some(5000)),
        (limit(1000, 1, 100_000), 65, Some(1000), Some(5000)),
        (limit(1000, 1, 100_000), 64, Some(1000), None),
    ];
    for (limit, size, low, high) in table {
        let lease = Lease { size, ..Lease::default() };
        let after = [true, false].map(|low| lease.goes_back_after(limit, Terms::default(), low));
        assert_eq!(after, [low.map(Ms), high.map(Ms)], "{limit:?} {size}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn no_numbers_overflow() {
    let mut random = Random::seeded(17);
    let largest = Limit::new((1 << 53) - 1, Ms(1000), (1 << 53) / 1000).expect("a limit");
    let slowest = Limit::new(1, Ms(31 * 86_400_000), 1).expect("a limit");
    for _ in 0..rounds(20_000) {
        let any = |random: &mut Random| random.pick(&[0, 1, 2, 3000, 1 << 48, u64::MAX - 1, u64::MAX]);
        let mut lease = Lease {
            tokens: any(&mut random),
            size: any(&mut random),
            end: any(&mut random),
            expires: Ms(any(&mut random)),
            call_ends: Ms(any(&mut random)),
            turn: random.pick(&[0, u32::MAX]),
            waiting: 0,
            spent: any(&mut random),
            since: Ms(any(&mut random)),
            rate: any(&mut random),
            wanted: any(&mut random),
            quiet_until: Ms(any(&mut random)),
            quiet_cost: any(&mut random),
            denied: random.one_in(2),
        };
        let limit = random.pick(&[fast(), largest, slowest]);
        let terms = Terms { life: Ms(any(&mut random)), lend: random.pick(&[0, 500, u16::MAX]) };
        let (now, cost) = (Ms(any(&mut random)), any(&mut random));
        let lent = Lent {
            end: any(&mut random),
            valid: Ms(any(&mut random)),
            kept: any(&mut random),
            extra: any(&mut random),
            held: any(&mut random),
            limited: random.one_in(2),
        };
        match random.below(7) {
            0 => _ = lease.spend(now, cost),
            1 => lease.put_back(lease.moment(), cost),
            2 => {
                _ = lease.open_call(
                    limit,
                    terms,
                    random.pick(&[Wish::Borrow, Wish::Keep, Wish::GiveBack]),
                    1,
                    now,
                    Ms(any(&mut random)),
                )
            }
            3 => _ = lease.renew(&lent, now, Ms(any(&mut random))),
            4 => lease.was_denied(limit, cost, Ms(any(&mut random)), now, random.draw()),
            5 => {
                lease.was_limited(limit, Used { units: random.draw() >> random.below(64), at: now }, now, random.draw())
            }
            _ => lease.was_granted(cost),
        }
        let _ = (
            lease.runs_out(now),
            lease.quiet_for(now, cost),
            lease.goes_back_after(limit, Terms::default(), false),
            lent.size(),
        );
    }
}
