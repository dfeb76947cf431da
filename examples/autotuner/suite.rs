//! The variants that compete, as object files that are kept in memory: made once, linked many times.

use crate::problem::Kernel;

/// One way to compile one kernel.
pub struct Variant {
    pub kernel: Kernel,
    /// In words, for people.
    pub name: String,
    pub object: Vec<u8>,
}

/// What is wrong with a variant on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    MissingSymbol,
    WrongAnswer,
    FailingInitialiser,
}

impl Defect {
    pub const ALL: [Defect; 3] = [Defect::MissingSymbol, Defect::WrongAnswer, Defect::FailingInitialiser];

    pub fn name(self) -> &'static str {
        match self {
            Defect::MissingSymbol => "missing symbol",
            Defect::WrongAnswer => "wrong answer",
            Defect::FailingInitialiser => "failing initialiser",
        }
    }
}

/// All that a run links.
pub struct Suite {
    /// Who made them.
    pub compiler: String,
    /// Both kernels as they were first written, the variables, and the function that reads these.
    pub whole: Vec<u8>,
    /// By kernel; the first of each is what it looks like in `whole`.
    pub variants: [Vec<Variant>; 2],
    /// By kernel, in the order of [`Defect::ALL`].
    pub bad: [Vec<(Defect, Variant)>; 2],
}

impl Suite {
    pub fn variants(&self, kernel: Kernel) -> &[Variant] {
        &self.variants[kernel.index()]
    }
}
