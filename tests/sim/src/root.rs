//! The root: one bucket as `lua/token_bucket.lua` keeps it in Redis, in plain and naive Rust.
//!
//! An oracle for the script, so it must not share a shortcut with it: whole numbers of 128 bits, one request at a
//! time, no clipped times. It reads like the algorithm in the design; each safety rule of that is one line or one small
//! block, marked with the rule's number, so that a test can break one on purpose. Doubles only where the script's
//! result depends on their rounding.

mod window;

/// Scripts count in doubles, which are exact for whole numbers below this.
pub const EXACT: i128 = 1 << 53;

/// Which script is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    #[default]
    TokenBucket,
    /// `lua/fixed_window.lua`: see `root/window.rs`. Its `burst` are its requests, and a unit is a token.
    FixedWindow,
}

/// One bucket, as it is stored. A unit is 1/period of a token: each millisecond adds `requests` units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Root {
    /// Units that were used, or are lent, and have not come back. More than a burst where that was lowered, or a caller
    /// reported a debt.
    pub used: i128,
    /// The latest moment that the bucket has seen, in ms.
    pub time: u64,
    /// Lent tokens, in the order in which the slots were opened; none is empty.
    pub slots: Vec<Slot>,
    /// The key is gone once the clock is past this. None: there is no key, which means that nothing is used.
    pub expires_at: Option<u64>,
}

/// Leases that end at the same moment. That moment is their id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub kind: Kind,
    pub tokens: u64,
    pub end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Long = 1,
    Short = 2,
}

/// `count` requests in a row that cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub cost: u64,
    pub count: u64,
}

/// The arguments of a call, as the head of the script explains them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acquire {
    pub algorithm: Algorithm,
    /// How long after multiples of the period windows begin.
    pub offset_ms: u64,
    pub requests: u64,
    pub period_ms: u64,
    pub burst: u64,
    pub life_ms: u64,
    pub lend: u64,
    pub want: u64,
    pub end: u64,
    pub size: u64,
    pub carry: u64,
    pub hold: bool,
    pub debt: u64,
    /// Which call this is; the reply says it again.
    pub number: u64,
    pub runs: Vec<Run>,
}

/// The script's reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    pub number: u64,
    pub level: i64,
    pub reset_ms: u64,
    pub end: u64,
    pub valid_ms: u64,
    pub kept: u64,
    pub extra: u64,
    pub limited: bool,
    /// Of each run, how many were granted: the first ones.
    pub granted: Vec<u64>,
}

impl Root {
    /// The tokens that are lent and not known to be back.
    pub fn lent(&self) -> u64 {
        self.slots.iter().map(|slot| slot.tokens).sum()
    }

    /// What is left of the burst that a caller names. Below nothing where more was used than that.
    pub fn level(&self, call: &Acquire) -> i128 {
        // Rule 7: a change of limit moves nothing.
        call.capacity() - self.used
    }

    pub fn acquire(&mut self, clock: u64, call: &Acquire) -> Reply {
        if self.expires_at.is_none_or(|expires_at| clock > expires_at) {
            *self = Root { used: 0, time: clock, slots: Vec::new(), expires_at: None };
        }
        if call.algorithm == Algorithm::FixedWindow {
            return self.acquire_window(clock, call);
        }
        // Rule 9: the bucket's time stands still while the clock is behind, but for one that was set back.
        let now = clock.max(self.time);
        let now = if self.time > clock + 1000 { self.set_back(clock, call) } else { now };
        // Rule 3: refill, roll, take the old lease off, grant; in this order.
        self.refill(now, call);
        self.roll(now);
        let taken = self.take_off(call);
        // Rule 2: only what was taken off is carried on or given back.
        let carry = call.carry.min(taken);
        let kept = carry.min(call.want);
        self.give_back(carry - kept, kept, call);
        // What doubles cannot hold is forgotten.
        self.used = (self.used + call.units(call.debt)).min(EXACT - 1);

        let whole = self.level(call) + call.units(self.lent() + kept);
        let rich = whole > call.capacity() - call.units(call.lend);
        let granted: Vec<u64> = call.runs.iter().map(|&run| self.grant(run, call)).collect();
        let all = granted.iter().zip(&call.runs).all(|(&granted, run)| granted == run.count);
        let (extra, limited) = if all { self.extra(whole, rich, kept, call) } else { (0, false) };
        self.used += call.units(extra);

        // Rule 1: what the caller holds is lent; so is what was granted if it may be spent later.
        let held = if call.hold { call.cost(&granted) } else { 0 };
        let size = kept + extra + held;
        let (end, valid_ms) = if size > 0 { self.open(size, rich, now, call) } else { (0, 0) };

        self.slots.retain(|slot| slot.tokens > 0);
        self.time = now;
        self.expires_at = Some(clock + self.expiry_ms(clock, call));
        Reply {
            number: call.number,
            level: self.level(call).try_into().expect("levels are below 2^53"),
            reset_ms: call.wait(self.used),
            end,
            valid_ms,
            kept,
            extra,
            limited,
            granted,
        }
    }

