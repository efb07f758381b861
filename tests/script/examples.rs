//! Leases by example: one short history a rule.

use redis::{Connection, cmd};
use weir_sim::root::{Acquire, Reply, Root, Run};

use super::limits::{Limit, Terms};
use super::server::{Redis, Script};

/// Each millisecond adds 100 units, and a token is 1000: one comes every 10 ms. Full after 10 s.
const LIMIT: Limit = Limit { requests: 100, period_ms: 1000, burst: 1000 };
const TERMS: Terms = Terms { life_ms: 300_000, lend: 500 };

/// Large leases live three times as long as an empty bucket takes to be full.
const SHORT_MS: i64 = 30_000;

const START: u64 = 1_700_000_000_000;

/// One bucket, which each call finds as the one before has left it.
struct Bucket {
    script: Script,
    connection: Connection,
    root: Root,
    /// No lease is valid for longer.
    longest_ms: u64,
    _redis: Redis,
}

impl Bucket {
    fn new() -> Bucket {
        let redis = Redis::start();
        let mut connection = redis.connect();
        let script = Script::clocked(&mut connection);
        Bucket { script, connection, root: Root::default(), longest_ms: u64::MAX, _redis: redis }
    }

    /// Calls `after_ms` after the start. The reply: level in tokens, end after the start, kept, extra, limited, granted.
    fn call(&mut self, after_ms: u64, call: &Acquire) -> [i64; 6] {
        let clock = START + after_ms;
        let command = self.script.call_at(clock * 1000, "bucket", call);
        let (found, ..): (Vec<i64>, Vec<u8>, Vec<u8>, Vec<u8>) = command.query(&mut self.connection).unwrap();
        let wanted = self.root.acquire(clock, call);
        assert_eq!(found, wanted.to_list(), "after {after_ms} ms");
        let stored: Option<Vec<u8>> = cmd("GET").arg("bucket").query(&mut self.connection).unwrap();
        assert_eq!(stored, self.root.encode(), "after {after_ms} ms");
        let Reply { level, end, valid_ms, kept, extra, limited, granted, .. } = wanted;
        let end = end.saturating_sub(START);
        assert_eq!(valid_ms, end.saturating_sub(after_ms).min(self.longest_ms), "never longer than two lives");
        let [end, kept, extra, limited, granted] =
            [end, kept, extra, u64::from(limited), granted.iter().sum()].map(|number| number as i64);
        [level / LIMIT.period_ms as i64, end, kept, extra, limited, granted]
    }

    /// The ends of all leases that are counted, after the start, and their tokens.
    fn slots(&self) -> Vec<(u64, u64)> {
        self.root.slots.iter().map(|slot| (slot.end - START, slot.tokens)).collect()
    }
}

fn wants(want: u64) -> Acquire {
    Acquire { want, ..LIMIT.call(TERMS) }
}

fn takes(count: u64) -> Acquire {
    Acquire { runs: vec![Run { cost: 1, count }], ..wants(0) }
}

/// `call` by the holder of a lease that ends so long after the start: so large, so much of it unspent.
fn holding(after_ms: i64, size: u64, carry: u64, call: Acquire) -> Acquire {
    Acquire { end: START + after_ms as u64, size, carry, ..call }
}

#[test]
fn a_lease_is_opened_carried_on_and_given_back() {
    let mut bucket = Bucket::new();
    // A quarter of what is lent freely.
    assert_eq!(bucket.call(0, &wants(400)), [875, SHORT_MS, 0, 125, 0, 0]);
    // 25 were spent in a second. Nothing has come meanwhile, since all that is not lent is there. The other 100 go on in
    // a slot that ends a life from now, since the old one is empty and forgotten.
    let call = holding(SHORT_MS, 125, 100, wants(120));
    assert_eq!(bucket.call(1000, &call), [855, 1000 + SHORT_MS, 100, 20, 0, 0]);
    assert_eq!(bucket.slots(), [(1000 + SHORT_MS as u64, 120)]);
    // 110 come back at once; what was spent comes back at the rate.
    let call = holding(1000 + SHORT_MS, 120, 110, wants(0));
    assert_eq!(bucket.call(1000, &call), [965, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.slots(), []);
}

#[test]
fn who_wants_less_than_it_has_keeps_that_much() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &wants(400)), [875, SHORT_MS, 0, 125, 0, 0]);
    assert_eq!(bucket.call(0, &holding(SHORT_MS, 125, 125, wants(50))), [950, SHORT_MS, 50, 0, 0, 0]);
    assert_eq!(bucket.slots(), [(SHORT_MS as u64, 50)]);
}

