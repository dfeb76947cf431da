//! [`ReentrantLock`]: one thread at a time does something that calls out, so that no lock may be held meanwhile.

use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

/// Who does it now, and who waits for that.
pub(crate) struct ReentrantLock {
    holder: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

/// A thread's right to do it, until dropped.
#[must_use]
pub(crate) struct ReentrantGuard<'a> {
    turns: &'a ReentrantLock,
    is_nested: bool,
}

impl ReentrantLock {
    pub(crate) fn new() -> ReentrantLock {
        ReentrantLock { holder: Mutex::new(None), ended: Condvar::new() }
    }

    /// Waits until no other thread has the turn. One that has it already, and was called back, gets it again.
    pub(crate) fn take(&self) -> ReentrantGuard<'_> {
        let me = current_thread();
        let mut holder = self.holder.lock();
        while holder.is_some_and(|other| other != me) {
            self.ended.wait(&mut holder);
        }
        let is_nested = holder.replace(me).is_some();
        ReentrantGuard { turns: self, is_nested }
    }
}

impl ReentrantGuard<'_> {
    /// Whether the thread had it already.
    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested
    }
}

impl Drop for ReentrantGuard<'_> {
    fn drop(&mut self) {
        if !self.is_nested {
            *self.turns.holder.lock() = None;
            self.turns.ended.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_turn_inside_a_turn_ends_only_itself() {
        let (turns, is_over) = (ReentrantLock::new(), AtomicBool::new(false));
        let outer = turns.take();
        std::thread::scope(|scope| {
            let inner = turns.take();
            assert!(inner.is_nested() && !outer.is_nested());
            drop(inner);
            let other = scope.spawn(|| {
                let turn = turns.take();
                assert!(is_over.load(Ordering::SeqCst), "two threads have the turn");
                assert!(!turn.is_nested());
            });
            // Time for the other to come.
            std::thread::sleep(Duration::from_millis(50));
            is_over.store(true, Ordering::SeqCst);
            drop(outer);
            other.join().expect("it does not panic");
        });
    }
}
