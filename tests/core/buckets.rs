//! The numbers of a token bucket, against an oracle that takes one request at a time.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquire, Acquired, Impossible, Lent, Offer, Run, Share, Standing, runs};
use weir::clock::Ms;
use weir::policy::Limit;

use crate::made::{Random, limit, only_for, rounds};

/// A reply that lends nothing.
fn lends_nothing(level: i64, reset: i64, granted: &[i64]) -> Vec<i64> {
    [&[level, reset, 0, 0, 0, 0, 0], granted].concat()
}

fn run(cost: u64, count: u64) -> Run {
    Run { cost, count }
}

#[wasm_bindgen_test(unsupported = test)]
fn costs_in_a_row_are_coded_as_runs() {
    let table: [(&[u64], &[Run]); 7] = [
        (&[], &[]),
        (&[1], &[run(1, 1)]),
        (&[1, 1, 1], &[run(1, 3)]),
        (&[1, 2, 1], &[run(1, 1), run(2, 1), run(1, 1)]),
        (&[10, 10, 1, 1, 1, 10], &[run(10, 2), run(1, 3), run(10, 1)]),
        (&[u64::MAX, u64::MAX], &[run(u64::MAX, 2)]),
        (&[3, 2, 2], &[run(3, 1), run(2, 2)]),
    ];
    for (costs, wanted) in table {
        assert_eq!(runs(costs.iter().copied()), wanted);
    }
}

/// Level, reset and how many of each run were granted; and what that says.
type Reading<'g> = (i64, i64, &'g [i64], Result<Acquired, Impossible>);

