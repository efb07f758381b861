//! Limits that come into force and go, and what they promise.

use weir::engine::Engine;

use super::{Bucket, Event, Spot, World};
use crate::check::Limit;
use crate::scenario::{Mode, Scenario};

impl World<'_> {
    pub(super) fn reload(&mut self, limit: usize, spread: u64) {
        let network = &self.scenario.network;
        let call = (10 * self.scenario.timeout_ms).max(1000) + self.scenario.timeout_ms + 60;
        let until = self.now + spread + call * 1000 + 2 * (network.delay.1 + network.late) + 1000;
        self.older.push((self.limit, until));
        self.limit = limit;
        self.at(until, Event::Settle);
        self.loosen();
        for proxy in 0..self.scenario.proxies {
            for worker in 0..self.scenario.workers {
                let life = self.proxies[usize::from(proxy)].workers[usize::from(worker)].life;
                let at = self.now + self.chance.below(spread + 1);
                self.at(at, Event::NewPlan(Spot { proxy, worker, life }, limit as u16));
            }
        }
    }

    /// A limit is in use no more. What was lent under it stays out; a lower rate keeps nobody from a bucket that was due
    /// to be full, and so forgotten, earlier.
    pub(super) fn settle(&mut self) {
        self.older.retain(|(_, until)| *until > self.now);
        let (_, now) = self.limiter.time(self.now);
        for bucket in 0..self.scenario.roots() {
            let (limit, lent) = (self.loosest(bucket), self.limiter.lent(bucket));
            let Bucket { promise, ideal, .. } = &mut self.buckets[bucket as usize];
            if limit == promise.limit {
                continue;
            }
            promise.forgive(limit.units(lent));
            if limit.requests < promise.limit.requests && promise.window.is_none() {
                promise.pass(now);
                promise.forgive(promise.missing());
            }
            promise.change(limit, now);
            ideal.change(limit, now);
        }
    }

    /// The loosest of all limits that may be in use.
    fn loosest(&self, bucket: u32) -> Limit {
        let rule = self.scenario.rule(bucket);
        let versions = self.older.iter().map(|(older, _)| *older).chain([self.limit]);
        let limits = versions.flat_map(|version| self.scenario.tier_limits(rule, version));
        limits.fold(self.scenario.limit(rule, self.limit), Limit::loosest)
    }

    /// The promise is that of the loosest limit in use. Where one is raised, the time since the last call refills at the
    /// new rate, too.
    fn loosen(&mut self) {
        let (clock, now) = self.limiter.time(self.now);
        for bucket in 0..self.scenario.roots() {
            let limit = self.loosest(bucket);
            let since = clock.saturating_sub(self.limiter.root(bucket).time);
            let Bucket { promise, ideal, .. } = &mut self.buckets[bucket as usize];
            let before = promise.limit;
            let refilled = i128::from(limit.requests.saturating_sub(before.requests)) * i128::from(since);
            promise.forgive(if promise.window.is_none() { refilled.min(limit.capacity()) } else { 0 });
            promise.change(limit, now);
            ideal.change(limit, now);
        }
    }
}

/// What is promised of a bucket. Where tokens are spent first, each proxy may spend a whole bucket before it hears of the
/// others, and what comes back until then.
pub(super) fn promised(scenario: &Scenario, mode: Mode, limit: Limit) -> Limit {
    let Mode::Async { interval_ms } = mode else {
        return limit;
    };
    if scenario.windows.is_some() {
        // Each proxy alone keeps to the limit in what it takes for a window, and of those two may meet one of the root.
        return Limit { burst: limit.burst * 2 * u64::from(scenario.proxies), ..limit };
    }
    let until_heard = interval_ms + 2 * Engine::<u32>::timer_period(&scenario.policy(0)).0 + 100;
    let burst = limit.burst + (limit.requests * until_heard).div_ceil(limit.period_ms);
    Limit { burst: burst * u64::from(scenario.proxies), ..limit }
}
