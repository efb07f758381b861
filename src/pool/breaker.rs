//! The breaker: after failures in a short time the limiter is left alone, but for one probe at a time.
//!
//! Its state is in shared data, so that all workers of a proxy open and close together. Each VM keeps a copy, which a
//! tick refreshes; only a failure, a probe and a recovery write.

use std::cell::Cell;

use super::{Store, update};
use crate::clock::Ms;
use crate::policy::BreakerLimits;

const MAGIC: [u8; 8] = *b"weirbrk1";

/// The breaker of a limiter.
#[derive(Debug)]
pub struct Breaker {
    name: String,
    limits: BreakerLimits,
    seen: Cell<State>,
}

/// What a breaker remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    failures: u64,
    since: Ms,
    /// When the next probe may go; None while the breaker is closed.
    probe_at: Option<Ms>,
}

/// Whether a request may ask the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It may.
    Open,
    /// It may not; the next probe goes after this long.
    Barred(Ms),
}

impl Breaker {
    /// The breaker of this name, closed until shared data says otherwise.
    pub fn new(name: String, limits: BreakerLimits) -> Breaker {
        Breaker { name, limits, seen: Cell::default() }
    }

    /// Takes notice of what other workers have found.
    pub fn refresh(&self, store: &dyn Store) {
        self.seen.set(store.get(&self.name).and_then(|(bytes, _)| State::decode(&bytes)).unwrap_or_default());
    }

    /// Whether the limiter is left alone.
    pub fn is_open(&self) -> bool {
        self.seen.get().probe_at.is_some()
    }

    /// Whether a request may ask: always while the breaker is closed, else one at a time, as a probe.
    pub fn ask(&self, store: &dyn Store, now: Ms, random: u64) -> Passage {
        let seen = self.seen.get();
        if seen.probe_at.is_none() {
            return Passage::Open;
        }
        if let Some(wait) = self.wait(seen, now) {
            return Passage::Barred(wait);
        }
        let next = now + self.jittered(random);
        self.change(store, |state| match (state.probe_at, self.wait(*state, now)) {
            (None, _) => Passage::Open,
            (Some(_), Some(wait)) => Passage::Barred(wait),
            (Some(_), None) => {
                state.probe_at = Some(next);
                Passage::Open
            }
        })
        .unwrap_or(Passage::Barred(self.limits.probe_every))
    }

    /// A call has failed.
    pub fn failed(&self, store: &dyn Store, now: Ms, random: u64) {
        let (limits, probe_at) = (self.limits, now + self.jittered(random));
        self.change(store, |state| {
            if state.probe_at.is_some() {
                state.probe_at = Some(probe_at);
                return;
            }
            if now - state.since > limits.within || now < state.since {
                *state = State { failures: 0, since: now, probe_at: None };
            }
            state.failures = state.failures.saturating_add(1);
            if state.failures >= limits.failures {
                state.probe_at = Some(probe_at);
            }
        });
    }

    /// A call has succeeded.
    pub fn succeeded(&self, store: &dyn Store) {
        if self.is_open() {
            self.change(store, |state| *state = State::default());
        }
    }

    /// How long until the next probe may go; None where it may. A probe that is further away than any is set for was set
    /// by another clock, and may go.
    fn wait(&self, state: State, now: Ms) -> Option<Ms> {
        let wait = state.probe_at? - now;
        (wait > Ms(0) && wait <= self.limits.probe_every).then_some(wait)
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
    fn encode(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let probe_at = self.probe_at.unwrap_or_default();
        for number in [self.failures, self.since.0, probe_at.0, checksum(self.failures, self.since, probe_at)] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<State> {
        let magic = bytes.split_off(..8)?;
        let mut number = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
        let (failures, since, probe_at, sum) = (number()?, Ms(number()?), Ms(number()?), number()?);
        let whole = magic == MAGIC && bytes.is_empty() && sum == checksum(failures, since, probe_at);
        whole.then_some(State { failures, since, probe_at: (probe_at > Ms(0)).then_some(probe_at) })
    }
}

/// Enough to tell a torn value; nobody gains by forging one.
fn checksum(failures: u64, since: Ms, probe_at: Ms) -> u64 {
    failures ^ since.0.rotate_left(21) ^ probe_at.0.rotate_left(42) ^ u64::from_le_bytes(MAGIC)
}
