//! Plots as SVG, drawn by `plotters`: [`bars`] for one row, [`lines`] for a row along an axis. Both have logarithmic
//! scales, because competitors differ by factors. There is no background, and a style sheet can tell texts and grid
//! lines by their colours, so a page can have a dark form.
//!
//! The ticks of an axis are chosen here: those of `plotters` lie at decades only, or at ten even steps between them.

use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::spread::Spread;

pub struct Bar {
    pub label: String,
    /// The text beside the bar.
    pub text: String,
    pub colour: RGBColor,
    pub spread: Spread,
}

pub struct Line {
    pub label: String,
    pub colour: RGBColor,
    /// By place on the axis.
    pub points: Vec<(f64, Spread)>,
}

/// An error of `plotters`, which cannot happen in a string.
pub type Drawn<T> = Result<T, Box<dyn std::error::Error>>;
pub type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub const FAINT: RGBColor = RGBColor(0x77, 0x77, 0x77);
pub const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// For axes and for other text. SVG gives a letter four fifths of this.
pub const SMALL: u32 = 14;
pub const NORMAL: u32 = 16;

/// A drawing of this size. The markup names neither fonts nor scripts of other files.
pub fn drawing(size: (u32, u32), draw: impl FnOnce(&Root) -> Drawn<()>) -> Result<String, String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&root).and_then(|()| Ok(root.present()?)).map_err(|error| error.to_string())?;
    drop(root);
    Ok(svg)
}

pub fn text(colour: RGBColor, size: u32, across: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour).pos(Pos::new(across, VPos::Center))
}

/// A logarithmic axis. Its ends are 1, 2 or 5 times a power of ten.
#[derive(Clone, Copy)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
}

impl Axis {
    /// `None` if no value is above zero.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        let decade = |value: f64| 10f64.powf(value.log10().floor());
        let below = STEPS.map(|step| step * decade(min));
        let above = STEPS.map(|step| step * decade(max));
        let from = below.into_iter().rfind(|step| *step <= min * 1.000_001).unwrap_or(below[0]);
        let to = above.into_iter().find(|step| *step >= max * 0.999_999).unwrap_or(above[0] * 10.0);
        Some(Axis { from, to: if to > from { to } else { from * 10.0 } })
    }

    pub fn coordinates(&self) -> WithKeyPoints<LogCoord<f64>> {
        (self.from..self.to).log_scale().with_key_points(self.ticks())
    }

    /// Values outside lie at the ends. Zero has no place on a logarithmic axis.
    pub fn inside(&self, value: f64) -> f64 {
        value.clamp(self.from, self.to)
    }

    /// Decades, and steps between them if there are few decades.
    fn ticks(&self) -> Vec<f64> {
        let steps = if self.to / self.from > 150.0 { &STEPS[..1] } else { &STEPS };
        let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        ticks.filter(|tick| (self.from * 0.999..=self.to * 1.001).contains(tick)).collect()
    }
}

const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

const WIDTH: u32 = 760;
const BAR_HEIGHT: i32 = 26;

/// One bar per competitor. `amount` formats a value of the scale. Empty if no value is above zero.
pub fn bars(bars: &[Bar], amount: impl Fn(f64) -> String) -> Result<String, String> {
    // The scale begins below the smallest value, so that its bar has a length.
    let values = bars.iter().flat_map(|bar| [bar.spread.min / 2.0, bar.spread.max]);
    let Some(axis) = Axis::of(values) else { return Ok(String::new()) };
    let tops = || (0..bars.len() as i32).map(|place| place * BAR_HEIGHT);
    let height = bars.len() as i32 * BAR_HEIGHT;
    drawing((WIDTH, height as u32 + 22), |root| {
        let middles = (height..0).with_key_points(tops().map(|top| top + BAR_HEIGHT / 2).collect());
        let mut chart = ChartBuilder::on(root)
            .margin_right(170)
            .x_label_area_size(22)
            .y_label_area_size(130)
            .build_cartesian_2d(axis.coordinates(), middles)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .axis_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_label_style(text(FAINT, SMALL, HPos::Center))
            .y_label_style(text(TEXT, NORMAL, HPos::Right))
            .x_label_formatter(&|value| amount(*value))
            .y_label_formatter(&|middle| bars[(*middle / BAR_HEIGHT) as usize].label.clone())
            .draw()?;
        for (bar, top) in bars.iter().zip(tops()) {
            let [min, median, max] =
                [bar.spread.min, bar.spread.median, bar.spread.max].map(|value| axis.inside(value));
            let (corners, middle) = ([(axis.from, top + 4), (median, top + BAR_HEIGHT - 4)], top + BAR_HEIGHT / 2);
            chart.draw_series([Rectangle::new(corners, bar.colour.filled())])?;
            chart.draw_series([PathElement::new([(min, middle), (max, middle)], TEXT.stroke_width(2))])?;
            let beside = Text::new(bar.text.clone(), (7, 0), text(TEXT, NORMAL, HPos::Left));
            chart.draw_series([EmptyElement::at((max, middle)) + beside])?;
        }
        Ok(())
    })
}

/// The space right of a plot of lines.
const LEGEND: i32 = 170;

/// One line per competitor, along a logarithmic axis, with a legend beside it. Empty if no value is above zero.
pub fn lines(lines: &[Line], amount: impl Fn(f64) -> String, place: impl Fn(f64) -> String) -> Result<String, String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::of(points().map(|(at, _)| *at));
    let up = Axis::of(points().flat_map(|(_, spread)| [spread.min, spread.max]));
    let (Some(across), Some(up)) = (across, up) else { return Ok(String::new()) };
    drawing((WIDTH, 284), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_top(10)
            .margin_right(LEGEND)
            .x_label_area_size(24)
            .y_label_area_size(70)
            .build_cartesian_2d(across.coordinates(), up.coordinates())?;
        chart
            .configure_mesh()
            .axis_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_label_style(text(FAINT, SMALL, HPos::Center))
            .y_label_style(text(FAINT, SMALL, HPos::Right))
            .x_label_formatter(&|value| place(*value))
            .y_label_formatter(&|value| amount(*value))
            .draw()?;
        for line in lines {
            let colour = line.colour;
            let above_zero = line.points.iter().filter(|(_, spread)| spread.median > 0.0);
            chart.draw_series(above_zero.clone().map(|(at, Spread { median, min, max })| {
                ErrorBar::new_vertical(*at, up.inside(*min), *median, *max, colour.filled(), 8)
            }))?;
            let medians = above_zero.map(|(at, spread)| (*at, spread.median));
            chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)))?;
        }
        for (line, top) in lines.iter().zip((8..).step_by(18)) {
            draw_legend(root, (WIDTH as i32 - LEGEND + 12, top), &line.label, line.colour)?;
        }
        Ok(())
    })
}

/// A name of the legend, beside its colour.
pub fn draw_legend(root: &Root, (left, top): (i32, i32), name: &str, colour: RGBColor) -> Drawn<()> {
    root.draw(&Rectangle::new([(left, top), (left + 11, top + 11)], colour.filled()))?;
    root.draw(&Text::new(name, (left + 16, top + 6), text(TEXT, NORMAL, HPos::Left)))?;
    Ok(())
}
