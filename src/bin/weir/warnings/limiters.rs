//! Limiters that nobody can reach or nobody uses, or that are one Redis, and tenants that have a bucket in several.

use weir::policy::{Limiter, LimiterId, Mode, Path, Policy, Routing, Rule, Segment};

use super::Warnings;
use super::routing::{has_buckets, uses_default};
use crate::document::Node;
use crate::found::{Clusters, Host};
use crate::report::Severity;

impl Warnings<'_> {
    /// Clusters of limiters that surely are not there.
    pub(super) fn clusters(&mut self, policy: &Policy, host: &Host, clusters: &Clusters) {
        for (_, limiter) in policy.limiters.iter() {
            let cluster = &limiter.cluster;
            if matches!(host, Host::Envoy(_)) && clusters.lack(cluster) {
                let path = self.chosen(&Path::default().word("limiters"), &limiter.name).word("cluster");
                let message = format!(
                    "{cluster:?} is no cluster of this configuration; define it under static_resources.clusters, or \
                     write the name of one that is there: {}",
                    clusters.names.join(", ")
                );
                self.warn(&path, message);
            }
        }
    }

    /// Limiters that have no buckets or those of another one, and tenants that may have one in several.
    pub(super) fn limiters(&mut self, policy: &Policy) {
        if policy.limiters.iter().count() < 2 {
            return;
        }
        let limiters = Path::default().word("limiters");
        let rules = policy.rules.iter().enumerate();
        // A rule that asks nobody need not name one.
        let naming: Vec<(Path, &Rule)> = rules
            .map(|(index, rule)| (Path::default().word("rules").then(Segment::Index(index)).word("limiter"), rule))
            .filter(|(path, _)| self.node_at(path).is_some())
            .collect();
        let mut used: Vec<(LimiterId, &Limiter)> = Vec::new();
        for (id, limiter) in policy.limiters.iter() {
            let names = |(path, rule): &(Path, &Rule)| {
                // One that is left out names nobody.
                let default = (!self.names_no_default(path)).then_some(rule.routing.default);
                let of_tiers = rule.routing.tiers.iter().map(|(_, limiter)| *limiter);
                default.into_iter().chain(of_tiers).chain(of_tenants(&rule.routing)).any(|named| named == id)
            };
            if naming.iter().any(names) {
                used.push((id, limiter));
            } else {
                let message = "is a limiter that no rule uses; name it in limiter of a rule, or leave it out";
                self.warn(&self.chosen(&limiters, &limiter.name), message);
            }
        }
        self.same(&used, &limiters);
        for (path, rule) in naming.iter().filter(|(_, rule)| rule.mode != Mode::Local) {
            let mut reached: Vec<Redis> = reached(rule).map(|id| self.redis(policy.limiters.get(id))).collect();
            reached.sort();
            reached.dedup();
            if reached.len() > 1 {
                let message = "sends tenants to several limiters: one whose tier or limiter changes has a bucket in \
                               each, a full one in the new limiter, so the limit holds in each limiter alone";
                self.note_as(Severity::Note, path, message);
            }
        }
    }

    /// Limiters that are one Redis.
    fn same(&mut self, used: &[(LimiterId, &Limiter)], limiters: &Path) {
        for (index, (_, limiter)) in used.iter().enumerate() {
            let mut before = used.iter().take(index).map(|(_, other)| *other);
            let Some(other) = before.find(|other| self.redis(other) == self.redis(limiter)) else { continue };
            let message = format!(
                "is the same Redis as limiter {}: cluster, authority and auth_env are the same. A bucket has the same key \
                 in both, so a tenant that a rule sends from one to the other goes on with the one that it has, and both \
                 fail together; write another cluster, or use one of them for both",
                other.name
            );
            // Who gives them other words may well mean two ways to one Redis.
            let words = |of: &Limiter| (of.timeout, of.breaker, of.max_new_keys_per_second);
            let severity = if words(other) == words(limiter) { Severity::Warning } else { Severity::Note };
            self.note_as(severity, &self.chosen(limiters, &limiter.name), message);
        }
    }

    /// What tells one Redis from others, as far as a policy says. A variable counts by its name: values are not for here.
    fn redis(&self, limiter: &Limiter) -> Redis {
        let auth = self.node.at(&["limiters", &limiter.name, "auth_env"]).and_then(Node::text);
        (limiter.cluster.clone(), limiter.authority.clone(), auth.map(str::to_owned))
    }
}

/// Cluster, authority, and the variable of the credentials.
type Redis = (String, String, Option<String>);

/// The limiters that have buckets of a rule.
fn reached(rule: &Rule) -> impl Iterator<Item = LimiterId> + '_ {
    let with_buckets = |tier: usize| rule.tiers.get(tier).is_some_and(has_buckets);
    let of_tiers = rule.routing.tiers.iter().filter(move |(tier, _)| with_buckets(*tier)).map(|(_, limiter)| *limiter);
    let default = uses_default(rule).then_some(rule.routing.default);
    default.into_iter().chain(of_tiers).chain(of_tenants(&rule.routing))
}

/// The limiters of tenants and networks.
fn of_tenants(routing: &Routing) -> impl Iterator<Item = LimiterId> + '_ {
    routing.tenants.values().copied().chain(routing.networks.tiers().map(LimiterId))
}
