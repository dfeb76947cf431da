//! [`Turns`]: one thread at a time changes which version is current. No lock is held meanwhile, since stubs are defined and
//! observers told.

use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

/// Who changes something now, and who waits for that.
pub(super) struct Turns {
    holder: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

/// A thread's right to change something, until dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { holder: Mutex::new(None), ended: Condvar::new() }
    }

    /// Waits for the turn; `None` when the calling thread has it already: an observer that was told of a redirect has come
    /// back in.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let me = current_thread();
        let mut holder = self.holder.lock();
        while let Some(other) = *holder {
            if other == me {
                return None;
            }
            self.ended.wait(&mut holder);
        }
        *holder = Some(me);
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.holder.lock() = None;
        self.0.ended.notify_all();
    }
}
