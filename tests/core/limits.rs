//! Limits and durations.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::Ms;
use weir::policy::limit::{EXACT_IN_A_DOUBLE, duration, parse};
use weir::policy::{Limit, NoLimit};

/// Requests, period in ms, and burst.
fn numbers(limit: Limit) -> (u64, u64, u64) {
    (limit.requests(), limit.period().0, limit.burst())
}

#[wasm_bindgen_test(unsupported = test)]
fn a_limit_is_an_integer_a_slash_and_a_unit() {
    const DAY: u64 = 86_400_000;
    let table = [
        ("1/s", Some(Ok((1, 1000, 1)))),
        ("60/m", Some(Ok((60, 60_000, 60)))),
        ("5/h", Some(Ok((5, 3_600_000, 5)))),
        ("7/d", Some(Ok((7, DAY, 7)))),
        ("007/s", Some(Ok((7, 1000, 7)))),
        ("9007199254740/s", Some(Ok((9_007_199_254_740, 1000, 9_007_199_254_740)))),
        ("9007199254741/s", Some(Err(NoLimit::TooLarge))),
        ("104249991/d", Some(Ok((104_249_991, DAY, 104_249_991)))),
        ("104249992/d", Some(Err(NoLimit::TooLarge))),
        ("18446744073709551615/s", Some(Err(NoLimit::TooLarge))),
        ("18446744073709551616/s", Some(Err(NoLimit::TooLarge))),
        ("0/s", Some(Err(NoLimit::Zero))),
        ("00/d", Some(Err(NoLimit::Zero))),
        ("", None),
        ("/", None),
        ("/s", None),
        ("1", None),
        ("1/", None),
        ("1/ms", None),
        ("1/w", None),
        ("1/S", None),
        ("1/sec", None),
        ("1/2s", None),
        ("1//s", None),
        ("1/s/s", None),
        ("+1/s", None),
        ("-1/s", None),
        (" 1/s", None),
        ("1 /s", None),
        ("1/ s", None),
        ("1/s ", None),
        ("1.5/s", None),
        ("1e3/s", None),
        ("0x1/s", None),
        ("1_000/s", None),
        ("١/s", None),
        ("deny", None),
    ];
    for (text, wanted) in table {
        assert_eq!(parse(text).map(|limit| limit.map(numbers)), wanted, "{text}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_duration_is_an_integer_and_a_unit() {
    let table = [
        ("0ms", Some(0)),
        ("1ms", Some(1)),
        ("20ms", Some(20)),
        ("1s", Some(1000)),
        ("1m", Some(60_000)),
        ("1h", Some(3_600_000)),
        ("31d", Some(2_678_400_000)),
        ("0010s", Some(10_000)),
        ("213503982334d", Some(18_446_744_073_657_600_000)),
        ("213503982335d", Some(u64::MAX)),
        ("18446744073709551616ms", Some(u64::MAX)),
        ("", None),
        ("s", None),
        ("1", None),
        ("1S", None),
        ("1us", None),
        ("1w", None),
        ("1s1", None),
        ("1m1s", None),
        ("1.5s", None),
        ("-1s", None),
        ("+1s", None),
        ("1 s", None),
        (" 1s", None),
        ("1s ", None),
        ("1e3s", None),
        ("١s", None),
        ("s1s", None),
    ];
    for (text, wanted) in table {
        assert_eq!(duration(text), wanted.map(Ms), "{text}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_limit_is_valid_by_construction() {
    const MONTH: u64 = 31 * 86_400_000;
    assert_eq!(EXACT_IN_A_DOUBLE, 9_007_199_254_740_992);
    let table = [
        // requests, period in ms, burst
        (1, 1000, 1, None),
        (1, MONTH, 1, None),
        (EXACT_IN_A_DOUBLE - 1, 1000, 1, None),
        (1, 1000, 9_007_199_254_740, None),
        // 2^53 is 1,024,000 x 8,796,093,022.208: the last burst below it, and the first above.
        (1, 1_024_000, 8_796_093_022, None),
        (1, 1_024_000, 8_796_093_023, Some(NoLimit::TooLarge)),
        (1, MONTH, 3_362_902, None),
        (1, MONTH, 3_362_903, Some(NoLimit::TooLarge)),
        (0, 1000, 1, Some(NoLimit::Zero)),
        (1, 1000, 0, Some(NoLimit::Zero)),
        (0, 1000, 0, Some(NoLimit::Zero)),
        (1, 0, 1, Some(NoLimit::Period)),
        (1, 1, 1, Some(NoLimit::Period)),
        (1, 999, 1, Some(NoLimit::Period)),
        (1, 1001, 1, Some(NoLimit::Period)),
        (1, MONTH + 1000, 1, Some(NoLimit::Period)),
        (1, u64::MAX, 1, Some(NoLimit::Period)),
        (EXACT_IN_A_DOUBLE, 1000, 1, Some(NoLimit::TooLarge)),
        (1, 1000, 9_007_199_254_741, Some(NoLimit::TooLarge)),
        (1, 1000, u64::MAX, Some(NoLimit::TooLarge)),
        (u64::MAX, 1000, 1, Some(NoLimit::TooLarge)),
    ];
    for (requests, period, burst, error) in table {
        let wanted = error.map_or(Ok((requests, period, burst)), Err);
        assert_eq!(Limit::new(requests, Ms(period), burst).map(numbers), wanted, "{requests} {period} {burst}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn two_to_the_53_itself_is_too_large() {
    // Periods are whole seconds, so only a period with 2^10 in it divides 2^53: none does, for 1000 holds 5^3. The
    // border is met by requests alone.
    for requests in [EXACT_IN_A_DOUBLE - 1, EXACT_IN_A_DOUBLE, EXACT_IN_A_DOUBLE + 1] {
        assert_eq!(Limit::new(requests, Ms(1000), 1).is_ok(), requests < EXACT_IN_A_DOUBLE);
    }
}
