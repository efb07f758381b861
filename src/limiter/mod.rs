//! The limiter behind the proxies, and the transports by which it is asked. Pure codecs, bytes to bytes.
//!
//! A reply is a verdict or a named failure, never both, and never a guess.

pub mod redis;
mod transport;

pub use transport::{Attempt, Capabilities, Reply, Transport, transport_of};

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// The request waited as long as it may.
    Timeout,
    /// The call ended without an answer: connection refused, reset, or the call's own end.
    Reset,
    /// The transport answered with a status other than 200.
    Status,
    /// The answer is not what the script answers.
    Unreadable,
    /// The answer is longer than any that the script gives.
    Oversized,
    /// The answer is another call's. Whether this one has run nobody knows.
    Misdelivered,
    /// The key holds something that the script did not write. Redis is well.
    BadKey,
    /// Redis answered with an error: read only, loading, out of memory, no permission ...
    Redis,
    /// The host does not know the cluster.
    UnknownCluster,
    /// The host could not start the call.
    Unreachable,
    /// The limiter has failed so often that it is left alone.
    Breaker,
    /// Too many keys that this proxy does not know have asked in this second.
    NewKeys,
}

impl Failure {
    /// All of them.
    pub const ALL: [Failure; 12] = [
        Failure::Timeout,
        Failure::Reset,
        Failure::Status,
        Failure::Unreadable,
        Failure::Oversized,
        Failure::Misdelivered,
        Failure::BadKey,
        Failure::Redis,
        Failure::UnknownCluster,
        Failure::Unreachable,
        Failure::Breaker,
        Failure::NewKeys,
    ];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Timeout => "timeout",
            Failure::Reset => "reset",
            Failure::Status => "status",
            Failure::Unreadable => "unreadable",
            Failure::Oversized => "oversized",
            Failure::Misdelivered => "misdelivered",
            Failure::BadKey => "bad_key",
            Failure::Redis => "redis",
            Failure::UnknownCluster => "unknown_cluster",
            Failure::Unreachable => "unreachable",
            Failure::Breaker => "breaker",
            Failure::NewKeys => "new_keys",
        }
    }
}

/// An HTTP request to the limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCall {
    /// Path.
    pub path: &'static str,
    /// What its body is.
    pub content_type: &'static str,
    /// Body.
    pub body: String,
}

/// How a host says that a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpEnd<'b> {
    /// With an answer.
    Answer {
        /// Its status.
        status: u16,
        /// Its body.
        body: &'b [u8],
    },
    /// With an answer whose body is longer than [`Transport::max_reply`], and was not read.
    Oversized,
    /// Without an answer.
    NoAnswer,
    /// It never began.
    NotStarted(Failure),
}
