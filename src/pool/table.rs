//! The table: what a proxy knows of the tenants that it has seen lately, in a fixed number of slots.
//!
//! A set of [`WAYS`] entries is one value of shared data, so a look-up is one read and a change one read and one write.
//! Where a set is full, an entry that means something any longer goes last, and of the rest the one that was written
//! longest ago goes first. Names are fingerprints keyed with a seed that the workers of a proxy agree on, so nobody
//! outside can choose tenants that meet in one set.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::{Store, update};
use crate::bucket::Level;
use crate::clock::Ms;

/// Entries in a set.
pub const WAYS: usize = 8;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 64;

/// Bytes of a set: a head of 16 and its entries. An entry costs 66 bytes, and the host's own for a name in each set.
pub const SET_BYTES: usize = 16 + WAYS * ENTRY_BYTES;

/// First bytes of a set: ours, and the version of the layout.
const MAGIC: [u8; 8] = *b"weirset1";

/// A table in shared data.
#[derive(Clone, Debug)]
pub struct Table {
    prefix: String,
    sets: u64,
    seed: (u64, u64),
}

/// Which bucket, in this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u128);

/// What is known of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    fingerprint: u128,
    /// The limit that it was written under; under another one what it knows is void.
    pub epoch: u32,
    /// At most so much was in the bucket of the limiter then.
    pub known: Option<Level>,
    /// The proxy's own bucket.
    pub own: Option<Level>,
    /// Until when it means anything.
    pub means_until: Ms,
    written: Ms,
}

impl Table {
    /// Opens the table of this prefix with about so many entries; the first to come chooses the seed. None where
    /// shared data cannot be had.
    pub fn open(store: &dyn Store, prefix: &str, entries: u64, random: (u64, u64)) -> Option<Table> {
        let seed = update(store, &format!("{prefix}.seed"), |found| {
            match found.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
                Some(bytes) => (None, bytes),
                None => {
                    let (low, high) = random;
                    let mut bytes = [0; 16];
                    let numbers = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
                    bytes.iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
                    (Some(bytes.to_vec()), bytes)
                }
            }
        })?;
        let seed = u128::from_le_bytes(seed);
        let half = |shift: u32| u64::try_from(seed.checked_shr(shift).unwrap_or_default() & u128::from(u64::MAX));
        let sets = entries.div_ceil(WAYS as u64).max(1);
        let seed = (half(0).ok()?, half(64).ok()?);
        // After a wipe there may be another seed: tables of two seeds must not take each other's sets for torn ones.
        Some(Table { prefix: format!("{prefix}.{:x}", seed.0), sets, seed })
    }

    /// The fingerprint of a key.
    pub fn fingerprint(&self, key: &str) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(key.as_bytes());
        Fingerprint(hasher.finish128().as_u128())
    }

    /// What is known of a bucket.
    pub fn read(&self, store: &dyn Store, of: Fingerprint) -> Option<Entry> {
        let (bytes, _) = store.get(&self.name(of))?;
        self.entries(&bytes).into_iter().find(|entry| entry.fingerprint == of.0)
    }

    /// Changes what is known of a bucket, from nothing where nothing is known. None where others have always come
    /// first: then nothing has changed.
    pub fn change<T>(
        &self,
        store: &dyn Store,
        of: Fingerprint,
        now: Ms,
        mut change: impl FnMut(&mut Entry) -> T,
    ) -> Option<T> {
        update(store, &self.name(of), |found| {
            let mut entries = found.map(|bytes| self.entries(bytes)).unwrap_or_default();
            let known = entries.iter().position(|entry| entry.fingerprint == of.0);
            let mut entry = known.map(|at| entries.swap_remove(at)).unwrap_or_default();
            let outcome = change(&mut entry);
            (entry.fingerprint, entry.written) = (of.0, now);
            while entries.len() >= WAYS {
                let first_to_go =
                    entries.iter().enumerate().min_by_key(|(_, entry)| (entry.means_until > now, entry.written));
                let at = first_to_go.map(|(at, _)| at).unwrap_or_default();
                entries.swap_remove(at);
            }
            entries.push(entry);
            (Some(self.encode(&entries)), outcome)
        })
    }

    fn name(&self, of: Fingerprint) -> String {
        let set = of.0.checked_rem(u128::from(self.sets)).unwrap_or_default();
        format!("{}.{set:x}", self.prefix)
    }

    fn checksum(&self, entries: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.1, self.seed.0);
        hasher.write(entries);
        hasher.finish()
    }

    fn encode(&self, entries: &[Entry]) -> Vec<u8> {
        let mut body = Vec::with_capacity(SET_BYTES);
        for entry in entries {
            entry.encode(&mut body);
        }
        body.resize(WAYS.saturating_mul(ENTRY_BYTES), 0);
        let mut bytes = Vec::with_capacity(SET_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.checksum(&body).to_le_bytes());
        bytes.append(&mut body);
        bytes
    }

    /// The entries of a set; none where it is torn, foreign or of another version.
    fn entries(&self, bytes: &[u8]) -> Vec<Entry> {
        let Some((head, body)) = bytes.split_at_checked(16).filter(|_| bytes.len() == SET_BYTES) else {
            return Vec::new();
        };
        let wanted = MAGIC.into_iter().chain(self.checksum(body).to_le_bytes());
        if !head.iter().copied().eq(wanted) {
            return Vec::new();
        }
        body.chunks_exact(ENTRY_BYTES).filter_map(Entry::decode).collect()
    }
}

impl Entry {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.fingerprint.to_le_bytes());
        bytes.extend(self.epoch.to_le_bytes());
        // Seconds are enough to tell which was written longest ago.
        bytes.extend(u32::try_from(self.written.0 / 1000).unwrap_or(u32::MAX).to_le_bytes());
        for level in [self.known, self.own] {
            // A level of nothing is told by a time of nothing.
            let level = level.unwrap_or_default();
            bytes.extend(level.units.to_le_bytes());
            bytes.extend(level.at.0.to_le_bytes());
        }
        bytes.extend(self.means_until.0.to_le_bytes());
    }

    /// None where the slot is empty.
    fn decode(mut bytes: &[u8]) -> Option<Entry> {
        let fingerprint = u128::from_le_bytes(*bytes.split_off(..16)?.first_chunk()?);
        let epoch = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let written = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let mut number = || Some(u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?));
        let mut level = || {
            let (units, at) = (number()?, Ms(number()?));
            Some((at > Ms(0)).then_some(Level { units, at }))
        };
        let (known, own) = (level()?, level()?);
        let means_until = Ms(number()?);
        let written = Ms(u64::from(written)).times(1000);
        (fingerprint != 0).then_some(Entry { fingerprint, epoch, known, own, means_until, written })
    }
}
