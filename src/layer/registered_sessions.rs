//! [`RegisteredSessions`]: the sessions that a layer is registered with.
//!
//! A session that does not know the layer would not free its code, and other managers of that session would not run the
//! initialisers. So a layer that is registered refuses the trackers of other sessions.

use crate::error::Result;
use crate::session::{ExecutionSession, JitDylib};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The numbers of the sessions. Most layers have one.
pub(super) struct RegisteredSessions {
    /// Zero before the first registration.
    first: AtomicU64,
    others: Mutex<Vec<u64>>,
}

impl RegisteredSessions {
    pub(super) fn new() -> RegisteredSessions {
        RegisteredSessions { first: AtomicU64::new(0), others: Mutex::new(Vec::new()) }
    }

    pub(super) fn add(&self, session: &ExecutionSession) {
        let number = session.inner().number();
        // Relaxed: the number says nothing about other memory.
        if let Err(first) = self.first.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
            && first != number
        {
            let mut others = self.others.lock();
            if !others.contains(&number) {
                others.push(number);
            }
        }
    }

    /// Refuses a dylib of a session that the layer is not registered with. A layer without any session accepts all.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignSession`](crate::ErrorKind::ForeignSession).
    #[inline]
    pub(super) fn check(&self, dylib: &JitDylib) -> Result<()> {
        let (first, number) = (self.first.load(Ordering::Relaxed), dylib.session_number());
        if first == number || first == 0 { Ok(()) } else { self.check_others(dylib, number) }
    }

    #[cold]
    fn check_others(&self, dylib: &JitDylib, number: u64) -> Result<()> {
        if self.others.lock().contains(&number) { Ok(()) } else { Err(dylib.inner().foreign()) }
    }
}
