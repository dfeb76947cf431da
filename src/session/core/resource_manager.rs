//! [`ResourceManager`]: owns resources by key, and releases them when the session removes the key's tracker.

use crate::error::Result;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::types::ids::ResourceKey;
use crate::sync::Arc;

/// Owns resources by key: memory, stubs, initialisers, or other data that belongs to code (ORC: `ResourceManager`).
///
/// Register a manager with [`ExecutionSession::register_manager`](crate::session::ExecutionSession::register_manager).
/// The session calls the newest manager first. So a manager that is built on another one releases its resources before
/// that one. The managers of this crate come after all others, and code memory comes last, in whatever order they were
/// registered.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use jittison::{Error, JitDylib, ResourceKey, ResourceManager};
///
/// /// Counts the keys that were reclaimed.
/// #[derive(Default)]
/// struct Counter(Mutex<usize>);
///
/// impl ResourceManager for Counter {
///     fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<(), Error> {
///         *self.0.lock().unwrap() += 1;
///         Ok(())
///     }
///     fn transfer_resources(&self, _: &JitDylib, _destination: ResourceKey, _source: ResourceKey) {}
/// }
///
/// # fn main() -> Result<(), Error> {
/// let jit = jittison::Jit::new()?;
/// let counter = Arc::new(Counter::default());
/// jit.session().register_manager(counter.clone());
/// jit.main_dylib().create_tracker()?.remove()?;
/// assert_eq!(*counter.0.lock().unwrap(), 1);
/// # Ok(()) }
/// ```
pub trait ResourceManager: Send + Sync {
    /// The tracker of `key` was removed, and nothing pins it: release every resource under `key` (ORC:
    /// `handleRemoveResources`).
    ///
    /// Called once per key, with no lock held, on the thread that reclaims. May call back into the session, but must not
    /// [wait](crate::session::Removal::wait) for the removal of this tracker, of one that is reclaimed with it or that it
    /// pins, or of one that this thread must reclaim: that wait would not end.
    ///
    /// # Errors
    /// An error or a panic does not stop the other managers. The call that completes the removal returns it. If no
    /// caller waits, the session's [error reporter](crate::session::SessionOptions::error_reporter) receives it.
    fn remove_resources(&self, dylib: &JitDylib, key: ResourceKey) -> Result<()>;

    /// Whether the session may skip [`remove_resources`](Self::remove_resources) for a key that was never handed out to
    /// record a resource. A key is handed out by
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key)
    /// or [`ResourceTracker::with_resource_key`](crate::session::ResourceTracker::with_resource_key), for its own
    /// tracker or for one that was transferred to it. Return `true` if this manager records nowhere else, and
    /// `remove_resources` does nothing for a key without records. Called when such a key is removed, with no lock held.
    fn skips_unused_keys(&self) -> bool {
        false
    }

    /// The bytes of code memory that this manager holds under `key`; zero if it holds none. Called for
    /// [tickets](crate::session::Removal::bytes), and for [observers](crate::session::Observer) if there are any, with no lock held.
    fn held_bytes(&self, key: ResourceKey) -> u64 {
        let _ = key;
        0
    }

    /// The tracker of `key` was removed, and only [revocable pins](crate::session::Pin::into_revocable) hold it: drop
    /// the revocable pins that this manager made for the key and can drop on the calling thread.
    ///
    /// Called with no lock held; may run code, and may call back into the session, but must not wait for the removal of
    /// this tracker, of one that is removed with it or that it pins, or of one that this thread must reclaim. This tracker
    /// is pinned during the call. May be called several times for one key, and never after
    /// [`remove_resources`](Self::remove_resources), unless `Jit::remove_now` runs at the same time.
    fn release_pins(&self, dylib: &JitDylib, key: ResourceKey) {
        let _ = (dylib, key);
    }

    /// The resources under `source` now belong to `destination` (ORC: `handleTransferResources`).
    ///
    /// Called under locks of the session, so that no resource can be recorded under either key meanwhile. Only move
    /// records ([`Ledger::transfer`](crate::session::Ledger::transfer)). Do not call back into the session. Drop no
    /// [`Pin`](crate::session::Pin), no [`Guard`](crate::session::Guard), no
    /// [`ResourceTracker`](crate::session::ResourceTracker), and nothing that holds one: the last drop reclaims or
    /// transfers, which would deadlock under these locks.
    ///
    /// # Panics
    /// A panic does not undo the transfer; the session and the other managers complete it. The panic is an error of
    /// [`transfer_to`](crate::session::ResourceTracker::transfer_to), or goes to the error reporter. The session then
    /// assumes that this manager holds resources under both keys. When the tracker of `destination`, or one to which it
    /// is transferred later, is reclaimed, the session calls this manager for `source` too:
    /// [`remove_resources`](Self::remove_resources) once, after the call for the tracker's own key;
    /// [`release_pins`](Self::release_pins); [`held_bytes`](Self::held_bytes). It does not ask again to transfer
    /// `source`.
    fn transfer_resources(&self, dylib: &JitDylib, destination: ResourceKey, source: ResourceKey);
}

