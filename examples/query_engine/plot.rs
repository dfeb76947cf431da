//! Draws live code and resident memory over the time of a run, as SVG.
//!
//! The two differ by orders of magnitude, so each has its own panel over the same time axis. Both panels start at zero.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::measure::Sample;

const SIZE: (u32, u32) = (800, 560);
const CODE: RGBColor = RGBColor(0xb5, 0x54, 0x1c);
const RESIDENT: RGBColor = RGBColor(0x1c, 0x62, 0xb5);

/// Draws the samples of a run.
pub fn svg(samples: &[Sample], title: &str) -> Result<String, Box<dyn Error>> {
    let series = |of: fn(&Sample) -> u64| samples.iter().map(|sample| (sample.seconds, of(sample) as f64)).collect();
    let mut out = String::new();
    let drawing = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
    drawing.fill(&WHITE)?;
    let below_title = drawing.titled(title, ("sans-serif", 16))?;
    let (upper, lower) = below_title.split_vertically(below_title.dim_in_pixel().1 / 2);
    panel(&upper, "live code", CODE, series(|sample| sample.code))?;
    panel(&lower, "resident memory", RESIDENT, series(|sample| sample.resident))?;
    drawing.present()?;
    drop((drawing, below_title, upper, lower));
    Ok(out)
}

/// Draws one panel. The points are seconds and bytes.
fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    label: &str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
) -> Result<(), Box<dyn Error>> {
    let seconds = points.last().map_or(0.0, |&(at, _)| at).max(0.001);
    let largest = points.iter().map(|&(_, bytes)| bytes).fold(1.0, f64::max);
    let (unit, name) = match largest {
        l if l >= 1_048_576.0 => (1_048_576.0, "MiB"),
        l if l >= 1_024.0 => (1_024.0, "KiB"),
        _ => (1.0, "bytes"),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{label} ({name})"), ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..seconds, 0.0..largest / unit * 1.05)?;
    chart.configure_mesh().disable_x_mesh().y_labels(6).x_desc("seconds").draw()?;
    chart.draw_series(LineSeries::new(points.into_iter().map(|(at, bytes)| (at, bytes / unit)), colour))?;
    Ok(())
}
