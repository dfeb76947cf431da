//! The report as one self-contained HTML page: tables, and plots of the rows.

use std::fmt::Write as _;

use super::figures::{Figure, Report, amount, grouped, row_text};
use super::svg::{self, Bar, Line, escaped};
use crate::measure::competitor::Competitor;
use crate::measure::machine::Machine;
use crate::measure::scenario::Unit;

pub fn page(report: &Report, machine: &Machine, peers: &[Competitor], rounds: usize) -> String {
    let (machine, mut body) = (escaped(&machine.line()), String::new());
    for group in report.groups() {
        let _ = write!(body, "<h2>{}</h2>", escaped(group));
        body.push_str(&table(report, group));
        body.push_str(&plots(report, group, peers));
    }
    if !report.failures.is_empty() {
        body.push_str("<h2>failed</h2><ul>");
        for (title, error) in &report.failures {
            let _ = write!(body, "<li>{}: {}</li>", escaped(title), escaped(error));
        }
        body.push_str("</ul>");
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>jittison beside its peers</title>\
         <style>{STYLE}</style></head><body><h1>jittison beside its peers</h1><p>{machine}.</p>\
         <p>Medians over {rounds} rounds, in which all competitors take turns; minimum and maximum in brackets. Less is better, \
         except for rates and for the speedup of two threads. Scales are logarithmic.</p>{body}{}</body></html>\n",
        configurations(peers)
    )
}

fn configurations(peers: &[Competitor]) -> String {
    let row = |Competitor { name, version, configuration }: &Competitor| {
        format!("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(name), escaped(version), escaped(configuration))
    };
    let rows: String = peers.iter().map(row).collect();
    format!(
        "<h2>competitors</h2><table class=\"words\"><tr><th>competitor</th><th>version</th><th>set-up</th></tr>{rows}</table>"
    )
}

fn table(report: &Report, group: &str) -> String {
    let columns = report.columns(group);
    let mut table = String::from("<table><tr><th>what</th>");
    columns.iter().for_each(|competitor| table.push_str(&format!("<th>{}</th>", escaped(competitor))));
    table.push_str("<th>goal</th></tr>");
    for row in report.rows(group) {
        let _ = write!(table, "<tr><td>{}</td>", escaped(&row_text(row)));
        for competitor in &columns {
            table.push_str(&report.figure(group, row, competitor).map_or_else(|| "<td>–</td>".to_string(), cell));
        }
        let _ = write!(table, "<td class=\"goal\">{}</td></tr>", escaped(&report.goal_text(group, row)));
    }
    table + "</table>"
}

/// A figure; p99 and CPU time are below it if they were measured.
fn cell(figure: &Figure) -> String {
    let below = [("p99", figure.p99()), ("CPU", figure.cpu())].map(|(name, spread)| {
        let median = spread.map(|spread| amount(Unit::Nanoseconds, spread.median));
        median.map(|median| format!("{name} {median}"))
    });
    let below = below.into_iter().flatten().collect::<Vec<String>>().join(", ");
    format!("<td>{}<small>{}</small></td>", escaped(&figure.text()), escaped(&below))
}

/// A plot for each row with several competitors: lines along an axis, or bars if there is no axis or only one place
/// on it.
fn plots(report: &Report, group: &str, peers: &[Competitor]) -> String {
    let mut whats: Vec<&str> = report.rows(group).into_iter().map(|(what, _)| what).collect();
    whats.dedup();
    let mut plots = String::new();
    for what in whats {
        let is_of_row = |figure: &&Figure| figure.key.group == group && figure.key.what == what;
        let mut figures: Vec<&Figure> = report.figures.iter().filter(is_of_row).collect();
        // In the order of the tables' columns.
        figures.sort_by_key(|figure| colour(&figure.key.competitor, peers));
        let Some(first) = figures.first().map(|figure| &figure.key) else { continue };
        if figures.iter().all(|figure| figure.key.competitor == first.competitor) {
            continue;
        }
        let is_of_one_place = figures.iter().all(|figure| figure.key.at == first.at);
        let plot = if is_of_one_place { bars_of(&figures, peers) } else { lines_of(&figures, peers) };
        if !plot.is_empty() {
            let _ = write!(plots, "<figure><figcaption>{}</figcaption>{plot}</figure>", escaped(what));
        }
    }
    plots
}

fn bars_of(figures: &[&Figure], peers: &[Competitor]) -> String {
    let unit = figures[0].unit;
    let bar = |figure: &&Figure| Bar {
        label: figure.key.competitor.clone(),
        text: amount(unit, figure.value().median),
        colour: colour(&figure.key.competitor, peers),
        spread: figure.value(),
    };
    svg::bars(&figures.iter().map(bar).collect::<Vec<Bar>>(), |value| amount(unit, value))
}

fn lines_of(figures: &[&Figure], peers: &[Competitor]) -> String {
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
    svg::lines(&lines, |value| amount(figures[0].unit, value), grouped)
}

/// The same colour for a competitor in all plots; unknown ones share the last colour.
fn colour(competitor: &str, peers: &[Competitor]) -> usize {
    peers.iter().position(|peer| peer.name == competitor).unwrap_or(COLOURS - 1).min(COLOURS - 1)
}

const COLOURS: usize = 12;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
th, td { padding: .3em .8em; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top }
th:first-child, td:first-child, th:last-child, td.goal, .words th, .words td { text-align: left }
small { display: block; color: #777 }
figure { margin: 1.2em 0 } figcaption { font-weight: 600; margin-bottom: .3em }
svg { max-width: 100%; height: auto; font-size: 13px } svg text { fill: #222 } svg .axis { fill: #777; font-size: 11px }
.grid { stroke: #ddd } .whisker { stroke: #222; stroke-width: 2 } .stroke { fill: none; stroke-width: 2 }
.fill.c0 { fill: #d55e00 } .stroke.c0 { stroke: #d55e00 } .fill.c1 { fill: #0072b2 } .stroke.c1 { stroke: #0072b2 }
.fill.c2 { fill: #56b4e9 } .stroke.c2 { stroke: #56b4e9 } .fill.c3 { fill: #009e73 } .stroke.c3 { stroke: #009e73 }
.fill.c4 { fill: #999 } .stroke.c4 { stroke: #999 } .fill.c5 { fill: #cc79a7 } .stroke.c5 { stroke: #cc79a7 }
.fill.c6 { fill: #b8a000 } .stroke.c6 { stroke: #b8a000 }
.fill.c7 { fill: #7a4fbf } .stroke.c7 { stroke: #7a4fbf } .fill.c8 { fill: #8c564b } .stroke.c8 { stroke: #8c564b }
.fill.c9 { fill: #2ca0a0 } .stroke.c9 { stroke: #2ca0a0 } .fill.c10 { fill: #e69f00 } .stroke.c10 { stroke: #e69f00 }
.fill.c11 { fill: #6b8e23 } .stroke.c11 { stroke: #6b8e23 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 } svg text { fill: #ddd } .whisker { stroke: #ddd }
  th, td { border-color: #444 } .grid { stroke: #444 }
}
";
