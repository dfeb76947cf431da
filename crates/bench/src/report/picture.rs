//! One picture of a run: how many times better jittison is than each other competitor, in the main rows. It is for
//! pages that show only the picture. It contains its colours, light and dark, and needs no script and no font.

use std::fmt::Write as _;

use super::figures::{Report, grouped};
use super::svg::{Scale, escaped};
use crate::measure::competitor::{JITTISON, NO_LINKERS};
use crate::measure::machine::Machine;
use crate::measure::rows::{self, Row};
use crate::measure::scenario::Unit;

/// The rows that are drawn, with short labels.
const MAIN: [(&str, Row, Option<u64>); 7] = [
    ("link a small object", rows::LINK_SMALL, None),
    ("link a medium object", rows::LINK_MEDIUM, None),
    ("remove one of 5,000", rows::REMOVE, Some(5_000)),
    ("churn among 1,000", rows::CHURN_RATE, Some(1_000)),
    ("hot swap", rows::SWAP, None),
    ("look a symbol up", rows::LOOKUP, Some(1_000)),
    ("memory of each of 1,000", rows::RESIDENT, Some(1_000)),
];

/// How many times better than each peer, in one row.
struct Group {
    label: &'static str,
    /// By the peer's index in the legend.
    factors: Vec<(usize, f64)>,
}

/// `None` if no peer has a figure in a main row.
pub fn picture(report: &Report, machine: &Machine, rounds: usize) -> Option<String> {
    let peers = peers(report);
    let groups: Vec<Group> = MAIN.iter().filter_map(|main| group(report, &peers, main)).collect();
    let factors = || groups.iter().flat_map(|group| group.factors.iter().map(|(_, factor)| *factor));
    let scale =
        Scale::of([1.0].into_iter().chain(factors()).collect::<Vec<f64>>().into_iter(), [LABELS, WIDTH - TEXTS]);
    let scale = scale.filter(|_| !groups.is_empty())?;
    let bars: usize = groups.iter().map(|group| group.factors.len()).sum();
    let bottom = TOP + bars as f64 * BAR + groups.len() as f64 * GAP;
    let mut svg = opened(bottom + FOOT);
    draw_title(&mut svg, &peers);
    draw_grid(&mut svg, &scale, bottom);
    let mut top = TOP;
    for group in &groups {
        draw_group(&mut svg, group, &scale, top);
        top += group.factors.len() as f64 * BAR + GAP;
    }
    let Machine { processor, cores, date, .. } = machine;
    let date = date.split('T').next().unwrap_or(date);
    let rounds = if rounds == 1 { "one round".to_string() } else { format!("medians of {rounds} rounds") };
    let foot = format!("{rounds}, all in turns in one run; {date}, {processor}, {cores} cores");
    text(&mut svg, "small", [8.0, bottom + FOOT - 8.0], &foot);
    Some(svg + "</svg>\n")
}

/// The peers in any of the rows, in the order of the tables' columns.
fn peers(report: &Report) -> Vec<&str> {
    let mut peers: Vec<&str> = Vec::new();
    for competitor in MAIN.iter().flat_map(|(_, row, _)| report.columns(row.group)) {
        if competitor != JITTISON && !NO_LINKERS.contains(&competitor) && !peers.contains(&competitor) {
            peers.push(competitor);
        }
    }
    peers.retain(|competitor| {
        MAIN.iter().any(|(_, row, at)| report.figure(row.group, (row.what, *at), competitor).is_some())
    });
    peers
}

