//! [`FailureChain`]: how a failure came from its cause to the symbol that was asked for.
//!
//! `a` needs `b`, `b` needs `c`, and the object of `c` cannot be linked. The failure of `a` has the cause of `c` as its cause, and
//! the chain `b`, `c`. Each unit that fails makes one error for all lookups that wait for it. The error holds the first cause
//! itself, so a long cascade is no long list of nested errors, and the cause appears once in the message.
//!
//! A chain keeps its first [`KEPT`] and its last [`KEPT`] steps, and counts the others.

use std::fmt;

use crate::error::failed_definition::FailedDefinition;
use crate::error::short_text::short;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// The steps from the symbol that was asked for to the cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureChain {
    steps: Vec<FailureStep>,
    left_out: usize,
}

/// A symbol that failed, and that the step before it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureStep {
    dylib: Arc<str>,
    symbol: Arc<str>,
}

impl FailureChain {
    /// The steps. If some are [left out](Self::left_out), these are the first three and the last three.
    pub fn steps(&self) -> &[FailureStep] {
        &self.steps
    }

    /// The number of steps in the middle that are not in [`steps`](Self::steps).
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The chain with one step more at its beginning.
    fn preceded_by(&self, step: FailureStep) -> FailureChain {
        let mut steps = Vec::with_capacity(self.steps.len() + 1);
        steps.push(step);
        steps.extend_from_slice(&self.steps);
        let mut left_out = self.left_out;
        if steps.len() > 2 * KEPT {
            steps.remove(KEPT);
            left_out += 1;
        }
        FailureChain { steps, left_out }
    }

    /// The text after the symbols that failed, which are of `dylib`.
    pub(super) fn after<'a>(&'a self, dylib: &'a str) -> impl fmt::Display + 'a {
        FromDylib { chain: self, dylib }
    }
}

impl FailureStep {
    /// The dylib of the symbol.
    pub fn dylib(&self) -> &str {
        &self.dylib
    }

    /// The symbol.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }
}

impl Error {
    /// The error of symbols that failed because of `cause`. If `cause` is the failure of other symbols, this error has the cause
    /// of that failure, and those symbols in its chain.
    pub(crate) fn failed_to_materialize(dylib: &str, symbols: Vec<String>, cause: &Error) -> Error {
        let (through, cause) = match cause.dependency_failure().kind() {
            ErrorKind::FailedToMaterialize { dylib, symbols, through, cause } => {
                let symbol = symbols.first().map_or("", String::as_str);
                let step = FailureStep { dylib: Arc::from(dylib.as_str()), symbol: Arc::from(symbol) };
                (through.preceded_by(step), cause.clone())
            }
            _ => (FailureChain::default(), cause.clone()),
        };
        ErrorKind::FailedToMaterialize { dylib: dylib.to_string(), symbols, through, cause }.into()
    }

    /// The failure of what the failed code needs, if this error says that something else failed before.
    pub(super) fn dependency_failure(&self) -> &Error {
        match self.kind() {
            ErrorKind::DependencyRemoved { cause: Some(cause), .. } => cause,
            ErrorKind::SymbolsNotFound { symbols, failed, .. } if failed.len() == symbols.len() => {
                failed.first().map_or(self, FailedDefinition::cause)
            }
            _ => self,
        }
    }
}

/// The text of a chain that begins in `dylib`.
struct FromDylib<'a> {
    chain: &'a FailureChain,
    dylib: &'a str,
}

impl fmt::Display for FromDylib<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dylib = self.dylib;
        for (index, step) in self.chain.steps.iter().enumerate() {
            match self.chain.left_out {
                more if more > 0 && index == KEPT => write!(f, ", and so on through {more} more to")?,
                _ => write!(f, ", which needs")?,
            }
            write!(f, " `{}`", short(&step.symbol))?;
            if *step.dylib != *dylib {
                write!(f, " of dylib `{}`", short(&step.dylib))?;
            }
            dylib = &step.dylib;
        }
        Ok(())
    }
}

/// The number of steps that a chain keeps at each of its ends.
const KEPT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_of(length: usize, dylib: impl Fn(usize) -> &'static str) -> Error {
        (0..length).rev().fold(Error::other("disk on fire"), |cause, number| {
            Error::failed_to_materialize(dylib(number), vec![format!("f{number}")], &cause)
        })
    }

    #[test]
    fn a_chain_names_each_step_and_the_cause_once() {
        let error = chain_of(3, |number| ["main", "main", "lib"][number]);
        let text = "failed to materialize `f0` in dylib `main`, which needs `f1`, which needs `f2` of dylib `lib`: disk on fire";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.root_cause().to_string(), "disk on fire");
    }

    #[test]
    fn a_chain_of_a_million_steps_is_short_and_drops_without_recursion() {
        let length = crate::base::sized(1_000_000, 100);
        let error = chain_of(length, |_| "main");
        let (last, more) = (length - 1, length - 7);
        let text = format!(
            "failed to materialize `f0` in dylib `main`, which needs `f1`, which needs `f2`, which needs `f3`, and so on through \
             {more} more to `f{}`, which needs `f{}`, which needs `f{last}`: disk on fire",
            last - 2,
            last - 1
        );
        assert_eq!(error.to_string(), text);
        let ErrorKind::FailedToMaterialize { through, .. } = error.kind() else { panic!("{error}") };
        assert_eq!((through.steps().len(), through.left_out()), (2 * KEPT, more));
    }

    #[test]
    fn the_failure_of_what_code_needs_is_a_step_of_its_chain() {
        let inner = chain_of(2, |_| "main");
        let failed = vec![FailedDefinition::new("f0".into(), inner.clone())];
        let [symbols, searched] = [vec!["f0".to_string()], vec!["main".to_string()]];
        let needed_by = Some("a.o".to_string());
        let not_found = ErrorKind::SymbolsNotFound { symbols, needed_by, searched, failed }.into();
        let (dylib, symbol, dependant) = ("main".into(), "f0".into(), "`a`".into());
        let removed = ErrorKind::DependencyRemoved { dylib, symbol, dependant, cause: Some(inner) }.into();
        for cause in [not_found, removed] {
            let error = Error::failed_to_materialize("main", vec!["a".into()], &cause);
            let text = "failed to materialize `a` in dylib `main`, which needs `f0`, which needs `f1`: disk on fire";
            assert_eq!(error.to_string(), text);
            assert_eq!(cause.root_cause().to_string(), "disk on fire");
            assert_eq!(cause.to_string().matches("disk on fire").count(), 1, "{cause}");
        }
    }

    #[test]
    fn a_missing_name_is_its_own_cause_even_if_another_one_failed_before() {
        let failed = vec![FailedDefinition::new("f0".into(), chain_of(1, |_| "main"))];
        let symbols = vec!["absent".to_string(), "f0".to_string()];
        let error: Error =
            ErrorKind::SymbolsNotFound { symbols, needed_by: None, searched: vec!["main".into()], failed }.into();
        assert!(error.root_cause().is(&error));
        let text = error.to_string();
        assert!(
            text.contains("`absent`, `f0`")
                && text.ends_with("of `f0` failed before: failed to materialize `f0` in dylib `main`: disk on fire"),
            "{text}"
        );
    }
}
