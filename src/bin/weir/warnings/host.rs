//! What the host around a policy says against it: traps, clients' addresses, tokens, filters that count twice.

use weir::policy::{AddressFrom, Origin, Path, Policy, Rule, Segment, Source};

use super::Warnings;
use crate::document::Value;
use crate::found::{Envoy, Found, Host, Istio, Manager};
use crate::report::{Report, Severity};

/// What the host around a policy lacks, whether the policy is valid or not.
pub fn of_host(host: &Host) -> Vec<Report> {
    let (at, policy, word) = match host {
        Host::File => return Vec::new(),
        Host::Envoy(Envoy { at, failure_policy, .. }) => (*at, failure_policy, "failure_policy"),
        Host::Istio(Istio { at, fail_strategy, .. }) => (*at, fail_strategy, "failStrategy"),
    };
    let severity_and_message = match policy.as_deref() {
        None => (
            Severity::Warning,
            format!(
                "{word} is not set: should the module ever trap, it answers 503 for good; write {word}: FAIL_RELOAD"
            ),
        ),
        Some("FAIL_OPEN") => (
            Severity::Note,
            format!("{word} is FAIL_OPEN: should the module ever trap, everything passes unlimited for good"),
        ),
        Some(_) => return Vec::new(),
    };
    let (severity, message) = severity_and_message;
    vec![Report { at, severity, path: None, message }]
}

/// Rules of two filters that the same requests pass, each with where it stands: they share their buckets, so that such a
/// request is counted twice.
pub fn counted_twice(one: (&Found, &Policy), other: (&Found, &Policy)) -> Vec<Report> {
    let ((first, before), (second, policy)) = (one, other);
    let (Host::Envoy(of_first), Host::Envoy(of_second), Ok(node)) = (&first.host, &second.host, &second.policy) else {
        return Vec::new();
    };
    let place = |manager: &Manager| (manager.document, manager.at);
    let shared =
        of_second.managers.iter().find(|manager| of_first.managers.iter().any(|of| place(of) == place(manager)));
    let Some(manager) = shared.filter(|_| before.namespace == policy.namespace) else {
        return Vec::new();
    };
    let mut found = Warnings { node, reports: Vec::new() };
    for (index, rule) in policy.rules.iter().enumerate() {
        if before.rules.iter().any(|other| other.name == rule.name) {
            let path = Path::default().word("rules").then(Segment::Index(index)).word("name");
            let message = format!(
                "counts requests twice: {} has a rule {} in namespace {}, too, and both stand in one connection manager \
                 (line {}), so each request takes from the same buckets in both; give one of the rules another name, or \
                 one of the policies another namespace",
                first.name.as_deref().unwrap_or("another filter"),
                rule.name,
                policy.namespace,
                manager.at.line
            );
            found.warn(&path, message);
        }
    }
    found.reports
}

