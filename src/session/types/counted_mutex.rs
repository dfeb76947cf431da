//! [`CountedMutex`]: a mutex with an atomic count of keys, so that an empty table is skipped without a lock operation.
//!
//! A removal asks every ledger for the resources of its key, and most ledgers have none. The count lets it skip them.
//!
//! # Why the relaxed count is enough
//! 1. A thread records a resource under a key, and stores the count, while it holds the lock of the key's tracker.
//! 2. The removal of the key takes the lock of the same tracker later. So it sees that store, or a later one.
//! 3. Only the removal or the transfer of a key removes its entry. So every later value of the count includes this key.
//!
//! The removal therefore reads zero only if its key has no entry. Other keys may come and go meanwhile.
//! Model: `loom_tests/loom_allocate_remove.rs`.

use crate::sync::{AtomicUsize, Mutex, Ordering, Rank};

/// A table of resources by key.
pub(crate) trait KeyCount {
    /// The number of keys that own at least one resource.
    fn key_count(&self) -> usize;
}

/// A mutex that counts the keys of its content.
pub(crate) struct CountedMutex<T> {
    content: Mutex<T>,
    /// The key count of `content`. Written under the lock.
    key_count: AtomicUsize,
}

impl<T: KeyCount> CountedMutex<T> {
    pub(crate) fn new(content: T) -> CountedMutex<T> {
        let key_count = AtomicUsize::new(content.key_count());
        CountedMutex { content: Mutex::ranked(Rank::Manager, content), key_count }
    }

    /// Runs `body` under the lock and updates the count.
    #[inline]
    pub(crate) fn with_mut<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let mut content = self.content.lock();
        let result = body(&mut content);
        self.key_count.store(content.key_count(), Ordering::Relaxed);
        result
    }

    /// Like [`with_mut`](Self::with_mut), for a `body` that removes a key. If no key has an entry, returns `None`
    /// without a call of `body`.
    #[inline]
    pub(crate) fn with_mut_if_any<R>(&self, body: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        // Relaxed: the lock of the tracker orders this load, see the head of this file.
        if self.key_count.load(Ordering::Relaxed) == 0 { None } else { self.with_mut(body) }
    }

    /// Runs `body` under the lock. `body` changes nothing.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&T) -> R) -> R {
        body(&self.content.lock())
    }
}
