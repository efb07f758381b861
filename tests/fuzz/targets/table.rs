//! Bytes as the history of a table and a breaker in shared data that others tear, wipe and write over: what is read is
//! what was written, or nothing.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use weir::algorithm::Used;
use weir::clock::Ms;
use weir::local::Store;
use weir::local::breaker::{Breaker, Passage};
use weir::local::lease::Lease;
use weir::local::table::{ENTRY_BYTES, Entry, Fingerprint, SET_BYTES, Table};
use weir::policy::BreakerLimits;
use weir_fuzz::{Pieces, Recorded, Shared};

const LIMITS: BreakerLimits = BreakerLimits { failures: 2, share: 500, within: Ms(1000), probe_every: Ms(200) };

/// Of a longer history, no more is looked at.
const STEPS: usize = 130;

/// What an entry says, in another type.
type Said = (u32, Option<Used>, Option<Used>, Ms, Lease);

fuzz_target!(|bytes: &[u8]| {
    let mut pieces = Pieces(bytes);
    let store = Recorded::default();
    let breaker = Breaker::new("b".to_owned(), LIMITS);
    // All that was ever written of a key: an old value may come back, but none that never was.
    let mut written: BTreeMap<u8, Vec<Said>> = BTreeMap::new();
    let mut now = Ms(1);
    let Some(table) = Table::open(&store, "t", 64, (pieces.number(), pieces.number())) else {
        panic!("shared data is empty");
    };
    let keys: Vec<Fingerprint> = (0..64).map(|key| table.fingerprint(0, &format!("{key}"))).collect();
    let seed = store.shared.value("t.seed");
    for _ in 0..STEPS {
        if pieces.is_empty() {
            break;
        }
        let (what, key) = (pieces.byte() % 12, pieces.byte() % 64);
        let of = keys[usize::from(key)];
        match what {
            0 | 1 => {
                let known = |pieces: &mut Pieces| (pieces.byte() % 2 == 1).then(|| used(pieces));
                let (known, own) = (known(&mut pieces), known(&mut pieces));
                let means_until = Ms(short(&mut pieces));
                let lease = if what == 1 { lease(&mut pieces) } else { Lease::default() };
                let new = (key.into(), known, own, means_until, lease);
                let before = contents(&store);
                let changed = table.change(&store, of, now, |entry| {
                    // A new one starts with any turn.
                    let mut turned = Entry::default();
                    turned.lease.turn = entry.lease.turn;
                    assert!(*entry == turned || written.get(&key).is_some_and(|all| all.contains(&said(entry))));
                    (entry.epoch, entry.known, entry.own, entry.means_until, entry.lease) = new;
                });
                let is_nothing = said(&Entry::default()) == new;
                if changed.is_some() && is_nothing && table.read(&store, of).is_none() {
                    assert!(contents(&store) == before, "nothing is written of what means nothing");
                } else if changed.is_some() {
                    written.entry(key).or_default().push(new);
                    assert_eq!(table.read(&store, of).as_ref().map(said), Some(new));
                } else {
                    assert!(contents(&store) == before, "nothing has changed");
                }
            }
            2 => {
                if let Some(entry) = table.read(&store, of) {
                    assert!(written.get(&key).is_some_and(|all| all.contains(&said(&entry))), "{entry:?}");
                }
            }
            3 => now = now + Ms(pieces.number()),
            4 => store.shared.lose(u32::from(pieces.byte() % 10)),
            5 => tear(&store, &mut pieces),
            6 => store.shared.wipe(),
            7 => {
                breaker.refresh(&store, now);
                let value = store.get("b").map(|(value, _)| value).unwrap_or_default();
                let ours = value.len() == 48 && value.starts_with(b"weirbrk2");
                assert!(ours || !breaker.is_open(), "{}", value.escape_ascii());
            }
            8 => {
                let passage = breaker.ask(&store, now, pieces.number());
                assert!(breaker.is_open() || passage == Passage::Open);
            }
            9 => breaker.failed(&store, now, pieces.number()),
            10 => breaker.succeeded(&store, now),
            // Another worker: it has the same seed, as long as that is there.
            _ => {
                let same = store.shared.value("t.seed") == seed;
                let other = Table::open(&store, "t", 64, (pieces.number(), pieces.number()));
                if let (true, Some(other)) = (same, other) {
                    assert_eq!(other.fingerprint(0, "a"), table.fingerprint(0, "a"));
                }
            }
        }
    }
    // A corrupted value is never an entry.
    let all = store.shared.values();
    for (key, of) in (0..64_u8).zip(&keys) {
        if let Some(entry) = table.read(&store, *of) {
            assert!(written.get(&key).is_some_and(|all| all.contains(&said(&entry))), "{entry:?}");
        }
    }
    for (name, (value, _)) in all.iter().filter(|(name, _)| !store.is_whole(name)) {
        // Of a set that is torn, an entry is found only where it stands as it was once written.
        let torn = Shared::default();
        torn.set(name, value);
        let found = keys.iter().filter(|of| table.read(&torn, **of).is_some()).count();
        let whole = slots(value).filter(|slot| slot.iter().any(|byte| *byte != 0) && was_written(&store, slot)).count();
        assert!(found <= whole, "{name}: {found} of {whole}");
    }
});

