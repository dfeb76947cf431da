//! The main rows as one Markdown table, for BENCHMARKS.md. The table there is made by this and is not typed.

use std::path::Path;

use super::amounts::amount;
use super::figures::{PARTS, Report, row_text};
use crate::measure::competitor::*;
use crate::measure::machine::Machine;
use crate::measure::rows::{self, Row};
use crate::measure::scenario::Unit;

/// The columns. A column without figures is left out.
const COLUMNS: [&str; 7] =
    [JITTISON, ORC_AS_LLJIT, ORC_AT_ITS_BEST, ORC_WITH_JEMALLOC, DLOPEN, CRANELIFT_JIT, ELF_LOADER];

/// A line of the table.
struct Line {
    row: Row,
    at: Option<u64>,
    /// A part of the figure, beside its median.
    part: Option<&'static str>,
    /// Whose figure is in the column of jittison.
    ours: &'static str,
}

const fn line(row: Row) -> Line {
    Line { row, at: None, part: None, ours: JITTISON }
}

impl Line {
    const fn at(self, at: u64) -> Line {
        Line { at: Some(at), ..self }
    }

    const fn part(self, part: &'static str) -> Line {
        Line { part: Some(part), ..self }
    }

    /// By the calls of the README's first example.
    const fn by_readme_calls(self) -> Line {
        Line { ours: JITTISON_LAZILY, ..self }
    }

    fn title(&self) -> String {
        let row = row_text((self.row.what, self.at));
        let part = self.part.map_or_else(String::new, |part| format!(", {part}"));
        let call = if self.ours == JITTISON { "" } else { ", by the calls of the README" };
        format!("{row}{call}{part}")
    }

    fn cell(&self, report: &Report, competitor: &str) -> Option<String> {
        let competitor = if competitor == JITTISON { self.ours } else { competitor };
        let figure = report.figure(self.row.group, (self.row.what, self.at), competitor)?;
        match self.part {
            Some(name) => {
                let part = PARTS.iter().find(|part| part.name == name)?;
                Some(amount(Unit::Nanoseconds, figure.part(part)?.median))
            }
            None if competitor == self.ours => Some(figure.text()),
            None => Some(amount(figure.unit, figure.value().median)),
        }
    }
}

const LINES: &[Line] = &[
    line(rows::LINK_SMALL),
    line(rows::LINK_SMALL_COLD),
    line(rows::LINK_SMALL_COLD).part("mean"),
    line(rows::LINK_SMALL_COLD).part("p99.9"),
    line(rows::LINK_SMALL_COLD).by_readme_calls(),
    line(rows::LINK_MEDIUM),
    line(rows::LINK_MEDIUM_COLD),
    line(rows::MEDIUM_AGAIN),
    line(rows::SQLITE_FIRST),
    line(rows::SQLITE_AGAIN),
    line(rows::ALLOCATIONS),
    line(rows::LINK_CALLS),
    line(rows::REMOVE_CALLS),
    line(rows::REMOVE).at(1_000),
    line(rows::REMOVE).at(5_000),
    line(rows::REMOVE).at(20_000),
    line(rows::REMOVE).at(100_000),
    line(rows::LINK_BESIDE).at(100_000),
    line(rows::LINK_BESIDE).at(100_000).part("mean"),
    line(rows::SIZE_LINK).at(50),
    line(rows::SIZE_LINK).at(2_000),
    line(rows::CHURN_RATE).at(1_000),
    line(rows::CHURN_RATE).at(10_000),
    line(rows::THREADS),
    line(rows::SHARED_DYLIB),
    line(rows::LOOKUP).at(1_000),
    line(rows::LOOKUP).at(100_000),
    line(rows::LOOKUP_THREADS).at(1_000),
    line(rows::HANDLE).at(1_000),
    line(rows::HANDLE_THREADS).at(1_000),
    line(rows::REDIRECT),
    line(rows::REDIRECT_HANDLE),
    line(rows::SWAP),
    line(rows::GUARD),
    line(rows::DYLIB),
    line(rows::NEW),
    line(rows::NEW_LATER),
    line(rows::SESSION),
    line(rows::PROCESS),
    line(rows::MANAGER),
    line(rows::RSS).at(5_000),
    line(rows::RESIDENT).at(5_000),
    line(rows::LEFTOVER).at(5_000),
    line(rows::RELEASED).at(5_000),
    line(rows::MAPPINGS).at(5_000),
    line(rows::GROWTH),
];

/// A sentence about the run, and the table.
pub fn table(report: &Report, machine: &Machine, rounds: usize, command: &str) -> String {
    let columns: Vec<&str> = COLUMNS.into_iter().filter(|column| has_figures(report, column)).collect();
    let rounds = if rounds == 1 { "one round".to_string() } else { format!("medians of {rounds} rounds") };
    let mut text = format!("{}; {rounds}: `{command}`.\n\n", machine.line());
    let heading = ["what"].into_iter().chain(columns.iter().copied()).chain(["goal"]);
    text.push_str(&row_of(heading.map(str::to_owned)));
    let rules = ["---"].into_iter().chain(columns.iter().map(|_| "---:")).chain(["---"]);
    text.push_str(&row_of(rules.map(str::to_owned)));
    for line in LINES {
        let cells: Vec<Option<String>> = columns.iter().map(|column| line.cell(report, column)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let goal = if line.part.is_some() || line.ours != JITTISON {
            String::new()
        } else {
            report.goal_text(line.row.group, (line.row.what, line.at))
        };
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
        text.push_str(&row_of([line.title()].into_iter().chain(cells).chain([goal])));
    }
    text
}

fn has_figures(report: &Report, column: &str) -> bool {
    LINES.iter().any(|line| line.cell(report, column).is_some())
}

fn row_of(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<String>>().join(" | "))
}

const BEGIN: &str = "<!-- made by crates/bench/reproduce -->\n";
const END: &str = "<!-- end of what it makes -->\n";

/// Replaces the text between the two marks of a file.
pub fn replace_in(path: &Path, text: &str) -> Result<(), String> {
    let old = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let parts = old.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.ok_or_else(|| format!("{} lacks the lines {BEGIN}and {END}", path.display()))?;
    let new = format!("{head}{BEGIN}\n{text}\n{END}{tail}");
    std::fs::write(path, new).map_err(|error| format!("{}: {error}", path.display()))
}
