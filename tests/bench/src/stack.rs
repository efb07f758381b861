//! Everything that runs: the limiters with their own Redis each, and an Envoy for each variant.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weir_stack::{Client, Envoy, EnvoyOptions, Listeners, Redis, RedisOptions, Scratch, Webdis, WebdisOptions};

use crate::cpu;
use crate::load::{self, Load};
use crate::results::Sample;
use crate::variants::{Counters, Filter, Limit, Variant, rls_cluster};
use crate::{Result, upstream};

/// What was built before: the modules and the rate limit service.
pub struct Built {
    pub module: PathBuf,
    pub empty_module: PathBuf,
    pub rls: PathBuf,
}

/// The limiters, and what all Envoys need.
pub struct Stack {
    pub built: Built,
    upstream_port: u16,
    in_memory: Rls,
    in_redis: Rls,
    webdis: Webdis,
    redis: Redis,
    limitadors_redis: Redis,
    tenants: PathBuf,
    log: PathBuf,
    pub scratch: Scratch,
}

/// The Envoy of one variant.
pub struct Running<'v> {
    pub variant: &'v Variant,
    pub envoy: Envoy,
}

impl Stack {
    pub fn start(built: Built) -> Result<Stack> {
        let scratch = Scratch::new()?;
        let (tenants, log) = (scratch.path().join("tenants"), scratch.path().join("h2load.log"));
        load::write_tenants(&tenants)?;
        let redis = Redis::start(&scratch, RedisOptions::default())?;
        let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default())?;
        let limitadors_redis = Redis::start(&scratch, RedisOptions::default())?;
        // limitador needs commands and keys that weir's user must not have.
        redis::cmd("ACL")
            .arg(&["SETUSER", "limitador", "on", ">limitador", "~*", "+@all"])
            .exec(&mut limitadors_redis.operator()?)?;
        let url = format!("redis://limitador:limitador@127.0.0.1:{}", limitadors_redis.port());
        let (in_memory, in_redis) = (Rls::start(&built.rls, "memory")?, Rls::start(&built.rls, &url)?);
        let upstream_port = upstream::start()?;
        Ok(Stack { built, upstream_port, in_memory, in_redis, webdis, redis, limitadors_redis, tenants, log, scratch })
    }

    /// The Envoy of a variant, with one worker.
    pub fn proxy<'v>(&self, variant: &'v Variant, limit: Limit) -> Result<Running<'v>> {
        Ok(Running { variant, envoy: self.envoy(variant.filter, limit, 1)? })
    }

    /// An Envoy with the filter of a variant.
    pub fn envoy(&self, filter: Filter, limit: Limit, workers: u32) -> Result<Envoy> {
        self.listening(&filter.listeners(limit, &self.built.empty_module.display().to_string())?, filter, workers)
    }

    /// An Envoy with these listeners, and the limiter of this filter.
    pub fn listening(&self, listeners: &str, filter: Filter, workers: u32) -> Result<Envoy> {
        let clusters = match filter {
            Filter::NativeGlobal(counters) => vec![rls_cluster(self.rls(counters).port)],
            _ => vec![],
        };
        let base = EnvoyOptions::new(&self.built.module, "", self.upstream_port, self.webdis.port());
        let listeners = Listeners::File(listeners);
        let options = EnvoyOptions { listeners, concurrency: workers, more_clusters: &clusters, ..base };
        Ok(Envoy::start(&self.scratch, options)?)
    }

    fn rls(&self, counters: Counters) -> &Rls {
        match counters {
            Counters::Memory => &self.in_memory,
            Counters::Redis => &self.in_redis,
        }
    }

    /// Fails unless the filter lets 10 of 12 requests pass where the limit is 10, and all where it limits nothing.
    pub fn check(&self, variant: &Variant) -> Result<()> {
        let running = self.proxy(variant, Limit::Ten)?;
        let mut client = Client::new(running.envoy.port());
        let path = format!("/t/check-{}", variant.name);
        let mut statuses = Vec::new();
        for _ in 0..12 {
            statuses.push(client.get(&path, &[])?.status);
        }
        let refused = if matches!(variant.filter, Filter::None | Filter::Empty) { 200 } else { 429 };
        let wanted: Vec<u16> = [200; 10].into_iter().chain([refused; 2]).collect();
        if statuses != wanted {
            return Err(format!("{}: a limit of 10 gave {statuses:?}", variant.title).into());
        }
        Ok(())
    }

    /// Sends so many requests as fast as they are answered, and tells what one cost.
    pub fn sample(&self, running: &Running<'_>, load: Load, requests: u64) -> Result<Sample> {
        let before = self.spent(running)?;
        let (asked, degraded_before) = (self.asked(running), degraded(&running.envoy));
        let outcome = load::send(load, running.envoy.port(), requests, &self.tenants)?;
        let after = self.spent(running)?;
        let calls = self.asked(running) - asked;
        let failed = match running.variant.filter {
            Filter::None | Filter::Empty => 0,
            Filter::NativeLocal | Filter::NativeGlobal(_) => requests.abs_diff(calls),
            Filter::Weir { .. } => degraded(&running.envoy) - degraded_before,
        };
        self.assert_limited(running, requests, failed)?;
        let each = |part: usize| round((after[part] - before[part]) as f64 / requests as f64 / 1000.0);
        let per_second = outcome.per_second.round();
        Ok(Sample {
            envoy_us: each(0),
            limiter_us: each(1),
            redis_us: each(2),
            none_us: 0.0,
            per_second,
            requests,
            calls,
            failed,
        })
    }

    /// Microseconds until an answer, at a steady rate.
    pub fn latency(&self, running: &Running<'_>, per_second: f64, seconds: f64) -> Result<load::Percentiles> {
        load::send_at(running.envoy.port(), per_second, seconds, &self.log)
    }

    /// Nanoseconds of the proxy, its limiter, and the Redis behind that.
    fn spent(&self, running: &Running<'_>) -> Result<[u64; 3]> {
        let proxy = cpu::nanoseconds(running.envoy.id())?;
        let (limiter, redis) = match running.variant.filter {
            Filter::None | Filter::Empty | Filter::NativeLocal => (0, 0),
            Filter::Weir { .. } => (cpu::nanoseconds(self.webdis.id())?, cpu::nanoseconds(self.redis.id())?),
            Filter::NativeGlobal(Counters::Memory) => (cpu::nanoseconds(self.in_memory.process.id())?, 0),
            Filter::NativeGlobal(Counters::Redis) => {
                (cpu::nanoseconds(self.in_redis.process.id())?, cpu::nanoseconds(self.limitadors_redis.id())?)
            }
        };
        Ok([proxy, limiter, redis])
    }

    /// How often a limiter has been asked; for a filter that asks none, how often it has let pass, where it says so.
    fn asked(&self, running: &Running<'_>) -> u64 {
        let name = match running.variant.filter {
            Filter::None | Filter::Empty => return 0,
            Filter::NativeLocal => "bench.http_local_rate_limit.ok",
            Filter::Weir { .. } => return calls(&running.envoy),
            Filter::NativeGlobal(_) => "cluster.upstream.ratelimit.ok",
        };
        running.envoy.stat(name).unwrap_or_default()
    }

    /// Fails where a filter has not done its work: a thousandth may have gone through by a failure of its limiter.
    fn assert_limited(&self, running: &Running<'_>, requests: u64, failed: u64) -> Result<()> {
        let envoy = &running.envoy;
        let asked = match running.variant.filter {
            Filter::None | Filter::Empty | Filter::NativeLocal | Filter::NativeGlobal(_) => true,
            Filter::Weir { mode, headers } => {
                let answer = Client::new(envoy.port()).get("/t/acme", &[])?;
                let told = headers == "[]" || answer.header("x-ratelimit-limit") == Some("1000000");
                // A lease or an interval may last for longer than a sample.
                told && (self.asked(running) > 0) == (mode != "local")
            }
        };
        if !asked || failed > requests / 1000 || !envoy.errors().is_empty() {
            let (title, errors) = (running.variant.title, envoy.errors());
            return Err(format!("{title}: of {requests} requests {failed} were not limited; {errors:?}").into());
        }
        Ok(())
    }
}

/// Calls of weir's limiter that have ended, however they did.
pub fn calls(envoy: &Envoy) -> u64 {
    envoy.stats("wasmcustom.weir.rl.limiter_calls.").values().sum()
}

/// How many requests `on_error` has decided.
pub fn degraded(envoy: &Envoy) -> u64 {
    envoy.stats("wasmcustom.weir.rl.degraded_decisions.").values().sum()
}

/// A figure as it is worth to be kept.
pub fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A rate limit service. It ends with its standard input, so also when the bench is killed.
struct Rls {
    process: Child,
    port: u16,
}

impl Rls {
    fn start(program: &Path, storage: &str) -> Result<Rls> {
        let mut process = Command::new(program).arg(storage).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("a pipe that was asked for")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|e| format!("rls {storage}: {line:?} is no port: {e}"))?;
        Ok(Rls { process, port })
    }
}

impl Drop for Rls {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
