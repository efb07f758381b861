//! Plots as SVG, in colours that can be seen on light and on dark ground.

use std::fmt::Write;

use crate::stats::Median;

const GREY: &str = "#808080";
pub const BLUE: &str = "#4c8dd6";
pub const ORANGE: &str = "#e08a2c";
pub const GREEN: &str = "#4f9a5a";

const WIDTH: f64 = 860.0;
const LEFT: f64 = 270.0;
const RIGHT: f64 = 70.0;

/// What one bar or one part of a bar stands for: its colour and its name.
pub type Key<'k> = (&'k str, &'k str);

/// Bars in groups, one for each key, with their intervals.
pub fn intervals(title: &str, digits: usize, keys: &[Key<'_>], rows: &[(String, Vec<Median>)]) -> String {
    let most = rows.iter().flat_map(|row| &row.1).fold(0.0, |most: f64, median| most.max(median.high));
    let high = 12.0;
    let row_height = high * keys.len() as f64 + 12.0;
    let mut plot = Plot::new(title, keys, row_height * rows.len() as f64, most);
    for (number, (name, medians)) in rows.iter().enumerate() {
        let top = plot.row(number, row_height, name);
        for (at, (median, (colour, _))) in medians.iter().zip(keys).enumerate() {
            let top = top + 4.0 + high * at as f64;
            plot.bar(0.0, median.value, top, high - 2.0, colour);
            let (low, end, middle) = (plot.x(median.low), plot.x(median.high), top + high / 2.0 - 1.0);
            plot.draw(format_args!(r#"<path d="M{low:.1} {middle:.1}H{end:.1}" stroke="{GREY}" stroke-width="2"/>"#));
            let (beside, low) = (end.max(plot.x(0.0)) + 6.0, middle + 4.0);
            plot.draw(format_args!(r#"<text x="{beside:.1}" y="{low:.1}">{:.digits$}</text>"#, median.value));
        }
    }
    plot.end()
}

/// A bar for each row, made of parts.
pub fn stacked(title: &str, keys: &[Key<'_>], rows: &[(String, Vec<f64>)]) -> String {
    let most = rows.iter().map(|row| row.1.iter().sum()).fold(0.0, f64::max);
    let row_height = 26.0;
    let mut plot = Plot::new(title, keys, row_height * rows.len() as f64, most);
    for (number, (name, parts)) in rows.iter().enumerate() {
        let top = plot.row(number, row_height, name) + 5.0;
        let mut from = 0.0;
        for (part, (colour, _)) in parts.iter().zip(keys) {
            plot.bar(from, from + part, top, 16.0, colour);
            from += part;
        }
        let (beside, low) = (plot.x(from) + 6.0, top + 12.0);
        plot.draw(format_args!(r#"<text x="{beside:.1}" y="{low:.1}">{from:.0}</text>"#));
    }
    plot.end()
}

struct Plot {
    svg: String,
    most: f64,
}

const TOP: f64 = 52.0;

impl Plot {
    /// From 0 to the largest value.
    fn new(title: &str, keys: &[Key<'_>], rows_height: f64, most: f64) -> Plot {
        let (title, bottom) = (escaped(title), TOP + rows_height);
        let height = bottom + 26.0;
        let svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{GREY}">
<text x="8" y="20" font-weight="bold">{title}</text>
"#
        );
        let mut plot = Plot { svg, most: if most > 0.0 { most } else { 1.0 } };
        for (number, (colour, name)) in keys.iter().enumerate() {
            let at = LEFT + 190.0 * number as f64;
            plot.draw(format_args!(r#"<text x="{at}" y="40" fill="{colour}">{}</text>"#, escaped(name)));
        }
        let step = step(plot.most);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let mut tick = 0.0;
        while tick <= plot.most {
            let (at, low) = (plot.x(tick), bottom + 18.0);
            plot.draw(format_args!(r#"<path d="M{at:.1} {TOP}V{bottom:.1}" stroke="{GREY}" stroke-opacity="0.35"/>"#));
            plot.draw(format_args!(r#"<text x="{at:.1}" y="{low:.1}" text-anchor="middle">{tick:.digits$}</text>"#));
            tick += step;
        }
        plot
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (value / self.most).max(0.0)
    }

    /// Writes the name of a row, and gives where the row begins.
    fn row(&mut self, number: usize, height: f64, name: &str) -> f64 {
        let top = TOP + height * number as f64;
        let (beside, middle) = (LEFT - 8.0, top + height / 2.0 + 4.0);
        let name = escaped(name);
        self.draw(format_args!(r#"<text x="{beside}" y="{middle:.1}" text-anchor="end">{name}</text>"#));
        top
    }

    fn bar(&mut self, from: f64, to: f64, top: f64, height: f64, colour: &str) {
        let (at, width) = (self.x(from), (self.x(to) - self.x(from)).max(0.5));
        self.draw(format_args!(
            r#"<rect x="{at:.1}" y="{top:.1}" width="{width:.1}" height="{height}" fill="{colour}"/>"#
        ));
    }

    fn draw(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{element}");
    }

    fn end(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// 1, 2 or 5 times a power of ten, so that there are four to ten ticks.
fn step(most: f64) -> f64 {
    let ten = 10f64.powf((most / 4.0).log10().floor());
    [5.0, 2.0, 1.0].map(|times| times * ten).into_iter().find(|step| most / step >= 4.0).unwrap_or(ten)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
