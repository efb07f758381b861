//! The simulator itself: it repeats, it finds nothing wrong, and it would notice.

use weir_sim::check::{Holding, Limit, Promise};
use weir_sim::clock::{START, WrongClock};
use weir_sim::explore::{self, Watch, explore};
use weir_sim::scenario::Scenario;
use weir_sim::shrink::run;

const LIMIT: Limit = Limit { requests: 2, period_ms: 1000, burst: 3 };

#[test]
fn five_hundred_seeds_break_nothing() {
    for seed in 0..500 {
        let outcomes = run(&Scenario::short(seed), false);
        assert_eq!(outcomes.violation, None, "SEED={seed}");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..20 {
        let (first, second) = (run(&Scenario::short(seed), true), run(&Scenario::short(seed), true));
        assert_eq!((&first.tally, &first.log), (&second.tally, &second.log), "SEED={seed}");
    }
}

#[test]
fn small_cases_break_nothing_to_a_depth_of_four_choices() {
    for mut case in explore::cases() {
        case.depth = 4;
        let explored = explore(&case, &Watch::new(None));
        assert_eq!((explored.depth, explored.violation), (4, None), "{}", case.name);
    }
}

#[test]
fn the_promise_covers_every_interval() {
    let mut promise = Promise::new(LIMIT, 0);
    assert_eq!(promise.admit(3, 0), Ok(()));
    // 999 of the 1000 units of a token have come back after 499.5 ms; 499 ms bring 998.
    assert_eq!(promise.clone().admit(1, 499), Err(2));
    assert_eq!(promise.admit(1, 500), Ok(()));
    // What came before an idle time counts no longer; a full bucket is all that it brings.
    assert_eq!(promise.clone().admit(3, 10_000), Ok(()));
    assert_eq!(promise.admit(4, 10_000), Err(1000));
}

#[test]
fn slack_is_used_once() {
    let mut promise = Promise::new(LIMIT, 0);
    promise.forgive(2000);
    assert_eq!(promise.admit(4, 0), Ok(()));
    assert_eq!(promise.admit(1, 0), Ok(()));
    assert_eq!(promise.admit(1, 0), Err(1000));
}

#[test]
fn a_proxy_holds_what_replies_gave_it_and_no_more() {
    let mut holding = Holding::default();
    assert_eq!(holding.spend(1, 0), Err(1));
    holding.replace(0, 0, 900, 0, 5);
    assert_eq!(holding.spend(2, 899), Ok(()));
    assert_eq!(holding.unspent(899), 3);
    // Three were reported, one was spent while the call was out, two new ones came.
    assert_eq!(holding.spend(1, 899), Ok(()));
    holding.replace(900, 3, 950, 3, 2);
    assert_eq!((holding.unspent(899), holding.unspent(950)), (4, 0));
    assert_eq!(holding.spend(4, 950), Err(4));
}

#[test]
fn a_wrong_clock_drifts_and_jumps() {
    let mut clock = WrongClock::new(7, 1000);
    assert_eq!(clock.ms(0), START + 7);
    assert_eq!(clock.ms(1_000_000), START + 1008);
    clock.set(1_000_000, -500);
    assert_eq!(clock.ms(1_000_000), START + 508);
    clock.drift(1_000_000, 0);
    assert_eq!(clock.ms(2_000_000), START + 1508);
}
