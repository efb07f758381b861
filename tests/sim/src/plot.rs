//! Plots as SVG, in colours that can be seen on light and on dark ground. The bench draws with it, too.

use std::error::Error;
use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{EmptyElement, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle};

pub const GREY: RGBColor = RGBColor(0x80, 0x80, 0x80);
pub const BLUE: RGBColor = RGBColor(0x4c, 0x8d, 0xd6);
pub const ORANGE: RGBColor = RGBColor(0xe0, 0x8a, 0x2c);
pub const GREEN: RGBColor = RGBColor(0x4f, 0x9a, 0x5a);

/// What a colour stands for; nothing is told of it where the name is empty.
pub type Key<'k> = (RGBColor, &'k str);

/// A horizontal bar.
#[derive(Default)]
pub struct Bar {
    /// Its parts, one after the other, and their colours.
    pub parts: Vec<(f64, RGBColor)>,
    /// Where the value may be as well.
    pub interval: Option<(f64, f64)>,
    /// What it has to reach.
    pub floor: Option<f64>,
    pub label: String,
}

/// Bars under one name.
pub struct Row {
    pub name: String,
    pub bars: Vec<Bar>,
}

/// The axis under the bars.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// From 1, in powers of ten.
    Log,
}

/// A line over time.
pub struct Line<'l> {
    pub key: Key<'l>,
    pub values: Vec<f64>,
}

type Plot = Result<String, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 's> = ChartContext<'a, SVGBackend<'s>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const WIDTH: u32 = 860;
/// Of text; plotters makes 13 of it in SVG.
const SIZE: f64 = 16.12;
/// Above the rows, and below them.
const HEAD: u32 = 52;
const FOOT: u32 = 26;
/// Of a bar, and between two rows, in pixels.
const THICK: u32 = 12;
const APART: u32 = 12;

