//! [`ExecutionSession`]: methods that enter guards and calls, and the dylibs whose removal waits for calls.
//!
//! Two mechanisms keep code mapped without an owned handle. A [`Guard`] protects everything that its thread finds. A
//! [`CallEntry`] protects only replaced versions of patched functions. The protocols are in `pins/guards.rs` and
//! `pins/calls.rs`.

use crate::base::CallEntry;
use crate::error::Result;
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::pins::guard::Guard;
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::sync::Ordering;

impl ExecutionSession {
    /// Enters a guard. Code that this thread finds in the session stays mapped until the guard is dropped.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.inner().guards.enter()
    }

    /// Enters a call of linked code. If this thread enters a version of a [patched](crate::Patchable) function, that
    /// version stays mapped until the returned entry is dropped. A call through a [`Function`](crate::Function) makes
    /// its own entry; use this method to call linked code through a bare pointer.
    ///
    /// An entry protects replaced versions only. A [guard](Self::guard) protects other removed code too.
    pub fn enter_call(&self) -> CallEntry {
        self.inner().calls.enter()
    }

    /// Declares that the calling thread executes no version. Versions that its call entries protect may be reclaimed;
    /// the entries stay entered.
    pub(crate) fn pass_quiescent_state(&self) {
        self.inner().calls.pass_quiescent_state();
    }

    /// Creates an empty dylib for versions of functions that are reached through stubs. The removal of its trackers
    /// waits for the calls that are entered. Once the first such dylib exists, calls through handles make call entries.
    ///
    /// # Errors
    /// [`ErrorKind::SessionEnded`](crate::ErrorKind::SessionEnded) when the session has ended.
    pub fn create_version_dylib(&self, name: &str) -> Result<JitDylib> {
        self.inner().calls.note_other_versions();
        self.create_reloaded_dylib(name)
    }

    /// As [`create_version_dylib`](Self::create_version_dylib). The caller finds the versions of the dylib on stacks, for
    /// [`pass_reload_point`].
    ///
    /// # Errors
    /// As [`create_version_dylib`](Self::create_version_dylib).
    pub(crate) fn create_reloaded_dylib(&self, name: &str) -> Result<JitDylib> {
        self.inner().calls.enable();
        let dylib = self.create_dylib(name)?;
        dylib.inner().has_versions.store(true, Ordering::Relaxed);
        Ok(dylib)
    }

    /// The trackers of lazy re-exports whose callers may have no call entry.
    pub(crate) fn late_bindings(&self) -> Vec<TrackerWatch> {
        self.inner().calls.late_bindings().into_iter().map(TrackerWatch::new).collect()
    }
}

impl Guard<'_> {
    /// Whether this guard was entered in `session`.
    pub fn is_of(&self, session: &ExecutionSession) -> bool {
        session.inner().guards.owns(self.record())
    }
}

impl JitDylib {
    /// Whether calls through handles of this session make call entries.
    pub(crate) fn is_call_entry_enabled(&self) -> bool {
        self.inner().session.calls.is_enabled()
    }

    /// Whether the dylib holds a version of patched functions. The first dylib of its link order is the patched one.
    pub(crate) fn is_version(&self) -> bool {
        self.inner().has_versions.load(Ordering::Relaxed)
    }

    /// Records that a lazy re-export from before the session's first version is about to be bound. Its callers may have
    /// no call entry.
    pub(crate) fn note_late_binding(&self, tracker: TrackerWatch) {
        self.inner().session.calls.note_late_binding(tracker.into_core());
    }
}

/// For models: the number of recorded bindings whose callers may have no call entry.
#[cfg(loom)]
#[doc(hidden)]
pub fn late_binding_count(session: &ExecutionSession) -> usize {
    session.late_bindings().len()
}

/// For models: records that a lazy re-export of a tracker is about to be bound.
#[cfg(loom)]
#[doc(hidden)]
pub fn note_late_binding(tracker: &crate::session::ResourceTracker) {
    tracker.dylib_handle().note_late_binding(tracker.watch());
}

/// For models: what a stub loads from its slot. Pairs with the store of the slot.
#[cfg(loom)]
#[doc(hidden)]
pub fn load_as_stub(slot: &crate::sync::AtomicU64) -> u64 {
    // Seeded bug: a stub whose load does not acquire.
    let is_plain = crate::sync::seeded_bug!("stub_loads_its_slot_plainly");
    slot.load(if is_plain { Ordering::Relaxed } else { Ordering::Acquire })
}

/// For models: a dylib whose versions are found on stacks.
#[cfg(loom)]
#[doc(hidden)]
pub fn reloaded_dylib(session: &ExecutionSession, name: &str) -> Result<JitDylib> {
    session.create_reloaded_dylib(name)
}
