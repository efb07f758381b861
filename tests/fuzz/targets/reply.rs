//! Bytes as the reply of a limiter: it never grants more than was asked, or more than a bucket holds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::bucket::{Run, Share};
use weir::clock::Ms;
use weir::limiter::HttpEnd;
use weir::limiter::webdis::{By, Reply, decode};
use weir::policy::Limit;
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
    let capacity = u128::from(burst) * u128::from(limit.period().0);
    let body = match shape & 8 == 0 {
        true => pieces.0.to_vec(),
        // A reply whose reset fits its level, which is hard to guess.
        false => {
            let level = pieces.number();
            let reset = capacity.saturating_sub(u128::from(level)).div_ceil(u128::from(requests));
            let granted: String = runs.iter().map(|_| format!(",{}", pieces.byte() % 18)).collect();
            let command = if by == By::Sha { "EVALSHA" } else { "EVAL" };
            format!(r#"{{"{command}":[{level},{reset}{granted}]}}"#).into_bytes()
        }
    };
    for end in [HttpEnd::Oversized, HttpEnd::NoAnswer] {
        assert!(matches!(decode(end, by, limit, &runs), Reply::Failure(_)));
    }
    let Reply::Grants(grants) = decode(HttpEnd::Answer { status, body: &body }, by, limit, &runs) else { return };
    assert_eq!(status, 200);
    assert_eq!(grants.granted.len(), runs.len());
    let mut taken = u128::from(grants.level);
    for (run, granted) in runs.iter().zip(&grants.granted) {
        assert!(*granted <= run.count, "more than was asked: {grants:?} {runs:?}");
        taken += u128::from(*granted) * u128::from(run.cost) * u128::from(limit.period().0);
    }
    assert!(taken <= capacity, "more than the bucket holds: {grants:?} {runs:?} {limit:?}");
    let shares = grants.shares(limit, &runs);
    let mut each = shares.iter();
    for (run, granted) in runs.iter().zip(&grants.granted) {
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