    /// Time goes on from an earlier moment: nothing has come back, and no lease ends before it would have.
    fn set_back(&mut self, clock: u64, call: &Acquire) -> u64 {
        for at in 0..self.slots.len() {
            let Slot { kind, end, .. } = self.slots[at];
            let two_lives = clock + 2 * call.life_of(kind);
            if end > two_lives {
                self.slots[at].end = self.unused(two_lives.max(clock + (end - self.time)));
            }
        }
        self.time = clock;
        clock
    }

    fn refill(&mut self, now: u64, call: &Acquire) {
        let gained = i128::from(now - self.time) * i128::from(call.requests);
        // Rule 3: down to what is lent, slots that have ended since included: their tokens were out until then.
        let least = call.units(self.lent());
        self.used = (self.used - gained).max(least);
    }

    /// A dead caller's lease comes back by itself.
    fn roll(&mut self, now: u64) {
        // Rule 5: a lease is over at its end, no earlier.
        self.slots.retain(|slot| slot.end > now);
    }

    /// Closes the caller's lease, and returns how many of its tokens were still counted.
    fn take_off(&mut self, call: &Acquire) -> u64 {
        // Rule 8: of the lease that the caller names, once, and never more than is counted.
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.end == call.end) else { return 0 };
        let taken = call.size.min(slot.tokens);
        slot.tokens -= taken;
        self.slots.retain(|slot| slot.tokens > 0);
        taken
    }

    fn give_back(&mut self, back: u64, kept: u64, call: &Acquire) {
        // Rule 3: down to what is lent; what the caller keeps is.
        let least = call.units(self.lent() + kept);
        self.used = (self.used - call.units(back)).max(least);
    }

    /// Each request in order, whole if it fits. All of a run cost the same, so after the first refusal all are refused.
    fn grant(&mut self, run: Run, call: &Acquire) -> u64 {
        let cost = call.units(run.cost);
        let mut take = |_: &u64| {
            // Rule 4: never more than is there.
            let fits = cost <= self.level(call);
            if fits {
                self.used += cost;
            }
            fits
        };
        (0..run.count).take_while(&mut take).count() as u64
    }

    /// New tokens for the caller's lease, and whether they are fewer than wanted because the bucket is scarce.
    fn extra(&self, whole: i128, rich: bool, kept: u64, call: &Acquire) -> (u64, bool) {
        if call.want <= kept {
            return (0, false);
        }
        // Rule 4: no more than is there; a quarter of it, so that the next caller finds something, too.
        let quarter = |room: i128| room.max(0) / call.units(4);
        if rich {
            let room = self.level(call).min(call.units(call.lend) - call.units(self.lent() + kept));
            let wanted = i128::from(call.want - kept);
            let extra = if call.burst < 64 { 0 } else { wanted.min(quarter(room)) };
            (extra as u64, false)
        } else {
            // As much of what is wanted as the time to full is of 10 s.
            let share = (call.capacity() - whole) as f64 / (call.requests as f64 * 10000.0);
            let wanted = (call.want as f64 * share.min(1.0)).ceil() as i128 - i128::from(kept);
            let extra = wanted.min(quarter(self.level(call))).max(0);
            (extra as u64, extra < wanted)
        }
    }

    /// Counts a new lease, and returns its end, and for how long it may be spent: never longer than two lives.
    fn open(&mut self, size: u64, rich: bool, now: u64, call: &Acquire) -> (u64, u64) {
        let small = size <= (call.burst / 64).clamp(3, 64);
        let kind = if rich && small { Kind::Long } else { Kind::Short };
        self.open_slot(size, kind, call.life_of(kind), now)
    }

    fn open_slot(&mut self, size: u64, kind: Kind, life: u64, now: u64) -> (u64, u64) {
        let ends: Vec<u64> = self.slots.iter().filter(|slot| slot.kind == kind).map(|slot| slot.end).collect();
        let end = match ends[..] {
            // Two slots of a kind at most: the previous one only runs out.
            [.., _, current] => current,
            [current] if current - now >= life => current,
            // Rule 7: an end is never moved, and a later slot ends later.
            [current] => self.unused(current + life),
            [] => self.unused(now + life),
        };
        match self.slots.iter_mut().find(|slot| slot.end == end) {
            Some(slot) => slot.tokens += size,
            None => self.slots.push(Slot { kind, tokens: size, end }),
        }
        (end, (end - now).min(2 * life))
    }

    /// Rule 8: an end is a lease's id, so no two slots have the same.
    fn unused(&self, end: u64) -> u64 {
        if self.slots.iter().any(|slot| slot.end == end) { self.unused(end + 1) } else { end }
    }

    /// Rule 10: until it would be full with nothing lent, and a second. It is the one number that can pass 2^53, so it
    /// is rounded where the script rounds it.
    fn expiry_ms(&self, clock: u64, call: &Acquire) -> u64 {
        let newest = self.slots.iter().map(|slot| slot.end).max().unwrap_or(self.time);
        let reset_ms = call.wait(self.used) as f64;
        let until_full = (newest - self.time) as f64 + call.wait(call.units(self.lent())) as f64;
        // A clock that is behind has that way to go first.
        ((self.time - clock) as f64 + reset_ms.max(until_full) + 1000.0) as u64
    }

    /// The bytes that the script stores. None: no key.
    pub fn encode(&self) -> Option<Vec<u8>> {
        self.expires_at?;
        let mut bytes = [(self.used as f64).to_le_bytes(), (self.time as f64).to_le_bytes()].concat();
        for slot in &self.slots {
            assert!(slot.tokens < 1 << 48 && slot.end < 1 << 48, "six bytes hold {slot:?}");
            bytes.push(slot.kind as u8);
            bytes.extend(&slot.tokens.to_le_bytes()[..6]);
            bytes.extend(&slot.end.to_le_bytes()[..6]);
        }
        Some(bytes)
    }
}

