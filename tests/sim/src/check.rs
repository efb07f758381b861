//! What must hold: the promise of leases.md in the one form that covers every interval, and what proxies may hold.

use crate::clock::START;

/// A limit: tokens are `period_ms` units, and each millisecond adds `requests` units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub requests: u64,
    pub period_ms: u64,
    pub burst: u64,
}

impl Limit {
    pub fn units(self, tokens: u64) -> i128 {
        i128::from(tokens) * i128::from(self.period_ms)
    }

    pub fn capacity(self) -> i128 {
        self.units(self.burst)
    }

    /// What both allow, and no more.
    pub fn loosest(self, other: Limit) -> Limit {
        Limit { requests: self.requests.max(other.requests), burst: self.burst.max(other.burst), ..self }
    }
}

/// An ideal bucket that is fed with every admission at its moment. It goes below zero exactly where for some interval
/// more was admitted than burst + rate x interval, so looking at it after each admission covers all of them.
#[derive(Clone, Debug)]
pub struct Promise {
    pub limit: Limit,
    level: i128,
    /// The moment of the level, in ms of the root's time.
    at: u64,
    /// Units that what went wrong may have added: leases.md names how many for each failure. They are drawn only when
    /// the level would go below zero, which never draws more than was admitted through the failure.
    slack: i128,
    /// How far below zero it has gone, slack apart.
    pub broken: i128,
    /// Where it is that of a fixed window: how long after multiples of the period windows begin, by the root's clock. Then
    /// all of it comes back at once where that passes a border, and nothing before; where it is set back, no window begins.
    pub window: Option<u64>,
}

impl Promise {
    pub fn new(limit: Limit, at: u64) -> Promise {
        Promise { limit, level: limit.capacity(), at, slack: 0, broken: 0, window: None }
    }

    /// Of a bucket, or of a window, from the start on.
    pub fn of(limit: Limit, is_window: bool) -> Promise {
        Promise { window: is_window.then_some(0), ..Promise::new(limit, if is_window { START } else { 0 }) }
    }

    /// So many tokens were admitted.
    ///
    /// # Errors
    /// More than the promise allows: by how many units.
    pub fn admit(&mut self, tokens: u64, at: u64) -> Result<(), i128> {
        self.pass(at);
        self.level -= self.limit.units(tokens);
        if self.level >= 0 {
            return Ok(());
        }
        let drawn = self.slack.min(-self.level);
        self.slack -= drawn;
        self.level += drawn;
        if self.level >= 0 {
            return Ok(());
        }
        let broken = -self.level;
        self.broken += broken;
        self.level = 0;
        Err(broken)
    }

    /// Takes the tokens if they are there: as one bucket for all would.
    pub fn take(&mut self, tokens: u64, at: u64) -> bool {
        self.pass(at);
        let rest = self.level - self.limit.units(tokens);
        let fits = rest >= 0;
        self.level = if fits { rest } else { self.level };
        fits
    }

    pub fn take_if(&mut self, fits: bool, tokens: u64, at: u64) {
        if fits {
            self.take(tokens, at);
        }
    }

    pub fn pass(&mut self, at: u64) {
        let grown = match self.window {
            None => i128::from(at.saturating_sub(self.at)) * i128::from(self.limit.requests),
            Some(offset) => {
                let begin = (at - offset) / self.limit.period_ms * self.limit.period_ms + offset;
                if begin > self.at { self.limit.capacity() } else { 0 }
            }
        };
        self.level = self.limit.capacity().min(self.level + grown);
        self.at = if self.window.is_some() { at } else { self.at.max(at) };
    }

    /// A failure may admit so many units more from now on, once.
    pub fn forgive(&mut self, units: i128) {
        self.slack += units.max(0);
    }

    /// Another limit holds from now on: what was used stays used.
    pub fn change(&mut self, limit: Limit, at: u64) {
        self.pass(at);
        self.level = (self.level + limit.capacity() - self.limit.capacity()).max(0);
        self.limit = limit;
    }

    /// How much is missing to full, in units.
    pub fn missing(&self) -> i128 {
        self.limit.capacity() - self.level
    }

    /// For the hash of a state.
    pub fn state(&self) -> (i128, u64, i128) {
        (self.level, self.at, self.slack)
    }
}

