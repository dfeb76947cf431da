//! [`Times`]: the durations of one operation that runs many times, exact to one per mille.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longer durations count as this one.
const LONGEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// In nanoseconds.
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        let times = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Times(times.expect("the bounds are in order and the digits at most five"))
    }
}

impl Times {
    /// Runs the operation and records how long it took.
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.record(start.elapsed());
        result
    }

    pub fn record(&mut self, duration: Duration) {
        self.0.saturating_record(duration.as_nanos() as u64);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Median, 99th percentile and mean in microseconds, in three columns of nine characters.
    pub fn columns(&self) -> String {
        let [median, p99] = [0.5, 0.99].map(|share| self.0.value_at_quantile(share) as f64 / 1e3);
        format!("{median:>9.2}{p99:>9.2}{:>9.2}", self.0.mean() / 1e3)
    }
}
