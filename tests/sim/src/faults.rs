//! What goes wrong, and when.

use crate::random::Random;
use crate::scenario::Scenario;

/// Something that goes wrong once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// True time, in microseconds.
    pub at: u64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A replica takes over that has not got the last writes.
    Failover { lost_us: u64 },
    /// The root forgets everything.
    Flush,
    /// The root forgets one bucket.
    LoseKey(u32),
    /// The root forgets its scripts.
    ForgetScripts,
    /// The root answers with errors for so long.
    ReadOnly { us: u64 },
    /// Somebody sets the root's clock.
    RootClock { by_ms: i64 },
    /// Somebody sets a proxy's clock.
    ProxyClock { proxy: u16, by_ms: i64 },
    /// Nothing of a proxy's calls arrives, or nothing comes back, for so long.
    Partition { proxy: u16, us: u64, replies_only: bool },
    /// A worker dies with all that it knows and comes back.
    WorkerDies { proxy: u16, worker: u16 },
    /// A proxy dies with its shared data and comes back after so long.
    ProxyDies { proxy: u16, us: u64 },
    /// A proxy's shared data is wiped.
    Wipe { proxy: u16 },
    /// A proxy's next writes to shared data come too late.
    LosePuts { proxy: u16, puts: u32 },
    /// Policies get another limit, worker by worker within so long.
    Reload { limit: usize, spread_us: u64 },
}

/// A few faults at random.
pub fn drawn(chance: &mut Random, scenario: &Scenario) -> Vec<Fault> {
    let count = chance.pick(&[1, 1, 2, 3, 6]);
    // Those for which the promise has a slack are in a part of the runs only: the others are checked strictly.
    let also_slack = chance.one_in(3);
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| Fault { at: chance.below(scenario.ends), kind: kind(chance, scenario, also_slack) })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn kind(chance: &mut Random, scenario: &Scenario, also_slack: bool) -> Kind {
    let (proxies, workers) = (u64::from(scenario.proxies), u64::from(scenario.workers));
    let proxy = chance.below(proxies) as u16;
    let jump = |chance: &mut Random| chance.pick(&[1, 5, 100, 1000, 5000, 3_600_000]);
    match chance.below(if also_slack { 14 } else { 9 }) {
        0 => Kind::ForgetScripts,
        1 => Kind::ReadOnly { us: chance.below(300_000) },
        2 => Kind::RootClock { by_ms: -jump(chance) },
        3 => Kind::Partition { proxy, us: chance.below(1_000_000), replies_only: chance.one_in(2) },
        4 => Kind::WorkerDies { proxy, worker: chance.below(workers) as u16 },
        5 => Kind::ProxyDies { proxy, us: chance.below(1_000_000) },
        6 => Kind::Wipe { proxy },
        7 => Kind::LosePuts { proxy, puts: chance.within(1, 20) as u32 },
        8 => Kind::ProxyClock { proxy, by_ms: jump(chance) },
        9 => Kind::Failover { lost_us: chance.below(500_000) },
        10 => Kind::Flush,
        11 => Kind::LoseKey(chance.below(u64::from(scenario.roots())) as u32),
        12 => Kind::RootClock { by_ms: jump(chance) },
        13 => match chance.below(2) {
            0 => Kind::ProxyClock { proxy, by_ms: -jump(chance) },
            _ => Kind::Reload {
                limit: chance.below(scenario.limits.0.len() as u64) as usize,
                spread_us: chance.below(200_000),
            },
        },
        _ => Kind::Wipe { proxy },
    }
}
