//! [`ReentrantLock`]: a lock that a thread may hold while it calls the embedder's code, and may take again in a callback.
//!
//! Rule S5 forbids to hold a mutex while foreign code runs, because that code may call back and deadlock. This lock allows
//! it: the owner is a thread, and a nested [`ReentrantLock::lock`] of the same thread succeeds at once.
//!
//! The inner mutex is held only while the owner field is read or written.

use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

pub(crate) struct ReentrantLock {
    /// The thread that holds the lock.
    owner: Mutex<Option<ThreadId>>,
    /// Notified when the owner releases the lock.
    released: Condvar,
}

/// Holds a [`ReentrantLock`] until it is dropped.
#[must_use]
pub(crate) struct ReentrantGuard<'a> {
    lock: &'a ReentrantLock,
    is_nested: bool,
}

impl ReentrantLock {
    pub(crate) fn new() -> ReentrantLock {
        ReentrantLock { owner: Mutex::new(None), released: Condvar::new() }
    }

    /// Waits until no other thread holds the lock. A thread that holds it already gets a nested guard.
    pub(crate) fn lock(&self) -> ReentrantGuard<'_> {
        let me = current_thread();
        let mut owner = self.owner.lock();
        while owner.is_some_and(|other| other != me) {
            self.released.wait(&mut owner);
        }
        let is_nested = owner.replace(me).is_some();
        ReentrantGuard { lock: self, is_nested }
    }
}

impl ReentrantGuard<'_> {
    /// Whether the thread held the lock already when this guard was made.
    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested
    }
}

impl Drop for ReentrantGuard<'_> {
    fn drop(&mut self) {
        if !self.is_nested {
            *self.lock.owner.lock() = None;
            self.lock.released.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn dropping_a_nested_guard_does_not_release_the_lock() {
        let (lock, is_released) = (ReentrantLock::new(), AtomicBool::new(false));
        let outer = lock.lock();
        std::thread::scope(|scope| {
            let inner = lock.lock();
            assert!(inner.is_nested() && !outer.is_nested());
            drop(inner);
            let other = scope.spawn(|| {
                let guard = lock.lock();
                assert!(is_released.load(Ordering::SeqCst), "two threads hold the lock");
                assert!(!guard.is_nested());
            });
            // Gives the other thread time to reach the lock.
            std::thread::sleep(Duration::from_millis(50));
            is_released.store(true, Ordering::SeqCst);
            drop(outer);
            other.join().expect("the other thread does not panic");
        });
    }
}
