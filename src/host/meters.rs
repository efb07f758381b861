//! The host's counters, gauges and histograms of one plan.
//!
//! A name is `weir.<namespace>.<metric>` and then what is counted by, part by part, which envoy/bootstrap.yaml makes
//! labels of (`stats_tags`). One that has parts is defined when it is counted first: hosts never forget a metric, and most combinations of
//! rule, class, tier and outcome never occur. Tenants are no part of any.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use crate::clock::Ms;
use crate::engine::plan::Plan;
use crate::engine::{CallEnd, Event};
use crate::policy::{LimiterId, Policy};
use crate::telemetry::Record;

/// So long after the last request that `on_error` has decided a worker is no longer degraded.
const DEGRADED_FOR: Ms = Ms(2000);

/// The filter's own time is taken of one request in so many: a look at the clock costs something, too.
const SAMPLED: u32 = 32;

/// The metrics of one plan in one worker.
pub(super) struct Meters {
    /// `weir.<namespace>.`
    prefix: String,
    limiters: Vec<Limited>,
    /// By what they count, in order: the metric, and its parts as numbers.
    defined: RefCell<Vec<(Counted, Option<u32>)>>,
    degraded: Flag,
    degraded_at: Cell<Option<Ms>>,
    requests: Cell<u32>,
}

/// What is told of one limiter, in the order of the policy.
struct Limited {
    name: String,
    breaker: Flag,
}

type Counted = [u32; 5];

/// A gauge that is 0 or 1. It is the whole proxy's, and outlives the plan and the worker that have written it.
struct Flag {
    id: Option<u32>,
    told: Cell<Option<bool>>,
}

// Which metric, as the first number of `Counted`.
const DECISIONS: u32 = 0;
const DEGRADED: u32 = 1;
const CALLS: u32 = 2;
const LEASES: u32 = 3;
const CALL_TIME: u32 = 4;
const OWN_TIME: u32 = 5;
const WAIT: u32 = 6;
const EVICTIONS: u32 = 7;
const CONFLICTS: u32 = 8;

impl Meters {
    /// Defines what there is in any case, and tells which policy is in force.
    pub fn define(policy: &Policy) -> Meters {
        let prefix = ["weir.", &policy.namespace, "."].concat();
        let gauge = |parts: &[&str]| define(MetricType::Gauge, &prefix, parts);
        let limiters = policy.limiters.iter().map(|(_, limiter)| Limited {
            name: limiter.name.clone(),
            breaker: Flag::new(gauge(&["breaker_open", &limiter.name])),
        });
        let meters = Meters {
            limiters: limiters.collect(),
            degraded: Flag::new(gauge(&["degraded"])),
            defined: RefCell::default(),
            degraded_at: Cell::new(None),
            requests: Cell::new(0),
            prefix: prefix.clone(),
        };
        record(gauge(&["policy"]), policy.fingerprint.into());
        meters
    }

    /// What became of a request.
    pub fn decided(&self, policy: &Policy, told: &Record, now: Option<Ms>) {
        for mark in &told.marks {
            let scope = mark.scope;
            let parts = [number(scope.rule), number(scope.class.map(|class| class.0)), number(scope.tier)];
            let [rule, class, tier] = parts;
            let id = self.id(MetricType::Counter, [DECISIONS, rule, class, tier, mark.effect as u32], &|| {
                let [rule, class, tier] = scope.names(policy);
                vec!["decisions", rule, class, tier, mark.effect.name()]
            });
            increment(id, 1);
            if let Some(failure) = mark.degraded {
                let id = self.id(MetricType::Counter, [DEGRADED, rule, failure as u32, 0, 0], &|| {
                    let [rule, ..] = scope.names(policy);
                    vec!["degraded_decisions", rule, failure.name()]
                });
                increment(id, 1);
            }
        }
        if told.marks.iter().any(|mark| mark.degraded.is_some()) {
            if self.degraded_at.get().is_none() {
                self.degraded.tell(true);
            }
            self.degraded_at.set(now.or(self.degraded_at.get()));
        }
    }

