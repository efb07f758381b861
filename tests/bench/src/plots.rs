//! The plots, as they follow from the results.

use weir_sim::plot::{BLUE, Bar, GREEN, Key, ORANGE, Row, Scale, bars};

use crate::Result;
use crate::figures::{added, added_ms, latencies, samples};
use crate::load::Load;
use crate::results::{Results, Sample};
use crate::stats::Median;
use crate::variants::{ALL, Variant};

const NAMES_WIDTH: u32 = 270;

/// The plots and their names.
pub fn drawn(results: &Results) -> Result<[(&'static str, String); 3]> {
    let of = |of: &dyn Fn(&str) -> Result<Vec<Median>>| -> Vec<(&str, Vec<Median>)> {
        let medians = |variant: &'static Variant| Some((variant.title, of(variant.name).ok()?));
        ALL[1..].iter().filter_map(medians).collect()
    };
    let added = of(&|name| Ok(vec![added(results, name, Load::Hot)?, added(results, name, Load::Many)?]));
    let p99 = of(&|name| Ok(vec![added_ms(latencies(results, name)?, |percentiles| percentiles.p99_us)]));
    let loads = [(BLUE, "hot: one tenant"), (ORANGE, "many tenants")];
    Ok([
        ("cost.svg", costs(results)?),
        ("added.svg", intervals("What a request costs more than without a filter, in B", &loads, &added)?),
        ("p99.svg", intervals("Added to p99 at half load, in ms; one tenant", &[(BLUE, "")], &p99)?),
    ])
}

/// A bar for each variant, made of what each process costs.
fn costs(results: &Results) -> Result<String> {
    let keys = [(BLUE, "Envoy"), (ORANGE, "limiter"), (GREEN, "Redis")];
    let processes: [fn(&Sample) -> f64; 3] =
        [|sample| sample.envoy_us, |sample| sample.limiter_us, |sample| sample.redis_us];
    let row = |variant: &Variant| {
        let samples = samples(results, variant.name, Load::Hot).unwrap_or_default();
        let median = |of| if samples.is_empty() { 0.0 } else { Median::of(samples.iter().map(of)).value };
        let parts: Vec<_> = processes.into_iter().map(median).zip(keys.map(|(colour, _)| colour)).collect();
        let label = format!("{:.0}", parts.iter().map(|(part, _)| part).sum::<f64>());
        Row { name: variant.title.to_owned(), bars: vec![Bar { parts, label, ..Bar::default() }] }
    };
    let rows: Vec<Row> = ALL.iter().map(row).collect();
    bars("Processor time of a request, in µs, by process; one tenant", &keys, Scale::Linear, NAMES_WIDTH, &rows)
}

/// Bars in groups, one for each key, with their intervals.
fn intervals(title: &str, keys: &[Key<'_>], rows: &[(&str, Vec<Median>)]) -> Result<String> {
    let bar = |(median, (colour, _)): (&Median, &Key<'_>)| Bar {
        parts: vec![(median.value, *colour)],
        interval: Some((median.low, median.high)),
        label: format!("{:.2}", median.value),
        ..Bar::default()
    };
    let row = |(name, medians): &(&str, Vec<Median>)| Row {
        name: (*name).to_owned(),
        bars: medians.iter().zip(keys).map(bar).collect(),
    };
    let rows: Vec<Row> = rows.iter().map(row).collect();
    bars(title, keys, Scale::Linear, NAMES_WIDTH, &rows)
}
