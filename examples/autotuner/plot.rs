//! Draws a run over time as SVG: speed, live versions and switches, in three panels over the same time axis.
//!
//! Thin vertical lines mark new champions. There are thousands of switches, so they are drawn as a rate.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::problem::Kernel;
use crate::run::Summary;
use crate::watch::Sample;

const SIZE: (u32, u32) = (900, 720);
const MAX_MEANS: usize = 60;

const SPEED: RGBColor = RGBColor(0x1c, 0x62, 0xb5);
const VERSIONS: RGBColor = RGBColor(0xb5, 0x54, 0x1c);
const SWITCHES: RGBColor = RGBColor(0x4a, 0x7a, 0x2a);

/// One panel.
struct Panel<'a> {
    label: &'a str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
    /// Times of new champions, by kernel.
    new_champions: Vec<(Kernel, Vec<f64>)>,
}

/// Draws a run.
pub fn svg(summary: &Summary) -> Result<String, Box<dyn Error>> {
    let samples = &summary.samples;
    let seconds = samples.last().map_or(0.0, |last| last.seconds).max(0.001);
    let series = |of: fn(&Sample) -> f64| samples.iter().map(|sample| (sample.seconds, of(sample))).collect::<Vec<_>>();
    let times_of = |kernel| {
        let of_kernel = summary.new_champions.iter().filter(|champion| champion.kernel == kernel);
        (kernel, of_kernel.map(|champion| champion.seconds).filter(|at| *at <= seconds).collect())
    };
    let panels = [
        Panel {
            label: "GFLOP/s of all callers",
            colour: SPEED,
            points: series(|sample| sample.gigaflops),
            new_champions: Kernel::ALL.map(times_of).to_vec(),
        },
        Panel {
            label: "live versions, maximum per sample",
            colour: VERSIONS,
            points: series(|sample| sample.versions as f64),
            new_champions: Vec::new(),
        },
        Panel {
            label: "switches per second",
            colour: SWITCHES,
            points: averaged(&series(|sample| sample.switches)),
            new_champions: Vec::new(),
        },
    ];
    let mut out = String::new();
    let drawing = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
    drawing.fill(&WHITE)?;
    let below_title = drawing.titled(&title(summary), ("sans-serif", 16))?;
    for (panel, area) in panels.iter().zip(below_title.split_evenly((panels.len(), 1))) {
        panel.draw(&area, seconds)?;
    }
    drawing.present()?;
    drop((drawing, below_title));
    Ok(out)
}

fn title(summary: &Summary) -> String {
    let (switches, callers, mode) = (summary.switches(), summary.callers, summary.mode.name());
    let (wrong, dropped) = (summary.wrong, summary.dropped());
    format!("{switches} switches under {callers} callers, mode {mode}: {wrong} wrong, {dropped} dropped")
}

/// Averages several samples: a round of the tuner is about as long as one sample, so single samples alternate.
fn averaged(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |points: &[(f64, f64)]| {
        let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / points.len() as f64, sum.1 / points.len() as f64)
    };
    points.chunks(points.len().div_ceil(MAX_MEANS).max(1)).map(mean).collect()
}

impl Panel<'_> {
    fn draw(&self, area: &DrawingArea<SVGBackend, Shift>, seconds: f64) -> Result<(), Box<dyn Error>> {
        let top = self.points.iter().map(|&(_, y)| y).fold(1e-3, f64::max) * 1.05;
        let mut chart = ChartBuilder::on(area)
            .caption(self.label, ("sans-serif", 13))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..seconds, 0.0..top)?;
        chart.configure_mesh().disable_x_mesh().y_labels(5).x_desc("seconds").draw()?;
        for (kernel, times) in &self.new_champions {
            let colour = colour_of(*kernel);
            let lines = times.iter().map(|&at| PathElement::new([(at, 0.0), (at, top)], colour));
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour);
            chart.draw_series(lines)?.label(format!("{}: a new champion", kernel.name())).legend(legend);
        }
        chart.draw_series(LineSeries::new(self.points.iter().copied(), self.colour))?;
        if !self.new_champions.is_empty() {
            chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        }
        Ok(())
    }
}

fn colour_of(kernel: Kernel) -> RGBColor {
    match kernel {
        Kernel::Gemm => RGBColor(0xd9, 0xa0, 0xa0),
        Kernel::Stencil => RGBColor(0xa0, 0xc8, 0xa0),
    }
}
