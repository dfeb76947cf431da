//! Rules about a linked image, in the language of LLVM's `jitlink-check:` lines.
//!
//! ```text
//! # jitlink-check: decode_operand(load, 4) = got_addr(a.o, far) - next_pc(load)
//! # jitlink-check: *{8}(got_addr(a.o, far)) = far
//! ```
//!
//! | file | what |
//! |---|---|
//! | `rules.rs` | finds the rules in a file, and remembers where they stood |
//! | `expression.rs` | from a rule's text to a tree; what is written wrongly is found here |
//! | `evaluate.rs` | from a tree to numbers, asking the image |
//! | `operands.rs` | what `decode_operand` counts: LLVM's operands of an x86-64 instruction |
//!
//! A rule is an equation of two 64-bit numbers, each a chain of `+ - & | << >>` worked off from left to right, whatever the
//! operator. Sums wrap around. Where LLVM's evaluator is undefined (a shift by 64 or more, bits that are not there, a number
//! that is too large), a rule is an error here. Not here: kinds of stubs, which x86-64 has none of.

mod evaluate;
mod expression;
mod operands;
mod rules;

use std::fmt;

pub use rules::Rules;

use evaluate::Evaluator;
use expression::Problem;
use rules::Rule;

/// What was linked, as rules ask about it. A file is named as in the rules, by the last part of an object's path; errors
/// read as the end of a sentence and name what is missing.
pub trait Image {
    /// The address of a symbol: any that an object names, local and absolute ones too.
    fn symbol(&self, name: &str) -> Option<u64>;

    /// The bytes from a target address up to the end of the block that it lies in, as the linker wrote them; zeroes where
    /// the block is zero-fill. `None` where nothing was linked.
    fn bytes_at(&self, address: u64) -> Option<&[u8]>;

    /// Where a section of a file begins.
    fn section(&self, file: &str, section: &str) -> Result<u64, String>;

    /// The GOT slot through which a file reaches a symbol.
    fn got_entry(&self, file: &str, symbol: &str) -> Result<u64, String>;

    /// The stub through which a file calls a symbol.
    fn stub(&self, file: &str, symbol: &str) -> Result<u64, String>;
}

/// The rules that do not hold of `image`, in the order of their lines.
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

/// A rule that does not hold, or that means nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Counted from 1, in the file of rules: where the rule begins, or where in it the mistake is.
    pub line: usize,
    pub column: usize,
    /// The whole rule, on one line.
    pub rule: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Unequal {
        left: u64,
        right: u64,
        /// What the names, calls and loads in the rule came to, as written there.
        parts: Vec<(String, u64)>,
    },
    Error(String),
}

impl Failure {
    fn error(rule: &Rule, problem: Problem) -> Failure {
        let (line, column) = rule.place(problem.at);
        Failure { line, column, rule: rule.text().to_string(), cause: Cause::Error(problem.message) }
    }

    fn unequal(rule: &Rule, left: u64, right: u64, parts: Vec<(String, u64)>) -> Failure {
        let (line, column) = rule.place(0);
        Failure { line, column, rule: rule.text().to_string(), cause: Cause::Unequal { left, right, parts } }
    }
}

/// One sentence that begins with the place, then the rule, then its parts.
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
