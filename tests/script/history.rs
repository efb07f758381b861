//! Random histories of one bucket and its callers, out of one seed and drawn to where arithmetic breaks: the next
//! token, the full bucket, the end of a lease, the expiry, 2^53.

use std::mem;

use weir_sim::random::Random;
use weir_sim::root::{Acquire, EXACT, Reply, Root, Run};

use super::callers::{self, Caller, Fate, Lease};
use super::limits::{DAY_MS, HOUR_MS, Limit, Terms, YEAR_MS};

/// No call of ours has more.
const MOST_RUNS: u64 = 128;

/// What is served at most one by one where a run asks for a huge number of requests.
const ONE_BY_ONE: u64 = 64;

/// One call that reached the bucket, and what the oracle makes of it.
#[derive(Clone, Debug)]
pub struct Step {
    pub limit: Limit,
    /// Redis has no such key: this is the first call, or the key has expired.
    pub missing: bool,
    /// Its caller has given up and called again meanwhile.
    pub late: bool,
    pub clock: u64,
    /// How far the bucket's time was set back until now: with it, time only goes forward.
    pub shift: u64,
    /// What was spent of leases since the last call, and when by that time.
    pub spent: Vec<(u64, u64)>,
    /// The bucket that the call finds.
    pub before: Root,
    pub call: Acquire,
    pub reply: Reply,
    pub after: Root,
    /// The granted tokens that are spent at once.
    pub admitted: u64,
}

#[derive(Clone, Debug)]
pub struct History {
    /// No caller lies, so the limit is kept.
    pub honest: bool,
    pub steps: Vec<Step>,
}

struct World {
    honest: bool,
    /// Most calls come well within the lives of leases.
    calm: bool,
    limit: Limit,
    terms: Terms,
    clock: u64,
    /// The bucket's time.
    time: u64,
    /// How far it was set back in all.
    shift: u64,
    root: Root,
    callers: Vec<Caller>,
    past: Vec<Lease>,
    /// Calls that are still under way, though nobody waits for them any more.
    late: Vec<Acquire>,
    spent: Vec<(u64, u64)>,
}

/// Up to `length` calls at one key, from a full bucket on.
pub fn history(random: &mut Random, length: u64) -> History {
    let limit = Limit::random(random);
    let mut world = World {
        honest: !random.one_in(3),
        calm: random.one_in(3),
        limit,
        terms: Terms::random(random, limit),
        clock: clock(random),
        time: 0,
        shift: 0,
        root: Root::default(),
        callers: vec![Caller::default(); random.within(1, 4) as usize],
        past: Vec::new(),
        late: Vec::new(),
        spent: Vec::new(),
    };
    let changes = random.one_in(3);
    let mut steps = Vec::new();
    let length = random.within(1, length);
    while (steps.len() as u64) < length {
        if changes && random.one_in(20) {
            world.limit = world.limit.changed(random);
            world.terms = Terms::random(random, world.limit);
            world.late.clear();
        }
        steps.extend(world.step(random));
    }
    History { honest: world.honest, steps }
}

impl World {
    fn step(&mut self, random: &mut Random) -> Option<Step> {
        let (caller, fate) = (random.below(self.callers.len() as u64) as usize, Fate::random(random));
        if matches!(fate, Fate::Lost | Fate::Late) {
            let call = self.call(random, caller);
            self.late.extend((fate == Fate::Late).then_some(call));
            self.callers[caller].forget();
            return None;
        }
        self.clock = if self.calm && !random.one_in(8) {
            self.clock + random.below(self.terms.life_ms / 3 + 1)
        } else {
            next_clock(random, self.limit, self.terms, &self.root, self.clock)
        };
        // While the bucket's clock is behind, its time stands still; that of callers does, too. Where it was set back, time
        // goes on from there.
        let time = self.time.max(self.clock);
        let was_set_back = self.time > self.clock + 1000;
        let spent = self
            .callers
            .iter_mut()
            .flat_map(|caller| caller.spend(random, self.time, if was_set_back { self.time } else { time }));
        self.spent.extend(spent.map(|(time, tokens)| (time + self.shift, tokens)));
        self.spent.sort_unstable();
        if was_set_back {
            let back = self.time - self.clock;
            self.shift += back;
            self.callers.iter_mut().for_each(|caller| caller.set_back(back));
        }
        self.time = if was_set_back { self.clock } else { time };
        let missing = match self.root.expires_at {
            None => true,
            Some(expires_at) => self.clock > expires_at && random.one_in(2),
        };
        if missing {
            self.root = Root::default();
        } else if self.root.expires_at < Some(self.clock) {
            // Redis may keep a key a little longer.
            self.root.expires_at = Some(u64::MAX);
        }
        let late = !self.late.is_empty() && random.one_in(4);
        let call = if late { self.late.remove(0) } else { self.call(random, caller) };
        let before = self.root.clone();
        let reply = self.root.acquire(self.clock, &call);
        let caller = &mut self.callers[caller];
        let admitted = match fate {
            _ if late => 0,
            Fate::Answered => caller.accept(&call, &reply, self.time),
            _ => caller.forget(),
        };
        let (spent, after) = (mem::take(&mut self.spent), self.root.clone());
        let (limit, clock, shift) = (self.limit, self.clock, self.shift);
        assert!(missing || after.time == self.time, "one time for all");
        Some(Step { limit, missing, late, clock, shift, spent, before, call, reply, after, admitted })
    }