/// What a proxy may hold of one bucket: an upper bound, from the replies that it was given and the requests that it has
/// passed by itself.
#[derive(Clone, Debug, Default, Hash)]
pub struct Holding {
    lots: Vec<Lot>,
    /// Tokens that were never spent, because their leases ended or were forgotten.
    lapsed: u64,
    /// Counts the calls that have reported it: what becomes of one that was given up before the next does not matter.
    pub turn: u32,
}

/// Unspent tokens of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Lot {
    /// From then on they may not be spent, by the root's clock.
    until: u64,
    /// The lease's id.
    end: u64,
    unspent: u64,
}

impl Holding {
    /// A request has passed without the root.
    ///
    /// # Errors
    /// No live lease holds so many tokens: how many are missing.
    pub fn spend(&mut self, tokens: u64, root_now: u64) -> Result<(), u64> {
        let mut missing = tokens;
        self.keep(|lot| lot.until > root_now);
        self.lots.sort_unstable();
        for lot in &mut self.lots {
            let taken = missing.min(lot.unspent);
            lot.unspent -= taken;
            missing -= taken;
        }
        if missing == 0 { Ok(()) } else { Err(missing) }
    }

    /// The call that reported the lease `end` has brought another one. What was spent of the old one while it was out is
    /// gone from the new one.
    pub fn replace(&mut self, end: u64, carry: u64, new_end: u64, kept: u64, extra: u64) {
        let unspent = self.take(end, carry);
        self.lapsed += unspent.saturating_sub(kept);
        self.add(Lot { until: new_end, end: new_end, unspent: unspent.min(kept) + extra });
    }

    fn keep(&mut self, keep: impl Fn(&Lot) -> bool) {
        let lapsed: u64 = self.lots.iter().filter(|lot| !keep(lot)).map(|lot| lot.unspent).sum();
        self.lapsed += lapsed;
        self.lots.retain(keep);
    }

    fn add(&mut self, new: Lot) {
        // Leases of one slot have one end.
        match self.lots.iter_mut().find(|lot| (lot.end, lot.until) == (new.end, new.until)) {
            Some(lot) => lot.unspent += new.unspent,
            None if new.unspent > 0 => self.lots.push(new),
            None => {}
        }
    }

    /// The proxy reports what it has: of this lease so much, and of others nothing. What it does not want of it goes back,
    /// and while the call is out, the rest may be spent until `until` at the latest.
    pub fn report(&mut self, end: u64, carry: u64, want: u64, until: u64) {
        self.turn += 1;
        self.keep(|lot| lot.end == end && carry > 0);
        for lot in &mut self.lots {
            (lot.unspent, lot.until) = (carry.min(want).min(lot.unspent), until.min(lot.until));
        }
        self.lots.retain(|lot| lot.unspent > 0);
    }

    /// The call that reported this lease has never begun.
    pub fn restore(&mut self, end: u64, until: u64, tokens: u64) {
        self.add(Lot { until: until.min(end), end, unspent: tokens });
    }

    /// Nobody will hear of the call that reported this lease: it is dropped.
    pub fn drop(&mut self, end: u64, carry: u64) {
        self.take(end, carry);
    }

    /// All leases are forgotten.
    pub fn drop_all(&mut self) {
        self.keep(|_| false);
    }

    fn take(&mut self, end: u64, carry: u64) -> u64 {
        let Some(at) = self.lots.iter().position(|lot| lot.end == end) else {
            return 0;
        };
        let unspent = self.lots[at].unspent.min(carry);
        self.lots[at].unspent -= unspent;
        if self.lots[at].unspent == 0 {
            self.lots.swap_remove(at);
        }
        unspent
    }

    pub fn clear(&mut self) {
        self.lots.clear();
    }

    /// Unspent tokens, of leases that have ended, too.
    pub fn ever_unspent(&self) -> u64 {
        self.lapsed + self.lots.iter().map(|lot| lot.unspent).sum::<u64>()
    }

    /// Unspent tokens of the leases that are alive.
    pub fn unspent(&self, root_now: u64) -> u64 {
        self.lots.iter().filter(|lot| lot.until > root_now).map(|lot| lot.unspent).sum()
    }
}

/// What broke, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// True time, in microseconds.
    pub at: u64,
    pub what: String,
}
