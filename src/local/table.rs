//! The table: what a proxy knows of the tenants that it has seen lately, in a fixed number of slots.
//!
//! A set of [`WAYS`] entries is one value of shared data, so a look-up is one read and a change one read and one write.
//! Where a set is full, an entry that means something any longer goes last, and of the rest the one that was written
//! longest ago goes first. One that holds what the limiter has not been told yet, or is being asked, never goes ([`STAYS`]);
//! where all of a set are such, nothing new is kept, and who asks for it finds as much as in a proxy without a table. Names
//! are fingerprints keyed with a seed that the workers of a proxy agree on, so nobody outside can choose tenants that meet in
//! one set.
//!
//! Only the entry that is looked for is decoded, and only its bytes are written anew: this is the way of every request.

use std::cell::Cell;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::lease::Lease;
use super::{Store, update};
use crate::algorithm::Used;
use crate::clock::Ms;

/// Entries in a set.
pub const WAYS: usize = 8;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 144;

/// Bytes of a set: a head of 8 and its entries. An entry costs 145 bytes, and the host's own for a name in each set.
pub const SET_BYTES: usize = HEAD_BYTES + WAYS * ENTRY_BYTES;

const HEAD_BYTES: usize = 8;

/// Until then an entry means something that holds what the limiter has not been told or is being asked: while that is so,
/// it makes no room for others.
pub const STAYS: Ms = Ms(LARGEST);

/// But for one that nobody has written for this long: whoever was to tell the limiter is gone.
const STAYS_FOR: Ms = Ms(3_600_000);

/// First bytes of a set: ours, and the version of the layout.
const MAGIC: [u8; HEAD_BYTES] = *b"weirset3";

/// 2^64 over the golden ratio: its multiples lie far apart (Knuth, TAOCP 3, 6.4).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A table in shared data.
#[derive(Clone, Debug)]
pub struct Table {
    prefix: String,
    sets: u64,
    seed: (u64, u64),
    evictions: Cell<u64>,
    /// Steps through all numbers, for the turn that a new entry starts with.
    births: Cell<u64>,
}

/// Which bucket, in this proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The same where another fingerprint says, such as that of the limiter which has the bucket.
    pub fn at(self, place: Fingerprint) -> Fingerprint {
        Fingerprint(self.0 ^ place.0)
    }
}

