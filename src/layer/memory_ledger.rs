//! [`MemoryLedger`]: code memory owned per key, with running totals: a `Ledger` that adds up.
//!
//! The same three verbs, and the same rule: `record` is called inside `with_resource_key`. What a tracker and what a dylib
//! holds is known at any time without looking at what they hold, as each verb moves the totals along. Sharded by dylib,
//! so that one lock covers a key, its dylib, and both keys of a transfer, which are always of one dylib: totals and
//! contents never disagree.
//!
//! Most trackers own one thing. That one stands in the table itself; a second one moves them into a list.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::{mem, vec};

use rustc_hash::FxBuildHasher;
use slotmap::{Key as _, KeyData};

use crate::base::{PrefetchHints, SecondaryMap, capacity_to_keep};
use crate::memory::{Finalized, MemoryUsage, Tenant};
use crate::session::{CountedMutex, JitDylib, KeyCount, ResourceKey, TrackerId};
use crate::sync::Arc;

/// Something that lives in code memory. Asked under locks of the session: it answers from what it knows.
pub trait HasMemory {
    /// The memory.
    fn memory(&self) -> &dyn Finalized;

    /// What it is called in a picture of the memory.
    fn name(&self) -> Arc<str>;
}

/// What is owned per key, and what that holds.
pub struct MemoryLedger<R> {
    shards: Box<[CountedMutex<Shard<R>>]>,
}

struct Shard<R> {
    /// There as long as the dylib holds something.
    dylibs: HashMap<DylibNumber, DylibUsage<R>, FxBuildHasher>,
    /// Room of a dylib that holds nothing any more, for the next one.
    spare: KeyRecords<R>,
    /// Of all dylibs here.
    key_count: usize,
}

/// What trackers of one dylib own.
type KeyRecords<R> = SecondaryMap<TrackerId, Held<R>>;

/// What one key owns.
enum Held<R> {
    One(R),
    Many(Box<Many<R>>),
}

/// What one key owned.
enum RemovedRecords<R> {
    One(Option<R>),
    Many(vec::IntoIter<R>),
}

/// Two or more, and what they hold together.
struct Many<R> {
    usage: MemoryUsage,
    resources: Vec<R>,
}

/// What one dylib owns.
struct DylibUsage<R> {
    usage: MemoryUsage,
    name: Arc<str>,
    held: KeyRecords<R>,
}

/// Tells dylibs of a session apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct DylibNumber(u64);

impl<R: HasMemory> MemoryLedger<R> {
    /// An empty ledger.
    pub fn new() -> MemoryLedger<R> {
        let shard = || Shard { dylibs: HashMap::default(), spare: KeyRecords::default(), key_count: 0 };
        MemoryLedger { shards: (0..SHARDS).map(|_| CountedMutex::new(shard())).collect() }
    }

    /// Adds `resource` under `key`, which is of `dylib`.
    pub fn record(&self, dylib: &JitDylib, key: ResourceKey, resource: R) {
        self.record_noted(dylib, key, resource, &PrefetchHints::default());
    }

    /// As [`record`](Self::record), and notes where that stands.
    pub(crate) fn record_noted(&self, dylib: &JitDylib, key: ResourceKey, resource: R, whereabouts: &PrefetchHints) {
        let usage = resource.memory().usage();
        whereabouts.note_memory(resource.memory());
        let number = DylibNumber::of(key);
        self.shard(number).change(|shard| {
            // Looked for first: a place for a new one is looked for at length, and is seldom needed.
            if !shard.dylibs.contains_key(&number) {
                shard.open(number, dylib.inner().name.clone());
            }
            let Some(account) = shard.dylibs.get_mut(&number) else { return };
            account.usage += usage;
            shard.key_count += account.put(key, Held::One(resource));
            if let Some(held) = account.held.get(key.tracker) {
                whereabouts.note_record(held);
            }
        });
    }

