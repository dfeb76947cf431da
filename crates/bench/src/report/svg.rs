//! Plots as inline SVG: [`bars`] for one row, [`lines`] for a row along an axis. Both have logarithmic scales, because
//! competitors differ by factors. Colours are classes `c0`, `c1`, …, which the page's style sheet defines.

use std::fmt::Write as _;

use super::figures::Spread;

pub struct Bar {
    pub label: String,
    /// The text beside the bar.
    pub text: String,
    pub colour: usize,
    pub spread: Spread,
}

pub struct Line {
    pub label: String,
    pub colour: usize,
    /// By place on the axis.
    pub points: Vec<(f64, Spread)>,
}

const WIDTH: f64 = 720.0;
const BAR_HEIGHT: f64 = 26.0;
/// The space left of the bars for their labels, and right of them for the figures.
const LABELS: f64 = 130.0;
const TEXTS: f64 = 170.0;
/// The legend above a plot of lines, in columns.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_WIDTH: f64 = 160.0;
const LEGEND_HEIGHT: f64 = 18.0;

/// A logarithmic scale. Its ends are 1, 2 or 5 times a power of ten.
pub struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// `None` if no value is above zero.
    pub fn of(values: impl Iterator<Item = f64> + Clone, [start, end]: [f64; 2]) -> Option<Scale> {
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let min = values.clone().reduce(f64::min)?;
        let max = values.reduce(f64::max)?;
        let (from, to) = (step_at_most(min), step_at_least(max));
        let to = if to > from { to } else { from * 10.0 };
        Some(Scale { from, to, start, end })
    }

    pub fn place(&self, value: f64) -> f64 {
        let part = (value.clamp(self.from, self.to) / self.from).ln() / (self.to / self.from).ln();
        self.start + part * (self.end - self.start)
    }

    /// The values of the grid lines: decades, and steps between them if there are few decades.
    pub fn marks(&self) -> Vec<f64> {
        let is_long = self.to / self.from > 150.0;
        let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let steps = decades.flat_map(|decade| STEPS.map(|step| (step, step * 10f64.powi(decade))));
        let is_mark = |(step, value): &(f64, f64)| {
            (!is_long || *step == 1.0) && *value >= self.from * 0.999 && *value <= self.to * 1.001
        };
        steps.filter(is_mark).map(|(_, value)| value).collect()
    }
}

const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

fn step_at_most(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    STEPS.iter().rev().map(|step| step * decade).find(|step| *step <= value * 1.000_001).unwrap_or(decade)
}

fn step_at_least(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    STEPS.iter().map(|step| step * decade).find(|step| *step >= value * 0.999_999).unwrap_or(decade * 10.0)
}

