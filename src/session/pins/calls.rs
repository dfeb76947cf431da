//! [`Calls`]: which threads are inside linked code that a host called, for the removal of replaced versions.
//!
//! # Why
//! A version of a patched function is reached through a redirectable stub. A thread that came through the stub is inside the
//! version, and nothing of the session refers to that: neither a pin nor an edge. So each call through a handle is entered,
//! as a guard is, in a domain of its own ([`Guards`]), and the removal of a version waits for the calls that were entered
//! before it. Other removals do not look at calls: a handle's pin and the edges of the pin graph hold what they call.
//!
//! | thread calls                             | thread replaces the version                      |
//! |------------------------------------------|--------------------------------------------------|
//! | 1. make the record's epoch odd, fence    | 1. store the new target into the stub's slot     |
//! | 2. load the stub's slot                  | 2. fence, read every record's epoch              |
//!
//! Either the caller loads the new target, or the removal sees the call.
//!
//! # The first version of a session
//! A session enters calls from its first version on. A call that began earlier is not entered. Its code was linked before
//! the stub existed, so it refers to the stub only through a lazy re-export that was made earlier and is bound later. Such
//! a binding is noted here before the call goes on, and its tracker keeps every version that is replaced from then on
//! ([`JitDylib::note_late_binding`]).
//!
//! Model: `loom_tests/loom_version_call.rs`.

use crate::base::{CallEntry, CallRecord, HostCalls, enter_calls_from_now_on};
use crate::error::Result;
use crate::session::core::execution_session::{ExecutionSession, SessionInner};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::pins::guards::{ActiveGuard, EpochRecord, Guards, LAST_CALL, LAST_HOST_CALL};
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, StaticCell, fence, seeded_bug};

/// The calls of one session.
pub(crate) struct Calls {
    pub(crate) entries: Guards,
    /// Whether the session has made a dylib of versions.
    are_entered: AtomicBool,
    /// Trackers of lazy re-exports that were made before `are_entered`, and bound after it. A leaf lock.
    late: Mutex<Vec<TrackerWatch>>,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        Calls { entries: Guards::new(), are_entered: AtomicBool::new(false), late: Mutex::new(Vec::new()) }
    }

    fn enter(&self) -> CallEntry {
        let post = self.entries.post_of_this_thread(&LAST_CALL);
        post.enter();
        CallEntry::new(post)
    }
}

impl CallRecord for EpochRecord {
    #[inline]
    fn leave(&'static self) {
        self.leave_for_good(self.entries());
    }
}

impl ExecutionSession {
    /// Enters a call of linked code: a version of a [patched](crate::Patchable) function that this thread comes into stays in
    /// memory until the entry is dropped. Calls through a [`Function`](crate::Function) are entered by themselves. This is for
    /// whoever calls linked code through a bare pointer.
    ///
    /// Unlike a [guard](Self::guard), an entry holds replaced versions only, and no other code that is removed.
    pub fn enter_call(&self) -> CallEntry {
        self.inner().calls.enter()
    }

    /// The calling thread is inside of no version: the versions that its calls hold may go, all of its calls go on.
    pub(crate) fn pass_quiescent_state(&self) {
        let domains = [(Some(&self.inner().calls.entries), &LAST_CALL), (host_calls(), &LAST_HOST_CALL)];
        for (domain, last) in domains {
            domain.into_iter().for_each(|domain| domain.post_of_this_thread(last).enter_anew());
        }
    }

    /// A new, empty dylib for versions of functions that are reached through stubs. The removal of its trackers waits for the
    /// calls that are entered. From the first such dylib on, calls through handles are entered.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn create_version_dylib(&self, name: &str) -> Result<JitDylib> {
        let calls = &self.inner().calls;
        if !calls.are_entered.swap(true, Ordering::AcqRel) {
            enter_calls_from_now_on(&HOST);
        }
        let dylib = self.create_dylib(name)?;
        dylib.inner().has_versions.store(true, Ordering::Relaxed);
        Ok(dylib)
    }

    /// The trackers of lazy re-exports whose callers may not be entered.
    pub(crate) fn late_bindings(&self) -> Vec<TrackerWatch> {
        // Pairs with the fence of `note_late_binding`: a caller that loaded the old target has noted its binding before.
        fence(Ordering::SeqCst);
        self.inner().calls.late.lock().clone()
    }
}

/// For models: how many bindings are noted whose callers may not be entered.
#[cfg(loom)]
#[doc(hidden)]
pub fn late_binding_count(session: &ExecutionSession) -> usize {
    session.late_bindings().len()
}

impl JitDylib {
    /// Whether calls through handles of this session are entered.
    pub(crate) fn are_calls_entered(&self) -> bool {
        self.inner().session.calls.are_entered.load(Ordering::Acquire)
    }

    /// A lazy re-export that was made before the session's first version is about to be bound: its callers may not be entered.
    pub(crate) fn note_late_binding(&self, tracker: TrackerWatch) {
        self.inner().session.calls.late.lock().push(tracker);
        fence(Ordering::SeqCst);
    }
}

impl SessionInner {
    /// Enters a call of this session's code, if it has versions.
    pub(crate) fn enter_call(&self) -> Option<CallEntry> {
        self.calls.are_entered.load(Ordering::Acquire).then(|| self.calls.enter())
    }

    /// The calls that were entered and may be inside of `core`, if that is a version.
    pub(crate) fn entered_calls<'a>(&self, cores: impl IntoIterator<Item = &'a Arc<TrackerCore>>) -> Vec<ActiveGuard> {
        let are_versions = cores.into_iter().any(|core| core.is_version());
        if !are_versions || seeded_bug!("version_freed_under_a_call") {
            return Vec::new();
        }
        let domains = [Some(&self.calls.entries), host_calls()];
        domains.into_iter().flatten().flat_map(Guards::entered).collect()
    }
}

impl TrackerCore {
    /// Whether its code is reached through stubs that lead elsewhere by now.
    pub(crate) fn is_version(&self) -> bool {
        self.dylib().has_versions.load(Ordering::Relaxed)
    }
}

/// Calls that the host makes by itself, for all sessions: initialisers, finalisers, exit handlers.
struct HostDomain(StaticCell<Guards>);

static HOST: HostDomain = HostDomain(StaticCell::new());

/// The domain of the host's own calls, once one was entered.
pub(crate) fn host_calls() -> Option<&'static Guards> {
    HOST.0.get()
}

impl HostCalls for HostDomain {
    fn enter(&'static self) -> CallEntry {
        let post = self.0.get_or_init(Guards::new).post_of_this_thread(&LAST_HOST_CALL);
        post.enter();
        CallEntry::new(post)
    }
}
