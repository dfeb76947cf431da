//! The competing variants, as object files in memory. They are compiled once and linked many times.

use crate::problem::Kernel;

/// One way to compile one kernel.
pub struct Variant {
    pub kernel: Kernel,
    /// A description for people.
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

/// All object files of a run.
pub struct Suite {
    /// The compiler's name.
    pub compiler: String,
    /// Both kernels as plain loops, the counters, and the function that reads the counters.
    pub full: Vec<u8>,
    /// By kernel. The first variant is the kernel as it is in `full`.
    pub variants: [Vec<Variant>; 2],
    /// By kernel, in the order of [`Defect::ALL`].
    pub bad: [Vec<(Defect, Variant)>; 2],
}

impl Suite {
    pub fn variants(&self, kernel: Kernel) -> &[Variant] {
        &self.variants[kernel.index()]
    }
}
