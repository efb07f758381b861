//! A scenario: everything that a run needs, drawn from a seed, and written out so that it can be cut down.

use std::collections::BTreeSet;

use weir::policy::Policy;

use crate::check::Limit;
use crate::faults::{self, Fault, Kind};
use crate::random::Random;

/// Where a rule's tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exact,
    Lease { life_s: u64 },
    Async { interval_ms: u64 },
}

/// A run in full.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// Of each rule; a request asks them all.
    pub modes: Vec<Mode>,
    pub proxies: u16,
    pub workers: u16,
    /// Tenants: each has a bucket of the first rule.
    pub buckets: u32,
    pub limits: Limits,
    /// They are of fixed windows, whose bursts are their requests: whether those are spread. None: of token buckets.
    pub windows: Option<bool>,
    /// There are two tiers: the second has the limit of the next version. Which one a request is in is its own to say.
    pub tiers: bool,
    /// The costs that requests have; each is a class of the policy.
    pub costs: Vec<u64>,
    pub timeout_ms: u64,
    pub table_entries: u64,
    pub breaker_failures: u64,
    pub network: Network,
    /// Requests, in order of time.
    pub arrivals: Vec<Arrival>,
    /// What goes wrong, in order of time.
    pub faults: Vec<Fault>,
    /// Millionths by which clocks run wrong: the root's, then the proxies'.
    pub drifts: Vec<i64>,
    /// True time at which nothing new happens any more.
    pub ends: u64,
    /// What comes before this is not counted.
    pub counts_from: u64,
}

/// The limits that policies of a scenario have, for the first rule; a reload goes from one to another.
#[derive(Clone, Debug)]
pub struct Limits(pub Vec<Limit>);

/// A request to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// True time.
    pub at: u64,
    pub proxy: u16,
    pub worker: u16,
    pub bucket: u32,
    pub cost: u64,
    /// 0 or 1.
    pub tier: usize,
    /// It leaves after so many microseconds if it still waits; 0: it stays.
    pub patience: u32,
}

/// What the network does to calls: thousandths of them, decided for each by its number.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// One way, in microseconds: at least and at most.
    pub delay: (u64, u64),
    /// So many are late, by at most `late` more.
    pub slow: u64,
    pub late: u64,
    pub lost_calls: u64,
    pub lost_replies: u64,
    pub doubled_replies: u64,
    /// Another call's reply comes instead, or an error that another call has met.
    pub swapped_replies: u64,
    /// Executed twice, which the promise assumes away but for its slack.
    pub doubled_calls: u64,
    pub refused: u64,
    /// A wake-up that never comes.
    pub lost_wakes: u64,
    /// Calls that nothing happens to, by number; filled while a failing run is cut down.
    pub spared: BTreeSet<u32>,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    pub refused: bool,
    pub to: u64,
    pub back: u64,
    pub call_lost: bool,
    pub reply_lost: bool,
    /// After so many microseconds once more.
    pub call_again: Option<u64>,
    pub reply_again: Option<u64>,
    /// Another reply comes instead: which of them.
    pub swapped: Option<u64>,
}

impl Network {
    /// The way of the call of this number.
    pub fn way(&self, seed: u64, number: u32) -> Way {
        let mut chance = Random::new(seed, 1 << 40 | u64::from(number));
        let delay = |chance: &mut Random| chance.within(self.delay.0, self.delay.1);
        let mut way = Way { to: delay(&mut chance), back: delay(&mut chance), ..Way::default() };
        if self.spared.contains(&number) {
            return way;
        }
        if chance.thousandths(self.slow) {
            let late = chance.below(self.late + 1);
            *if chance.one_in(2) { &mut way.to } else { &mut way.back } += late;
        }
        way.refused = chance.thousandths(self.refused);
        way.call_lost = chance.thousandths(self.lost_calls);
        way.reply_lost = chance.thousandths(self.lost_replies);
        way.call_again = chance.thousandths(self.doubled_calls).then(|| chance.below(self.late + 1));
        way.reply_again = chance.thousandths(self.doubled_replies).then(|| chance.below(self.late + 1));
        way.swapped = chance.thousandths(self.swapped_replies).then(|| chance.below(1 << 32));
        way
    }

