//! One bucket over time: what is in it, what it has lent, and what of that is unspent.

use std::error::Error;

use crate::check::Limit;
use crate::demand::{Spread, Steady, Tenants};
use crate::plot::{BLUE, GREY, Line, ORANGE, lines};
use crate::random::Random;
use crate::scenario::{Limits, Mode, Network, Scenario};
use crate::world::{Sample, World};

const SECONDS: u64 = 12;

/// A tenant with 1000/s, four of five of whose requests come to one proxy of ten: for 4 s less than it may, for 4 s twice
/// as much, and then less again.
pub fn plot() -> Result<String, Box<dyn Error>> {
    let scenario = Scenario {
        seed: 1,
        modes: vec![Mode::Lease { life_s: 300 }],
        proxies: 10,
        workers: 1,
        buckets: 1,
        limits: Limits(vec![Limit { requests: 1000, period_ms: 1000, burst: 1000 }]),
        windows: None,
        tiers: false,
        costs: vec![1],
        timeout_ms: 100,
        table_entries: 1024,
        breaker_failures: 5,
        network: Network { delay: (500, 1500), ..Network::default() },
        arrivals: Vec::new(),
        faults: Vec::new(),
        drifts: vec![0; 11],
        ends: SECONDS * 1_000_000,
        counts_from: 0,
    };
    let demand = Steady {
        chance: Random::new(1, 2),
        at: 0.0,
        rates: vec![(0, 400.0), (4_000_000, 2000.0), (8_000_000, 400.0)],
        until: scenario.ends,
        proxies: 10,
        workers: 1,
        tenants: Tenants::Even(1),
        spread: Spread::Skewed,
    };
    let samples = World::sampled(&scenario, Box::new(demand), 20_000);
    let of = |value: fn(&Sample) -> f64| samples.iter().map(value).collect();
    lines(
        "A bucket of 1000 tokens, 1000/s: 400 requests/s, from 4 s on 2000/s, from 8 s on 400/s",
        SECONDS as f64,
        &[
            Line { key: (BLUE, "in the bucket"), values: of(|sample| sample.level) },
            Line { key: (ORANGE, "lent"), values: of(|sample| sample.lent) },
            Line { key: (GREY, "unspent of that"), values: of(|sample| sample.unspent) },
        ],
    )
}
