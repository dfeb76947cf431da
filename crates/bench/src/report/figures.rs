//! [`Report`]: the figures of all rounds, as medians with their spread; printed as tables and as JSON.

use serde_json::{Value, json};

use super::amounts::{amount, grouped, spread_text, unit_name};
use super::goals::{Factor, Goal, Limit};
use super::spread::Spread;
use crate::measure::competitor::{Competitor, JITTISON};
use crate::measure::machine::Machine;
use crate::measure::scenario::{Key, Measure, Unit};

pub struct Report {
    /// Columns, from left to right; unknown competitors come last.
    order: Vec<&'static str>,
    /// In the order in which they were first measured.
    pub figures: Vec<Figure>,
    /// Scenarios that ended early, and why.
    pub failures: Vec<(String, String)>,
}

/// One cell of a table, over all rounds.
pub struct Figure {
    pub key: Key,
    pub unit: Unit,
    pub rounds: Vec<Measure>,
}

/// What is measured of some operations beside their median.
pub struct Part {
    pub name: &'static str,
    of: fn(&Measure) -> Option<f64>,
}

pub const PARTS: [Part; 4] = [
    Part { name: "mean", of: |measure| measure.mean },
    Part { name: "p99", of: |measure| measure.p99 },
    Part { name: "p99.9", of: |measure| measure.p999 },
    Part { name: "CPU", of: |measure| measure.cpu },
];

impl Figure {
    pub fn value(&self) -> Spread {
        let without_rounds = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
        self.spread(|measure| Some(measure.value)).unwrap_or(without_rounds)
    }

    /// A part of the figure, over all rounds. `None` if it was not measured.
    pub fn part(&self, part: &Part) -> Option<Spread> {
        self.spread(part.of)
    }

    fn spread(&self, of: impl Fn(&Measure) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(of).collect())
    }

    /// `7.90 (7.51–8.33) µs`.
    pub fn text(&self) -> String {
        spread_text(self.unit, self.value())
    }

    fn json(&self) -> Value {
        let Spread { median, min, max } = self.value();
        let round = |round: &Measure| {
            let Measure { value, mean, p99, p999, cpu, .. } = round;
            json!({"value": value, "mean": mean, "p99": p99, "p99.9": p999, "cpu": cpu})
        };
        let mut json = json!({
            "group": self.key.group, "what": self.key.what, "at": self.key.at, "who": self.key.competitor,
            "unit": unit_name(self.unit),
            "median": median, "least": min, "most": max,
            "rounds": self.rounds.iter().map(round).collect::<Vec<_>>(),
        });
        for part in &PARTS {
            json[part.name] = self.part(part).map(|spread| spread.median).into();
        }
        json
    }
}

impl Report {
    pub fn new(peers: &[Competitor]) -> Report {
        let order = peers.iter().map(|peer| peer.name).collect();
        Report { order, figures: Vec::new(), failures: Vec::new() }
    }

    pub fn add(&mut self, measures: Vec<Measure>) {
        for measure in measures {
            match self.figures.iter_mut().find(|figure| figure.key == measure.key) {
                Some(figure) => figure.rounds.push(measure),
                None => {
                    let (key, unit) = (measure.key.clone(), measure.unit);
                    self.figures.push(Figure { key, unit, rounds: vec![measure] });
                }
            }
        }
    }

