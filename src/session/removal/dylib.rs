//! Removal of dylibs, and the end of a session.
//!
//! A dylib is first closed, so that it accepts nothing new, and then cleared (`remove.rs`). A removed dylib whose resources
//! are not all released stays listed in `removed_dylibs`, so that it counts as a dylib of the session until then.

use crate::base::sort_by_number;
use crate::error::{Error, Result};
use crate::session::core::clear_hook::ClearHook;
use crate::session::core::execution_session::{ExecutionSession, SessionInner, SessionOwner};
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::removal::ticket::Removal;
use crate::sync::{Arc, Ordering};

impl SessionInner {
    pub(crate) fn remove_dylib(self: &Arc<SessionInner>, dylib: &JitDylib) -> Result<Vec<Removal>> {
        dylib.close();
        let pending = dylib.clear_with("ExecutionSession::remove_dylib");
        // Read from the table, because `pending` lacks trackers that an earlier call has removed. It also lacks those
        // of an outer call, if an observer or a manager that the outer call runs makes this call.
        let is_empty = dylib.inner().state.lock().has_no_tracker();
        if !is_empty {
            // Listed here before it leaves `dylibs`, so that at each moment one of the two lists has it until it is
            // released.
            self.removed_dylibs.lock().insert(dylib.inner());
        }
        self.unlist(dylib, is_empty);
        pending
    }

    /// The dylibs, and the removed ones whose resources are not all released. Each once.
    fn unreleased_dylibs(&self) -> Vec<Arc<DylibInner>> {
        let mut dylibs: Vec<_> = self.dylibs.lock().iter().cloned().collect();
        // Read after `dylibs`: a dylib that is removed meanwhile enters `removed_dylibs` before it leaves `dylibs`.
        let removed: Vec<_> = self.removed_dylibs.lock().iter().collect();
        dylibs.extend(removed);
        sort_by_number(&mut dylibs, |dylib| dylib.id.number().into());
        dylibs.dedup_by_key(|dylib| dylib.id.number());
        dylibs
    }

    /// Removes a dylib from the list. If `is_empty`, the dylib is kept as a spare for the next one.
    fn unlist(&self, dylib: &JitDylib, is_empty: bool) {
        let mut dylibs = self.dylibs.lock();
        let Some(removed) = dylibs.remove(dylib.inner().id) else { return };
        let dropped = if is_empty { dylibs.keep_spare(removed) } else { Some(removed) };
        drop(dylibs);
        drop(dropped);
    }

    pub(crate) fn end(self: &Arc<SessionInner>) -> Result<()> {
        // Pairs with the load of `create_dylib_with_link_order`. The lock below orders the two as well.
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
        state.table.note_closed();
        state.link_order.clear();
        let generators = std::mem::take(&mut state.generators);
        let order = (state.link_cache.take(), self.inner().order.clear());
        drop(state);
        drop(order);
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
    pub(crate) fn detach(&self, hook: &dyn ClearHook) {
        let detached = {
            let hooks = &mut self.inner().state.lock().clear_hooks;
            let position = hooks.iter().position(|other| std::ptr::addr_eq(Arc::as_ptr(other), hook));
            position.map(|position| hooks.remove(position))
        };
        drop(detached);
    }
}

impl ExecutionSession {
    /// The [ids](JitDylib::id) of the dylibs, and of removed dylibs whose resources are not all released.
    pub(crate) fn unreleased_dylibs(&self) -> Vec<u64> {
        self.inner().unreleased_dylibs().iter().map(|dylib| dylib.id.number()).collect()
    }

    /// The removals that have outlasted their calls and are not complete, the one that has waited longest first. Each ticket
    /// says what blocks it, since when, and how many bytes it holds. Nothing blocks a removal that is being reclaimed, or that
    /// waits for [`reclaim`](Self::reclaim).
    ///
    /// Costs what it returns, whatever the number of trackers. See [`first_pending_removals`](Self::first_pending_removals) for
    /// sessions in which many removals may be pending.
    pub fn pending_removals(&self) -> Vec<Removal> {
        self.first_pending_removals(usize::MAX)
    }

    /// The first `limit` of the [`pending_removals`](Self::pending_removals).
    pub fn first_pending_removals(&self, limit: usize) -> Vec<Removal> {
        self.inner().pending_removals.first(limit).into_iter().map(Removal::new).collect()
    }

    /// The number of [`pending_removals`](Self::pending_removals). Takes constant time.
    pub fn pending_removal_count(&self) -> usize {
        self.inner().pending_removals.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use crate::base::{ExecutorAddr, Name};
    use crate::session::{ExecutionSession, SymbolFlags};

    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };

    /// Symptom: for a moment of its removal, a dylib was in neither list, and counted as released.
    #[test]
    fn a_dylib_with_pinned_code_is_listed_once_at_each_moment_of_its_removal() {
        let session = ExecutionSession::new();
        let (pinned, is_done) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let dylib = session.create_dylib("pinned").unwrap();
                    let symbol = (Name::new("symbol"), ExecutorAddr::new(8), SymbolFlags::EXPORTED);
                    dylib.create_tracker().unwrap().define_absolute([symbol]).unwrap();
                    dylib.lookup_address("symbol").unwrap();
                    let (_, pin) = dylib.pin("symbol").unwrap();
                    pinned.store(dylib.id(), Ordering::SeqCst);
                    assert_eq!(session.remove_dylib(&dylib).unwrap().len(), 1);
                    pinned.store(u64::MAX, Ordering::SeqCst);
                    drop(pin);
                }
                is_done.store(true, Ordering::SeqCst);
            });
            while !is_done.load(Ordering::SeqCst) {
                let before = pinned.load(Ordering::SeqCst);
                let count = session.unreleased_dylibs().iter().filter(|id| **id == before).count();
                let is_pinned = before != u64::MAX && pinned.load(Ordering::SeqCst) == before;
                assert!(!is_pinned || count == 1, "the dylib is listed {count} times");
            }
        });
    }
}