/// What is known of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    fingerprint: u128,
    /// The limit under which the limiter has denied something: what another one is denied is for its level to say.
    pub epoch: u32,
    /// So much was used of the bucket of the limiter then; where tokens are spent first, with what was spent since.
    pub known: Option<Used>,
    /// The proxy's own bucket.
    pub own: Option<Used>,
    /// What the limiter has lent.
    pub lease: Lease,
    /// Until when it means anything.
    pub means_until: Ms,
    /// When it was changed last.
    pub written: Ms,
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
        let births = random.0 ^ random.1.rotate_left(32);
        let seed = u128::from_le_bytes(seed);
        let half = |shift: u32| u64::try_from(seed.checked_shr(shift).unwrap_or_default() & u128::from(u64::MAX));
        let sets = entries.div_ceil(WAYS as u64).max(1);
        let seed = (half(0).ok()?, half(64).ok()?);
        // After a wipe there may be another seed, and an older module may have another layout: they must not take each
        // other's sets for torn ones.
        let names = seed.0.wrapping_add(u64::from_le_bytes(MAGIC));
        let prefix = format!("{prefix}.{names:x}");
        Some(Table { prefix, sets, seed, evictions: Cell::new(0), births: Cell::new(births) })
    }

    /// The fingerprint of a name among those of its kind, which a number tells from others.
    pub fn fingerprint(&self, kind: u64, name: &str) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(&kind.to_le_bytes());
        hasher.write(name.as_bytes());
        Fingerprint(hasher.finish128().as_u128())
    }

    /// How many entries that meant something have made room for others, since this was asked last.
    pub fn take_evictions(&self) -> u64 {
        self.evictions.take()
    }

    /// What is known of a bucket.
    pub fn read(&self, store: &dyn Store, of: Fingerprint) -> Option<Entry> {
        let (bytes, _) = store.get(&self.name(of))?;
        let slot = entries(&bytes).find(|slot| names(slot) == of.0)?;
        self.decode(slot)
    }

    /// Changes what is known of a bucket, from nothing where nothing is known; what is not changed is not written. None
    /// where others have always come first, or where there is no room for it: then nothing has changed.
    pub fn change<T>(
        &self,
        store: &dyn Store,
        of: Fingerprint,
        now: Ms,
        mut change: impl FnMut(&mut Entry) -> T,
    ) -> Option<T> {
        let mut outcome = None;
        let is_changed = self.rewrite(store, of, now, &mut |entry| outcome = Some(change(entry)));
        outcome.filter(|_| is_changed)
    }

    /// [`Table::change`], once for all kinds of changes: they are many, and each copy would cost the module its size.
    #[inline(never)]
    fn rewrite(&self, store: &dyn Store, of: Fingerprint, now: Ms, change: &mut dyn FnMut(&mut Entry)) -> bool {
        let written = update(store, &self.name(of), |found| {
            let mut bytes = found.filter(|bytes| is_set(bytes)).unwrap_or_default();
            let known = entries(&bytes).position(|slot| names(slot) == of.0);
            let before = known.and_then(|at| self.decode(entries(&bytes).nth(at)?)).unwrap_or_else(|| self.newborn());
            let mut entry = before;
            change(&mut entry);
            if entry == before {
                return (None, Some(false));
            }
            if before.fingerprint == 0 {
                self.births.set(self.births.get().wrapping_add(STEP));
            }
            (entry.fingerprint, entry.written) = (of.0, now);
            if bytes.is_empty() {
                bytes = empty_set();
            }
            let Some((at, evicts)) = known.map(|at| (at, false)).or_else(|| self.first_to_go(&bytes, now)) else {
                return (None, None);
            };
            if let Some(slot) = slots(&mut bytes).nth(at) {
                slot.copy_from_slice(&self.encode(&entry));
            }
            (Some(bytes), Some(evicts))
        });
        let written = written.flatten();
        self.evictions.set(self.evictions.get().saturating_add(u64::from(written == Some(true))));
        written.is_some()
    }

    /// An entry of which nothing is known. Its turns are far from those of all that were born here of late, and from those
    /// that other workers have given.
    fn newborn(&self) -> Entry {
        let turn = u32::try_from(self.births.get() >> 32).unwrap_or_default();
        Entry { lease: Lease { turn, ..Lease::default() }, ..Entry::default() }
    }

    /// The slot of a set for an entry that is not there yet: an empty or unreadable one, if there is one. And whether
    /// what is there still means something. None where all have to stay.
    fn first_to_go(&self, bytes: &[u8], now: Ms) -> Option<(usize, bool)> {
        let slots = entries(bytes).map(|slot| self.decode(slot)).enumerate();
        let may_go = slots.filter(|(_, entry)| !entry.is_some_and(|entry| entry.stays(now)));
        let worth = may_go.map(|(at, entry)| (at, entry.map(|entry| (entry.means_until > now, entry.written))));
        let (at, worth) = worth.min_by_key(|(_, worth)| *worth)?;
        Some((at, worth.is_some_and(|(is_meant, _)| is_meant)))
    }

    fn name(&self, of: Fingerprint) -> String {
        // Half of the fingerprint is as good, and divided at once.
        let half = u64::try_from(of.0 & u128::from(u64::MAX)).unwrap_or_default();
        let set = half.checked_rem(self.sets).unwrap_or_default();
        [&self.prefix, ".", itoa::Buffer::new().format(set)].concat()
    }

    fn checksum(&self, entry: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.1, self.seed.0);
        hasher.write(entry);
        hasher.finish()
    }

    #[inline(never)]
    fn encode(&self, entry: &Entry) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let mut rest = bytes.as_mut_slice();
        let mut put = |number: &[u8]| {
            if let Some(to) = rest.split_off_mut(..number.len()) {
                to.copy_from_slice(number);
            }
        };
        put(&entry.fingerprint.to_le_bytes());
        for used in [entry.known, entry.own] {
            // A bucket that is not known is told by a time of nothing.
            let used = used.unwrap_or_default();
            put(&used.units.to_le_bytes());
            put(&short(used.at.0));
        }
        let lease = entry.lease;
        put(&entry.epoch.to_le_bytes());
        put(&lease.waiting.to_le_bytes());
        put(&lease.turn.to_le_bytes());
        put(&[u8::from(lease.denied)]);
        let times = [entry.means_until, entry.written, lease.expires, lease.call_ends, lease.since, lease.quiet_until];
        let numbers = [lease.tokens, lease.size, lease.end, lease.spent, lease.rate, lease.wanted, lease.quiet_cost];
        for number in times.into_iter().map(|time| time.0).chain(numbers) {
            put(&short(number));
        }
        // What is left of the slot stays empty but for the checksum at its end.
        if let Some((body, sum)) = bytes.split_last_chunk_mut::<8>() {
            *sum = self.checksum(body).to_le_bytes();
        }
        bytes
    }

    /// None where the slot is empty, torn or foreign.
    #[inline(never)]
    fn decode(&self, slot: &[u8]) -> Option<Entry> {
        let (body, sum) = slot.split_last_chunk::<8>()?;
        if names(slot) == 0 || self.checksum(body).to_le_bytes() != *sum {
            return None;
        }
        let mut rest = body;
        let fingerprint = u128::from_le_bytes(*rest.split_off(..16)?.first_chunk()?);
        let mut used = || {
            let units = u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
            let at = Ms(long(rest.split_off(..SHORT)?));
            Some((at > Ms(0)).then_some(Used { units, at }))
        };
        let (known, own) = (used()?, used()?);
        let epoch = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?);
        let waiting = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?);
        let turn = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?);
        let denied = *rest.split_off_first()? != 0;
        let mut number = || Some(long(rest.split_off(..SHORT)?));
        let (means_until, written) = (Ms(number()?), Ms(number()?));
        let (expires, call_ends, since, quiet_until) = (Ms(number()?), Ms(number()?), Ms(number()?), Ms(number()?));
        let (tokens, size, end, spent) = (number()?, number()?, number()?, number()?);
        let (rate, wanted, quiet_cost) = (number()?, number()?, number()?);
        let lease = Lease {
            tokens,
            size,
            end,
            expires,
            call_ends,
            turn,
            waiting,
            spent,
            since,
            rate,
            wanted,
            quiet_until,
            quiet_cost,
            denied,
        };
        Some(Entry { fingerprint, epoch, known, own, lease, means_until, written })
    }
}

