//! What a proxy knows of one limiter: whether it is left alone, and how many new keys it has been asked for.

use super::Plan;
use crate::clock::Ms;
use crate::limiter::{Failure, Transport, transport_of};
use crate::local::breaker::{Breaker, Passage};
use crate::local::new_keys::NewKeys;
use crate::local::table::{Fingerprint, Table};
use crate::policy::{Limiter, LimiterId};

/// What tells limiters from buckets and requests in the table.
const LIMITER: u64 = 0;

/// One limiter of a policy, as one proxy sees it. Whatever becomes of it, the others go on.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// How it is asked.
    transport: &'static dyn Transport,
    breaker: Breaker,
    /// What tells its buckets from those of other limiters in the table.
    pub mark: Fingerprint,
    /// How many keys that this proxy does not know may ask in a second.
    new_keys: Option<NewKeys>,
}

impl Endpoint {
    pub fn new(limiter: &Limiter, prefix: &str, table: Option<&Table>) -> Endpoint {
        let name = &limiter.name;
        let new_keys = |most| NewKeys::new(format!("{prefix}.new_keys.{name}"), most);
        Endpoint {
            transport: transport_of(limiter),
            breaker: Breaker::new(format!("{prefix}.breaker.{name}.2"), limiter.breaker),
            mark: table.map(|table| table.fingerprint(LIMITER, name)).unwrap_or_default(),
            new_keys: limiter.max_new_keys_per_second.map(new_keys),
        }
    }
}

impl Plan {
    /// How a limiter is asked.
    pub fn transport(&self, limiter: LimiterId) -> &'static dyn Transport {
        let endpoint = self.endpoint(limiter).map(|endpoint| endpoint.transport);
        endpoint.unwrap_or_else(|| transport_of(self.policy.limiters.get(limiter)))
    }

    /// Takes notice of what other workers have found out about the limiters.
    pub fn refresh(&self, now: Ms) {
        for endpoint in &self.endpoints {
            endpoint.breaker.refresh(self.store.as_ref(), now);
        }
    }

    /// Whether a limiter is left alone, so that nobody asks it ahead of need.
    pub fn is_open(&self, limiter: LimiterId) -> bool {
        self.endpoint(limiter).is_some_and(|endpoint| endpoint.breaker.is_open())
    }

    /// Whether a limiter is left alone, and its next probe is not due yet, as far as this worker has seen.
    pub(in crate::engine) fn is_barred(&self, limiter: LimiterId, now: Ms) -> bool {
        self.endpoint(limiter).is_some_and(|endpoint| endpoint.breaker.is_barred(now))
    }

    /// A call has brought an answer.
    pub fn call_succeeded(&self, limiter: LimiterId, now: Ms) {
        if let Some(endpoint) = self.endpoint(limiter) {
            endpoint.breaker.succeeded(self.store.as_ref(), now);
        }
    }

    /// A call has failed, or has outlived a wait.
    pub fn call_failed(&self, limiter: LimiterId, now: Ms, random: u64) {
        if let Some(endpoint) = self.endpoint(limiter) {
            endpoint.breaker.failed(self.store.as_ref(), now, random);
        }
    }

    /// Whether a request may ask a limiter, as far as its breaker says: always, or as the next probe, which is spent by
    /// asking this.
    ///
    /// # Errors
    /// [`Failure::Breaker`].
    pub(super) fn passes_breaker(&self, limiter: LimiterId, now: Ms, random: u64) -> Result<(), Failure> {
        let passage = self.endpoint(limiter).map(|endpoint| endpoint.breaker.ask(self.store.as_ref(), now, random));
        match passage {
            Some(Passage::Barred) => Err(Failure::Breaker),
            Some(Passage::Open) | None => Ok(()),
        }
    }

    /// Whether new keys have a limit of their own at this limiter.
    pub(super) fn counts_new_keys(&self, limiter: LimiterId) -> bool {
        self.endpoint(limiter).is_some_and(|endpoint| endpoint.new_keys.is_some())
    }

    /// Counts one more new key of this second.
    ///
    /// # Errors
    /// [`Failure::NewKeys`].
    pub(super) fn count_new_key(&self, limiter: LimiterId, now: Ms) -> Result<(), Failure> {
        let new_keys = self.endpoint(limiter).and_then(|endpoint| endpoint.new_keys.as_ref());
        match new_keys.is_none_or(|new_keys| new_keys.admits(self.store.as_ref(), now)) {
            true => Ok(()),
            false => Err(Failure::NewKeys),
        }
    }
}
