//! [`Histogram`]: durations in nanoseconds, with a relative error of at most one per mille. Recording is cheap enough for
//! every call. Each thread fills its own histogram; they are merged at the end.

use std::time::Duration;

/// Longer durations count as this one.
const LONGEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

#[derive(Clone)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Histogram(counts.expect("the bounds are in order and the digits at most five"))
    }
}

impl Histogram {
    pub fn record(&mut self, duration: Duration) {
        self.0.saturating_record(duration.as_nanos() as u64);
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub fn longest(&self) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.max()))
    }

    /// The duration that `share` of all durations do not exceed; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let nanoseconds = self.0.value_at_quantile(share).min(self.0.max());
        (!self.0.is_empty()).then(|| Duration::from_nanos(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_duration_than_the_bound_is_recorded_as_the_bound() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_secs(3_600));
        let longest = histogram.longest().map_or(0, |longest| longest.as_secs());
        assert!((59..=61).contains(&longest), "{longest}");
    }

    #[test]
    fn quantiles_are_those_of_the_recorded_durations() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1000).for_each(|number| histogram.record(Duration::from_nanos(number)));
        let median = histogram.quantile(0.5).map_or(0, |median| median.as_nanos());
        assert!((500..=520).contains(&median), "{median}");
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_nanos(1000)));
    }
}
