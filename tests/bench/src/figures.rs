//! Figures that follow from the results.

use crate::Result;
use crate::load::{Load, Percentiles};
use crate::results::{Latencies, Latency, Results, Sample};
use crate::stats::Median;

/// What a variant has cost under this load, by round.
pub fn samples<'r>(results: &'r Results, variant: &str, load: Load) -> Result<&'r [Sample]> {
    let series = results.proxy.iter().find(|series| series.variant == variant && series.load == load);
    Ok(&series.ok_or_else(|| format!("{variant} was not measured"))?.samples)
}

/// How long requests took, by round.
pub fn latencies<'r>(results: &'r Results, variant: &str) -> Result<&'r [Latency]> {
    let all: Option<&Latencies> = results.latency.iter().find(|latencies| latencies.variant == variant);
    Ok(&all.ok_or_else(|| format!("the latency of {variant} was not measured"))?.samples)
}

/// The median of what follows from the samples of several variants in one round.
pub fn paired(results: &Results, variants: &[&str], load: Load, of: impl Fn(&[&Sample]) -> f64) -> Result<Median> {
    let all: Vec<&[Sample]> = variants.iter().map(|variant| samples(results, variant, load)).collect::<Result<_>>()?;
    let rounds = all.iter().map(|samples| samples.len()).min().unwrap_or_default();
    Ok(Median::of((0..rounds).map(|round| of(&all.iter().map(|samples| &samples[round]).collect::<Vec<_>>()))))
}

/// What a variant adds, in B.
pub fn added(results: &Results, variant: &str, load: Load) -> Result<Median> {
    paired(results, &[variant], load, |samples| samples[0].added())
}

/// The processor time of a request in all processes, in microseconds.
pub fn total(results: &Results, variant: &str, load: Load) -> Result<Median> {
    paired(results, &[variant], load, |samples| samples[0].total_us())
}

/// What a variant adds to a percentile, in milliseconds.
pub fn added_ms(samples: &[Latency], of: impl Fn(&Percentiles) -> f64) -> Median {
    Median::of(samples.iter().map(|latency| (of(&latency.with) - of(&latency.none)) / 1000.0))
}
