//! The breaker: where enough calls fail in a short time, and enough of all calls, the limiter is left alone, but for one
//! probe at a time.
//!
//! Its state is in shared data, so that all workers of a proxy open and close together. Each VM keeps a copy, which a
//! tick refreshes; only a failure, a probe and a recovery write, and a tick after a failure.
//!
//! The first failure begins a window of the time `within`, in which failures and successes count. So while all goes well
//! nothing is written, and the calls that went well before a limiter died do not keep the breaker closed. Successes are
//! counted in the VM and merged into the window at its next failure or tick. At a failure the window thus lacks what other
//! workers have counted since their last tick, and has what a worker has counted in the tick that the window began in.
//!
//! A limiter that dies in the middle of a window whose calls went well opens it when failures are `share` of all calls in
//! that window, or else in the next window, which begins with a failure and knows no success: after `within` and the time
//! that `failures` calls take to fail, at the latest.

use std::cell::Cell;

use super::{Store, update};
use crate::clock::Ms;
use crate::policy::BreakerLimits;

const MAGIC: [u8; 8] = *b"weirbrk2";

/// The breaker of a limiter.
#[derive(Debug)]
pub struct Breaker {
    name: String,
    limits: BreakerLimits,
    seen: Cell<State>,
    /// Successes that are not merged into the window yet, and when the first of them was.
    succeeded: Cell<(u64, Ms)>,
}

/// What a breaker remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    failures: u64,
    successes: u64,
    /// When the window began, with a failure.
    since: Ms,
    /// When the next probe may go; None while the breaker is closed.
    probe_at: Option<Ms>,
}

/// Whether a request may ask the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It may.
    Open,
    /// It may not: the next probe is not due yet.
    Barred,
}

impl Breaker {
    /// The breaker of this name, closed until shared data says otherwise.
    pub fn new(name: String, limits: BreakerLimits) -> Breaker {
        Breaker { name, limits, seen: Cell::default(), succeeded: Cell::default() }
    }

    /// Takes notice of what other workers have found, and lets them know of this one's successes, if there is a window.
    pub fn refresh(&self, store: &dyn Store, now: Ms) {
        self.seen.set(store.get(&self.name).and_then(|(bytes, _)| State::decode(&bytes)).unwrap_or_default());
        let successes = self.take_successes(now);
        if successes > 0 && self.counts(self.seen.get(), now) {
            self.change(store, |state| {
                if self.counts(*state, now) {
                    state.successes = state.successes.saturating_add(successes);
                }
            });
        }
    }

    /// Whether the limiter is left alone.
    pub fn is_open(&self) -> bool {
        self.seen.get().probe_at.is_some()
    }

    /// Whether it is left alone, and the next probe is not due yet.
    pub fn is_barred(&self, now: Ms) -> bool {
        self.must_wait(self.seen.get(), now)
    }

    /// Whether a request may ask: always while the breaker is closed, else one at a time, as a probe.
    pub fn ask(&self, store: &dyn Store, now: Ms, random: u64) -> Passage {
        let seen = self.seen.get();
        if seen.probe_at.is_none() {
            return Passage::Open;
        }
        if self.must_wait(seen, now) {
            return Passage::Barred;
        }
        let next = now + self.jittered(random);
        let passage = self.change(store, |state| {
            if self.must_wait(*state, now) {
                return Passage::Barred;
            }
            if state.probe_at.is_some() {
                state.probe_at = Some(next);
            }
            Passage::Open
        });
        passage.unwrap_or(Passage::Barred)
    }

    /// A call has failed.
    pub fn failed(&self, store: &dyn Store, now: Ms, random: u64) {
        let (limits, probe_at) = (self.limits, now + self.jittered(random));
        let successes = self.take_successes(now);
        self.change(store, |state| {
            if state.probe_at.is_some() {
                state.probe_at = Some(probe_at);
                return;
            }
            if !self.counts(*state, now) {
                *state = State { since: now, ..State::default() };
            }
            state.failures = state.failures.saturating_add(1);
            state.successes = state.successes.saturating_add(successes);
            if state.failures >= limits.failures && state.has_share(limits.share) {
                state.probe_at = Some(probe_at);
            }
        });
    }

    /// A call has succeeded.
    pub fn succeeded(&self, store: &dyn Store, now: Ms) {
        if self.is_open() {
            self.change(store, |state| *state = State::default());
            return;
        }
        let before = self.take_successes(now);
        let since = if before > 0 { self.succeeded.get().1 } else { now };
        self.succeeded.set((before.saturating_add(1), since));
    }

    /// What is not merged yet of the successes that may lie in a window of now.
    fn take_successes(&self, now: Ms) -> u64 {
        let (successes, since) = self.succeeded.get();
        self.succeeded.set((0, since));
        if now < since || now - since > self.limits.within { 0 } else { successes }
    }

    /// Whether what happens now counts in the window of this state.
    fn counts(&self, state: State, now: Ms) -> bool {
        let is_window = state.failures > 0 && state.probe_at.is_none();
        is_window && now >= state.since && now - state.since <= self.limits.within
    }

    /// Whether the next probe is not due yet. One that is further away than any is set for was set by another clock, and
    /// is due.
    fn must_wait(&self, state: State, now: Ms) -> bool {
        state.probe_at.is_some_and(|at| at - now > Ms(0) && at - now <= self.limits.probe_every)
    }

    /// From a half to the whole of the time between probes, so that proxies do not probe together.
    fn jittered(&self, random: u64) -> Ms {
        let half = Ms(self.limits.probe_every.0 / 2);
        self.limits.probe_every - Ms(random.checked_rem(half.0.saturating_add(1)).unwrap_or_default())
    }

    fn change<T>(&self, store: &dyn Store, mut change: impl FnMut(&mut State) -> T) -> Option<T> {
        let (state, outcome) = update(store, &self.name, |found| {
            let before = found.as_deref().and_then(State::decode).unwrap_or_default();
            let mut state = before;
            let outcome = change(&mut state);
            ((state != before).then(|| state.encode()), (state, outcome))
        })?;
        self.seen.set(state);
        Some(outcome)
    }
}

impl State {
    /// Whether failures are at least so many thousandths of all calls.
    fn has_share(self, share: u16) -> bool {
        let calls = self.failures.saturating_add(self.successes);
        self.failures.saturating_mul(1000) >= calls.saturating_mul(u64::from(share))
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let probe_at = self.probe_at.unwrap_or_default();
        for number in [self.failures, self.successes, self.since.0, probe_at.0, self.checksum()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<State> {
        let magic = bytes.split_off(..8)?;
        let mut number = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
        let (failures, successes, since) = (number()?, number()?, Ms(number()?));
        let probe_at = Some(Ms(number()?)).filter(|at| *at > Ms(0));
        let (state, sum) = (State { failures, successes, since, probe_at }, number()?);
        let whole = magic == MAGIC && bytes.is_empty() && sum == state.checksum();
        whole.then_some(state)
    }

    /// Enough to tell a torn value; nobody gains by forging one.
    fn checksum(self) -> u64 {
        let probe_at = self.probe_at.unwrap_or_default().0;
        let counts = self.failures ^ self.successes.rotate_left(11);
        counts ^ self.since.0.rotate_left(21) ^ probe_at.rotate_left(42) ^ u64::from_le_bytes(MAGIC)
    }
}
