//! The page of benchmarks, the README's table of figures and the plots, as they follow from the results. No figure is typed in
//! by hand. A row whose interval says nothing is left out, and named below its table.

use std::fmt::Write;
use std::path::Path;

use crate::Result;
use crate::acquires::{BARE, STRAIGHT, WEBDIS};
use crate::figures::{added, added_ms, latencies, paired, samples, total};
use crate::load::{AT_ONCE, Load, Percentiles, TENANTS};
use crate::plots::drawn;
use crate::results::{Counted, Instructions, Latency, Results, Sample};
use crate::stats::Median;
use crate::variants::{ALL, EXACT, GLOBAL_REDIS, LEASE, LEASE_BARE, NONE, TIMEOUT, Variant};

const BEGIN: &str = "<!-- Made by make bench from tests/bench/results.json. -->\n";
const END: &str = "<!-- The end of what make bench has made. -->\n";

/// With fewer rounds nothing is decided.
const ROUNDS: usize = 7;

/// What makes the figures of a page.
type Figures = fn(&Results) -> Result<String>;

/// Pages with figures, and what each holds between its two marks.
const PAGES: [(&str, Figures); 2] = [("docs/benchmarks.md", section), ("README.md", front)];

/// Where results, plots and pages are.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Reads `results.json`, if there is one.
pub fn read() -> Result<Results> {
    let file = root().join("tests/bench/results.json");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes `results.json`.
pub fn keep(results: &Results) -> Result<()> {
    let text = serde_json::to_string_pretty(results)? + "\n";
    Ok(std::fs::write(root().join("tests/bench/results.json"), text)?)
}

/// Writes `results.json`, the plots, and the pages' figures.
pub fn write(results: &Results) -> Result<()> {
    keep(results)?;
    let plots = root().join("tests/bench/plots");
    std::fs::create_dir_all(&plots)?;
    for (name, svg) in drawn(results)? {
        std::fs::write(plots.join(name), svg)?;
    }
    for (page, figures) in PAGES {
        let file = root().join(page);
        let text = std::fs::read_to_string(&file)?;
        let [before, _, after] = around(page, &text)?;
        std::fs::write(file, format!("{before}{BEGIN}{}{END}{after}", figures(results)?))?;
    }
    Ok(())
}

/// What stands before the figures of a page, the figures, and what stands after them.
fn around<'p>(page: &str, text: &'p str) -> Result<[&'p str; 3]> {
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{page} has no place for what was measured"))?;
    let (figures, after) = rest.split_once(END).ok_or_else(|| format!("{page} has no end of what was measured"))?;
    Ok([before, figures, after])
}

/// What the README tells.
fn front(results: &Results) -> Result<String> {
    let mut text = String::new();
    let b = |load| total(results, NONE, load).map(|median| median.value);
    writeln!(
        text,
        "Processor time that a request costs on top, in all processes together (Envoy, the limiter, Redis). 1 is what Envoy \
         itself takes for a request without a filter: {:.0} µs with one hot tenant, {:.0} µs with {} tenants. Medians of \
         {} rounds, with their 95 % intervals; {} processors, {}.\n",
        b(Load::Hot)?,
        b(Load::Many)?,
        thousands(TENANTS.into()),
        results.rounds,
        results.machine.processors,
        results.machine.date
    )?;
    writeln!(
        text,
        "| | one hot tenant | {} tenants | calls for 1,000 requests: hot; many |\n| --- | --- | --- | --- |",
        thousands(TENANTS.into())
    )?;
    for name in ["empty", "native-local", "weir-local", LEASE, EXACT, GLOBAL_REDIS] {
        let variant = ALL.iter().find(|variant| variant.name == name).ok_or_else(|| format!("no {name}"))?;
        let (hot, many) = (added(results, name, Load::Hot)?, added(results, name, Load::Many)?);
        writeln!(text, "| {} | {hot} | {many} | {} |", variant.title, calls(results, name)?)?;
    }
    let of_global =
        |load| paired(results, &[LEASE, GLOBAL_REDIS], load, |samples| samples[0].added() / samples[1].added());
    writeln!(
        text,
        "\n`lease` costs {} of what native global with its counters in Redis costs with one hot tenant, and {} with many.",
        of_global(Load::Hot)?,
        of_global(Load::Many)?
    )?;
    Ok(text)
}

