//! [`Unmoved`]: what managers may still hold under the keys of merged trackers.
//!
//! A manager that panics in [`transfer_resources`](ResourceManager::transfer_resources) may hold things under both keys. The
//! session completes the transfer all the same, and keeps the source's key here, with that manager, under the key of the tracker
//! that owns everything now. A later transfer takes the entries along. When the tracker is reclaimed, the manager is told to give
//! back what stands under those keys too.
//!
//! Entries are added and moved under the gates of both trackers, which show it by a mark ([`TrackerFlag::Unmoved`]): a tracker without
//! that mark has none, and its removal does not look. Model: `loom_tests/loom_transfer_panic.rs`.
//!
//! [`TrackerFlag::Unmoved`]: crate::session::gate_sign::Mark::Unmoved

use rustc_hash::FxHashMap;

use crate::session::core::resource_manager::ResourceManager;
use crate::session::core::resource_tracker::ResourceKey;
use crate::sync::{Arc, Mutex, Weak};

pub(crate) struct Unmoved {
    /// By the key of the tracker that owns it. Nothing of a manager's is dropped under this lock: it is held weakly.
    by_owner: Mutex<FxHashMap<ResourceKey, Vec<UnmovedKey>>>,
}

/// A key of a merged tracker, and who may hold things under it.
#[derive(Clone)]
pub(crate) struct UnmovedKey {
    pub(crate) key: ResourceKey,
    manager: Weak<dyn ResourceManager>,
}

impl UnmovedKey {
    pub(crate) fn new(key: ResourceKey, manager: &Arc<dyn ResourceManager>) -> UnmovedKey {
        UnmovedKey { key, manager: Arc::downgrade(manager) }
    }

    pub(crate) fn is_of(&self, manager: &Arc<dyn ResourceManager>) -> bool {
        // By address: as long as this is there, no other manager is put into that place.
        std::ptr::addr_eq(self.manager.as_ptr(), Arc::as_ptr(manager))
    }
}

impl Unmoved {
    pub(crate) fn new() -> Unmoved {
        Unmoved { by_owner: Mutex::new(FxHashMap::default()) }
    }

    /// `destination` owns what was under `source`: what had not been moved to that before, and `keys`. Both gates are locked.
    pub(crate) fn merge(&self, destination: ResourceKey, source: ResourceKey, keys: Vec<UnmovedKey>) {
        let mut by_owner = self.by_owner.lock();
        let before = by_owner.remove(&source).unwrap_or_default();
        by_owner.entry(destination).or_default().extend(before.into_iter().chain(keys));
    }

    /// What is under a key, for who only asks.
    pub(crate) fn of(&self, owner: ResourceKey) -> Vec<UnmovedKey> {
        self.by_owner.lock().get(&owner).cloned().unwrap_or_default()
    }

    /// The same, for who gives it back.
    pub(crate) fn take(&self, owner: ResourceKey) -> Vec<UnmovedKey> {
        self.by_owner.lock().remove(&owner).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::session::{ExecutionSession, JitDylib};

    struct Manager;

    impl ResourceManager for Manager {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            Ok(())
        }

        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }

    #[test]
    fn what_was_taken_to_be_given_back_is_not_kept() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let [first, second] = [(); 2].map(|()| dylib.create_tracker().unwrap().key());
        let manager: Arc<dyn ResourceManager> = Arc::new(Manager);
        let unmoved = Unmoved::new();
        unmoved.merge(second, first, vec![UnmovedKey::new(first, &manager)]);
        assert_eq!(unmoved.of(second).len(), 1);
        assert_eq!(unmoved.take(second).len(), 1);
        assert_eq!(unmoved.of(second).len(), 0);
    }
}
