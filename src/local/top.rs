//! Which tenants come most often, and which are refused most: a sketch of each for every rule.
//!
//! A sketch is that of Space-Saving (Metwally, Agrawal, El Abbadi 2005): a fixed number of counters, of which the least
//! makes room for whoever is new, and hands its count on as the error of the new one. A tenant that has more than its
//! share, all requests by the number of counters, is always there, and no count is too small. Each worker counts for
//! itself, and merges what it has counted into the proxy's sketch in shared data (Agarwal et al., Mergeable Summaries,
//! 2012) every [`MERGE_EVERY`]; there counts are halved every [`HALVED_EVERY`], so that they tell of the last minutes.

use std::hash::Hasher;

use siphasher::sip128::SipHasher13;

use super::{Store, update};
use crate::clock::Ms;

/// Counters of a sketch.
pub const COUNTERS: usize = 64;

/// How often a worker merges what it has counted.
pub const MERGE_EVERY: Ms = Ms(1000);

/// How often counts are halved.
pub const HALVED_EVERY: Ms = Ms(60_000);

/// First bytes of a sketch in shared data: ours, and the version of the layout.
const MAGIC: [u8; 8] = *b"weirtop1";

/// What is counted of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Requests that its buckets have refused.
    Refused,
    /// All that wanted tokens of them.
    Busiest,
}

/// How often one tenant has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `label.value`, as in Redis keys.
    pub tenant: Box<str>,
    /// Requests, at most.
    pub count: u64,
    /// How many of them may have been others'.
    pub error: u64,
}

/// The counters of those who come most often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    counters: Vec<Counter>,
}

/// A sketch of a proxy, and the time that it tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// The counters.
    pub sketch: Sketch,
    /// In how much time that was counted, halved as the counts are: a count by this is a rate.
    pub seen: Ms,
    merged: Ms,
    halved: Ms,
}

/// What this worker has counted since it merged last.
#[derive(Debug, Default)]
pub struct Top {
    counted: Vec<((usize, Kind), Sketch)>,
    merged: Option<Ms>,
}

impl Sketch {
    /// One more request of a tenant.
    pub fn add(&mut self, tenant: &str) {
        if let Some(counter) = self.counters.iter_mut().find(|counter| *counter.tenant == *tenant) {
            counter.count = counter.count.saturating_add(1);
            return;
        }
        let tenant = Box::from(tenant);
        if self.counters.len() < COUNTERS {
            self.counters.push(Counter { tenant, count: 1, error: 0 });
        } else if let Some(least) = self.counters.iter_mut().min_by_key(|counter| counter.count) {
            *least = Counter { tenant, count: least.count.saturating_add(1), error: least.count };
        }
    }

    /// Adds what another sketch has counted.
    pub fn merge(&mut self, other: &Sketch) {
        let (mine, others) = (self.floor(), other.floor());
        for counter in &mut self.counters {
            let found = other.counters.iter().find(|other| other.tenant == counter.tenant);
            let (count, error) = found.map_or((others, others), |found| (found.count, found.error));
            counter.count = counter.count.saturating_add(count);
            counter.error = counter.error.saturating_add(error);
        }
        for counter in &other.counters {
            if !self.counters.iter().any(|known| known.tenant == counter.tenant) {
                let (count, error) = (counter.count.saturating_add(mine), counter.error.saturating_add(mine));
                self.counters.push(Counter { tenant: counter.tenant.clone(), count, error });
            }
        }
        self.sort();
        self.counters.truncate(COUNTERS);
    }

    /// The counters, the largest first.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// So often at most has somebody come who is not here.
    fn floor(&self) -> u64 {
        let least = self.counters.iter().map(|counter| counter.count).min().unwrap_or_default();
        if self.counters.len() < COUNTERS { 0 } else { least }
    }

    fn halve(&mut self) {
        for counter in &mut self.counters {
            (counter.count, counter.error) = (counter.count / 2, counter.error / 2);
        }
        self.counters.retain(|counter| counter.count > 0);
    }

