//! Limits and classes that hardly mean what they say.

use weir::policy::{AlgorithmName, Allowance, ClassMatch, Limit, Mode, Path, Policy, Rule, Segment};

use super::Warnings;
use crate::cover::covers;
use crate::document::Value;
use crate::report::Severity;

impl Warnings<'_> {
    pub(super) fn hidden_classes(&mut self, policy: &Policy) {
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

    pub(super) fn limits(&mut self, rule: &Rule, proxies: Option<u64>, path: &Path) {
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
            let has = match limit.algorithm() {
                AlgorithmName::TokenBucket => format!("a burst of {}", limit.burst()),
                AlgorithmName::FixedWindow => format!("{} requests in a window", limit.requests()),
            };
            let message = format!(
                "has {has}, the smallest of rule {}, for {proxies} proxies: leases save less there, for one \
                 call in a hundred requests takes a burst of about {wanted}, and a burst below 64 is lent only while \
                 it is scarce; the limit holds all the same",
                rule.name
            );
            self.note_as(Severity::Note, path, message);
        }
    }
}

/// A period as policies write it.
fn period(limit: Limit) -> String {
    weir::explain::words::duration(limit.period())
}
