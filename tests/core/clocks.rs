//! Milliseconds and the clock.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::{Clock, Ms, Now};

#[wasm_bindgen_test(unsupported = test)]
fn milliseconds_saturate() {
    assert_eq!(Ms(u64::MAX) + Ms(1), Ms(u64::MAX));
    assert_eq!(Ms(1) + Ms(2), Ms(3));
    assert_eq!(Ms(1) - Ms(2), Ms(0));
    assert_eq!(Ms(5) - Ms(2), Ms(3));
    assert_eq!(Ms(1 << 63).times(2), Ms(u64::MAX));
    assert_eq!(Ms(20).times(10), Ms(200));
}

#[wasm_bindgen_test(unsupported = test)]
fn seconds_are_rounded_up() {
    for (ms, seconds) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (u64::MAX, u64::MAX / 1000 + 1)] {
        assert_eq!(Ms(ms).seconds_up(), seconds, "{ms}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_clock_that_goes_back_adds_nothing() {
    let mut clock = Clock::default();
    let start = clock.read(Ms(1_700_000_000_000)).mono;
    let readings = [
        // Reading, time since the start.
        (1_700_000_000_000, 0),
        (1_700_000_000_010, 10),
        (1_699_996_400_010, 10), // set back by an hour
        (1_699_996_400_015, 15),
        (1_700_000_000_015, 3_600_015), // set forward again: waits end early
        (0, 3_600_015),
        (7, 3_600_022),
        (7, 3_600_022),
    ];
    for (wall, passed) in readings {
        assert_eq!(clock.read(Ms(wall)), Now { mono: start + Ms(passed), unix: Ms(wall) });
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_clock_cannot_run_over() {
    let mut clock = Clock::default();
    for wall in [u64::MAX, 0, u64::MAX, 0, u64::MAX] {
        clock.read(Ms(wall));
    }
    assert_eq!(clock.read(Ms(u64::MAX)).mono, Ms(u64::MAX));
}
