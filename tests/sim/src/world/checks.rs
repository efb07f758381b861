//! What must hold at each step and at the end.

use weir::local::table::{SET_BYTES, WAYS};

use super::{Bucket, Tally, World, note};
use crate::check::Holding;
use crate::scenario::Mode;

impl World<'_> {
    /// A proxy has let a request pass on its own account.
    pub(super) fn spend(&mut self, proxy: u16, bucket: u32, cost: u64) {
        let (clock, now) = self.limiter.time(self.now);
        note!(self, "proxy {proxy} spends {cost} of {bucket}");
        self.buckets[bucket as usize].got += i128::from(cost);
        if let Mode::Async { .. } = self.buckets[bucket as usize].mode {
            return self.admit(bucket, cost, now);
        }
        let clock = if self.strict { clock } else { 0 };
        let holding = self.proxies[usize::from(proxy)].holdings.entry(bucket).or_default();
        // Where the root has granted tokens to some of those who wait for several buckets, nobody here can tell who of them
        // has got those, and who was served from the lease; that the limit holds is checked all the same.
        if let Err(missing) = holding.spend(cost, clock)
            && !self.buckets[bucket as usize].is_loose
        {
            self.violate(format!("proxy {proxy} has spent {missing} tokens of {bucket} that no live lease holds"));
        }
        self.admit(bucket, cost, now);
    }

    pub(super) fn admit(&mut self, bucket: u32, tokens: u64, now: u64) {
        let Bucket { ever, .. } = &mut self.buckets[bucket as usize];
        if let Err(units) = ever.admit(tokens, now) {
            let limit = ever.limit;
            self.violate(format!("bucket {bucket}: {units} units more than the largest limit, {limit:?}, allows"));
        }
        let Bucket { promise, .. } = &mut self.buckets[bucket as usize];
        if let Err(units) = promise.admit(tokens, now) {
            let (over, limit) = (units as u64, promise.limit);
            self.tally.over += over.div_ceil(limit.period_ms);
            self.violate(format!("bucket {bucket}: {over} units more than {limit:?} allows were admitted"));
        }
    }

    /// A request was refused: do its tokens lie idle somewhere?
    pub(super) fn strand(&mut self, bucket: u32, cost: u64) {
        if !matches!(self.scenario.modes[..], [Mode::Lease { .. }]) {
            return;
        }
        let clock = self.limiter.time(self.now).0;
        let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&bucket));
        let held: u64 = held.map(|holding| holding.unspent(clock)).sum();
        if held >= cost {
            self.buckets[bucket as usize].stranded_since.get_or_insert(self.now);
        } else {
            self.unstrand(bucket);
        }
    }

    pub(super) fn unstrand(&mut self, bucket: u32) {
        if let Some(since) = self.buckets[bucket as usize].stranded_since.take() {
            self.tally.stranded = self.tally.stranded.max(self.now - since);
        }
    }

    /// What a bucket has lent is used.
    pub(super) fn check_root(&mut self, bucket: u32) {
        let root = self.limiter.root(bucket);
        let limit = self.buckets[bucket as usize].promise.limit;
        let unit = if self.scenario.windows.is_some() { limit.period_ms } else { 1 };
        let (used, lent) = (root.used * i128::from(unit), limit.units(root.lent()));
        if used < lent {
            self.violate(format!("bucket {bucket}: {lent} units are lent, and only {used} are used"));
        }
    }

    /// What all proxies may hold of a bucket is lent.
    pub(super) fn check_held(&mut self, bucket: u32) {
        if !self.strict || self.is_long || self.buckets[bucket as usize].is_loose {
            return;
        }
        // A clock that went back by a second at most brings no lease back.
        let clock = self.limiter.time(self.now).0.max(self.limiter.root(bucket).time);
        let held = self.proxies.iter().filter(|proxy| !proxy.wiped).filter_map(|proxy| proxy.holdings.get(&bucket));
        let held: u64 = held.map(|holding| holding.unspent(clock)).sum();
        let lent = self.limiter.lent(bucket);
        if held > lent {
            self.violate(format!("bucket {bucket}: proxies hold {held} tokens, and only {lent} are lent"));
        }
    }

    /// What must hold when all is over.
    pub(super) fn end(&mut self) {
        if let Some(request) = self.waiting.iter().position(Option::is_some) {
            self.violate(format!("request {request} still waits, and nothing happens any more"));
        }
        for number in 0..self.proxies.len() {
            let proxy = &self.proxies[number];
            if let Some(worker) = proxy.workers.iter().position(|worker| !worker.flow.is_idle()) {
                self.violate(format!("worker {worker} of proxy {number} is not idle, and nothing happens any more"));
            }
            let proxy = &self.proxies[number];
            let sets = self.scenario.table_entries.div_ceil(WAYS as u64) as usize;
            // The sets, the seed and the breaker. After each wipe a table may have another seed.
            let most = (proxy.wipes + 1) * (sets * SET_BYTES + 256);
            let bytes = proxy.shared.bytes();
            if bytes > most {
                self.violate(format!("proxy {number} keeps {bytes} bytes, at most {most} are allowed"));
            }
        }
        self.check_use();
        self.check_debits();
    }

    fn some_leave(&self) -> bool {
        self.scenario.arrivals.iter().any(|arrival| arrival.patience > 0)
    }

    /// Where nothing goes wrong, what has left a bucket is what requests have got that passed, and what is unspent: a
    /// request that is refused costs no bucket anything.
    fn check_debits(&mut self) {
        let may_forget = self.scenario.roots() as usize > WAYS;
        if may_forget || self.some_leave() || !self.scenario.is_calm() || self.is_long || self.tally.failed > 0 {
            return;
        }
        for number in 0..self.scenario.roots() {
            let Bucket { out, got, is_loose, mode, .. } = self.buckets[number as usize];
            if is_loose || matches!(mode, Mode::Async { .. }) {
                continue;
            }
            let held = self.proxies.iter().filter_map(|proxy| proxy.holdings.get(&number));
            let held: u64 = held.map(Holding::ever_unspent).sum();
            if out != got + i128::from(held) {
                self.violate(format!("bucket {number}: {out} are out, but requests got {got} and {held} are unspent"));
            }
        }
    }

    /// Where nothing goes wrong, those who ask get nearly what one bucket for all would give them.
    fn check_use(&mut self) {
        // A request may wait for the call before its own, too. Where costs differ, it matters who comes first.
        let waits = 6 * self.scenario.network.delay.1 > self.scenario.timeout_ms * 1000;
        if self.some_leave()
            || self.is_long
            || !self.scenario.is_calm()
            || self.tally.ideal < 50
            || waits
            || self.scenario.costs.len() > 1
            || self.scenario.tiers
        {
            return;
        }
        let Tally { admitted, ideal, .. } = self.tally;
        let limit = self.scenario.limits.0[0];
        // With leases, what lies idle in another proxy cannot be had for a while.
        let idle = match self.scenario.modes[..] {
            [Mode::Exact] => 0,
            // A bucket that is full while its proxies spend refills nothing, so a small burst is not used up.
            [Mode::Async { interval_ms }] if limit.burst * limit.period_ms < 4 * limit.requests * interval_ms => return,
            // What was held for a request stays lent until it is reported, so a small burst that comes back sooner is not
            // used up.
            [_, _, ..] if limit.burst < 64 => return,
            _ => u64::from(self.scenario.buckets) * limit.burst / 2,
        };
        // What one rule holds for a request while another refuses it comes back a little later.
        let least = if self.scenario.modes.len() == 1 { 90 } else { 50 };
        if (admitted + idle) * 100 < ideal * least {
            self.violate(format!("{admitted} tokens were admitted, and an ideal bucket gives {ideal}"));
        }
    }
}
