//! The limiter without machines: the real core in many proxies, a network that loses and delays, and what runs in Redis
//! as plain Rust. Everything follows from a seed.
//!
//! A [`scenario`] says what comes and what goes wrong ([`demand`], [`faults`]); the [`world`] lets it happen to the core
//! and to the [`limiter`], whose buckets are [`root`]s; [`check`] says what must hold at each step. A run that breaks it
//! is cut down by [`shrink`]. [`explore`] tries every order in small cases, and `figures` measures large ones.

pub mod check;
pub mod clock;
pub mod demand;
pub mod explore;
pub mod faults;
#[cfg(feature = "figures")]
pub mod figures;
pub mod limiter;
pub mod model;
#[cfg(feature = "figures")]
pub mod plot;
pub mod random;
pub mod root;
pub mod scenario;
pub mod shared;
pub mod shrink;
#[cfg(feature = "figures")]
pub mod timeline;
pub mod wire;
pub mod world;
