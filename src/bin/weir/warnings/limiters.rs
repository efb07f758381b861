//! Limiters that nobody can reach or nobody uses, and tenants that have a bucket in several.

use weir::policy::{Mode, Path, Policy, Rule, Segment};

use super::Warnings;
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

    /// Limiters that have no buckets, and tenants that may have one in several.
    pub(super) fn limiters(&mut self, policy: &Policy) {
        if policy.limiters.iter().count() < 2 {
            return;
        }
        let rules =
            || {
                policy.rules.iter().enumerate().map(|(index, rule)| {
                    (Path::default().word("rules").then(Segment::Index(index)).word("limiter"), rule)
                })
            };
        // A rule that asks nobody need not name one.
        let naming: Vec<(Path, &Rule)> = rules().filter(|(path, _)| self.node_at(path).is_some()).collect();
        for (id, limiter) in policy.limiters.iter() {
            if !naming.iter().any(|(_, rule)| rule.routing.limiters().any(|named| named == id)) {
                let path = self.chosen(&Path::default().word("limiters"), &limiter.name);
                self.warn(&path, "is a limiter that no rule uses; name it in limiter of a rule, or leave it out");
            }
        }
        for (path, rule) in naming {
            if rule.mode != Mode::Local && rule.routing.limiters().any(|limiter| limiter != rule.routing.default) {
                let message = "sends tenants to several limiters: one whose tier or limiter changes has a bucket in \
                               each, a full one in the new limiter, so the limit holds in each limiter alone";
                self.note_as(Severity::Note, &path, message);
            }
        }
    }
}
