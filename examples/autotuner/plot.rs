//! Draws a run over time as SVG: speed, live versions and switches, in three panels over one time axis.
//!
//! Thin vertical lines mark new champions. Switches, thousands of them, are drawn as a rate.

use std::fmt::Write;

use crate::axis::{escape, nice_step, ticks, trimmed};
use crate::problem::Kernel;
use crate::run::Summary;
use crate::suite::Suite;
use crate::watch::Sample;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 150.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
const GAP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
const MAX_MEANS: usize = 60;

/// One panel.
struct Panel<'a> {
    top: f64,
    label: &'a str,
    colour: &'a str,
    points: Vec<(f64, f64)>,
}

/// Draws a run.
pub fn svg(summary: &Summary, suite: &Suite) -> String {
    let samples = &summary.samples;
    let seconds = samples.last().map_or(0.0, |last| last.seconds).max(0.001);
    let series = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(|s| (s.seconds, of(s))).collect::<Vec<_>>();
    let top = |number: u32| TOP + f64::from(number) * (PANEL + GAP);
    let panels = [
        Panel {
            top: top(0),
            label: "GFLOP/s of all callers",
            colour: "#1c62b5",
            points: series(&|sample| sample.gigaflops),
        },
        Panel {
            top: top(1),
            label: "live versions, maximum per sample",
            colour: "#b5541c",
            points: series(&|sample| sample.versions as f64),
        },
        Panel {
            top: top(2),
            label: "switches per second",
            colour: "#4a7a2a",
            points: averaged(&series(&|sample| sample.switches)),
        },
    ];
    let floor = top(2) + PANEL;
    let mut out = String::new();
    write_header(&mut out, summary, floor + BOTTOM);
    new_champions(&mut out, summary, suite, seconds);
    panels.iter().for_each(|panel| panel.draw(&mut out, seconds));
    write_time_axis(&mut out, floor, seconds);
    out
}

/// Averages several samples: a round of the tuner is about as long as one sample, so single samples alternate.
fn averaged(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |points: &[(f64, f64)]| {
        let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
    };
    points.chunks(points.len().div_ceil(MAX_MEANS).max(1)).map(mean).collect()
}

// Writing to a string cannot fail, here and below.
fn write_header(out: &mut String, summary: &Summary, height: f64) {
    let (switches, callers, mode) = (summary.switches(), summary.callers, summary.mode.name());
    let (wrong, dropped) = (summary.wrong, summary.dropped());
    let title = format!("{switches} switches under {callers} callers, mode {mode}: {wrong} wrong, {dropped} dropped");
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>",
        escape(&title)
    );
}

/// Marks the new champions, and explains the colours of the marks.
fn new_champions(out: &mut String, summary: &Summary, suite: &Suite, seconds: f64) {
    let legend = Kernel::ALL.map(|kernel| (kernel, colour_of(kernel)));
    for (number, (kernel, colour)) in legend.into_iter().enumerate() {
        let (x, name) = (LEFT + 180.0 * number as f64, kernel.name());
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"34\" x2=\"{x}\" y2=\"48\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"46\">{name}: a new champion</text>",
            x + 6.0
        );
    }
    for new_champion in summary.new_champions.iter().filter(|new_champion| new_champion.seconds <= seconds) {
        let (x, colour) = (x_of(new_champion.seconds, seconds), colour_of(new_champion.kernel));
        let name = &suite.variants(new_champion.kernel)[new_champion.variant].name;
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"{colour}\"><title>{}: {}</title></line>",
            TOP + PANEL,
            new_champion.kernel.name(),
            escape(name)
        );
    }
}

fn colour_of(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Gemm => "#d9a0a0",
        Kernel::Stencil => "#a0c8a0",
    }
}

impl Panel<'_> {
    fn draw(&self, out: &mut String, seconds: f64) {
        let largest = self.points.iter().map(|&(_, y)| y).fold(0.0, f64::max).max(1e-3);
        let step = nice_step(largest, 4.0);
        let most = (largest / step).ceil() * step;
        let (floor, right) = (self.top + PANEL, WIDTH - RIGHT);
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", self.top - 8.0, escape(self.label));
        for tick in ticks(most, step) {
            let y = floor - tick / most * PANEL;
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                trimmed(tick, step)
            );
        }
        for tick in ticks(seconds, nice_step(seconds, 8.0)) {
            let (x, end) = (x_of(tick, seconds), floor + 5.0);
            let _ = writeln!(out, "<line x1=\"{x:.1}\" y1=\"{floor}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#888\"/>");
        }
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{right}\" y2=\"{floor}\" stroke=\"#888\"/>\n\
             <polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\" points=\"",
            self.colour
        );
        for &(x, y) in &self.points {
            let _ = write!(out, "{:.1},{:.1} ", x_of(x, seconds), floor - y / most * PANEL);
        }
        out.push_str("\"/>\n");
    }
}

fn write_time_axis(out: &mut String, floor: f64, seconds: f64) {
    let step = nice_step(seconds, 8.0);
    for tick in ticks(seconds, step) {
        let (x, y, label) = (x_of(tick, seconds), floor + 18.0, trimmed(tick, step));
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
    }
    let (x, y) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, floor + 38.0);
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">seconds</text>\n</svg>");
}

fn x_of(at: f64, seconds: f64) -> f64 {
    LEFT + at / seconds * (WIDTH - LEFT - RIGHT)
}
