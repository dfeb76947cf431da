//! [`PendingRemovals`]: the removed trackers of a session whose removals outlast their calls, longest waiting first.
//!
//! | thread | when | what it does |
//! |---|---|---|
//! | the remover | the tracker is Guarded | adds it; then removes it again if it is reclaimed already |
//! | the thread that reclaims it | the tracker is Reclaimed | removes it |
//!
//! Both take the lock of the list after the state has changed, and the remover reads the state after that. So one of the two
//! removes the entry, in whatever order they run. A removal that ends in its own call is never in the list.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::sync::{Arc, Mutex};

/// The trackers `T` whose removals are pending.
pub(crate) struct PendingRemovals<T>(Mutex<BTreeMap<PendingKey, Arc<T>>>);

/// When the tracker was removed, the number of its dylib, and its own number there.
pub(crate) type PendingKey = (Instant, u64, u64);

impl<T> PendingRemovals<T> {
    pub(crate) fn new() -> PendingRemovals<T> {
        PendingRemovals(Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn add(&self, key: PendingKey, tracker: Arc<T>) {
        self.0.lock().insert(key, tracker);
    }

    pub(crate) fn remove(&self, key: PendingKey) {
        let removed = self.0.lock().remove(&key);
        drop(removed);
    }

    /// Up to `limit` trackers, those that wait longest first.
    pub(crate) fn first(&self, limit: usize) -> Vec<Arc<T>> {
        self.0.lock().values().take(limit).cloned().collect()
    }

    /// The number of trackers.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