#[wasm_bindgen_test(unsupported = test)]
fn a_reply_that_cannot_be_true_is_refused() {
    // 60/m: a token is 60,000 units, a millisecond brings 60, a full bucket is 3,600,000.
    let minute = limit(60, 60, 60);
    let asked = [run(1, 2), run(3, 1)];
    let grants = |level, granted: &[u64]| {
        Ok(Acquired { level, lent: Lent::default(), granted: granted.to_vec(), window_left: Ms(0) })
    };
    let table: [Reading; 39] = [
        (3_300_000, 5000, &[2, 1], grants(3_300_000, &[2, 1])),
        (0, 60_000, &[2, 1], grants(0, &[2, 1])),
        (59_999, 59_001, &[0, 0], grants(59_999, &[0, 0])),
        (0, 60_000, &[1, 0], grants(0, &[1, 0])),
        (60_000, 59_000, &[2, 0], grants(60_000, &[2, 0])),
        (179_999, 57_001, &[2, 0], grants(179_999, &[2, 0])),
        // Too few numbers.
        (3_300_000, 5000, &[], Err(Impossible)),
        (3_300_000, 5000, &[2], Err(Impossible)),
        // Too many.
        (3_300_000, 5000, &[2, 1, 0], Err(Impossible)),
        (3_300_000, 5000, &[2, 1, 1], Err(Impossible)),
        // Negative ones; a level may be negative, and nothing is granted of it.
        (-1, 60_001, &[0, 0], grants(-1, &[0, 0])),
        (0, -60_000, &[0, 0], Err(Impossible)),
        (0, 60_000, &[-1, 0], Err(Impossible)),
        (0, 60_000, &[0, -1], Err(Impossible)),
        (i64::MIN, i64::MIN, &[i64::MIN, i64::MIN], Err(Impossible)),
        // More granted than asked for.
        (0, 60_000, &[3, 0], Err(Impossible)),
        (0, 60_000, &[2, 2], Err(Impossible)),
        (0, 60_000, &[i64::MAX, 1], Err(Impossible)),
        // More tokens than a full bucket has.
        (3_600_001, 0, &[0, 0], Err(Impossible)),
        (3_600_000, 0, &[2, 1], Err(Impossible)),
        (3_300_001, 4999, &[2, 1], Err(Impossible)),
        (3_300_001, 5000, &[2, 1], Err(Impossible)),
        (i64::MAX, 0, &[2, 1], Err(Impossible)),
        // A reset that does not belong to the level.
        (3_300_000, 4999, &[2, 1], Err(Impossible)),
        (3_300_000, 5001, &[2, 1], Err(Impossible)),
        (3_300_000, 0, &[2, 1], Err(Impossible)),
        (0, 0, &[2, 1], Err(Impossible)),
        (0, i64::MAX, &[2, 1], Err(Impossible)),
        (59_999, 59_000, &[0, 0], Err(Impossible)),
        // Somebody is passed over who would have fitted.
        (3_600_000, 0, &[0, 0], Err(Impossible)),
        (60_000, 59_000, &[1, 0], Err(Impossible)),
        (180_000, 57_000, &[2, 0], Err(Impossible)),
        (0, 60_000, &[0, 1], Err(Impossible)),
        (0, 60_000, &[1, 1], Err(Impossible)),
        (-1, 60_001, &[1, 0], Err(Impossible)),
        (-60_000, 61_000, &[0, 0], grants(-60_000, &[0, 0])),
        // More was used than the script counts: 2^53 units and more.
        (3_600_001 - (1 << 53), 150_119_987_579_017, &[0, 0], grants(3_600_001 - (1 << 53), &[0, 0])),
        (3_600_000 - (1 << 53), 150_119_987_579_017, &[0, 0], Err(Impossible)),
        (-(1 << 53), 150_119_987_639_017, &[0, 0], Err(Impossible)),
    ];
    let asked = only_for(minute, &asked);
    for (level, reset, granted, wanted) in table {
        let reply = lends_nothing(level, reset, granted);
        assert_eq!(Acquired::from_reply(&reply, &asked), wanted, "{reply:?}");
    }
    // Too short to say anything.
    for length in 0..7 {
        assert_eq!(Acquired::from_reply(&vec![0; length], &asked), Err(Impossible));
    }
    let nobody = only_for(minute, &[]);
    assert_eq!(Acquired::from_reply(&lends_nothing(3_600_000, 0, &[]), &nobody), grants(3_600_000, &[]));
    assert_eq!(Acquired::from_reply(&[], &nobody), Err(Impossible));
    assert_eq!(Acquired::from_reply(&[3_600_000, 0, 0, 0, 0, 0], &nobody), Err(Impossible));
    let too_many = only_for(minute, &[run(u64::MAX, 1)]);
    assert_eq!(Acquired::from_reply(&lends_nothing(0, 60_000, &[1]), &too_many), Err(Impossible));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_lease_that_cannot_be_true_is_refused() {
    let minute = limit(60, 60, 60);
    let offer = Offer { want: 5, end: 9_000, size: 4, carry: 3, debt: 0 };
    let asked = |hold| Acquire { offer, hold, ..only_for(minute, &[run(1, 2)]) };
    let lent = |end, valid, kept, extra, held, limited| Lent { end, valid: Ms(valid), kept, extra, held, limited };
    let of = |lent: Lent, granted| Ok(Acquired { level: 600_000, lent, granted: vec![granted], window_left: Ms(0) });
    // End, valid for, kept, extra, limited, granted of two; held or not.
    let table: [([i64; 6], bool, Result<Acquired, Impossible>); 24] = [
        ([9_500, 500, 3, 2, 0, 2], false, of(lent(9_500, 500, 3, 2, 0, false), 2)),
        ([9_500, 500, 3, 2, 0, 2], true, of(lent(9_500, 500, 3, 2, 2, false), 2)),
        ([9_500, 500, 3, 0, 1, 2], false, of(lent(9_500, 500, 3, 0, 0, true), 2)),
        ([9_500, 500, 0, 5, 0, 2], false, of(lent(9_500, 500, 0, 5, 0, false), 2)),
        ([0, 0, 0, 0, 0, 2], false, of(lent(0, 0, 0, 0, 0, false), 2)),
        ([0, 0, 0, 0, 1, 2], false, of(lent(0, 0, 0, 0, 0, true), 2)),
        ([9_500, 500, 0, 0, 0, 2], true, of(lent(9_500, 500, 0, 0, 2, false), 2)),
        ([1, 1, 3, 0, 0, 2], false, of(lent(1, 1, 3, 0, 0, false), 2)),
        // More is carried on than was offered, or than is wanted.
        ([9_500, 500, 4, 0, 0, 2], false, Err(Impossible)),
        ([9_500, 500, 4, 1, 0, 2], false, Err(Impossible)),
        // More is lent than was wanted.
        ([9_500, 500, 3, 3, 0, 2], false, Err(Impossible)),
        ([9_500, 500, 0, 6, 0, 2], false, Err(Impossible)),
        ([9_500, 500, 0, i64::MAX, 0, 2], false, Err(Impossible)),
        // A lease without an end or a time, and an end or a time without a lease.
        ([0, 500, 3, 2, 0, 2], false, Err(Impossible)),
        ([9_500, 0, 3, 2, 0, 2], false, Err(Impossible)),
        ([0, 0, 3, 2, 0, 2], false, Err(Impossible)),
        ([0, 0, 0, 0, 0, 2], true, Err(Impossible)),
        ([9_500, 500, 0, 0, 0, 2], false, Err(Impossible)),
        // Neither yes nor no.
        ([9_500, 500, 3, 2, 2, 2], false, Err(Impossible)),
        // Negative ones.
        ([-1, 500, 3, 2, 0, 2], false, Err(Impossible)),
        ([9_500, -1, 3, 2, 0, 2], false, Err(Impossible)),
        ([9_500, 500, -1, 2, 0, 2], false, Err(Impossible)),
        ([9_500, 500, 3, -1, 0, 2], false, Err(Impossible)),
        ([9_500, 500, 3, 2, -1, 2], false, Err(Impossible)),
    ];
    for ([end, valid, kept, extra, limited, granted], hold, wanted) in table {
        let reply = [600_000, 50_000, end, valid, kept, extra, limited, granted];
        assert_eq!(Acquired::from_reply(&reply, &asked(hold)), wanted, "{reply:?} {hold}");
    }
    let reply = |level: i64, extra, granted| {
        let reset = (3_600_000 - level).div_euclid(60) + i64::from((3_600_000 - level).rem_euclid(60) > 0);
        Acquired::from_reply(&[level, reset, 9_500, 500, 0, extra, 0, granted], &asked(false))
    };
    // Nothing is lent while somebody waits in vain, nor of what is not there, nor more than a bucket holds.
    assert!(reply(0, 1, 2).is_ok());
    assert_eq!(reply(0, 1, 1), Err(Impossible));
    assert_eq!(reply(-60_000, 1, 0), Err(Impossible));
    assert_eq!(reply(-1, 1, 2), Err(Impossible));
    assert!(reply(3_600_000 - 4 * 60_000, 2, 2).is_ok());
    assert_eq!(reply(3_600_000 - 4 * 60_000 + 1, 2, 2), Err(Impossible));
}

/// The script's arithmetic, one request at a time.
struct Oracle {
    limit: Limit,
    level: u64,
}

impl Oracle {
    fn full(limit: Limit) -> Oracle {
        Oracle { limit, level: limit.burst() * limit.period().0 }
    }

    fn grants(&mut self, cost: u64) -> bool {
        let units = cost * self.limit.period().0;
        let granted = units <= self.level;
        if granted {
            self.level -= units;
        }
        granted
    }

    fn passes(&mut self, ms: u64) {
        let capacity = u128::from(self.limit.burst()) * u128::from(self.limit.period().0);
        let level = u128::from(self.level) + u128::from(ms) * u128::from(self.limit.requests());
        self.level = level.min(capacity) as u64;
    }

    /// Milliseconds until a level, counted without the formula: by halving.
    fn until(&self, wanted: u64) -> u64 {
        let (mut low, mut high) = (0_u64, 1_u64 << 53);
        while low < high {
            let middle = (low + high) / 2;
            let level = u128::from(self.level) + u128::from(middle) * u128::from(self.limit.requests());
            if level >= u128::from(wanted) { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn standing(&self) -> Standing {
        let capacity = self.limit.burst() * self.limit.period().0;
        Standing { remaining: self.level / self.limit.period().0, reset: Ms(self.until(capacity)) }
    }
}

fn any_limit(random: &mut Random) -> Limit {
    let seconds = random.pick(&[1, 1, 2, 60, 3600, 86_400, 2_678_400]);
    let most = ((1_u64 << 53) - 1) / (seconds * 1000);
    let burst = match random.below(4) {
        0 => most - random.below(3),
        1 => 1 + random.below(most),
        _ => 1 + random.below(20),
    };
    let requests = match random.below(4) {
        0 => (1 << 53) - 1 - random.below(3),
        1 => 1 + random.below((1 << 53) - 1),
        _ => 1 + random.below(20),
    };
    limit(requests, seconds, burst)
}

#[wasm_bindgen_test(unsupported = test)]
fn a_group_is_served_as_if_its_requests_had_come_one_by_one() {
    let mut random = Random::seeded(9);
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..rounds(20_000) {
        let limit = any_limit(&mut random);
        let mut oracle = Oracle::full(limit);
        // Anywhere between empty and full, often near one of them.
        let capacity = oracle.level;
        oracle.level = match random.below(4) {
            0 => capacity - random.below(capacity.min(3) + 1),
            1 => random.below(capacity.min(3) + 1),
            _ => random.below(capacity + 1),
        };
        let costs: Vec<u64> = (0..1 + random.below(12))
            .map(|_| match random.below(6) {
                0 => limit.burst(),
                1 => 1 + random.below(limit.burst()),
                _ => 1 + random.below(limit.burst().min(3)),
            })
            .collect();
        let asked = runs(costs.iter().copied());
        // What each request should get: those granted see the bucket as it was then, those refused as it is at last.
        let one_by_one: Vec<Option<Standing>> =
            costs.iter().map(|cost| oracle.grants(*cost).then(|| oracle.standing())).collect();
        let mut next = one_by_one.iter();
        let counts: Vec<i64> = asked
            .iter()
            .map(|run| next.by_ref().take(run.count as usize).filter(|standing| standing.is_some()).count() as i64)
            .collect();
        let reset = oracle.standing().reset.0;
        let reply = lends_nothing(oracle.level as i64, reset as i64, &counts);
        let grants = Acquired::from_reply(&reply, &only_for(limit, &asked))
            .unwrap_or_else(|_| panic!("{limit:?} {asked:?} {reply:?}"));
        let shares = grants.shares(limit, &asked);
        assert_eq!(shares.len(), costs.len());
        for ((share, cost), wanted) in shares.iter().zip(&costs).zip(&one_by_one) {
            match share {
                Share::Granted(standing) => {
                    assert_eq!(Some(standing), wanted.as_ref(), "{limit:?} {asked:?} {reply:?}");
                    granted += 1;
                }
                Share::Refused { standing, retry_after } => {
                    assert_eq!(*wanted, None, "{limit:?} {asked:?} {reply:?}");
                    assert_eq!(*standing, oracle.standing());
                    comes_back_in_time(limit, oracle.level, *cost, *retry_after);
                    refused += 1;
                }
            }
        }
    }
    assert!(granted > rounds(20_000) && refused > rounds(20_000), "{granted} {refused}");
}

/// After a wait the cost fits, and not a millisecond sooner.
fn comes_back_in_time(limit: Limit, level: u64, cost: u64, wait: Ms) {
    assert!(wait >= Ms(1));
    for (ms, fits) in [(wait.0, true), (wait.0 - 1, false)] {
        let mut later = Oracle { limit, level };
        later.passes(ms);
        assert_eq!(later.grants(cost), fits, "{limit:?} at {level}, cost {cost}, after {ms} of {wait:?}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_refused_request_is_told_when_its_own_cost_fits() {
    let minute = limit(60, 60, 60);
    let asked = [run(5, 1), run(1, 2), run(3, 1)];
    // Level 2 tokens at the start: nothing for 5, two for 1, nothing for 3.
    let grants =
        Acquired::from_reply(&lends_nothing(0, 60_000, &[0, 2, 0]), &only_for(minute, &asked)).expect("a true reply");
    let standing = |remaining, reset| Standing { remaining, reset: Ms(reset) };
    let wanted = [
        Share::Refused { standing: standing(0, 60_000), retry_after: Ms(5000) },
        Share::Granted(standing(1, 59_000)),
        Share::Granted(standing(0, 60_000)),
        Share::Refused { standing: standing(0, 60_000), retry_after: Ms(3000) },
    ];
    assert_eq!(grants.shares(minute, &asked), wanted);
    // A part of a token is not remaining, and a part of a millisecond is a whole one.
    let third = limit(3, 1, 2);
    let grants =
        Acquired::from_reply(&lends_nothing(999, 334, &[0]), &only_for(third, &[run(1, 1)])).expect("a true reply");
    assert_eq!(grants.shares(third, &[run(1, 1)]), [Share::Refused { standing: standing(0, 334), retry_after: Ms(1) }]);
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_told_to_be_left_is_the_burst_at_most_whatever_is_carried_on() {
    let lent = Lent { end: 1, valid: Ms(3000), kept: 5, ..Lent::default() };
    let acquired = Acquired { level: 9_000, lent, granted: vec![1], window_left: Ms(0) };
    let shares = acquired.shares(limit(10, 1, 10), &[Run { cost: 1, count: 1 }]);
    assert_eq!(shares, [Share::Granted(Standing { remaining: 10, reset: Ms(0) })]);
}