impl Acquire {
    pub fn units(&self, tokens: u64) -> i128 {
        let unit = if self.algorithm == Algorithm::TokenBucket { self.period_ms } else { 1 };
        i128::from(tokens) * i128::from(unit)
    }

    pub fn capacity(&self) -> i128 {
        self.units(self.burst)
    }

    /// The wait in ms until `missing` units have come, rounded up.
    pub fn wait(&self, missing: i128) -> u64 {
        let requests = i128::from(self.requests);
        ((missing + requests - 1) / requests).try_into().expect("what is missing is not negative")
    }

    /// How long a slot of this kind takes leases, and then lives on at least.
    fn life_of(&self, kind: Kind) -> u64 {
        match kind {
            // Where the clock was set back, each lease keeps the time that it had left.
            _ if self.algorithm == Algorithm::FixedWindow => 0,
            Kind::Long => self.life_ms,
            Kind::Short => self.short_life_ms(),
        }
    }

    /// How long a lease lives at least.
    pub fn short_life_ms(&self) -> u64 {
        self.life_ms.min((3 * self.wait(self.capacity())).max(3000))
    }

    /// The tokens that were granted.
    pub fn cost(&self, granted: &[u64]) -> u64 {
        self.runs.iter().zip(granted).map(|(run, count)| run.cost * count).sum()
    }

    pub fn to_args(&self) -> Vec<u64> {
        let Acquire { requests, period_ms, life_ms, lend, want, end, size, carry, hold, debt, number, .. } = *self;
        let third = if self.algorithm == Algorithm::TokenBucket { self.burst } else { self.offset_ms };
        let mut args = vec![requests, period_ms, third, life_ms, lend, want, end, size, carry];
        args.extend([u64::from(hold), debt, number]);
        args.extend(self.runs.iter().flat_map(|run| [run.cost, run.count]));
        args
    }

    /// None for arguments that the script's caller promises not to send.
    pub fn from_args(args: &[u64]) -> Option<Acquire> {
        Acquire::read(Algorithm::TokenBucket, args)
    }

    /// The same for a script.
    pub fn read(algorithm: Algorithm, args: &[u64]) -> Option<Acquire> {
        let (&[requests, period_ms, third, life_ms, lend, want, end, size, carry, hold, debt, number], runs) =
            args.split_first_chunk::<12>()?;
        let (runs, []) = runs.as_chunks::<2>() else { return None };
        let runs: Vec<Run> = runs.iter().map(|&[cost, count]| Run { cost, count }).collect();
        let (burst, offset_ms) = match algorithm {
            Algorithm::TokenBucket => (third, 0),
            Algorithm::FixedWindow => (requests, third),
        };
        let is_limit = requests > 0 && period_ms > offset_ms && burst > 0;
        let costs_fit = runs.iter().all(|run| (1..=burst).contains(&run.cost));
        let hold = hold == 1;
        let call = Acquire {
            algorithm,
            offset_ms,
            requests,
            period_ms,
            burst,
            life_ms,
            lend,
            want,
            end,
            size,
            carry,
            hold,
            debt,
            number,
            runs,
        };
        (is_limit && costs_fit && call.capacity() < EXACT).then_some(call)
    }
}

impl Reply {
    /// As Redis sends it.
    pub fn to_list(&self) -> Vec<i64> {
        let integer = |number: u64| i64::try_from(number).expect("an integer of Redis");
        let Reply { number, level, reset_ms, end, valid_ms, kept, extra, limited, granted } = self;
        let mut list = vec![integer(*number), *level];
        list.extend([*reset_ms, *end, *valid_ms, *kept, *extra, u64::from(*limited)].map(integer));
        list.extend(granted.iter().copied().map(integer));
        list
    }
}
