//! Redis behind the bridge: where a key is, and how a script runs there.
//!
//! The client library's own retries are not used: a call takes tokens, so it is sent again only on a reply that proves that
//! it has not run.

mod access;
mod cluster;
mod node;
mod reply;
mod routes;
mod sentinels;

pub use access::{Access, Address, Secret, TlsFiles};
pub use routes::{Place, Routes};
