//! Bytes as what the filter and the bridge say to each other: both are read within their bounds, and have one spelling.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::fuzz_target;
use weir::algorithm::{Acquire, Offer, Run};
use weir::clock::Ms;
use weir::limiter::redis::bridge::{
    Call, MAX_ARGUMENTS, MAX_CALL, MAX_DEADLINE, MAX_KEY, MAX_PARTS, answers, decode, is_in, reply, script,
};
use weir::limiter::{Failure, HttpEnd};
use weir::policy::{Limit, Terms};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(call) = Call::read(bytes) {
        assert!(bytes.len() <= MAX_CALL && (Ms(1)..=MAX_DEADLINE).contains(&call.deadline));
        assert!((1..=MAX_PARTS).contains(&call.parts.len()));
        let mut again = format!("weir 1 {}\n", call.deadline.0);
        for part in &call.parts {
            assert!(part.key.len() <= MAX_KEY && part.arguments.len() <= MAX_ARGUMENTS);
            assert!(!is_in(part.key, "rl") || part.key.starts_with("rl:{"));
            assert!(script(part.script).is_none_or(|known| part.script == format!("{}/{}", known.format, known.sha)));
            let _ = write!(again, "{} {} {}", part.number, part.script, part.key);
            for argument in &part.arguments {
                let number: u64 = argument.parse().expect("a number");
                let _ = write!(again, " {number}");
            }
            again.push('\n');
        }
        assert_eq!(again.as_bytes(), bytes);
    }
    if let Some(all) = answers(bytes) {
        assert_eq!(reply(&all).as_bytes(), bytes);
    }
    let limit = Limit::new(60, Ms(60_000), 60).expect("a limit");
    let runs = vec![Run { cost: 1, count: 2 }, Run { cost: 10, count: 1 }];
    let asked = Acquire { limit, terms: Terms::default(), offer: Offer::default(), hold: false, runs, number: 4242 };
    for status in [200, 503] {
        match decode(HttpEnd::Answer { status, body: bytes }, &asked) {
            Ok(acquired) => {
                assert_eq!(status, 200);
                assert!(acquired.granted[0] <= 2 && acquired.granted[1] <= 1, "{acquired:?}");
                assert!(bytes.starts_with(b"weir 1\n4242 ok 4242 "));
            }
            Err(failure) => assert!(
                Failure::TOLD.contains(&failure)
                    || [Failure::Status, Failure::Unreadable, Failure::Misdelivered, Failure::Oversized]
                        .contains(&failure)
            ),
        }
    }
});
