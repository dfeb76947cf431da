//! [`MemoryLedger`]: code memory owned per key, with running totals: a `Ledger` that adds up.
//!
//! The same three verbs, and the same rule: `record` is called inside `with_resource_key`. What a tracker and what a dylib
//! holds is known at any time without looking at what they hold, as each verb moves the totals along. Sharded by dylib,
//! so that one lock covers a key, its dylib, and both keys of a transfer, which are always of one dylib: totals and
//! contents never disagree.
//!
//! Most trackers own one thing. That one stands in the table itself; a second one moves them into a list.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::{mem, vec};

use rustc_hash::FxBuildHasher;
use slotmap::Key as _;

use crate::base::is_sparse;
use crate::memory::{Finalized, MemoryUsage, Tenant};
use crate::session::{Drawer, JitDylib, Keyed, ResourceKey};
use crate::sync::Arc;

/// Something that lives in code memory.
pub trait Occupant {
    /// The memory.
    fn memory(&self) -> &dyn Finalized;

    /// What it is called in a picture of the memory.
    fn name(&self) -> Arc<str>;
}

/// What is owned per key, and what that holds.
pub struct MemoryLedger<R> {
    shards: Box<[Drawer<Shard<R>>]>,
}

type Map<K, V> = HashMap<K, V, FxBuildHasher>;

struct Shard<R> {
    held: Map<ResourceKey, Held<R>>,
    /// There as long as the dylib holds something.
    dylibs: Map<DylibNumber, Account>,
}

/// What one key owns.
enum Held<R> {
    One(R),
    Many(Box<Many<R>>),
}

/// What one key owned.
enum Taken<R> {
    One(Option<R>),
    Many(vec::IntoIter<R>),
}

/// Two or more, and what they hold together.
struct Many<R> {
    usage: MemoryUsage,
    resources: Vec<R>,
}

/// What one dylib owns.
struct Account {
    usage: MemoryUsage,
    name: Arc<str>,
}

/// Tells dylibs of a session apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct DylibNumber(u64);

impl<R: Occupant> MemoryLedger<R> {
    /// An empty ledger.
    pub fn new() -> MemoryLedger<R> {
        let shard = || Shard { held: Map::default(), dylibs: Map::default() };
        MemoryLedger { shards: (0..SHARDS).map(|_| Drawer::new(shard())).collect() }
    }

    /// Adds `resource` under `key`, which is of `dylib`.
    pub fn record(&self, dylib: &JitDylib, key: ResourceKey, resource: R) {
        let usage = resource.memory().usage();
        let number = DylibNumber::of(key);
        self.shard(number).change(|shard| {
            // Looked for first: a place for a new one is looked for at length, and is seldom needed.
            match shard.dylibs.get_mut(&number) {
                Some(account) => account.usage += usage,
                None => _ = shard.dylibs.insert(number, Account { usage, name: dylib.inner().name.clone() }),
            }
            shard.put(key, Held::One(resource));
        });
    }

    /// Puts everything of `source` under `destination`, behind what is there. Both are of one dylib.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        self.shard(DylibNumber::of(source)).change(|shard| {
            if let Some(moved) = shard.held.remove(&source) {
                shard.put(destination, moved);
            }
        });
    }

    /// Everything under `key`, in the order it was recorded. The key is empty afterwards.
    pub fn take(&self, key: ResourceKey) -> impl DoubleEndedIterator<Item = R> + use<R> {
        match self.shard(DylibNumber::of(key)).take(|shard| shard.take(key)) {
            None => Taken::One(None),
            Some(Held::One(resource)) => Taken::One(Some(resource)),
            Some(Held::Many(many)) => Taken::Many(many.resources.into_iter()),
        }
    }

    /// What is held under `key`, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        let usage = |shard: &Shard<R>| shard.held.get(&key).map_or(MemoryUsage::default(), Held::usage);
        self.shard(DylibNumber::of(key)).look(usage)
    }

    /// What is held under all keys of `dylib`, those that were removed and are pinned included; in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        let number = DylibNumber(dylib.inner().id.data().as_ffi());
        let usage = |account: &Account| account.usage;
        self.shard(number).look(|shard| shard.dylibs.get(&number).map_or(MemoryUsage::default(), usage))
    }

    /// Number of keys that own something.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.look(Keyed::key_count)).sum()
    }

    /// Who lives where, for a picture of the memory: in no particular order, and as of slightly different moments.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.shards.iter().flat_map(|shard| shard.look(Shard::tenants)).collect()
    }

    fn shard(&self, number: DylibNumber) -> &Drawer<Shard<R>> {
        &self.shards[FxBuildHasher.hash_one(number) as usize % SHARDS]
    }
}

impl<R: Occupant> Default for MemoryLedger<R> {
    fn default() -> Self {
        MemoryLedger::new()
    }
}

impl<R> Keyed for Shard<R> {
    fn key_count(&self) -> usize {
        self.held.len()
    }
}

impl<R: Occupant> Shard<R> {
    /// Puts something under a key, behind what is there.
    fn put(&mut self, key: ResourceKey, added: Held<R>) {
        match self.held.entry(key) {
            Entry::Vacant(place) => {
                place.insert(added);
            }
            Entry::Occupied(place) => place.into_mut().append(added),
        }
    }

    fn take(&mut self, key: ResourceKey) -> Option<Held<R>> {
        let taken = self.held.remove(&key)?;
        self.give_up(DylibNumber::of(key), taken.usage());
        shrink(&mut self.held);
        Some(taken)
    }

    /// Takes what a dylib holds no more out of its account.
    fn give_up(&mut self, number: DylibNumber, usage: MemoryUsage) {
        let Some(account) = self.dylibs.get_mut(&number) else { return };
        account.usage -= usage;
        if account.usage.allocations == 0 {
            self.dylibs.remove(&number);
            shrink(&mut self.dylibs);
        }
    }

    fn tenants(&self) -> Vec<Tenant> {
        let mut tenants = Vec::with_capacity(self.held.len());
        for (key, held) in &self.held {
            let Some(account) = self.dylibs.get(&DylibNumber::of(*key)) else { continue };
            let owner: Arc<str> = key.to_string().into();
            let tenant = |one: &R| Tenant::of(one.memory(), one.name(), account.name.clone(), owner.clone());
            tenants.extend(held.resources().iter().map(tenant));
        }
        tenants
    }
}

impl<R> Iterator for Taken<R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        match self {
            Taken::One(one) => one.take(),
            Taken::Many(many) => many.next(),
        }
    }
}

impl<R> DoubleEndedIterator for Taken<R> {
    fn next_back(&mut self) -> Option<R> {
        match self {
            Taken::One(one) => one.take(),
            Taken::Many(many) => many.next_back(),
        }
    }
}

impl<R: Occupant> Held<R> {
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

impl<R: Occupant> Many<R> {
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
}

/// Gives memory back when a table has become far too large, so rarely that it costs next to nothing per removal.
fn shrink<K: Eq + Hash, V>(table: &mut Map<K, V>) {
    if is_sparse(table.len(), table.capacity()) {
        table.shrink_to(table.len() * 2);
    }
}

// One shard under loom: fewer locks to explore, the same protocol.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