/// What the page of benchmarks holds.
fn section(results: &Results) -> Result<String> {
    let mut text = String::new();
    instructions(&mut text, results)?;
    method(&mut text, results)?;
    goals(&mut text, results)?;
    proxy(&mut text, results)?;
    in_redis(&mut text, results)?;
    module(&mut text, results)?;
    core(&mut text, results)?;
    Ok(text)
}

/// The one table that holds still.
fn instructions(text: &mut String, results: &Results) -> Result<()> {
    let Instructions { date, versions, bytes, variants } = &results.instructions;
    let Some(none) = variants.first() else {
        return Ok(());
    };
    let versions: Vec<String> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    writeln!(
        text,
        "**Instructions.** What Envoy's worker executes for one request over a kept connection of HTTP/1.1, counted by \
         callgrind in a real Envoy (`make bench ONLY=instructions`, some twenty minutes; {date}, {}; a module of {} bytes). \
         Unlike times these figures hold still to one part in a hundred, on any machine; cache misses and the kernel's part \
         are not in them.\n",
        versions.join(", "),
        thousands(*bytes)
    )?;
    writeln!(text, "| | a request | more than without a filter | goal |\n| --- | --- | --- | --- |")?;
    for Counted { title, each, goal } in variants {
        let more = if std::ptr::eq(each, &raw const none.each) { String::new() } else { rounded(each - none.each) };
        let goal = goal.map(|goal| rounded(goal as f64)).unwrap_or_default();
        writeln!(text, "| {title} | {} | {more} | {goal} |", rounded(*each))?;
    }
    writeln!(text)?;
    Ok(())
}

/// To the hundred, since windows differ by some hundreds.
fn rounded(instructions: f64) -> String {
    thousands((instructions / 100.0).round() as u64 * 100)
}

fn method(text: &mut String, results: &Results) -> Result<()> {
    let machine = &results.machine;
    let versions: Vec<String> = machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let (rounds, seconds) = (results.rounds, results.seconds);
    if rounds < ROUNDS {
        writeln!(
            text,
            "**A short run of {rounds} rounds: the intervals are what there was, and nothing is decided.**\n"
        )?;
    }
    writeln!(
        text,
        "Measured on {} processors ({}), {} GB, {}; {}.\n",
        machine.processors,
        machine.processor,
        machine.memory_gb,
        machine.date,
        versions.join(", ")
    )?;
    let sum = |of: fn(&Sample) -> u64| results.proxy.iter().flat_map(|series| &series.samples).map(of).sum();
    let b = |load| total(results, NONE, load).map(|median| format!("{median:.1} µs"));
    writeln!(
        text,
        "**B** is the processor time of Envoy (one worker) for a request without any filter, sent on to a service on \
         loopback: {} for {AT_ONCE} connections of HTTP/1.1 and one tenant (*hot*), {} for {AT_ONCE} streams of an HTTP/2 \
         connection and {} tenants by Zipf's law (*many*). A cost is that of all processes: Envoy, the limiter \
         (Webdis, or a rate limit service on limitador: [tests/bench/rls](../tests/bench/rls)) and its Redis, from \
         `/proc/PID/task/*/schedstat`; the service and the load tool are left out. {rounds} rounds of {seconds} s for each \
         variant, in an order of its own in each round, and half of that without a filter right before and after each, which \
         is the B of that sample; each figure is the median over the rounds, with its interval of 95 % at least. All requests were \
         within their limit; {} of {} were decided by a failure of the limiter (`timeout: {TIMEOUT}`). Before the rounds each filter has refused the eleventh request of a limit of ten.\n",
        b(Load::Hot)?,
        b(Load::Many)?,
        thousands(TENANTS.into()),
        thousands(sum(|sample| sample.failed)),
        thousands(sum(|sample| sample.requests))
    )?;
    Ok(())
}

struct Goal {
    what: &'static str,
    most: f64,
    unit: &'static str,
    digits: usize,
    measured: Median,
    /// What it is added to, where that says whether its interval says anything.
    base: Option<f64>,
}

