//! [`Ledger`]: whatever is owned per key, with exactly three verbs: record, transfer, take.
//!
//! Every room that owns something per [`ResourceKey`] keeps it in a ledger, so that transfer and removal mean the same
//! thing everywhere and are modelled once. The ledger does not know whether a key is alive: `record` must be called
//! inside `with_resource_key`, which does (S3). Sharded by key, so that disjoint trackers do not contend.
//! Model: `loom_tests/loom_allocate_remove.rs`.

use std::collections::HashMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::base::capacity_to_keep;
use crate::session::core::resource_tracker::ResourceKey;
use crate::session::types::counted_mutex::{CountedMutex, KeyCount};

/// What is owned per key.
pub struct Ledger<R> {
    shards: Box<[CountedMutex<Held<R>>]>,
}

type Held<R> = HashMap<ResourceKey, Vec<R>, FxBuildHasher>;

impl<R> KeyCount for Held<R> {
    fn key_count(&self) -> usize {
        self.len()
    }
}

impl<R> Ledger<R> {
    /// An empty ledger.
    pub fn new() -> Ledger<R> {
        Ledger { shards: (0..SHARDS).map(|_| CountedMutex::new(HashMap::default())).collect() }
    }

    /// Adds `resource` under `key`.
    pub fn record(&self, key: ResourceKey, resource: R) {
        // Most keys own one thing of a kind.
        self.shard(key).change(|held| held.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(resource));
    }

    /// Puts everything of `source` under `destination`, behind what is there.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        let moved = self.take(source);
        if moved.is_empty() {
            return;
        }
        self.shard(destination).change(|held| {
            let there = held.entry(destination).or_default();
            if there.is_empty() {
                *there = moved;
            } else {
                there.extend(moved);
            }
        });
    }

    /// Everything under `key`, in the order it was recorded. The key is empty afterwards.
    pub fn take(&self, key: ResourceKey) -> Vec<R> {
        let taken = self.shard(key).take(|held| {
            let taken = held.remove(&key);
            // A ledger that was large once gives its memory back.
            if let Some(kept) = capacity_to_keep(held.len(), held.capacity()) {
                held.shrink_to(kept);
            }
            taken
        });
        taken.unwrap_or_default()
    }

    /// Looks at what is under `key`, under the shard's lock: only for bookkeeping.
    pub fn inspect<T>(&self, key: ResourceKey, look: impl FnOnce(&mut [R]) -> T) -> T {
        self.shard(key).change(|held| match held.get_mut(&key) {
            Some(held) => look(held),
            None => look(&mut []),
        })
    }

    /// Number of keys that own something.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.look(KeyCount::key_count)).sum()
    }

    fn shard(&self, key: ResourceKey) -> &CountedMutex<Held<R>> {
        &self.shards[FxBuildHasher.hash_one(key) as usize % SHARDS]
    }
}

impl<R> Default for Ledger<R> {
    fn default() -> Self {
        Ledger::new()
    }
}

// One shard under loom: fewer locks to explore, the same protocol.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
