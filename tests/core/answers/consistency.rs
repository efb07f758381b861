//! What an answer tells is so, whatever the bucket, the group and the cost.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::algorithm::{Acquired, Lent, Share, Used, runs};
use weir::clock::Ms;
use weir::policy::Policy;
use weir::response::{Answer, Outcome, answer};

use super::{BOTH, UNIX, header, with};
use crate::made::{Random, limit, rounds};

/// A number that a header tells, maybe after a key of a structured field.
fn number(headers: &[(&'static str, String)], name: &str, key: &str) -> Option<u64> {
    let value = header(headers, name)?;
    let value = if key.is_empty() { value } else { value.split(';').find_map(|part| part.strip_prefix(key))? };
    Some(value.parse().expect("an integer"))
}

/// What an answer tells of a bucket with so many units in it (of which a token has `period_ms`) is so: a refusal leaves
/// less than the cost, what passes is told what is left, and more comes when it is said to come, not after Retry-After.
fn assert_true(policy: &Policy, limit: weir::policy::Limit, share: Share, cost: u64, units: i64, random: u64) {
    let (requests, period) = (i128::from(limit.requests()), i128::from(limit.period().0));
    let (headers, after) = match answer(policy, &Outcome::Decided { rule: 0, limit, share }, UNIX, random) {
        Answer::Pass(headers) => (headers, None),
        Answer::Refuse(refusal) => {
            let after = number(&refusal.headers, "retry-after", "").expect("when to come back");
            (refusal.headers, Some(after))
        }
    };
    let remaining = number(&headers, "x-ratelimit-remaining", "").expect("what is left");
    assert_eq!(number(&headers, "ratelimit", "r="), Some(remaining), "both families tell the same");
    assert_eq!(i128::from(remaining), i128::from(units.max(0)) / period, "what is left is told");
    if after.is_some() {
        assert!(remaining < cost, "refused {cost} with {remaining} left");
    }
    let full = i128::from(limit.burst()) * period;
    let more = number(&headers, "ratelimit", "t=");
    assert_eq!(more.is_none(), i128::from(units) >= full, "a bucket that is full, and no other, gets no more");
    let Some(more) = more.map(i128::from) else { return };
    let next = i128::from(remaining + 1) * period;
    assert!(i128::from(units) + more * 1000 * requests >= next, "there is more by then");
    if more > 1 {
        assert!(i128::from(units) + ((more - 1) * 1000 - 1) * requests < next, "and not a second before");
    }
    if let Some(after) = after.map(i128::from) {
        assert!((1..=after).contains(&more), "t={more} and retry-after: {after}");
        assert!(i128::from(units) + after * 1000 * requests >= i128::from(cost) * period, "by then it fits");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_left_and_a_refusal_never_disagree() {
    let policy = with(BOTH);
    let mut random = Random::seeded(4);
    let mut seen = [0_u64; 2];
    for _ in 0..rounds(20_000) {
        let most = random.pick(&[3, 100, 1_000_000]);
        let (requests, burst) = (1 + random.draw() % most, 1 + random.draw() % most);
        let limit = limit(requests, random.pick(&[1, 60, 86_400, 2_678_400]), burst);
        let full = i64::try_from(burst * limit.period().0).expect("it fits");
        let units = match random.draw() % 4 {
            0 => full,
            1 => -i64::try_from(random.draw() % (full as u64 + 1)).expect("it fits"),
            // Whole tokens, and a little more or less.
            2 => (random.draw() % (burst + 1)) as i64 * limit.period().0 as i64 + random.pick(&[0, 1]) as i64 - 1,
            _ => i64::try_from(random.draw() % (full as u64 + 1)).expect("it fits"),
        };
        let units = units.min(full);
        let cost = 1 + random.draw() % burst;
        // One request of a bucket.
        let mut level = Used { units: u64::try_from(full - units).expect("not more than full"), at: Ms(5) };
        let share = level.take(limit, Ms(5), cost);
        seen[usize::from(matches!(share, Share::Refused { .. }))] += 1;
        assert_true(&policy, limit, share, cost, level.level(limit), random.draw());
        // One that is refused for longer than the bucket says, for another waits for its answer.
        let quiet = level.refuse(limit, cost, Ms(random.draw() % 100_000), Ms(5));
        let below = level.level(limit).min(i64::try_from(cost * limit.period().0).expect("it fits") - 1);
        assert_true(&policy, limit, quiet, cost, below, random.draw());
    }
    assert!(seen.iter().all(|count| *count > rounds(20_000) / 10), "granted and refused: {seen:?}");
}

#[wasm_bindgen_test(unsupported = test)]
fn what_is_left_and_a_refusal_never_disagree_in_a_group() {
    let policy = with(BOTH);
    let mut random = Random::seeded(5);
    for _ in 0..rounds(5_000) {
        let limit = limit(1 + random.draw() % 50, random.pick(&[1, 60, 3600]), 1 + random.draw() % 50);
        let period = limit.period().0;
        let mut units = i64::try_from(random.draw() % (limit.burst() * period + 1)).expect("it fits");
        let costs: Vec<u64> = (0..1 + random.draw() % 12).map(|_| 1 + random.draw() % limit.burst()).collect();
        let runs = runs(costs.iter().copied());
        // The limiter: whoever fits is granted, in order.
        let mut left = Vec::new();
        let mut granted = Vec::new();
        for run in &runs {
            let price = i64::try_from(run.cost * period).expect("it fits");
            let count = u64::try_from(units / price).expect("not below 0").min(run.count);
            for _ in 0..count {
                units -= price;
                left.push(Some(units));
            }
            left.extend((count..run.count).map(|_| None));
            granted.push(count);
        }
        let shares = Acquired { level: units, lent: Lent::default(), granted, window_left: Ms(0) }.shares(limit, &runs);
        assert_eq!(shares.len(), costs.len());
        for ((share, cost), left) in shares.into_iter().zip(costs).zip(left) {
            assert_eq!(matches!(share, Share::Granted(_)), left.is_some());
            assert_true(&policy, limit, share, cost, left.unwrap_or(units), random.draw());
        }
    }
}
