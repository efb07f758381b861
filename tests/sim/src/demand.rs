//! Who asks, when and where.

use crate::random::Random;
use crate::scenario::{Arrival, Scenario};

/// Requests to come, one after the other.
pub trait Demand {
    fn next(&mut self) -> Option<Arrival>;
}

/// Requests that are written out.
pub struct Listed<'a>(pub std::slice::Iter<'a, Arrival>);

impl Demand for Listed<'_> {
    fn next(&mut self) -> Option<Arrival> {
        self.0.next().copied()
    }
}

/// The requests of a short scenario: steady, in bursts, or after idling; even, skewed or hopping.
pub fn short(chance: &mut Random, scenario: &Scenario) -> Vec<Arrival> {
    let limit = scenario.limits.0[0];
    let seconds = scenario.ends as f64 / 1e6;
    let refilled = limit.requests as f64 * 1000.0 / limit.period_ms as f64 * seconds;
    // From well below to far above what the buckets give, and within what a short run can take.
    let load = chance.pick(&[0.3, 0.8, 1.0, 1.5, 4.0]);
    let wanted = (limit.burst as f64 + refilled) * load * f64::from(scenario.buckets.min(3));
    let count = (wanted as u64).clamp(4, 150);
    let (proxies, workers) = (u64::from(scenario.proxies), u64::from(scenario.workers));
    let (burst_size, skewed, hopping) = (chance.pick(&[1, 1, 2, 5, 40]), chance.one_in(3), chance.one_in(3));
    let impatient = if chance.one_in(3) { chance.below(300) } else { 0 };
    let hop = chance.pick(&[50_000, 300_000, 1_000_000]);
    let mut arrivals = Vec::with_capacity(count as usize);
    let mut at = chance.below(20_000);
    let mean = scenario.ends / count.div_ceil(burst_size).max(1);
    while (arrivals.len() as u64) < count && at < scenario.ends {
        for _ in 0..burst_size {
            let proxy = match () {
                () if hopping => at / hop % proxies,
                () if skewed && !chance.one_in(5) => 0,
                () => chance.below(proxies),
            };
            arrivals.push(Arrival {
                at,
                proxy: proxy as u16,
                worker: chance.below(workers) as u16,
                bucket: chance.below(u64::from(scenario.buckets)) as u32,
                cost: chance.pick(&scenario.costs),
                tier: 0,
                patience: if chance.thousandths(impatient) { 1 + chance.below(30_000) as u32 } else { 0 },
            });
            at += chance.below(200);
        }
        at += if chance.one_in(30) { mean * chance.below(20) } else { chance.below(2 * mean + 1) };
    }
    arrivals
}

/// Where the requests of a tenant arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// At any proxy.
    Even,
    /// Four of five at one, each tenant at its own.
    Skewed,
    /// All at one, another one each second.
    Hopping,
}

/// Whose requests they are.
#[derive(Clone, Debug)]
pub enum Tenants {
    Even(u32),
    /// By rank, each as likely as 1 / rank; what stands here is the sum up to each rank.
    Zipf(Vec<f64>),
}

impl Tenants {
    pub fn zipf(tenants: u32) -> Tenants {
        let mut sum = 0.0;
        Tenants::Zipf(
            (1..=tenants)
                .map(|rank| {
                    sum += 1.0 / f64::from(rank);
                    sum
                })
                .collect(),
        )
    }

    pub fn count(&self) -> u32 {
        match self {
            Tenants::Even(tenants) => *tenants,
            Tenants::Zipf(sums) => sums.len() as u32,
        }
    }

    fn draw(&self, chance: &mut Random) -> u32 {
        match self {
            Tenants::Even(tenants) => chance.below(u64::from(*tenants)) as u32,
            Tenants::Zipf(sums) => {
                let drawn = chance.fraction() * sums.last().copied().unwrap_or_default();
                (sums.partition_point(|sum| *sum < drawn) as u32).min(self.count() - 1)
            }
        }
    }
}

/// Requests without memory (exponential gaps), for as long as the run lasts.
pub struct Steady {
    pub chance: Random,
    pub at: f64,
    /// Requests per second; after the moment (in microseconds) so many.
    pub rates: Vec<(u64, f64)>,
    pub until: u64,
    pub proxies: u16,
    pub workers: u16,
    pub tenants: Tenants,
    pub spread: Spread,
}

impl Demand for Steady {
    fn next(&mut self) -> Option<Arrival> {
        loop {
            let rate = self.rates.iter().rev().find(|(from, _)| *from as f64 <= self.at).map_or(0.0, |(_, rate)| *rate);
            let next = self.rates.iter().map(|(from, _)| *from as f64).find(|from| *from > self.at);
            let gap = -(1.0 - self.chance.fraction()).ln() / rate * 1e6;
            match next {
                // Without memory, the rest of a gap is drawn anew where the rate changes.
                Some(next) if self.at + gap >= next => self.at = next,
                _ => {
                    self.at += gap;
                    break;
                }
            }
        }
        if self.at >= self.until as f64 {
            return None;
        }
        let at = self.at as u64;
        let bucket = self.tenants.draw(&mut self.chance);
        let proxies = u64::from(self.proxies);
        let any = self.chance.below(proxies);
        let proxy = match self.spread {
            Spread::Even => any,
            Spread::Skewed if self.chance.one_in(5) => any,
            Spread::Skewed => u64::from(bucket) % proxies,
            Spread::Hopping => (at / 1_000_000 + u64::from(bucket)) % proxies,
        };
        let worker = self.chance.below(u64::from(self.workers)) as u16;
        Some(Arrival { at, proxy: proxy as u16, worker, bucket, cost: 1, tier: 0, patience: 0 })
    }
}
