//! [`Reader`]: looks keys up, holds what it finds while it calls it, and asks for what it has missed often enough.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::cache::{Cache, Held};
use crate::dice::Dice;
use crate::scenario::Unit;
use crate::workloads::chance::{Zipf, log_uniform};
use crate::workloads::corpus::ARGUMENT;
use crate::workloads::host;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;

/// Calls of an entry that is held: a block of rows each.
const CALLS: (f64, f64) = (10.0, 1_000.0);
/// One entry in so many is held for a long query: as long as so many lookups take.
const KEPT_ONE_IN: usize = 100;
const KEPT_FOR: u32 = 5_000;

pub struct Reader<'a> {
    cache: &'a Cache<'a>,
    keys: &'a Zipf,
    dice: Dice,
    requests: Sender<u32>,
    /// What a long query holds, and until which lookup.
    kept: VecDeque<(u32, Held)>,
    readings: Readings,
}

/// What readers have seen.
pub struct Readings {
    holds: Times,
    releases: Times,
    hits: u64,
    misses: u64,
    /// Of all readers, one after the other.
    took: Duration,
    readers: u32,
}

impl<'a> Reader<'a> {
    pub fn new(cache: &'a Cache<'a>, keys: &'a Zipf, number: usize, requests: Sender<u32>) -> Reader<'a> {
        let (dice, kept, readings) = (Dice(number as u64 * 331 + 5), VecDeque::new(), Readings::new());
        Reader { cache, keys, dice, requests, kept, readings }
    }

    pub fn run(&mut self, lookups: u32) -> Result<(), String> {
        let start = Instant::now();
        for lookup in 0..lookups {
            let key = self.keys.key(&mut self.dice);
            let found = self.readings.holds.time(|| self.cache.hold(key));
            match found {
                Some(held) => self.use_it(lookup, held)?,
                None => self.miss(key),
            }
            self.release_until(lookup);
        }
        self.readings.took = start.elapsed();
        self.readings.readers = 1;
        self.release_until(u32::MAX);
        Ok(())
    }

    pub fn finish(self) -> Readings {
        self.readings
    }

    fn use_it(&mut self, lookup: u32, held: Held) -> Result<(), String> {
        self.readings.hits += 1;
        for _ in 0..log_uniform(&mut self.dice, CALLS.0, CALLS.1) as u32 {
            host::compare(held.function.call(black_box(ARGUMENT)), held.expected)?;
        }
        match self.dice.roll(KEPT_ONE_IN) {
            0 => self.kept.push_back((lookup.saturating_add(KEPT_FOR), held)),
            _ => self.readings.releases.time(move || drop(held)),
        }
        Ok(())
    }

    fn miss(&mut self, key: usize) {
        self.readings.misses += 1;
        if self.cache.miss(key) {
            // Nobody hears it in a phase in which nothing is linked.
            let _ = self.requests.send(key as u32);
        }
    }

    /// Also what was evicted meanwhile, which goes with this.
    fn release_until(&mut self, lookup: u32) {
        while let Some((_, held)) = self.kept.pop_front_if(|(until, _)| *until <= lookup) {
            host::compare(held.function.call(ARGUMENT), held.expected).unwrap_or_else(|wrong| panic!("{wrong}"));
            self.readings.releases.time(move || drop(held));
        }
    }
}

impl Readings {
    pub fn new() -> Readings {
        Readings { holds: Times::new(), releases: Times::new(), hits: 0, misses: 0, took: Duration::ZERO, readers: 0 }
    }

    pub fn merge(&mut self, other: &Readings) {
        self.holds.merge(&other.holds);
        self.releases.merge(&other.releases);
        self.hits += other.hits;
        self.misses += other.misses;
        self.took += other.took;
        self.readers += other.readers;
    }

    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }

    pub fn report(&self, rows: &mut Rows, when: &str) {
        rows.times_and_tail(&format!("a reader takes hold of an entry, {when}"), &self.holds);
        rows.times_and_tail(&format!("a reader lets go of an entry, {when}"), &self.releases);
        let together = self.took.as_secs_f64() / f64::from(self.readers.max(1));
        rows.value(&format!("hits, {when}"), Unit::PerSecond, self.hits as f64 / together);
    }
}