/// What a manager owns. Managers of a higher rank are called first, whatever the order of registration.
///
/// Safe code may register the managers of this crate in any order, so the order of registration must not decide whether
/// finalisers find their code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ManagerRank {
    /// The memory of linked code. Released last, because the managers above run this code or refer to it.
    CodeMemory,
    /// Entries of debuggers. They describe code that is still in memory.
    DebuggerEntries,
    /// Entries of lazy functions. Stubs jump to them.
    LazyEntries,
    /// Stubs. Code and finalisers call them.
    Stubs,
    /// Finalisers and exit handlers. They run code.
    Initializers,
    /// Any manager of the embedder.
    Embedder,
}

/// The managers of a session, in reverse of the order of release: by rank, then oldest first.
#[derive(Default)]
pub(crate) struct RankedManagers(Vec<(ManagerRank, Arc<dyn ResourceManager>)>);

impl RankedManagers {
    /// Adds a manager, unless it is registered. With two entries, it would be called at the wrong time.
    pub(crate) fn add(&mut self, rank: ManagerRank, manager: Arc<dyn ResourceManager>) {
        if !self.0.iter().any(|(_, other)| Arc::ptr_eq(other, &manager)) {
            let position = self.0.partition_point(|(other, _)| *other <= rank);
            self.0.insert(position, (rank, manager));
        }
    }

    pub(crate) fn remove(&mut self, manager: &Arc<dyn ResourceManager>) {
        self.0.retain(|(_, other)| !Arc::ptr_eq(other, manager));
    }

    /// The list that dylibs cache.
    pub(crate) fn list(&self) -> Arc<[Arc<dyn ResourceManager>]> {
        self.0.iter().map(|(_, manager)| manager.clone()).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Idle;

    impl ResourceManager for Idle {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            Ok(())
        }

        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }

    #[test]
    fn the_order_of_release_follows_the_ranks_and_then_the_order_of_registration() {
        use ManagerRank::{CodeMemory, DebuggerEntries, Embedder, Initializers, LazyEntries, Stubs};
        let ranks = [Embedder, CodeMemory, Initializers, Embedder, Stubs, LazyEntries, DebuggerEntries, CodeMemory];
        let managers = ranks.map(|rank| (rank, Arc::new(Idle) as Arc<dyn ResourceManager>));
        let mut ranked = RankedManagers::default();
        for (rank, manager) in managers.iter().chain(&managers) {
            ranked.add(*rank, manager.clone());
        }
        let position = |manager: &Arc<dyn ResourceManager>| managers.iter().position(|(_, m)| Arc::ptr_eq(m, manager));
        let released: Vec<_> = ranked.list().iter().rev().filter_map(position).collect();
        assert_eq!(released, [3, 0, 2, 4, 5, 6, 7, 1]);
        ranked.remove(&managers[2].1);
        assert_eq!(ranked.list().len(), managers.len() - 1);
    }
}
