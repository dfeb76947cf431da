//! [`ForkLock`]: a lock that survives a fork. Its word is the id (PID) of the process that holds it.
//!
//! If a thread forks while another thread holds an ordinary lock, the child has a locked lock and no thread that unlocks it.
//! Here the word names the process that holds the lock:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | this process | held by a thread of this process |
//! | another process | a thread of the parent held it at the fork; free in this process |
//!
//! A child that takes over such a lock finds the data in the state that the parent's thread left. Each user of the lock must
//! make sure that it can go on from there.
//!
//! The lock is for a few stores or one system call: a waiting thread polls. It is not fair.
//!
//! # Limits
//! A PID names one process only within its PID namespace, and only while that process exists. A descendant of the
//! holder may get the holder's PID: the system reuses the PID after the holder has ended, or each of the two is the first
//! process of a PID namespace. If the descendant inherited the lock locked, it takes the lock for its own and waits for
//! ever.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::sync::{MappedU32, Ordering, sleep};

/// A value with its lock.
pub(super) struct ForkLock<T> {
    word: MappedU32,
    value: UnsafeCell<T>,
}

// SAFETY: H6 - the value moves with the lock, and `T: Send` allows that.
unsafe impl<T: Send> Send for ForkLock<T> {}
// SAFETY: H6 - only the thread that holds the lock accesses the value, so one thread at a time. `T: Send` is enough.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    pub(super) fn new(value: T) -> ForkLock<T> {
        ForkLock { word: MappedU32::new(0), value: UnsafeCell::new(value) }
    }

    pub(super) fn lock(&self) -> ForkLocked<'_, T> {
        ForkLocked { _guard: ForkLockGuard::lock(&self.word), value: &self.value }
    }
}

/// Access to the value while the lock is held.
pub(super) struct ForkLocked<'a, T> {
    _guard: ForkLockGuard<'a>,
    value: &'a UnsafeCell<T>,
}

impl<T> Deref for ForkLocked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: H6 - `_guard` holds the lock, so no other thread touches the value. `&self` excludes `deref_mut`.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for ForkLocked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: H6 - `_guard` holds the lock, so no other thread touches the value. `&mut self` makes the borrow unique.
        unsafe { &mut *self.value.get() }
    }
}

/// A locked lock word. The word need not be part of a [`ForkLock`]. Dropping the guard unlocks it.
pub(super) struct ForkLockGuard<'a> {
    word: &'a MappedU32,
    /// Whether a thread of another process held the lock at the fork: it may have left the data in the middle of a change.
    pub(super) was_taken_over: bool,
}

impl<'a> ForkLockGuard<'a> {
    /// Waits until `word` is free, and locks it.
    pub(super) fn lock(word: &'a MappedU32) -> ForkLockGuard<'a> {
        let this_process = std::process::id();
        let mut tries = 0;
        loop {
            let holder = word.load(Ordering::Relaxed);
            // The PID of another process: a thread of the parent held the lock at the fork. That thread is not in this process.
            let is_free = holder != this_process;
            // Acquire pairs with the release in `drop` of the previous guard.
            if is_free && word.compare_exchange(holder, this_process, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return ForkLockGuard { word, was_taken_over: holder != 0 };
            }
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
            } else {
                sleep(PAUSE);
            }
        }
    }
}

impl Drop for ForkLockGuard<'_> {
    fn drop(&mut self) {
        // Release pairs with the acquire in `lock`.
        self.word.store(0, Ordering::Release);
    }
}

const SPINS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);
