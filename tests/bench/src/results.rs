//! What `results.json` holds: what was measured, a round at a time. Everything else is computed from it.

use serde::{Deserialize, Serialize};

use crate::load::{Load, Percentiles};

#[derive(Default, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    /// How many rounds, and how long each measurement was.
    pub rounds: usize,
    pub seconds: f64,
    pub proxy: Vec<Series>,
    pub latency: Vec<Latencies>,
    pub redis: InRedis,
    pub module: Module,
    pub core: Vec<Core>,
    #[serde(default)]
    pub instructions: Instructions,
}

/// Instructions of Envoy's worker for a request.
#[derive(Default, Serialize, Deserialize)]
pub struct Instructions {
    pub date: String,
    /// Names and versions.
    pub versions: Vec<(String, String)>,
    /// Of the module.
    pub bytes: u64,
    /// The first has no filter.
    pub variants: Vec<Counted>,
}

#[derive(Serialize, Deserialize)]
pub struct Counted {
    pub title: String,
    /// For one request.
    pub each: f64,
    /// At most so many more than without a filter.
    pub goal: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
pub struct Machine {
    pub date: String,
    pub processor: String,
    pub processors: usize,
    pub memory_gb: u64,
    /// Names and versions.
    pub versions: Vec<(String, String)>,
}

/// One variant under one load.
#[derive(Serialize, Deserialize)]
pub struct Series {
    pub variant: String,
    pub load: Load,
    pub samples: Vec<Sample>,
}

/// What a request cost in one round, in microseconds of processor time.
#[derive(Clone, Serialize, Deserialize)]
pub struct Sample {
    pub envoy_us: f64,
    pub limiter_us: f64,
    pub redis_us: f64,
    /// What it cost without any filter, right before and right after.
    pub none_us: f64,
    pub per_second: f64,
    pub requests: u64,
    /// Calls to the limiter.
    pub calls: u64,
    /// Requests that were let through because the limiter had failed.
    pub failed: u64,
}

impl Sample {
    pub fn total_us(&self) -> f64 {
        self.envoy_us + self.limiter_us + self.redis_us
    }

    /// What it cost more than without any filter, in parts of that.
    pub fn added(&self) -> f64 {
        self.total_us() / self.none_us - 1.0
    }
}

/// One variant at half of what it can do, beside no filter at the same rate.
#[derive(Serialize, Deserialize)]
pub struct Latencies {
    pub variant: String,
    pub samples: Vec<Latency>,
}

#[derive(Serialize, Deserialize)]
pub struct Latency {
    pub per_second: f64,
    pub none: Percentiles,
    pub with: Percentiles,
}

#[derive(Default, Serialize, Deserialize)]
pub struct InRedis {
    pub keys: u64,
    /// A key of one tenant with a lease; one that lends nothing; one of INCR and EXPIRE under the same name.
    pub bytes_lent: f64,
    pub bytes_exact: f64,
    pub bytes_bare: f64,
    pub acquires: Vec<Acquires>,
}

/// A command on one key, from 64 connections.
#[derive(Serialize, Deserialize)]
pub struct Acquires {
    pub name: String,
    pub samples: Vec<AcquireSample>,
}

#[derive(Serialize, Deserialize)]
pub struct AcquireSample {
    pub per_second: f64,
    pub redis_us: f64,
    pub webdis_us: f64,
}

#[derive(Default, Serialize, Deserialize)]
pub struct Module {
    pub bytes: u64,
    pub empty_bytes: u64,
    /// Limits in the large policy.
    pub limits: usize,
    pub configure: Vec<Configure>,
    /// Milliseconds from the start of Envoy until its listeners serve, by variant.
    pub ready_ms: Vec<(String, Vec<f64>)>,
    pub memory: Vec<Memory>,
    pub tenants: Vec<Tenants>,
}

/// A new policy in a running Envoy with one worker: the small one, and the large one in the same round.
#[derive(Serialize, Deserialize)]
pub struct Configure {
    pub small_ms: f64,
    pub large_ms: f64,
    /// Processor time of all of Envoy.
    pub small_cpu_ms: f64,
    pub large_cpu_ms: f64,
}

/// Anonymous memory of an Envoy that has served some requests.
#[derive(Serialize, Deserialize)]
pub struct Memory {
    pub variant: String,
    pub workers: u32,
    pub kb: u64,
}

/// The same Envoy after so many tenants.
#[derive(Serialize, Deserialize)]
pub struct Tenants {
    pub count: u64,
    pub kb: u64,
}

/// Nanoseconds by Criterion: the median and its interval of 95 %.
#[derive(Serialize, Deserialize)]
pub struct Core {
    pub name: String,
    pub ns: f64,
    pub low_ns: f64,
    pub high_ns: f64,
}
