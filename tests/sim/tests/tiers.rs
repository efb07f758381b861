//! Tiers that alternate at one bucket: what one has used counts for the other, and nothing is lost.

use weir_sim::check::Limit;
use weir_sim::scenario::{Arrival, Limits, Mode, Network, Scenario};
use weir_sim::shrink::run;
use weir_sim::world::Tally;

const FREE: Limit = Limit { requests: 10, period_ms: 3_600_000, burst: 10 };
const GOLD: Limit = Limit { requests: 1200, period_ms: 3_600_000, burst: 1200 };

const MODES: [Mode; 3] = [Mode::Exact, Mode::Lease { life_s: 300 }, Mode::Async { interval_ms: 100 }];

/// Requests at one proxy, one every 10 ms: so many of each tier, 0 the first and 1 the second. How many were admitted, and
/// how many refused.
fn of(mode: Mode, limits: [Limit; 2], tiers: &[(usize, usize)]) -> (u64, u64) {
    let tiers = tiers.iter().flat_map(|(tier, count)| std::iter::repeat_n(*tier, *count));
    let arrival = |(at, tier)| Arrival { at, proxy: 0, worker: 0, bucket: 0, cost: 1, tier, patience: 0 };
    let arrivals: Vec<Arrival> = (0..).step_by(10_000).zip(tiers).map(arrival).collect();
    let scenario = Scenario {
        seed: 1,
        modes: vec![mode],
        proxies: 1,
        workers: 1,
        buckets: 1,
        limits: Limits(limits.to_vec()),
        windows: None,
        tiers: true,
        costs: vec![1],
        timeout_ms: 100,
        table_entries: 64,
        breaker_failures: 1000,
        network: Network { delay: (500, 500), ..Network::default() },
        ends: arrivals.last().map_or(0, |last| last.at) + 1_000_000,
        arrivals,
        faults: Vec::new(),
        drifts: vec![0; 2],
        counts_from: 0,
    };
    let outcomes = run(&scenario, false);
    assert_eq!(outcomes.violation, None);
    let Tally { admitted, refused, failed: 0, .. } = outcomes.tally else { panic!("{:?}", outcomes.tally) };
    (admitted, refused)
}

#[test]
fn a_request_in_a_lower_tier_takes_nothing_from_the_bucket_of_the_higher() {
    for mode in MODES {
        assert_eq!(of(mode, [GOLD, FREE], &[(1, 1), (0, 60)]), (61, 0), "{mode:?}");
        assert_eq!(of(mode, [GOLD, FREE], &[(0, 500), (1, 1), (0, 60)]), (560, 1), "{mode:?}");
    }
}

#[test]
fn what_was_lent_to_the_higher_tier_is_no_way_round_the_limit_of_the_lower() {
    for mode in MODES {
        assert_eq!(of(mode, [GOLD, FREE], &[(0, 5), (1, 100)]), (10, 95), "{mode:?}");
        assert_eq!(of(mode, [GOLD, FREE], &[(0, 500), (1, 100)]), (500, 100), "{mode:?}");
    }
}

#[test]
fn a_raised_limit_has_its_room_at_once() {
    for mode in MODES {
        // The 1201st request is one too many, but for what has come back: a token in three seconds.
        let (admitted, refused) = of(mode, [FREE, GOLD], &[(0, 15), (1, 1200)]);
        let comes_back = 12_150 / 3000;
        assert_eq!(refused, 1215 - admitted);
        let most = GOLD.burst + comes_back;
        assert!((most - 4..=most).contains(&admitted), "{mode:?}: {admitted} of {most}");
    }
}
