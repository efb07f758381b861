//! The filter in a fake Envoy: the real module, linked natively, behind the SDK's own imports and exports.
//!
//! The binary defines the host calls that the SDK imports, over a fake host of the thread ([`fake`], [`abi`]), and
//! drives the module through what the SDK exports ([`proxy`]). The SDK's dispatcher and the module's state belong to a
//! thread as well, so each case has a fresh VM on a thread of its own. Time is what a test says it is.
//!
//! Whatever a case is about, it fails when the filter breaks a rule of the host (two answers to one request, resuming
//! what is not paused, an answer in the name of no stream ...) or logs an error that the case does not take.

#![cfg(not(target_arch = "wasm32"))]

mod abi;
mod answers;
mod bytes;
mod costs;
mod crowd;
mod failures;
mod fake;
mod identities;
mod lease_storm;
mod leases;
mod limiter;
mod limiters;
mod observed;
mod policies;
mod policy;
mod pool;
mod proxy;
mod secrets;
mod space;
mod storm;
mod vms;
mod waiting;

// Without this the module would not be linked.
use weir as _;
