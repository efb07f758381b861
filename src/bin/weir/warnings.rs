//! What is valid in a policy and yet hardly meant: each with what to do about it.

use weir::policy::{Allowance, ClassMatch, Entry, Limit, Mode, Origin, Path, Policy, Rule, Segment, Source, Tier};

use crate::cover::covers;
use crate::document::{Node, Value};
use crate::found::{Clusters, Envoy, Found, Host, Istio, Manager};
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
        if let Host::Envoy(Envoy { managers, .. }) = host {
            managers.iter().for_each(|manager| found.addresses(rule, manager, &path));
        }
        found.tokens(rule, policy, host, &path);
    }
    found.cluster(policy, host, clusters);
    found.reports
}

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

    fn hidden_classes(&mut self, policy: &Policy) {
        let classes = &policy.classes;
        for (index, later) in classes.matches.iter().enumerate() {
            let mut before = classes.matches.iter().take(index);
            let Some(earlier) = before.position(|earlier| covers(earlier, later)) else {
                continue;
            };
            let path = |index| Path::default().word("classes").then(Segment::Index(index));
            let line = self.node.place(&path(earlier)).line;
            let name_of = |entry: &ClassMatch| classes.names.get(entry.class.0).cloned().unwrap_or_default();
            let name = classes.matches.get(earlier).map(name_of).unwrap_or_default();
            let message = format!(
                "is never reached: classes[{earlier}] ({name}, line {line}) matches all of its requests first; put it \
                 before that one, or leave it out"
            );
            self.warn(&path(index), message);
        }
    }

    /// The path of the limits of a tier, which may be those of the rule.
    fn tier_path(&self, rule: &Path, tier: &Tier) -> Path {
        self.chosen(&rule.word("limits"), &tier.name)
    }

    fn limits(&mut self, rule: &Rule, proxies: Option<u64>, path: &Path) {
        let limits = path.word("limits");
        let overrides = path.word("overrides");
        let named = rule.tiers.iter().filter(|tier| !tier.name.is_empty()).count();
        let mut smallest: Option<(Limit, Path)> = None;
        for (number, tier) in rule.tiers.iter().enumerate() {
            // Tiers without a name are overrides, in their order.
            let of_tier = match number.checked_sub(named) {
                None => self.tier_path(path, tier),
                Some(position) => self.nth(&overrides, position),
            };
            for entry in &tier.entries {
                let of_entry = self.chosen(&of_tier, &entry.name);
                let is_written_out = of_entry != of_tier;
                let is_default = entry.name == "default" && entry.allowance == Allowance::Unlimited;
                if is_default && is_written_out && of_tier != limits && number < named {
                    let wanted = "is unlimited: a request whose path is spelled so that it escapes its class has no \
                                  limit at all; write a limit that you mean";
                    self.warn(&of_entry, wanted);
                }
                for (index, limit) in entry.limits().enumerate() {
                    let of_limit = match self.node_at(&of_entry).map(|node| &node.value) {
                        Some(Value::List(_)) => of_entry.then(Segment::Index(index)),
                        _ => of_entry.clone(),
                    };
                    self.burst(limit, &of_limit);
                    if smallest.as_ref().is_none_or(|(other, _)| limit.burst() < other.burst()) {
                        smallest = Some((limit, of_limit));
                    }
                }
            }
        }
        if let (Some((limit, path)), Some(proxies), Mode::Lease(_)) = (smallest, proxies, rule.mode) {
            self.lease(limit, proxies, rule, &path);
        }
    }

    fn burst(&mut self, limit: Limit, path: &Path) {
        let (requests, burst, per) = (limit.requests(), limit.burst(), period(limit));
        if burst > requests {
            let all = burst.saturating_add(requests);
            let message = format!(
                "is more than requests ({requests}): {all} can pass in the first {per}, a full bucket and what comes \
                 back; if that is not meant, write burst: {requests} or less"
            );
            self.warn(&path.word("burst"), message);
        }
    }

    /// Calls per request cannot be fewer than proxies / burst, and are about 2.6 times that at best.
    fn lease(&mut self, limit: Limit, proxies: u64, rule: &Rule, path: &Path) {
        let wanted = proxies.saturating_mul(260);
        if limit.burst() < wanted {
            let message = format!(
                "has a burst of {}, the smallest of rule {}, for {proxies} proxies: leases save less there, for one \
                 call in a hundred requests takes a burst of about {wanted}, and a burst below 64 is lent only while \
                 it is scarce; the limit holds all the same",
                limit.burst(),
                rule.name
            );
            self.note_as(Severity::Note, path, message);
        }
    }

    fn tiers(&mut self, rule: &Rule, path: &Path) {
        if !rule.tier_sources.is_empty() {
            return;
        }
        for (index, tier) in rule.tiers.iter().enumerate().filter(|(_, tier)| !tier.name.is_empty()) {
            let mut used = rule.tenants.values().copied().chain(rule.networks.tiers());
            let is_used = index == rule.default_tier || used.any(|used| used == index);
            if !is_used {
                let at = self.tier_path(path, tier);
                let wanted = "is a tier that nobody can be in: it is not the default, tier.tenants names nobody for it, \
                              and tier has no sources; add one of them, or leave it out";
                self.warn(&at, wanted);
            }
        }
    }

    /// Entries of tenants that change nothing.
    fn tenants(&mut self, rule: &Rule, path: &Path) {
        let (tenants, overrides) = (path.word("tier").word("tenants"), path.word("overrides"));
        let keys = |found: &Warnings, path: &Path| -> Vec<String> {
            let pairs = found.node_at(path).map(Node::pairs).unwrap_or_default();
            pairs.iter().map(|(key, _)| key.text.clone()).collect()
        };
        let (listed, overridden) = (keys(self, &tenants), keys(self, &overrides));
        for tenant in listed.iter().filter(|tenant| overridden.contains(tenant)) {
            let at = self.chosen(&tenants, tenant);
            self.warn(&at, "changes nothing: the tenant has an override, which wins; leave one of them out");
        }
        // What is the default elsewhere is an exception from a network.
        if !rule.tier_sources.is_empty() || !rule.networks.is_empty() {
            return;
        }
        let default = rule.tiers.get(rule.default_tier);
        for tenant in listed.iter().filter(|tenant| !overridden.contains(tenant)) {
            let at = self.chosen(&tenants, tenant);
            let tier = self.node_at(&at).and_then(Node::text);
            if tier.is_some() && tier == default.map(|tier| tier.name.as_str()) {
                self.warn(&at, "changes nothing: it is the default tier; leave it out");
            }
        }
        let named = rule.tiers.iter().filter(|tier| !tier.name.is_empty()).count();
        for (position, tenant) in overridden.iter().enumerate().filter(|(_, tenant)| !listed.contains(tenant)) {
            let own = rule.tiers.get(named.saturating_add(position));
            if let (Some(own), Some(default)) = (own, default)
                && is_same(own, default)
            {
                let at = self.nth(&overrides, position);
                self.warn(&at, format!("changes nothing: {tenant} has these limits by the default tier; leave it out"));
            }
        }
    }

    fn nth(&self, path: &Path, position: usize) -> Path {
        let key = self.node_at(path).and_then(|node| node.pairs().get(position));
        path.then(Segment::Chosen(key.map(|(key, _)| key.text.clone()).unwrap_or_default(), position))
    }

    /// Addresses that clients can make up with this connection manager.
    fn addresses(&mut self, rule: &Rule, manager: &Manager, path: &Path) {
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
                Origin::ClientIp(weir::policy::AddressFrom::Host, _) => true,
                Origin::ClientIp(weir::policy::AddressFrom::Forwarded(_), _) => {
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
    fn tokens(&mut self, rule: &Rule, policy: &Policy, host: &Host, path: &Path) {
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

    fn cluster(&mut self, policy: &Policy, host: &Host, clusters: &Clusters) {
        let cluster = &policy.limiters.first().cluster;
        if matches!(host, Host::Envoy(_)) && clusters.lack(cluster) {
            let path = self.nth(&Path::default().word("limiters"), 0).word("cluster");
            let message = format!(
                "{cluster:?} is no cluster of this configuration; define it under static_resources.clusters, or write \
                 the name of one that is there: {}",
                clusters.names.join(", ")
            );
            self.warn(&path, message);
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

/// Whether two tiers give the same to every class from the same kind of buckets.
fn is_same(one: &Tier, other: &Tier) -> bool {
    let entries = |tier: &Tier| -> Vec<Option<Entry>> {
        tier.by_class.iter().map(|entry| tier.entries.get(*entry).cloned()).collect()
    };
    entries(one) == entries(other)
}

/// A period as policies write it.
pub fn period(limit: Limit) -> String {
    weir::explain::words::duration(limit.period())
}
