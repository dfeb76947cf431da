//! [`Dylibs`]: the dylibs of a session, and a few removed dylibs that are kept as spares.
//!
//! For a dylib that lives for one query or one patch, most of the cost is its memory and the growth of its tables. So
//! up to [`MAX_SPARE`] removed dylibs are kept, and [`add`](Dylibs::add) reuses one when `Arc::get_mut` succeeds, that
//! is, when no handle, tracker or symbol refers to it any more. Until then a spare is like every removed dylib: closed,
//! and empty.
//!
//! A dylib that still has trackers to reclaim does not become a spare. Neither does one that a link order names: the
//! order holds a weak reference, so `get_mut` would fail, and the order must lose the dylib.
//!
//! A spare keeps the session alive, so there are none once the session has [ended](Dylibs::end).

use rustc_hash::FxHashMap;

use crate::base::{NumberMap, count_step};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::types::ids::DylibId;
use crate::session::types::request::Visibility;
use crate::sync::{Arc, Weak};

pub(crate) struct Dylibs {
    /// In creation order, because ids ascend.
    dylibs: NumberMap<Arc<DylibInner>>,
    /// Removed dylibs, oldest first.
    spare: Vec<Arc<DylibInner>>,
    /// Whether the session has ended; then no spare is kept.
    has_ended: bool,
}

impl Dylibs {
    pub(crate) fn new() -> Dylibs {
        Dylibs { dylibs: NumberMap::new(), spare: Vec::new(), has_ended: false }
    }

    /// The dylibs, in creation order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<DylibInner>> {
        self.dylibs.values()
    }

    /// The dylibs as handles, in creation order.
    pub(crate) fn in_order(&self) -> Vec<JitDylib> {
        self.iter().cloned().map(JitDylib::from_inner).collect()
    }

    /// Adds an empty dylib with `others` in its link order. Reuses a spare that nothing else refers to, if there is
    /// one.
    pub(crate) fn add(
        &mut self,
        session: &Arc<SessionInner>,
        name: &str,
        others: &[(&JitDylib, Visibility)],
    ) -> Arc<DylibInner> {
        let id = DylibId::next();
        let mut try_reinit =
            |old: &mut Arc<DylibInner>| Arc::get_mut(old).is_some_and(|old| old.reinit(id, name, others));
        let dylib = match self.spare.iter_mut().rposition(&mut try_reinit) {
            Some(position) => self.spare.remove(position),
            None => Arc::new(DylibInner::new(session.clone(), id, name, others)),
        };
        self.dylibs.insert(id.number(), dylib.clone());
        dylib
    }

    /// Removes a dylib from the list, if the list has it.
    pub(crate) fn remove(&mut self, id: DylibId) -> Option<Arc<DylibInner>> {
        self.dylibs.remove(id.number())
    }

    /// Keeps a dylib that was [removed](Self::remove) as a spare. Returns the dylib that is dropped instead, which may
    /// be the same one; drop it with no lock held.
    #[must_use]
    pub(crate) fn keep_spare(&mut self, dylib: Arc<DylibInner>) -> Option<Arc<DylibInner>> {
        if self.has_ended || Arc::weak_count(&dylib) > 0 {
            return Some(dylib);
        }
        let evicted = (self.spare.len() == MAX_SPARE).then(|| self.spare.remove(0));
        self.spare.push(dylib);
        evicted
    }

    /// As [`take_spare`](Self::take_spare); no spare is kept from now on.
    #[must_use]
    pub(crate) fn end(&mut self) -> Vec<Arc<DylibInner>> {
        self.has_ended = true;
        self.take_spare()
    }

    /// Takes all spares. Drop them with no lock held.
    #[must_use]
    pub(crate) fn take_spare(&mut self) -> Vec<Arc<DylibInner>> {
        std::mem::take(&mut self.spare)
    }
}

/// Removed dylibs that may still have trackers to reclaim.
///
/// The list is swept when it is twice as long as after the last sweep. So an insertion costs the same in a list of any length.
#[derive(Default)]
pub(crate) struct RemovedDylibs {
    by_id: FxHashMap<u64, Weak<DylibInner>>,
    /// The length after the last sweep.
    swept_len: usize,
}

impl RemovedDylibs {
    /// Adds a dylib, unless another removal of it has done so.
    pub(crate) fn insert(&mut self, dylib: &Arc<DylibInner>) {
        self.by_id.insert(dylib.id.number(), Arc::downgrade(dylib));
        if self.by_id.len() > 2 * self.swept_len + MIN_SWEEP {
            self.by_id.retain(|_, dylib| {
                count_step();
                dylib.strong_count() > 0
            });
            self.swept_len = self.by_id.len();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<DylibInner>> {
        self.by_id.values().filter_map(Weak::upgrade)
    }
}

/// A shorter list of removed dylibs is not swept.
const MIN_SWEEP: usize = 16;

/// The most spares at a time: few threads create short-lived dylibs at once.
const MAX_SPARE: usize = 4;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name};
    use crate::error::Result;
    use crate::session::{DefinitionGenerator, ExecutionSession, ResourceKey, ResourceManager, SymbolFlags};
    use crate::sync::Ordering;

    struct EmptyGenerator;

    impl DefinitionGenerator for EmptyGenerator {}