#[test]
fn a_small_lease_of_a_rich_bucket_lives_long() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &wants(15)), [985, 300_000, 0, 15, 0, 0]);
    assert_eq!(bucket.call(0, &wants(16)), [969, SHORT_MS, 0, 16, 0, 0]);
}

#[test]
fn a_scarce_bucket_lends_by_the_time_that_it_takes_to_be_full() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &takes(600)), [400, 0, 0, 0, 0, 600]);
    // Six seconds to full: six tenths of what is wanted.
    assert_eq!(bucket.call(0, &wants(100)), [340, SHORT_MS, 0, 60, 0, 0]);
    // Never more than a quarter of what is there, and the reply says that it would have been more.
    assert_eq!(bucket.call(0, &wants(1000)), [255, SHORT_MS, 0, 85, 1, 0]);
    // Those who wait come first. If they do not all get what they need, there is nothing to lend.
    let call = Acquire { runs: takes(300).runs, ..wants(1000) };
    assert_eq!(bucket.call(0, &call), [0, 0, 0, 0, 0, 255]);
}

#[test]
fn what_is_granted_on_hold_is_lent_until_it_is_spent_or_given_back() {
    let mut bucket = Bucket::new();
    let call = Acquire { hold: true, ..takes(100) };
    assert_eq!(bucket.call(0, &call), [900, SHORT_MS, 0, 0, 0, 100]);
    // No time would fill the bucket while it may be spent.
    assert_eq!(bucket.call(SHORT_MS as u64 - 1, &wants(0)), [900, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.slots(), [(SHORT_MS as u64, 100)]);
    let call = holding(SHORT_MS, 100, 100, wants(0));
    assert_eq!(bucket.call(SHORT_MS as u64 - 1, &call), [1000, 0, 0, 0, 0, 0]);
}

#[test]
fn a_debt_is_taken_off_even_below_nothing() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &Acquire { debt: 1200, ..takes(1) }), [-200, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(2010, &takes(1)), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_burst_that_is_lowered_below_what_is_lent_makes_the_level_negative() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &wants(400)), [875, SHORT_MS, 0, 125, 0, 0]);
    let lowered = Acquire { burst: 100, lend: 50, ..takes(1) };
    assert_eq!(bucket.call(1, &lowered), [-25, 0, 0, 0, 0, 0]);
    // Nothing is granted while the lease lasts, and its end is where it was.
    assert_eq!(bucket.call(SHORT_MS as u64 - 1, &lowered), [-25, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.slots(), [(SHORT_MS as u64, 125)]);
    // From then on the bucket fills at its rate: a token every 10 ms.
    assert_eq!(bucket.call(SHORT_MS as u64, &lowered), [-25, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(SHORT_MS as u64 + 259, &lowered), [0, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(SHORT_MS as u64 + 260, &lowered), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn the_lease_of_a_dead_caller_comes_back_by_itself_at_its_end_and_not_before() {
    let mut bucket = Bucket::new();
    let short = SHORT_MS as u64;
    assert_eq!(bucket.call(0, &wants(400)), [875, SHORT_MS, 0, 125, 0, 0]);
    assert_eq!(bucket.call(short - 1, &wants(0)), [875, 0, 0, 0, 0, 0]);
    // It may have been spent up to the last moment, so it comes back at the rate, from its end on.
    assert_eq!(bucket.call(short, &wants(0)), [875, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.slots(), []);
    assert_eq!(bucket.call(short + 1249, &wants(0)), [999, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(short + 1250, &wants(0)), [1000, 0, 0, 0, 0, 0]);
    // A report that comes after the end finds nothing: no token is made.
    assert_eq!(bucket.call(short + 1250, &takes(10)), [990, 0, 0, 0, 0, 10]);
    assert_eq!(
        bucket.call(short + 1250, &holding(SHORT_MS, 125, 125, wants(125))),
        [865, 2 * SHORT_MS + 1250, 0, 125, 0, 0]
    );
}

#[test]
fn a_lease_ends_after_two_lives_at_most_where_the_clock_was_set_back() {
    let (day, short) = (86_400_000, SHORT_MS as u64);
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(day, &wants(400)), [875, 86_400_000 + SHORT_MS, 0, 125, 0, 0]);
    // By two seconds: its end is less than two lives from now, so it stays, and so does what is carried on.
    let call = holding(86_400_000 + SHORT_MS, 125, 100, wants(100));
    assert_eq!(bucket.call(day - 2000, &call), [875, 86_400_000 - 2000 + SHORT_MS, 100, 0, 0, 0]);
    // By a day: it ends after two lives, and who holds it finds it no more; what was carried on is lost until then.
    let call = holding(86_400_000 - 2000 + SHORT_MS, 100, 100, wants(0));
    assert_eq!(bucket.call(0, &call), [875, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.slots(), [(2 * short, 100)]);
    // The next lease is counted there, and lasts no longer.
    assert_eq!(bucket.call(0, &wants(16)), [859, 2 * SHORT_MS, 0, 16, 0, 0]);
    assert_eq!(bucket.call(2 * short - 1, &wants(0)), [884, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(2 * short, &wants(0)), [884, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(2 * short + 1160, &wants(0)), [1000, 0, 0, 0, 0, 0]);
}

#[test]
fn a_lease_of_another_limit_that_lives_longer_is_not_cut_where_the_clock_was_set_back() {
    let mut bucket = Bucket::new();
    // Full after ten times as long: its large leases live 300 s.
    let slow = |call: Acquire| Acquire { requests: 10, ..call };
    assert_eq!(bucket.call(600_000, &slow(wants(400))), [875, 900_000, 0, 125, 0, 0]);
    // 290 s are left of it, and two lives under this limit are 60 s.
    bucket.call(610_000, &wants(0));
    bucket.call(0, &wants(0));
    assert_eq!(bucket.slots(), [(290_000, 125)]);
    // Who borrows now is told of two lives of its own limit.
    bucket.longest_ms = 60_000;
    assert_eq!(bucket.call(0, &wants(16)), [859, 290_000, 0, 16, 0, 0]);
}

#[test]
fn a_lease_that_is_reported_twice_is_taken_off_once() {
    let mut bucket = Bucket::new();
    assert_eq!(bucket.call(0, &wants(400)), [875, SHORT_MS, 0, 125, 0, 0]);
    let report = holding(SHORT_MS, 125, 125, wants(0));
    assert_eq!(bucket.call(0, &report), [1000, 0, 0, 0, 0, 0]);
    assert_eq!(bucket.call(0, &takes(500)), [500, 0, 0, 0, 0, 500]);
    assert_eq!(bucket.call(0, &report), [500, 0, 0, 0, 0, 0]);
}

#[test]
fn two_slots_never_have_the_same_end() {
    let mut bucket = Bucket::new();
    // With lives so short, the long and the short kind end at the same moment.
    let short_lived = |want| Acquire { life_ms: 1000, ..wants(want) };
    assert_eq!(bucket.call(0, &short_lived(10)), [990, 1000, 0, 10, 0, 0]);
    assert_eq!(bucket.call(0, &short_lived(100)), [890, 1001, 0, 100, 0, 0]);
    // A slot takes leases until it has less than a life left; then comes one that ends a life later.
    assert_eq!(bucket.call(0, &short_lived(10)), [880, 1000, 0, 10, 0, 0]);
    assert_eq!(bucket.call(1, &short_lived(10)), [870, 2000, 0, 10, 0, 0]);
    assert_eq!(bucket.call(2, &short_lived(50)), [820, 2001, 0, 50, 0, 0]);
    assert_eq!(bucket.call(999, &short_lived(10)), [810, 2000, 0, 10, 0, 0]);
    assert_eq!(bucket.slots(), [(1000, 20), (1001, 100), (2000, 20), (2001, 50)]);
}
