//! What goes wrong, and by how much the promise is looser for it.

use super::{Bucket, Event, World, note};
use crate::check::Promise;
use crate::faults::Kind;

impl World<'_> {
    pub(super) fn fault(&mut self, kind: Kind) {
        note!(self, "{kind:?}");
        match kind {
            Kind::Failover { lost_us } => {
                self.strict = false;
                for (bucket, tokens) in self.limiter.undo_since(self.now.saturating_sub(lost_us)) {
                    self.forgive(bucket, |promise| promise.limit.units(tokens));
                }
            }
            Kind::Flush => (0..self.scenario.roots()).for_each(|bucket| self.lose(bucket)),
            Kind::LoseKey(bucket) => self.lose(bucket),
            Kind::ForgetScripts => self.limiter.knows_script = false,
            Kind::ReadOnly { us } => self.limiter.read_only_until = self.now + us,
            Kind::RootClock { by_ms } => {
                if by_ms > 0 {
                    self.forget_lent();
                }
                // Back by more than a second: what proxies hold ends by a clock that there is no more. The promise holds.
                self.behind += by_ms.min(0).unsigned_abs();
                self.strict &= self.behind <= 1000;
                self.limiter.set_clock(self.now, by_ms);
            }
            Kind::ProxyClock { proxy, by_ms } => {
                let proxy = &mut self.proxies[usize::from(proxy)];
                proxy.clock.set(self.now, by_ms);
                if by_ms < 0 {
                    // Its time stands still until it is read next, and leases with it.
                    proxy.lag += 51_000;
                    self.forget_lent();
                }
            }
            Kind::Partition { proxy, us, replies_only } => {
                self.proxies[usize::from(proxy)].partition = (self.now + us, replies_only);
            }
            Kind::WorkerDies { proxy, worker } => self.die(proxy, worker),
            Kind::ProxyDies { proxy, us } => {
                (0..self.scenario.workers).for_each(|worker| self.die(proxy, worker));
                let dead = &mut self.proxies[usize::from(proxy)];
                dead.shared.wipe();
                dead.holdings.clear();
                dead.up = false;
                self.at(self.now + us, Event::Revive(proxy));
            }
            Kind::Wipe { proxy } => {
                let proxy = &mut self.proxies[usize::from(proxy)];
                proxy.shared.wipe();
                proxy.wiped = true;
                proxy.wipes += 1;
            }
            Kind::LosePuts { proxy, puts } => self.proxies[usize::from(proxy)].shared.lose(puts),
            Kind::Reload { limit, spread_us } => self.reload(limit, spread_us),
        }
    }

    pub(super) fn forgive(&mut self, bucket: u32, units: impl Fn(&Promise) -> i128) {
        let Bucket { promise, ever, .. } = &mut self.buckets[bucket as usize];
        for promise in [promise, ever] {
            promise.forgive(units(promise));
        }
    }

    /// A lost bucket admits at most burst - level more.
    fn lose(&mut self, bucket: u32) {
        self.strict = false;
        self.limiter.time(self.now);
        let Bucket { promise, .. } = &self.buckets[bucket as usize];
        let missing = self.limiter.missing(bucket, promise.limit, promise.window);
        self.forgive(bucket, |_| missing);
        self.limiter.lose(bucket);
    }

    /// What is lent may be spent after the root has stopped to count it.
    fn forget_lent(&mut self) {
        self.strict = false;
        for bucket in 0..self.scenario.roots() {
            let lent = self.limiter.lent(bucket);
            self.forgive(bucket, |promise| promise.limit.units(lent));
        }
    }
}
