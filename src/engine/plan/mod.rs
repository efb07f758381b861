//! A policy in force in one proxy: the policy, and what the proxy knows and keeps under it.
//!
//! What a proxy can decide alone is decided here: by tokens that it has been lent, by its own bucket, because the
//! limiter has just said that a bucket is dry, or because the limiter is to be left alone. And here it is decided who of
//! its workers calls the limiter about a lease, and what comes of it.

mod entry;
mod lending;
mod watched;

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

pub use lending::{Closed, Denied, Election, Granted, Lending, LendingEnd};

use crate::algorithm::{Share, Standing, Used};
use crate::clock::Ms;
use crate::limiter::{Failure, Transport, transport_of};
use crate::local::Store;
use crate::local::breaker::{Breaker, Passage};
use crate::local::lease::Moment;
use crate::local::table::{Entry, STAYS, Table};
use crate::local::top::Top;
use crate::policy::{Limit, Mode, OnError, Policy};
use crate::rules::{Ask, Repeat};

/// The table's name for the bucket of new keys, which no Redis key can be.
const NEW_KEYS: &str = "new keys";

/// How often a request that is sent again passes free. More than that is no retry.
const REPEATS: u64 = 8;

/// A policy in force, and which one it is among those that this VM has had.
#[derive(Debug)]
pub struct Plan {
    /// Distinguishes plans; requests of different plans never share a call.
    pub id: u64,
    /// What it says.
    pub policy: Policy,
    /// How its limiter is asked.
    pub transport: &'static dyn Transport,
    /// What this proxy knows of its tenants; None where shared data cannot be had.
    table: Option<Table>,
    /// Whether its limiter is left alone.
    breaker: Breaker,
    /// Another policy is in force instead.
    is_retired: Cell<bool>,
    /// Who has come most since the last merge, where the policy has a path to tell it at.
    top: RefCell<Top>,
    /// First part of the names of what it keeps in shared data.
    prefix: String,
}

/// What this proxy alone gives a request of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its cost.
    Granted {
        /// The limit that it was taken under.
        limit: Limit,
        /// How that bucket stands.
        standing: Standing,
        /// For putting it back.
        receipt: Receipt,
        /// What is to be done about the bucket.
        due: Option<Due>,
    },
    /// Nothing.
    Refused {
        /// The limit that says so.
        limit: Limit,
        /// The refusal.
        share: Share,
    },
    /// The limiter has failed.
    Failed(Failure),
    /// The limiter has to be asked.
    Missing,
}

