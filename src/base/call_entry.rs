//! [`CallEntry`]: an RAII guard for a call from the host into linked code, for example through a
//! [`Function`](crate::Function).
//!
//! A handle to a stub, or to code that calls a stub, keeps the stub in memory. It does not keep every version that the stub
//! led to. So the host *enters* a call: a version that the call may be inside of stays in memory until the call returns.
//!
//! A process without patched functions and without an executor enters no calls. [`is_call_entry_enabled`] answers that with one
//! load. The first [`Patchable`](crate::Patchable) of the process, or the first session with an executor, calls
//! [`enable_call_entry`].
//!
//! There are two kinds of call domain:
//!
//! | domain | calls |
//! |---|---|
//! | one per session | calls through the handles of the session |
//! | one per process | calls that the host makes itself: initialisers, finalisers, exit handlers, destructors of thread-local variables |
//!
//! This file defines the guard and the traits. `session/pins/calls.rs` implements them.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use crate::sync::StaticCell;

/// Keeps the versions of patched functions that this thread may be inside of in memory. The call ends when the value is
/// dropped. [`ExecutionSession::enter_call`](crate::ExecutionSession::enter_call) makes one.
#[must_use = "the call ends when this is dropped"]
pub struct CallEntry {
    record: &'static dyn CallRecord,
    /// The record belongs to this thread, so the value must stay on it.
    not_send: PhantomData<*const ()>,
}

/// The record of one thread in one call domain.
pub(crate) trait CallRecord: Sync {
    /// Ends the innermost call.
    fn leave(&'static self);
}

/// Keeps the code of a handle in memory, and enters the calls through the handle.
pub(crate) trait CodeHold: Any + Send + Sync {
    /// Enters a call. `None` when the session of the code has no versions.
    fn enter_call(&self) -> Option<CallEntry>;
}

/// The call domain of the calls that the host makes itself.
pub(crate) trait HostCalls: Sync {
    fn enter(&'static self) -> CallEntry;
}

static HOST_CALLS: StaticCell<&'static (dyn HostCalls + Send)> = StaticCell::new();

/// Whether some session of the process has versions of functions or an executor, so that calls must be entered.
#[inline(always)] // every call through a handle runs it
pub(crate) fn is_call_entry_enabled() -> bool {
    HOST_CALLS.get().is_some()
}

/// Enables call entry: every call that begins after this is entered. `host_calls` is the domain of the host's own calls.
pub(crate) fn enable_call_entry(host_calls: &'static (dyn HostCalls + Send)) {
    HOST_CALLS.get_or_init(|| host_calls);
}

/// Enters a call that the host makes itself. `None` when call entry is not enabled.
pub(crate) fn enter_host_call() -> Option<CallEntry> {
    HOST_CALLS.get().map(|calls| calls.enter())
}

impl CallEntry {
    /// Wraps a call that is already entered in `record`.
    pub(crate) fn new(record: &'static dyn CallRecord) -> CallEntry {
        CallEntry { record, not_send: PhantomData }
    }
}

impl Drop for CallEntry {
    #[inline]
    fn drop(&mut self) {
        self.record.leave();
    }
}

impl fmt::Debug for CallEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("call of linked code")
    }
}