    fn sort(&mut self) {
        self.counters.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.tenant.cmp(&b.tenant)));
    }
}

impl Recent {
    /// Adds what a worker has counted since then.
    fn merge(&mut self, counted: &Sketch, since: Ms, now: Ms) {
        self.age(now);
        self.seen = self.seen.max(now - since);
        self.sketch.merge(counted);
    }

    /// Forgets what is old.
    fn age(&mut self, now: Ms) {
        while now - self.halved >= HALVED_EVERY && !self.sketch.counters.is_empty() {
            self.halved = self.halved + HALVED_EVERY;
            self.pass(self.halved);
            self.seen = Ms(self.seen.0 / 2);
            self.sketch.halve();
        }
        if self.sketch.counters.is_empty() {
            *self = Recent { merged: now, halved: now, ..Recent::default() };
        }
        self.pass(now);
    }

    fn pass(&mut self, now: Ms) {
        self.seen = self.seen + (now - self.merged);
        self.merged = self.merged.max(now);
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for time in [self.seen, self.merged, self.halved] {
            bytes.extend(time.0.to_le_bytes());
        }
        for counter in &self.sketch.counters {
            // A tenant is a label and at most 64 bytes, each of three characters.
            let length = u16::try_from(counter.tenant.len()).unwrap_or_default();
            bytes.extend(length.to_le_bytes());
            bytes.extend(counter.tenant.bytes().take(length.into()));
            bytes.extend(counter.count.to_le_bytes());
            bytes.extend(counter.error.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// None where the bytes are torn or foreign.
    fn decode(bytes: &[u8]) -> Option<Recent> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if checksum(body).to_le_bytes() != *sum {
            return None;
        }
        let mut rest = body.strip_prefix(&MAGIC)?;
        let mut recent = Recent { seen: Ms(take(&mut rest)?), ..Recent::default() };
        (recent.merged, recent.halved) = (Ms(take(&mut rest)?), Ms(take(&mut rest)?));
        while !rest.is_empty() {
            let length = u16::from_le_bytes(*rest.split_off(..2)?.first_chunk()?);
            let tenant = std::str::from_utf8(rest.split_off(..usize::from(length))?).ok()?.into();
            let (count, error) = (take(&mut rest)?, take(&mut rest)?);
            recent.sketch.counters.push(Counter { tenant, count, error });
        }
        Some(recent)
    }
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?))
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

impl Top {
    /// One more request of a tenant at a rule.
    pub fn add(&mut self, rule: usize, kind: Kind, tenant: &str) {
        if let Some((_, sketch)) = self.counted.iter_mut().find(|(of, _)| *of == (rule, kind)) {
            return sketch.add(tenant);
        }
        let mut sketch = Sketch::default();
        sketch.add(tenant);
        self.counted.push(((rule, kind), sketch));
    }

    /// Merges what was counted into the proxy's sketches, where it is time for that. What cannot be written is kept.
    pub fn merge(&mut self, store: &dyn Store, now: Ms, name: &dyn Fn(usize, Kind) -> String) {
        let since = *self.merged.get_or_insert(now);
        if now - since < MERGE_EVERY {
            return;
        }
        self.merged = Some(now);
        self.counted.retain(|((rule, kind), counted)| {
            let merged = update(store, &name(*rule, *kind), |found| {
                let mut recent = found.as_deref().and_then(Recent::decode).unwrap_or_default();
                recent.merge(counted, since, now);
                (Some(recent.encode()), ())
            });
            merged.is_none()
        });
    }
}

/// The sketch of this name in shared data; an empty one where there is none.
pub fn recent(store: &dyn Store, name: &str, now: Ms) -> Recent {
    let mut recent = store.get(name).and_then(|(bytes, _)| Recent::decode(&bytes)).unwrap_or_default();
    recent.age(now);
    recent
}
