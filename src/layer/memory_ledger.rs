//! [`MemoryLedger`]: memory of code by key, with running totals per key and per dylib.
//!
//! It has the three verbs of a `Ledger` (record, transfer, take) and its rule: `record` is called inside `with_resource_key`.
//! Each verb updates the totals, so the usage of a tracker or a dylib is known in constant time.
//!
//! ```text
//!   MemoryLedger ─ shards (each with a lock) ─ by dylib: total, name ─ by tracker: One(R) or Many(total, list of R)
//! ```
//!
//! The shard depends on the dylib only. Both keys of a transfer are of one dylib, so one lock covers the two keys and the
//! dylib's total. Totals and contents never disagree.
//!
//! A ledger that is dropped leaks what it still has. Its manager was deregistered, or was never registered. So no
//! session has asked it to release this code, and threads may still run it.
//!
//! Most trackers own one value, which is in the table itself. A second value moves both to a list. The list is in chunks, so a
//! transfer of many values moves only a few pointers under the lock.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::mem;

use rustc_hash::FxBuildHasher;

use crate::base::{ChunkList, ChunkListIter, PrefetchHints, SecondaryMap, shrunk_capacity};
use crate::memory::{Finalized, MemoryUsage, Tenant};
use crate::session::{CountedMutex, DylibId, JitDylib, KeyCount, ResourceKey, TrackerId};
use crate::sync::Arc;

/// A resource in code memory. The methods are called under locks of the session, so they must not take locks.
pub trait HasMemory {
    /// The memory.
    fn memory(&self) -> &dyn Finalized;

    /// The name of the resource in a map of the memory.
    fn name(&self) -> Arc<str>;
}

/// Resources by key, with the memory that they use.
pub struct MemoryLedger<R> {
    shards: Box<[CountedMutex<Shard<R>>]>,
}

struct Shard<R> {
    /// Dylibs that own something.
    dylibs: HashMap<DylibId, DylibUsage<R>, FxBuildHasher>,
    /// The empty table of a removed dylib, for the next dylib.
    spare: KeyRecords<R>,
    /// Number of keys of all dylibs in this shard.
    key_count: usize,
}

/// What the trackers of one dylib own.
type KeyRecords<R> = SecondaryMap<TrackerId, OneOrMany<R>>;

/// What one key owns. As large as `R`, if `R` has a pointer that is never null.
enum OneOrMany<R> {
    One(R),
    /// `None` is nothing at all.
    Many(Option<Box<ManyRecords<R>>>),
}

impl<R> Default for OneOrMany<R> {
    fn default() -> Self {
        OneOrMany::Many(None)
    }
}

/// What one key owned, in the order it was recorded.
enum RemovedRecords<R> {
    One(Option<R>),
    Many(ChunkListIter<R>),
}

/// Two or more resources, and the memory that they use together.
struct ManyRecords<R> {
    usage: MemoryUsage,
    resources: ChunkList<R>,
}

/// What one dylib owns.
struct DylibUsage<R> {
    usage: MemoryUsage,
    name: Arc<str>,
    by_tracker: KeyRecords<R>,
}

impl<R: HasMemory> MemoryLedger<R> {
    /// Bytes of the entry of one key.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = KeyRecords::<R>::ENTRY_BYTES;

    /// An empty ledger.
    pub fn new() -> MemoryLedger<R> {
        let shard = || Shard { dylibs: HashMap::default(), spare: KeyRecords::default(), key_count: 0 };
        MemoryLedger { shards: (0..SHARDS).map(|_| CountedMutex::new(shard())).collect() }
    }

    /// Adds `resource` under `key`, which is of `dylib`.
    pub fn record(&self, dylib: &JitDylib, key: ResourceKey, resource: R) {
        self.record_with_hints(dylib, key, resource, &PrefetchHints::default());
    }