/// The slots of a set; none of what is no set.
fn slots(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_set = value.len() == SET_BYTES && value.starts_with(b"weirset3");
    if is_set { &value[8..] } else { &[] }.chunks(ENTRY_BYTES)
}

/// What is there, without the numbers, which a write that comes too late moves on.
fn contents(store: &Recorded) -> Vec<(String, Vec<u8>)> {
    store.shared.values().into_iter().map(|(name, (value, _))| (name, value)).collect()
}

/// Whether a slot was once written, whole, in whichever set and place.
fn was_written(store: &Recorded, slot: &[u8]) -> bool {
    store.whole.borrow().iter().any(|(_, value)| slots(value).any(|whole| whole == slot))
}

fn said(entry: &Entry) -> Said {
    (entry.epoch, entry.known, entry.own, entry.means_until, entry.lease)
}

/// A number as a slot keeps it, in six bytes.
fn short(pieces: &mut Pieces) -> u64 {
    pieces.number() % (1 << 48)
}

fn lease(pieces: &mut Pieces) -> Lease {
    Lease {
        tokens: short(pieces),
        size: short(pieces),
        end: short(pieces),
        expires: Ms(short(pieces)),
        call_ends: Ms(short(pieces)),
        turn: pieces.byte().into(),
        waiting: pieces.byte().into(),
        spent: short(pieces),
        since: Ms(short(pieces)),
        rate: short(pieces),
        wanted: short(pieces),
        quiet_until: Ms(short(pieces)),
        quiet_cost: short(pieces),
        denied: pieces.byte() % 2 == 1,
    }
}

/// Clocks of hosts start long after 0, which is the mark of no bucket.
fn used(pieces: &mut Pieces) -> Used {
    Used { units: pieces.number(), at: Ms(short(pieces).max(1)) }
}

/// Does to a value, or to a name that has none, what a torn write or another filter would.
fn tear(store: &Recorded, pieces: &mut Pieces) {
    let (how, at, byte) =
        (pieces.byte() % 6, usize::from(pieces.byte()) * 256 + usize::from(pieces.byte()), pieces.byte());
    let names = store.shared.names();
    let Some(name) = names.get(usize::from(pieces.byte()) % names.len().max(1)) else { return };
    let mut value = store.get(name).map(|(value, _)| value).unwrap_or_default();
    let at = at.checked_rem(value.len()).unwrap_or_default();
    match how {
        0 => value.truncate(at),
        1 => value.extend(pieces.bytes(usize::from(byte))),
        2 => value = pieces.bytes(usize::from(byte)).to_vec(),
        3 => {
            store.shared.remove(name);
            return;
        }
        4 => {
            // Half of an older write.
            let older = store.whole.borrow().iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
            let older = older.unwrap_or_default();
            value.iter_mut().zip(older).take(at).for_each(|(to, from)| *to = from);
        }
        _ => {
            if let Some(torn) = value.get_mut(at) {
                *torn ^= byte;
            }
        }
    }
    store.shared.set(name, &value);
}
