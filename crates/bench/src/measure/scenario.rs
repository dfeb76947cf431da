//! [`Scenario`]: one measurement of one competitor. The driver runs the rounds of all scenarios in turns, so a noisy
//! minute affects all of them. It reports the median of the rounds with their spread.

/// The identity of a figure, the same in all rounds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The table: `link`, `remove`, `churn`, …
    pub group: &'static str,
    /// The row: `small object, add and look up`.
    pub what: String,
    /// The place on the axis of a scaling table, if there is one: live modules, threads, bytes.
    pub at: Option<u64>,
    /// The column: `jittison`, `ORC as LLJIT`, …
    pub competitor: String,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    PerSecond,
    Bytes,
    Count,
    /// A ratio of two figures.
    Ratio,
}

/// One round's figure.
#[derive(Debug, Clone)]
pub struct Measure {
    pub key: Key,
    pub unit: Unit,
    /// The median of the round's operations, or the only value.
    pub value: f64,
    /// The mean of the round's operations, which the slowest ones raise.
    pub mean: Option<f64>,
    /// The 99th percentile of the round's operations, if there are enough.
    pub p99: Option<f64>,
    /// The 99.9th percentile, if there are enough.
    pub p999: Option<f64>,
    /// CPU time of the process per operation, in nanoseconds, if it is meaningful.
    pub cpu: Option<f64>,
}

/// The figures of one round.
pub type Measures = Result<Vec<Measure>, String>;

pub trait Scenario {
    /// The title for the progress line: what is measured, and of which competitor.
    fn title(&self) -> String;

    /// Runs one round, from the start. An error ends this scenario and is printed; the others go on.
    fn round(&mut self) -> Measures;
}

/// Converts an error to the form that scenarios return.
pub fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
