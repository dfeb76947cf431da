//! A histogram of durations in buckets of equal ratio: fixed in size, exact to three percent, and cheap enough to be filled by
//! every call. Each thread fills its own; they are added up in the end.

use std::time::Duration;

/// Buckets to a doubling, as a power of two.
const FINENESS: u32 = 5;
const BUCKETS: usize = ((64 - FINENESS as usize) + 1) << FINENESS;

#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    longest_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]), total: 0, longest_ns: 0 }
    }
}

impl Histogram {
    pub fn note(&mut self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.counts[bucket(nanoseconds)] += 1;
        self.total += 1;
        self.longest_ns = self.longest_ns.max(nanoseconds);
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(sum, count)| *sum += count);
        self.total += other.total;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub fn longest(&self) -> Option<Duration> {
        (self.total > 0).then(|| Duration::from_nanos(self.longest_ns))
    }

    /// What `share` of all durations stay below; none without any.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(|bucket| Duration::from_nanos(end_of(bucket).min(self.longest_ns)))
    }
}

/// The first buckets hold one nanosecond each; from there on, `FINENESS` bits below the highest one count.
fn bucket(nanoseconds: u64) -> usize {
    let highest = nanoseconds.max(1).ilog2();
    match highest.checked_sub(FINENESS) {
        None => nanoseconds as usize,
        Some(shift) => ((shift as usize + 1) << FINENESS) + ((nanoseconds >> shift) as usize & ((1 << FINENESS) - 1)),
    }
}

/// The longest duration of a bucket.
fn end_of(bucket: usize) -> u64 {
    let (octave, place) = (bucket >> FINENESS, bucket as u64 & ((1 << FINENESS) - 1));
    match octave.checked_sub(1) {
        None => bucket as u64,
        Some(shift) => (((1 << FINENESS) + place + 1) << shift).wrapping_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_where_the_next_one_begins() {
        for nanoseconds in (0..100_000).chain([1 << 40, u64::MAX - 1, u64::MAX]) {
            let end = end_of(bucket(nanoseconds));
            assert!(end >= nanoseconds && end - nanoseconds <= nanoseconds / 32, "{nanoseconds} ends at {end}");
            assert!(end == u64::MAX || bucket(end + 1) == bucket(nanoseconds) + 1);
        }
    }

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1000).for_each(|number| histogram.note(Duration::from_nanos(number)));
        let median = histogram.quantile(0.5).map_or(0, |median| median.as_nanos());
        assert!((500..=520).contains(&median), "{median}");
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_nanos(1000)));
    }
}
