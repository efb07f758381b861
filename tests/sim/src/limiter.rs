//! The limiter behind the network: the root of each bucket, a clock that may be wrong, and writes that may be lost.

use crate::check::Limit;
use crate::clock::WrongClock;
use crate::root::{Acquire, Reply, Root};

#[derive(Debug)]
pub struct Limiter {
    roots: Vec<Root>,
    pub clock: WrongClock,
    /// What the clock said last.
    seen: u64,
    /// How far the clock has gone forward in all, in ms: the root's time. No bucket refills faster, whatever is done to
    /// the clock.
    forward: u64,
    /// What it has are windows, whose time is what the clock says.
    windows: bool,
    pub knows_script: bool,
    pub read_only_until: u64,
    /// Where writes may be lost: each write's true time, its bucket, what was there before, and the tokens that it
    /// granted and opened as a lease.
    journal: Option<Vec<(u64, u32, Root, u64)>>,
}

impl Limiter {
    pub fn new(buckets: u32, windows: bool, drift: i64, keeps_journal: bool) -> Limiter {
        let clock = WrongClock::new(0, drift);
        Limiter {
            roots: vec![Root::default(); buckets as usize],
            seen: clock.ms(0),
            clock,
            forward: 0,
            windows,
            knows_script: true,
            read_only_until: 0,
            journal: keeps_journal.then(Vec::new),
        }
    }

    /// What the clock says, and the root's time.
    pub fn time(&mut self, now: u64) -> (u64, u64) {
        let clock = self.clock.ms(now);
        self.forward += clock.saturating_sub(self.seen);
        self.seen = clock;
        (clock, if self.windows { clock } else { self.forward })
    }

    pub fn set_clock(&mut self, now: u64, by_ms: i64) {
        self.time(now);
        self.clock.set(now, by_ms);
        self.time(now);
    }

    pub fn acquire(&mut self, now: u64, bucket: u32, call: &Acquire) -> Reply {
        let (clock, _) = self.time(now);
        let root = &mut self.roots[bucket as usize];
        let before = self.journal.is_some().then(|| root.clone());
        let reply = root.acquire(clock, call);
        if let (Some(journal), Some(before)) = (&mut self.journal, before) {
            let tokens = call.cost(&reply.granted) + reply.kept + reply.extra;
            journal.push((now, bucket, before, tokens));
        }
        reply
    }

    pub fn root(&self, bucket: u32) -> &Root {
        &self.roots[bucket as usize]
    }

    /// Tokens that a bucket has lent, slots that have ended apart.
    pub fn lent(&self, bucket: u32) -> u64 {
        let root = self.root(bucket);
        if root.expires_at.is_none_or(|expires_at| self.seen > expires_at) {
            return 0;
        }
        let now = self.seen.max(root.time);
        root.slots.iter().filter(|slot| slot.end > now).map(|slot| slot.tokens).sum()
    }

    /// Units missing to full, now; `window` as in a promise.
    pub fn missing(&self, bucket: u32, limit: Limit, window: Option<u64>) -> i128 {
        let root = self.root(bucket);
        if root.expires_at.is_none_or(|expires_at| self.seen > expires_at) {
            return 0;
        }
        if let Some(offset) = window {
            let begin = (self.seen - offset) / limit.period_ms * limit.period_ms + offset;
            let used = if begin > root.time { 0 } else { root.used * i128::from(limit.period_ms) };
            return used.max(limit.units(self.lent(bucket)));
        }
        let gained = i128::from(self.seen.saturating_sub(root.time)) * i128::from(limit.requests);
        // It refills up to what is not lent.
        (root.used - gained).max(limit.units(self.lent(bucket)))
    }

    /// Forgets a bucket.
    pub fn lose(&mut self, bucket: u32) {
        self.roots[bucket as usize] = Root::default();
    }

    /// Undoes the writes since this moment; returns the buckets and the tokens of each write.
    pub fn undo_since(&mut self, moment: u64) -> Vec<(u32, u64)> {
        let Some(journal) = &mut self.journal else {
            return Vec::new();
        };
        let from = journal.partition_point(|(at, ..)| *at < moment);
        let undone: Vec<_> = journal.drain(from..).rev().collect();
        let mut lost = Vec::new();
        for (_, bucket, before, tokens) in undone {
            self.roots[bucket as usize] = before;
            lost.push((bucket, tokens));
        }
        lost
    }
}