    /// What has happened between this proxy and its limiter.
    pub fn happened(&self, policy: &Policy, event: Event) {
        match event {
            Event::CallEnded(limiter, end) => {
                let which = match end {
                    CallEnd::Ok => 0,
                    CallEnd::NoScript => 1,
                    CallEnd::Failed(failure) => (failure as u32).saturating_add(2),
                };
                let id = self.id(MetricType::Counter, [CALLS, which, number(Some(limiter.0)), 0, 0], &|| {
                    vec!["limiter_calls", self.name(limiter), end.name()]
                });
                increment(id, 1);
            }
            Event::Lent(rule, tokens) => {
                let id = self.id(MetricType::Histogram, [LEASES, number(Some(rule)), 0, 0, 0], &|| {
                    vec!["lease_tokens", policy.rules.get(rule).map_or("", |rule| &rule.name)]
                });
                record(id, tokens);
            }
        }
    }

    /// A call to a limiter has ended after so long.
    pub fn call_took(&self, limiter: LimiterId, took: Duration) {
        let of = number(Some(limiter.0));
        self.took([CALL_TIME, of, 0, 0, 0], &["limiter_call_microseconds", self.name(limiter)], took);
    }

    /// A paused request has waited so long.
    pub fn waited(&self, took: Duration) {
        self.took([WAIT, 0, 0, 0, 0], &["wait_microseconds"], took);
    }

    /// The filter has looked at a request for so long.
    pub fn own(&self, took: Duration) {
        self.took([OWN_TIME, 0, 0, 0, 0], &["filter_microseconds"], took);
    }

    fn took(&self, counted: Counted, name: &[&str], took: Duration) {
        let id = self.id(MetricType::Histogram, counted, &|| name.to_vec());
        record(id, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Whether this request is one of those whose time is taken.
    pub fn is_sampled(&self) -> bool {
        let requests = self.requests.get().wrapping_add(1);
        self.requests.set(requests);
        requests.is_multiple_of(SAMPLED)
    }

    /// Brings the gauges up to date, and what is counted elsewhere; `conflicts` are those of shared data since the last
    /// tick of any plan.
    pub fn tick(&self, plan: &Plan, conflicts: u64, now: Ms) {
        for (at, limiter) in self.limiters.iter().enumerate() {
            limiter.breaker.tell(plan.is_open(LimiterId(at)));
        }
        if self.degraded_at.get().is_some_and(|at| now - at > DEGRADED_FOR) {
            self.degraded_at.set(None);
        }
        self.degraded.tell(self.degraded_at.get().is_some());
        for (which, name, count) in
            [(EVICTIONS, "table_evictions", plan.take_evictions()), (CONFLICTS, "shared_data_conflicts", conflicts)]
        {
            if count > 0 {
                let id = self.id(MetricType::Counter, [which, 0, 0, 0, 0], &|| vec![name]);
                increment(id, i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    fn name(&self, limiter: LimiterId) -> &str {
        self.limiters.get(limiter.0).map_or("", |limiter| &limiter.name)
    }

    /// The host's number of a metric.
    fn id<'n>(&'n self, kind: MetricType, counted: Counted, name: &dyn Fn() -> Vec<&'n str>) -> Option<u32> {
        let mut defined = self.defined.borrow_mut();
        match defined.binary_search_by_key(&counted, |(known, _)| *known) {
            Ok(at) => defined.get(at).and_then(|(_, id)| *id),
            Err(at) => {
                let id = define(kind, &self.prefix, &name());
                defined.insert(at, (counted, id));
                id
            }
        }
    }
}

impl Flag {
    fn new(id: Option<u32>) -> Flag {
        Flag { id, told: Cell::new(None) }
    }

    /// Says so where it is news, after another plan or worker perhaps; and a yes again each time, after another's no.
    fn tell(&self, is: bool) {
        if self.told.replace(Some(is)) != Some(is) || is {
            record(self.id, is.into());
        }
    }
}

/// An index as a number that differs from that of none.
fn number(index: Option<usize>) -> u32 {
    index.map_or(0, |index| u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1))
}

fn define(kind: MetricType, prefix: &str, parts: &[&str]) -> Option<u32> {
    hostcalls::define_metric(kind, &[prefix, &parts.join(".")].concat()).ok()
}

fn increment(id: Option<u32>, by: i64) {
    if let Some(id) = id {
        // The id comes from the host itself.
        let _ = hostcalls::increment_metric(id, by);
    }
}

fn record(id: Option<u32>, value: u64) {
    if let Some(id) = id {
        let _ = hostcalls::record_metric(id, value);
    }
}
