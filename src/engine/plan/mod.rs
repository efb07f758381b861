//! A policy in force in one proxy: the policy, and what the proxy knows and keeps under it.
//!
//! What a proxy can decide alone is decided here: by tokens that it has been lent, by its own bucket, because the
//! limiter has just said that a bucket is dry, or because the limiter is to be left alone. And here it is decided who of
//! its workers calls the limiter about a lease, and what comes of it.

mod bad_keys;
mod endpoint;
mod entry;
mod lending;
mod repeats;
mod take;
mod watched;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub use lending::{Closed, Denied, Election, Lending, LendingEnd, Said};
pub use take::{Receipt, Taken};

use crate::clock::Ms;
use crate::local::Store;
use crate::local::table::{Entry, Fingerprint, STAYS, Table};
use crate::local::top::Top;
use crate::policy::{LimiterId, Mode, Policy};
use crate::rules::Ask;
use bad_keys::BadKeys;
use endpoint::Endpoint;

/// A policy in force, and which one it is among those that this VM has had.
#[derive(Debug)]
pub struct Plan {
    /// Distinguishes plans; requests of different plans never share a call.
    pub id: u64,
    /// What it says.
    pub policy: Policy,
    /// The proxy's shared data.
    store: Rc<dyn Store>,
    /// What this proxy knows of its tenants; None where shared data cannot be had.
    table: Option<Table>,
    /// What this proxy knows of each limiter, in the order of the policy.
    endpoints: Vec<Endpoint>,
    /// Another policy is in force instead.
    is_retired: Cell<bool>,
    /// Who has come most since the last merge, where the policy has a path to tell it at.
    top: RefCell<Top>,
    /// Buckets whose keys hold something else.
    bad_keys: RefCell<BadKeys>,
    /// First part of the names of what it keeps in shared data.
    prefix: String,
}

/// What a bucket needs although nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// To ask for more before the tokens run out.
    Ahead,
    /// To give its lease back, or to settle, if nothing comes between: not before this long.
    LookIn(Ms),
    /// That now.
    Now,
}

impl Plan {
    /// Opens the table and the breakers of a policy in a proxy's shared data. Plans of the same namespace, number of
    /// proxies and table geometry share them, whatever their rules and limits are.
    pub fn new(id: u64, policy: Policy, store: Rc<dyn Store>, random: (u64, u64)) -> Plan {
        let proxies = policy.proxies.unwrap_or_default();
        let prefix = format!("weir.{}.{proxies}.{}", policy.namespace, policy.table_entries);
        let table = Table::open(store.as_ref(), &prefix, policy.table_entries, random);
        let limiters = policy.limiters.iter();
        let endpoints = limiters.map(|(_, limiter)| Endpoint::new(limiter, &prefix, table.as_ref())).collect();
        let (top, bad_keys) = (RefCell::default(), RefCell::default());
        Plan { id, policy, store, table, endpoints, is_retired: Cell::new(false), top, bad_keys, prefix }
    }

    /// Another policy is in force from now on: those who wait are still answered by this one, but it is not for it to look
    /// after leases any more.
    pub fn retire(&self) {
        self.is_retired.set(true);
    }

    /// Whether another policy is in force instead.
    pub fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// How many tenants that mattered had to make room in the table, since this was asked last.
    pub fn take_evictions(&self) -> u64 {
        self.table.as_ref().map(Table::take_evictions).unwrap_or_default()
    }

    /// Changes what this proxy knows of a bucket; None where it can keep nothing.
    fn change<T>(&self, ask: &Ask, now: Ms, mut change: impl FnMut(&mut Entry) -> T) -> Option<T> {
        let table = self.table.as_ref()?;
        table.change(self.store.as_ref(), self.fingerprint(table, ask), now, |entry| {
            if !matches!(ask.mode, Mode::Async { .. }) && entry.means_until == STAYS {
                // The rule was in mode async before: nobody settles this any more.
                entry.means_until = Ms(0);
            }
            change(entry)
        })
    }

    /// What this proxy knows of a bucket.
    fn read(&self, ask: &Ask) -> Option<Entry> {
        let table = self.table.as_ref()?;
        table.read(self.store.as_ref(), self.fingerprint(table, ask))
    }

    /// Buckets of one name at different limiters are different ones: what one has lent, another knows nothing of.
    fn fingerprint(&self, table: &Table, ask: &Ask) -> Fingerprint {
        let fingerprint = table.fingerprint(ask.bucket.kind.hash(), ask.bucket.tenant.as_str());
        match self.endpoint(ask.bucket.limiter) {
            Some(endpoint) => fingerprint.at(endpoint.mark),
            None => fingerprint,
        }
    }

    fn endpoint(&self, limiter: LimiterId) -> Option<&Endpoint> {
        self.endpoints.get(limiter.0)
    }
}