    /// As [`record`](Self::record). Also stores the addresses that the removal will touch, for prefetching.
    #[inline(always)]
    pub(crate) fn record_with_hints(&self, dylib: &JitDylib, key: ResourceKey, resource: R, hints: &PrefetchHints) {
        let usage = resource.memory().usage();
        hints.set_memory(resource.memory());
        resource.memory().free_space_record().into_iter().for_each(|address| hints.set_free_space(address));
        self.shard(key.dylib).with_mut(|shard| {
            // Not `entry`: that reserves space for an insertion, which is rarely needed.
            let dylib_usage = match shard.dylibs.get_mut(&key.dylib) {
                Some(dylib_usage) => dylib_usage,
                None => shard.add_dylib(key.dylib, dylib.inner().name.clone()),
            };
            dylib_usage.usage += usage;
            let added_keys = dylib_usage.insert(key, OneOrMany::One(resource));
            if let Some(owned) = dylib_usage.by_tracker.get(key.tracker) {
                hints.set_record(owned);
            }
            shard.key_count += added_keys;
        });
    }

    /// Moves everything under `source` to `destination`, after what is there. Both keys are of one dylib.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        self.shard(source.dylib).with_mut(|shard| {
            let Some(dylib_usage) = shard.dylibs.get_mut(&source.dylib) else { return };
            if let Some(moved) = dylib_usage.by_tracker.remove(source.tracker) {
                shard.key_count = shard.key_count - 1 + dylib_usage.insert(destination, moved);
            }
        });
    }

    /// Removes and returns everything under `key`, in the order it was recorded.
    pub fn take(&self, key: ResourceKey) -> impl DoubleEndedIterator<Item = R> + use<R> {
        match self.shard(key.dylib).with_mut_if_any(|shard| shard.take(key)) {
            None | Some(OneOrMany::Many(None)) => RemovedRecords::One(None),
            Some(OneOrMany::One(resource)) => RemovedRecords::One(Some(resource)),
            Some(OneOrMany::Many(Some(many))) => RemovedRecords::Many(many.resources.into_iter()),
        }
    }

    /// Memory under `key`, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        let usage = |dylib_usage: &DylibUsage<R>| dylib_usage.by_tracker.get(key.tracker).map(OneOrMany::usage);
        self.shard(key.dylib).with(|shard| shard.dylibs.get(&key.dylib).and_then(usage)).unwrap_or_default()
    }

    /// Memory under all keys of `dylib`, in constant time. Removed keys whose code is still pinned are included.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        let id = dylib.inner().id;
        let usage = |dylib_usage: &DylibUsage<R>| dylib_usage.usage;
        self.shard(id).with(|shard| shard.dylibs.get(&id).map_or(MemoryUsage::default(), usage))
    }

    /// Number of keys that own something.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(KeyCount::key_count)).sum()
    }

    /// Where each resource is, for a map of the memory. The order is arbitrary, and each shard is read at its own time.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.shards.iter().flat_map(|shard| shard.with(Shard::tenants)).collect()
    }

    /// The start and the size of the code of each resource under `key`.
    #[cfg(feature = "reload")]
    pub fn code_of(&self, key: ResourceKey) -> Vec<(crate::base::ExecutorAddr, u64)> {
        self.shard(key.dylib).with(|shard| {
            let owned = shard.dylibs.get(&key.dylib).and_then(|dylib_usage| dylib_usage.by_tracker.get(key.tracker));
            let mut code = Vec::new();
            owned.into_iter().for_each(|owned| {
                owned.for_each(|one| {
                    let memory = one.memory();
                    code.push((memory.address(crate::base::SegmentKind::Code), memory.usage().code));
                });
            });
            code
        })
    }

    fn shard(&self, dylib: DylibId) -> &CountedMutex<Shard<R>> {
        &self.shards[FxBuildHasher.hash_one(dylib) as usize % SHARDS]
    }
}

impl<R: HasMemory> Default for MemoryLedger<R> {
    fn default() -> Self {
        MemoryLedger::new()
    }
}

impl<R> Drop for MemoryLedger<R> {
    /// Leaks the resources that are left. No session has reclaimed their trackers, so threads may still run the code.
    fn drop(&mut self) {
        for shard in &self.shards {
            let dylibs = shard.with_mut(|shard| mem::take(&mut shard.dylibs));
            // The values only: the table itself is no code.
            dylibs.into_values().for_each(mem::forget);
        }
    }
}

impl<R> KeyCount for Shard<R> {
    fn key_count(&self) -> usize {
        self.key_count
    }
}

