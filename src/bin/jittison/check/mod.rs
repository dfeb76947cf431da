//! Rules about a linked image, in the language of LLVM's `jitlink-check:` lines.
//!
//! ```text
//! # jitlink-check: decode_operand(load, 4) = got_addr(a.o, far) - next_pc(load)
//! # jitlink-check: *{8}(got_addr(a.o, far)) = far
//! ```
//!
//! | file | what |
//! |---|---|
//! | `rules.rs` | finds the rules in a file, with their lines and columns |
//! | `expression.rs` | parses the text of a rule into a tree, and finds syntax errors |
//! | `image.rs` | [`Image`]: what the rules ask about a link |
//! | `evaluate.rs` | computes the numbers of a tree from an image |
//! | `arch/` | what `decode_operand` counts: LLVM's operands of an instruction |
//!
//! A rule is an equation of two 64-bit numbers. Each is a chain of `+ - & | << >>`, evaluated from left to right; no
//! operator has precedence. Sums wrap around.
//!
//! # Differences from LLVM
//! Some rules have no defined value in LLVM: a shift by 64 or more, bits beyond 63, a number of more than 64 bits. They are
//! errors here. The kinds of stubs that LLVM's language knows for other machines are not supported, because each machine has
//! only one kind here.

mod arch;
mod evaluate;
mod expression;
mod image;
mod rules;

use std::fmt;

pub use image::Image;
pub use rules::Rules;

use evaluate::Evaluator;
use expression::Problem;
use rules::Rule;

/// Checks all rules. Returns those that do not hold, in the order of their lines.
pub fn check(rules: &Rules, image: &dyn Image) -> Vec<Failure> {
    rules.iter().filter_map(|rule| check_one(rule, image).err()).collect()
}

fn check_one(rule: &Rule, image: &dyn Image) -> Result<(), Failure> {
    let equation = match rule.equation() {
        Ok(equation) => equation,
        Err(problem) => return Err(Failure::error(rule, problem.clone())),
    };
    let mut evaluator = Evaluator::new(rule.text(), image);
    let mut side = |expression| evaluator.value(expression).map_err(|problem| Failure::error(rule, problem));
    let (left, right) = (side(&equation.left)?, side(&equation.right)?);
    match left == right {
        true => Ok(()),
        false => Err(Failure::unequal(rule, left, right, evaluator.into_parts())),
    }
}

/// A rule that does not hold, or that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The position in the file of rules, from 1: that of the mistake, or else that of the rule.
    pub line: usize,
    pub column: usize,
    /// The full text of the rule, on one line.
    pub rule: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Unequal {
        left: u64,
        right: u64,
        /// The text and value of each name, call and load in the rule.
        parts: Vec<(String, u64)>,
    },
    Error(String),
}

impl Failure {
    fn error(rule: &Rule, problem: Problem) -> Failure {
        let (line, column) = rule.position(problem.at);
        Failure { line, column, rule: rule.text().to_string(), cause: Cause::Error(problem.message) }
    }

    fn unequal(rule: &Rule, left: u64, right: u64, parts: Vec<(String, u64)>) -> Failure {
        let (line, column) = rule.position(0);
        Failure { line, column, rule: rule.text().to_string(), cause: Cause::Unequal { left, right, parts } }
    }
}

/// The position and the cause, then the rule, then its parts.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        match &self.cause {
            Cause::Error(message) => write!(f, "{message}\n  in {}", self.rule),
            Cause::Unequal { left, right, parts } => {
                write!(f, "{left:#x} is not {right:#x}\n  in {}", self.rule)?;
                parts.iter().try_for_each(|(part, value)| write!(f, "\n  {part} is {value:#x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
