//! [`CountedMutex`]: a lock on what keys own, which says without being taken whether there is anything.
//!
//! A removal asks every ledger for what its key owns, and most of them hold nothing. What was recorded under a key came before
//! the key's removal, through the gate of its tracker, and the word that says so with it. So whoever may find its key here sees
//! that there is something, whatever else is recorded and taken meanwhile.
//! Model: `loom_tests/loom_allocate_remove.rs`.

use crate::sync::{AtomicUsize, Mutex, Ordering, Rank};

/// What keys own.
pub(crate) trait KeyCount {
    /// Number of keys that own something.
    fn key_count(&self) -> usize;
}

pub(crate) struct CountedMutex<T> {
    content: Mutex<T>,
    /// Of the content. Written under the lock.
    key_count: AtomicUsize,
}

impl<T: KeyCount> CountedMutex<T> {
    pub(crate) fn new(content: T) -> CountedMutex<T> {
        let key_count = AtomicUsize::new(content.key_count());
        CountedMutex { content: Mutex::ranked(Rank::Manager, content), key_count }
    }

    #[inline]
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut content = self.content.lock();
        let result = change(&mut content);
        self.key_count.store(content.key_count(), Ordering::Relaxed);
        result
    }

    /// As [`change`](Self::change), for what keys own no more; not called if none owns anything.
    #[inline]
    pub(crate) fn take<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        // Relaxed, as the gate is what orders it.
        if self.key_count.load(Ordering::Relaxed) == 0 { None } else { self.change(take) }
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.content.lock())
    }
}
