//! [`FailedDefinition`]: a missing name whose definition failed before, and the text about such names.

use crate::base::linker_made_hint;
use crate::error::Error;
use crate::error::short_text::quoted;

/// A name that a lookup has not found, because its definition failed before.
#[derive(Debug, Clone)]
pub struct FailedDefinition {
    symbol: String,
    cause: Error,
}

impl FailedDefinition {
    pub(crate) fn new(symbol: String, cause: Error) -> FailedDefinition {
        FailedDefinition { symbol, cause }
    }

    /// The name.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// The failure of its definition.
    pub fn cause(&self) -> &Error {
        &self.cause
    }
}

/// What to do about missing symbols, and why those are gone that had a definition.
pub(super) fn missing_remedy(symbols: &[String], failed: &[FailedDefinition]) -> String {
    let define = "define them in one of the searched dylibs, or add the dylib that defines them to the link order";
    let Some(first) = failed.first() else { return format!("{define}{}", linker_made_hint(symbols)) };
    let others = failed.iter().filter(|other| !other.cause().root_cause().is(first.cause().root_cause())).count();
    let others = if others == 0 { String::new() } else { format!(" ({others} of them failed for other causes)") };
    let cause = first.cause();
    if failed.len() >= symbols.len() {
        return format!("their definitions failed before{others}: {cause}; correct this, then define them again");
    }
    let names: Vec<String> = failed.iter().map(|failed| failed.symbol().to_string()).collect();
    let hint = linker_made_hint(symbols);
    format!("{define}{hint}; definitions of {} failed before{others}: {cause}", quoted(&names))
}
