//! [`Cache`]: entries by key, each behind a lock of its own, so that what readers wait for is the linker and not the cache.
//!
//! Who is evicted is found by a second chance for whoever was used since he was looked at last, which comes near to the least
//! recently used one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jittison::{Function, ResourceTracker};

use super::MIX;
use crate::dice::Dice;
use crate::scenario::words;
use crate::workloads::chance::weighted;
use crate::workloads::corpus::Template;
use crate::workloads::host::{House, Run};
use crate::workloads::times::Times;

pub struct Cache<'a> {
    house: House,
    templates: &'a [Template],
    most: usize,
    /// Misses of a key after which it is asked for.
    misses: u8,
    slots: Vec<Slot>,
}

/// What there is of one key.
struct Slot {
    template: usize,
    /// Since it went; stands for itself.
    misses: AtomicU8,
    entry: Mutex<Option<Entry>>,
}

struct Entry {
    function: Function<Run>,
    tracker: ResourceTracker,
    expected: u64,
    was_used: bool,
}

/// An entry in a reader's hands.
pub struct Held {
    pub function: Function<Run>,
    pub expected: u64,
}

/// The evicting thread's books.
pub struct Evictions {
    /// Keys of the entries, the next to be looked at first.
    order: VecDeque<u32>,
    generation: u64,
    pub times: Times,
    /// How many entries were held by somebody when they went.
    pub held: u64,
}

impl<'a> Cache<'a> {
    pub fn new(templates: &'a [Template], keys: usize, most: usize, misses: u8) -> Result<Cache<'a>, String> {
        let mut dice = Dice(23);
        let mut slot =
            || Slot { template: weighted(&mut dice, &MIX), misses: AtomicU8::new(0), entry: Mutex::new(None) };
        let slots = (0..keys).map(|_| slot()).collect();
        Ok(Cache { house: House::new()?, templates, most, misses, slots })
    }

    /// The commonest keys, as many as there is room for.
    pub fn fill(&self) -> Result<Evictions, String> {
        let mut evictions = Evictions { order: VecDeque::new(), generation: 0, times: Times::new(), held: 0 };
        let mut times = Times::new();
        (0..self.most as u32).try_for_each(|key| self.insert(key, &mut evictions, &mut times))?;
        Ok(evictions)
    }

    /// The entry of a key, to be called as long as it is held.
    pub fn hold(&self, key: usize) -> Option<Held> {
        let mut entry = self.slots[key].lock();
        let entry = entry.as_mut()?;
        entry.was_used = true;
        Some(Held { function: entry.function.clone(), expected: entry.expected })
    }

    /// Whether it has been missed so often that it is worth its link.
    pub fn miss(&self, key: usize) -> bool {
        let slot = &self.slots[key];
        let seen = slot.misses.load(Ordering::Relaxed).saturating_add(1);
        let is_enough = seen >= self.misses;
        slot.misses.store(if is_enough { 0 } else { seen }, Ordering::Relaxed);
        is_enough
    }

    /// Links what a key stands for, and evicts another entry if there is no room.
    pub fn insert(&self, key: u32, evictions: &mut Evictions, times: &mut Times) -> Result<(), String> {
        let slot = &self.slots[key as usize];
        if slot.lock().is_some() {
            return Ok(());
        }
        evictions.generation += 1;
        let instance = self.templates[slot.template].instance(key, evictions.generation);
        let linked = times.time(|| -> jittison::error::Result<_> {
            let tracker = self.house.add(&instance)?;
            // SAFETY: the entries' signature; our own object, which has no initialisers.
            let function = unsafe { self.house.jit.lookup_in::<Run>(&self.house.dylib, &instance.entry) }?;
            Ok((function, tracker))
        });
        let (function, tracker) = linked.map_err(words)?;
        *slot.lock() = Some(Entry { function, tracker, expected: instance.expected, was_used: false });
        evictions.order.push_back(key);
        if evictions.order.len() > self.most { self.evict(evictions) } else { Ok(()) }
    }

    fn evict(&self, evictions: &mut Evictions) -> Result<(), String> {
        let Some(entry) = self.take(evictions) else { return Ok(()) };
        let removal = evictions.times.time(move || {
            let Entry { function, tracker, .. } = entry;
            drop(function);
            tracker.remove()
        });
        evictions.held += u64::from(!removal.map_err(words)?.is_complete());
        Ok(())
    }

    /// Removes many entries as one removal; how long that took.
    pub fn evict_at_once(&self, count: usize, evictions: &mut Evictions) -> Result<Duration, String> {
        let entries: Vec<Entry> = (0..count).map_while(|_| self.take(evictions)).collect();
        remove_all(entries)
    }

    /// Removes all entries, at an end where nobody reads; how long that took.
    pub fn clear(&self, mut evictions: Evictions) -> Result<Duration, String> {
        self.evict_at_once(self.slots.len(), &mut evictions)
    }

    /// The entry that goes next, out of its slot.
    fn take(&self, evictions: &mut Evictions) -> Option<Entry> {
        loop {
            let key = evictions.order.pop_front()?;
            let slot = &self.slots[key as usize];
            let mut entry = slot.lock();
            match entry.as_mut() {
                Some(used) if used.was_used => {
                    used.was_used = false;
                    evictions.order.push_back(key);
                }
                _ => {
                    slot.misses.store(0, Ordering::Relaxed);
                    return entry.take();
                }
            }
        }
    }

    /// What the linker says that the entries take.
    pub fn reported_bytes(&self) -> u64 {
        self.house.jit.usage_of_dylib(&self.house.dylib).total()
    }

    /// Code memory that the kernel backs, with the linker's records of it.
    pub fn backed_bytes(&self) -> u64 {
        let all = self.house.jit.memory_statistics();
        all.resident_bytes + all.frame_table_bytes + all.metadata_bytes
    }

    pub fn release_free(&self) {
        self.house.jit.release_free();
    }

    pub fn check_empty(&self) -> Result<(), String> {
        self.house.check_empty()
    }
}

fn remove_all(entries: Vec<Entry>) -> Result<Duration, String> {
    let (functions, trackers): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|entry| (entry.function, entry.tracker)).unzip();
    let start = Instant::now();
    drop(functions);
    ResourceTracker::remove_all(&trackers).map_err(words)?;
    Ok(start.elapsed())
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Entry>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
