//! Those who call one bucket: what they hold, what they spend of it, and what they report, be it true or not.

use weir_sim::random::Random;
use weir_sim::root::{Acquire, Reply};

#[derive(Clone, Debug, Default)]
pub struct Caller {
    lease: Lease,
}

/// What the caller knows of its lease; all zero: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    pub end: u64,
    pub size: u64,
    /// What of it is unspent.
    pub tokens: u64,
    /// Until when it may be spent, by the bucket's time.
    pub until: u64,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// It never reached the bucket.
    Lost,
    /// It reaches the bucket later, when its caller has given up.
    Late,
    /// It did reach the bucket, but the caller does not know.
    ReplyLost,
}

impl Fate {
    pub fn random(random: &mut Random) -> Fate {
        match random.below(40) {
            0 => Fate::Lost,
            1 => Fate::Late,
            2 => Fate::ReplyLost,
            _ => Fate::Answered,
        }
    }
}

impl Caller {
    /// Spends some tokens, all or none, as early as it can, as late as it can, or between; returns when and how many.
    pub fn spend(&mut self, random: &mut Random, from: u64, to: u64) -> Option<(u64, u64)> {
        let Lease { until, tokens, .. } = self.lease;
        if tokens == 0 || until <= from || random.one_in(2) {
            return None;
        }
        let last = to.min(until - 1);
        let time = match random.below(4) {
            0 => from,
            1 => random.within(from, last),
            _ => last,
        };
        let spent = if random.one_in(2) { tokens } else { random.within(1, tokens) };
        self.lease.tokens -= spent;
        Some((time, spent))
    }

    /// The bucket's clock was set back by so much; the caller's was not.
    pub fn set_back(&mut self, ms: u64) {
        self.lease.until = self.lease.until.saturating_sub(ms);
    }

    /// The lease as it is; what is unspent may be given up.
    pub fn report(&mut self, random: &mut Random) -> Lease {
        if random.one_in(4) {
            self.lease.tokens = random.within(0, self.lease.tokens);
        }
        self.lease
    }

    /// A caller that does not know what became of its call has nothing any more, and reports nothing the next time.
    /// Returns the tokens that are spent at once: none.
    pub fn forget(&mut self) -> u64 {
        self.lease = Lease::default();
        0
    }

    /// Returns the tokens that are spent at once.
    pub fn accept(&mut self, call: &Acquire, reply: &Reply, time: u64) -> u64 {
        let granted = call.cost(&reply.granted);
        let held = reply.kept + reply.extra + if call.hold { granted } else { 0 };
        self.lease = Lease { end: reply.end, size: held, tokens: held, until: time + reply.valid_ms };
        if call.hold { 0 } else { granted }
    }
}

/// What no honest caller reports: `past` are the leases that were reported before, by any caller.
pub fn lie(random: &mut Random, truth: Lease, past: &[Lease]) -> Lease {
    let Lease { end, size, tokens, .. } = truth;
    let earlier = |random: &mut Random| match past.len() {
        0 => truth,
        length => past[random.below(length as u64) as usize],
    };
    match random.below(8) {
        0 => Lease { size: 0, ..truth },
        1 => Lease { end: (end + random.below(3)).saturating_sub(1), ..truth },
        2 => Lease { end: random.of_any_size(1 << 47), ..truth },
        3 => Lease { size: random.of_any_size(size.saturating_mul(2).max(1)), ..truth },
        4 => Lease { size: random.of_any_size((1 << 53) - 1), tokens: random.of_any_size((1 << 53) - 1), ..truth },
        5 => Lease { tokens: tokens.saturating_add(random.of_any_size(size.max(1))), ..truth },
        6 => earlier(random),
        _ => past.last().copied().unwrap_or(truth),
    }
}
