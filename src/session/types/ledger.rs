//! [`Ledger`]: a table of resources by [`ResourceKey`], with three operations: record, transfer, take.
//!
//! Each sub-room and each manager that owns something per key keeps it in a ledger. Then transfer and removal mean the same
//! everywhere, and one model covers all of them.
//!
//! A ledger does not know whether the tracker of a key is live. The caller must call `record` inside `with_resource_key`,
//! which holds the lock of a live tracker (S3).
//!
//! A ledger is sharded by key, so calls with different keys rarely wait for each other.
//! Model: `loom_tests/loom_allocate_remove.rs`.

use std::collections::HashMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::base::shrunk_capacity;
use crate::session::types::counted_mutex::{CountedMutex, KeyCount};
use crate::session::types::ids::ResourceKey;

/// The resources of a manager, by key.
pub struct Ledger<R> {
    shards: Box<[CountedMutex<OwnedByKey<R>>]>,
}

type OwnedByKey<R> = HashMap<ResourceKey, Vec<R>, FxBuildHasher>;

impl<R> KeyCount for OwnedByKey<R> {
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
        // Most keys own one resource of a kind.
        self.shard(key).with_mut(|owned| owned.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(resource));
    }

    /// Moves all resources of `source` to `destination`, behind those that `destination` has.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        let moved = self.take(source);
        if moved.is_empty() {
            return;
        }
        self.shard(destination).with_mut(|owned| {
            let existing = owned.entry(destination).or_default();
            if existing.is_empty() {
                *existing = moved;
            } else {
                existing.extend(moved);
            }
        });
    }

    /// Removes all resources of `key` and returns them, in the order in which they were recorded.
    pub fn take(&self, key: ResourceKey) -> Vec<R> {
        let removed = self.shard(key).with_mut_if_any(|owned| {
            let removed = owned.remove(&key);
            // Releases memory after a peak.
            if let Some(smaller) = shrunk_capacity(owned.len(), owned.capacity()) {
                owned.shrink_to(smaller);
            }
            removed
        });
        removed.unwrap_or_default()
    }

    /// Runs `body` with the resources of `key`, under the lock of the shard. `body` may update the resources and must do no
    /// other work.
    pub fn inspect<T>(&self, key: ResourceKey, body: impl FnOnce(&mut [R]) -> T) -> T {
        self.shard(key).with_mut(|owned| match owned.get_mut(&key) {
            Some(owned) => body(owned),
            None => body(&mut []),
        })
    }

    /// A copy of all resources with their keys, in no order. Each shard is read at its own time.
    #[cfg_attr(not(feature = "executor"), allow(dead_code))]
    pub(crate) fn copied(&self) -> Vec<(ResourceKey, R)>
    where
        R: Clone,
    {
        let all_of = |owned: &OwnedByKey<R>| -> Vec<_> {
            owned.iter().flat_map(|(key, owned)| owned.iter().map(|one| (*key, one.clone()))).collect()
        };
        self.shards.iter().flat_map(|shard| shard.with(all_of)).collect()
    }

    /// The number of keys that own at least one resource.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(KeyCount::key_count)).sum()
    }

    fn shard(&self, key: ResourceKey) -> &CountedMutex<OwnedByKey<R>> {
        &self.shards[FxBuildHasher.hash_one(key) as usize % SHARDS]
    }
}

impl<R> Default for Ledger<R> {
    fn default() -> Self {
        Ledger::new()
    }
}

// Loom explores every order of lock operations; one shard keeps that number small, and the protocol is the same.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
