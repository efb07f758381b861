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
    /// Redis answered with an error: through Webdis any, through the bridge one that has no name of its own here.
    Redis,
    /// The bridge has no connection to Redis, and has not asked it.
    RedisDown,
    /// The bridge's connection to Redis broke while it waited for the answer.
    RedisLost,
    /// Redis did not answer the bridge within the call's time.
    Late,
    /// The bridge has more work than it may hold, or is ending.
    Overloaded,
    /// The bridge wants another secret.
    Unauthorized,
    /// The bridge takes no such call: it is malformed, too large, or of another version.
    Refused,
    /// The bridge does not serve the namespace that the key is in.
    ForeignKey,
    /// The bridge does not know the script: it is of another version than the proxy.
    UnknownScript,
    /// CLUSTERDOWN: the cluster has no majority, or nobody serves the key's slot.
    ClusterDown,
    /// READONLY: it is a replica.
    ReadOnly,
    /// LOADING: Redis reads what it has on disk.
    Loading,
    /// OOM: Redis is full and evicts nothing.
    OutOfMemory,
    /// NOPERM: Redis's user may not run the script, or not on this key.
    NoPermission,
    /// NOAUTH or WRONGPASS: Redis wants another user or password.
    NoAuth,
    /// TRYAGAIN: the key's slot is being moved.
    TryAgain,
    /// MASTERDOWN: a replica whose master is away.
    MasterDown,
    /// CROSSSLOT: keys of several slots in one call.
    CrossSlot,
    /// BUSY: Redis runs another script, for long.
    Busy,
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
    pub const ALL: [Failure; 30] = [
        Failure::Timeout,
        Failure::Reset,
        Failure::Status,
        Failure::Unreadable,
        Failure::Oversized,
        Failure::Misdelivered,
        Failure::BadKey,
        Failure::Redis,
        Failure::RedisDown,
        Failure::RedisLost,
        Failure::Late,
        Failure::Overloaded,
        Failure::Unauthorized,
        Failure::Refused,
        Failure::ForeignKey,
        Failure::UnknownScript,
        Failure::ClusterDown,
        Failure::ReadOnly,
        Failure::Loading,
        Failure::OutOfMemory,
        Failure::NoPermission,
        Failure::NoAuth,
        Failure::TryAgain,
        Failure::MasterDown,
        Failure::CrossSlot,
        Failure::Busy,
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
            Failure::RedisDown => "redis_down",
            Failure::RedisLost => "redis_lost",
            Failure::Late => "late",
            Failure::Overloaded => "overloaded",
            Failure::Unauthorized => "unauthorized",
            Failure::Refused => "refused",
            Failure::ForeignKey => "foreign_key",
            Failure::UnknownScript => "unknown_script",
            Failure::ClusterDown => "clusterdown",
            Failure::ReadOnly => "readonly",
            Failure::Loading => "loading",
            Failure::OutOfMemory => "oom",
            Failure::NoPermission => "noperm",
            Failure::NoAuth => "noauth",
            Failure::TryAgain => "tryagain",
            Failure::MasterDown => "masterdown",
            Failure::CrossSlot => "crossslot",
            Failure::Busy => "busy",
            Failure::UnknownCluster => "unknown_cluster",
            Failure::Unreachable => "unreachable",
            Failure::Breaker => "breaker",
            Failure::NewKeys => "new_keys",
        }
    }

    /// Those that the bridge tells, of a part of a call or of all of it.
    pub const TOLD: [Failure; 20] = [
        Failure::BadKey,
        Failure::Redis,
        Failure::RedisDown,
        Failure::RedisLost,
        Failure::Late,
        Failure::Overloaded,
        Failure::Unauthorized,
        Failure::Refused,
        Failure::ForeignKey,
        Failure::UnknownScript,
        Failure::ClusterDown,
        Failure::ReadOnly,
        Failure::Loading,
        Failure::OutOfMemory,
        Failure::NoPermission,
        Failure::NoAuth,
        Failure::TryAgain,
        Failure::MasterDown,
        Failure::CrossSlot,
        Failure::Busy,
    ];

    /// Whether it says that the call changed nothing: it was refused before the script ran, or by the script's one write.
    pub fn has_not_run(self) -> bool {
        Failure::TOLD.contains(&self)
            && !matches!(self, Failure::BadKey | Failure::Redis | Failure::RedisLost | Failure::Late)
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
