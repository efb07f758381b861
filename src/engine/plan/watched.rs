//! Who comes most, and who is refused most: what a proxy tells of tenants.

use super::Plan;
use crate::clock::Ms;
use crate::local::top::{self, Kind};
use crate::telemetry::{Effect, Record};

impl Plan {
    /// Counts whose requests were decided, where the policy has a path to tell it at.
    pub fn watch(&self, record: &Record) {
        if self.policy.observe.as_ref().is_none_or(|observe| observe.top_path.is_none()) {
            return;
        }
        let mut top = self.top.borrow_mut();
        for mark in &record.marks {
            if let (Some(rule), Some(bucket)) = (mark.scope.rule, &mark.bucket) {
                let tenant = bucket.tenant.as_str();
                top.add(rule, Kind::Busiest, tenant);
                if mark.effect == Effect::Limited {
                    top.add(rule, Kind::Refused, tenant);
                }
            }
        }
    }

    /// Lets the other workers have what was counted, now and then.
    pub fn merge_top(&self, now: Ms) {
        self.top.borrow_mut().merge(self.store.as_ref(), now, &|rule, kind| self.top_name(rule, kind));
    }

    /// Who has come most, and who was refused most, at each rule of this proxy in the last minutes, as JSON:
    /// `{"rules":[{"rule":NAME,"refused":LIST,"busiest":LIST}]}`, a list being
    /// `{"milliseconds":N,"tenants":[{"tenant":"label.value","count":N,"error":N}]}`: so many requests in so much time,
    /// of which at most `error` were others'.
    pub fn top(&self, now: Ms) -> String {
        let mut text = String::from("{\"rules\":[");
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let of = |kind| top::recent(self.store.as_ref(), &self.top_name(index, kind), now);
            let [refused, busiest] = [of(Kind::Refused), of(Kind::Busiest)];
            let between = if index == 0 { "" } else { "," };
            // Names and tenants hold nothing that JSON would have escaped.
            text.extend([between, "{\"rule\":\"", &rule.name, "\""]);
            for (name, recent) in [("refused", refused), ("busiest", busiest)] {
                text.extend([",\"", name, "\":{\"milliseconds\":", &recent.seen.0.to_string(), ",\"tenants\":["]);
                for (number, counter) in recent.sketch.counters().iter().enumerate() {
                    text.push_str(if number == 0 { "{\"tenant\":\"" } else { ",{\"tenant\":\"" });
                    let (count, error) = (counter.count.to_string(), counter.error.to_string());
                    text.extend([&counter.tenant, "\",\"count\":", &count, ",\"error\":", &error, "}"]);
                }
                text.push_str("]}");
            }
            text.push('}');
        }
        text.push_str("]}");
        text
    }

    fn top_name(&self, rule: usize, kind: Kind) -> String {
        let rule = self.policy.rules.get(rule).map_or("", |rule| &rule.name);
        let kind = match kind {
            Kind::Refused => "refused",
            Kind::Busiest => "busiest",
        };
        [&self.prefix, ".top.", rule, ".", kind].concat()
    }
}
