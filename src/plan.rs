//! A policy in force in one proxy: the policy, and what the proxy knows and keeps under it.
//!
//! What a proxy can decide alone is decided here: by its own bucket, because the limiter has just said that a bucket is
//! dry, or because the limiter is to be left alone.

use crate::answer::Outcome;
use crate::bucket::{Level, Share};
use crate::clock::Ms;
use crate::limiter::Failure;
use crate::policy::{Limit, Mode, OnError, Policy};
use crate::pool::Store;
use crate::pool::breaker::{Breaker, Passage};
use crate::pool::table::{Entry, Table};
use crate::rule::Ask;

/// The table's name for the bucket of new keys, which no Redis key can be.
const NEW_KEYS: &str = "new keys";

/// A policy in force, and which one it is among those that this VM has had.
#[derive(Debug)]
pub struct Plan {
    /// Distinguishes plans; requests of different plans never share a call.
    pub id: u64,
    /// What it says.
    pub policy: Policy,
    /// What this proxy knows of its tenants; None where shared data cannot be had.
    table: Option<Table>,
    /// Whether its limiter is left alone.
    breaker: Breaker,
}

impl Plan {
    /// Opens the table and the breaker of a policy. Plans of the same namespace, rules, number of proxies and table
    /// geometry share them, whatever their limits are.
    pub fn new(id: u64, policy: Policy, store: &dyn Store, random: (u64, u64)) -> Plan {
        let (namespace, rule, limiter) = (&policy.namespace, &policy.rule.name, &policy.limiter.name);
        let proxies = policy.proxies.unwrap_or_default();
        let prefix = format!("weir.{namespace}.{rule}.{proxies}.{}", policy.table_entries);
        let table = Table::open(store, &prefix, policy.table_entries, random);
        let breaker = Breaker::new(format!("{prefix}.breaker.{limiter}"), policy.limiter.breaker);
        Plan { id, policy, table, breaker }
    }

    /// What this proxy alone can say of a request; None where the limiter has to be asked.
    pub fn decide(&self, store: &dyn Store, ask: &Ask, now: Ms, random: u64) -> Option<Outcome> {
        if ask.mode == Mode::Local {
            return Some(self.take_own(store, ask, now).unwrap_or(Outcome::Failed(Failure::Unreachable)));
        }
        let entry = self.table.as_ref().and_then(|table| table.read(store, table.fingerprint(&ask.key)));
        let known = entry.filter(|entry| entry.epoch == ask.epoch()).and_then(|entry| entry.known);
        // Others may have taken since, so it is certain only that more than this is not there.
        let at_most = known.filter(|level| level.at <= now).map(|level| level.refilled(ask.limit, now));
        if let Some(share @ Share::Refused { .. }) = at_most.map(|level| level.share_of(ask.limit, ask.cost)) {
            return Some(Outcome::Decided(ask.limit, share));
        }
        if let Passage::Barred(_) = self.breaker.ask(store, now, random) {
            return Some(Outcome::Failed(Failure::Breaker));
        }
        // An own bucket is no sign that the limiter has heard of the key.
        let is_new = entry.is_none_or(|entry| entry.known.is_none());
        (is_new && !self.admits_new_key(store, now)).then_some(Outcome::Failed(Failure::NewKeys))
    }

    /// Counts one more new key of this second. Where the count cannot be reached, the limiter is spared.
    fn admits_new_key(&self, store: &dyn Store, now: Ms) -> bool {
        let Some(most) = self.policy.limiter.max_new_keys_per_second else {
            return true;
        };
        let share = self
            .table
            .as_ref()
            .and_then(|table| table.change(store, table.fingerprint(NEW_KEYS), now, |entry| take(entry, most, now, 1)));
        matches!(share, Some(Share::Granted(_)))
    }

    /// What the proxy's own bucket gives a request; None where it cannot be reached.
    fn take_own(&self, store: &dyn Store, ask: &Ask, now: Ms) -> Option<Outcome> {
        let (table, limit) = (self.table.as_ref()?, ask.own?);
        let share = table.change(store, table.fingerprint(&ask.key), now, |entry| take(entry, limit, now, ask.cost))?;
        Some(Outcome::Decided(limit, share))
    }

    /// What a request gets whose limiter has failed, where the proxy's own bucket has a say in it.
    pub fn on_error(&self, store: &dyn Store, ask: &Ask, failure: Failure, now: Ms) -> Outcome {
        match self.policy.rule.on_error {
            OnError::Local => self.take_own(store, ask, now).unwrap_or(Outcome::Failed(failure)),
            OnError::Allow | OnError::Deny => Outcome::Failed(failure),
        }
    }

    /// Notes what the limiter has said of a bucket, which held no more than this at this time: that it is dry, or, where
    /// new keys are counted, that it is known.
    pub fn note(&self, store: &dyn Store, ask: &Ask, units: u64, refused: bool, at: Ms) {
        let Some(table) = self.table.as_ref() else {
            return;
        };
        if !refused && self.policy.limiter.max_new_keys_per_second.is_none() {
            return;
        }
        // Where all tries are lost, the next request asks the limiter: it costs a call.
        let _ = table.change(store, table.fingerprint(&ask.key), at, |entry| {
            let level = Level { units, at };
            (entry.epoch, entry.known) = (ask.epoch(), Some(level));
            entry.means_until = entry.means_until.max(level.full_at(ask.limit));
        });
    }

    /// Takes notice of what other workers have found out about the limiter.
    pub fn refresh(&self, store: &dyn Store) {
        self.breaker.refresh(store);
    }

    /// A call has brought an answer.
    pub fn call_succeeded(&self, store: &dyn Store) {
        self.breaker.succeeded(store);
    }

    /// A call has failed, or has outlived a wait.
    pub fn call_failed(&self, store: &dyn Store, now: Ms, random: u64) {
        self.breaker.failed(store, now, random);
    }
}

/// Takes from the own bucket of an entry. What a limit has let pass is not forgotten when the limit changes: the level
/// stays, cut to the new burst.
fn take(entry: &mut Entry, limit: Limit, now: Ms, cost: u64) -> Share {
    let level = entry.own.get_or_insert(Level::full(limit, now));
    let share = level.take(limit, now, cost);
    entry.means_until = entry.means_until.max(level.full_at(limit));
    share
}
