//! [`Calls`]: which threads are inside linked code that the host called. The removal of replaced versions waits for them.
//!
//! # Why
//! A version of a patched function is reached through a redirectable stub. A thread that came through the stub is inside the
//! version, and neither a pin nor an edge refers to the version. So each call through a handle is entered like a guard, in a
//! domain of its own ([`Guards`]). The removal of a version waits for the calls that were entered before it. Other removals do
//! not look at calls: a handle's pin and the edges of the pin graph hold what these calls can reach.
//!
//! | thread calls                             | thread replaces the version                      |
//! |------------------------------------------|--------------------------------------------------|
//! | 1. make the record's epoch odd, fence    | 1. store the new target into the stub's slot     |
//! | 2. load the stub's slot                  | 2. fence, read every record's epoch              |
//!
//! Either the caller loads the new target, or the removal sees the call.
//!
//! # Reload points
//! A thread that never ends its calls passes *reload points*. There it is inside the versions of its stack, and inside no other
//! one. It pins those first, and then refreshes its records. So what a removal has deferred to them is released, and the pins stay
//! until the thread ends its calls or passes the next reload point. The thread may be inside calls of several domains, which end
//! in any order, so each of its records holds the pins.
//!
//! # The first version of a session
//! A session enters calls from its first version on. A call that began earlier is not entered. Its code was linked
//! before the stub existed, so it reaches the stub only through a lazy re-export that was made earlier and is bound
//! later. Before the call goes on, [`JitDylib::note_late_binding`](crate::session::JitDylib::note_late_binding) records
//! the tracker of the re-export here. That tracker keeps every version that is replaced from then on.
//!
//! Model: `loom_tests/loom_version_call.rs`.

#[cfg(feature = "reload")]
use std::any::Any;

use rustc_hash::FxHashMap;

use crate::base::{CallEntry, CallRecord, HostCalls, enable_call_entry};
use crate::session::pins::guards::{ActiveGuard, EpochRecord, Guards, LAST_CALL, LAST_HOST_CALL};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, StaticCell, fence};

/// The calls of one session.
pub(crate) struct Calls<T> {
    pub(crate) domain: Guards,
    /// Whether the session has created a dylib for versions. The store is Release and pairs with the Acquire loads: who sees it sees the
    /// switch of the process. Who does not see it began its call before, and reaches a version only as `late` says.
    is_enabled: AtomicBool,
    /// Whether the session has versions whose addresses [`pass_reload_point`] does not know. The store is Release and pairs with the
    /// Acquire load. It precedes the link of the first of them, so a thread inside one sees it.
    has_other_versions: AtomicBool,
    /// Trackers of lazy re-exports that were made before `is_enabled` was set and bound after it. A leaf lock.
    /// Each tracker once, by its address.
    late: Mutex<FxHashMap<usize, Arc<T>>>,
}

impl<T> Calls<T> {
    pub(crate) fn new() -> Calls<T> {
        Calls {
            domain: Guards::new(),
            is_enabled: AtomicBool::new(false),
            has_other_versions: AtomicBool::new(false),
            late: Mutex::new(FxHashMap::default()),
        }
    }

    /// Enters a call on the calling thread.
    pub(crate) fn enter(&self) -> CallEntry {
        let record = self.domain.record_of_this_thread(&LAST_CALL);
        record.enter();
        CallEntry::new(record)
    }

    /// Enters a call if the session has versions.
    pub(crate) fn enter_if_enabled(&self) -> Option<CallEntry> {
        self.is_enabled.load(Ordering::Acquire).then(|| self.enter())
    }

    /// Whether calls through the handles of the session are entered.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    /// Calls through handles are entered from now on.
    pub(crate) fn enable(&self) {
        // The switch of the process comes first: a thread that finds the session's flag set relies on it.
        enable_call_entry(&HOST);
        self.is_enabled.store(true, Ordering::Release);
    }

    /// From now on the session has versions whose addresses nobody looks for on stacks.
    pub(crate) fn note_other_versions(&self) {
        OTHER_VERSIONS.get_or_init(|| ());
        self.has_other_versions.store(true, Ordering::Release);
    }

    /// Declares that the calling thread is inside no version but those that `held` keeps. `held` is dropped when the calls of this
    /// thread end, or at the next such declaration.
    #[cfg(feature = "reload")]
    pub(crate) fn refresh_holding(&self, held: Box<dyn Any + Send>) {
        if !self.has_other_versions.load(Ordering::Acquire) {
            self.domain.record_of_this_thread(&LAST_CALL).refresh_holding(held);
        }
    }