/// Where something was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// From what was lent, at this moment.
    Lease(Moment),
    /// From the proxy's own bucket.
    Own,
    /// From what is spent first and settled later.
    Unsettled,
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
    /// Opens the table and the breaker of a policy. Plans of the same namespace, number of proxies and table geometry
    /// share them, whatever their rules and limits are.
    pub fn new(id: u64, policy: Policy, store: &dyn Store, random: (u64, u64)) -> Plan {
        let (namespace, limiter) = (&policy.namespace, &policy.limiters.first().name);
        let proxies = policy.proxies.unwrap_or_default();
        let prefix = format!("weir.{namespace}.{proxies}.{}", policy.table_entries);
        let table = Table::open(store, &prefix, policy.table_entries, random);
        let breaker = Breaker::new(format!("{prefix}.breaker.{limiter}.2"), policy.limiters.first().breaker);
        let transport = transport_of(policy.limiters.first());
        Plan { id, policy, transport, table, breaker, is_retired: Cell::new(false), top: RefCell::default(), prefix }
    }

    /// Takes what a request needs of one bucket, if this proxy has it, or says what else this proxy knows.
    pub fn take(&self, store: &dyn Store, ask: &Ask, now: Ms, random: u64) -> Taken {
        match ask.mode {
            Mode::Local => self.take_own(store, ask, now, Failure::Unreachable),
            Mode::Async { sync_interval } => self.take_unsettled(store, ask, sync_interval, now, random),
            Mode::Exact | Mode::Lease(_) => self.take_lent(store, ask, now, random),
        }
    }

    fn take_lent(&self, store: &dyn Store, ask: &Ask, now: Ms, random: u64) -> Taken {
        let looked = self.change(store, ask, now, |entry| {
            if entry.may_spend(ask, now) && entry.lease.spend(now, ask.cost) {
                entry.means_until = entry.means_until.max(entry.lease.expires);
                let due = match ask.mode {
                    Mode::Lease(_) => entry.lease.runs_out(now).then_some(Due::Ahead),
                    // A bucket that is nearly all lent refills from when the limiter hears that it is spent.
                    _ => entry.holds_up(ask, now).then_some(Due::Now),
                };
                return ControlFlow::Break(Taken::Granted {
                    limit: ask.limit,
                    standing: entry.seen(ask, now).standing(ask.limit),
                    receipt: Receipt::Lease(entry.lease.moment()),
                    due,
                });
            }
            match entry.refusal(ask, now) {
                Some(share) => ControlFlow::Break(Taken::Refused { limit: ask.limit, share }),
                // An own bucket is no sign that the limiter has heard of the key.
                None => ControlFlow::Continue(entry.known.is_some()),
            }
        });
        let is_known = match looked {
            Some(ControlFlow::Break(taken)) => return taken,
            Some(ControlFlow::Continue(is_known)) => is_known,
            None => false,
        };
        if let Passage::Barred(_) = self.breaker.ask(store, now, random) {
            return Taken::Failed(Failure::Breaker);
        }
        if !is_known && !self.admits_new_key(store, now) {
            return Taken::Failed(Failure::NewKeys);
        }
        Taken::Missing
    }

    /// Counts one more new key of this second. Where the count cannot be reached, the limiter is spared.
    fn admits_new_key(&self, store: &dyn Store, now: Ms) -> bool {
        let Some(most) = self.policy.limiters.first().max_new_keys_per_second else {
            return true;
        };
        let share = self.table.as_ref().and_then(|table| {
            table.change(store, table.fingerprint(NEW_KEYS), now, |entry| entry.take_own(most, now, 1))
        });
        matches!(share, Some(Share::Granted(_)))
    }

    /// Spends first: by what the limiter said last, less what this proxy has spent since. Of a bucket that this proxy does
    /// not know, or has no room for, the limiter has to speak first; a rule that never waits takes it for full.
    fn take_unsettled(&self, store: &dyn Store, ask: &Ask, sync_interval: Ms, now: Ms, random: u64) -> Taken {
        let probes = self.breaker.is_open();
        if probes && let Passage::Barred(_) = self.breaker.ask(store, now, random) {
            return Taken::Failed(Failure::Breaker);
        }
        let share = self.change(store, ask, now, |entry| {
            if entry.known.is_none() && !ask.shadow {
                return None;
            }
            let known = entry.known.get_or_insert(Used::nothing(now));
            let share = known.take(ask.limit, now, ask.cost);
            if let Share::Granted(_) = share {
                if entry.lease.spent == 0 && entry.lease.since + sync_interval <= now {
                    // It is settled an interval after the first that is spent.
                    entry.lease.since = now;
                }
                entry.lease.was_granted(ask.cost);
                entry.keep_unsettled(ask);
            }
            let share = entry.wait_for_settling(ask, sync_interval, share, now);
            Some((share, (entry.lease.since + sync_interval) - now))
        });
        let limit = ask.limit;
        match share.flatten() {
            Some((Share::Granted(standing), settles)) => {
                let due = if probes { Due::Now } else { Due::LookIn(settles) };
                Taken::Granted { limit, standing, receipt: Receipt::Unsettled, due: Some(due) }
            }
            Some((share, _)) => Taken::Refused { limit, share },
            None if ask.shadow => Taken::Failed(Failure::Unreachable),
            None if !self.admits_new_key(store, now) => Taken::Failed(Failure::NewKeys),
            None => Taken::Missing,
        }
    }

    /// What the proxy's own bucket gives a request; that failure where it cannot be reached.
    fn take_own(&self, store: &dyn Store, ask: &Ask, now: Ms, failure: Failure) -> Taken {
        let share = ask.own.and_then(|limit| {
            Some((limit, self.change(store, ask, now, |entry| entry.take_own(limit, now, ask.cost))?))
        });
        match share {
            Some((limit, Share::Granted(standing))) => {
                Taken::Granted { limit, standing, receipt: Receipt::Own, due: None }
            }
            Some((limit, share)) => Taken::Refused { limit, share },
            None => Taken::Failed(failure),
        }
    }

    /// What a request gets whose limiter has failed; None where it passes uncounted.
    pub fn on_error(&self, store: &dyn Store, ask: &Ask, failure: Failure, now: Ms) -> Option<Taken> {
        match ask.on_error {
            OnError::Local => Some(self.take_own(store, ask, now, failure)),
            OnError::Deny => Some(Taken::Failed(failure)),
            OnError::Allow => None,
        }
    }

    /// Puts back what was taken, since another bucket has refused the request. Where it cannot be put back safely, it
    /// stays spent.
    pub fn put_back(&self, store: &dyn Store, ask: &Ask, receipt: Receipt, now: Ms) {
        self.change(store, ask, now, |entry| match receipt {
            Receipt::Lease(moment) => entry.lease.put_back(moment, ask.cost),
            Receipt::Own => {
                if let (Some(own), Some(limit)) = (entry.own, ask.own) {
                    entry.own = Some(own.plus(limit, ask.cost));
                }
            }
            // What is settled already comes back by no call.
            Receipt::Unsettled if entry.lease.spent >= ask.cost => {
                entry.lease.spent = entry.lease.spent.saturating_sub(ask.cost);
                entry.known = entry.known.map(|known| known.plus(ask.limit, ask.cost));
                entry.keep_unsettled(ask);
            }
            Receipt::Unsettled => {}
        });
    }

    /// Whether a request has been sent and charged before, and may pass free.
    pub fn is_repeat(&self, store: &dyn Store, repeat: &Repeat, now: Ms) -> bool {
        let passes = self.table.as_ref().and_then(|table| {
            table.change(store, table.fingerprint(&repeat.key), now, |entry| {
                let Some(left) = entry.known.as_mut().filter(|left| now - left.at < repeat.keep && left.units > 0)
                else {
                    return false;
                };
                left.units = left.units.saturating_sub(1);
                true
            })
        });
        passes == Some(true)
    }

    /// A request that may be sent again has been charged.
    pub fn remember(&self, store: &dyn Store, repeat: &Repeat, now: Ms) {
        if let Some(table) = &self.table {
            table.change(store, table.fingerprint(&repeat.key), now, |entry| {
                entry.known = Some(Used { units: REPEATS, at: now });
                entry.means_until = now + repeat.keep;
            });
        }
    }

    /// Takes notice of what other workers have found out about the limiter.
    pub fn refresh(&self, store: &dyn Store, now: Ms) {
        self.breaker.refresh(store, now);
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

    /// Whether the limiter is left alone, so that nobody asks it ahead of need.
    pub fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    /// A call has brought an answer.
    pub fn call_succeeded(&self, store: &dyn Store, now: Ms) {
        self.breaker.succeeded(store, now);
    }

    /// A call has failed, or has outlived a wait.
    pub fn call_failed(&self, store: &dyn Store, now: Ms, random: u64) {
        self.breaker.failed(store, now, random);
    }

    fn change<T>(&self, store: &dyn Store, ask: &Ask, now: Ms, mut change: impl FnMut(&mut Entry) -> T) -> Option<T> {
        let table = self.table.as_ref()?;
        table.change(store, table.fingerprint(&ask.key), now, |entry| {
            if !matches!(ask.mode, Mode::Async { .. }) && entry.means_until == STAYS {
                // The rule was in mode async before: nobody settles this any more.
                entry.means_until = Ms(0);
            }
            change(entry)
        })
    }
}
