//! [`Cache`]: entries by key. Each entry has its own lock, so readers wait for the linker and not for the cache.
//!
//! Eviction approximates least recently used by a second chance: an entry that was used since the last inspection
//! stays.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jittison::{Function, ResourceTracker};

use super::expressions::MIX;
use crate::measure::scenario::to_text;
use crate::workloads::chance::weighted;
use crate::workloads::corpus::Template;
use crate::workloads::host::HostSession;
use crate::workloads::host_functions::Run;
use crate::workloads::times::Times;
use fastrand::Rng;

pub struct Cache<'a> {
    session: HostSession,
    templates: &'a [Template],
    capacity: usize,
    /// The number of misses after which a key is requested.
    misses: u8,
    slots: Vec<Slot>,
}

/// The state of one key.
struct Slot {
    template: usize,
    /// Misses since the eviction. Relaxed: it orders no other memory.
    misses: AtomicU8,
    entry: Mutex<Option<Entry>>,
}

struct Entry {
    function: Function<Run>,
    tracker: ResourceTracker,
    expected: u64,
    was_used: bool,
}

/// An entry that a reader holds.
pub struct CacheHandle {
    pub function: Function<Run>,
    pub expected: u64,
}

/// The state of the evicting thread.
pub struct Evictions {
    /// The keys of the entries, in the order of inspection.
    order: VecDeque<u32>,
    generation: u64,
    pub times: Times,
    /// Entries that a reader held when they were evicted.
    pub held: u64,
}

impl<'a> Cache<'a> {
    pub fn new(templates: &'a [Template], keys: usize, capacity: usize, misses: u8) -> Result<Cache<'a>, String> {
        let mut rng = Rng::with_seed(23);
        let mut slot =
            || Slot { template: weighted(&mut rng, &MIX), misses: AtomicU8::new(0), entry: Mutex::new(None) };
        let slots = (0..keys).map(|_| slot()).collect();
        Ok(Cache { session: HostSession::new()?, templates, capacity, misses, slots })
    }

    /// Inserts the most frequent keys, up to the capacity.
    pub fn fill(&self) -> Result<Evictions, String> {
        let mut evictions = Evictions { order: VecDeque::new(), generation: 0, times: Times::new(), held: 0 };
        let mut times = Times::new();
        (0..self.capacity as u32).try_for_each(|key| self.insert(key, &mut evictions, &mut times))?;
        Ok(evictions)
    }

    /// The entry of a key; it can be called while it is held.
    pub fn hold(&self, key: usize) -> Option<CacheHandle> {
        let mut entry = self.slots[key].lock();
        let entry = entry.as_mut()?;
        entry.was_used = true;
        Some(CacheHandle { function: entry.function.clone(), expected: entry.expected })
    }

    /// Whether the key was missed often enough to be linked.
    pub fn miss(&self, key: usize) -> bool {
        let slot = &self.slots[key];
        let total_count = slot.misses.load(Ordering::Relaxed).saturating_add(1);
        let is_enough = total_count >= self.misses;
        slot.misses.store(if is_enough { 0 } else { total_count }, Ordering::Relaxed);
        is_enough
    }

    /// Links the function of a key, and evicts another entry if the cache is full.
    pub fn insert(&self, key: u32, evictions: &mut Evictions, times: &mut Times) -> Result<(), String> {
        let slot = &self.slots[key as usize];
        if slot.lock().is_some() {
            return Ok(());
        }
        evictions.generation += 1;
        let instance = self.templates[slot.template].instance(key, evictions.generation);
        let linked = times.time(|| -> jittison::error::Result<_> {
            let tracker = self.session.add(&instance)?;
            // SAFETY: the entries' signature; our own object, which has no initialisers.
            let function = unsafe { self.session.jit.lookup_in::<Run>(&self.session.dylib, &instance.entry) }?;
            Ok((function, tracker))
        });
        let (function, tracker) = linked.map_err(to_text)?;
        *slot.lock() = Some(Entry { function, tracker, expected: instance.expected, was_used: false });
        evictions.order.push_back(key);
        if evictions.order.len() > self.capacity { self.evict(evictions) } else { Ok(()) }
    }

    fn evict(&self, evictions: &mut Evictions) -> Result<(), String> {
        let Some(entry) = self.take(evictions) else { return Ok(()) };
        let removal = evictions.times.time(move || {
            let Entry { function, tracker, .. } = entry;
            drop(function);
            tracker.remove()
        });
        evictions.held += u64::from(!removal.map_err(to_text)?.is_complete());
        Ok(())
    }

    /// Evicts many entries in one removal. Returns how long that took.
    pub fn evict_at_once(&self, count: usize, evictions: &mut Evictions) -> Result<Duration, String> {
        let entries: Vec<Entry> = (0..count).map_while(|_| self.take(evictions)).collect();
        remove_all(entries)
    }

    /// Removes all entries when no thread reads. Returns how long that took.
    pub fn clear(&self, mut evictions: Evictions) -> Result<Duration, String> {
        self.evict_at_once(self.slots.len(), &mut evictions)
    }

    /// Takes the next entry to evict out of its slot.
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

    /// The memory of the entries, by the linker's account.
    pub fn reported_bytes(&self) -> u64 {
        self.session.jit.usage_of_dylib(&self.session.dylib).total()
    }

    /// Code memory that the kernel backs, with the linker's records of it.
    pub fn backed_bytes(&self) -> u64 {
        let all = self.session.jit.memory_statistics();
        all.resident_bytes + all.frame_table_bytes + all.metadata_bytes
    }

    pub fn release_free(&self) {
        self.session.jit.release_free();
    }

    pub fn check_empty(&self) -> Result<(), String> {
        self.session.check_empty()
    }
}

fn remove_all(entries: Vec<Entry>) -> Result<Duration, String> {
    let (functions, trackers): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|entry| (entry.function, entry.tracker)).unzip();
    let start = Instant::now();
    drop(functions);
    ResourceTracker::remove_all(&trackers).map_err(to_text)?;
    Ok(start.elapsed())
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Entry>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
