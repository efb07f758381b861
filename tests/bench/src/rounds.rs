//! The rounds: every variant in each of them, one after the other, in an order of its own.

use std::time::Instant;

use crate::Result;
use crate::load::{Load, shuffled};
use crate::results::{Latencies, Latency, Series};
use crate::stack::{Running, Stack};
use crate::variants::{ALL, Limit, NONE};

/// Requests that nobody counts, so that connections are open, code is compiled, and leases are lent.
const WARM_UP: u64 = 20_000;

/// Measures all variants, so many times, each for about so many seconds.
pub fn measure(stack: &Stack, rounds: usize, seconds: f64) -> Result<(Vec<Series>, Vec<Latencies>)> {
    for variant in &ALL {
        stack.check(variant)?;
    }
    eprintln!("    each filter has refused what it should");
    let running: Vec<Running> = ALL.iter().map(|variant| stack.proxy(variant, Limit::High)).collect::<Result<_>>()?;
    let mut series = Vec::new();
    let mut requests = Vec::new();
    for load in [Load::Hot, Load::Many] {
        for proxy in &running {
            let rate = stack.sample(proxy, load, WARM_UP)?.per_second;
            requests.push((rate * seconds).max(1000.0) as u64);
            series.push(Series { variant: proxy.variant.name.to_owned(), load, samples: Vec::new() });
        }
    }
    let mut latencies: Vec<Latencies> =
        ALL[1..].iter().map(|variant| Latencies { variant: variant.name.to_owned(), samples: Vec::new() }).collect();
    let started = Instant::now();
    for round in 0..rounds {
        for at in shuffled(series.len(), round) {
            let load = series[at].load;
            let (none, with) = (&running[0], &running[at % running.len()]);
            // The machine is faster now and slower then: each sample has a measure of its own on both sides.
            let beside = requests[at / running.len() * running.len()] / 4;
            let before = stack.sample(none, load, beside)?.total_us();
            let mut sample = stack.sample(with, load, requests[at])?;
            sample.none_us = f64::midpoint(before, stack.sample(none, load, beside)?.total_us());
            series[at].samples.push(sample);
        }
        for at in shuffled(latencies.len(), round) {
            // The hot series stand first, in the order of the variants.
            let most = series[at + 1].samples[round].per_second;
            let latency = latency(stack, &running[0], &running[at + 1], most / 2.0, seconds, round)?;
            latencies[at].samples.push(latency);
        }
        eprintln!("    round {} of {rounds}, after {} s", round + 1, started.elapsed().as_secs());
    }
    Ok((series, latencies))
}

/// The variant and no filter at one rate, one after the other, now this one first and now that one.
fn latency(
    stack: &Stack,
    none: &Running<'_>,
    with: &Running<'_>,
    per_second: f64,
    seconds: f64,
    round: usize,
) -> Result<Latency> {
    assert_eq!(none.variant.name, NONE);
    let measured = |proxy: &Running<'_>| stack.latency(proxy, per_second, seconds);
    if round.is_multiple_of(2) {
        let none = measured(none)?;
        return Ok(Latency { per_second, none, with: measured(with)? });
    }
    let with = measured(with)?;
    Ok(Latency { per_second, none: measured(none)?, with })
}
