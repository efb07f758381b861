//! `examples/quotas.md`.

use std::time::{SystemTime, UNIX_EPOCH};

use weir::clock::Ms;
use weir::policy::Limit;
use weir_stack::Request;

use super::{start, told, with_key};

const HOUR: u64 = 3_600_000;

#[test]
fn quotas_are_windows_that_begin_at_an_offset_of_the_keys_own() {
    let page = start("quotas", 1);
    let answer = page.from(2).send(&with_key("k1"));
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert_eq!(told(&answer), (200, Some("6"), Some("5")));
    let quotas = r#""quota";q=6;w=3600, "quota";q=10;w=86400"#;
    assert_eq!(answer.header("ratelimit-policy"), Some(quotas));
    // The end of the hour by the clock of Redis, as `weir explain` tells it.
    let hour = Limit::fixed_window(6, Ms(HOUR), true).expect("a limit");
    let offset = hour.window_offset("rl:{key.k1}:quota:default:3600000:w1").expect("it has windows");
    let left = HOUR - (unix - offset.0) % HOUR;
    let reset: u64 = answer.header("x-ratelimit-reset").expect("a reset").parse().expect("seconds");
    let is_near = (left / 1000..=left / 1000 + 3).contains(&reset);
    assert!(is_near || left > HOUR - 2000, "{reset} s, of {left} ms");
    // The bucket before it, and its customer sees the quota alone.
    page.from(2).passes(&with_key("k1"), 4);
    page.from(2).is_limited(&with_key("k1"), "rate", 12);
    page.from(3).is_refused(&Request::get("/"), 403, r#"{"error":"forbidden","rule":"quota"}"#);
    let keys = [
        "rl:{key.k1}:quota:default:3600000:w1",
        "rl:{key.k1}:quota:default:86400000:w1",
        "rl:{key.k1}:rate:default:60000:t3",
    ];
    assert_eq!(page.keys(), keys);
    page.rig.assert_no_errors_logged();
}
