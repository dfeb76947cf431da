//! [`ExecutionSession`]: methods that create and remove dylibs, register managers, report errors and end the session.

use crate::error::{Error, ErrorKind, Result};
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_manager::{ManagerRank, ResourceManager};
use crate::session::core::resource_tracker::Pin;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::removal::ticket::Removal;
use crate::session::types::request::Visibility;
use crate::sync::{Arc, Ordering, seeded_bug};

impl ExecutionSession {
    /// Creates an empty dylib (ORC: `createBareJITDylib`). Names need not be unique.
    ///
    /// # Errors
    /// [`ErrorKind::SessionEnded`] when the session has ended.
    pub fn create_dylib(&self, name: &str) -> Result<JitDylib> {
        self.create_dylib_with_link_order(&[], name)
    }

    /// As [`create_dylib`](Self::create_dylib), with a link order.
    pub(crate) fn create_dylib_with_link_order(
        &self,
        others: &[(&JitDylib, Visibility)],
        name: &str,
    ) -> Result<JitDylib> {
        let session = self.inner();
        let mut dylibs = session.dylibs.lock();
        // Read under the lock: `end` stores `ended` before it takes this lock to list the dylibs. Pairs with that store.
        if session.ended.load(Ordering::Acquire) {
            return Err(ErrorKind::SessionEnded.into());
        }
        if seeded_bug!("dylib_added_under_a_later_lock") {
            drop(dylibs);
            dylibs = session.dylibs.lock();
        }
        Ok(JitDylib::from_inner(dylibs.add(session, name, others)))
    }

    /// Waits until the worker threads are idle, and ends them. The session starts new ones when there is work again.
    ///
    /// Use it when the process must have no extra threads while linked code runs, for example before a `fork`. After
    /// the return, the ended threads do no work for the session; the operating system may still be destroying them. On
    /// a worker thread this does nothing.
    pub fn dismiss_workers(&self) {
        self.inner().dispatcher.dismiss_workers();
    }

    /// Removes a dylib (ORC: `removeJITDylib`): clears it and closes it, so that nothing can be added any more. Returns
    /// the removals that are not complete, because something holds the resources.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignSession`]: the dylib is of another session, and nothing was done. Otherwise the joined errors of
    /// the managers, and the dylib is closed.
    pub fn remove_dylib(&self, dylib: &JitDylib) -> Result<Vec<Removal>> {
        dylib.check_session(self.inner())?;
        self.inner().remove_dylib(dylib)
    }

    /// Registers a manager (ORC: `registerResourceManager`). It is called for later transfers and removals, before the
    /// managers that were registered earlier. A manager that is registered already keeps its place.
    ///
    /// The managers of this crate have a `register` method of their own. The session calls them after all managers that
    /// are registered here.
    pub fn register_manager(&self, manager: Arc<dyn ResourceManager>) {
        self.register_ranked(ManagerRank::Embedder, manager);
    }

    /// As [`register_manager`](Self::register_manager), for a manager of this crate.
    pub(crate) fn register_ranked(&self, rank: ManagerRank, manager: Arc<dyn ResourceManager>) {
        self.inner().edit_managers(|managers| managers.add(rank, manager));
    }

    /// Deregisters a manager. Removals in progress may still call it. What it records is not released by this session any
    /// more.
    pub fn deregister_manager(&self, manager: &Arc<dyn ResourceManager>) {
        self.inner().edit_managers(|managers| managers.remove(manager));
        // Each dylib caches the list, which would keep the manager alive until the dylib's next removal. So renew the
        // caches. Spare dylibs have such a cache too, so drop them. Both under one lock: a spare that is reused between
        // the two steps would be in neither list. A dylib that becomes a spare later is in `listed`, and the handle
        // there prevents its reuse until its cache is renewed.
        let (spare, listed) = {
            let mut dylibs = self.inner().dylibs.lock();
            (dylibs.take_spare(), dylibs.in_order())
        };
        drop(spare);
        for dylib in listed {
            self.inner().managers(dylib.inner());
        }
    }

    /// Pins the tracker of a definition that [`lookup`](Self::lookup) found ready. `None` when the definition is
    /// removed or not ready.
    pub fn pin(&self, symbol: &SymbolRef) -> Option<Pin> {
        symbol.ready_pin()
    }

    /// Reclaims the removed trackers that [`ReclaimPolicy::Explicit`](crate::session::ReclaimPolicy::Explicit) has
    /// queued. Returns their number.
    pub fn reclaim(&self) -> usize {
        self.inner().reclaim_deferred()
    }

    /// Passes an error that no caller receives to the session's
    /// [error reporter](crate::session::SessionOptions::error_reporter). Without a reporter the error is dropped.
    ///
    /// The session itself reports: the root cause of a failure that no lookup waited for; errors of managers when a
    /// removal completes after the call that requested it; and errors of managers when the last session handle is
    /// dropped.
    pub fn report_error(&self, error: Error) {
        self.inner().error_reporter.report(error);
    }

    /// Ends the session (ORC: `endSession`): removes all dylibs, newest first. Pinned resources are released when their
    /// last pin is dropped.
    ///
    /// # Errors
    /// The joined errors of the managers. The session has ended in any case.
    pub fn end(&self) -> Result<()> {
        self.inner().end()
    }
}
