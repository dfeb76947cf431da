//! [`ForkLock`]: a lock that says which process holds it.
//!
//! A thread that holds an ordinary lock while another thread forks holds it in the child for ever, where it does not
//! exist. Here the lock's word is the holder's process number, so that a child takes over what was its parent's. It must
//! be able to go on with what it finds, in whatever state: that is the business of who uses the lock.
//!
//! For locks that are held for a few stores or one system call: whoever waits asks again and again.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::sync::{MappedU32, Ordering, sleep};

/// A value under such a lock.
pub(super) struct ForkLock<T> {
    word: MappedU32,
    value: UnsafeCell<T>,
}

// SAFETY: H6 - the value is touched by one thread at a time, the one that holds the lock.
unsafe impl<T: Send> Send for ForkLock<T> {}
// SAFETY: H6 - as above.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    pub(super) fn new(value: T) -> ForkLock<T> {
        ForkLock { word: MappedU32::new(0), value: UnsafeCell::new(value) }
    }

    pub(super) fn lock(&self) -> ForkLocked<'_, T> {
        ForkLocked { _held: HeldWord::take(&self.word), value: &self.value }
    }
}

/// The right to a value.
pub(super) struct ForkLocked<'a, T> {
    _held: HeldWord<'a>,
    value: &'a UnsafeCell<T>,
}

impl<T> Deref for ForkLocked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: H6 - the lock is held.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for ForkLocked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: H6 - the lock is held.
        unsafe { &mut *self.value.get() }
    }
}

/// A lock's word, held. The word alone may be anywhere.
pub(super) struct HeldWord<'a>(&'a MappedU32);

impl<'a> HeldWord<'a> {
    /// Waits for the lock whose word this is: zero, or the number of the process that holds it.
    pub(super) fn take(word: &'a MappedU32) -> HeldWord<'a> {
        let me = std::process::id();
        let mut tries = 0;
        loop {
            let holder = word.load(Ordering::Relaxed);
            // Of another process: of a thread of the parent at the fork, which is not here.
            let is_free = holder != me;
            // Acquire pairs with the release of whoever held it last.
            if is_free && word.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return HeldWord(word);
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

impl Drop for HeldWord<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

const SPINS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);