    pub fn groups(&self) -> Vec<&'static str> {
        unique(self.figures.iter().map(|figure| figure.key.group))
    }

    /// The competitors with figures in a group.
    pub fn columns(&self, group: &str) -> Vec<&str> {
        let of_group = self.figures.iter().filter(|figure| figure.key.group == group);
        let mut columns = unique(of_group.map(|figure| figure.key.competitor.as_str()));
        columns.sort_by_key(|competitor| {
            self.order.iter().position(|other| other == competitor).unwrap_or(self.order.len())
        });
        columns
    }

    /// The rows of a group: by name, then in the order of the axis.
    pub fn rows(&self, group: &str) -> Vec<(&str, Option<u64>)> {
        let of_group = self.figures.iter().filter(|figure| figure.key.group == group);
        let mut rows = unique(of_group.map(|figure| (figure.key.what.as_str(), figure.key.at)));
        let order = unique(rows.iter().map(|(what, _)| *what));
        rows.sort_by_key(|(what, at)| (order.iter().position(|other| other == what), *at));
        rows
    }

    pub fn figure(&self, group: &str, (what, at): (&str, Option<u64>), competitor: &str) -> Option<&Figure> {
        let matches =
            |key: &Key| key.group == group && key.what == what && key.at == at && key.competitor == competitor;
        self.figures.iter().find(|figure| matches(&figure.key))
    }

    /// The goal of a row, and whether it is met. Empty without a goal.
    pub fn goal_text(&self, group: &str, row: (&str, Option<u64>)) -> String {
        let Some(ours) = self.figure(group, row, JITTISON) else { return String::new() };
        let Some(goal) = Goal::of(&ours.key) else { return String::new() };
        let figure_of = |competitor: &str| Some(self.figure(group, row, competitor)?.value().median);
        let verdict = goal.judge(ours.value().median, figure_of);
        let limit = match goal.limit {
            Limit::AtMost(limit) => format!("≤ {}", amount(ours.unit, limit)),
            Limit::AtLeast(limit) => format!("≥ {}", amount(ours.unit, limit)),
        };
        let beside = |factor: Factor| {
            format!("; {:.1}× ORC: {} ({:.1}×)", factor.goal, met_or_open(factor.is_met()), factor.found)
        };
        format!("{limit}: {}{}", met_or_open(verdict.is_met), verdict.beside_peer.map_or_else(String::new, beside))
    }

    /// Prints one table per group, then the failures.
    pub fn print(&self) {
        for group in self.groups() {
            print_table(group, &self.table(group));
        }
        for (title, error) in &self.failures {
            println!("failed: {title}: {error}");
        }
    }

    /// Lines of cells; the first is the heading.
    fn table(&self, group: &str) -> Vec<Vec<String>> {
        let columns = self.columns(group);
        let heading = [group].into_iter().chain(columns.iter().copied()).chain(["goal"]);
        let mut lines = vec![heading.map(str::to_string).collect::<Vec<String>>()];
        for row in self.rows(group) {
            let figures: Vec<Option<&Figure>> =
                columns.iter().map(|competitor| self.figure(group, row, competitor)).collect();
            let line = |what: String, cell: &dyn Fn(&Figure) -> Option<String>, goal: String| {
                let cells = figures.iter().map(|figure| figure.and_then(cell).unwrap_or_default());
                [what].into_iter().chain(cells).chain([goal]).collect::<Vec<String>>()
            };
            lines.push(line(row_text(row), &|figure| Some(figure.text()), self.goal_text(group, row)));
            for part in &PARTS {
                let cell = |figure: &Figure| figure.part(part).map(|spread| amount(Unit::Nanoseconds, spread.median));
                if figures.iter().flatten().any(|figure| figure.part(part).is_some()) {
                    lines.push(line(format!("    {}", part.name), &cell, String::new()));
                }
            }
        }
        lines
    }

    pub fn json(&self, machine: &Machine, peers: &[Competitor], rounds: usize, is_quick: bool) -> Value {
        let peer =
            |peer: &Competitor| json!({"who": peer.name, "version": peer.version, "configuration": peer.configuration});
        let goal = |figure: &Figure| {
            let row = (figure.key.what.as_str(), figure.key.at);
            let text = (figure.key.competitor == JITTISON).then(|| self.goal_text(figure.key.group, row));
            let mut json = figure.json();
            json["goal"] = text.filter(|text| !text.is_empty()).into();
            json
        };
        json!({
            "machine": machine.json(),
            "rounds": rounds,
            "quick": is_quick,
            "peers": peers.iter().map(peer).collect::<Vec<_>>(),
            "figures": self.figures.iter().map(goal).collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

fn met_or_open(is_met: bool) -> &'static str {
    if is_met { "met" } else { "open" }
}

pub fn row_text((what, at): (&str, Option<u64>)) -> String {
    at.map_or_else(|| what.to_string(), |at| format!("{what}: {}", grouped(at as f64)))
}

/// The distinct items, in the order of their first occurrence.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut found, item| {
        if !found.contains(&item) {
            found.push(item);
        }
        found
    })
}

fn print_table(group: &str, lines: &[Vec<String>]) {
    println!("\n== {group} ==");
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            // Figures are aligned to the right, text to the left.
            if column == 0 || column + 1 == columns { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("{}", cells.collect::<Vec<String>>().join("  ").trim_end());
    }
}
