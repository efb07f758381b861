//! What is counted, as Prometheus reads it. Nothing here tells of a tenant or a key.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir::limiter::Failure;

/// Upper bounds of the times at Redis, in microseconds.
const BOUNDS: [u64; 11] = [200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

/// Statuses of calls.
const STATUSES: [u16; 9] = [200, 400, 401, 404, 405, 408, 413, 500, 503];

#[derive(Default)]
pub struct Metrics {
    calls: [AtomicU64; STATUSES.len()],
    parts: AtomicU64,
    failures: [AtomicU64; Failure::TOLD.len()],
    redis: [AtomicU64; BOUNDS.len()],
    redis_slower: AtomicU64,
    redis_micros: AtomicU64,
    connects: AtomicU64,
    losses: AtomicU64,
    connections: AtomicU64,
}

impl Metrics {
    /// A call was answered.
    pub fn answered(&self, status: u16) {
        if let Some(count) = STATUSES.iter().position(|known| *known == status).and_then(|at| self.calls.get(at)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// A part of one was.
    pub fn part(&self, failure: Option<Failure>) {
        self.parts.fetch_add(1, Relaxed);
        if let Some(failure) = failure {
            self.failed(failure);
        }
    }

    /// A part has failed, or all of a call at once.
    pub fn failed(&self, failure: Failure) {
        let at = Failure::TOLD.iter().position(|known| *known == failure);
        if let Some(count) = at.and_then(|at| self.failures.get(at)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Redis answered after so long.
    pub fn redis_took(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.redis_micros.fetch_add(micros, Relaxed);
        let at = BOUNDS.iter().position(|bound| micros <= *bound);
        at.and_then(|at| self.redis.get(at)).unwrap_or(&self.redis_slower).fetch_add(1, Relaxed);
    }

    /// A connection to Redis was made.
    pub fn connected(&self) {
        self.connects.fetch_add(1, Relaxed);
    }

    /// One broke.
    pub fn lost(&self) {
        self.losses.fetch_add(1, Relaxed);
    }

    /// A caller has come.
    pub fn came(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// A caller has gone.
    pub fn went(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// All of it. `waiting` parts wait for Redis now, with `bytes` of calls.
    pub fn text(&self, waiting: usize, bytes: usize, ready: bool) -> String {
        let mut text = String::new();
        let of = |count: &AtomicU64| count.load(Relaxed);
        let mut one = |name: &str, kind: &str, help: &str, lines: &[(String, u64)]| {
            let _ = writeln!(text, "# HELP weir_bridge_{name} {help}\n# TYPE weir_bridge_{name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(text, "weir_bridge_{name}{labels} {value}");
            }
        };
        let plain = |value: u64| [(String::new(), value)];
        let calls: Vec<_> = STATUSES
            .iter()
            .zip(&self.calls)
            .map(|(status, count)| (format!("{{status=\"{status}\"}}"), of(count)))
            .collect();
        one("calls_total", "counter", "Calls by the status that they were answered with.", &calls);
        one("parts_total", "counter", "Parts of calls that were answered.", &plain(of(&self.parts)));
        let failures = Failure::TOLD.iter().zip(&self.failures);
        let failures: Vec<_> =
            failures.map(|(failure, count)| (format!("{{reason=\"{}\"}}", failure.name()), of(count))).collect();
        one("failures_total", "counter", "Failures by reason: of a part, or of a whole call.", &failures);
        one("redis_connects_total", "counter", "Connections to Redis that were made.", &plain(of(&self.connects)));
        one("redis_losses_total", "counter", "Connections to Redis that broke.", &plain(of(&self.losses)));
        one("connections", "gauge", "Connections of callers.", &plain(of(&self.connections)));
        let gauge = |value: usize| plain(u64::try_from(value).unwrap_or(u64::MAX));
        one("waiting_parts", "gauge", "Parts that wait for Redis.", &gauge(waiting));
        one("waiting_bytes", "gauge", "Bytes of calls that are read or wait.", &gauge(bytes));
        one("ready", "gauge", "1 where /readyz answers with 200.", &plain(ready.into()));
        self.times(&mut text);
        text
    }

    /// The histogram of the times at Redis.
    fn times(&self, text: &mut String) {
        let name = "weir_bridge_redis_seconds";
        let _ = writeln!(text, "# HELP {name} How long Redis took to answer a command.\n# TYPE {name} histogram");
        let mut all = 0_u64;
        for (bound, count) in BOUNDS.iter().zip(&self.redis) {
            all = all.saturating_add(count.load(Relaxed));
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {all}", Duration::from_micros(*bound).as_secs_f64());
        }
        all = all.saturating_add(self.redis_slower.load(Relaxed));
        let sum = Duration::from_micros(self.redis_micros.load(Relaxed)).as_secs_f64();
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {all}\n{name}_sum {sum}\n{name}_count {all}");
    }
}