    fn define(dylib: &JitDylib, name: &str) {
        let symbol = (Name::new(name), ExecutorAddr::new(8), SymbolFlags::EXPORTED);
        dylib.create_tracker().unwrap().define_absolute([symbol]).unwrap();
    }

    fn address(dylib: &JitDylib) -> *const DylibInner {
        Arc::as_ptr(dylib.inner())
    }

    #[test]
    fn a_reused_dylib_keeps_nothing_of_the_removed_one() {
        let session = ExecutionSession::new();
        let (first, other) = (session.create_version_dylib("first").unwrap(), session.create_dylib("other").unwrap());
        define(&first, "symbol");
        first.set_link_order(&[(other, Visibility::All)]).unwrap();
        first.add_generator(Arc::new(EmptyGenerator));
        let (old_address, old_id, old_key) = (address(&first), first.id(), first.create_tracker().unwrap().key());
        assert!(session.remove_dylib(&first).unwrap().is_empty());
        drop(first);
        let second = session.create_dylib("second").unwrap();
        assert_eq!((address(&second), second.name()), (old_address, "second"));
        assert!(!second.inner().has_versions.load(Ordering::Relaxed));
        assert!(!second.is_defunct() && second.link_order().is_empty() && second.generator_from(0).is_none());
        assert!(second.symbol_count() == 0 && second.id() != old_id && second.symbol_count_of(old_key) == 0);
        assert_ne!(second.default_tracker().unwrap().key(), old_key);
        define(&second, "symbol");
        assert_eq!(second.lookup_address("symbol").unwrap(), ExecutorAddr::new(8));
    }

    struct IdleManager;

    impl ResourceManager for IdleManager {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            Ok(())
        }

        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }

    /// A spare kept its list of managers if it was reused while a manager was deregistered.
    #[test]
    fn a_deregistered_manager_is_freed_though_a_spare_is_reused_meanwhile() {
        let session = ExecutionSession::new();
        let manager: Arc<dyn ResourceManager> = Arc::new(IdleManager);
        session.register_manager(manager.clone());
        let (listed, spare) = (session.create_dylib("listed").unwrap(), session.create_dylib("spare").unwrap());
        define(&spare, "symbol");
        assert!(session.remove_dylib(&spare).unwrap().is_empty());
        drop(spare);
        let version = session.inner().managers_version.load(Ordering::Relaxed);
        let alive = Arc::downgrade(&manager);
        // The deregistration stops at this dylib, between its list of dylibs and its end.
        let stop = listed.inner().managers.lock();
        let reused = std::thread::scope(|scope| {
            let deregistration = scope.spawn(|| session.deregister_manager(&manager));
            while session.inner().managers_version.load(Ordering::Relaxed) == version {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            let reused = scope.spawn(|| session.create_dylib("reused").unwrap()).join().unwrap();
            drop(stop);
            deregistration.join().unwrap();
            reused
        });
        drop(manager);
        assert_eq!(alive.strong_count(), 0);
        drop(reused);
    }

    #[test]
    fn the_list_of_removed_dylibs_is_swept_in_constant_time_per_dylib() {
        let session = ExecutionSession::new();
        let mut removed = RemovedDylibs::default();
        let dylibs: Vec<_> =
            (0..crate::base::sized(2000, 100)).map(|_| session.create_dylib("held").unwrap()).collect();
        let steps = crate::base::steps_of(|| dylibs.iter().for_each(|dylib| removed.insert(dylib.inner())));
        assert!(steps <= 2 * dylibs.len(), "{steps} steps");
        assert_eq!(removed.iter().count(), dylibs.len());
        // A dead dylib leaves at a later insertion.
        drop(dylibs);
        session.end().unwrap();
        assert!(removed.iter().count() <= MAX_SPARE);
    }

    #[test]
    fn a_removed_dylib_with_a_handle_is_not_reused() {
        let session = ExecutionSession::new();
        let first = session.create_dylib("first").unwrap();
        session.remove_dylib(&first).unwrap();
        let second = session.create_dylib("second").unwrap();
        assert!(first != second && first.is_defunct() && !second.is_defunct());
        assert_eq!((first.name(), second.name()), ("first", "second"));
        // It accepts nothing that would stay in the session.
        let generator: Arc<dyn DefinitionGenerator> = Arc::new(EmptyGenerator);
        first.add_generator(generator.clone());
        assert_eq!(Arc::strong_count(&generator), 1);
    }

    #[test]
    fn at_most_max_spare_removed_dylibs_are_kept_and_none_after_the_session_has_ended() {
        let session = ExecutionSession::new();
        let dylibs: Vec<_> = (0..MAX_SPARE + 2).map(|_| session.create_dylib("short-lived").unwrap()).collect();
        let known: Vec<_> = dylibs.iter().map(|dylib| Arc::as_ptr(dylib.inner())).collect();
        dylibs.iter().for_each(|dylib| drop(session.remove_dylib(dylib).unwrap()));
        drop(dylibs);
        let again: Vec<_> = (0..MAX_SPARE).map(|_| session.create_dylib("next").unwrap()).collect();
        assert!(again.iter().all(|dylib| known[2..].contains(&address(dylib))));
        // The end of the session removes these dylibs. As spares they would keep the session alive.
        let inner = Arc::downgrade(session.inner());
        drop(again);
        drop(session);
        assert_eq!(inner.strong_count(), 0);
    }
}