    fn call(&mut self, random: &mut Random, caller: usize) -> Acquire {
        let mut lease = self.callers[caller].report(random);
        if !self.honest && random.one_in(3) {
            lease = callers::lie(random, lease, &self.past);
        }
        self.past.push(lease);
        let Lease { end, size, tokens: carry, .. } = lease;
        let want = want(random, self.limit, carry);
        // Who waits gets less room for a lease, so half of the calls ask for nothing else.
        let asks_ahead = want > 0 && random.one_in(2);
        let runs = if asks_ahead { Vec::new() } else { runs(random, self.limit, &self.root) };
        let hold = random.one_in(5);
        let debt = match random.below(100) {
            0..3 => random.within(1, 5).min(self.limit.burst),
            3 => random.of_any_size(self.limit.burst),
            4 if !self.honest => (EXACT - 1) as u64 / self.limit.period_ms,
            _ => 0,
        };
        let number = random.of_any_size((1 << 53) - 1);
        Acquire { want, end, size, carry, hold, debt, number, runs, ..self.limit.call(self.terms) }
    }
}

/// A realistic moment to begin at.
pub fn clock(random: &mut Random) -> u64 {
    1_700_000_000_000 + random.below(100 * DAY_MS)
}

/// The clock at the next call.
fn next_clock(random: &mut Random, limit: Limit, terms: Terms, root: &Root, clock: u64) -> u64 {
    let call = limit.exact();
    let wait = |units: i128| u128::from(call.wait((units - call.capacity() + root.used).max(0)));
    let to_full = wait(call.capacity());
    // That moment or one beside it.
    let around =
        |random: &mut Random, middle: u128| middle.min(u128::from(YEAR_MS)) as i64 + random.below(3) as i64 - 1;
    let passed = match random.below(18) {
        0..5 => 0,
        5 => 1,
        6..8 => {
            let to_fit = wait(limit.exact().units(cost(random, limit, root)));
            around(random, to_fit)
        }
        8 => around(random, to_full),
        9 => around(random, u128::from(root.expires_at.unwrap_or(0).saturating_sub(clock))),
        10 => random.below(60_000) as i64,
        11 => random.below(2 * DAY_MS) as i64,
        12 => -(random.of_any_size(HOUR_MS) as i64),
        // Where the clock went back before: to around the latest moment that the bucket knows.
        13 => around(random, u128::from(root.time.saturating_sub(clock))),
        14 => around(random, u128::from(terms.life_ms)),
        15 => random.below(terms.life_ms) as i64,
        _ => match root.slots.len() as u64 {
            0 => random.below(1000) as i64,
            slots => {
                let slot = root.slots[random.below(slots) as usize];
                around(random, u128::from(slot.end.saturating_sub(clock)))
            }
        },
    };
    clock.saturating_add_signed(passed)
}

/// Nothing, a little, what the caller has, the burst, or far too much.
fn want(random: &mut Random, limit: Limit, carry: u64) -> u64 {
    match random.below(10) {
        0 | 1 => 0,
        2 | 3 => random.within(1, 10),
        4 => (carry + random.below(3)).saturating_sub(1),
        5 => random.of_any_size((1 << 53) - 1),
        6 => limit.burst,
        _ => random.of_any_size(limit.burst),
    }
}

fn runs(random: &mut Random, limit: Limit, root: &Root) -> Vec<Run> {
    let usual = [0, 1, 1, 1, 2, 2, 3, 5][random.below(8) as usize];
    let length = if random.one_in(100) { MOST_RUNS } else { usual };
    let run = |_| {
        let cost = cost(random, limit, root);
        let count = match random.below(6) {
            0 => random.below(3),
            1 | 2 => 1,
            3 => random.within(2, 5),
            4 => random.within(6, 40),
            _ if cost >= limit.burst / ONE_BY_ONE => random.of_any_size(1 << 53),
            _ => ONE_BY_ONE,
        };
        Run { cost, count }
    };
    (0..length).map(run).collect()
}

/// 1 to the burst.
fn cost(random: &mut Random, limit: Limit, root: &Root) -> u64 {
    let held = root.level(&limit.exact()).max(0) as u64 / limit.period_ms;
    let cost = match random.below(8) {
        0 => 1,
        1 => random.within(1, 10),
        2 => random.of_any_size(limit.burst),
        3 | 4 => random.within(1, limit.burst),
        5 => limit.burst,
        6 => limit.burst / random.within(2, ONE_BY_ONE),
        _ => (held + random.below(3)).saturating_sub(1),
    };
    cost.clamp(1, limit.burst)
}
