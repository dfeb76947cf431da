//! The report as one self-contained HTML page: tables, and plots of the rows.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;

use super::amounts::{amount, grouped};
use super::figures::{Figure, PARTS, Report, row_text};
use super::plots::{self, Bar, Line};
use crate::measure::competitor::Competitor;
use crate::measure::machine::Machine;
use crate::measure::scenario::Unit;

pub fn page(report: &Report, machine: &Machine, peers: &[Competitor], rounds: usize) -> Result<String, String> {
    let group = |group: &&str| {
        let plots = plots(report, group, peers)?;
        Ok(html! { h2 { (group) } (table(report, group)) (plots) })
    };
    let groups = report.groups().iter().map(group).collect::<Result<Vec<Markup>, String>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "jittison beside its peers" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "jittison beside its peers" }
                p { (machine.line()) "." }
                p {
                    "Medians over " (rounds) " rounds, in which all competitors take turns; minimum and maximum in brackets. \
                     Less is better, except for rates and for the speedup of two threads. Scales are logarithmic."
                }
                @for group in groups { (group) }
                @if !report.failures.is_empty() {
                    h2 { "failed" }
                    ul { @for (title, error) in &report.failures { li { (title) ": " (error) } } }
                }
                (configurations(peers))
            }
        }
    };
    Ok(page.into_string() + "\n")
}

fn configurations(peers: &[Competitor]) -> Markup {
    html! {
        h2 { "competitors" }
        table.words {
            tr { th { "competitor" } th { "version" } th { "set-up" } }
            @for peer in peers { tr { td { (peer.name) } td { (peer.version) } td { (peer.configuration) } } }
        }
    }
}

fn table(report: &Report, group: &str) -> Markup {
    let columns = report.columns(group);
    html! {
        table {
            tr { th { "what" } @for competitor in &columns { th { (competitor) } } th { "goal" } }
            @for row in report.rows(group) {
                tr {
                    td { (row_text(row)) }
                    @for competitor in &columns {
                        @match report.figure(group, row, competitor) {
                            Some(figure) => td { (figure.text()) small { (below(figure)) } },
                            None => td { "–" },
                        }
                    }
                    td.goal { (report.goal_text(group, row)) }
                }
            }
        }
    }
}

/// Mean, quantiles and CPU time, if they were measured.
fn below(figure: &Figure) -> String {
    let below = PARTS.iter().filter_map(|part| {
        let spread = figure.part(part)?;
        Some(format!("{} {}", part.name, amount(Unit::Nanoseconds, spread.median)))
    });
    below.collect::<Vec<String>>().join(", ")
}

/// A plot for each row with several competitors: lines along an axis, or bars if there is no axis or only one place
/// on it.
fn plots(report: &Report, group: &str, peers: &[Competitor]) -> Result<Markup, String> {
    let mut whats: Vec<&str> = report.rows(group).into_iter().map(|(what, _)| what).collect();
    whats.dedup();
    let mut plots = Vec::new();
    for what in whats {
        let is_of_row = |figure: &&Figure| figure.key.group == group && figure.key.what == what;
        let mut figures: Vec<&Figure> = report.figures.iter().filter(is_of_row).collect();
        // In the order of the tables' columns.
        figures.sort_by_key(|figure| column(&figure.key.competitor, peers));
        let Some(first) = figures.first().map(|figure| &figure.key) else { continue };
        if figures.iter().all(|figure| figure.key.competitor == first.competitor) {
            continue;
        }
        let is_of_one_place = figures.iter().all(|figure| figure.key.at == first.at);
        let plot = if is_of_one_place { bars_of(&figures, peers)? } else { lines_of(&figures, peers)? };
        if !plot.is_empty() {
            plots.push(html! { figure { figcaption { (what) } (PreEscaped(plot)) } });
        }
    }
    Ok(html! { @for plot in plots { (plot) } })
}

fn bars_of(figures: &[&Figure], peers: &[Competitor]) -> Result<String, String> {
    let unit = figures[0].unit;
    let bar = |figure: &&Figure| Bar {
        label: figure.key.competitor.clone(),
        text: amount(unit, figure.value().median),
        colour: colour(&figure.key.competitor, peers),
        spread: figure.value(),
    };
    plots::bars(&figures.iter().map(bar).collect::<Vec<Bar>>(), |value| amount(unit, value))
}

fn lines_of(figures: &[&Figure], peers: &[Competitor]) -> Result<String, String> {
    let mut lines: Vec<Line> = Vec::new();
    for figure in figures {
        let point = (figure.key.at.unwrap_or(0) as f64, figure.value());
        match lines.iter_mut().find(|line| line.label == figure.key.competitor) {
            Some(line) => line.points.push(point),
            None => {
                let (label, colour) = (figure.key.competitor.clone(), colour(&figure.key.competitor, peers));
                lines.push(Line { label, colour, points: vec![point] });
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    plots::lines(&lines, |value| amount(figures[0].unit, value), grouped)
}

/// The same colour for a competitor in all plots; unknown ones share the last colour.
fn colour(competitor: &str, peers: &[Competitor]) -> RGBColor {
    COLOURS[column(competitor, peers)]
}

fn column(competitor: &str, peers: &[Competitor]) -> usize {
    peers.iter().position(|peer| peer.name == competitor).unwrap_or(COLOURS.len() - 1).min(COLOURS.len() - 1)
}

const COLOURS: [RGBColor; 12] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb8, 0xa0, 0x00),
    RGBColor(0x7a, 0x4f, 0xbf),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0x2c, 0xa0, 0xa0),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x6b, 0x8e, 0x23),
];

/// The plots' texts and grid lines are found by the colours of `plots.rs`.
const STYLE: &str = r##"
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .3em .8em; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top }
th:first-child, td:first-child, th:last-child, td.goal, .words th, .words td { text-align: left }
small { display: block; color: #777 }
figure { margin: 1.2em 0 } figcaption { font-weight: 600; margin-bottom: .3em }
svg { max-width: 100%; height: auto } svg text { font-family: system-ui, sans-serif }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } th, td { border-color: #444 }
  [fill="#222222"] { fill: #ddd } [stroke="#222222"] { stroke: #ddd } [stroke="#DDDDDD"] { stroke: #444 }
}
"##;
