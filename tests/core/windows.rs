//! The fixed window: its numbers, the proxy's own step, what a reply says of it, and what clients are told.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquired, FIXED_WINDOW, Impossible, Lent, Offer, Run, Share, Standing, Terms, Used};
use weir::clock::Ms;
use weir::engine::plan::{Closed, Due, Election, LendingEnd, Plan, Said, Taken};
use weir::local::lease::Wish;
use weir::policy::{AlgorithmName, Limit, Mode, NoLimit};
use weir::response::{Answer, Outcome, answer};
use weir::rules::Ask;

use crate::made::{Random, Shared, ask_of, limit, only_for, policy_of, rounds};

const KEY: &str = r#"[{"constant": "all"}]"#;

fn window(requests: u64, seconds: u64) -> Limit {
    Limit::fixed_window(requests, Ms(seconds * 1000), false).expect("a limit")
}

fn used(units: u64, ends: u64) -> Used {
    Used { units, at: Ms(ends) }
}

fn granted(remaining: u64, reset: u64) -> Share {
    Share::Granted(Standing { remaining, reset: Ms(reset) })
}

fn refused(remaining: u64, reset: u64, retry_after: u64) -> Share {
    Share::Refused { standing: Standing { remaining, reset: Ms(reset) }, retry_after: Ms(retry_after) }
}

