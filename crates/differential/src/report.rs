//! [`Report`]: results as Markdown: totals, refusals by cause, pairs of features, wrong programs with their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::expected::{Expected, concerned};
use crate::features::{Feature, features, names};
use crate::outcome::{Answer, Outcome, cause, sources};
use crate::program::{Program, Writer};
use crate::reasons::reason;
use crate::run::Compared;

#[derive(Default)]
pub struct Report {
    totals: BTreeMap<&'static str, usize>,
    refusals: BTreeMap<String, Examples>,
    accepted: BTreeMap<String, Examples>,
    undefined: BTreeMap<String, Examples>,
    expected: BTreeMap<String, Examples>,
    pairs: BTreeMap<(Feature, Feature), Counts>,
    /// Programs whose objects could not be built: a fault of the generator.
    pub unbuilt: Vec<(u64, String)>,
    /// Wrong programs that no entry of the known differences explains.
    pub(crate) unexpected: Vec<(u64, Program)>,
    /// Their seeds.
    pub wrong_seeds: Vec<u64>,
    /// Those that were not wrong when they ran again.
    pub unsteady: Vec<u64>,
    pub not_minimized: Vec<u64>,
    pub(crate) classes: Vec<WrongClass>,
}

/// Wrong programs that have the same features as one that was minimized.
pub(crate) struct WrongClass {
    pub seeds: Vec<u64>,
    pub program: Program,
    pub outcome: Outcome,
    pub features: BTreeSet<Feature>,
}

#[derive(Default)]
struct Examples {
    count: usize,
    seeds: Vec<u64>,
}

