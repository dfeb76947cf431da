//! [`FailedTransfers`]: resources that a manager may still hold under the key of a merged tracker.
//!
//! A manager may panic in [`transfer_resources`](crate::session::ResourceManager::transfer_resources). Then it may hold
//! resources under the source's key and under the destination's key.
//!
//! 1. The session completes the transfer. It records the source's key and the manager here, under the destination's key.
//! 2. A later transfer of the destination moves the record along, to the key of the new owner.
//! 3. When the owner is reclaimed, the session calls `remove_resources` of that manager for the recorded keys too.
//!
//! The session adds and moves records while it holds the locks of both trackers. It also sets [`TrackerFlag::FailedTransfer`]
//! on the owner. A tracker without this flag has no record, so its removal does not search this table.
//!
//! Model: `loom_tests/loom_transfer_panic.rs`.
//!
//! [`TrackerFlag::FailedTransfer`]: crate::session::pins::tracker_flags::TrackerFlag::FailedTransfer

use rustc_hash::FxHashMap;

use crate::session::types::ids::ResourceKey;
use crate::sync::{Arc, Mutex, Weak};

/// All records of a session.
pub(crate) struct FailedTransfers<M: ?Sized> {
    /// By the key of the tracker that owns the resources. The managers are weak references, so none is dropped under this lock.
    by_owner: Mutex<FxHashMap<ResourceKey, Vec<FailedTransferKey<M>>>>,
}

/// The key of a merged tracker, and the manager that may hold resources under it.
pub(crate) struct FailedTransferKey<M: ?Sized> {
    pub(crate) key: ResourceKey,
    manager: Weak<M>,
}

impl<M: ?Sized> Clone for FailedTransferKey<M> {
    fn clone(&self) -> FailedTransferKey<M> {
        FailedTransferKey { key: self.key, manager: self.manager.clone() }
    }
}

impl<M: ?Sized> FailedTransferKey<M> {
    pub(crate) fn new(key: ResourceKey, manager: &Arc<M>) -> FailedTransferKey<M> {
        FailedTransferKey { key, manager: Arc::downgrade(manager) }
    }

    /// Whether the record names `manager`.
    pub(crate) fn is_of(&self, manager: &Arc<M>) -> bool {
        // The comparison of addresses is right: the weak reference keeps the memory, so no other manager has this address.
        std::ptr::addr_eq(self.manager.as_ptr(), Arc::as_ptr(manager))
    }
}

impl<M: ?Sized> FailedTransfers<M> {
    pub(crate) fn new() -> FailedTransfers<M> {
        FailedTransfers { by_owner: Mutex::new(FxHashMap::default()) }
    }

    /// Moves the records of `source` to `destination`, and adds `keys` to them. The caller holds the locks of both trackers.
    pub(crate) fn merge(&self, destination: ResourceKey, source: ResourceKey, keys: Vec<FailedTransferKey<M>>) {
        let mut by_owner = self.by_owner.lock();
        let before = by_owner.remove(&source).unwrap_or_default();
        by_owner.entry(destination).or_default().extend(before.into_iter().chain(keys));
    }

    /// A copy of the records of `owner`.
    pub(crate) fn get(&self, owner: ResourceKey) -> Vec<FailedTransferKey<M>> {
        self.by_owner.lock().get(&owner).cloned().unwrap_or_default()
    }

    /// Removes the records of `owner` and returns them.
    pub(crate) fn remove(&self, owner: ResourceKey) -> Vec<FailedTransferKey<M>> {
        self.by_owner.lock().remove(&owner).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::session::core::resource_manager::ResourceManager;
    use crate::session::{ExecutionSession, JitDylib};

    struct Manager;

    impl ResourceManager for Manager {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            Ok(())
        }

        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }

    #[test]
    fn removed_records_are_no_longer_found() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let [first, second] = [(); 2].map(|()| dylib.create_tracker().unwrap().key());
        let manager: Arc<dyn ResourceManager> = Arc::new(Manager);
        let failed_transfers = FailedTransfers::new();
        failed_transfers.merge(second, first, vec![FailedTransferKey::new(first, &manager)]);
        assert_eq!(failed_transfers.get(second).len(), 1);
        assert_eq!(failed_transfers.remove(second).len(), 1);
        assert_eq!(failed_transfers.get(second).len(), 0);
    }
}
