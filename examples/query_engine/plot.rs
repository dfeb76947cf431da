//! Draws live code and resident memory over the time of a run, as SVG.
//!
//! The two differ by orders of magnitude, so each has its own panel over a common time axis. Both panels start at
//! zero.

use std::fmt::Write;

use crate::axis::{escape, nice_step, ticks, trimmed};
use crate::measure::Sample;

const WIDTH: f64 = 800.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 56.0;
const GAP: f64 = 52.0;
const BOTTOM: f64 = 52.0;

/// Draws the samples of a run.
pub fn svg(samples: &[Sample], title: &str) -> String {
    let height = TOP + PANEL + GAP + PANEL + BOTTOM;
    let seconds = samples.last().map_or(0.0, |last| last.seconds).max(0.001);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>",
        escape(title)
    );
    let code: Vec<(f64, f64)> = samples.iter().map(|s| (s.seconds, s.code as f64)).collect();
    let resident: Vec<(f64, f64)> = samples.iter().map(|s| (s.seconds, s.resident as f64)).collect();
    panel(&mut out, TOP, "live code", "#b5541c", &code, seconds);
    let second = TOP + PANEL + GAP;
    panel(&mut out, second, "resident memory", "#1c62b5", &resident, seconds);
    let step = nice_step(seconds, 8.0);
    let floor = second + PANEL;
    for tick in ticks(seconds, step) {
        let x = x_of(tick, seconds);
        let label = trimmed(tick, step);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", floor + 18.0);
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">seconds</text>\n</svg>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        floor + 38.0
    );
    out
}

/// One panel: grid, labels and the line.
fn panel(out: &mut String, top: f64, label: &str, colour: &str, points: &[(f64, f64)], seconds: f64) {
    let largest = points.iter().map(|&(_, y)| y).fold(0.0, f64::max);
    let (unit, name) = match largest {
        l if l >= 1_048_576.0 => (1_048_576.0, "MiB"),
        l if l >= 1_024.0 => (1_024.0, "KiB"),
        _ => (1.0, "bytes"),
    };
    let top_value = (largest / unit).max(1.0);
    let step = nice_step(top_value, 5.0);
    let top_value = (top_value / step).ceil() * step;
    let right = WIDTH - RIGHT;
    let floor = top + PANEL;
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{:.1}\">{label} ({name})</text>", top - 10.0);
    for tick in ticks(top_value, step) {
        let y = floor - tick / top_value * PANEL;
        let text = trimmed(tick, step);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    for tick in ticks(seconds, nice_step(seconds, 8.0)) {
        let x = x_of(tick, seconds);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{floor:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#888\"/>",
            floor + 5.0
        );
    }
    let _ = write!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{floor:.1}\" x2=\"{right}\" y2=\"{floor:.1}\" stroke=\"#888\"/>\n\
         <polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\" points=\""
    );
    for &(x, y) in points {
        let (x, y) = (x_of(x, seconds), floor - y / unit / top_value * PANEL);
        let _ = write!(out, "{x:.1},{y:.1} ");
    }
    out.push_str("\"/>\n");
}

fn x_of(at: f64, seconds: f64) -> f64 {
    LEFT + at / seconds * (WIDTH - LEFT - RIGHT)
}
