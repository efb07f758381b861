//! What is valid in a policy and yet hardly meant: each with what to do about it.

mod host;
mod limiters;
mod limits;
mod routing;
mod tenants;

use weir::policy::{Mode, Path, Policy, Segment, Tier};

pub use host::{counted_twice, of_host};

use crate::document::Node;
use crate::found::{Clusters, Envoy, Host};
use crate::report::{Report, Severity};

/// All of them, for a policy that is valid.
pub fn of(policy: &Policy, node: &Node, host: &Host, clusters: &Clusters) -> Vec<Report> {
    let mut found = Warnings { node, reports: Vec::new() };
    found.hidden_classes(policy);
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = Path::default().word("rules").then(Segment::Index(index));
        found.limits(rule, policy.proxies, &path);
        if rule.mode == Mode::Local && found.node_at(&path.word("on_error")).is_some() {
            let message = "has no meaning with mode: local, which asks no limiter that could fail; it holds again with \
                           another mode";
            found.warn(&path.word("on_error"), message);
        }
        found.tiers(rule, &path);
        found.tenants(rule, &path);
        found.routing(rule, policy, &path);
        if let Host::Envoy(Envoy { managers, .. }) = host {
            managers.iter().for_each(|manager| found.addresses(rule, manager, &path));
        }
        found.tokens(rule, policy, host, &path);
    }
    found.limiters(policy);
    found.clusters(policy, host, clusters);
    found.reports
}

struct Warnings<'n> {
    node: &'n Node,
    reports: Vec<Report>,
}

impl Warnings<'_> {
    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        self.note_as(Severity::Warning, path, message);
    }

    fn note_as(&mut self, severity: Severity, path: &Path, message: impl Into<String>) {
        let at = self.node.place(path);
        self.reports.push(Report { at, severity, path: Some(path.to_string()), message: message.into() });
    }

    /// What stands at a path.
    fn node_at(&self, path: &Path) -> Option<&Node> {
        path.steps().into_iter().try_fold(self.node, |node, step| match step {
            Segment::Word(word) => node.get(word),
            Segment::Index(index) => node.items().get(*index),
            Segment::Chosen(_, position) => node.pairs().get(*position).map(|(_, node)| node),
        })
    }

    /// The path of a key that the user chose.
    fn chosen(&self, path: &Path, key: &str) -> Path {
        let pairs = self.node_at(path).map(Node::pairs).unwrap_or_default();
        match pairs.iter().position(|(known, _)| known.text == key) {
            Some(position) => path.then(Segment::Chosen(key.to_owned(), position)),
            None => path.clone(),
        }
    }

    /// The path of the limits of a tier, which may be those of the rule.
    fn tier_path(&self, rule: &Path, tier: &Tier) -> Path {
        self.chosen(&rule.word("limits"), &tier.name)
    }

    /// The path of the key at a position that the user chose.
    fn nth(&self, path: &Path, position: usize) -> Path {
        let key = self.node_at(path).and_then(|node| node.pairs().get(position));
        path.then(Segment::Chosen(key.map(|(key, _)| key.text.clone()).unwrap_or_default(), position))
    }
}