    /// Declares that the calling thread is inside no version. The versions that its calls hold may be reclaimed; the
    /// calls stay entered.
    pub(crate) fn pass_quiescent_state(&self) {
        let domains = [(Some(&self.domain), &LAST_CALL), (host_calls(), &LAST_HOST_CALL)];
        for (domain, last) in domains {
            domain.into_iter().for_each(|domain| domain.record_of_this_thread(last).refresh());
        }
    }

    /// The active calls of this session and of the host itself.
    pub(crate) fn active(&self) -> Vec<ActiveGuard> {
        let domains = [Some(&self.domain), host_calls()];
        domains.into_iter().flatten().flat_map(Guards::active).collect()
    }

    /// Records a lazy re-export that was made before the first version of the session and is about to be bound. Its callers may
    /// not be entered.
    pub(crate) fn note_late_binding(&self, tracker: Arc<T>) {
        self.late.lock().insert(Arc::as_ptr(&tracker).addr(), tracker);
        // Pairs with the fence of `late_bindings`. The caller then stores the slot, and the load of the stub acquires (`Arch`).
        fence(Ordering::SeqCst);
    }

    /// The trackers of lazy re-exports whose callers may not be entered.
    pub(crate) fn late_bindings(&self) -> Vec<Arc<T>> {
        // Pairs with the fence of `note_late_binding`: a caller that loaded the old target has recorded its binding before.
        fence(Ordering::SeqCst);
        self.late.lock().values().cloned().collect()
    }
}

impl CallRecord for EpochRecord {
    #[inline]
    fn leave(&'static self) {
        self.leave_and_run_deferred(self.epoch());
    }
}

/// The domain of the calls that the host makes itself, for all sessions: initialisers, finalisers, exit handlers.
struct HostDomain(StaticCell<Guards>);

static HOST: HostDomain = HostDomain(StaticCell::new());

/// Set when some session of the process has versions whose addresses nobody looks for on stacks.
static OTHER_VERSIONS: StaticCell<()> = StaticCell::new();

/// Lets the host call that this thread has just entered hold something, until the thread leaves it or passes a reload point.
#[cfg(feature = "reload")]
pub(crate) fn hold_in_host_call(held: Box<dyn Any + Send>) {
    if let Some(domain) = host_calls() {
        domain.record_of_this_thread(&LAST_HOST_CALL).refresh_holding(held);
    }
}

/// As [`Calls::refresh_holding`], for the calls of the host, in which this thread may be inside versions of any session.
#[cfg(feature = "reload")]
pub(crate) fn refresh_host_calls_holding(held: Box<dyn Any + Send>) {
    if let Some(domain) = host_calls().filter(|_| OTHER_VERSIONS.get().is_none()) {
        domain.record_of_this_thread(&LAST_HOST_CALL).refresh_holding(held);
    }
}

/// Every call through a handle that begins after this asks its hold how it is made, also in a process without versions: the code
/// of a session may run in another process.
#[cfg(feature = "executor")]
pub(crate) fn enable_calls_elsewhere() {
    enable_call_entry(&HOST);
}

/// The domain of the host's own calls. `None` if the host has entered none.
pub(crate) fn host_calls() -> Option<&'static Guards> {
    HOST.0.get()
}

impl HostCalls for HostDomain {
    fn enter(&'static self) -> CallEntry {
        let record = self.0.get_or_init(Guards::new).record_of_this_thread(&LAST_HOST_CALL);
        record.enter();
        CallEntry::new(record)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::pins::guards::{Deferred, defer};

    fn is_entered(record: &EpochRecord) -> bool {
        record.epoch() % 2 == 1
    }

    /// Enters a call when it is released, and does not leave it.
    struct EntersACall(&'static EpochRecord);

    impl Deferred for EntersACall {
        fn release(self: Box<Self>, _: Vec<Box<dyn Deferred>>) {
            self.0.enter();
        }
    }

    #[test]
    fn a_call_that_deferred_work_enters_during_a_refresh_holds_until_it_is_left() {
        for nested in 0..3 {
            let domain = Guards::new();
            let record = domain.record_of_this_thread(&LAST_CALL);
            for _ in 0..=nested {
                record.enter();
            }
            assert!(defer(EntersACall(record), domain.active()).is_none());
            record.refresh();
            for _ in 0..=nested {
                record.leave_and_run_deferred(record.epoch());
                assert!(is_entered(record), "the call of the deferred work is entered");
            }
            record.leave_and_run_deferred(record.epoch());
            assert!(!is_entered(record));
        }
    }
}
