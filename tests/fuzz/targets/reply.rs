//! Bytes as the reply of a limiter: it never grants or lends more than was asked, or more than a bucket holds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::algorithm::{Acquire, Offer, Run, Share};
use weir::clock::Ms;
use weir::limiter::redis::webdis::{By, decode};
use weir::limiter::{HttpEnd, Reply};
use weir::policy::{Limit, Terms};
use weir_fuzz::Pieces;

fuzz_target!(|bytes: &[u8]| {
    let mut pieces = Pieces(bytes);
    let shape = pieces.byte();
    let by = if shape & 1 == 0 { By::Sha } else { By::Text };
    let status = if shape & 6 == 6 { u16::from(pieces.byte()) } else { 200 };
    let (requests, seconds, burst) = (pieces.number(), pieces.number(), pieces.number());
    let Ok(limit) = Limit::new(requests, Ms(seconds.saturating_mul(1000)), burst) else { return };
    let runs: Vec<Run> = (0..pieces.byte() % 5)
        .map(|_| Run { cost: (pieces.number() % burst).max(1), count: u64::from(pieces.byte() % 16).max(1) })
        .collect();
    let hold = shape & 16 == 16;
    // Nothing, or a lease that is offered and a wish.
    let offer = match shape & 32 == 32 {
        true => Offer {
            want: pieces.number(),
            end: pieces.number(),
            size: pieces.number(),
            carry: pieces.number(),
            debt: pieces.number(),
        },
        false => Offer::default(),
    };
    let asked = Acquire { limit, terms: Terms::default(), offer, hold, runs, number: 4242 };
    let runs = &asked.runs;
    let capacity = i128::from(burst) * i128::from(limit.period().0);
    let body = match shape & 8 == 0 {
        true => pieces.0.to_vec(),
        // A reply whose reset fits its level, which is hard to guess.
        false => {
            let level = pieces.number().cast_signed();
            let reset = u128::try_from(capacity - i128::from(level)).unwrap_or_default().div_ceil(requests.into());
            let lease: String = match shape & 64 == 64 {
                true => (0..5).map(|_| format!(",{}", pieces.number())).collect(),
                false => ",0,0,0,0,0".to_owned(),
            };
            let granted: String = runs.iter().map(|_| format!(",{}", pieces.byte() % 18)).collect();
            let command = if by == By::Sha { "EVALSHA" } else { "EVAL" };
            format!(r#"{{"{command}":[4242,{level},{reset}{lease}{granted}]}}"#).into_bytes()
        }
    };
    for end in [HttpEnd::Oversized, HttpEnd::NoAnswer] {
        assert!(matches!(decode(end, by, &asked), Reply::Failure(_)));
    }
    let Reply::Acquired(acquired) = decode(HttpEnd::Answer { status, body: &body }, by, &asked) else { return };
    assert_eq!(status, 200);
    assert_eq!(acquired.granted.len(), runs.len());
    let (lent, token) = (acquired.lent, i128::from(limit.period().0));
    let mut granted = 0;
    for (run, count) in runs.iter().zip(&acquired.granted) {
        assert!(*count <= run.count, "more than was asked: {acquired:?} {asked:?}");
        granted += u128::from(*count) * u128::from(run.cost);
    }
    let taken = i128::try_from(granted).expect("tokens") + i128::from(lent.extra);
    assert!(
        i128::from(acquired.level) + taken * token <= capacity,
        "more than the bucket holds: {acquired:?} {asked:?}"
    );
    assert!(taken == 0 || acquired.level >= 0, "of a bucket that has less than nothing: {acquired:?} {asked:?}");
    assert!(lent.kept <= offer.carry.min(offer.want), "more is carried on than was offered: {acquired:?} {asked:?}");
    assert!(lent.kept + lent.extra <= offer.want.max(lent.kept), "more than was wanted: {acquired:?} {asked:?}");
    assert_eq!(u128::from(lent.held), if hold { granted } else { 0 });
    assert_eq!(lent.size(), lent.kept + lent.extra + lent.held);
    assert!(lent.size() == 0 || lent.end > 0 && lent.valid > Ms(0), "a lease without an end: {acquired:?}");
    let shares = acquired.shares(limit, runs);
    let mut each = shares.iter();
    for (run, granted) in runs.iter().zip(&acquired.granted) {
        for place in 0..run.count {
            let (is_granted, standing) = match each.next().expect("a share for each") {
                Share::Granted(standing) => (true, standing),
                Share::Refused { standing, retry_after } => {
                    assert!(*retry_after >= Ms(1));
                    (false, standing)
                }
            };
            assert_eq!(is_granted, place < *granted);
            assert!(standing.remaining <= burst, "{standing:?}");
        }
    }
    assert_eq!(each.next(), None);
});
