//! Large cases, measured: what a mode costs and what it gives. The cases are those of the design's table of leases, and
//! beside each figure stands what it has to reach.

use std::collections::BTreeSet;

use crate::chance::Chance;
use crate::check::Limit;
use crate::demand::{Spread, Steady, Tenants};
use crate::explore::Watch;
use crate::plot::{Bar, bars};
use crate::scenario::{Limits, Mode, Network, Scenario};
use crate::world::{Tally, World};

/// A large case.
struct Case {
    name: &'static str,
    limit: Limit,
    proxies: u16,
    /// Requests per second from a moment (in s) on.
    rates: &'static [(u64, f64)],
    tenants: Whose,
    spread: Spread,
    seconds: u64,
    /// In each mode that is measured: the least use, and how many requests a call must serve at least.
    floors: &'static [(Mode, f64, f64)],
}

#[derive(Clone, Copy)]
enum Whose {
    Even(u32),
    Zipf(u32),
}

const EXACT: Mode = Mode::Exact;
const LEASE: Mode = Mode::Lease { life_s: 300 };
const LEASE_60: Mode = Mode::Lease { life_s: 60 };

const fn per(seconds: u64, requests: u64, burst: u64) -> Limit {
    Limit { requests, period_ms: seconds * 1000, burst }
}