    /// Whether nothing ever happens to a call but a delay.
    pub fn is_perfect(&self) -> bool {
        let of = [
            self.slow,
            self.lost_calls,
            self.lost_replies,
            self.doubled_replies,
            self.doubled_calls,
            self.swapped_replies,
        ];
        of.iter().sum::<u64>() + self.refused + self.lost_wakes == 0
    }
}

impl Scenario {
    /// A short scenario at random.
    pub fn short(seed: u64) -> Scenario {
        let mut chance = Random::new(seed, 0);
        let chance = &mut chance;
        let (proxies, workers) = (chance.pick(&[1, 2, 2, 3, 3, 4, 5]), chance.pick(&[1, 1, 1, 2, 3]));
        let first = limit(chance);
        let limits: Vec<Limit> = std::iter::once(first).chain((0..2).map(|_| changed(chance, first))).collect();
        // Of a chance of its own, so that a seed's other draws stay as they were.
        let mut windows = Random::new(seed, 1 << 42);
        let windows = windows.one_in(4).then(|| windows.one_in(2));
        let limits = match windows {
            Some(_) => limits.into_iter().map(|limit| Limit { requests: limit.burst, ..limit }).collect(),
            None => limits,
        };
        let smallest = limits.iter().map(|limit| limit.burst).min().unwrap_or(1);
        let modes = modes(chance, smallest);
        let is_async = modes.iter().any(|mode| matches!(mode, Mode::Async { .. }));
        let costs = match chance.below(3) {
            0 => vec![1],
            1 => vec![1, chance.within(1, smallest.min(8)).max(1)],
            _ => vec![1, smallest.min(3), smallest],
        };
        let mut costs: Vec<u64> = costs;
        costs.sort_unstable();
        costs.dedup();
        let ends = chance.pick(&[300_000, 500_000, 1_000_000, 1_500_000, 1_500_000, 2_500_000, 4_000_000, 10_000_000]);
        let buckets = chance.pick(&[1, 1, 1, 2, 3, if is_async { 3 } else { 100 }]);
        let mut scenario = Scenario {
            seed,
            modes,
            proxies,
            workers,
            buckets,
            limits: Limits(limits),
            windows,
            tiers: false,
            costs,
            timeout_ms: chance.pick(&[10, 20, 40, 100, 100]),
            table_entries: 64,
            breaker_failures: chance.pick(&[2, 5, 1000]),
            network: Network::default(),
            arrivals: Vec::new(),
            faults: Vec::new(),
            drifts: Vec::new(),
            ends,
            counts_from: 0,
        };
        scenario.network = network(chance, &scenario);
        if !scenario.network.is_perfect() {
            // Of a chance of its own, so that a seed's other draws stay as they were.
            let mut chance = Random::new(seed, 1 << 41);
            scenario.network.swapped_replies = if chance.one_in(2) { chance.below(150) } else { 0 };
        }
        if is_async {
            // What a proxy spends while nobody hears of it has no bound, and a proxy that forgets starts anew.
            scenario.network = Network { delay: scenario.network.delay, ..Network::default() };
        }
        scenario.drifts = match chance.below(3) {
            0 => (0..=proxies).map(|_| chance.within(0, 800) as i64 - 400).collect(),
            _ => vec![0; usize::from(proxies) + 1],
        };
        scenario.arrivals = crate::demand::short(chance, &scenario);
        scenario.faults = if is_async || chance.one_in(3) { Vec::new() } else { faults::drawn(chance, &scenario) };
        scenario.go_to_and_fro(&mut Random::new(seed, 2));
        scenario
    }