/// How often a pair of features had which outcome.
#[derive(Default)]
struct Counts(BTreeMap<&'static str, usize>);

const AGREE: &str = "agree";
const AS_OTHER: &str = "agree with another native linker";
const BOTH_REFUSE: &str = "both refuse";
const UNDEFINED: &str = "native linkers differ";
const REFUSED: &str = "refused";
const ACCEPTED: &str = "accepted more";
const WRONG: &str = "WRONG";
const EXPECTED: &str = "wrong as expected";
const UNBUILT: &str = "not built";

/// The beginning of the results.
const INTRODUCTION: &str = "\
# Small programs of several objects, beside the native linkers

`jittison-differential` draws small programs, links each natively and by `jittison run`, and compares the answers byte by byte. A
program has up to five objects: names with every binding, visibility, place, order and model, in archives or not, used by every
kind of relocation; initialisers, section bounds, versions, inline C++. GNU ld gives the native answer. If `jittison` differs, LLVM's
linker and the other kind of executable are asked, too.

This page is written by `cargo run --release -p jittison-differential -- --seed N --count M --report docs/differential.md`.

Nothing may be wrong in silence. A program is *wrong* if it runs and answers otherwise than each native linker, if it crashes, or if
it does not end. A refusal names its cause, and the table *Why* has the reason. `--show` prints the program of a seed.

";

/// The pairs of properties that get a table.
const TABLES: [(&str, &str); 18] = [
    ("definition", "definition"),
    ("definition", "visibility"),
    ("definition", "import"),
    ("definition", "place"),
    ("definition", "reference"),
    ("definition", "model"),
    ("definition", "order"),
    ("visibility", "visibility"),
    ("visibility", "import"),
    ("visibility", "reference"),
    ("import", "reference"),
    ("import", "model"),
    ("place", "reference"),
    ("model", "reference"),
    ("type", "reference"),
    ("extra", "extra"),
    ("extra", "order"),
    ("extra", "model"),
];

impl Report {
    pub(crate) fn add(&mut self, compared: &Compared, expected: &Expected) {
        let Compared { seed, program, outcome } = compared;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(problem) => {
                self.unbuilt.push((*seed, problem.clone()));
                *self.totals.entry(UNBUILT).or_default() += 1;
                return;
            }
        };
        let mut sets: Vec<_> = names(program).iter().map(|name| features(program, Some(name))).collect();
        let word = match outcome {
            Outcome::Agree => AGREE,
            Outcome::AsOther => AS_OTHER,
            Outcome::BothRefuse => BOTH_REFUSE,
            Outcome::Undefined { reason, .. } => {
                self.undefined.entry(reason.clone()).or_default().add(*seed);
                UNDEFINED
            }
            Outcome::Refused { message } => {
                self.refusals.entry(cause(message)).or_default().add(*seed);
                REFUSED
            }
            Outcome::AcceptedMore { message } => {
                self.accepted.entry(cause(message)).or_default().add(*seed);
                ACCEPTED
            }
            Outcome::Wrong(difference) => {
                sets = concerned(program, difference);
                if let Some(entry) = expected.find(program, difference) {
                    self.expected.entry(entry.to_string()).or_default().add(*seed);
                    EXPECTED
                } else {
                    self.unexpected.push((*seed, program.clone()));
                    WRONG
                }
            }
        };
        *self.totals.entry(word).or_default() += 1;
        for set in sets {
            self.count_pairs(&set, word);
        }
    }

    fn count_pairs(&mut self, set: &BTreeSet<Feature>, word: &'static str) {
        for one in set {
            for other in set.range(one.clone()..) {
                let counts = self.pairs.entry((one.clone(), other.clone())).or_default();
                *counts.0.entry(word).or_default() += 1;
            }
        }
    }

    /// What a test fails with: wrong programs that are not expected, and faults of the generator.
    pub fn faults(&self) -> Option<String> {
        let is_good = self.wrong_seeds.is_empty() && self.unbuilt.is_empty();
        (!is_good).then(|| self.summary())
    }

    pub fn count(&self) -> usize {
        self.totals.values().sum()
    }

    /// Programs with the same answer, or refused by both.
    pub fn agreed(&self) -> usize {
        [AGREE, AS_OTHER, BOTH_REFUSE].iter().filter_map(|word| self.totals.get(word)).sum()
    }

    /// The results without the tables of pairs.
    pub fn summary(&self) -> String {
        let mut text = String::from("| outcome | programs |\n|---|---:|\n");
        for (word, count) in &self.totals {
            let _ = writeln!(text, "| {word} | {count} |");
        }
        self.list_refusals(&mut text);
        list(&mut text, "Accepted by jittison only, with the native error", &self.accepted);
        list(&mut text, "Without one native answer", &self.undefined);
        list(&mut text, "Wrong as expected", &self.expected);
        for (seed, problem) in self.unbuilt.iter().take(5) {
            let _ = writeln!(text, "\nNot built, seed {seed}:\n```\n{problem}\n```");
        }
        for (title, seeds) in [("Wrong only once", &self.unsteady), ("Wrong and not minimized", &self.not_minimized)] {
            if !seeds.is_empty() {
                let _ = writeln!(text, "\n{title}: seeds {seeds:?}");
            }
        }
        for class in &self.classes {
            let _ = writeln!(text, "\n## Wrong: {}\n\nSeeds: {:?}\n", join(&class.features), class.seeds);
            text += &describe(&class.program, &class.outcome);
        }
        text
    }

    /// Messages in the order of their numbers, then the reasons with the programs of all their messages.
    fn list_refusals(&self, text: &mut String) {
        list(text, "Refused by jittison only", &self.refusals);
        let mut reasons: BTreeMap<&str, Examples> = BTreeMap::new();
        for (message, examples) in &self.refusals {
            let reason = Some(reason(message)).filter(|reason| !reason.is_empty()).unwrap_or("not known: a fault");
            let all = reasons.entry(reason).or_default();
            all.count += examples.count;
            all.seeds.extend(examples.seeds.iter().take(4 - all.seeds.len().min(4)));
        }
        let reasons = reasons.into_iter().map(|(reason, examples)| (reason.to_string(), examples)).collect();
        list(text, "Why", &reasons);
    }

    /// Everything.
    pub fn markdown(&self) -> String {
        let mut text = INTRODUCTION.to_string() + &self.summary();
        text += "\n## Pairs of constructs of one name\n\nThe number of names for which the answers are the same; then r: refused, \
                 m: accepted more, u: native linkers differ, o: as another native linker, b: both refuse, e: wrong as expected, W: wrong.\n";
        for (rows, columns) in TABLES {
            self.table(&mut text, rows, columns);
        }
        text
    }

    fn table(&self, text: &mut String, rows: &str, columns: &str) {
        let of = |property: &str| {
            let features = self.pairs.keys().flat_map(|(one, other)| [one, other]);
            let values = features.filter_map(|feature| feature.strip_prefix(property)?.strip_prefix('='));
            values.map(str::to_string).collect::<BTreeSet<String>>()
        };
        let (row_values, column_values) = (of(rows), of(columns));
        if row_values.is_empty() || column_values.is_empty() {
            return;
        }
        let _ = write!(text, "\n### {rows} × {columns}\n\n| |");
        for column in &column_values {
            let _ = write!(text, " {column} |");
        }
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(column_values.len()));
        for row in &row_values {
            let _ = write!(text, "| {row} |");
            for column in &column_values {
                let mut pair = [format!("{rows}={row}"), format!("{columns}={column}")];
                pair.sort();
                let [one, other] = pair;
                let cell = self.pairs.get(&(one, other)).map(Counts::cell).unwrap_or_default();
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
    }
}

impl Examples {
    fn add(&mut self, seed: u64) {
        self.count += 1;
        if self.seeds.len() < 4 {
            self.seeds.push(seed);
        }
    }
}

impl Counts {
    fn cell(&self) -> String {
        let mut cell = self.0.get(AGREE).copied().unwrap_or_default().to_string();
        let letters = [
            (REFUSED, "r"),
            (ACCEPTED, "m"),
            (UNDEFINED, "u"),
            (AS_OTHER, "o"),
            (BOTH_REFUSE, "b"),
            (EXPECTED, "e"),
            (WRONG, "W"),
        ];
        for (word, letter) in letters {
            if let Some(count) = self.0.get(word) {
                let _ = write!(cell, " {letter}{count}");
            }
        }
        cell
    }
}

fn list(text: &mut String, title: &str, entries: &BTreeMap<String, Examples>) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| {title} | programs | seeds |\n|---|---:|---|");
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(_, examples)| std::cmp::Reverse(examples.count));
    for (entry, examples) in entries {
        let seeds: Vec<String> = examples.seeds.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "| {} | {} | {} |", entry.replace('|', "\\|"), examples.count, seeds.join(", "));
    }
}

