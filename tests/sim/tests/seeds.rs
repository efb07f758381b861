//! The simulator itself: it repeats, it finds nothing wrong, and it would notice. What runs for minutes is `ignore`d here,
//! and run by `make test-sim`, a part of `make test`.

use weir_sim::check::{Holding, Limit, Promise};
use weir_sim::clock::{START, WrongClock};
use weir_sim::explore::{self, Watch, explore};
use weir_sim::model;
use weir_sim::scenario::{Mode, Scenario};
use weir_sim::shrink::run;

const LIMIT: Limit = Limit { requests: 2, period_ms: 1000, burst: 3 };

/// Runs seeds, and names the first that breaks something. To see it cut down: `make sim SEED=...`.
fn run_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcomes = run(&Scenario::short(seed), false);
        assert_eq!(outcomes.violation, None, "SEED={seed}");
    }
}

#[test]
fn five_hundred_seeds_break_nothing() {
    run_seeds(0..500);
}

#[test]
#[ignore = "takes a minute: make test-sim"]
fn many_seeds_break_nothing() {
    run_seeds(500..30_000);
}

#[test]
fn scenarios_are_of_all_kinds() {
    let scenarios: Vec<Scenario> = (0..500).map(Scenario::short).collect();
    let count = |of: fn(&Scenario) -> bool| scenarios.iter().filter(|scenario| of(scenario)).count();
    let has = |scenario: &Scenario, of: fn(&Mode) -> bool| scenario.modes.iter().any(of);
    let kinds = [
        count(|scenario| scenario.modes == [Mode::Exact]),
        count(|scenario| matches!(scenario.modes[..], [Mode::Lease { .. }])),
        count(|scenario| matches!(scenario.modes[..], [Mode::Async { .. }])),
        count(|scenario| scenario.modes.len() == 2),
        count(|scenario| scenario.modes.len() == 3),
        count(|scenario| scenario.workers > 1 && scenario.proxies > 1),
        count(|scenario| scenario.drifts.iter().any(|drift| *drift != 0)),
        count(|scenario| !scenario.faults.is_empty()),
        count(Scenario::is_calm),
        count(|scenario| scenario.windows == Some(false)),
        count(|scenario| scenario.windows == Some(true)),
        scenarios
            .iter()
            .filter(|of| has(of, |mode| *mode == Mode::Exact) && has(of, |mode| *mode != Mode::Exact))
            .count(),
    ];
    assert!(kinds.iter().all(|kind| *kind >= 15), "{kinds:?}");
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..20 {
        let (first, second) = (run(&Scenario::short(seed), true), run(&Scenario::short(seed), true));
        assert_eq!((&first.tally, &first.log), (&second.tally, &second.log), "SEED={seed}");
    }
}

/// Explores all small cases of the core to a depth.
fn explore_to(depth: usize) {
    for mut case in explore::cases() {
        case.depth = depth;
        let explored = explore(&case, &Watch::new(None));
        assert_eq!((explored.depth, explored.violation), (depth, None), "{}", case.name);
    }
}

#[test]
fn small_cases_break_nothing_to_a_depth_of_four_choices() {
    explore_to(4);
}

#[test]
fn what_was_taken_before_a_wipe_is_not_put_back_after_it() {
    for case in explore::cases().iter().filter(|case| case.name.contains("put back")) {
        let explored = explore(case, &Watch::new(None));
        assert_eq!((explored.is_all, explored.violation), (true, None), "{}", case.name);
    }
}

#[test]
#[ignore = "takes a minute: make test-sim"]
fn small_cases_break_nothing_to_a_depth_of_six_choices() {
    explore_to(6);
}

#[test]
#[ignore = "takes a minute: make test-sim"]
fn the_rules_keep_the_promise_whatever_happens() {
    for case in model::cases() {
        let explored = model::explore(&case, 2, &Watch::new(None));
        assert_eq!((explored.is_all, explored.broken), (true, None), "{}", case.name);
    }
}

#[test]
fn a_clock_that_goes_back_and_forth_by_a_second_at_most_adds_nothing() {
    for case in model::cases().iter().filter(|case| case.name.contains("back and forth")) {
        let explored = model::explore(case, case.budget.calls, &Watch::new(None));
        assert_eq!((explored.is_all, explored.broken), (true, None), "{}", case.name);
    }
}

#[test]
#[ignore = "takes a minute: make test-sim"]
fn a_window_keeps_its_promise_where_its_clock_goes_back() {
    for case in model::cases().iter().filter(|case| case.name.contains("whose clock")) {
        let explored = model::explore(case, case.budget.calls, &Watch::new(None));
        assert_eq!((explored.is_all, explored.broken), (true, None), "{}", case.name);
    }
}

#[test]
fn the_promise_of_a_window_is_kept_between_two_borders() {
    let mut promise = Promise::new(LIMIT, 10_000);
    promise.window = Some(300);
    assert_eq!(promise.admit(3, 10_000), Ok(()));
    assert_eq!(promise.clone().admit(1, 10_299), Err(1000));
    assert_eq!(promise.admit(3, 10_300), Ok(()));
    // A clock that is set back begins none; the border that it comes to does.
    assert_eq!(promise.clone().admit(1, 9_000), Err(1000));
    assert_eq!(promise.admit(0, 9_000), Ok(()));
    assert_eq!(promise.admit(3, 9_300), Ok(()));
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
    holding.report(900, 3, 9, 899 + 1);
    assert_eq!(holding.spend(1, 899), Ok(()));
    holding.replace(900, 3, 950, 3, 2);
    assert_eq!((holding.unspent(899), holding.unspent(950)), (4, 0));
    assert_eq!(holding.spend(4, 950), Err(4));
    assert_eq!(holding.ever_unspent(), 4);
}

#[test]
fn what_is_not_wanted_may_not_be_spent_while_the_call_is_out() {
    let mut holding = Holding::default();
    holding.replace(0, 0, 900, 0, 5);
    holding.report(900, 5, 2, 700);
    assert_eq!((holding.unspent(699), holding.unspent(700)), (2, 0));
    // The call has never begun, so the other three are there again.
    holding.restore(900, 700, 3);
    assert_eq!((holding.unspent(699), holding.unspent(700)), (5, 0));
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