    /// Puts everything of `source` under `destination`, behind what is there. Both are of one dylib.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        self.shard(DylibNumber::of(source)).change(|shard| {
            let Some(account) = shard.dylibs.get_mut(&DylibNumber::of(source)) else { return };
            if let Some(moved) = account.held.remove(source.tracker) {
                shard.key_count = shard.key_count - 1 + account.put(destination, moved);
            }
        });
    }

    /// Everything under `key`, in the order it was recorded. The key is empty afterwards.
    pub fn take(&self, key: ResourceKey) -> impl DoubleEndedIterator<Item = R> + use<R> {
        match self.shard(DylibNumber::of(key)).take(|shard| shard.take(key)) {
            None => RemovedRecords::One(None),
            Some(Held::One(resource)) => RemovedRecords::One(Some(resource)),
            Some(Held::Many(many)) => RemovedRecords::Many(many.resources.into_iter()),
        }
    }

    /// What is held under `key`, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        let number = DylibNumber::of(key);
        let held = |account: &DylibUsage<R>| account.held.get(key.tracker).map(Held::usage);
        self.shard(number).look(|shard| shard.dylibs.get(&number).and_then(held)).unwrap_or_default()
    }

    /// What is held under all keys of `dylib`, those that were removed and are pinned included; in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        let number = DylibNumber(dylib.inner().id.data().as_ffi());
        let usage = |account: &DylibUsage<R>| account.usage;
        self.shard(number).look(|shard| shard.dylibs.get(&number).map_or(MemoryUsage::default(), usage))
    }

    /// Number of keys that own something.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.look(KeyCount::key_count)).sum()
    }

    /// Who lives where, for a picture of the memory: in no particular order, and as of slightly different moments.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.shards.iter().flat_map(|shard| shard.look(Shard::tenants)).collect()
    }

    fn shard(&self, number: DylibNumber) -> &CountedMutex<Shard<R>> {
        &self.shards[FxBuildHasher.hash_one(number) as usize % SHARDS]
    }
}

impl<R: HasMemory> Default for MemoryLedger<R> {
    fn default() -> Self {
        MemoryLedger::new()
    }
}

impl<R> KeyCount for Shard<R> {
    fn key_count(&self) -> usize {
        self.key_count
    }
}

impl<R: HasMemory> DylibUsage<R> {
    /// Puts something under a key, behind what is there; how many keys more own something then.
    fn put(&mut self, key: ResourceKey, added: Held<R>) -> usize {
        let before = self.held.len();
        self.held.put(key.tracker, added, Held::append);
        self.held.len() - before
    }
}

impl<R: HasMemory> Shard<R> {
    #[cold]
    fn open(&mut self, number: DylibNumber, name: Arc<str>) {
        let (usage, held) = (MemoryUsage::default(), mem::take(&mut self.spare));
        self.dylibs.insert(number, DylibUsage { usage, name, held });
    }

    fn take(&mut self, key: ResourceKey) -> Option<Held<R>> {
        let number = DylibNumber::of(key);
        let account = self.dylibs.get_mut(&number)?;
        let taken = account.held.remove(key.tracker)?;
        account.usage -= taken.usage();
        self.key_count -= 1;
        if account.held.len() == 0 {
            self.close(number);
        }
        Some(taken)
    }

    /// Takes a dylib out that holds nothing any more.
    #[cold]
    fn close(&mut self, number: DylibNumber) {
        let Some(account) = self.dylibs.remove(&number) else { return };
        self.spare = account.held;
        // So rarely that it costs next to nothing per removal.
        if let Some(kept) = capacity_to_keep(self.dylibs.len(), self.dylibs.capacity()) {
            self.dylibs.shrink_to(kept);
        }
    }

    fn tenants(&self) -> Vec<Tenant> {
        let mut tenants = Vec::with_capacity(self.key_count);
        for (dylib, account) in &self.dylibs {
            for (tracker, held) in account.held.iter() {
                let owner: Arc<str> = dylib.key_of(tracker).to_string().into();
                let tenant = |one: &R| Tenant::of(one.memory(), one.name(), account.name.clone(), owner.clone());
                tenants.extend(held.resources().iter().map(tenant));
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

impl<R: HasMemory> Held<R> {
    fn usage(&self) -> MemoryUsage {
        match self {
            Held::One(resource) => resource.memory().usage(),
            Held::Many(many) => many.usage,
        }
    }

    fn resources(&self) -> &[R] {
        match self {
            Held::One(resource) => std::slice::from_ref(resource),
            Held::Many(many) => &many.resources,
        }
    }

    fn append(&mut self, added: Held<R>) {
        let many = match self {
            Held::Many(many) => many,
            Held::One(_) => {
                let empty = Box::new(Many { usage: MemoryUsage::default(), resources: Vec::new() });
                let one = mem::replace(self, Held::Many(empty));
                let Held::Many(many) = self else { return };
                many.take_over(one);
                many
            }
        };
        many.take_over(added);
    }
}

impl<R: HasMemory> Many<R> {
    fn take_over(&mut self, added: Held<R>) {
        self.usage += added.usage();
        match added {
            Held::One(resource) => self.resources.push(resource),
            Held::Many(many) => self.resources.extend(many.resources),
        }
    }
}

impl DylibNumber {
    fn of(key: ResourceKey) -> DylibNumber {
        DylibNumber(key.dylib.data().as_ffi())
    }

    fn key_of(self, tracker: TrackerId) -> ResourceKey {
        ResourceKey { dylib: KeyData::from_ffi(self.0).into(), tracker }
    }
}

// One shard under loom: fewer locks to explore, the same protocol.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
