//! Which limiter a bucket is in.

use std::collections::HashMap;

use super::Limiter;
use crate::tenant::Tenant;

/// A limiter of a policy: an index into its [`Limiters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimiterId(pub usize);

/// The limiters of a policy, one at least, in the order of their names.
#[derive(Clone, Debug)]
pub struct Limiters {
    first: Limiter,
    others: Vec<Limiter>,
}

impl Limiters {
    /// One limiter, and those that a policy has beside it.
    pub fn new(first: Limiter, others: Vec<Limiter>) -> Limiters {
        Limiters { first, others }
    }

    /// The one that a policy with only one has.
    pub fn first(&self) -> &Limiter {
        &self.first
    }

    /// The limiter of this id; every id of a policy has one.
    pub fn get(&self, id: LimiterId) -> &Limiter {
        let other = id.0.checked_sub(1).and_then(|at| self.others.get(at));
        other.unwrap_or(&self.first)
    }

    /// All of them, each with its id.
    pub fn iter(&self) -> impl Iterator<Item = (LimiterId, &Limiter)> {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.enumerate().map(|(at, limiter)| (LimiterId(at), limiter))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Limiter> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// Which limiter the buckets of a rule are in: by tenant, or else by tier, or else the default one.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// Where all other buckets are.
    pub default: LimiterId,
    /// Indices into the tiers of the rule, each with its limiter.
    pub tiers: Vec<(usize, LimiterId)>,
    /// Tenants with a limiter of their own.
    pub tenants: HashMap<Tenant, LimiterId>,
}

impl Routing {
    /// The limiter of a tenant that is in this tier.
    pub fn limiter_of(&self, tenant: &Tenant, tier: usize) -> LimiterId {
        let by_tier = || self.tiers.iter().find(|(of, _)| *of == tier).map(|(_, limiter)| *limiter);
        // Most rules name no tenant here, and hashing one costs as much as all the rest.
        let own = if self.tenants.is_empty() { None } else { self.tenants.get(tenant).copied() };
        own.or_else(by_tier).unwrap_or(self.default)
    }
}
