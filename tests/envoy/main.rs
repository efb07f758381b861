//! The built module in real Envoys, with a real Webdis and a real Redis: what users run.
//!
//! Limits here are per day (500 a day is a token in 172 s), so that what a test admits does not depend on how long it
//! takes: the bucket is what it was at the start, unless the clock of Redis says that a token has come back.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is outside")]

mod address;
#[path = "../core/addresses.rs"]
mod addresses;
mod answer;
mod bridge;
mod canary;
mod chaos;
mod crowd;
mod examples;
mod failure;
mod identity;
mod lease;
mod lifecycle;
mod limit;
mod limiters;
mod listener;
mod load;
mod metrics;
mod policy;
mod pool;
mod property;
mod rig;
mod root;
mod trap;
mod watch;

/// Proxies fetch the module, and each VM keeps it.
const MOST_BYTES: u64 = 600_000;

#[test]
fn the_module_stays_small() {
    let size = std::fs::metadata(rig::module()).unwrap().len();
    assert!(size < MOST_BYTES, "{size} bytes; at most {MOST_BYTES}");
}

#[test]
fn the_module_exports_no_callback_that_does_nothing() {
    let module = std::fs::read(rig::module()).unwrap();
    let names = |name: &str| module.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    assert!(names("proxy_on_request_headers"));
    // A host would enter the VM for each chunk of a body.
    for callback in ["proxy_on_request_body", "proxy_on_response_body", "proxy_on_response_trailers", "proxy_on_grpc"] {
        assert!(!names(callback), "{callback} is exported; make module takes it off");
    }
}
