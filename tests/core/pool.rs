//! What a proxy keeps: the table, byte by byte, its own buckets and the breaker.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};
use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Share, Standing, Used};
use weir::clock::Ms;
use weir::local::breaker::{Breaker, Passage};
use weir::local::lease::Lease;
use weir::local::table::{ENTRY_BYTES, Entry, SET_BYTES, STAYS, Table, WAYS};
use weir::local::{Nowhere, Store};
use weir::policy::{BreakerLimits, Limit};

use crate::made::{Random, Shared, limit, rounds};

/// The first set of table `t` whose seed is 1: the seed and the layout `weirset2`, as numbers.
const SET: &str = "t.3374657372696578.0";

/// A table of one set.
fn one_set(shared: &Shared) -> Table {
    Table::open(shared, "t", WAYS as u64, (1, 2)).expect("shared data")
}

fn note(table: &Table, store: &dyn Store, key: &str, epoch: u32, now: u64, means_until: u64) -> Option<()> {
    table.change(store, table.fingerprint(0, key), Ms(now), |entry| {
        (entry.epoch, entry.means_until) = (epoch, Ms(means_until));
    })
}

fn epoch(table: &Table, store: &dyn Store, key: &str) -> Option<u32> {
    table.read(store, table.fingerprint(0, key)).map(|entry| entry.epoch)
}

fn used(units: u64, at: u64) -> Option<Used> {
    Some(Used { units, at: Ms(at) })
}

