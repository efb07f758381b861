//! weir: a distributed rate limiter that lives in the proxy.
//!
//! One WebAssembly module names the tenant and the route class of each request and decides, with a Redis limiter
//! behind it, whether the request may pass. A request's way is the order of the rooms:
//!
//! [`algorithm`] (how requests are counted: numbers, local step, script) -> [`policy`] (decoded once; classes in a [`trie`]) ->
//! [`request`] (what is read: class, tenant) -> [`rules`] (which limit) -> [`local`] (what a proxy keeps of its own) ->
//! [`limiter`] (transports, pure codecs) -> [`response`] (outcome to status and headers), with one [`engine`] that walks through them
//! and returns steps, and the `host` at the edge that performs the steps. What there is to tell of a decision is
//! [`telemetry`], in the words of the policy: rules begin it, the engine ends it, and the host counts it and shows it.
//! `explain`, which the module has not, asks all rooms but the host what a policy makes of a request, and why.
//!
//! Each room knows only those before it, and none knows the host. The core reads no clock and no environment, logs
//! nothing and calls nobody: time, bytes and randomness are arguments. The build proves it: without the host the
//! crate compiles for wasm32-unknown-unknown, where neither the SDK nor a log is linked.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unreachable,
    clippy::todo
)]
#![warn(missing_docs)]

pub mod algorithm;
pub mod clock;
pub mod engine;
#[cfg(feature = "explain")]
pub mod explain;
pub mod limiter;
pub mod local;
pub mod path;
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
