//! The small cases that are explored.

use crate::check::Limit;
use crate::scenario::Mode;

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    /// Of each rule.
    pub modes: Vec<Mode>,
    pub proxies: usize,
    pub workers: usize,
    pub limit: Limit,
    /// It is that of a fixed window, whose burst are its requests.
    pub windows: bool,
    /// Millionths by which the proxies' clocks are slow.
    pub slow: u64,
    pub costs: Vec<u64>,
    /// How often each of these may happen.
    pub budget: Budget,
    pub depth: usize,
}

#[derive(Clone, Copy, Debug, Hash)]
pub struct Budget {
    pub requests: u8,
    pub lost: u8,
    pub doubled: u8,
    pub leave: u8,
    pub wipe: u8,
    /// A worker takes tokens and stands still before it puts them back, since another rule has refused.
    pub stall: u8,
    /// A call is told that another one has found no script.
    pub astray: u8,
    /// How often time may pass.
    pub pass: u8,
}

const BUDGET: Budget = Budget { requests: 4, lost: 1, doubled: 1, leave: 0, wipe: 0, stall: 0, astray: 0, pass: 2 };

/// The cases that are explored.
pub fn cases() -> Vec<Case> {
    let last = Case {
        modes: vec![Mode::Exact, Mode::Lease { life_s: 1 }],
        ..case("exact and lease, 2 proxies, burst 3", 2, 1, 1, 3, &[1], Budget { requests: 3, ..BUDGET })
    };
    exact().into_iter().chain(lending()).chain([last]).chain(windows()).collect()
}

fn case(
    name: &'static str,
    proxies: usize,
    workers: usize,
    requests: u64,
    burst: u64,
    costs: &[u64],
    budget: Budget,
) -> Case {
    Case {
        name,
        modes: vec![Mode::Exact],
        proxies,
        workers,
        limit: Limit { requests, period_ms: 1000, burst },
        windows: false,
        slow: 0,
        costs: costs.to_vec(),
        budget,
        depth: 40,
    }
}

fn exact() -> Vec<Case> {
    vec![
        case("2 proxies, burst 2", 2, 1, 1, 2, &[1], BUDGET),
        case("2 proxies, burst 2, who leave", 2, 1, 1, 2, &[1], Budget { leave: 2, lost: 0, ..BUDGET }),
        case("2 proxies, burst 4, costs 1 and 3", 2, 1, 2, 4, &[1, 3], BUDGET),
        case("3 proxies, burst 2", 3, 1, 1, 2, &[1], BUDGET),
        case("3 proxies, burst 3", 3, 1, 10, 3, &[1], Budget { requests: 5, ..BUDGET }),
        case("2 proxies of 2 workers, burst 2", 2, 2, 1, 2, &[1], Budget { wipe: 1, ..BUDGET }),
    ]
}

/// Below a burst of 64 nothing is lent ahead, so that leases are lent to large buckets or held for other rules.
fn lending() -> Vec<Case> {
    vec![
        lends(case("lease: 2 proxies", 2, 1, 16, 64, &[1, 16], BUDGET), 1),
        lends(case("lease: 2 proxies, no losses", 2, 1, 16, 64, &[1], Budget { lost: 0, pass: 3, ..BUDGET }), 1),
        lends(
            case(
                "lease: 2 proxies, replies astray",
                2,
                1,
                16,
                64,
                &[1],
                Budget { requests: 3, lost: 0, doubled: 0, astray: 2, ..BUDGET },
            ),
            1,
        ),
        lends(
            case(
                "lease: 2 rules, replies astray",
                2,
                1,
                1,
                2,
                &[1],
                Budget { requests: 3, lost: 0, doubled: 0, astray: 1, ..BUDGET },
            ),
            2,
        ),
        lends(case("lease: 3 proxies", 3, 1, 16, 64, &[1, 16], Budget { doubled: 0, ..BUDGET }), 1),
        lends(
            case("lease: a proxy of 2 workers", 1, 2, 16, 64, &[1, 16], Budget { requests: 5, leave: 1, ..BUDGET }),
            1,
        ),
        lends(case("lease: 2 proxies of 2 workers", 2, 2, 16, 64, &[1], Budget { doubled: 0, ..BUDGET }), 1),
        Case {
            slow: 900,
            ..lends(case("lease: 2 proxies with slow clocks", 2, 1, 16, 64, &[1, 16], Budget { lost: 0, ..BUDGET }), 1)
        },
        lends(case("lease: 2 rules, 2 proxies, burst 2", 2, 1, 1, 2, &[1], Budget { requests: 3, ..BUDGET }), 2),
        lends(case("lease: 2 rules, a proxy of 2 workers", 1, 2, 1, 3, &[1], Budget { leave: 1, ..BUDGET }), 2),
        lends(
            case(
                "lease: what is put back after a wipe",
                1,
                1,
                16,
                64,
                &[1],
                Budget { requests: 4, lost: 0, doubled: 0, leave: 0, wipe: 1, stall: 1, astray: 0, pass: 0 },
            ),
            1,
        ),
    ]
}

/// The burst is what a window has; the first ends after a second.
fn windows() -> Vec<Case> {
    let pass = Budget { pass: 3, ..BUDGET };
    let cases = [
        case("window: exact, 2 proxies", 2, 1, 2, 2, &[1], BUDGET),
        lends(case("window: lease, 2 proxies", 2, 1, 64, 64, &[1, 16], pass), 1),
        lends(case("window: lease, 2 proxies, no losses", 2, 1, 64, 64, &[16], Budget { lost: 0, ..pass }), 1),
        lends(case("window: lease, 2 rules, 2 proxies", 2, 1, 2, 2, &[1], Budget { requests: 3, ..BUDGET }), 2),
        Case {
            slow: 900,
            ..lends(case("window: lease, slow clocks", 2, 1, 64, 64, &[1, 16], Budget { lost: 0, ..BUDGET }), 1)
        },
    ];
    cases.into_iter().map(|case| Case { windows: true, ..case }).collect()
}

fn lends(case: Case, rules: usize) -> Case {
    Case { modes: vec![Mode::Lease { life_s: 1 }; rules], ..case }
}