fn all_goals(results: &Results) -> Result<Vec<Goal>> {
    let of_global = |variant| {
        paired(results, &[variant, GLOBAL_REDIS], Load::Hot, |samples| samples[0].added() / samples[1].added())
    };
    let p99 = |what, most, variant| -> Result<Goal> {
        let samples = latencies(results, variant)?;
        let measured = added_ms(samples, |percentiles| percentiles.p99_us);
        Ok(Goal { what, most, unit: " ms", digits: 2, measured, base: Some(without(samples, |none| none.p99_us)) })
    };
    let bytes = results.redis.bytes_lent / results.redis.bytes_bare;
    Ok(vec![
        Goal {
            what: "lease adds to a request",
            most: 0.25,
            unit: " B",
            digits: 2,
            measured: added(results, LEASE, Load::Hot)?,
            base: None,
        },
        Goal {
            what: "lease, of what native global + limitador in Redis adds",
            most: 0.1,
            unit: "",
            digits: 3,
            measured: of_global(LEASE)?,
            base: None,
        },
        Goal {
            what: "exact on a hot key, of the same",
            most: 1.0 / 3.0,
            unit: "",
            digits: 2,
            measured: of_global(EXACT)?,
            base: None,
        },
        p99("lease adds to p99 at half load", 0.3, LEASE)?,
        p99("exact adds to p99 at half load", 2.0, EXACT)?,
        Goal {
            what: "bytes in Redis, of a bare key",
            most: 1.5,
            unit: "",
            digits: 2,
            measured: Median { value: bytes, low: bytes, high: bytes },
            base: None,
        },
    ])
}

fn goals(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "| goal | at most | measured | |\n| --- | --- | --- | --- |")?;
    let mut undecided = Vec::new();
    for Goal { what, most, unit, digits, measured, base } in all_goals(results)? {
        if base.is_some_and(|base| !measured.says_something(base)) {
            undecided.push(format!("{what} (at most {most:.digits$}{unit}; {measured:.digits$}{unit})"));
            continue;
        }
        let verdict = match measured {
            _ if results.rounds < ROUNDS => "",
            Median { high, .. } if high <= most => "met",
            Median { low, .. } if low > most => "missed",
            Median { value, .. } if value <= most => "met by the median, not by the interval",
            _ => "missed by the median, not by the interval",
        };
        let shown = match measured.low == measured.high {
            true => format!("{:.digits$}", measured.value),
            false => format!("{measured:.digits$}"),
        };
        writeln!(text, "| {what} | {most:.digits$}{unit} | {shown}{unit} | {verdict} |")?;
    }
    if !undecided.is_empty() {
        let s = if undecided.len() == 1 { "" } else { "s" };
        writeln!(
            text,
            "\nGoal{s} that this run does not decide, since the interval holds 0 and is wider than the p99 without a filter: {}.",
            undecided.join("; ")
        )?;
    }
    writeln!(text)?;
    Ok(())
}

/// How often a variant calls a limiter for 1,000 requests: with one tenant; with many.
fn calls(results: &Results, name: &str) -> Result<String> {
    let calls = |load| -> Result<f64> {
        let each =
            samples(results, name, load)?.iter().map(|sample| 1000.0 * sample.calls as f64 / sample.requests as f64);
        Ok(Median::of(each).value)
    };
    Ok(match name.starts_with("weir") {
        true => format!("{:.1}; {:.1}", calls(Load::Hot)?, calls(Load::Many)?),
        false if name.starts_with("global") => "1000; 1000".to_owned(),
        false => "0; 0".to_owned(),
    })
}

fn proxy(text: &mut String, results: &Results) -> Result<()> {
    writeln!(
        text,
        "| what a request costs more, in B | hot | many | hot, in µs: Envoy, limiter, Redis | requests/s, hot | \
         calls for 1,000 requests: hot; many |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for Variant { name, title, .. } in &ALL {
        let added = |load| -> Result<String> {
            match *name {
                NONE => Ok("(B)".to_owned()),
                _ => Ok(added(results, name, load)?.to_string()),
            }
        };
        let hot = |of: fn(&Sample) -> f64| -> Result<f64> {
            Ok(Median::of(samples(results, name, Load::Hot)?.iter().map(of)).value)
        };
        let parts = format!("{:.1}, {:.1}, {:.1}", hot(|s| s.envoy_us)?, hot(|s| s.limiter_us)?, hot(|s| s.redis_us)?);
        writeln!(
            text,
            "| {title} | {} | {} | {parts} | {:.0} | {} |",
            added(Load::Hot)?,
            added(Load::Many)?,
            hot(|s| s.per_second)?,
            calls(results, name)?
        )?;
    }
    where_it_goes(text, results)?;
    latency(text, results)
}

