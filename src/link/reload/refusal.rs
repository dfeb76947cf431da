//! [`Refusal`]: why a reload is refused.

/// Why a reload is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) symbol: String,
    pub(crate) problem: String,
}

impl Refusal {
    pub(super) fn new(symbol: &str, problem: impl Into<String>) -> Refusal {
        Refusal { symbol: symbol.to_string(), problem: problem.into() }
    }
}