fn join(features: &BTreeSet<Feature>) -> String {
    features.iter().map(String::as_str).collect::<Vec<_>>().join(" + ")
}

/// The inputs, sources and answers of a program.
pub fn describe(program: &Program, outcome: &Outcome) -> String {
    let mut text = format!(
        "{}; `main` after {} inputs{}.\n",
        if program.is_pie { "Position-independent executable" } else { "Executable with fixed addresses" },
        program.main_at,
        if program.has_thread { "; a second thread" } else { "" }
    );
    for (object, source) in program.objects.iter().zip(sources(program)) {
        let place = object.archive.map(|archive| format!(" in archive {archive}")).unwrap_or_default();
        let writer = match &object.writer {
            Writer::Gas => "as".to_string(),
            Writer::LlvmMc => "llvm-mc-19".to_string(),
            Writer::C { compiler, flags } => format!("{compiler} {}", flags.join(" ")),
        };
        let _ = writeln!(text, "\nObject {}{place}, `{writer}`:\n```\n{}```", object.id, source.trim_start());
    }
    match outcome {
        Outcome::Wrong(difference) => {
            let (native, ours) = (answer(&difference.native), answer(&difference.ours));
            let _ = writeln!(text, "\nNative:\n```\n{native}\n```\nOurs:\n```\n{ours}\n```");
        }
        Outcome::Undefined { answers, .. } => {
            for (linker, found) in answers {
                let _ = writeln!(text, "\n{linker}:\n```\n{}\n```", answer(found));
            }
        }
        Outcome::Refused { message } => {
            let _ = writeln!(text, "\nOurs:\n```\n{}\n```", message.trim_end());
        }
        Outcome::AcceptedMore { message } => {
            let _ = writeln!(text, "\nNative:\n```\n{}\n```", message.trim_end());
        }
        other => {
            let _ = writeln!(text, "\n{other:?}");
        }
    }
    text
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Refused { message } => message.trim_end().to_string(),
        Answer::Ran { stdout, status } => format!("{stdout}{status:?}"),
    }
}