fn where_it_goes(text: &mut String, results: &Results) -> Result<()> {
    let lease = added(results, LEASE, Load::Hot)?;
    let headers = paired(results, &[LEASE, LEASE_BARE], Load::Hot, |samples| samples[0].added() - samples[1].added())?;
    let headers = match headers.low > 0.0 {
        true => format!("{:.2} B its three headers", headers.value),
        false => "what its three headers cost is lost in the noise".to_owned(),
    };
    writeln!(
        text,
        "\nweir sets its three `x-ratelimit` headers where the table does not say otherwise; the native filters set none, \
         and native local_ratelimit has one bucket for all tenants.\n\n\
         **Where it goes.** Of the {:.2} B that a lease adds for one hot tenant, {:.2} B is what a wasm filter costs that \
         does nothing, and {headers}. The rest is reading a header, reading the time, reading the bucket's set from shared \
         data and writing it back, a counter, and the module's own code, which a profile shows to be about a tenth of \
         Envoy's time: most of it is Envoy's side of the host calls. Many tenants cost more: their sets are not in the \
         processor's caches, and a tenant that comes seldom asks Redis. What is left to do is to read and write less of \
         shared data for a request: a worker could keep some tokens of its own.\n\n\
         ![Processor time of a request by process](../tests/bench/plots/cost.svg)\n\
         ![What a request costs more than without a filter](../tests/bench/plots/added.svg)\n",
        lease.value,
        added(results, "empty", Load::Hot)?.value
    )?;
    Ok(())
}

/// The median of what a percentile was without a filter, in milliseconds.
fn without(samples: &[Latency], of: fn(&Percentiles) -> f64) -> f64 {
    Median::of(samples.iter().map(|latency| of(&latency.none) / 1000.0)).value
}

fn latency(text: &mut String, results: &Results) -> Result<()> {
    percentile(text, results, "p50", |percentiles| percentiles.p50_us)?;
    if percentile(text, results, "p99", |percentiles| percentiles.p99_us)? {
        writeln!(text, "![What is added to p99 at half load](../tests/bench/plots/p99.svg)\n")?;
    }
    Ok(())
}

/// What each variant adds to a percentile. Where not even half of them say anything, none is told; gives whether any is.
fn percentile(text: &mut String, results: &Results, name: &str, of: fn(&Percentiles) -> f64) -> Result<bool> {
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    for Variant { name, title, .. } in &ALL[1..] {
        let samples = latencies(results, name)?;
        let (base, added) = (without(samples, of), added_ms(samples, of));
        let per_second = Median::of(samples.iter().map(|latency| latency.per_second)).value;
        match added.says_something(base) {
            true => rows.push(format!("| {title} | {per_second:.0} | {base:.2} | {added} |")),
            false => silent.push(*title),
        }
    }
    let tells = rows.len() >= silent.len();
    if tells {
        writeln!(
            text,
            "| at half of what the variant can do, hot | requests/s | {name} without a filter, ms | adds to {name}, ms |\n\
             | --- | --- | --- | --- |\n{}\n",
            rows.join("\n")
        )?;
    }
    match (tells, silent.is_empty()) {
        (true, true) => {}
        (true, false) => writeln!(
            text,
            "Left out, since the interval holds 0 and is wider than the {name} without a filter: {}.\n",
            silent.join("; ")
        )?,
        (false, _) => writeln!(
            text,
            "What is added to {name} was measured as well, and is left out: for {} of {} variants the interval holds 0 and is \
             wider than the {name} without a filter. tests/bench/results.json has every round.\n",
            silent.len(),
            ALL.len() - 1
        )?,
    }
    Ok(tells)
}

fn in_redis(text: &mut String, results: &Results) -> Result<()> {
    let redis = &results.redis;
    writeln!(
        text,
        "**In Redis**, of {} keys: {:.0} bytes a key with a lease in it, {:.0} with none, {:.0} for `INCR` and `EXPIRE` \
         under the same name.\n",
        thousands(redis.keys),
        redis.bytes_lent,
        redis.bytes_exact,
        redis.bytes_bare
    )?;
    writeln!(
        text,
        "| {AT_ONCE} connections, one key | calls/s | µs of Redis a call | µs of Webdis a call |\n| --- | --- | --- | --- |"
    )?;
    for (name, title) in [(BARE, "`INCR`"), (STRAIGHT, "an acquire, straight"), (WEBDIS, "an acquire, through Webdis")]
    {
        let all = redis.acquires.iter().find(|acquires| acquires.name == name).ok_or_else(|| format!("no {name}"))?;
        let median = |of: fn(&crate::results::AcquireSample) -> f64| Median::of(all.samples.iter().map(of));
        let webdis = match name {
            WEBDIS => format!("{:.1}", median(|sample| sample.webdis_us)),
            _ => String::new(),
        };
        writeln!(
            text,
            "| {title} | {:.0} | {:.1} | {webdis} |",
            median(|sample| sample.per_second),
            median(|sample| sample.redis_us)
        )?;
    }
    writeln!(text)?;
    Ok(())
}