use Spread::{Even, Hopping, Skewed};
use Whose::Zipf;

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "1000/s, 80 % at one proxy", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 2000.0)], tenants: Whose::Even(1), spread: Skewed, seconds: 60,
           floors: &[(EXACT, 0.999, 1.0), (LEASE, 1.000, 1.0)] },
    Case { name: "1000/s, hopping each second", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 2000.0)], tenants: Whose::Even(1), spread: Hopping, seconds: 60,
           floors: &[(EXACT, 0.999, 1.0), (LEASE, 0.998, 1.0)] },
    Case { name: "10/s", limit: per(1, 10, 10), proxies: 10, rates: &[(0, 20.0)], tenants: Whose::Even(1), spread: Even, seconds: 600,
           floors: &[(EXACT, 0.996, 1.0), (LEASE, 0.996, 1.0)] },
    Case { name: "100/min", limit: per(60, 100, 100), proxies: 10, rates: &[(0, 3.0)], tenants: Whose::Even(1), spread: Even, seconds: 1800,
           floors: &[(EXACT, 0.999, 1.0), (LEASE, 0.999, 1.0)] },
    Case { name: "spike after idling", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 800.0), (20, 0.001), (40, 10_000.0)], tenants: Whose::Even(1), spread: Even, seconds: 42,
           floors: &[(EXACT, 0.975, 1.0), (LEASE, 0.934, 1.0)] },
    Case { name: "one tenant at 50k/s, limit 100k/s", limit: per(1, 100_000, 100_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: 20,
           floors: &[(EXACT, 0.999, 10.0), (LEASE, 0.999, 3784.0)] },
    Case { name: "one tenant at 50k/s, limit 10k/s", limit: per(1, 10_000, 10_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: 20,
           floors: &[(EXACT, 0.99, 48.0), (LEASE, 0.97, 1563.0)] },
    Case { name: "one tenant at 50k/s, limit 1k/s", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: 20,
           floors: &[(EXACT, 0.97, 405.0), (LEASE, 0.97, 1549.0)] },
    Case { name: "200 tenants, 1000/s", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(200), spread: Even, seconds: 60,
           floors: &[(EXACT, 0.999, 1.0), (LEASE, 0.97, 39.0)] },
    Case { name: "200 tenants, 60000/min", limit: per(60, 60_000, 60_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(200), spread: Even, seconds: 60,
           floors: &[(EXACT, 0.999, 1.0), (LEASE, 0.97, 285.0)] },
    Case { name: "200k tenants, Zipf(1.0)", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Zipf(200_000), spread: Even, seconds: 60,
           floors: &[(EXACT, 0.97, 1.3), (LEASE_60, 0.97, 6.1), (LEASE, 0.97, 12.6)] },
    Case { name: "500k/s over 50 proxies", limit: per(1, 1000, 1000), proxies: 50, rates: &[(0, 500_000.0)], tenants: Zipf(200_000), spread: Even, seconds: 20,
           floors: &[(EXACT, 0.9, 1.0), (LEASE, 0.9, 18.7)] },
];

fn scenario(case: &Case, mode: Mode) -> Scenario {
    let buckets = match case.tenants {
        Whose::Even(tenants) | Zipf(tenants) => tenants,
    };
    Scenario {
        seed: 1,
        mode,
        proxies: case.proxies,
        workers: 1,
        buckets,
        limits: Limits(vec![case.limit]),
        costs: vec![1],
        timeout_ms: 100,
        // Room for every tenant: what a small table costs is another question.
        table_entries: u64::from(buckets).max(1024) * 2,
        breaker_failures: 5,
        // From 1 to 3 ms there and back.
        network: Network { delay: (500, 1500), spared: BTreeSet::new(), ..Network::default() },
        arrivals: Vec::new(),
        faults: Vec::new(),
        drifts: vec![0; usize::from(case.proxies) + 1],
        ends: case.seconds * 1_000_000,
    }
}

fn demand(case: &Case) -> Steady {
    Steady {
        chance: Chance::new(1, 2),
        at: 0.0,
        rates: case.rates.iter().map(|(from, rate)| (from * 1_000_000, *rate)).collect(),
        until: case.seconds * 1_000_000,
        proxies: case.proxies,
        workers: 1,
        tenants: match case.tenants {
            Whose::Even(tenants) => Tenants::Even(tenants),
            Zipf(tenants) => Tenants::zipf(tenants),
        },
        spread: case.spread,
    }
}

/// Measures all cases, or those with this in their names, prints a table, and draws plots into a folder. Returns whether
/// every floor is reached.
pub fn all(out: Option<&str>, name: Option<&str>) -> bool {
    let mut is_well = true;
    let mut costs = Vec::new();
    println!(
        "| case | mode | requests a call | waits | use | over | stranded |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for case in CASES.iter().filter(|case| name.is_none_or(|name| case.name.contains(name))) {
        for (mode, use_floor, calls_floor) in case.floors {
            let watch = Watch::new(None);
            let scenario = scenario(case, *mode);
            let outcomes = World::run(&scenario, Box::new(demand(case)), true, false);
            let Tally { requests, admitted, ideal, waited, calls, over, stranded, .. } = outcomes.tally;
            let served = requests as f64 / calls.max(1) as f64;
            let used = admitted as f64 / ideal.max(1) as f64;
            println!(
                "| {} | {mode:?} | {served:.1} (floor {calls_floor}) | {:.1} % | {used:.4} (floor {use_floor}) | {over} | {:.0} ms |",
                case.name,
                100.0 * waited as f64 / requests.max(1) as f64,
                stranded as f64 / 1000.0,
            );
            // A figure and its floor are compared as they are printed.
            let reached =
                (served * 10.0).round() / 10.0 >= *calls_floor && (used * 1000.0).round() / 1000.0 >= *use_floor;
            if let Some(violation) = &outcomes.violation {
                println!("    BROKEN: {}", violation.what);
            }
            eprintln!("    {:.1} s", watch.seconds());
            is_well &= reached && outcomes.violation.is_none();
            costs.push(Bar { name: format!("{} ({mode:?})", case.name), value: served, floor: *calls_floor });
        }
    }
    if let Some(folder) = out {
        let path = std::path::Path::new(folder).join("requests-per-call.svg");
        if let Err(error) = std::fs::write(&path, bars("Requests that one call to the limiter serves", &costs)) {
            println!("{}: {error}", path.display());
            is_well = false;
        }
    }
    is_well
}
