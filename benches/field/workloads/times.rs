//! [`Times`]: how long operations took, in as much memory however many there are, so that measuring does not show in the
//! memory that is measured.

use std::time::{Duration, Instant};

/// Steps of an octave: figures are true to 3 %.
const STEPS: u64 = 32;

/// Counts of durations, by their logarithm.
#[derive(Clone)]
pub struct Times {
    counts: Vec<u32>,
    count: u64,
    sum: Duration,
    most: Duration,
}

impl Times {
    pub fn new() -> Times {
        let counts = vec![0; position(u64::MAX) + 1];
        Times { counts, count: 0, sum: Duration::ZERO, most: Duration::ZERO }
    }

    /// Does it and notes how long it took.
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.note(start.elapsed());
        result
    }

    pub fn note(&mut self, took: Duration) {
        self.counts[position(took.as_nanos() as u64)] += 1;
        self.count += 1;
        self.sum += took;
        self.most = self.most.max(took);
    }

    pub fn merge(&mut self, other: &Times) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum += other.sum;
        self.most = self.most.max(other.most);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// In nanoseconds; zero without operations.
    pub fn most(&self) -> f64 {
        self.most.as_nanos() as f64
    }

    /// In nanoseconds; zero without operations.
    pub fn mean(&self) -> f64 {
        self.sum.as_nanos() as f64 / self.count.max(1) as f64
    }

    /// What this share of the operations did not exceed, in nanoseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen > wanted
        });
        found.map_or(self.most(), |position| middle(position).min(self.most()))
    }
}

/// Below [`STEPS`] each nanosecond has its own.
fn position(nanoseconds: u64) -> usize {
    let octave = u64::from((nanoseconds | STEPS).ilog2() - STEPS.ilog2());
    (octave * STEPS + (nanoseconds >> octave)) as usize
}

fn middle(position: usize) -> f64 {
    let position = position as u64;
    let octave = (position / STEPS).saturating_sub(1);
    let least = (position - octave * STEPS) << octave;
    least as f64 + ((1u64 << octave) - 1) as f64 / 2.0
}