fn module(text: &mut String, results: &Results) -> Result<()> {
    let module = &results.module;
    let configure = |of: fn(&crate::results::Configure) -> f64| Median::of(module.configure.iter().map(of));
    writeln!(
        text,
        "**The module** has {} bytes; an empty filter on the same SDK has {}. A policy with {} limits is in force {:.0} ms \
         after a running Envoy is given it, one with a single limit after {:.0} ms; the {} limits take {:.1} ms more of \
         processor time, in all VMs together.\n",
        thousands(module.bytes),
        thousands(module.empty_bytes),
        thousands(module.limits as u64),
        configure(|c| c.large_ms),
        configure(|c| c.small_ms),
        thousands(module.limits as u64),
        configure(|c| c.large_cpu_ms - c.small_cpu_ms)
    )?;
    writeln!(
        text,
        "| Envoy with | is ready after, ms | memory, MB: 1, 2, 4 workers | a worker more, MB |\n| --- | --- | --- | --- |"
    )?;
    for (name, took) in &module.ready_ms {
        let (variant, more) =
            name.split_once(", ").map_or((name.as_str(), ""), |(variant, _)| (variant, ", all of those limits"));
        let title = ALL.iter().find(|known| known.name == variant).map_or(variant, |known| known.title);
        let mb: Vec<(u32, f64)> = module
            .memory
            .iter()
            .filter(|memory| memory.variant == *name)
            .map(|memory| (memory.workers, memory.kb as f64 / 1024.0))
            .collect();
        let all: Vec<String> = mb.iter().map(|(_, mb)| format!("{mb:.1}")).collect();
        let each = match (mb.first(), mb.last()) {
            (Some(first), Some(last)) => format!("{:.1}", (last.1 - first.1) / f64::from(last.0 - first.0)),
            _ => String::new(),
        };
        let took = Median::of(took.iter().copied());
        writeln!(text, "| {title}{more} | {took:.0} | {} | {each} |", all.join(", "))?;
    }
    let tenants: Vec<String> = module
        .tenants
        .iter()
        .map(|tenants| format!("{:.1} MB after {}", tenants.kb as f64 / 1024.0, thousands(tenants.count)))
        .collect();
    writeln!(
        text,
        "\nMemory is what belongs to no file, after some thousand requests. An Envoy with one worker and the default table, \
         of distinct tenants in mode lease: {}.\n",
        tenants.join(", ")
    )?;
    Ok(())
}

fn core(text: &mut String, results: &Results) -> Result<()> {
    writeln!(text, "| the core alone, natively, built as the module is | ns |\n| --- | --- |")?;
    for core in &results.core {
        let ns = Median { value: core.ns, low: core.low_ns, high: core.high_ns };
        writeln!(text, "| {} | {ns:.0} |", core.name.replacen('/', ": ", 1))?;
    }
    Ok(())
}

/// `1,600,000`
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_plots_are_what_the_results_say() {
        let results = read().unwrap();
        for (page, figures) in PAGES {
            let text = std::fs::read_to_string(root().join(page)).unwrap();
            let [_, there, _] = around(page, &text).unwrap();
            let made = figures(&results).unwrap();
            for (there, made) in there.lines().zip(made.lines()) {
                assert_eq!(there, made, "{page}: make bench-render makes it anew");
            }
            assert_eq!(there.len(), made.len(), "{page}");
        }
        for (name, svg) in drawn(&results).unwrap() {
            let there = std::fs::read_to_string(root().join("tests/bench/plots").join(name)).unwrap();
            assert!(there == svg, "{name}: make bench-render makes it anew");
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1_600_000].map(thousands), ["0", "999", "1,000", "1,600,000"]);
    }
}
