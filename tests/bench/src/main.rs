//! Measures what weir costs and writes it down: `make bench`.
//!
//! `bench MODULE EMPTY_MODULE RLS` measures everything, writes `results.json`, and from it the plots,
//! docs/benchmarks.md and the README's table. `bench render` does the last alone. ROUNDS, SECONDS_EACH, KEYS and TENANTS say how much is measured; ONLY names
//! parts (instructions, proxy, redis, module, core; several with commas) to measure, and what `results.json` holds of the others stays.

mod acquires;
mod cpu;
mod criterion;
mod figures;
mod instructions;
mod load;
mod machine;
mod module;
mod plots;
mod report;
mod results;
mod rounds;
mod stack;
mod stats;
mod upstream;
mod variants;

use std::path::PathBuf;

use results::Results;
use stack::{Built, Stack};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [word] if word.as_os_str() == "render" => report::write(&report::read()?),
        [module, empty_module, rls] => {
            let built = Built { module: module.clone(), empty_module: empty_module.clone(), rls: rls.clone() };
            report::write(&measure(built)?)
        }
        _ => Err("say where the module, the empty module and the rate limit service are; or render".into()),
    }
}

fn measure(built: Built) -> Result<Results> {
    let (rounds, seconds) = (number("ROUNDS", 9)?, number("SECONDS_EACH", 3.0)?);
    let (keys, tenants) = (number("KEYS", 1_600_000)?, number("TENANTS", 10_000_000)?);
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut results = match only.as_str() {
        "" => Results::default(),
        _ => report::read().unwrap_or_default(),
    };
    let wanted = |part: &str| only.is_empty() || only.split(',').any(|word| word == part);
    if wanted("instructions") {
        eprintln!("==> instructions of a request");
        results.instructions = instructions::measure(&built.module, &built.empty_module)?;
        report::keep(&results)?;
    }
    if only == "instructions" {
        return Ok(results);
    }
    results.machine = machine::machine()?;
    if wanted("core") {
        eprintln!("==> the core alone");
        results.core = criterion::measure(seconds)?;
        report::keep(&results)?;
    }
    if wanted("redis") {
        eprintln!("==> Redis: {keys} keys, and calls");
        results.redis = acquires::measure(keys, rounds, seconds)?;
        report::keep(&results)?;
    }
    if wanted("proxy") || wanted("module") {
        let stack = Stack::start(built)?;
        if wanted("proxy") {
            eprintln!("==> in Envoy: {rounds} rounds of {seconds} s for each variant");
            (results.proxy, results.latency) = rounds::measure(&stack, rounds, seconds)?;
            (results.rounds, results.seconds) = (rounds, seconds);
            report::keep(&results)?;
        }
        if wanted("module") {
            eprintln!("==> the module, and {tenants} tenants");
            results.module = module::measure(&stack, rounds, tenants)?;
        }
    }
    Ok(results)
}

/// A number from the environment.
fn number<T: std::str::FromStr>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text} is no number").into()),
        Err(_) => Ok(default),
    }
}
