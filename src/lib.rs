//! weir: a distributed rate limiter that lives in the proxy.
//!
//! One WebAssembly module names the tenant and the route class of each request and decides, with limiters in Redis behind
//! it, whether the request may pass. A request's way is the order of the rooms:
//!
//! [`policy`] (decoded once; what is limited, and how) -> [`request`] (what is read: class, tenant) -> [`rules`] (which limits
//! apply) -> [`engine`] (decides at once, or has the request wait for tokens) -> [`response`] (outcome to status and
//! headers). The engine asks [`local`] what the proxy keeps of its own, [`algorithm`] what that means, and [`limiter`] how a
//! limiter is asked. It does nothing itself: it returns steps, which the `host` at the edge performs. What there is to tell
//! of a decision is [`telemetry`], in the words of the policy. `explain`, which the module has not, asks all rooms but the
//! host what a policy makes of a request, and why.
//!
//! Each room knows only those before it in this list, which `tests/rooms.rs` reads:
//!
//! rooms: clock, random, percent, hostname, tenant, path, trie, algorithm, policy, bucket, request, limiter, telemetry, rules,
//! response, local, engine, explain, host
//!
//! What comes next has its place: an algorithm is a file in [`algorithm`] and an arm in `Limit::by`; a transport is
//! a file in [`limiter`] and an arm in `transport_of`; a host is a folder in `host` that implements its trait `Host`; a word
//! of the policy is declared in `policy/language`.
//!
//! The core reads no clock and no environment, logs nothing and calls nobody: time, bytes and randomness are arguments.
//! The build proves it: without the host the crate compiles for wasm32-unknown-unknown, where neither the SDK nor a log is
//! linked.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unreachable,
    clippy::todo
)]
#![warn(missing_docs, clippy::too_many_lines)]

pub mod algorithm;
pub mod bucket;
pub mod clock;
pub mod engine;
#[cfg(feature = "explain")]
pub mod explain;
mod hostname;
pub mod limiter;
pub mod local;
pub mod path;
pub mod percent;
pub mod policy;
pub mod random;
pub mod request;
pub mod response;
pub mod rules;
pub mod telemetry;
pub mod tenant;
pub mod trie;

#[cfg(not(all(target_arch = "wasm32", target_os = "unknown")))]
mod host;