impl Warnings<'_> {
    /// Addresses that clients can make up with this connection manager.
    pub(super) fn addresses(&mut self, rule: &Rule, manager: &Manager, path: &Path) {
        let key = path.word("key");
        let tier = path.word("tier").word("sources");
        for (sources, path) in [(&rule.sources, key), (&rule.tier_sources, tier)] {
            self.addresses_of(sources, manager, &path);
        }
    }

    fn addresses_of(&mut self, sources: &[Source], manager: &Manager, path: &Path) {
        let line = manager.at.line;
        for (index, source) in sources.iter().enumerate() {
            let at = path.then(Segment::Index(index));
            let is_host = match &source.origin {
                Origin::All(parts) => {
                    let inner = at.word("all");
                    let has_list = matches!(self.node_at(&inner).map(|node| &node.value), Some(Value::List(_)));
                    self.addresses_of(parts, manager, &if has_list { inner } else { inner.word("sources") });
                    continue;
                }
                Origin::Property(parts, _) => parts.iter().map(String::as_str).eq(["source", "address"]),
                Origin::ClientIp(AddressFrom::Host, _) => true,
                Origin::ClientIp(AddressFrom::Forwarded(_), _) => {
                    self.appended(manager, &at.word("client_ip").word("peer_appended"));
                    continue;
                }
                _ => continue,
            };
            if !is_host || manager.has_extensions {
                continue;
            }
            if !manager.use_remote_address {
                let message = format!(
                    "is forgeable here: the connection manager (line {line}) has no use_remote_address: true, so Envoy \
                     takes the address from x-forwarded-for, which clients can send; write use_remote_address: true, \
                     or let nobody reach this listener but a proxy of yours that sets the header"
                );
                self.warn(&at, message);
            } else if manager.trusted_hops > 0 {
                let message = format!(
                    "is entry {} from the right of x-forwarded-for as it arrives, since xff_num_trusted_hops (line \
                     {line}) says so: forgeable if fewer than {0} proxies of yours stand before this one",
                    manager.trusted_hops
                );
                self.note_as(Severity::Note, &at, message);
            }
        }
    }

    /// Tokens that something before has verified, and that name their bearer by their own text.
    pub(super) fn tokens(&mut self, rule: &Rule, policy: &Policy, host: &Host, path: &Path) {
        let verifies = match host {
            Host::Envoy(envoy) => envoy.managers.iter().find_map(|manager| manager.jwt_authn),
            _ => None,
        };
        let verified = match verifies {
            Some(at) => format!("jwt_authn (line {})", at.line),
            None if reads_claims(policy) => "jwt_authn".to_owned(),
            None => return,
        };
        let is_trusted = |source: &Source| source.origin == Origin::Bearer && source.trusted;
        for (index, source) in rule.sources.iter().enumerate() {
            let parts = match &source.origin {
                Origin::All(parts) => parts.as_slice(),
                _ => std::slice::from_ref(source),
            };
            if parts.iter().any(is_trusted) {
                let message = format!(
                    "is the text of a token that {verified} verifies: whoever has several tokens is several tenants, \
                     jwt_authn also takes headers from which no token is read here, and takes the header off unless \
                     its provider says forward: true; write property: {{path: [metadata, filter_metadata, \
                     envoy.filters.http.jwt_authn, payload, sub], trusted: true}}, with payload_in_metadata: payload \
                     at the provider"
                );
                self.warn(&path.word("key").then(Segment::Index(index)), message);
            }
        }
    }

    /// Envoy adds the peer to x-forwarded-for before filters see it, with use_remote_address: true alone.
    fn appended(&mut self, manager: &Manager, path: &Path) {
        let Some(Value::Bool(is_said)) = self.node_at(path).map(|node| &node.value) else {
            return;
        };
        let is_appended = manager.use_remote_address && !manager.skips_append;
        if *is_said != is_appended {
            let (line, effect) = match is_appended {
                true => (manager.at.line, "so the client would be taken for the entry after it"),
                false => (manager.at.line, "so the entry before it would count, which clients can forge"),
            };
            let done = if is_appended { "adds" } else { "does not add" };
            let message = format!(
                "contradicts the connection manager (line {line}), with which Envoy {done} the peer to x-forwarded-for, \
                 {effect}; write peer_appended: {is_appended}"
            );
            self.warn(path, message);
        }
    }
}

/// Whether a policy reads what jwt_authn has verified.
fn reads_claims(policy: &Policy) -> bool {
    let sources = policy.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources));
    let parts = sources.flat_map(|source| match &source.origin {
        Origin::All(parts) => parts.as_slice(),
        _ => std::slice::from_ref(source),
    });
    let reads = |origin: &Origin| match origin {
        Origin::Property(path, _) => path.get(2).is_some_and(|part| part == "envoy.filters.http.jwt_authn"),
        _ => false,
    };
    parts.into_iter().any(|part| reads(&part.origin))
}
