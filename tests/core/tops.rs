//! Sketches of those who come most often, against exact counts.

use std::collections::BTreeMap;

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::Ms;
use weir::local::Store;
use weir::local::top::{COUNTERS, HALVED_EVERY, Kind, Recent, Sketch, Top, recent};

use crate::made::{Random, Shared, rounds};

fn counts(sketch: &Sketch) -> Vec<(&str, u64, u64)> {
    sketch.counters().iter().map(|counter| (&*counter.tenant, counter.count, counter.error)).collect()
}

fn name(rule: usize, kind: Kind) -> String {
    format!("{rule} {kind:?}")
}

/// Who counts here and then, in a worker of its own.
fn merged(shared: &Shared, tenants: &[&str], since: u64, now: u64) {
    let mut top = Top::default();
    top.merge(shared, Ms(since), &name);
    tenants.iter().for_each(|tenant| top.add(0, Kind::Busiest, tenant));
    top.merge(shared, Ms(now), &name);
}

fn told(shared: &Shared, now: u64) -> Recent {
    recent(shared, &name(0, Kind::Busiest), Ms(now))
}

#[wasm_bindgen_test(unsupported = test)]
fn no_count_is_too_small_and_no_error_is_told_too_small() {
    let mut random = Random::seeded(1);
    for _ in 0..rounds(200) {
        let (mut exact, mut sketches) = (BTreeMap::<String, u64>::new(), [Sketch::default(), Sketch::default()]);
        let (people, requests) = (1 + random.below(300), random.below(3000));
        for _ in 0..requests {
            // Few come often.
            let tenant = format!("t.{}", random.below(people) * random.below(people) / people);
            *exact.entry(tenant.clone()).or_default() += 1;
            sketches[random.below(2) as usize].add(&tenant);
        }
        let [mut all, other] = sketches;
        all.merge(&other);
        assert!(all.counters().len() <= COUNTERS);
        assert!(all.counters().is_sorted_by_key(|counter| std::cmp::Reverse(counter.count)));
        for counter in all.counters() {
            let of = exact[&*counter.tenant];
            assert!((of..=of + counter.error).contains(&counter.count), "{counter:?} has come {of} times");
        }
        // Who comes more often than a share of all is there: each of the two sketches adds its own error.
        for (tenant, count) in &exact {
            let is_there = all.counters().iter().any(|counter| *counter.tenant == **tenant);
            assert!(
                is_there || *count <= 2 * requests / COUNTERS as u64,
                "{tenant} has come {count} of {requests} times"
            );
        }
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn the_least_makes_room_and_hands_its_count_on_as_error() {
    let mut sketch = Sketch::default();
    for number in 0..COUNTERS {
        sketch.add(&format!("t.{number}"));
        sketch.add(&format!("t.{number}"));
    }
    sketch.add("t.new");
    let new = sketch.counters().iter().find(|counter| &*counter.tenant == "t.new").expect("the new one");
    assert_eq!((new.count, new.error), (3, 2));
    assert!(!sketch.counters().iter().any(|counter| &*counter.tenant == "t.0"));
}

#[wasm_bindgen_test(unsupported = test)]
fn workers_count_together_and_old_counts_fade() {
    let shared = Shared::default();
    merged(&shared, &["a", "a", "a", "b"], 1000, 2000);
    merged(&shared, &["b", "c"], 1500, 2500);
    let now = told(&shared, 3000);
    assert_eq!((counts(&now.sketch), now.seen), (vec![("a", 3, 0), ("b", 2, 0), ("c", 1, 0)], Ms(2000)));
    // A minute after the first merge all counts are halved, and with them the time that they tell of.
    let minute = 2000 + HALVED_EVERY.0;
    let now = told(&shared, minute - 1);
    assert_eq!((counts(&now.sketch).len(), now.seen), (3, Ms(60_999)));
    let now = told(&shared, minute);
    assert_eq!((counts(&now.sketch), now.seen), (vec![("a", 1, 0), ("b", 1, 0)], Ms(30_500)));
    merged(&shared, &["c"], minute, minute + 1000);
    let now = told(&shared, minute + 1000);
    assert_eq!((counts(&now.sketch), now.seen), (vec![("a", 1, 0), ("b", 1, 0), ("c", 1, 0)], Ms(31_500)));
    // After an hour nothing is left, and it begins anew.
    assert_eq!(told(&shared, 4_000_000), told(&Shared::default(), 4_000_000));
    merged(&shared, &["d", "d"], 4_000_000, 4_001_000);
    let now = told(&shared, 4_001_000);
    assert_eq!((counts(&now.sketch), now.seen), (vec![("d", 2, 0)], Ms(1000)));
}

#[wasm_bindgen_test(unsupported = test)]
fn what_cannot_be_written_is_kept_for_the_next_time() {
    let shared = Shared::default();
    let mut top = Top::default();
    top.merge(&shared, Ms(1000), &name);
    top.add(0, Kind::Busiest, "a");
    shared.lose(100);
    top.merge(&shared, Ms(2000), &name);
    shared.lose(0);
    top.add(0, Kind::Busiest, "a");
    top.merge(&shared, Ms(2999), &name);
    assert_eq!(counts(&told(&shared, 3000).sketch), []);
    top.merge(&shared, Ms(3000), &name);
    assert_eq!(counts(&told(&shared, 3000).sketch), [("a", 2, 0)]);
    let writes = shared.uses();
    top.merge(&shared, Ms(4000), &name);
    assert_eq!(shared.uses(), writes, "nothing is merged twice");
}

#[wasm_bindgen_test(unsupported = test)]
fn torn_and_foreign_values_count_nothing() {
    let shared = Shared::default();
    merged(&shared, &["a", "b"], 1000, 2000);
    let stored = name(0, Kind::Busiest);
    let (bytes, _) = shared.get(&stored).expect("a sketch");
    for length in 0..bytes.len() {
        shared.set(&stored, &bytes[..length]);
        assert_eq!(counts(&told(&shared, 2000).sketch), [], "{length} bytes");
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1;
        shared.set(&stored, &other);
        assert_eq!(counts(&told(&shared, 2000).sketch), [], "byte {at}");
    }
    shared.set(&stored, &bytes);
    assert_eq!(counts(&told(&shared, 2000).sketch), [("a", 1, 0), ("b", 1, 0)]);
}
