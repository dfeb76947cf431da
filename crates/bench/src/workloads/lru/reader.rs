//! [`Reader`]: it looks keys up, holds what it finds while it calls it, and requests keys that it has missed often
//! enough.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::cache::{Cache, CacheHandle};
use crate::measure::scenario::Unit;
use crate::workloads::chance::{Zipf, log_uniform};
use crate::workloads::corpus::ARGUMENT;
use crate::workloads::host;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use fastrand::Rng;

/// Calls of a held entry, one per block of rows.
const CALLS: (f64, f64) = (10.0, 1_000.0);
/// One entry in this many is held for a long query.
const LONG_HOLD_ONE_IN: usize = 100;
/// The lookups of a reader during a long query.
const LONG_HOLD_LOOKUPS: u32 = 5_000;

pub struct Reader<'a> {
    cache: &'a Cache<'a>,
    keys: &'a Zipf,
    rng: Rng,
    requests: Sender<u32>,
    /// The entries of long queries, with the lookup at which each is released.
    long_holds: VecDeque<(u32, CacheHandle)>,
    readings: Readings,
}

/// What readers have measured.
pub struct Readings {
    holds: Times,
    releases: Times,
    hits: u64,
    misses: u64,
    /// The sum over all readers.
    duration: Duration,
    readers: u32,
}

impl<'a> Reader<'a> {
    pub fn new(cache: &'a Cache<'a>, keys: &'a Zipf, number: usize, requests: Sender<u32>) -> Reader<'a> {
        let (rng, long_holds, readings) = (Rng::with_seed(number as u64 * 331 + 5), VecDeque::new(), Readings::new());
        Reader { cache, keys, rng, requests, long_holds, readings }
    }

    pub fn run(&mut self, lookups: u32) -> Result<(), String> {
        let start = Instant::now();
        for lookup in 0..lookups {
            let key = self.keys.key(&mut self.rng);
            let found = self.readings.holds.time(|| self.cache.hold(key));
            match found {
                Some(handle) => self.call_entry(lookup, handle)?,
                None => self.miss(key),
            }
            self.release_until(lookup);
        }
        self.readings.duration = start.elapsed();
        self.readings.readers = 1;
        self.release_until(u32::MAX);
        Ok(())
    }

    pub fn finish(self) -> Readings {
        self.readings
    }

    fn call_entry(&mut self, lookup: u32, handle: CacheHandle) -> Result<(), String> {
        self.readings.hits += 1;
        for _ in 0..log_uniform(&mut self.rng, CALLS.0, CALLS.1) as u32 {
            host::compare(handle.function.call(black_box(ARGUMENT)), handle.expected)?;
        }
        match self.rng.usize(..LONG_HOLD_ONE_IN) {
            0 => self.long_holds.push_back((lookup.saturating_add(LONG_HOLD_LOOKUPS), handle)),
            _ => self.readings.releases.time(move || drop(handle)),
        }
        Ok(())
    }

    fn miss(&mut self, key: usize) {
        self.readings.misses += 1;
        if self.cache.miss(key) {
            // In a phase without links there is no receiver.
            let _ = self.requests.send(key as u32);
        }
    }

    /// Releases entries whose query has ended. If an entry was evicted meanwhile, this frees it.
    fn release_until(&mut self, lookup: u32) {
        while self.long_holds.front().is_some_and(|(until, _)| *until <= lookup)
            && let Some((_, handle)) = self.long_holds.pop_front()
        {
            host::compare(handle.function.call(ARGUMENT), handle.expected).unwrap_or_else(|wrong| panic!("{wrong}"));
            self.readings.releases.time(move || drop(handle));
        }
    }
}

impl Readings {
    pub fn new() -> Readings {
        Readings {
            holds: Times::new(),
            releases: Times::new(),
            hits: 0,
            misses: 0,
            duration: Duration::ZERO,
            readers: 0,
        }
    }

    pub fn merge(&mut self, other: &Readings) {
        self.holds.merge(&other.holds);
        self.releases.merge(&other.releases);
        self.hits += other.hits;
        self.misses += other.misses;
        self.duration += other.duration;
        self.readers += other.readers;
    }

    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }

    pub fn report(&self, rows: &mut Rows, when: &str) {
        rows.times_and_tail(&format!("a reader acquires an entry, {when}"), &self.holds);
        rows.times_and_tail(&format!("a reader releases an entry, {when}"), &self.releases);
        let mean_seconds = self.duration.as_secs_f64() / f64::from(self.readers.max(1));
        rows.value(&format!("hits, {when}"), Unit::PerSecond, self.hits as f64 / mean_seconds);
    }
}
