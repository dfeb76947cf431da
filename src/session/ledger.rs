//! [`Ledger`]: whatever is owned per key, with exactly three verbs: record, transfer, take.
//!
//! Every room that owns something per [`ResourceKey`] keeps it in a ledger, so that transfer and removal mean the same
//! thing everywhere and are modelled once. The ledger does not know whether a key is alive: `record` must be called
//! inside `with_resource_key`, which does (S3). Sharded by key, so that disjoint trackers do not contend.
//!
//! A removal asks every ledger, and most of them hold nothing. So a shard says without its lock whether it holds anything:
//! what was recorded under a key came before its removal, through the tracker's gate, and the word that says so with it.
//! Model: `loom_tests/loom_allocate_remove.rs`.

use std::collections::HashMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::base::is_sparse;
use crate::session::resource_tracker::ResourceKey;
use crate::sync::{AtomicUsize, Mutex, Ordering, Rank};

/// What is owned per key.
pub struct Ledger<R> {
    shards: Box<[Shard<R>]>,
}

struct Shard<R> {
    held: Mutex<Held<R>>,
    /// How many keys `held` has: written under its lock, and read without by who looks for what it knows to be there.
    key_count: AtomicUsize,
}

type Held<R> = HashMap<ResourceKey, Vec<R>, FxBuildHasher>;

impl<R> Ledger<R> {
    /// An empty ledger.
    pub fn new() -> Ledger<R> {
        let held = || Mutex::ranked(Rank::Manager, HashMap::default());
        Ledger { shards: (0..SHARDS).map(|_| Shard { held: held(), key_count: AtomicUsize::new(0) }).collect() }
    }

    /// Adds `resource` under `key`.
    pub fn record(&self, key: ResourceKey, resource: R) {
        let shard = self.shard(key);
        let mut held = shard.held.lock();
        // Most keys own one thing of a kind.
        held.entry(key).or_insert_with(|| Vec::with_capacity(1)).push(resource);
        shard.count(&held);
    }

    /// Puts everything of `source` under `destination`, behind what is there.
    pub fn transfer(&self, destination: ResourceKey, source: ResourceKey) {
        let moved = self.take(source);
        if moved.is_empty() {
            return;
        }
        let shard = self.shard(destination);
        let mut held = shard.held.lock();
        let there = held.entry(destination).or_default();
        if there.is_empty() {
            *there = moved;
        } else {
            there.extend(moved);
        }
        shard.count(&held);
    }

    /// Everything under `key`, in the order it was recorded. The key is empty afterwards.
    pub fn take(&self, key: ResourceKey) -> Vec<R> {
        let shard = self.shard(key);
        if shard.is_empty() {
            return Vec::new();
        }
        let mut held = shard.held.lock();
        let taken = held.remove(&key).unwrap_or_default();
        // A ledger that was large once gives its memory back.
        if is_sparse(held.len(), held.capacity()) {
            let kept = held.len() * 2;
            held.shrink_to(kept);
        }
        shard.count(&held);
        taken
    }

    /// Looks at what is under `key`, under the shard's lock: only for bookkeeping.
    pub fn inspect<T>(&self, key: ResourceKey, look: impl FnOnce(&mut [R]) -> T) -> T {
        match self.shard(key).held.lock().get_mut(&key) {
            Some(held) => look(held),
            None => look(&mut []),
        }
    }

    /// Number of keys that own something.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.held.lock().len()).sum()
    }

    fn shard(&self, key: ResourceKey) -> &Shard<R> {
        &self.shards[FxBuildHasher.hash_one(key) as usize % SHARDS]
    }
}

impl<R> Shard<R> {
    /// Relaxed: whoever may find its key here has passed the gate of the key's tracker after who recorded it.
    fn is_empty(&self) -> bool {
        self.key_count.load(Ordering::Relaxed) == 0
    }

    /// Takes note of how many keys there are, under the lock.
    fn count(&self, held: &Held<R>) {
        self.key_count.store(held.len(), Ordering::Relaxed);
    }
}

impl<R> Default for Ledger<R> {
    fn default() -> Self {
        Ledger::new()
    }
}

// One shard under loom: fewer locks to explore, the same protocol.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };
