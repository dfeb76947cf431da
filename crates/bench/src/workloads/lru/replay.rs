//! The scenarios of workload b: readers look keys up while one thread links and evicts.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::cache::{Cache, Evictions};
use super::expressions::templates;
use super::reader::{Reader, Readings};
use crate::measure::competitor::JITTISON;
use crate::measure::machine::processors;
use crate::measure::scenario::{Measures, Scenario, Unit};
use crate::workloads::chance::Zipf;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use jittison_test_support::bench::resident::Resident;

const ENTRIES: usize = 10_000;
const QUICK_ENTRIES: usize = 1_000;
const EXPONENT: f64 = 1.1;
/// A key is compiled after this many misses.
const MISSES: u8 = 3;
/// The share of the entries that is evicted at once when the cache is too full: from 90 % down to 50 %.
const BATCH: (usize, usize) = (40, 90);
/// Lookups of each reader in each phase.
const LOOKUPS: u32 = 200_000;
const QUICK_LOOKUPS: u32 = 20_000;
/// The time from the start of the phase to the eviction of the batch.
const BATCH_AFTER: Duration = Duration::from_millis(20);

/// One variant of the workload.
struct Lru {
    name: &'static str,
    entries: usize,
    keys: usize,
    misses: u8,
    lookups: u32,
    /// One for each processor except the one that links.
    readers: usize,
}

pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    let (entries, lookups) = if quick { (QUICK_ENTRIES, QUICK_LOOKUPS) } else { (ENTRIES, LOOKUPS) };
    let variants = [
        ("b1, many misses", entries, entries * 3, MISSES),
        ("b2, few misses", entries, entries * 6 / 5, MISSES),
        // Entries are evicted while readers find them, so races between a reader and an eviction occur.
        ("b3, sixteen entries", 16, 64, 1),
    ];
    let readers = processors().saturating_sub(1).max(1);
    let make = |(name, entries, keys, misses)| -> Box<dyn Scenario> {
        Box::new(Lru { name, entries, keys, misses, lookups, readers })
    };
    variants.into_iter().map(make).collect()
}

impl Scenario for Lru {
    fn title(&self) -> String {
        format!("workload b, ClickHouse-like cache, {}, {JITTISON}", self.name)
    }

    fn round(&mut self) -> Measures {
        let (templates, keys) = (templates()?, Zipf::new(self.keys, EXPONENT));
        let cache = Cache::new(templates, self.keys, self.entries, self.misses)?;
        let mut rows = Rows::new("workload b", JITTISON, self.name);
        let before = Resident::measure()?;
        let mut evictions = cache.fill()?;
        rows.value("resident memory of the full cache", Unit::Bytes, before.grown()?);
        rows.value("of that code memory and its records", Unit::Bytes, cache.backed_bytes() as f64);
        rows.value("memory of the entries, by the linker's account", Unit::Bytes, cache.reported_bytes() as f64);
        self.phases(&cache, &keys, &mut evictions, &mut rows)?;
        let cleared = cache.clear(evictions)?;
        rows.value("clear all that is left", Unit::Nanoseconds, cleared.as_nanos() as f64);
        cache.check_empty()?;
        cache.release_free();
        rows.value("resident memory left after clear-all", Unit::Bytes, before.grown()?);
        Ok(rows.finish())
    }
}

impl Lru {
    fn phases(&self, cache: &Cache, keys: &Zipf, evictions: &mut Evictions, rows: &mut Rows) -> Result<(), String> {
        // Without links and evictions: the base of comparison.
        let (quiet, ()) = self.phase(cache, keys, evictions, |_, _, _| Ok(()))?;
        quiet.report(rows, "nothing changes");
        let (steady, inserts) = self.phase(cache, keys, evictions, link_all)?;
        steady.report(rows, "entries change");
        self.report_changes(rows, &steady, &inserts, evictions);
        let batch = self.entries * BATCH.0 / BATCH.1;
        let (disturbed, duration) = self.phase(cache, keys, evictions, |cache, evictions, _| {
            thread::sleep(BATCH_AFTER);
            cache.evict_at_once(batch, evictions)
        })?;
        disturbed.report(rows, "four of nine entries evicted at once");
        rows.value("evict four of nine entries at once", Unit::Nanoseconds, duration.as_nanos() as f64);
        Ok(())
    }

    /// Readers do all their lookups while `work` runs, which receives the keys to link. If `work` takes requests, it
    /// ends when all senders are gone.
    fn phase<R>(
        &self,
        cache: &Cache,
        keys: &Zipf,
        evictions: &mut Evictions,
        work: impl FnOnce(&Cache, &mut Evictions, Receiver<u32>) -> Result<R, String>,
    ) -> Result<(Readings, R), String> {
        let (sender, receiver) = channel();
        let start = Barrier::new(self.readers + 1);
        thread::scope(|scope| {
            let read = |number: usize| {
                let (start, sender): (_, Sender<u32>) = (&start, sender.clone());
                scope.spawn(move || {
                    let mut reader = Reader::new(cache, keys, number, sender);
                    start.wait();
                    reader.run(self.lookups).map(|()| reader.finish())
                })
            };
            let readers: Vec<_> = (0..self.readers).map(read).collect();
            drop(sender);
            start.wait();
            let done = work(cache, evictions, receiver);
            let mut readings = Readings::new();
            for reader in readers {
                readings.merge(&reader.join().map_err(|_| "a reader panicked")??);
            }
            Ok((readings, done?))
        })
    }

    fn report_changes(&self, rows: &mut Rows, steady: &Readings, inserts: &Times, evictions: &Evictions) {
        rows.value("hits, of all lookups", Unit::Ratio, steady.hit_rate());
        rows.times_and_tail("insert an entry", inserts);
        rows.times_and_tail("evict an entry", &evictions.times);
        rows.value("entries evicted", Unit::Count, evictions.times.count() as f64);
        rows.value("entries evicted while a reader held them", Unit::Count, evictions.held as f64);
    }
}

/// Links the requested keys, and evicts as many entries, until all senders are gone.
fn link_all(cache: &Cache, evictions: &mut Evictions, requests: Receiver<u32>) -> Result<Times, String> {
    let mut inserts = Times::new();
    for key in requests {
        cache.insert(key, evictions, &mut inserts)?;
    }
    Ok(inserts)
}
