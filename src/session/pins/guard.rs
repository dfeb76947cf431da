//! [`Guard`]: epoch-based protection for short calls into linked code.
//!
//! A guard is cheaper than an owned handle. It holds everything that its thread may have found, so it is meant for short
//! sections. `guards.rs` has the protocol.

use std::fmt;
use std::marker::PhantomData;

use crate::session::pins::guards::{EpochRecord, Guards, LAST};
use crate::sync::seeded_bug;

/// Keeps in memory what its thread finds in the session: code, data, targets of stubs. Nested guards are cheaper still.
/// [`ExecutionSession::guard`](crate::session::ExecutionSession::guard) makes one.
///
/// A removal proceeds while a guard exists: the symbols are unpublished, and the [`Removal`](crate::session::Removal) names the
/// guards that block it ([`Removal::obstacles`]). The thread that leaves the last of them reclaims the resources.
///
/// A guard blocks everything that is removed after it was entered, since the session does not know what the thread has found.
/// In a long section, call [`refresh`](Self::refresh) from time to time. For a call that may take long, use an owned handle
/// instead.
///
/// ```
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let mut guard = jit.guard();
/// let removal = jit.main_dylib().create_tracker()?.remove()?;
/// assert_eq!(removal.guards().len(), 1); // The guard was entered before the removal.
/// assert!(!removal.is_complete());
///
/// guard.refresh(); // Leaves the guard and enters it again.
/// assert!(removal.is_complete());
/// # Ok(()) }
/// ```
///
/// A guard stays on its thread:
///
/// ```compile_fail,E0277
/// # let jit = jittison::Jit::new().unwrap();
/// let guard = jit.guard();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)).join());
/// ```
///
/// It cannot outlive its session:
///
/// ```compile_fail,E0505
/// # let jit = jittison::Jit::new().unwrap();
/// let guard = jit.guard();
/// drop(jit);
/// drop(guard);
/// ```
///
/// [`Removal::obstacles`]: crate::session::Removal::obstacles
pub struct Guard<'s> {
    record: &'static EpochRecord,
    /// The epoch of the record while any guard of the thread is entered.
    epoch: u64,
    session: PhantomData<&'s ()>,
    /// The record belongs to this thread.
    not_send: PhantomData<*const ()>,
}

impl Guards {
    /// Enters a guard on the calling thread.
    #[inline]
    pub(crate) fn enter(&self) -> Guard<'_> {
        let record = self.record_of_this_thread(&LAST);
        let epoch = record.enter();
        Guard { record, epoch, session: PhantomData, not_send: PhantomData }
    }
}

impl Guard<'_> {
    /// Leaves the guard and enters it again. What waited for the guard may be reclaimed, and so may everything that the thread
    /// found under it. Does nothing inside another guard of the same session.
    #[inline]
    pub fn refresh(&mut self) {
        if self.record.leave(self.epoch) {
            self.record.run_deferred();
            // Seeded bug: another thread may take the record.
            if seeded_bug!("post_given_up_by_a_refresh") {
                self.record.deregister_if_owned_by_guards();
            }
        }
        self.epoch = self.record.enter();
    }

    /// The epoch record that the guard uses.
    pub(crate) fn record(&self) -> &'static EpochRecord {
        self.record
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record.leave_and_run_deferred(self.epoch);
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard of {}", self.record.thread())
    }
}
