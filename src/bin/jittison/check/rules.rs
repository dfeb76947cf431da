//! [`Rules`]: the rules of a file, and where in it they stand.
//!
//! A rule is a line with nothing but a comment leader (`#`, `//`, `;`, repeated or not) before `jitlink-check:`. One that
//! ends in `\` goes on in the next such line, of which only blank lines may keep it apart. All other lines are somebody
//! else's: rules live in assembly sources.

use std::fmt;

use super::expression::{Equation, Problem};

const MARK: &str = "jitlink-check:";

/// The rules of a file, at least one.
#[derive(Debug)]
pub struct Rules(Vec<Rule>);

/// A file without a rule, which would hold of anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRules;

impl Rules {
    /// Finds them. What is wrong with a rule comes out when it is checked, with everything else that is wrong.
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
    /// On one line, without leaders.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn equation(&self) -> Result<&Equation, &Problem> {
        self.equation.as_ref()
    }

    /// Line and column in the file, from 1, of a byte of the text.
    pub fn place(&self, at: usize) -> (usize, usize) {
        match self.pieces.iter().rev().find(|piece| piece.at <= at) {
            Some(piece) => (piece.line, piece.column + at - piece.at),
            None => (0, 0),
        }
    }
}

/// What one line contributes to a rule.
#[derive(Debug)]
struct Piece {
    /// Where in the rule's text it begins.
    at: usize,
    line: usize,
    column: usize,
}

/// A rule whose end has not been seen.
#[derive(Default)]
struct Draft {
    text: String,
    pieces: Vec<Piece>,
}

impl Draft {
    /// Adds what stands on a line behind the mark; whether the rule goes on.
    fn add(&mut self, rest: &str, line: usize, column: usize) -> bool {
        let leading = rest.len() - rest.trim_start().len();
        let trimmed = rest.trim();
        let goes_on = trimmed.ends_with('\\');
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.pieces.push(Piece { at: self.text.len(), line, column: column + leading + 1 });
        self.text.push_str(trimmed.strip_suffix('\\').unwrap_or(trimmed).trim_end());
        goes_on
    }

    fn finish(self) -> Rule {
        let equation = Equation::parse(&self.text);
        Rule { text: self.text, pieces: self.pieces, equation }
    }

    /// The line that it announces does not follow.
    fn abandon(self) -> Rule {
        let problem =
            Problem { at: self.text.len(), message: format!("the rule ends in `\\`, and no `{MARK}` line follows") };
        Rule { text: self.text, pieces: self.pieces, equation: Err(problem) }
    }
}

/// Where in a line the text of a rule begins, if it holds one.
fn start_of_rule(line: &str) -> Option<usize> {
    let (leader, rest) = line.split_once(MARK)?;
    let leader = leader.trim();
    let is_leader = !leader.is_empty() && leader.chars().all(|character| "#/;".contains(character));
    is_leader.then_some(line.len() - rest.len())
}
