//! Removal of dylibs, and the end of a session.
//!
//! A dylib is first closed, so that it accepts nothing new, and then cleared (`remove.rs`). A removed dylib whose resources
//! are not all released stays listed in `removed_dylibs`, so that [`ExecutionSession::pending_removals`] finds it.

use crate::error::{Error, Result};
use crate::session::core::clear_hook::ClearHook;
use crate::session::core::execution_session::{ExecutionSession, SessionInner, SessionOwner};
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::removal::ticket::Removal;
use crate::sync::{Arc, Ordering, Weak};

impl SessionInner {
    pub(crate) fn remove_dylib(self: &Arc<SessionInner>, dylib: &JitDylib) -> Result<Vec<Removal>> {
        dylib.close();
        let pending = dylib.clear();
        // Asked of the table: `pending` lacks the trackers that an earlier call removed, or the call around this one if an
        // observer or a manager makes this call.
        let is_empty = dylib.inner().state.lock().has_no_tracker();
        if let Some(waiting) = self.unlist(dylib, is_empty) {
            let mut removed = self.removed_dylibs.lock();
            removed.retain(|dylib| dylib.strong_count() > 0);
            removed.push(Arc::downgrade(&waiting));
        }
        pending
    }

    /// Removes a dylib from the list. If it `is_empty`, it is kept as a spare for the next dylib; otherwise it is returned.
    fn unlist(&self, dylib: &JitDylib, is_empty: bool) -> Option<Arc<DylibInner>> {
        let mut dylibs = self.dylibs.lock();
        let removed = dylibs.remove(dylib.inner().id)?;
        if !is_empty {
            return Some(removed);
        }
        let dropped = dylibs.keep_spare(removed);
        drop(dylibs);
        drop(dropped);
        None
    }

    pub(crate) fn end(self: &Arc<SessionInner>) -> Result<()> {
        self.ended.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let (spare, listed) = {
            let mut dylibs = self.dylibs.lock();
            (dylibs.end(), dylibs.in_order())
        };
        drop(spare);
        for dylib in listed.iter().rev() {
            failures.extend(self.remove_dylib(dylib).err());
        }
        self.reclaim_deferred();
        self.reclaimer.stop();
        self.dispatcher.stop();
        Error::join(failures)
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        if let Err(error) = self.0.end() {
            self.0.error_reporter.report(error);
        }
    }
}

impl JitDylib {
    /// Closes the dylib: it accepts no definition, no generator and no tracker any more. Fails the lookups in the
    /// queues of its generators.
    pub(crate) fn close(&self) {
        let mut state = self.inner().state.lock();
        state.open = false;
        state.table.clear_negative_cache();
        state.link_order.clear();
        let (generators, link_cache) = (std::mem::take(&mut state.generators), state.link_cache.take());
        drop(state);
        drop(link_cache);
        generators.iter().for_each(|entry| entry.fail_queued());
    }

    /// Removes the dylib as [`ExecutionSession::remove_dylib`] does. Errors go to the error reporter. For owners that hold
    /// no session handle, because a handle in a dylib would keep the session from ending.
    pub(crate) fn remove_and_report(&self) {
        let session = &self.inner().session;
        session.remove_dylib(self).err().into_iter().for_each(|error| session.error_reporter.report(error));
    }

    /// Adds a hook that runs when this dylib is cleared.
    ///
    /// # Errors
    /// The dylib was removed.
    pub(crate) fn attach(&self, hook: Arc<dyn ClearHook>) -> Result<()> {
        let mut state = self.inner().state.lock();
        if !state.open {
            return Err(self.inner().defunct());
        }
        state.clear_hooks.push(hook);
        Ok(())
    }

    /// Removes the hook.
    pub(crate) fn detach(&self, hook: &Arc<dyn ClearHook>) {
        let detached: Vec<_> = {
            let mut state = self.inner().state.lock();
            state.clear_hooks.extract_if(.., |other| Arc::ptr_eq(other, hook)).collect()
        };
        drop(detached);
    }
}

impl ExecutionSession {
    /// The [ids](JitDylib::id) of the dylibs, and of removed dylibs whose resources are not all released.
    pub(crate) fn unreleased_dylibs(&self) -> Vec<u64> {
        let session = self.inner();
        let mut ids: Vec<_> = session.dylibs.lock().iter().map(|dylib| dylib.serial).collect();
        // After the list of dylibs: a dylib that is removed between the two moves from that list to this one.
        let removed: Vec<_> = session.removed_dylibs.lock().iter().filter_map(Weak::upgrade).collect();
        ids.extend(removed.iter().map(|dylib| dylib.serial));
        ids
    }

    /// The removals that are not complete, the one that has waited longest first. Each ticket says what blocks it, since
    /// when, and how many bytes it holds. Nothing blocks a removal that is being reclaimed, or that waits for
    /// [`reclaim`](Self::reclaim).
    pub fn pending_removals(&self) -> Vec<Removal> {
        let session = self.inner();
        let mut dylibs: Vec<_> = session.dylibs.lock().iter().cloned().collect();
        dylibs.extend(session.removed_dylibs.lock().iter().filter_map(Weak::upgrade));
        let cores: Vec<_> = dylibs.iter().flat_map(|dylib| dylib.state.lock().cores()).collect();
        let mut waiting: Vec<_> = cores.into_iter().filter(|core| core.state.is_removing()).collect();
        waiting.sort_by_cached_key(|core| (core.state.removed_since(), core.dylib().serial, core.serial));
        waiting.into_iter().map(Removal::new).collect()
    }
}
