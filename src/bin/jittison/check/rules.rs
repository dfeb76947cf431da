//! [`Rules`]: finds the rules in a file, with their lines and columns.
//!
//! A rule is a line with only a comment leader (`#`, `//`, `;`, repeated or not) before `jitlink-check:`. A rule that ends
//! in `\` continues in the next such line; only blank lines may be between them. All other lines are ignored, because rules
//! are in the comments of assembly sources.

use std::fmt;

use super::expression::{Equation, Problem};

const MARK: &str = "jitlink-check:";

/// The rules of a file, at least one.
#[derive(Debug)]
pub struct Rules(Vec<Rule>);

/// The file has no rule. That is an error, because a check without rules always succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRules;

impl Rules {
    /// Finds the rules. A syntax error in a rule is reported when the rules are checked, together with all other failures.
    pub fn parse(source: &str) -> Result<Rules, NoRules> {
        let mut rules = Vec::new();
        let mut unfinished: Option<Draft> = None;
        for (index, line) in source.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let Some(column) = start_of_rule(line) else {
                rules.extend(unfinished.take().map(Draft::abandon));
                continue;
            };
            let mut draft = unfinished.take().unwrap_or_default();
            if draft.add(&line[column..], index + 1, column) {
                unfinished = Some(draft);
            } else {
                rules.push(draft.finish());
            }
        }
        rules.extend(unfinished.map(Draft::abandon));
        if rules.is_empty() { Err(NoRules) } else { Ok(Rules(rules)) }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }
}

impl fmt::Display for NoRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no rule: no line begins with `# {MARK}`")
    }
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    text: String,
    pieces: Vec<Piece>,
    equation: Result<Equation, Problem>,
}

impl Rule {
    /// The text on one line, without comment leaders.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn equation(&self) -> Result<&Equation, &Problem> {
        self.equation.as_ref()
    }

    /// The line and column in the file, from 1, of a byte offset in the text.
    pub fn position(&self, at: usize) -> (usize, usize) {
        match self.pieces.iter().rev().find(|piece| piece.at <= at) {
            Some(piece) => (piece.line, piece.column + at - piece.at),
            None => (0, 0),
        }
    }
}

/// The part of a rule that is on one line.
#[derive(Debug)]
struct Piece {
    /// Its byte offset in the text of the rule.
    at: usize,
    line: usize,
    column: usize,
}

/// A rule of which more lines may follow.
#[derive(Default)]
struct Draft {
    text: String,
    pieces: Vec<Piece>,
}

impl Draft {
    /// Adds the text of a line after the mark. Returns whether the rule continues in the next line.
    fn add(&mut self, rest: &str, line: usize, column: usize) -> bool {
        let leading = rest.len() - rest.trim_start().len();
        let trimmed = rest.trim();
        let continues = trimmed.ends_with('\\');
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.pieces.push(Piece { at: self.text.len(), line, column: column + leading + 1 });
        self.text.push_str(trimmed.strip_suffix('\\').unwrap_or(trimmed).trim_end());
        continues
    }

    fn finish(self) -> Rule {
        let equation = Equation::parse(&self.text);
        Rule { text: self.text, pieces: self.pieces, equation }
    }

    /// Ends a rule whose last line ends in `\` although no other line follows.
    fn abandon(self) -> Rule {
        let problem =
            Problem { at: self.text.len(), message: format!("the rule ends in `\\`, but no `{MARK}` line follows") };
        Rule { text: self.text, pieces: self.pieces, equation: Err(problem) }
    }
}

/// The byte offset in a line where the text of a rule starts. `None` if the line has no rule.
fn start_of_rule(line: &str) -> Option<usize> {
    let (leader, rest) = line.split_once(MARK)?;
    let leader = leader.trim();
    let is_leader = !leader.is_empty() && leader.chars().all(|character| "#/;".contains(character));
    is_leader.then_some(line.len() - rest.len())
}
