//! Known differences: a list of features that together give a wrong answer, each with its reason.
//!
//! The file has one entry in a line: `feature + feature: reason`. `#` starts a comment. A wrong program is expected if an
//! entry's features are all among the features of the names whose output lines differ.

use std::collections::BTreeSet;

use crate::features::{Feature, features, names_that_differ};
use crate::outcome::{Answer, Difference};
use crate::program::Program;
use crate::tools::Status;

pub struct Expected(Vec<Entry>);

struct Entry {
    features: BTreeSet<Feature>,
    line: String,
}

impl Expected {
    pub fn read(text: &str) -> Result<Expected, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Entry::read).collect::<Result<_, _>>().map(Expected)
    }

    /// The entry that a wrong program belongs to.
    pub fn find(&self, program: &Program, difference: &Difference) -> Option<&str> {
        let found = concerned(program, difference);
        let is_match = |entry: &&Entry| found.iter().any(|features| entry.features.is_subset(features));
        self.0.iter().find(is_match).map(|entry| entry.line.as_str())
    }
}

impl Entry {
    fn read(line: &str) -> Result<Entry, String> {
        let (features, reason) = line.split_once(": ").ok_or(format!("`{line}` has no reason"))?;
        if reason.trim().is_empty() {
            return Err(format!("`{line}` has no reason"));
        }
        let features = features.split('+').map(|feature| feature.trim().to_string()).collect();
        Ok(Entry { features, line: line.to_string() })
    }
}

fn has_ended(answer: &Answer) -> bool {
    matches!(answer, Answer::Ran { status: Status::Exit(_), .. })
}

/// The features of each name that a difference concerns.
pub fn concerned(program: &Program, difference: &Difference) -> Vec<BTreeSet<Feature>> {
    let output = |answer: &Answer| match answer {
        Answer::Ran { stdout, .. } => stdout.clone(),
        Answer::Refused { .. } => String::new(),
    };
    let found = names_that_differ(&output(&difference.native), &output(&difference.ours));
    match found.filter(|_| has_ended(&difference.ours)) {
        Some(names) => names.iter().map(|name| features(program, Some(name))).collect(),
        None => crate::features::names(program).iter().map(|name| features(program, Some(name))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(Expected::read("# comment\n\ndefinition=Weak + place=Note: is not read\n").is_ok());
        assert!(Expected::read("definition=Weak").is_err());
        assert!(Expected::read("definition=Weak: ").is_err());
    }
}
