//! What is measured. A [`Scenario`] is one thing done by one competitor; the driver has all of them do their rounds by turns,
//! so that a noisy minute hits everybody, and joins the rounds to medians with their spread.

/// What of a figure does not change from round to round.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The table that it stands in: `link`, `remove`, `churn`, …
    pub group: &'static str,
    /// The row: `small object, add and look up`.
    pub what: String,
    /// The place on the axis of a scaling table, if it is in one: live modules, threads, bytes.
    pub at: Option<u64>,
    /// The column: `jittison`, `ORC as LLJIT`, …
    pub who: String,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    PerSecond,
    Bytes,
    Count,
    /// Of something to something else.
    Ratio,
}

/// One round's figure.
#[derive(Debug, Clone)]
pub struct Measure {
    pub key: Key,
    pub unit: Unit,
    /// The median of the round's operations, or the only value.
    pub value: f64,
    /// Of the round's operations, where there are enough.
    pub p99: Option<f64>,
    /// CPU time of the process for one operation, in nanoseconds, where that says something.
    pub cpu: Option<f64>,
}

pub trait Scenario {
    /// For the progress line: what of whom.
    fn title(&self) -> String;

    /// Does it once more, from the start. An error in words ends this scenario, is printed, and stops nobody else.
    fn round(&mut self) -> Result<Vec<Measure>, String>;
}

/// An error as a scenario gives it.
pub fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