/// Rows of horizontal bars; their names stand beside them, and so much room is left for those.
pub fn bars(title: &str, keys: &[Key<'_>], scale: Scale, names_width: u32, rows: &[Row]) -> Plot {
    let bars_each = rows.iter().map(|row| row.bars.len()).max().unwrap_or(0) as u32;
    let row_height = bars_each * THICK + APART;
    let mut svg = String::new();
    {
        let size = (WIDTH, HEAD + FOOT + row_height * rows.len() as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        head(&area, title, names_width, keys)?;
        let place = |value: f64| if scale == Scale::Log { value.max(1.0).log10() } else { value.max(0.0) };
        let (last, most) = (rows.len() as f64 - 1.0, place(largest(rows)));
        let most = if scale == Scale::Log { most.max(1.0).ceil() } else { most };
        let mut chart = ChartBuilder::on(&area)
            .margin_top(HEAD)
            .margin_right(70)
            .x_label_area_size(FOOT)
            .y_label_area_size(names_width)
            .build_cartesian_2d(0.0..most, -0.5..last + 0.5)?;
        let tick = |value: &f64| if scale == Scale::Log { 10f64.powf(*value).to_string() } else { told(*value) };
        let name = |at: &f64| rows.get((last - at).round() as usize).map_or(String::new(), |row| row.name.clone());
        chart
            .configure_mesh()
            .disable_y_mesh()
            .axis_style(GREY.mix(0.0))
            .light_line_style(GREY.mix(0.0))
            .bold_line_style(GREY.mix(0.35))
            .x_labels(if scale == Scale::Log { most as usize + 1 } else { 8 })
            .x_label_formatter(&tick)
            .y_labels(rows.len())
            .y_label_formatter(&name)
            .label_style(text())
            .draw()?;
        // In rows.
        let high = f64::from(THICK) / f64::from(row_height);
        for (number, row) in rows.iter().enumerate() {
            let first = last - number as f64 + high * (row.bars.len() as f64 - 1.0) / 2.0;
            for (at, bar) in row.bars.iter().enumerate() {
                draw(&mut chart, bar, first - high * at as f64, high, &place)?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

/// Draws a bar around this height.
fn draw(
    chart: &mut Chart<'_, '_>,
    bar: &Bar,
    middle: f64,
    high: f64,
    place: &dyn Fn(f64) -> f64,
) -> Result<(), Box<dyn Error>> {
    let half = 0.4 * high;
    let mut end = 0.0;
    for (part, colour) in &bar.parts {
        let corners = [(place(end), middle + half), (place(end + part), middle - half)];
        chart.draw_series([Rectangle::new(corners, colour.filled())])?;
        end += part;
    }
    if let Some((low, high)) = bar.interval {
        let ends = vec![(place(low), middle), (place(high), middle)];
        chart.draw_series([PathElement::new(ends, stroke(GREY, 2))])?;
        end = end.max(high);
    }
    if let Some(floor) = bar.floor {
        let ends = vec![(place(floor), middle + 1.5 * half), (place(floor), middle - 1.5 * half)];
        chart.draw_series([PathElement::new(ends, stroke(ORANGE, 3))])?;
        end = end.max(floor);
    }
    let beside = Text::new(bar.label.clone(), (6, 0), text().pos(Pos::new(HPos::Left, VPos::Center)));
    chart.draw_series([EmptyElement::at((place(end), middle)) + beside])?;
    Ok(())
}

fn largest(rows: &[Row]) -> f64 {
    let of = |bar: &Bar| {
        let sum = bar.parts.iter().map(|(part, _)| part).sum::<f64>();
        sum.max(bar.interval.map_or(0.0, |(_, high)| high)).max(bar.floor.unwrap_or_default())
    };
    let largest = rows.iter().flat_map(|row| &row.bars).map(of).fold(0.0, f64::max);
    if largest > 0.0 { largest } else { 1.0 }
}

/// Lines over time, from 0 to the largest value; all have as many values, evenly spread over so many seconds.
pub fn lines(title: &str, seconds: f64, lines: &[Line<'_>]) -> Plot {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 320)).into_drawing_area();
        let keys: Vec<Key<'_>> = lines.iter().map(|line| line.key).collect();
        head(&area, title, 64, &keys)?;
        let most = lines.iter().flat_map(|line| &line.values).copied().fold(1.0, f64::max);
        let (times, values): (Range<f64>, Range<f64>) = (0.0..seconds, 0.0..most);
        let mut chart = ChartBuilder::on(&area)
            .margin_top(HEAD)
            .margin_right(20)
            .x_label_area_size(FOOT)
            .y_label_area_size(60)
            .build_cartesian_2d(times, values)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .axis_style(GREY.mix(0.0))
            .light_line_style(GREY.mix(0.0))
            .bold_line_style(GREY.mix(0.35))
            .x_labels(7)
            .x_label_formatter(&|time| format!("{time:.0} s"))
            .y_labels(5)
            .y_label_formatter(&|value| told(*value))
            .label_style(text())
            .draw()?;
        for Line { key: (colour, _), values } in lines {
            let last = values.len().saturating_sub(1).max(1) as f64;
            let points = (0..).zip(values).map(|(at, value)| (seconds * f64::from(at) / last, *value));
            chart.draw_series([PathElement::new(points.collect::<Vec<_>>(), stroke(*colour, 2))])?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// The title, and what the colours stand for.
fn head(area: &Area<'_>, title: &str, left: u32, keys: &[Key<'_>]) -> Result<(), Box<dyn Error>> {
    let bold = FontDesc::new(FontFamily::SansSerif, SIZE, FontStyle::Bold);
    area.draw(&Text::new(title, (8, 8), TextStyle::from(bold).color(&GREY)))?;
    for (at, (colour, name)) in (0..).zip(keys) {
        area.draw(&Text::new(*name, (left as i32 + 190 * at, 30), text().color(colour)))?;
    }
    Ok(())
}

fn text() -> TextStyle<'static> {
    TextStyle::from((FontFamily::SansSerif, SIZE)).color(&GREY)
}

fn stroke(colour: RGBColor, width: u32) -> ShapeStyle {
    colour.stroke_width(width)
}

/// A number of an axis, without the noise of sums of binary fractions.
fn told(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}