/// A lease of which every number is another.
fn lease() -> Lease {
    Lease {
        tokens: 17,
        size: 18,
        end: 19,
        expires: Ms(13),
        call_ends: Ms(14),
        turn: 0x0506_0708,
        waiting: 0x090a_0b0c,
        spent: 20,
        since: Ms(15),
        rate: 21,
        wanted: 22,
        quiet_until: Ms(16),
        quiet_cost: 23,
        denied: true,
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_set_is_these_bytes() {
    assert_eq!((WAYS, ENTRY_BYTES, SET_BYTES), (8, 144, 1160));
    let shared = Shared::default();
    let table = one_set(&shared);
    let of = table.fingerprint(5, "k");
    assert_eq!(table.read(&shared, of), None);
    table.change(&shared, of, Ms(12), |entry| {
        // Turns start anywhere.
        assert_eq!(entry.lease.turn, 2);
        entry.lease.turn = 0;
        assert_eq!(*entry, Entry::default());
        (entry.epoch, entry.known, entry.own) = (0x0102_0304, used(7, 8), used(9, 10));
        (entry.lease, entry.means_until) = (lease(), Ms(11));
    });
    let seed: Vec<u8> = [1_u64, 2].into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!((shared.names(), shared.value("t.seed")), (vec![SET.to_owned(), "t.seed".to_owned()], Some(seed)));
    let mut hasher = SipHasher13::new_with_keys(1, 2);
    hasher.write(b"\x05\0\0\0\0\0\0\0k");
    let mut slot = hasher.finish128().as_u128().to_le_bytes().to_vec();
    for (units, at) in [(7_u64, 8), (9, 10)] {
        slot.extend(units.to_le_bytes());
        slot.extend([at, 0, 0, 0, 0, 0]);
    }
    // Epoch, waiting workers, turn, denied; then the times and the numbers, six bytes each.
    slot.extend([4, 3, 2, 1, 12, 11, 10, 9, 8, 7, 6, 5, 1]);
    slot.extend((11..=23).flat_map(|number| [number, 0, 0, 0, 0, 0]));
    assert_eq!(slot.len(), 135);
    slot.resize(136, 0);
    let mut hasher = SipHasher13::new_with_keys(2, 1);
    hasher.write(&slot);
    slot.extend(hasher.finish().to_le_bytes());
    let mut wanted = [b"weirset3".as_slice(), &slot].concat();
    wanted.resize(SET_BYTES, 0);
    assert_eq!(shared.value(SET), Some(wanted));
    let entry = table.read(&shared, of).expect("an entry");
    assert_eq!((entry.epoch, entry.known, entry.own), (0x0102_0304, used(7, 8), used(9, 10)));
    assert_eq!((entry.lease, entry.means_until, entry.written), (lease(), Ms(11), Ms(12)));
    // A change finds what is there, and one key's is not another's.
    table.change(&shared, of, Ms(13_000), |entry| {
        assert_eq!((entry.known, entry.own, entry.lease), (used(7, 8), used(9, 10), lease()));
        entry.known = None;
    });
    let entry = table.read(&shared, of).expect("an entry");
    assert_eq!((entry.known, entry.own, entry.lease), (None, used(9, 10), lease()));
    assert_eq!(entry.written, Ms(13_000));
    assert_eq!(table.read(&shared, table.fingerprint(5, "l")), None);
    assert_eq!(table.read(&shared, table.fingerprint(4, "k")), None, "a bucket of the same tenant, of another kind");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_not_changed_is_not_written() {
    let shared = Shared::default();
    let table = one_set(&shared);
    // Nothing is known, and nothing is found out.
    assert_eq!(table.change(&shared, table.fingerprint(0, "k"), Ms(1), |entry| entry.epoch), Some(0));
    assert_eq!((shared.value(SET), table.read(&shared, table.fingerprint(0, "k"))), (None, None));
    note(&table, &shared, "k", 1, 1000, 2000);
    let (before, [gets, puts]) = (shared.value(SET), shared.uses());
    note(&table, &shared, "k", 1, 1500, 2000);
    table.change(&shared, table.fingerprint(0, "k"), Ms(1600), |entry| {
        entry.lease.spend(Ms(1600), 1);
    });
    // Two reads and no write; not even when it was looked at is noted.
    assert_eq!((shared.value(SET), shared.uses()), (before, [gets + 2, puts]));
    // Nor is a try lost on it.
    shared.lose(8);
    assert_eq!(note(&table, &shared, "k", 1, 1700, 2000), Some(()));
    assert_eq!(note(&table, &shared, "k", 2, 1700, 2000), None);
}

#[wasm_bindgen_test(unsupported = test)]
fn whatever_an_entry_holds_comes_back() {
    let shared = Shared::default();
    let table = one_set(&shared);
    let largest = (1 << 48) - 1;
    let lease_of = |number: u64, turn, waiting, denied| Lease {
        tokens: number,
        size: number,
        end: number,
        expires: Ms(number),
        call_ends: Ms(number),
        turn,
        waiting,
        spent: number,
        since: Ms(number),
        rate: number,
        wanted: number,
        quiet_until: Ms(number),
        quiet_cost: number,
        denied,
    };
    let round_trip = |known, own, lease, epoch, means_until| {
        table.change(&shared, table.fingerprint(0, "k"), Ms(1), |entry| {
            *entry = Entry::default();
            (entry.known, entry.own, entry.lease) = (known, own, lease);
            (entry.epoch, entry.means_until) = (epoch, means_until);
        });
        let entry = table.read(&shared, table.fingerprint(0, "k")).expect("an entry");
        (entry.known, entry.own, entry.lease, entry.epoch, entry.means_until)
    };
    for units in [0, 1, (1 << 53) - 1, u64::MAX - 1, u64::MAX] {
        for at in [1, largest - 1, largest] {
            let all = (used(units, at), used(!units, at), lease_of(at, u32::MAX, u32::MAX, true), u32::MAX, Ms(at));
            assert_eq!(round_trip(all.0, all.1, all.2, all.3, all.4), all);
            let some = (None, used(units, at), lease_of(0, 0, 0, false), 0, Ms(at));
            assert_eq!(round_trip(some.0, some.1, some.2, some.3, some.4), some);
            let some = (used(units, at), None, lease_of(1, 1, 1, false), 1, Ms(0));
            assert_eq!(round_trip(some.0, some.1, some.2, some.3, some.4), some);
        }
    }
    // Larger numbers do not occur, and are cut to the largest; none wraps to a small one.
    for number in [largest + 1, u64::MAX] {
        let (known, own, lease, _, means_until) =
            round_trip(used(5, number), used(6, number), lease_of(number, 3, 4, true), 5, Ms(number));
        assert_eq!((known, own, means_until), (used(5, largest), used(6, largest), Ms(largest)));
        assert_eq!(lease, lease_of(largest, 3, 4, true));
    }
    let mut random = Random::seeded(15);
    for _ in 0..rounds(5_000) {
        let any = |random: &mut Random| random.draw() >> (16 + random.below(48));
        let used = |random: &mut Random| used(random.draw() >> random.below(63), any(random).max(1));
        let lease = Lease {
            tokens: any(&mut random),
            size: any(&mut random),
            end: any(&mut random),
            expires: Ms(any(&mut random)),
            call_ends: Ms(any(&mut random)),
            turn: random.draw() as u32,
            waiting: random.draw() as u32,
            spent: any(&mut random),
            since: Ms(any(&mut random)),
            rate: any(&mut random),
            wanted: any(&mut random),
            quiet_until: Ms(any(&mut random)),
            quiet_cost: any(&mut random),
            denied: random.one_in(2),
        };
        let all = (used(&mut random), used(&mut random), lease, random.draw() as u32, Ms(any(&mut random)));
        assert_eq!(round_trip(all.0, all.1, all.2, all.3, all.4), all);
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_torn_foreign_or_of_another_version_is_absent() {
    let shared = Shared::default();
    let table = one_set(&shared);
    note(&table, &shared, "k", 1, 1000, 2000);
    let old = shared.value(SET).expect("a set");
    note(&table, &shared, "k", 2, 3000, 4000);
    note(&table, &shared, "l", 3, 3000, 4000);
    let new = shared.value(SET).expect("a set");
    let found = |bytes: &[u8]| {
        shared.set(SET, bytes);
        ["k", "l"].map(|key| epoch(&table, &shared, key))
    };
    assert_eq!([found(&old), found(&new)], [[Some(1), None], [Some(2), Some(3)]]);
    let slots = [8..8 + ENTRY_BYTES, 8 + ENTRY_BYTES..8 + 2 * ENTRY_BYTES];
    for cut in 0..SET_BYTES {
        assert_eq!(found(&new[..cut]), [None, None], "cut at {cut}");
        // An entry that is torn is none, and one that is whole stays.
        let torn = [&old[..cut], &new[cut..]].concat();
        let [first, second] = slots.clone().map(|slot| &torn[slot]);
        let wanted = [
            if *first == old[slots[0].clone()] { Some(1) } else { Some(2).filter(|_| *first == new[slots[0].clone()]) },
            Some(3).filter(|_| *second == new[slots[1].clone()]),
        ];
        assert_eq!(found(&torn), wanted, "torn at {cut}");
        for bit in 0..8 {
            let mut flipped = new.clone();
            flipped[cut] ^= 1 << bit;
            let wanted = match cut {
                0..8 => [None, None],
                _ => [Some(2).filter(|_| !slots[0].contains(&cut)), Some(3).filter(|_| !slots[1].contains(&cut))],
            };
            assert_eq!(found(&flipped), wanted, "bit {bit} of byte {cut}");
        }
    }
    assert_eq!(found(&[&new[..], &[0]].concat()), [None, None]);
    let mut before = new.clone();
    before[7] = b'1';
    assert_eq!(found(&before), [None, None]);
    // Another table's set is foreign, even under the same name.
    let others = Shared::default();
    let other = Table::open(&others, "t", WAYS as u64, (1, 3)).expect("shared data");
    note(&other, &others, "k", 4, 1000, 2000);
    assert_eq!(found(&others.value(SET).expect("a set")), [None, None]);
    let mut random = Random::seeded(11);
    for _ in 0..rounds(2_000) {
        assert_eq!(found(&random.bytes(1300)), [None, None]);
    }
    // What cannot be read is written over: all of it, or the one entry.
    note(&table, &shared, "k", 5, 1000, 2000);
    assert_eq!(["k", "l"].map(|key| epoch(&table, &shared, key)), [Some(5), None]);
    let mut flipped = new.clone();
    flipped[slots[0].end - 1] ^= 1;
    assert_eq!(found(&flipped), [None, Some(3)]);
    note(&table, &shared, "k", 6, 1000, 2000);
    assert_eq!(["k", "l"].map(|key| epoch(&table, &shared, key)), [Some(6), Some(3)]);
    // It went to where it had been.
    let value = shared.value(SET).expect("a set");
    assert_eq!((&value[slots[1].clone()], &value[slots[1].end..]), (&new[slots[1].clone()], &new[slots[1].end..]));
}

#[wasm_bindgen_test(unsupported = test)]
fn an_entry_that_cannot_be_read_goes_first() {
    let shared = Shared::default();
    let table = one_set(&shared);
    for key in 0..8 {
        note(&table, &shared, &key.to_string(), key, 1000 + u64::from(key), 100_000);
    }
    let whole = shared.value(SET).expect("a set");
    for (broken, at) in (0..8).map(|slot| (slot, 8 + slot * ENTRY_BYTES)) {
        for byte in [at, at + 16, at + 60, at + 134, at + ENTRY_BYTES - 1] {
            let mut flipped = whole.clone();
            flipped[byte] ^= 0x10;
            shared.set(SET, &flipped);
            note(&table, &shared, "new", 8, 2000, 100_000);
            for key in 0..8 {
                let wanted = Some(key).filter(|key| *key != broken as u32);
                assert_eq!(epoch(&table, &shared, &key.to_string()), wanted, "byte {byte}");
            }
            assert_eq!(epoch(&table, &shared, "new"), Some(8));
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn workers_agree_on_the_seed() {
    let shared = Shared::default();
    let tables = [(1, 2), (3, 4)].map(|random| Table::open(&shared, "t", 64, random).expect("shared data"));
    assert_eq!(tables[0].fingerprint(0, "k"), tables[1].fingerprint(0, "k"));
    note(&tables[0], &shared, "k", 7, 1, 2);
    assert_eq!(epoch(&tables[1], &shared, "k"), Some(7));
    // A table elsewhere has another, so nobody can tell from outside what meets in a set.
    let elsewhere = Table::open(&Shared::default(), "t", 64, (3, 4)).expect("shared data");
    assert_ne!(elsewhere.fingerprint(0, "k"), tables[0].fingerprint(0, "k"));
    // After a wipe there may be another: then the two do not take each other's sets for torn ones.
    shared.wipe();
    let newer = Table::open(&shared, "t", 8, (3, 4)).expect("shared data");
    let older = one_set(&Shared::default());
    note(&older, &shared, "k", 1, 1, 2);
    note(&newer, &shared, "k", 2, 1, 2);
    assert_eq!((epoch(&older, &shared, "k"), epoch(&newer, &shared, "k")), (Some(1), Some(2)));
    // A seed that is none is chosen anew.
    for bytes in [&b""[..], &[0; 15], &[0; 17]] {
        shared.set("t.seed", bytes);
        let table = Table::open(&shared, "t", 64, (3, 4)).expect("shared data");
        assert_eq!(table.fingerprint(0, "k"), elsewhere.fingerprint(0, "k"));
    }
    assert!(Table::open(&Nowhere, "t", 64, (1, 2)).is_none());
    shared.wipe();
    shared.lose(7);
    assert!(Table::open(&shared, "t", 64, (1, 2)).is_some());
    shared.wipe();
    shared.lose(8);
    assert!(Table::open(&shared, "t", 64, (1, 2)).is_none());
}

#[wasm_bindgen_test(unsupported = test)]
fn updates_that_meet_are_both_kept() {
    let shared = Shared::default();
    let [one, other] = [one_set(&shared), one_set(&shared)];
    // Twice: where nothing is yet, a first write replaces nothing; then a write replaces what was read.
    for round in 1..=2 {
        let mut calls = 0;
        let changed = one.change(&shared, one.fingerprint(0, "a"), Ms(1), |entry| {
            calls += 1;
            if calls == 1 {
                other.change(&shared, other.fingerprint(0, "a"), Ms(1), |entry| entry.epoch += 10);
                note(&other, &shared, "b", round, 1, 1);
            }
            entry.epoch += 1;
            entry.epoch
        });
        assert_eq!((changed, calls), (Some(11 * round), 2));
        assert_eq!((epoch(&one, &shared, "a"), epoch(&one, &shared, "b")), (Some(11 * round), Some(round)));
    }
    // Eight tries, and then nothing has changed.
    for (lost, tries, wanted) in [(7, 8, Some(())), (8, 8, None), (100, 8, None)] {
        note(&one, &shared, "a", 1, 1, 1);
        shared.lose(lost);
        let mut calls = 0;
        let changed = one.change(&shared, one.fingerprint(0, "a"), Ms(1), |entry| {
            calls += 1;
            entry.epoch = 2;
        });
        shared.lose(0);
        assert_eq!((changed, calls), (wanted, tries));
        assert_eq!(epoch(&one, &shared, "a"), Some(if wanted.is_some() { 2 } else { 1 }));
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_means_nothing_goes_first_and_then_what_was_written_longest_ago() {
    let shared = Shared::default();
    let table = one_set(&shared);
    for key in 0..8 {
        // In an order that is not that of the slots.
        let nth = u64::from(key * 3 % 8);
        let means_until = if key == 5 { 20_000 } else { 100_000 };
        note(&table, &shared, &key.to_string(), key, 1000 + 1000 * nth, means_until);
    }
    let known = || -> Vec<String> {
        (0..12).map(|key: u32| key.to_string()).filter(|key| epoch(&table, &shared, key).is_some()).collect()
    };
    assert_eq!(known(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    // Who is known needs no room.
    note(&table, &shared, "0", 100, 10_000, 100_000);
    assert_eq!(known().len(), 8);
    // 5 was written last but one, but means nothing any longer.
    note(&table, &shared, "8", 8, 20_000, 100_000);
    assert_eq!(known(), ["0", "1", "2", "3", "4", "6", "7", "8"]);
    // In the order of writing: 3, 6, 1, 4, 7, 2, then 0 again.
    for (new, gone) in [("9", "3"), ("10", "6"), ("11", "1")] {
        note(&table, &shared, new, 1, 21_000, 100_000);
        assert!(!known().contains(&gone.to_owned()), "{gone} is still there");
        assert_eq!(known().len(), 8);
    }
    assert_eq!(known(), ["0", "2", "4", "7", "8", "9", "10", "11"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn memory_is_bounded_however_many_keys_come() {
    let shared = Shared::default();
    let table = Table::open(&shared, "t", 1000, (1, 2)).expect("shared data");
    let bytes = 125 * SET_BYTES + 16;
    for key in 0..rounds(100_000) {
        let key = format!("tenant {key}");
        assert_eq!(note(&table, &shared, &key, 1, key.len() as u64, 1 << 40), Some(()));
        assert_eq!(epoch(&table, &shared, &key), Some(1));
        if key.ends_with("999") {
            assert!(shared.names().len() <= 126 && shared.bytes() <= bytes);
        }
    }
    // All sets are used, the seed beside them.
    assert_eq!((shared.names().len(), shared.bytes()), (126, bytes));
    // A look-up is one read, a change one read and one write.
    let [gets, puts] = shared.uses();
    epoch(&table, &shared, "tenant 1");
    assert_eq!(shared.uses(), [gets + 1, puts]);
    note(&table, &shared, "tenant 1", 1, 1, 1);
    assert_eq!(shared.uses(), [gets + 2, puts + 1]);
}

/// A bucket in numbers that cannot overflow, by the definition.
#[derive(Clone, Copy)]
struct Oracle {
    units: u128,
    at: u128,
}

impl Oracle {
    /// How it stands now; and whether that has to be kept although nothing is taken, because the clock was set.
    fn refilled(self, limit: Limit, now: u64) -> (Oracle, bool) {
        let [requests, period, burst, now] = [limit.requests(), limit.period().0, limit.burst(), now].map(u128::from);
        let capacity = burst * period;
        if now >= self.at {
            return (Oracle { units: capacity.min(self.units + (now - self.at) * requests), at: now }, false);
        }
        let was_set = self.at - now > capacity.div_ceil(requests).max(1000);
        (Oracle { at: if was_set { now } else { self.at }, ..self }, was_set)
    }

    fn take(&mut self, limit: Limit, now: u64, cost: u64) -> Share {
        let [requests, period, burst, cost] = [limit.requests(), limit.period().0, limit.burst(), cost].map(u128::from);
        let (mut refilled, was_set) = self.refilled(limit, now);
        let ms = |units: u128| Ms(u64::try_from(units.div_ceil(requests)).expect("a time"));
        let granted = cost * period <= refilled.units;
        let retry_after = ms((cost * period).saturating_sub(refilled.units)).max(Ms(1));
        refilled.units -= if granted { cost * period } else { 0 };
        if granted || was_set {
            *self = refilled;
        }
        let remaining = u64::try_from(refilled.units / period).expect("a number");
        let standing = Standing { remaining, reset: ms(burst * period - refilled.units) };
        if granted { Share::Granted(standing) } else { Share::Refused { standing, retry_after } }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_level_is_what_the_oracle_says() {
    let mut random = Random::seeded(12);
    let largest = Limit::new((1 << 53) - 1, Ms(1000), (1 << 53) / 1000).expect("a limit");
    let slowest = Limit::new(1, Ms(31 * 86_400_000), 1).expect("a limit");
    let limits =
        [limit(60, 60, 60), limit(7, 1, 3), limit(1000, 1, 1), largest, slowest, limit(100, 60, 100).share(3, 1)];
    for _ in 0..rounds(2_000) {
        let limit = random.pick(&limits);
        let mut now = 1 << 40;
        let mut level = Used::nothing(Ms(now));
        let mut oracle =
            Oracle { units: u128::from(limit.burst()) * u128::from(limit.period().0), at: u128::from(now) };
        for _ in 0..40 {
            now = match random.below(12) {
                0 => now - random.below(5),
                1 if random.one_in(4) => now - 3_600_000,
                2 => now + random.below(100_000),
                3 if random.one_in(4) => now + random.below(1 << 32),
                _ => now + random.below(50),
            };
            let cost = 1 + random.pick(&[0, 0, 0, 1, limit.burst() / 2, limit.burst() - 1]).min(limit.burst() - 1);
            let share = level.take(limit, Ms(now), cost);
            assert_eq!(share, oracle.take(limit, now, cost));
            assert_eq!((level.level(limit), level.at.0), (oracle.units as i64, oracle.at as u64));
            if let Share::Refused { retry_after, .. } = share {
                // Then it fits, and a millisecond before it does not.
                let refilled = level.refilled(limit, Ms(now));
                let at =
                    |wait: Ms| refilled.refilled(limit, refilled.at + wait).share_of(limit, cost, refilled.at + wait);
                assert!(matches!(at(retry_after), Share::Granted(_)));
                assert!(matches!(at(retry_after - Ms(1)), Share::Refused { .. }));
            }
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_clock_that_goes_back_adds_nothing_and_locks_nobody_out() {
    let minute = limit(60, 60, 60);
    let granted = |level: &mut Used, now| matches!(level.take(minute, Ms(now), 60), Share::Granted(_));
    let start = 10_000_000;
    // By a little: what was counted is not counted again.
    let mut level = Used::nothing(Ms(start));
    assert!(granted(&mut level, start));
    assert!(!granted(&mut level, start - 59_000));
    assert!(!granted(&mut level, start + 59_999));
    assert!(granted(&mut level, start + 60_000));
    // By an hour: it is full again after the time to full, by the new clock.
    let set = start - 3_600_000;
    assert!(!granted(&mut level, set));
    assert!(!granted(&mut level, set + 59_999));
    assert!(granted(&mut level, set + 60_000));
    // And forward again: it is full, and no more than that.
    assert!(granted(&mut level, start));
    assert!(!granted(&mut level, start));
    // Workers whose clocks differ by more than the time to full, which is a millisecond, take from one bucket.
    let fast = limit(1000, 1, 1);
    let mut level = Used::nothing(Ms(start));
    let taken = (0..100).filter(|nth| matches!(level.take(fast, Ms(start + nth % 2 * 5), 1), Share::Granted(_)));
    assert_eq!(taken.count(), 2);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_level_below_nothing_comes_back_by_its_rate() {
    let minute = limit(60, 60, 60);
    let standing = |remaining, reset| Standing { remaining, reset: Ms(reset) };
    // Two tokens and a half are owed: one fits after three seconds and a half.
    let mut owed = Used { units: 3_750_000, at: Ms(1_000_000) };
    assert_eq!(owed.standing(minute, Ms(1_000_000)), standing(0, 62_500));
    assert_eq!(owed.full_at(minute), Ms(1_062_500));
    let refused = Share::Refused { standing: standing(0, 62_500), retry_after: Ms(3_500) };
    assert_eq!(owed.take(minute, Ms(1_000_000), 1), refused);
    assert_eq!(owed, Used { units: 3_750_000, at: Ms(1_000_000) });
    assert!(matches!(owed.take(minute, Ms(1_003_499), 1), Share::Refused { retry_after: Ms(1), .. }));
    assert_eq!(owed.take(minute, Ms(1_003_500), 1), Share::Granted(standing(0, 60_000)));
    assert_eq!(owed, Used { units: 3_600_000, at: Ms(1_003_500) });
    // As much as numbers hold, nothing is wrapped.
    let most = Used { units: u64::MAX, at: Ms(1) };
    assert_eq!(most.minus(minute, u64::MAX), most);
    assert_eq!(most.plus(minute, u64::MAX), Used::nothing(Ms(1)));
    assert_eq!(Used::nothing(Ms(1)).plus(minute, 1), Used::nothing(Ms(1)));
    assert_eq!(most.level(minute), i64::MIN);
    assert_eq!(most.standing(minute, Ms(1)).remaining, 0);
    let half = |units| Used { units, at: Ms(1) }.is_low(minute);
    assert_eq!([half(u64::MAX), half(1_800_000), half(1_799_999)], [true, true, false]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_refusal_tells_of_no_more_than_it_refuses() {
    let minute = limit(60, 60, 60);
    let seven = Used { units: 3_180_000, at: Ms(1) };
    let told = |cost, at_least| match seven.refuse(minute, cost, Ms(at_least), Ms(1)) {
        Share::Refused { standing, retry_after } => (standing.remaining, retry_after.0),
        Share::Granted(standing) => panic!("{standing:?}"),
    };
    // Ten are not there for three seconds; seven are, and are refused all the same.
    assert_eq!([told(10, 0), told(10, 3_000), told(10, 3_001)], [(7, 3_000), (7, 3_000), (7, 3_001)]);
    assert_eq!([told(7, 0), told(7, 250), told(1, 250)], [(6, 1), (6, 250), (0, 250)]);
}

#[wasm_bindgen_test(unsupported = test)]
fn shares_are_exact_and_their_sum_is_the_limit() {
    let whole = limit(100, 60, 100);
    let share = whole.share(3, 1);
    assert_eq!((share.requests(), share.period(), share.burst()), (100, Ms(180_000), 33));
    // In an hour each proxy admits its burst and a third of 6000, to the request, however often it is asked.
    let admitted: u64 = [1, 7, 17]
        .map(|step| {
            let mut level = Used::nothing(Ms(1));
            let times = (1..=3_600_001).step_by(step * 50);
            let granted = |now: &usize| matches!(level.take(share, Ms(*now as u64), 1), Share::Granted(_));
            let mut last = 0;
            let all = times.inspect(|now| last = *now as u64 - 1).filter(granted).count() as u64;
            assert_eq!(all, 33 + last * 100 / 180_000);
            all
        })
        .iter()
        .sum();
    assert!(admitted <= 100 + 6000, "{admitted}");
    // A share of one is the whole; one that rounds down to nothing holds a token, or the largest cost.
    assert_eq!(whole.share(1, 1), whole);
    assert_eq!([whole.share(101, 1).burst(), whole.share(10, 40).burst(), whole.share(2, 50).burst()], [1, 40, 50]);
}

const LIMITS: BreakerLimits = BreakerLimits { failures: 3, share: 500, within: Ms(1000), probe_every: Ms(200) };

fn breaker() -> Breaker {
    Breaker::new("b".to_owned(), LIMITS)
}

/// A breaker that has opened at 1000: its first probe goes at 1200.
fn open(shared: &Shared) -> Breaker {
    let breaker = breaker();
    for _ in 0..3 {
        breaker.failed(shared, Ms(1000), 0);
    }
    assert!(breaker.is_open());
    breaker
}

#[wasm_bindgen_test(unsupported = test)]
fn a_breaker_opens_after_failures_within_the_time() {
    let opens = |times: &[u64]| {
        let (shared, breaker) = (Shared::default(), breaker());
        for ms in times {
            assert!(!breaker.is_open());
            breaker.failed(&shared, Ms(1_000_000 + ms), 0);
        }
        breaker.is_open()
    };
    assert!(opens(&[0, 0, 0]));
    assert!(opens(&[700, 1200, 1700]));
    assert!(!opens(&[700, 1200]));
    assert!(!opens(&[700, 1200, 1701]));
    // Spread out, they never do.
    assert!(!opens(&(0..1000).map(|nth| nth * 501).collect::<Vec<_>>()));
    // A clock that goes back starts anew.
    assert!(!opens(&[700, 1200, 200]));
    // Two workers count together.
    let (shared, [one, other]) = (Shared::default(), [breaker(), breaker()]);
    one.failed(&shared, Ms(5000), 0);
    other.failed(&shared, Ms(5001), 0);
    one.failed(&shared, Ms(5002), 0);
    assert!(one.is_open());
    // The other may ask until it has heard of it.
    assert_eq!((other.is_open(), other.ask(&shared, Ms(5003), 0)), (false, Passage::Open));
    other.refresh(&shared, Ms(1000));
    assert_eq!((other.is_open(), other.ask(&shared, Ms(5003), 0)), (true, Passage::Barred));
    // While it is closed it neither reads nor writes.
    let (shared, closed) = (Shared::default(), breaker());
    assert_eq!(closed.ask(&shared, Ms(1), 0), Passage::Open);
    closed.succeeded(&shared, Ms(1000));
    assert_eq!(shared.uses(), [0, 0]);
}

#[wasm_bindgen_test(unsupported = test)]
fn one_probe_goes_at_a_time_and_its_success_closes_for_all() {
    let shared = Shared::default();
    let one = open(&shared);
    let other = breaker();
    other.refresh(&shared, Ms(1000));
    for now in [1000, 1199] {
        assert_eq!(one.ask(&shared, Ms(now), 0), Passage::Barred);
        assert_eq!(other.ask(&shared, Ms(now), 0), Passage::Barred);
    }
    let ask = |now| [one.ask(&shared, Ms(now), 0), other.ask(&shared, Ms(now), 0), one.ask(&shared, Ms(now), 0)];
    let barred = Passage::Barred;
    assert_eq!(ask(1200), [Passage::Open, barred, barred]);
    // A probe that was lost is followed by another.
    assert_eq!(ask(1400), [Passage::Open, barred, barred]);
    // One that fails puts the next off.
    one.failed(&shared, Ms(1500), 0);
    assert_eq!(one.ask(&shared, Ms(1699), 0), Passage::Barred);
    assert_eq!(other.ask(&shared, Ms(1699), 0), Passage::Barred);
    assert_eq!(ask(1700), [Passage::Open, barred, barred]);
    one.succeeded(&shared, Ms(1000));
    assert_eq!((one.is_open(), other.is_open()), (false, true));
    other.refresh(&shared, Ms(1000));
    assert!(!other.is_open());
    assert_eq!(ask(1701), [Passage::Open; 3]);
    // It has forgotten its failures.
    one.failed(&shared, Ms(1702), 0);
    one.failed(&shared, Ms(1702), 0);
    assert!(!one.is_open());
    // A probe that was set by a clock an hour ahead bars nobody.
    let hour = Ms(3_600_000);
    (0..2).for_each(|_| one.failed(&shared, hour, 0));
    assert_eq!(one.ask(&shared, hour, 0), Passage::Open);
    one.failed(&shared, hour, 0);
    assert_eq!(one.ask(&shared, hour, 0), barred);
    other.refresh(&shared, Ms(1000));
    assert_eq!(other.ask(&shared, Ms(2000), 0), Passage::Open);
    assert_eq!(other.ask(&shared, Ms(2000), 0), barred);
    other.succeeded(&shared, Ms(1000));
    // One that has not heard of the recovery finds it out when it would probe.
    let late = open(&Shared::default());
    shared.wipe();
    assert_eq!((late.ask(&shared, Ms(1200), 0), late.is_open()), (Passage::Open, false));
}

#[wasm_bindgen_test(unsupported = test)]
fn probes_come_after_a_half_to_the_whole_of_their_time() {
    let mut random = Random::seeded(13);
    let mut waits = Vec::new();
    for _ in 0..rounds(4_000).max(1_500) {
        let (shared, breaker) = (Shared::default(), breaker());
        (0..3).for_each(|_| breaker.failed(&shared, Ms(1000), random.draw()));
        // Who is told to wait changes nothing, and whoever is not is the probe.
        let until_probe = |from: Ms| {
            let probe = (0..=200).map(Ms).find(|wait| breaker.ask(&shared, from + *wait, 7) == Passage::Open);
            probe.expect("a probe in time")
        };
        breaker.failed(&shared, Ms(1000), random.draw());
        let wait = until_probe(Ms(1000));
        assert!(Ms(100) <= wait && wait <= Ms(200), "{wait:?}");
        // The probe after one that has failed is jittered too.
        breaker.failed(&shared, Ms(1000) + wait, random.draw());
        let next = until_probe(Ms(1000) + wait);
        assert!(Ms(100) <= next && next <= Ms(200), "{next:?}");
        waits.extend([wait, next]);
    }
    waits.sort();
    waits.dedup();
    assert_eq!(waits.len(), 101, "{waits:?}");
}

#[wasm_bindgen_test(unsupported = test)]
fn a_breaker_that_cannot_be_read_is_closed_and_one_that_cannot_be_written_probes_nothing() {
    let shared = Shared::default();
    let held = open(&shared);
    let whole = shared.value("b").expect("a state");
    assert_eq!(whole.len(), 48);
    let is_open = |bytes: &[u8]| {
        shared.set("b", bytes);
        let breaker = breaker();
        breaker.refresh(&shared, Ms(1000));
        breaker.is_open()
    };
    assert!(is_open(&whole));
    for byte in 0..whole.len() {
        assert!(!is_open(&whole[..byte]));
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << bit;
            assert!(!is_open(&flipped), "bit {bit} of byte {byte}");
        }
    }
    assert!(!is_open(&[&whole[..], &[0]].concat()));
    // Who cannot write that it probes does not.
    shared.set("b", &whole);
    shared.lose(8);
    assert_eq!(held.ask(&shared, Ms(1200), 0), Passage::Barred);
    shared.lose(7);
    assert_eq!(held.ask(&shared, Ms(1200), 0), Passage::Open);
    // Without shared data it never opens.
    let alone = breaker();
    (0..100).for_each(|_| alone.failed(&Nowhere, Ms(1000), 0));
    assert!(!alone.is_open());
}

/// So many calls that go well, at a moment.
fn succeed(breaker: &Breaker, shared: &Shared, now: u64, calls: u64) {
    (0..calls).for_each(|_| breaker.succeeded(shared, Ms(now)));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_breaker_opens_where_failures_are_enough_and_enough_of_all_calls() {
    // A failure, calls that go well, and failures until it opens: so many failures in all.
    let opens_at = |share: u16, successes: u64| {
        let shared = Shared::default();
        let breaker = Breaker::new("b".to_owned(), BreakerLimits { share, ..LIMITS });
        breaker.failed(&shared, Ms(5000), 0);
        succeed(&breaker, &shared, 5001, successes);
        let more = (1..200).find(|_| {
            breaker.failed(&shared, Ms(5002), 0);
            breaker.is_open()
        });
        more.map(|more| more + 1)
    };
    // As many failures as successes are a half of the calls; without successes the least number is enough.
    assert_eq!([0, 3, 4, 50].map(|successes| opens_at(500, successes)), [3, 3, 4, 50].map(Some));
    assert_eq!([0, 1, 9, 30].map(|successes| opens_at(250, successes)), [3, 3, 3, 10].map(Some));
    assert_eq!([0, 1000].map(|successes| opens_at(0, successes)), [3, 3].map(Some), "failures alone");
    assert_eq!([0, 1].map(|successes| opens_at(1000, successes)), [Some(3), None], "nothing may go well");
}

#[wasm_bindgen_test(unsupported = test)]
fn successes_cost_no_look_at_shared_data_and_are_merged_at_ticks_into_a_window() {
    let (shared, [one, other]) = (Shared::default(), [breaker(), breaker()]);
    succeed(&one, &shared, 5000, 1000);
    assert_eq!(shared.uses(), [0, 0]);
    // No window: a tick only looks, and what went well before is forgotten.
    one.refresh(&shared, Ms(5005));
    assert_eq!(shared.uses(), [1, 0]);
    other.failed(&shared, Ms(5010), 0);
    one.refresh(&shared, Ms(5010));
    assert_eq!(shared.uses(), [3, 1], "nothing is to be merged");
    succeed(&one, &shared, 5011, 2);
    one.refresh(&shared, Ms(5020));
    assert_eq!(shared.uses(), [5, 2]);
    // Two failures and two successes are a half, but no three failures.
    other.failed(&shared, Ms(5021), 0);
    assert!(!other.is_open());
    succeed(&one, &shared, 5022, 2);
    one.refresh(&shared, Ms(5030));
    other.failed(&shared, Ms(5031), 0);
    assert!(!other.is_open(), "three of seven");
    other.failed(&shared, Ms(5032), 0);
    assert!(other.is_open(), "four of eight");
    // While it is open, and where the window is over, nothing is merged.
    let [reads, writes] = shared.uses();
    succeed(&one, &shared, 5033, 1);
    one.refresh(&shared, Ms(5040));
    assert_eq!((one.is_open(), shared.uses()), (true, [reads + 1, writes]));
}

/// What workers see of a limiter: each makes so many calls in a millisecond, of which so many of a thousand fail.
fn run_workers(
    workers: &[Breaker],
    shared: &Shared,
    at: std::ops::Range<u64>,
    calls: u64,
    failing: u64,
) -> Option<u64> {
    let mut random = Random::seeded(at.start);
    for now in at {
        for (nth, worker) in workers.iter().enumerate() {
            for _ in 0..calls {
                match random.draw() % 1000 < failing {
                    true => worker.failed(shared, Ms(now), 0),
                    false => worker.succeeded(shared, Ms(now)),
                }
            }
            if (now + nth as u64).is_multiple_of(10) {
                worker.refresh(shared, Ms(now));
            }
        }
        if workers.iter().any(Breaker::is_open) {
            return Some(now);
        }
    }
    None
}

#[wasm_bindgen_test(unsupported = test)]
fn a_few_slow_calls_of_many_workers_leave_it_closed_and_a_dead_limiter_opens_it() {
    let limits = BreakerLimits { failures: 5, ..LIMITS };
    for count in [1, 8, 16] {
        for calls in [1, 2] {
            let shared = Shared::default();
            let workers: Vec<Breaker> = (0..count).map(|_| Breaker::new("b".to_owned(), limits)).collect();
            let alive = 10_000..10_000 + rounds(60_000).max(5_000);
            let dies = alive.end;
            assert_eq!(run_workers(&workers, &shared, alive, calls, 5), None, "{count} workers, one call in 200 slow");
            // It dies in the middle of a window. With as many calls as before, it is noticed at once.
            let opened = run_workers(&workers, &shared, dies..dies + 3000, calls, 1000).expect("it opens");
            assert!(opened - dies <= 1000, "{count} workers: {} ms", opened - dies);
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn successes_just_before_the_end_keep_it_closed_for_one_window_and_the_least_failures_at_most() {
    // A failure, a thousand calls that go well, and then one failure every 100 ms: the worst case is a window that has
    // just begun.
    let (shared, breaker) = (Shared::default(), breaker());
    breaker.failed(&shared, Ms(5000), 0);
    succeed(&breaker, &shared, 5001, 1000);
    breaker.refresh(&shared, Ms(5002));
    let opened = (1..100).map(|nth| 5002 + nth * 100).find(|now| {
        breaker.failed(&shared, Ms(*now), 0);
        breaker.is_open()
    });
    // The window is over at 6000; the next begins with the failure at 6002, and its third opens it.
    assert_eq!(opened, Some(6202));
    // At low traffic, too: what went well in the second before, without a failure, counts nothing.
    let (shared, alone) = (Shared::default(), self::breaker());
    for now in (5000..6000).step_by(100) {
        alone.succeeded(&shared, Ms(now));
        alone.refresh(&shared, Ms(now + 10));
    }
    (0..3).for_each(|nth| alone.failed(&shared, Ms(6000 + nth * 100), 0));
    assert!(alone.is_open());
}

#[wasm_bindgen_test(unsupported = test)]
fn what_the_limiter_has_not_been_told_makes_no_room() {
    let shared = Shared::default();
    let table = one_set(&shared);
    // Something is owed, as long as it says so.
    let note = |key: &str, epoch: u32, now, means_until| {
        table.change(&shared, table.fingerprint(0, key), Ms(now), |entry| {
            (entry.epoch, entry.means_until) = (epoch, Ms(means_until));
            entry.lease.spent = u64::from(means_until == STAYS.0);
        })
    };
    for key in 0..7 {
        note(&key.to_string(), key, 1000 + u64::from(key), STAYS.0);
    }
    // Whatever else comes has the one place that is left.
    for key in 7..100 {
        assert_eq!(note(&key.to_string(), key, 2000, 1_000_000), Some(()));
        let found = (0..7).map(|key| epoch(&table, &shared, &key.to_string())).collect::<Option<Vec<_>>>();
        assert_eq!(found, Some((0..7).collect()));
        assert_eq!(epoch(&table, &shared, &key.to_string()), Some(key));
    }
    assert_eq!(table.take_evictions(), 92);
    // Where all have to stay, nothing new is kept, and nothing is written; what is there can be changed.
    note("99", 99, 2000, STAYS.0);
    let before = (shared.value(SET), shared.uses()[1]);
    assert_eq!(note("new", 1, 3000, 1_000_000), None);
    assert_eq!((shared.value(SET), shared.uses()[1], epoch(&table, &shared, "new")), (before.0, before.1, None));
    assert_eq!((note("3", 33, 3000, STAYS.0), epoch(&table, &shared, "3")), (Some(()), Some(33)));
    // What is settled may go again, and what nobody has written for an hour.
    note("5", 5, 3001, 0);
    assert_eq!((note("new", 1, 3002, 1_000_000), epoch(&table, &shared, "5")), (Some(()), None));
    note("new", 1, 3002, STAYS.0);
    let hour = 3_600_000;
    assert_eq!(note("newer", 1, 999 + hour, 10_000_000), None);
    assert_eq!((note("newer", 1, 1000 + hour, 10_000_000), epoch(&table, &shared, "0")), (Some(()), None));
    assert_eq!(epoch(&table, &shared, "1"), Some(1));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_question_has_its_place_until_its_call_is_over_though_nothing_is_owed() {
    let shared = Shared::default();
    let table = one_set(&shared);
    for key in 0..8 {
        table.change(&shared, table.fingerprint(0, &key.to_string()), Ms(1000), |entry| {
            (entry.epoch, entry.means_until, entry.lease.call_ends) = (key, STAYS, Ms(2000));
        });
    }
    let comes = |now| note(&table, &shared, "new", 9, now, 1_000_000);
    assert_eq!((comes(1999), epoch(&table, &shared, "0")), (None, Some(0)));
    // Nobody has said how its call ended: whoever made it is gone.
    assert_eq!((comes(2000), epoch(&table, &shared, "0")), (Some(()), None));
}

/// After how many tenants that come after it a bucket that is not full yet makes room: docs/leases.md tells it of `entries`.
#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_makes_room_after_about_as_many_tenants_as_there_are_entries() {
    const ENTRIES: usize = 4096;
    let mut gone = [0_usize; 4];
    // Tenants that have come later: a quarter of the entries, 0.36 and 0.96 of them, and twice as many.
    let later = [1024, 1475, 3932, 8192];
    let each = 400;
    let last = later[3] + each;
    let tables = 4;
    for seed in 0..tables {
        let shared = Shared::default();
        let table = Table::open(&shared, "t", ENTRIES as u64, (seed, 77)).expect("shared data");
        for tenant in 0..last {
            note(&table, &shared, &tenant.to_string(), 1, tenant as u64 + 1, 1_000_000);
        }
        for (gone, later) in gone.iter_mut().zip(later) {
            let of = (last - later - each / 2..last - later + each / 2).filter(|tenant| *tenant < last);
            *gone += of.filter(|tenant| epoch(&table, &shared, &tenant.to_string()).is_none()).count();
        }
    }
    // Of 1600: one in a thousand, one in a hundred, half of them, nearly all.
    let [quarter, third, once, twice] = gone;
    assert!(quarter <= 10 && third <= 60 && (700..=900).contains(&once) && twice >= 1550, "{gone:?}");
}
