//! One picture of a run: how many times better jittison is than each other competitor, in the main rows. It is for
//! pages that show only the picture. It contains its colours, light and dark, and needs no script and no font.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::amounts::grouped;
use super::figures::Report;
use super::plots::{Axis, Drawn, FAINT, GRID, NORMAL, Root, SMALL, TEXT, draw_legend, drawing, text};
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
pub fn picture(report: &Report, machine: &Machine, rounds: usize) -> Result<Option<String>, String> {
    let peers = peers(report);
    let groups: Vec<Group> = MAIN.iter().filter_map(|main| group(report, &peers, main)).collect();
    let factors = groups.iter().flat_map(|group| group.factors.iter().map(|(_, factor)| *factor));
    let Some(axis) = Axis::of([1.0].into_iter().chain(factors)).filter(|_| !groups.is_empty()) else { return Ok(None) };
    let bars: usize = groups.iter().map(|group| group.factors.len()).sum();
    let height = bars as i32 * BAR + groups.len() as i32 * GAP;
    let Machine { processor, cores, date, .. } = machine;
    let date = date.split('T').next().unwrap_or(date);
    let rounds = if rounds == 1 { "one round".to_string() } else { format!("medians of {rounds} rounds") };
    let foot = format!("{rounds}, all in turns in one run; {date}, {processor}, {cores} cores");
    let svg = drawing((WIDTH, (TOP + height + FOOT) as u32), |root| {
        draw_title(root, &peers)?;
        root.draw(&Text::new(foot, (8, TOP + height + FOOT - 12), text(FAINT, SMALL, HPos::Left)))?;
        draw_groups(root, &groups, axis, height)
    })?;
    let attributes = r#"" role="img" aria-label="How many times better jittison is than its peers">"#;
    Ok(Some(svg.replacen("\">", &format!("{attributes}<style>{STYLE}</style>"), 1)))
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

const WIDTH: u32 = 760;
/// The space left of the bars for the rows' labels, and right of them for the last figure.
const LABELS: i32 = 190;
const TEXTS: i32 = 60;
const TOP: i32 = 66;
const BAR: i32 = 15;
/// The space between groups of bars.
const GAP: i32 = 12;
/// The space below the bars, for the axis and a line of text.
const FOOT: i32 = 50;
const AXIS: i32 = 22;

/// The title, and the legend of colours.
fn draw_title(root: &Root, peers: &[&str]) -> Drawn<()> {
    let title = ("sans-serif", 19, FontStyle::Bold).into_font().color(&TEXT);
    root.draw(&Text::new("How many times better jittison is than", (8, 8), title))?;
    let mut left = 8;
    for (place, competitor) in peers.iter().enumerate() {
        draw_legend(root, (left, 34), competitor, colour(place))?;
        // The font is unknown; this width per letter is enough on average.
        left += 30 + (competitor.chars().count() as f64 * 7.5) as i32;
    }
    Ok(())
}

/// Bars begin at one, which means no difference. They extend to the left if the peer is better.
fn draw_groups(root: &Root, groups: &[Group], axis: Axis, height: i32) -> Drawn<()> {
    let mut top = 0;
    let mut middles = Vec::new();
    for group in groups {
        middles.push(top + group.factors.len() as i32 * BAR / 2);
        top += group.factors.len() as i32 * BAR + GAP;
    }
    let mut chart = ChartBuilder::on(root)
        .margin_top(TOP)
        .margin_right(TEXTS)
        .margin_bottom(FOOT - AXIS)
        .x_label_area_size(AXIS)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(axis.coordinates(), (height..0).with_key_points(middles.clone()))?;
    let label = |middle: &i32| middles.iter().position(|other| other == middle).map_or("", |at| groups[at].label);
    chart
        .configure_mesh()
        .disable_y_mesh()
        .axis_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_label_style(text(FAINT, SMALL, HPos::Center))
        .y_label_style(text(TEXT, NORMAL, HPos::Right))
        .x_label_formatter(&|mark| if *mark < 1.0 { format!("{mark}×") } else { format!("{}×", grouped(*mark)) })
        .y_label_formatter(&|middle| label(middle).to_string())
        .draw()?;
    chart.draw_series([PathElement::new([(1.0, 0), (1.0, height)], FAINT)])?;
    let mut top = 0;
    for group in groups {
        for (place, factor) in &group.factors {
            let corners = [(1.0, top + 1), (*factor, top + BAR - 1)];
            chart.draw_series([Rectangle::new(corners, colour(*place).filled())])?;
            let number = if *factor < 9.95 { format!("{factor:.1}×") } else { format!("{}×", grouped(*factor)) };
            let beside = Text::new(number, (5, 0), text(TEXT, NORMAL, HPos::Left));
            chart.draw_series([EmptyElement::at((factor.max(1.0), top + BAR / 2)) + beside])?;
            top += BAR;
        }
        top += GAP;
    }
    Ok(())
}

fn colour(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xb8, 0xa0, 0x00),
];

/// Texts and grid lines are found by the colours of `plots.rs`.
const STYLE: &str = r##"
text{font-family:system-ui,sans-serif}
@media (prefers-color-scheme:dark){[fill="#222222"]{fill:#e6edf3}[fill="#777777"]{fill:#9198a1}
[stroke="#777777"]{stroke:#9198a1}[stroke="#DDDDDD"]{stroke:#3d444d}}
"##;
