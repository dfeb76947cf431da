//! [`Rows`]: collects the figures of one round of one workload.

use super::times::Times;
use crate::measure::samples::single;
use crate::measure::scenario::{Key, Measure, Unit};

pub struct Rows {
    group: &'static str,
    competitor: &'static str,
    /// The variant; a prefix of every row.
    variant: String,
    rows: Vec<Measure>,
}

impl Rows {
    pub fn new(group: &'static str, competitor: &'static str, variant: impl Into<String>) -> Rows {
        Rows { group, competitor, variant: variant.into(), rows: Vec::new() }
    }

    /// The median and the 99th percentile of operations; no row if there were none.
    pub fn times(&mut self, what: &str, times: &Times) {
        if times.count() > 0 {
            self.push(what, Unit::Nanoseconds, times.quantile(0.5), Some(times.quantile(0.99)));
        }
    }

    /// The same as [`times`](Self::times), and another row for the 99.9th percentile.
    pub fn times_and_tail(&mut self, what: &str, times: &Times) {
        self.times(what, times);
        if times.count() > 0 {
            self.push(&format!("{what}, p99.9"), Unit::Nanoseconds, times.quantile(0.999), None);
        }
    }

    pub fn value(&mut self, what: &str, unit: Unit, value: f64) {
        self.push(what, unit, value, None);
    }

    pub fn finish(self) -> Vec<Measure> {
        self.rows
    }

    fn push(&mut self, what: &str, unit: Unit, value: f64, p99: Option<f64>) {
        let what = format!("{}: {what}", self.variant);
        let key = Key { group: self.group, what, at: None, competitor: self.competitor.to_owned() };
        self.rows.push(Measure { p99, ..single(key, unit, value) });
    }
}
