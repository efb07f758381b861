//! Large cases, measured: what a mode costs and what it gives. The cases are those of the design's table of leases, and
//! beside each figure stands what it has to reach.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use crate::check::Limit;
use crate::demand::{Spread, Steady, Tenants};
use crate::explore::Watch;
use crate::plot::{BLUE, Bar, Row, Scale, bars};
use crate::random::Random;
use crate::scenario::{Limits, Mode, Network, Scenario};
use crate::timeline;
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
    /// Counted from there, to there.
    seconds: (u64, u64),
    /// In each mode that is measured: the use, and how many requests a call serves, as the design tells them.
    told: &'static [(Mode, f64, f64)],
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
    Case { name: "1000/s, 80 % at one proxy", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 2000.0)], tenants: Whose::Even(1), spread: Skewed, seconds: (0, 60),
           told: &[(EXACT, 0.999, 1.0), (LEASE, 1.000, 1.0)] },
    Case { name: "1000/s, hopping each second", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 2000.0)], tenants: Whose::Even(1), spread: Hopping, seconds: (0, 60),
           told: &[(EXACT, 1.000, 1.0), (LEASE, 0.998, 1.0)] },
    Case { name: "10/s", limit: per(1, 10, 10), proxies: 10, rates: &[(0, 20.0)], tenants: Whose::Even(1), spread: Even, seconds: (0, 600),
           told: &[(EXACT, 0.996, 1.0), (LEASE, 0.996, 1.0)] },
    Case { name: "100/min", limit: per(60, 100, 100), proxies: 10, rates: &[(0, 3.0)], tenants: Whose::Even(1), spread: Even, seconds: (0, 1800),
           told: &[(EXACT, 0.999, 1.0), (LEASE, 0.999, 1.0)] },
    Case { name: "idle, then a spike", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 800.0), (20, 0.001), (40, 10_000.0)], tenants: Whose::Even(1), spread: Even, seconds: (40, 42),
           told: &[(EXACT, 0.975, 1.0), (LEASE, 0.934, 1.0)] },
    Case { name: "one tenant at 50k/s, 100k/s", limit: per(1, 100_000, 100_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: (10, 20),
           told: &[(EXACT, 0.999, 10.0), (LEASE, 0.999, 3784.0)] },
    Case { name: "one tenant at 50k/s, 10k/s", limit: per(1, 10_000, 10_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: (10, 20),
           told: &[(EXACT, 0.97, 48.0), (LEASE, 0.97, 1563.0)] },
    Case { name: "one tenant at 50k/s, 1k/s", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(1), spread: Even, seconds: (10, 20),
           told: &[(EXACT, 0.97, 405.0), (LEASE, 0.97, 1549.0)] },
    Case { name: "200 tenants, 1000/s", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(200), spread: Even, seconds: (10, 25),
           told: &[(EXACT, 0.97, 1.0), (LEASE, 0.97, 39.0)] },
    Case { name: "200 tenants, 60000/min", limit: per(60, 60_000, 60_000), proxies: 10, rates: &[(0, 50_000.0)], tenants: Whose::Even(200), spread: Even, seconds: (10, 25),
           told: &[(EXACT, 0.97, 1.0), (LEASE, 0.97, 285.0)] },
    // A hundredth of the 200k tenants and 50k/s of the design, so that a run reaches a steady state: the many tenants that
    // come seldom, which decide, come as often.
    Case { name: "Zipf: 2k tenants, 500/s", limit: per(1, 1000, 1000), proxies: 10, rates: &[(0, 500.0)], tenants: Zipf(2000), spread: Even, seconds: (700, 1300),
           told: &[(EXACT, 0.97, 1.3), (LEASE_60, 0.97, 6.1), (LEASE, 0.97, 12.6)] },
    Case { name: "Zipf: 2k tenants, 5k/s, 50 proxies", limit: per(1, 1000, 1000), proxies: 50, rates: &[(0, 5000.0)], tenants: Zipf(2000), spread: Even, seconds: (700, 1000),
           told: &[(LEASE, 0.9, 18.7)] },
];

/// How many requests a call serves at best: of one tenant at one proxy, a call and those that come while its lease lives.
/// None where tenants come so often that it does not matter.
fn best(case: &Case, mode: Mode) -> Option<f64> {
    let (Mode::Lease { life_s }, Zipf(tenants)) = (mode, case.tenants) else {
        return None;
    };
    let all: f64 = (1..=tenants).map(|rank| 1.0 / f64::from(rank)).sum();
    let (_, rate) = case.rates[0];
    let pair = |rank: u32| rate / all / f64::from(rank) / f64::from(case.proxies);
    let calls: f64 = (1..=tenants).map(|rank| 1.0 / (life_s as f64 + 1.0 / pair(rank))).sum();
    Some(rate / (calls * f64::from(case.proxies)))
}

fn scenario(case: &Case, mode: Mode) -> Scenario {
    let buckets = match case.tenants {
        Whose::Even(tenants) | Zipf(tenants) => tenants,
    };
    Scenario {
        seed: 1,
        modes: vec![mode],
        proxies: case.proxies,
        workers: 1,
        buckets,
        limits: Limits(vec![case.limit]),
        windows: None,
        tiers: false,
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
        ends: case.seconds.1 * 1_000_000,
        counts_from: case.seconds.0 * 1_000_000,
    }
}

fn demand(case: &Case) -> Steady {
    Steady {
        chance: Random::new(1, 2),
        at: 0.0,
        rates: case.rates.iter().map(|(from, rate)| (from * 1_000_000, *rate)).collect(),
        until: case.seconds.1 * 1_000_000,
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
/// nothing is admitted that should not be, and the plots are written.
pub fn all(out: Option<&str>, name: Option<&str>) -> bool {
    let mut is_well = true;
    let (mut costs, mut uses) = (Vec::new(), Vec::new());
    println!("| case | mode | requests a call (design; best) | wait | use (design) | over | stranded |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for case in CASES.iter().filter(|case| name.is_none_or(|name| case.name.contains(name))) {
        for (mode, told_use, told_served) in case.told {
            let watch = Watch::new(None);
            let scenario = scenario(case, *mode);
            let outcomes = World::run(&scenario, Box::new(demand(case)), true, false);
            let Tally { requests, admitted, ideal, waited, calls, over, stranded, .. } = outcomes.tally;
            let served = requests as f64 / calls.max(1) as f64;
            let used = admitted as f64 / ideal.max(1) as f64;
            let best = best(case, *mode).map_or(String::new(), |best| format!("; {best:.1}"));
            let mode = match mode {
                Mode::Lease { life_s } => format!("lease, {life_s} s"),
                _ => "exact".to_owned(),
            };
            println!(
                "| {} | {mode} | {served:.1} ({told_served}{best}) | {:.1} % | {used:.3} ({told_use}) | {over} | {:.0} ms |",
                case.name,
                100.0 * waited as f64 / requests.max(1) as f64,
                stranded as f64 / 1000.0,
            );
            if let Some(violation) = &outcomes.violation {
                println!("    BROKEN: {}", violation.what);
                is_well = false;
            }
            eprintln!("    {:.1} s", watch.seconds());
            let name = format!("{} ({mode})", case.name);
            costs.push(row(&name, served, *told_served, 1));
            uses.push(row(&name, used, *told_use, 3));
        }
    }
    let plots = || -> Result<[(&str, String); 3], Box<dyn Error>> {
        let costs = bars("Requests that one call to the limiter serves", &[], Scale::Log, NAMES_WIDTH, &costs)?;
        let title = "Tokens admitted, of those that one ideal bucket admits";
        let uses = bars(title, &[], Scale::Linear, NAMES_WIDTH, &uses)?;
        Ok([("requests-per-call.svg", costs), ("use.svg", uses), ("bucket.svg", timeline::plot()?)])
    };
    let write = |out: &str| -> Result<(), Box<dyn Error>> {
        plots()?.into_iter().try_for_each(|(file, svg)| Ok(std::fs::write(Path::new(out).join(file), svg)?))
    };
    if let Some(Err(error)) = out.map(write) {
        println!("no plots: {error}");
        is_well = false;
    }
    is_well
}

const NAMES_WIDTH: u32 = 330;

/// A value, and what it has to reach.
fn row(name: &str, value: f64, floor: f64, digits: usize) -> Row {
    let label = format!("{value:.digits$}");
    Row {
        name: name.to_owned(),
        bars: vec![Bar { parts: vec![(value, BLUE)], floor: Some(floor), label, ..Bar::default() }],
    }
}