impl<R: HasMemory> DylibUsage<R> {
    /// Appends to what a key owns. Returns 1 if the key owned nothing before, else 0.
    fn insert(&mut self, key: ResourceKey, added: OneOrMany<R>) -> usize {
        let before = self.by_tracker.len();
        self.by_tracker.insert_or_merge(key.tracker, added, OneOrMany::append);
        self.by_tracker.len() - before
    }
}

impl<R: HasMemory> Shard<R> {
    #[cold]
    fn add_dylib(&mut self, dylib: DylibId, name: Arc<str>) -> &mut DylibUsage<R> {
        let (usage, by_tracker) = (MemoryUsage::default(), mem::take(&mut self.spare));
        self.dylibs.entry(dylib).or_insert(DylibUsage { usage, name, by_tracker })
    }

    fn take(&mut self, key: ResourceKey) -> Option<OneOrMany<R>> {
        let dylib_usage = self.dylibs.get_mut(&key.dylib)?;
        let taken = dylib_usage.by_tracker.remove(key.tracker)?;
        dylib_usage.usage -= taken.usage();
        self.key_count -= 1;
        if dylib_usage.by_tracker.len() == 0 {
            self.remove_dylib(key.dylib);
        }
        Some(taken)
    }

    /// Removes a dylib that owns nothing any more.
    #[cold]
    fn remove_dylib(&mut self, dylib: DylibId) {
        let Some(dylib_usage) = self.dylibs.remove(&dylib) else { return };
        self.spare = dylib_usage.by_tracker;
        // Shrinks rarely, so that the cost per removal is negligible.
        if let Some(capacity) = shrunk_capacity(self.dylibs.len(), self.dylibs.capacity()) {
            self.dylibs.shrink_to(capacity);
        }
    }

    fn tenants(&self) -> Vec<Tenant> {
        let mut tenants = Vec::with_capacity(self.key_count);
        for (dylib, dylib_usage) in &self.dylibs {
            for (tracker, owned) in dylib_usage.by_tracker.iter() {
                let owner: Arc<str> = ResourceKey { dylib: *dylib, tracker }.to_string().into();
                let tenant = |one: &R| Tenant::of(one.memory(), one.name(), dylib_usage.name.clone(), owner.clone());
                owned.for_each(|one| tenants.push(tenant(one)));
            }
        }
        tenants
    }
}

impl<R> Iterator for RemovedRecords<R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        match self {
            RemovedRecords::One(one) => one.take(),
            RemovedRecords::Many(many) => many.next(),
        }
    }
}

impl<R> DoubleEndedIterator for RemovedRecords<R> {
    fn next_back(&mut self) -> Option<R> {
        match self {
            RemovedRecords::One(one) => one.take(),
            RemovedRecords::Many(many) => many.next_back(),
        }
    }
}

impl<R: HasMemory> OneOrMany<R> {
    fn usage(&self) -> MemoryUsage {
        match self {
            OneOrMany::One(resource) => resource.memory().usage(),
            OneOrMany::Many(many) => many.as_ref().map_or_else(MemoryUsage::default, |many| many.usage),
        }
    }

    fn for_each(&self, visit: impl FnMut(&R)) {
        match self {
            OneOrMany::One(resource) => std::iter::once(resource).for_each(visit),
            OneOrMany::Many(many) => many.iter().flat_map(|many| many.resources.iter()).for_each(visit),
        }
    }

    fn append(&mut self, added: OneOrMany<R>) {
        let mut many = match mem::take(self) {
            OneOrMany::Many(Some(many)) => many,
            few => {
                let mut many = Box::new(ManyRecords { usage: MemoryUsage::default(), resources: ChunkList::new() });
                many.append(few);
                many
            }
        };
        many.append(added);
        *self = OneOrMany::Many(Some(many));
    }
}

impl<R: HasMemory> ManyRecords<R> {
    fn append(&mut self, added: OneOrMany<R>) {
        self.usage += added.usage();
        match added {
            OneOrMany::One(resource) => self.resources.push(resource),
            OneOrMany::Many(Some(many)) => self.resources.append(many.resources),
            OneOrMany::Many(None) => {}
        }
    }
}

// One shard under loom: the same protocol with fewer locks to explore.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
