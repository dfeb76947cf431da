//! [`Times`]: durations of operations, in memory of constant size, so that measuring does not change the memory that
//! is measured.

use std::time::{Duration, Instant};

/// Steps per octave: figures are exact to 3 %.
const STEPS: u64 = 32;

/// Counts of durations, in logarithmic buckets.
#[derive(Clone)]
pub struct Times {
    counts: Vec<u32>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Times {
    pub fn new() -> Times {
        let counts = vec![0; position(u64::MAX) + 1];
        Times { counts, count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }

    /// Runs the operation and records how long it took.
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.record(start.elapsed());
        result
    }

    pub fn record(&mut self, duration: Duration) {
        self.counts[position(duration.as_nanos() as u64)] += 1;
        self.count += 1;
        self.sum += duration;
        self.max = self.max.max(duration);
    }

    pub fn merge(&mut self, other: &Times) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// In nanoseconds; zero without operations.
    pub fn max(&self) -> f64 {
        self.max.as_nanos() as f64
    }

    /// In nanoseconds; zero without operations.
    pub fn mean(&self) -> f64 {
        self.sum.as_nanos() as f64 / self.count.max(1) as f64
    }

    /// The duration that this share of the operations did not exceed, in nanoseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let target = (self.count as f64 * share) as u64;
        let mut total_count = 0;
        let found = self.counts.iter().position(|&count| {
            total_count += u64::from(count);
            total_count > target
        });
        found.map_or(self.max(), |position| middle(position).min(self.max()))
    }
}

/// Each nanosecond below [`STEPS`] has its own bucket.
fn position(nanoseconds: u64) -> usize {
    let octave = u64::from((nanoseconds | STEPS).ilog2() - STEPS.ilog2());
    (octave * STEPS + (nanoseconds >> octave)) as usize
}

fn middle(position: usize) -> f64 {
    let position = position as u64;
    let octave = (position / STEPS).saturating_sub(1);
    let min = (position - octave * STEPS) << octave;
    min as f64 + ((1u64 << octave) - 1) as f64 / 2.0
}
