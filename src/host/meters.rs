//! The host's counters of one plan.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::limiter::Failure;
use crate::policy::Policy;

/// Metric ids, defined when a policy comes into force.
pub(super) struct Meters {
    calls: Option<u32>,
    degraded: Vec<(Failure, Option<u32>)>,
    /// By the index of the rule.
    shadow: Vec<Option<u32>>,
}

impl Meters {
    /// `<namespace>.limiter.<limiter>.calls`, `<namespace>.degraded.<reason>` and `<namespace>.shadow.<rule>`.
    pub fn define(policy: &Policy) -> Meters {
        let counter = |name: String| hostcalls::define_metric(MetricType::Counter, &name).ok();
        let namespace = &policy.namespace;
        Meters {
            calls: counter(format!("{namespace}.limiter.{}.calls", policy.limiter.name)),
            degraded: Failure::ALL
                .into_iter()
                .map(|failure| (failure, counter(format!("{namespace}.degraded.{}", failure.name()))))
                .collect(),
            shadow: policy
                .rules
                .iter()
                .map(|rule| rule.shadow.then(|| counter(format!("{namespace}.shadow.{}", rule.name))).flatten())
                .collect(),
        }
    }

    /// A call to the limiter has begun.
    pub fn call(&self) {
        increment(self.calls);
    }

    /// `on_error` has decided a request.
    pub fn degraded(&self, reason: Failure) {
        let id = self.degraded.iter().find(|(failure, _)| *failure == reason).and_then(|(_, id)| *id);
        increment(id);
    }

    /// A shadow rule would have refused a request.
    pub fn shadow(&self, rule: usize) {
        increment(self.shadow.get(rule).copied().flatten());
    }
}

fn increment(id: Option<u32>) {
    if let Some(id) = id {
        // The id comes from the host itself.
        let _ = hostcalls::increment_metric(id, 1);
    }
}