/// One bar per competitor. `amount` formats a value of the scale.
pub fn bars(bars: &[Bar], amount: impl Fn(f64) -> String) -> String {
    let values = bars.iter().flat_map(|bar| [bar.spread.min, bar.spread.max]);
    // The scale begins below the smallest value, so that its bar has a length.
    let scaled = values.clone().filter(|value| *value > 0.0).map(|value| value / 2.0).chain(values);
    let Some(scale) = Scale::of(scaled.collect::<Vec<f64>>().into_iter(), [LABELS, WIDTH - TEXTS]) else {
        return String::new();
    };
    let height = bars.len() as f64 * BAR_HEIGHT;
    let mut svg = opened(height + 22.0);
    for mark in scale.marks() {
        let x = scale.place(mark);
        let _ = write!(svg, r#"<line class="grid" x1="{x:.1}" y1="0" x2="{x:.1}" y2="{height}"/>"#);
        let text = escaped(&amount(mark));
        let _ =
            write!(svg, r#"<text class="axis" x="{x:.1}" y="{:.1}" text-anchor="middle">{text}</text>"#, height + 15.0);
    }
    for (index, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, bar, index as f64 * BAR_HEIGHT, &scale);
    }
    svg + "</svg>"
}

fn draw_bar(svg: &mut String, bar: &Bar, top: f64, scale: &Scale) {
    let (middle, start) = (top + BAR_HEIGHT / 2.0, scale.start);
    let [min, median, max] = [bar.spread.min, bar.spread.median, bar.spread.max].map(|value| scale.place(value));
    let label = escaped(&bar.label);
    let (x, y) = (LABELS - 8.0, middle + 4.0);
    let _ = write!(svg, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{label}</text>"#);
    let (top, width, height) = (top + 4.0, (median - start).max(1.0), BAR_HEIGHT - 8.0);
    let colour = bar.colour;
    let _ = write!(
        svg,
        r#"<rect class="fill c{colour}" x="{start}" y="{top:.1}" width="{width:.1}" height="{height}" rx="2"/>"#
    );
    let _ = write!(svg, r#"<line class="whisker" x1="{min:.1}" y1="{middle}" x2="{max:.1}" y2="{middle}"/>"#);
    let _ = write!(svg, r#"<text x="{:.1}" y="{y:.1}">{}</text>"#, max + 7.0, escaped(&bar.text));
}

/// One line per competitor, along a logarithmic axis.
pub fn lines(lines: &[Line], amount: impl Fn(f64) -> String, place: impl Fn(f64) -> String) -> String {
    const HEIGHT: f64 = 260.0;
    let top = 12.0 + LEGEND_HEIGHT * lines.len().div_ceil(LEGEND_COLUMNS) as f64;
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Scale::of(points().map(|(at, _)| *at), [70.0, WIDTH - 20.0]);
    let up = Scale::of(points().flat_map(|(_, spread)| [spread.min, spread.max]), [HEIGHT, top]);
    let (Some(across), Some(up)) = (across, up) else { return String::new() };
    let mut svg = opened(HEIGHT + 24.0);
    for mark in up.marks() {
        let (y, text) = (up.place(mark), escaped(&amount(mark)));
        let _ = write!(svg, r#"<line class="grid" x1="70" y1="{y:.1}" x2="{}" y2="{y:.1}"/>"#, WIDTH - 20.0);
        let _ = write!(svg, r#"<text class="axis" x="64" y="{:.1}" text-anchor="end">{text}</text>"#, y + 4.0);
    }
    for mark in across.marks() {
        let (x, text) = (across.place(mark), escaped(&place(mark)));
        let _ = write!(svg, r#"<line class="grid" x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{HEIGHT}"/>"#);
        let y = HEIGHT + 16.0;
        let _ = write!(svg, r#"<text class="axis" x="{x:.1}" y="{y}" text-anchor="middle">{text}</text>"#);
    }
    for (index, line) in lines.iter().enumerate() {
        draw_line(&mut svg, line, [&across, &up]);
        let (colour, label) = (line.colour, escaped(&line.label));
        let x = 70.0 + LEGEND_WIDTH * (index % LEGEND_COLUMNS) as f64;
        let y = 6.0 + LEGEND_HEIGHT * (index / LEGEND_COLUMNS) as f64;
        let _ = write!(svg, r#"<rect class="fill c{colour}" x="{x}" y="{y}" width="12" height="12" rx="2"/>"#);
        let _ = write!(svg, r#"<text x="{}" y="{}">{label}</text>"#, x + 18.0, y + 10.0);
    }
    svg + "</svg>"
}

fn draw_line(svg: &mut String, line: &Line, [across, up]: [&Scale; 2]) {
    let (colour, mut path) = (line.colour, String::new());
    // Zero has no position on a logarithmic scale.
    for (at, spread) in line.points.iter().filter(|(_, spread)| spread.median > 0.0) {
        let [x, y, low, high] =
            [across.place(*at), up.place(spread.median), up.place(spread.min), up.place(spread.max)];
        let _ = write!(path, "{x:.1},{y:.1} ");
        let _ = write!(svg, r#"<line class="stroke c{colour}" x1="{x:.1}" y1="{low:.1}" x2="{x:.1}" y2="{high:.1}"/>"#);
        let _ = write!(svg, r#"<circle class="fill c{colour}" cx="{x:.1}" cy="{y:.1}" r="4"/>"#);
    }
    let _ = write!(svg, r#"<polyline class="stroke c{colour}" points="{}"/>"#, path.trim_end());
}

fn opened(height: f64) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#)
}

/// Escapes text for markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
