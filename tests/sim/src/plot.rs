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
const GREY: &str = "#808080";
const BLUE: &str = "#4c8dd6";
const ORANGE: &str = "#e08a2c";

/// Horizontal bars on a logarithmic scale from 1, with a mark where each floor is.
pub fn bars(title: &str, rows: &[Bar]) -> String {
    let most = rows.iter().flat_map(|row| [row.value, row.floor]).fold(10.0, f64::max);
    let decades = most.log10().ceil();
    let x = |value: f64| LEFT + (WIDTH - LEFT - 60.0) * value.max(1.0).log10() / decades;
    let height = 60.0 + ROW * rows.len() as f64;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="{GREY}">"#
    );
    let _ = writeln!(svg, r#"<text x="8" y="20" font-weight="bold">{}</text>"#, escaped(title));
    for decade in 0..=decades as u32 {
        let (at, value) = (x(10f64.powi(decade as i32)), 10u64.pow(decade));
        let bottom = height - 22.0;
        let _ = writeln!(svg, r#"<path d="M{at:.1} 30V{bottom:.1}" stroke="{GREY}" stroke-opacity="0.35"/>"#);
        let _ = writeln!(svg, r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{value}</text>"#, height - 6.0);
    }
    for (number, row) in rows.iter().enumerate() {
        let top = 34.0 + ROW * number as f64;
        let (end, floor) = (x(row.value), x(row.floor));
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            top + 13.0,
            escaped(&row.name)
        );
        let _ = writeln!(
            svg,
            r#"<rect x="{LEFT}" y="{top:.1}" width="{:.1}" height="16" fill="{BLUE}"/>"#,
            (end - LEFT).max(1.0)
        );
        let _ = writeln!(svg, r#"<path d="M{floor:.1} {:.1}v20" stroke="{ORANGE}" stroke-width="3"/>"#, top - 2.0);
        let _ = writeln!(svg, r#"<text x="{:.1}" y="{:.1}">{:.1}</text>"#, end.max(floor) + 6.0, top + 13.0, row.value);
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