    /// Tiers that alternate, rollouts that go back soon, and a clock of the root that does, in a part of the runs.
    fn go_to_and_fro(&mut self, chance: &mut Random) {
        self.tiers = chance.one_in(4);
        let stays = chance.pick(&[1, 2, 2, 10]);
        for arrival in self.arrivals.iter_mut().filter(|_| self.tiers) {
            arrival.tier = usize::from(chance.one_in(stays));
        }
        if !self.faults.is_empty() && chance.one_in(4) {
            let (at, spread_us) = (chance.below(self.ends), chance.below(200_000));
            let back = at + chance.pick(&[50_000, 300_000, 1_500_000]);
            for (at, limit) in [(at, 1 + chance.below(2) as usize), (back, 0)] {
                self.faults.push(Fault { at, kind: Kind::Reload { limit, spread_us } });
            }
        }
        if !self.faults.is_empty() && chance.one_in(6) {
            let (at, ms) = (chance.below(self.ends), chance.pick(&[900, 1500, 20_000, 3_600_000]));
            let back = at + chance.pick(&[1, 50_000, 300_000, 1_500_000]);
            for (at, by_ms) in [(at, ms), (back, -ms)] {
                self.faults.push(Fault { at, kind: Kind::RootClock { by_ms } });
            }
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// The tenant of a rule: those of the first rule share the buckets of the others.
    pub fn tenant(&self, rule: u32, bucket: u32) -> u32 {
        match rule {
            0 => bucket,
            1 => bucket / 2,
            _ => 0,
        }
    }

    /// Buckets at the limiter, those of one rule after those of another.
    pub fn roots(&self) -> u32 {
        self.buckets * self.modes.len() as u32
    }

    /// Which rule's a bucket is.
    pub fn rule(&self, root: u32) -> u32 {
        root / self.buckets
    }

    /// The buckets that a request of this tenant asks.
    pub fn asked(&self, bucket: u32) -> impl Iterator<Item = u32> + Clone + use<> {
        let (rules, buckets) = (self.modes.len() as u32, self.buckets);
        let tenants = [bucket, bucket / 2, 0];
        (0..rules).map(move |rule| rule * buckets + tenants[rule as usize])
    }

    /// The limit of a rule: the others of a policy are less strict than the first, as they are for more tenants.
    pub fn limit(&self, rule: u32, version: usize) -> Limit {
        let Limit { requests, period_ms, burst } = self.limits.0[version];
        let times = u64::from(rule) + 1;
        Limit { requests: requests * times, period_ms, burst: burst * times }
    }

    /// The limits that requests may ask under: of each tier.
    pub fn tier_limits(&self, rule: u32, version: usize) -> impl Iterator<Item = Limit> {
        (0..=usize::from(self.tiers)).map(move |tier| self.limit(rule, (version + tier) % self.limits.0.len()))
    }

    /// No request of any tier and version asks under a larger limit.
    pub fn largest(&self, rule: u32) -> Limit {
        let reloaded = self.faults.iter().filter_map(|fault| match fault.kind {
            Kind::Reload { limit, .. } => Some(limit),
            _ => None,
        });
        let limits = std::iter::once(0).chain(reloaded).flat_map(|version| self.tier_limits(rule, version));
        limits.fold(self.limit(rule, 0), Limit::loosest)
    }

    fn rule_text(&self, rule: u32, mode: Mode, version: usize) -> String {
        let mode = match mode {
            Mode::Exact => r#""exact""#.to_owned(),
            Mode::Lease { life_s } => format!(r#""lease", "lease": {{"life": "{life_s}s"}}"#),
            Mode::Async { interval_ms } => format!(r#""async", "sync_interval": "{interval_ms}ms""#),
        };
        let mut limits = self.tier_limits(rule, version).map(|Limit { requests, period_ms, burst }| {
            let counted = match self.windows {
                Some(spread) => format!(r#""algorithm": "fixed_window", "spread": {spread}"#),
                None => format!(r#""burst": {burst}"#),
            };
            format!(r#"{{"requests": {requests}, "per": "{}s", {counted}}}"#, period_ms / 1000)
        });
        let limits = match (limits.next(), limits.next()) {
            (Some(first), Some(second)) => format!(
                r#""limits": {{"t0": {first}, "t1": {second}}},
                "tier": {{"sources": [{{"header": {{"name": "tier", "trusted": true}}}}], "default": "t0"}}"#
            ),
            (first, _) => format!(r#""limits": {}"#, first.unwrap_or_default()),
        };
        format!(
            r#"{{"name": "r{rule}", "mode": {mode}, "key": [{{"header": {{"name": "k{rule}", "trusted": true}}}}],
                {limits}, "on_error": "deny"}}"#,
        )
    }

    /// Whether nothing goes wrong at all.
    pub fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.network.is_perfect()
    }

    /// The policy with one of the limits.
    pub fn policy(&self, version: usize) -> Policy {
        let classes: Vec<String> = self
            .costs
            .iter()
            .map(|cost| format!(r#"{{"class": "c{cost}", "match": {{"path": "/{cost}"}}, "cost": {cost}}}"#))
            .collect();
        let rules: Vec<String> =
            (0..).zip(&self.modes).map(|(rule, mode)| self.rule_text(rule, *mode, version)).collect();
        let json = format!(
            r#"{{"version": 1, "table": {{"entries": {entries}}},
                "limiters": {{"main": {{"transport": "webdis", "cluster": "w", "timeout": "{timeout}ms",
                    "breaker": {{"failures": {failures}, "share": {share}, "within": "1s", "probe_every": "200ms"}}}}}},
                "classes": [{classes}], "rules": [{rules}]}}"#,
            entries = self.table_entries,
            timeout = self.timeout_ms,
            failures = self.breaker_failures,
            // Where few are enough, they alone: so that it opens, and not only where nearly all calls fail.
            share = if self.breaker_failures == 2 { "0" } else { "0.5" },
            classes = classes.join(","),
            rules = rules.join(","),
        );
        match Policy::from_host(json.as_bytes(), &|_| None) {
            Ok(policy) => policy,
            Err(problems) => {
                let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
                panic!("{told:#?}\n{json}")
            }
        }
    }
}

/// One rule mostly, or two or three, some of which lend.
fn modes(chance: &mut Random, smallest_burst: u64) -> Vec<Mode> {
    if chance.one_in(16) {
        return vec![Mode::Async { interval_ms: chance.pick(&[50, 100, 1000]) }];
    }
    let rules = chance.pick(&[1, 1, 1, 2, 3]);
    let mode = |_| match chance.one_in(4) || smallest_burst < 2 {
        true => Mode::Exact,
        false => Mode::Lease { life_s: chance.pick(&[1, 2, 10, 300]) },
    };
    (0..rules).map(mode).collect()
}

fn limit(chance: &mut Random) -> Limit {
    let period_ms = chance.pick(&[1000, 1000, 1000, 2000, 10_000, 60_000]);
    let requests = chance.pick(&[1, 2, 3, 5, 10, 20, 50, 200]);
    let burst = match chance.below(4) {
        0 => chance.within(1, 4),
        1 => requests,
        2 => chance.within(2, 100),
        _ => chance.pick(&[64, 100, 256, 1000]),
    };
    Limit { requests, period_ms, burst }
}

/// Another limit of the same period, which is part of a bucket's name.
fn changed(chance: &mut Random, limit: Limit) -> Limit {
    let scaled = |chance: &mut Random, of: u64| match chance.below(4) {
        0 => of,
        1 => (of / 2).max(1),
        2 => of * 2,
        _ => (of / 10).max(1),
    };
    Limit { requests: scaled(chance, limit.requests), burst: scaled(chance, limit.burst), ..limit }
}

fn network(chance: &mut Random, scenario: &Scenario) -> Network {
    let timeout = scenario.timeout_ms * 1000;
    let shortest = chance.pick(&[50, 500, 1000]);
    let delay = (shortest, shortest * chance.pick(&[1, 2, 4]));
    let mut network = Network { delay, late: timeout * chance.pick(&[1, 3, 20, 40]), ..Network::default() };
    if chance.one_in(3) {
        return network;
    }
    let mut some = |most: u64| if chance.one_in(2) { chance.below(most) } else { 0 };
    network.slow = some(300);
    network.lost_calls = some(200);
    network.lost_replies = some(200);
    network.doubled_replies = some(200);
    network.refused = some(50);
    network.lost_wakes = some(100);
    // Rarely, because a run in which calls are doubled is checked less strictly.
    network.doubled_calls = if chance.one_in(6) { chance.below(200) } else { 0 };
    network
}
