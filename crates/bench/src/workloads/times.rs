//! [`Times`]: durations of operations in a histogram, whose memory is of constant size, so that measuring does not
//! change the memory that is measured. Figures are exact to 1 %, but the sum is exact.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longer durations count as this one.
const LONGEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;

#[derive(Clone)]
pub struct Times {
    nanoseconds: Histogram<u32>,
    sum: Duration,
}

impl Times {
    pub fn new() -> Times {
        let nanoseconds = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Times { nanoseconds: nanoseconds.expect("the bounds are in order"), sum: Duration::ZERO }
    }

    /// Runs the operation and records how long it took.
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.record(start.elapsed());
        result
    }

    pub fn record(&mut self, duration: Duration) {
        self.nanoseconds.saturating_record(duration.as_nanos() as u64);
        self.sum += duration;
    }

    pub fn merge(&mut self, other: &Times) {
        self.nanoseconds.add(&other.nanoseconds).expect("all histograms have the same bounds");
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// In nanoseconds; zero without operations.
    pub fn max(&self) -> f64 {
        self.nanoseconds.max() as f64
    }

    /// In nanoseconds; zero without operations.
    pub fn mean(&self) -> f64 {
        self.sum.as_nanos() as f64 / self.count().max(1) as f64
    }

    /// The duration that this share of the operations did not exceed, in nanoseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        self.nanoseconds.value_at_quantile(share).min(self.nanoseconds.max()) as f64
    }
}