impl Entry {
    /// Whether it must not make room: something of it is owed, or a call about it is out, and somebody may still see to it.
    fn stays(&self, now: Ms) -> bool {
        let is_owed = self.lease.spent > 0 || self.lease.call_ends > now;
        self.means_until == STAYS && is_owed && now - self.written < STAYS_FOR
    }
}

/// Bytes of a number that is below 2^48, as times in ms and tokens are.
const SHORT: usize = 6;

/// The largest number in so many bytes.
const LARGEST: u64 = (1 << 48) - 1;

/// A number in six bytes; larger ones do not occur, and are cut to the largest.
fn short(number: u64) -> [u8; SHORT] {
    let [a, b, c, d, e, f, ..] = number.min(LARGEST).to_le_bytes();
    [a, b, c, d, e, f]
}

fn long(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn is_set(bytes: &[u8]) -> bool {
    bytes.len() == SET_BYTES && bytes.starts_with(&MAGIC)
}

fn empty_set() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.resize(SET_BYTES, 0);
    bytes
}

/// The slots of a set; none where it is torn, foreign or of another version.
fn entries(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = if is_set(bytes) { bytes.get(HEAD_BYTES..) } else { None };
    body.unwrap_or_default().chunks_exact(ENTRY_BYTES)
}

fn slots(bytes: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    bytes.get_mut(HEAD_BYTES..).unwrap_or_default().chunks_exact_mut(ENTRY_BYTES)
}

/// The fingerprint that a slot bears; 0 where it is empty.
fn names(slot: &[u8]) -> u128 {
    slot.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
}