/// `None` if no peer has a figure in the row.
fn group(report: &Report, peers: &[&str], (label, row, at): &(&'static str, Row, Option<u64>)) -> Option<Group> {
    let figure = |competitor: &str| report.figure(row.group, (row.what, *at), competitor);
    let ours = figure(JITTISON)?;
    let factor = |competitor: &&str| {
        let (ours_value, theirs) = (ours.value().median, figure(competitor)?.value().median);
        let factor = if ours.unit == Unit::PerSecond { ours_value / theirs } else { theirs / ours_value };
        (factor.is_finite() && factor > 0.0).then_some(factor)
    };
    let factors: Vec<(usize, f64)> =
        peers.iter().enumerate().filter_map(|(place, competitor)| Some((place, factor(competitor)?))).collect();
    (!factors.is_empty()).then_some(Group { label, factors })
}

const WIDTH: f64 = 760.0;
/// The space left of the bars for the rows' labels, and right of them for the last figure.
const LABELS: f64 = 190.0;
const TEXTS: f64 = 60.0;
const TOP: f64 = 66.0;
const BAR: f64 = 15.0;
/// The space between groups of bars.
const GAP: f64 = 12.0;
/// The space below the bars, for the axis and a line of text.
const FOOT: f64 = 50.0;

fn opened(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"How many times better jittison is than its peers\"><style>{STYLE}</style>"
    )
}

/// The title, and the legend of colours.
fn draw_title(svg: &mut String, peers: &[&str]) {
    text(svg, "title", [8.0, 20.0], "How many times better jittison is than");
    let mut left = 8.0;
    for (place, competitor) in peers.iter().enumerate() {
        rectangle(svg, place, [left, 34.0, 11.0, 11.0]);
        text(svg, "word", [left + 16.0, 44.0], competitor);
        // The font is unknown; this width per letter is enough on average.
        left += 16.0 + competitor.chars().count() as f64 * 7.5 + 14.0;
    }
}

fn draw_grid(svg: &mut String, scale: &Scale, bottom: f64) {
    for mark in scale.marks() {
        let (x, class) = (scale.place(mark), if mark == 1.0 { "one" } else { "grid" });
        let _ = write!(svg, r#"<line class="{class}" x1="{x:.1}" y1="{}" x2="{x:.1}" y2="{bottom}"/>"#, TOP - 6.0);
        let mark = if mark < 1.0 { format!("{mark}×") } else { format!("{}×", grouped(mark)) };
        text(svg, "mark", [x, bottom + 15.0], &mark);
    }
}

/// Bars begin at one, which means no difference. They extend to the left if the peer is better.
fn draw_group(svg: &mut String, group: &Group, scale: &Scale, top: f64) {
    let middle = top + group.factors.len() as f64 * BAR / 2.0;
    text(svg, "row", [LABELS - 10.0, middle + 4.0], group.label);
    for (index, (place, factor)) in group.factors.iter().enumerate() {
        let (top, one, end) = (top + index as f64 * BAR, scale.place(1.0), scale.place(*factor));
        rectangle(svg, *place, [one.min(end), top + 1.0, (end - one).abs().max(1.0), BAR - 2.0]);
        let factor = if *factor < 9.95 { format!("{factor:.1}×") } else { format!("{}×", grouped(*factor)) };
        text(svg, "word", [one.max(end) + 5.0, top + BAR - 4.0], &factor);
    }
}

fn rectangle(svg: &mut String, place: usize, [x, y, width, height]: [f64; 4]) {
    let colour = place % COLOURS;
    let _ = write!(
        svg,
        r#"<rect class="c{colour}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
    );
}

fn text(svg: &mut String, class: &str, [x, y]: [f64; 2], content: &str) {
    let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(content));
}

const COLOURS: usize = 6;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}.row{text-anchor:end;font-size:13px}\
.mark{text-anchor:middle;font-size:11px}.mark,.small{fill:#6a737d}.small{font-size:11px}\
.grid{stroke:#d0d7de}.one{stroke:#6a737d}\
.c0{fill:#0072b2}.c1{fill:#56b4e9}.c2{fill:#009e73}.c3{fill:#d55e00}.c4{fill:#cc79a7}.c5{fill:#b8a000}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.mark,.small{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#9198a1}}";
