//! [`CallEntry`]: a thread is inside linked code that a host called, through a [`Function`](crate::Function) for one.
//!
//! A handle to a stub, or to code that calls a stub, keeps the stub. It does not keep each version that the stub led to. So
//! a call through a handle is *entered*: the versions that the call may be inside of stay until the call returns.
//!
//! Entering costs a few nanoseconds, and a process without patched functions needs none of it. [`are_calls_entered`] says
//! so with one load. The first [`Patchable`](crate::Patchable) of the process calls [`enter_calls_from_now_on`].
//!
//! Two domains exist: one per session for calls through its handles, and one per process for what the host calls by itself
//! (initialisers, finalisers, exit handlers, destructors of thread-local variables).

use std::fmt;
use std::marker::PhantomData;

use crate::sync::StaticCell;

/// While there is one, the versions of patched functions that the thread may be inside of stay in memory. Made by
/// [`ExecutionSession::enter_call`](crate::ExecutionSession::enter_call).
#[must_use = "the call ends when this is dropped"]
pub struct CallEntry {
    record: &'static dyn CallRecord,
    /// The record is this thread's.
    not_send: PhantomData<*const ()>,
}

/// A thread's place in a domain of calls.
pub(crate) trait CallRecord: Sync {
    /// Ends the innermost call.
    fn leave(&'static self);
}

/// What keeps the code of a handle in memory, and enters calls of it.
pub(crate) trait CodeHold: Send + Sync {
    /// `None` when the session of the code has no versions.
    fn enter_call(&self) -> Option<CallEntry>;
}

/// What the host's own calls are entered in.
pub(crate) trait HostCalls: Sync {
    fn enter(&'static self) -> CallEntry;
}

static HOST_CALLS: StaticCell<&'static (dyn HostCalls + Send)> = StaticCell::new();

/// Whether some session of the process has versions of functions.
#[inline(always)] // on the way of every call through a handle
pub(crate) fn are_calls_entered() -> bool {
    HOST_CALLS.get().is_some()
}

/// Calls that begin from now on are entered.
pub(crate) fn enter_calls_from_now_on(host_calls: &'static (dyn HostCalls + Send)) {
    HOST_CALLS.get_or_init(|| host_calls);
}

/// Enters a call of the host's own, if calls are entered.
pub(crate) fn enter_host_call() -> Option<CallEntry> {
    HOST_CALLS.get().map(|calls| calls.enter())
}

impl CallEntry {
    /// Of a call that is entered in `record`.
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
