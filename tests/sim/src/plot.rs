//! Plots as SVG, in colours that can be seen on light and on dark ground.

use std::fmt::Write;

/// One bar: a value of at least 1, and what it has to reach.
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub floor: f64,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 330.0;
const ROW: f64 = 26.0;
pub const GREY: &str = "#808080";
pub const BLUE: &str = "#4c8dd6";
pub const ORANGE: &str = "#e08a2c";

/// Horizontal bars on a logarithmic scale from 1, with a mark where the design says that they end.
pub fn bars(title: &str, rows: &[Bar]) -> String {
    let most = rows.iter().flat_map(|row| [row.value, row.floor]).fold(10.0, f64::max);
    let decades = most.log10().ceil();
    let ticks: Vec<f64> = (0..=decades as i32).map(|decade| 10f64.powi(decade)).collect();
    drawn(title, rows, &ticks, 0, &|value| value.max(1.0).log10() / decades)
}

/// Horizontal bars from 0 to 1.
pub fn shares(title: &str, rows: &[Bar]) -> String {
    drawn(title, rows, &[0.0, 0.25, 0.5, 0.75, 1.0], 2, &|value| value.clamp(0.0, 1.0))
}

fn drawn(title: &str, rows: &[Bar], ticks: &[f64], digits: usize, place: &dyn Fn(f64) -> f64) -> String {
    let x = |value: f64| LEFT + (WIDTH - LEFT - 70.0) * place(value);
    let height = 60.0 + ROW * rows.len() as f64;
    let mut svg = head(height, title);
    for tick in ticks {
        let (at, bottom) = (x(*tick), height - 22.0);
        let _ = writeln!(svg, r#"<path d="M{at:.1} 30V{bottom:.1}" stroke="{GREY}" stroke-opacity="0.35"/>"#);
        let low = height - 6.0;
        let _ = writeln!(svg, r#"<text x="{at:.1}" y="{low:.1}" text-anchor="middle">{tick:.digits$}</text>"#);
    }
    let digits = digits + 1;
    for (number, row) in rows.iter().enumerate() {
        let top = 34.0 + ROW * number as f64;
        let (end, floor) = (x(row.value), x(row.floor));
        let (name, beside, middle) = (escaped(&row.name), LEFT - 8.0, top + 13.0);
        let _ = writeln!(svg, r#"<text x="{beside:.1}" y="{middle:.1}" text-anchor="end">{name}</text>"#);
        let width = (end - LEFT).max(1.0);
        let _ = writeln!(svg, r#"<rect x="{LEFT}" y="{top:.1}" width="{width:.1}" height="16" fill="{BLUE}"/>"#);
        let _ = writeln!(svg, r#"<path d="M{floor:.1} {:.1}v20" stroke="{ORANGE}" stroke-width="3"/>"#, top - 2.0);
        let (beside, value) = (end.max(floor) + 6.0, row.value);
        let _ = writeln!(svg, r#"<text x="{beside:.1}" y="{middle:.1}">{value:.digits$}</text>"#);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line over time: its name, its colour, and its values.
pub struct Line<'l> {
    pub name: &'l str,
    pub colour: &'l str,
    pub values: Vec<f64>,
}

/// Lines over time, from 0 to the largest value; all have as many values, evenly spread over so many seconds.
pub fn lines(title: &str, seconds: f64, lines: &[Line]) -> String {
    const HEIGHT: f64 = 320.0;
    let most = lines.iter().flat_map(|line| &line.values).fold(1.0, |most: f64, value| most.max(*value));
    let (left, bottom) = (60.0, HEIGHT - 40.0);
    let x = |share: f64| left + (WIDTH - left - 20.0) * share;
    let y = |value: f64| bottom - (bottom - 60.0) * value / most;
    let mut svg = head(HEIGHT, title);
    for part in [0.0, 0.5, 1.0] {
        let (value, at, right) = (most * part, y(most * part), WIDTH - 20.0);
        let _ = writeln!(svg, r#"<path d="M{left} {at:.1}H{right}" stroke="{GREY}" stroke-opacity="0.35"/>"#);
        let _ = writeln!(svg, r#"<text x="52" y="{:.1}" text-anchor="end">{value:.0}</text>"#, at + 4.0);
        let (at, low, time) = (x(part), HEIGHT - 16.0, seconds * part);
        let _ = writeln!(svg, r#"<text x="{at:.1}" y="{low}" text-anchor="middle">{time:.0} s</text>"#);
    }
    for (number, Line { name, colour, values }) in lines.iter().enumerate() {
        let last = values.len().saturating_sub(1).max(1) as f64;
        let points: Vec<String> =
            (0..).zip(values).map(|(at, value)| format!("{:.1},{:.1}", x(f64::from(at) / last), y(*value))).collect();
        let points = points.join(" ");
        let _ = writeln!(svg, r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>"#);
        let at = 64.0 + 200.0 * number as f64;
        let _ = writeln!(svg, r#"<text x="{at}" y="44" fill="{colour}">{}</text>"#, escaped(name));
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{GREY}">
<text x="8" y="20" font-weight="bold">{title}</text>
"#
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
