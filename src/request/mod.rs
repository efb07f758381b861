//! What is read of a request: its class and its tenant.
//!
//! Each value that is read costs a call to the host, so nothing is read that the policy does not ask for. Values are
//! bytes: a client may send any.

mod class;
mod identity;

pub use class::{Class, classify};
pub use identity::{Identity, identify};

/// A request, as far as it is asked for.
pub trait Request {
    /// The value of a header by its lower-case name, `:method` and `:path` among them. The first one of several.
    fn header(&self, name: &str) -> Option<Vec<u8>>;
}
