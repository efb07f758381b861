//! The load tool: h2load.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir::random::SplitMix64;

use crate::Result;
use crate::stats::percentile;

/// Who asks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// 64 connections of HTTP/1.1, all for one tenant.
    Hot,
    /// 64 streams of one HTTP/2 connection, for [`TENANTS`] tenants by Zipf's law.
    Many,
}

/// How many tenants there are in [`Load::Many`].
pub const TENANTS: u32 = 10_000;

/// How long the file of their requests is before it starts again.
const LINES: u32 = 100_000;

/// Requests at once.
pub const AT_ONCE: u32 = 64;

/// What came of so many requests. All of them were answered with 200.
pub struct Outcome {
    pub per_second: f64,
}

/// The requests of [`Load::Many`], for h2load, which takes only their paths: each tenant's share is one over its number.
pub fn write_tenants(file: &Path) -> Result<()> {
    let mut shares: Vec<f64> = (1..=TENANTS).map(|number| 1.0 / f64::from(number)).collect();
    let sum: f64 = shares.iter().sum();
    let mut reached = 0.0;
    for share in &mut shares {
        reached += *share / sum;
        *share = reached;
    }
    let mut text = String::new();
    let mut random = SplitMix64::new(1);
    for _ in 0..LINES {
        let at = random.next_u64() as f64 / u64::MAX as f64;
        let tenant = shares.partition_point(|share| *share < at);
        writeln!(text, "http://127.0.0.1/t/{tenant}")?;
    }
    Ok(std::fs::write(file, text)?)
}

/// One request each of so many tenants that have never come before.
pub fn write_new_tenants(file: &Path, from: u64, count: u64) -> Result<()> {
    let mut text = String::new();
    for tenant in from..from + count {
        writeln!(text, "http://127.0.0.1/t/new-{tenant}")?;
    }
    Ok(std::fs::write(file, text)?)
}

/// The numbers below `count` in an order that follows from the round.
pub fn shuffled(count: usize, round: usize) -> Vec<usize> {
    let mut random = SplitMix64::new(round as u64);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

/// Sends so many requests as fast as they are answered.
pub fn send(load: Load, port: u16, requests: u64, tenants: &Path) -> Result<Outcome> {
    match load {
        Load::Hot => run(requests, &["--h1", "-c", &AT_ONCE.to_string(), &format!("http://127.0.0.1:{port}/t/acme")]),
        Load::Many => send_file(port, requests, tenants),
    }
}

/// Sends the requests of a file, each once where there are as many of them.
pub fn send_file(port: u16, requests: u64, file: &Path) -> Result<Outcome> {
    let (base, file) = (format!("http://127.0.0.1:{port}"), file.display().to_string());
    run(requests, &["-c", "1", "-m", &AT_ONCE.to_string(), "-B", &base, "-i", &file])
}

/// POSTs one body, over as many connections of HTTP/1.1.
pub fn post(port: u16, requests: u64, body: &Path) -> Result<Outcome> {
    let (url, body) = (format!("http://127.0.0.1:{port}/"), body.display().to_string());
    run(requests, &["--h1", "-c", &AT_ONCE.to_string(), "-d", &body, &url])
}

fn run(requests: u64, arguments: &[&str]) -> Result<Outcome> {
    let started = Instant::now();
    let output = Command::new("h2load").args(["-n", &requests.to_string()]).args(arguments).output()?;
    let elapsed = started.elapsed();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_all_passed(&text, requests)?;
    let rate =
        text.lines().find_map(|line| line.strip_prefix("finished in ")?.split(", ").nth(1)?.strip_suffix(" req/s"));
    let per_second = rate.map_or(requests as f64 / elapsed.as_secs_f64(), |rate| rate.parse().unwrap_or_default());
    Ok(Outcome { per_second })
}

fn assert_all_passed(text: &str, requests: u64) -> Result<()> {
    let codes = format!("status codes: {requests} 2xx, 0 3xx, 0 4xx, 0 5xx");
    let done = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
    if text.contains(&codes) && text.contains(&done) {
        return Ok(());
    }
    let told: Vec<&str> =
        text.lines().filter(|line| line.starts_with("status codes") || line.starts_with("requests")).collect();
    Err(format!("h2load: {told:?}; wanted {requests} answers with 200").into())
}

/// Microseconds until an answer was complete.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Requests of one tenant at a steady rate, spread evenly over connections that h2load opens one after the other.
pub fn send_at(port: u16, per_second: f64, seconds: f64, log: &Path) -> Result<Percentiles> {
    // h2load looks at its clock each 10 ms: a connection with less than one request in that time sends them one by one.
    let connections = (per_second / 50.0).ceil().max(1.0);
    let each = per_second / connections;
    let ramp = Duration::from_millis(OPENED_EACH_MS).as_secs_f64() * connections;
    let requests = ((seconds + ramp) * each).ceil() * connections;
    let _ = std::fs::remove_file(log);
    let output = Command::new("h2load")
        .args(["--h1", "-n", &requests.to_string(), "-c", &connections.to_string(), "--rps", &each.to_string()])
        .args(["-r", "1", "--rate-period", &format!("{OPENED_EACH_MS}ms")])
        .arg(format!("--log-file={}", log.display()))
        .arg(format!("http://127.0.0.1:{port}/t/acme"))
        .output()?;
    assert_all_passed(&String::from_utf8_lossy(&output.stdout), requests as u64)?;
    // Columns: start in microseconds, status, microseconds to the end of the answer.
    let mut answers = Vec::new();
    for line in std::fs::read_to_string(log)?.lines() {
        let mut columns = line.split('\t');
        let (start, took) = (columns.next(), columns.nth(1));
        let (Some(start), Some(took)) = (start, took) else {
            return Err(format!("h2load's log: {line:?}").into());
        };
        answers.push((start.parse::<u64>()?, took.parse::<f64>()?));
    }
    // Only while all connections are at work.
    let first = answers.iter().map(|answer| answer.0).min().unwrap_or_default();
    let (from, to) = (first + (ramp * 1e6) as u64, first + (seconds * 1e6) as u64);
    let mut took: Vec<f64> = answers.iter().filter(|(at, _)| (from..to).contains(at)).map(|answer| answer.1).collect();
    took.sort_by(f64::total_cmp);
    Ok(Percentiles { p50_us: percentile(&took, 0.5), p99_us: percentile(&took, 0.99) })
}

/// How long h2load waits before it opens the next connection.
const OPENED_EACH_MS: u64 = 7;
