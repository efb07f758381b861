//! A transport: how a limiter is asked. Bytes out, bytes in; what a call says is the algorithm's ([`Acquire`]), how it is
//! written is the transport's.
//!
//! One more transport is one more file, and one more arm in [`transport_of`].

use std::fmt::Debug;

use super::redis::bridge::Bridge;
use super::redis::webdis::Webdis;
use super::{Failure, HttpCall, HttpEnd};
use crate::algorithm::{Acquire, Acquired};
use crate::bucket::BucketId;
use crate::policy::{Limiter, Policy, TransportName};

/// A way to ask a limiter. It keeps nothing: what a call needs to know again is in its [`Attempt`].
pub trait Transport: Debug {
    /// What the limiter can do by this way.
    fn can(&self) -> Capabilities;

    /// The longest reply in bytes that can be a verdict. The host reads none that is longer.
    fn max_reply(&self) -> usize;

    /// The most runs in one call, so that its reply is no longer than that.
    fn max_runs(&self) -> usize;

    /// What a bucket is called by this way, for those who look for it.
    fn name_of(&self, policy: &Policy, bucket: &BucketId) -> String;

    /// Encodes a call to a bucket.
    fn encode(&self, policy: &Policy, bucket: &BucketId, asked: &Acquire, attempt: Attempt) -> HttpCall;

    /// Reads how that attempt at a call ended.
    fn decode(&self, end: HttpEnd, asked: &Acquire, attempt: Attempt) -> Reply;
}

/// What a limiter can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It lends, and counts what it has lent.
    pub lends: bool,
    /// One call may ask for several who wait.
    pub groups: bool,
    /// It takes off what a proxy has spent without asking.
    pub settles: bool,
}

/// Which attempt at a call this is. What that means is the transport's own affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempt(u8);

impl Attempt {
    /// The one that every call begins with.
    pub const FIRST: Attempt = Attempt(0);

    /// The one after the first.
    pub(super) const SECOND: Attempt = Attempt(1);
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What the bucket gives.
    Acquired(Acquired),
    /// The call was not carried out, as far as the reply says, which may be another call's: it may be made again in this
    /// way, if it does no harm that it has run already.
    Again(Attempt),
    /// Nothing that could be used.
    Failure(Failure),
}

/// The transport of a limiter: the one list of them.
pub fn transport_of(limiter: &Limiter) -> &'static dyn Transport {
    match limiter.transport {
        TransportName::Bridge => &Bridge,
        TransportName::Webdis => &Webdis,
    }
}
