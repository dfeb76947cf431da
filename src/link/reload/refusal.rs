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

    /// Says that a hook can move the variable.
    pub(super) fn with_hint_of_hook(self) -> Refusal {
        let Refusal { symbol, problem } = self;
        let problem = format!(
            "{problem}; to move its value, add a function `void jittison_migrate_{symbol}(void *new, const void *old, size_t \
             old_size)`, or change it"
        );
        Refusal { symbol, problem }
    }
}