#[wasm_bindgen_test(unsupported = test)]
fn numbers_of_a_window_are_those_of_a_bucket_without_a_burst() {
    let hour = window(100, 3600);
    assert_eq!((hour.requests(), hour.period(), hour.burst()), (100, Ms(3_600_000), 100));
    assert_eq!((hour.algorithm(), hour.script().format), (AlgorithmName::FixedWindow, "w1"));
    let no = |requests, period| Limit::fixed_window(requests, Ms(period), true).expect_err("no limit");
    assert_eq!(no(0, 1000), NoLimit::Zero);
    assert_eq!([no(1, 0), no(1, 999), no(1, 1500), no(1, 2_678_401_000)], [NoLimit::Period; 4]);
    assert_eq!(no(9_007_199_254_741, 1000), NoLimit::TooLarge);
    assert!(Limit::fixed_window(9_007_199_254_740, Ms(1000), false).is_ok());
    // Small leases, the least, and the pace, as those of a bucket.
    assert_eq!([window(10, 60), window(1000, 60), window(100_000, 60)].map(Limit::small_lease), [3, 15, 64]);
    assert_eq!([window(10, 60), window(512, 60), window(100_000, 60)].map(Limit::least_lease), [1, 2, 4]);
    assert_eq!([window(10, 1), window(10, 2), window(10, 60)].map(Limit::pace), [Ms(250), Ms(500), Ms(1000)]);
    // A small lease goes back after its life: what is left of it would be lost for the rest of the window.
    assert_eq!((hour.small_lease_stays(Ms(7)), limit(100, 3600, 100).small_lease_stays(Ms(7))), (Some(Ms(7)), None));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_share_is_rounded_down_and_what_has_to_be_more_is_for_longer_windows() {
    let of = |limit: Limit, proxies, cost| {
        let share = limit.share(proxies, cost);
        (share.requests(), share.period().0 / 1000)
    };
    assert_eq!(of(window(100, 60), 10, 1), (10, 60));
    assert_eq!(of(window(109, 60), 10, 1), (10, 60));
    // One for each of ten is twice what five allow.
    assert_eq!(of(window(5, 60), 10, 1), (1, 120));
    assert_eq!(of(window(100, 60), 10, 25), (25, 180));
    assert_eq!(of(window(1, 60), u64::MAX, u64::MAX).0, u64::MAX);
}

#[wasm_bindgen_test(unsupported = test)]
fn windows_of_a_key_begin_at_an_offset_of_its_own_where_they_are_spread() {
    let spread = |seconds: u64| Limit::fixed_window(5, Ms(seconds * 1000), true).expect("a limit");
    assert_eq!(window(5, 60).window_offset("rl:{user.a}:r:default:60000:w1"), Some(Ms(0)));
    assert_eq!(limit(5, 60, 5).window_offset("rl:{user.a}:r:default:60000:t3"), None);
    let offset = |user: u64| {
        let key = format!("rl:{{user.{user}}}:r:default:60000:w1");
        spread(60).window_offset(&key).expect("it has windows").0
    };
    // The same in every proxy and every version: pinned.
    assert_eq!([offset(1), offset(2), offset(3)], PINNED);
    let mut tenths = [0; 10];
    (0..1000).for_each(|user| tenths[(offset(user) / 6000) as usize] += 1);
    assert!(tenths.iter().all(|tenth| (70..=130).contains(tenth)), "{tenths:?}");
    let asked = only_for(spread(60), &[]);
    let key = "rl:{user.1}:r:default:60000:w1";
    assert_eq!(asked.arguments(key).take(4).collect::<Vec<_>>(), [5, 60_000, PINNED[0], 300_000]);
    assert_eq!(only_for(window(5, 60), &[]).arguments(key).nth(2), Some(0));
}

const PINNED: [u64; 3] = [31_040, 25_403, 4_875];

#[wasm_bindgen_test(unsupported = test)]
fn a_proxys_own_windows_follow_each_other_and_each_holds_all() {
    let minute = window(3, 60);
    let mut own = Used::nothing(Ms(1_000));
    let mut take = |now, cost| own.take(minute, Ms(now), cost);
    assert_eq!(take(1_000, 1), granted(2, 60_000));
    assert_eq!(take(31_000, 3), refused(2, 30_000, 30_000));
    assert_eq!(take(60_999, 2), granted(0, 1));
    assert_eq!(take(60_999, 1), refused(0, 1, 1));
    // At its end there is all of the next one at once, and nothing of the last one is carried on.
    assert_eq!(take(61_000, 3), granted(0, 60_000));
    // Nobody came in four windows; borders stay where they were.
    assert_eq!(take(301_001, 1), granted(2, 59_999));
    assert_eq!(own, used(1, 361_000));
    // A clock that goes back by less than a window and what clocks of workers differ by brings nothing.
    assert_eq!(own.take(minute, Ms(300_500), 3), refused(2, 60_500, 60_500));
    // One that was set locks nobody out for longer than a window.
    assert_eq!(own.take(minute, Ms(5_000), 3), refused(2, 60_000, 60_000));
    assert_eq!(own, used(1, 65_000));
}

#[wasm_bindgen_test(unsupported = test)]
fn nothing_of_a_window_overflows_or_panics() {
    let mut random = Random::seeded(41);
    let numbers = [0, 1, 2, 999, 1000, 60_000, 1 << 43, 1 << 53, u64::MAX - 1, u64::MAX];
    for _ in 0..rounds(20_000) {
        let limit = window(1 + random.below(100), 1 + random.below(100))
            .share(1 + random.below(1 << 40), random.pick(&numbers));
        let mut any = || Ms(random.pick(&numbers));
        let (mut one, now, then) = (Used { units: any().0, at: any() }, any(), any());
        let cost = any().0;
        let _ = (one.take(limit, now, cost), one.refuse(limit, cost, then, now), one.standing(limit, now));
        let later = one.with_lent(limit, cost, then).refilled_down_to(limit, now, cost);
        let _ = (later.full_at(limit), later.is_low(limit), later.is_over(limit, now), later.is_told_by(limit, then));
        let _ = (limit.scarce_for(later), limit.pace(), limit.next_token(later.standing(limit, now)));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_reply_that_cannot_be_true_is_refused() {
    let minute = window(60, 60);
    let asked = only_for(minute, &[Run { cost: 1, count: 2 }, Run { cost: 3, count: 1 }]);
    let reads = |level: i64, reset: i64, granted: [i64; 2]| {
        Acquired::from_reply(&[level, reset, 0, 0, 0, 0, 0, granted[0], granted[1]], &asked)
    };
    let says = |level, granted: [u64; 2], left| {
        Ok(Acquired { level, lent: Lent::default(), granted: granted.to_vec(), window_left: Ms(left) })
    };
    assert_eq!(reads(55, 60_000, [2, 1]), says(55, [2, 1], 60_000));
    assert_eq!(reads(55, 1, [2, 1]), says(55, [2, 1], 1));
    assert_eq!(reads(2, 500, [2, 0]), says(2, [2, 0], 500));
    assert_eq!(reads(-7, 500, [0, 0]), says(-7, [0, 0], 500));
    // More than a window, or a window that is over.
    assert_eq!(
        [reads(55, 60_001, [2, 1]), reads(55, 0, [2, 1]), reads(55, -1, [2, 1])],
        [Err(Impossible), Err(Impossible), Err(Impossible)]
    );
    // Whoever fits is granted; nobody is of nothing; a window has no more than it has.
    assert_eq!(
        [reads(3, 500, [2, 0]), reads(-1, 500, [1, 0]), reads(56, 500, [2, 1])],
        [Err(Impossible), Err(Impossible), Err(Impossible)]
    );
    // No lease outlives its window.
    let offer = Offer { want: 5, ..Offer::default() };
    let lends = |valid: i64| {
        let asked = weir::algorithm::Acquire { offer, ..only_for(minute, &[]) };
        Acquired::from_reply(&[50, 500, 1_700_000_000_500, valid, 0, 5, 0], &asked).map(|acquired| acquired.lent.valid)
    };
    assert_eq!([lends(500), lends(501)], [Ok(Ms(500)), Err(Impossible)]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_group_is_told_the_end_of_the_window() {
    let minute = window(5, 60);
    let runs = [Run { cost: 2, count: 2 }, Run { cost: 4, count: 1 }, Run { cost: 1, count: 2 }];
    let lent = Lent { end: 9, valid: Ms(100), kept: 1, ..Lent::default() };
    let acquired = Acquired { level: 0, lent, granted: vec![1, 0, 1], window_left: Ms(7_001) };
    let wanted = [
        granted(2, 7_001),
        refused(0, 7_001, 7_001),
        refused(0, 7_001, 7_001),
        granted(1, 7_001),
        refused(0, 7_001, 7_001),
    ];
    assert_eq!(acquired.shares(minute, &runs), wanted);
    // What is known of it ends no earlier than it does: a reply takes time.
    assert_eq!(acquired.used(minute, Ms(1_000), Ms(1_040)), used(5, 8_041));
    // Of a bucket the moment of the question counts.
    let bucket = limit(5, 1, 5);
    assert_eq!(acquired.used(bucket, Ms(1_000), Ms(1_040)), used(5_000, 1_000));
}

#[wasm_bindgen_test(unsupported = test)]
fn clients_are_told_the_end_of_the_window_and_no_burst() {
    let policy = policy_of(
        KEY,
        r#""60/m""#,
        "",
        r#", "response": {"headers": ["x-ratelimit", "ratelimit"], "retry_after_jitter": 0}"#,
    );
    let minute = window(60, 60);
    let told = |share| match answer(&policy, &Outcome::Decided { rule: 0, limit: minute, share }, Ms(5_000), 0) {
        Answer::Pass(headers) => headers,
        Answer::Refuse(refusal) => refusal.headers,
    };
    let texts = |headers: Vec<(&'static str, String)>| -> Vec<String> {
        headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
    };
    assert_eq!(
        texts(told(granted(41, 12_300))),
        [
            "x-ratelimit-limit: 60",
            "x-ratelimit-remaining: 41",
            "x-ratelimit-reset: 18",
            "ratelimit-policy: \"per-key\";q=60;w=60",
            "ratelimit: \"per-key\";r=41;t=13",
        ]
    );
    assert_eq!(texts(told(granted(60, 12_300)))[4], "ratelimit: \"per-key\";r=60");
    assert_eq!(texts(told(refused(0, 12_300, 12_300)))[1], "retry-after: 13");
}

/// A proxy, and what it asks in a mode.
fn proxy(limit: Limit, mode: Mode) -> (Plan, Ask) {
    let policy = policy_of(KEY, r#""60/m""#, "", "");
    let plan = Plan::new(1, policy, std::rc::Rc::new(Shared::default()), (1, 2));
    (plan, Ask { mode, ..ask_of("a", limit, 1) })
}

/// What the limiter has answered, `window_left` before the end of its window.
fn says(plan: &Plan, ask: &Ask, wish: Wish, sent: u64, heard: u64, acquired: &Acquired) -> (Offer, Closed) {
    let Election::Won(offer, lending) = plan.open_call(ask, wish, 1, Ms(sent), Ms(1000)) else { panic!("no call") };
    let said = Said { acquired, granted: 0, denied: None, sent: Ms(sent) };
    (offer, plan.close_call(ask, lending, LendingEnd::Answered(said), Ms(heard), 0))
}

fn takes(plan: &Plan, ask: &Ask, now: u64) -> Option<(u64, u64)> {
    match plan.take(ask, Ms(now)) {
        Taken::Granted { standing, .. } => Some((standing.remaining, standing.reset.0)),
        _ => None,
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_lease_is_spent_until_its_window_ends_and_not_later() {
    let (plan, ask) = proxy(window(100, 10), Mode::Lease(Terms::default()));
    let lent = Lent { end: 77, valid: Ms(2_000), extra: 3, ..Lent::default() };
    let acquired = Acquired { level: 40, lent, granted: vec![], window_left: Ms(2_000) };
    says(&plan, &ask, Wish::Borrow, 100_000, 100_010, &acquired);
    assert_eq!(takes(&plan, &ask, 100_020), Some((42, 1_990)));
    // A thousandth and a millisecond before 2 s after the question.
    assert_eq!(takes(&plan, &ask, 101_996), Some((41, 14)));
    assert_eq!(takes(&plan, &ask, 101_997), None);
    // In the next window nothing is denied by what was said of the last one, and nothing of its lease is offered.
    assert_eq!(plan.take(&ask, Ms(102_010)), Taken::Missing { is_new: false });
    let Election::Won(offer, _) = plan.open_call(&ask, Wish::Borrow, 1, Ms(102_010), Ms(1000)) else {
        panic!("no call")
    };
    assert_eq!((offer.end, offer.size, offer.carry), (77, 3, 0));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_small_lease_goes_back_after_its_life_and_a_dry_window_is_refused_until_its_end() {
    let terms = Terms { life: Ms(30_000), lend: 500 };
    let (plan, ask) = proxy(window(1000, 3600), Mode::Lease(terms));
    let lent = Lent { end: 77, valid: Ms(1_000_000), extra: 3, ..Lent::default() };
    let rich = Acquired { level: 900, lent, granted: vec![], window_left: Ms(1_000_000) };
    let (_, closed) = says(&plan, &ask, Wish::Borrow, 100_000, 100_000, &rich);
    assert_eq!(closed.due, Some(Due::LookIn(Ms(30_000))));
    let (plan, ask) = proxy(window(5, 60), Mode::Exact);
    let dry = Acquired { level: 0, lent: Lent::default(), granted: vec![], window_left: Ms(20_000) };
    let said = |at| Said { acquired: &dry, granted: 0, denied: None, sent: Ms(at) };
    // It is noted where something was denied.
    let denied = weir::engine::plan::Denied { cost: 1, retry_after: Ms(20_000) };
    plan.note(&ask, Said { denied: Some(denied), ..said(100_000) }, Ms(100_030), 0);
    let refusal = |now| match plan.take(&ask, Ms(now)) {
        Taken::Refused { share, .. } => Some(share),
        _ => None,
    };
    assert_eq!(refusal(100_030), Some(refused(0, 20_000, 20_000)));
    assert_eq!(refusal(120_029), Some(refused(0, 1, 1)));
    assert_eq!(refusal(120_030), None);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_spent_first_is_owed_in_its_window_alone() {
    let (plan, ask) = proxy(window(10, 60), Mode::Async { sync_interval: Ms(1000) });
    let left =
        |level, window_left| Acquired { level, lent: Lent::default(), granted: vec![], window_left: Ms(window_left) };
    says(&plan, &ask, Wish::Borrow, 100_000, 100_000, &left(4, 5_000));
    assert_eq!(takes(&plan, &ask, 100_100), Some((3, 4_900)));
    assert_eq!(takes(&plan, &ask, 100_200), Some((2, 4_800)));
    // Two are owed, and told.
    let (offer, _) = says(&plan, &ask, Wish::GiveBack, 101_100, 101_100, &left(1, 3_900));
    assert_eq!(offer, Offer { debt: 2, ..Offer::default() });
    assert_eq!(takes(&plan, &ask, 101_200), Some((0, 3_800)));
    assert_eq!(takes(&plan, &ask, 101_200), None);
    // The window is over before the third is told: in the next one it is no debt.
    assert_eq!(takes(&plan, &ask, 105_000), Some((9, 60_000)));
    let (offer, _) = says(&plan, &ask, Wish::GiveBack, 106_100, 106_100, &left(9, 58_900));
    assert_eq!(offer, Offer { debt: 1, ..Offer::default() });
}

#[wasm_bindgen_test(unsupported = test)]
fn the_script_is_the_prelude_and_its_own() {
    assert!(FIXED_WINDOW.text().starts_with("-- The prelude of every script"));
    assert!(FIXED_WINDOW.text().contains("-- The fixed window: behind the prelude"));
}
