//! [`Slot`]: a value with a generation and a count of its users, so that a handle is checked and its value used without a lock.
//!
//! ```text
//!   63         32  31    30       0
//!  ┌─────────────┬─────┬───────────┐
//!  │ generation  │live │   users   │   one word
//!  └─────────────┴─────┴───────────┘
//! ```
//!
//! | step | change of the word | who |
//! |---|---|---|
//! | [`publish`](Slot::publish) | generation + 1, live, no users | the owner of an empty slot |
//! | [`use_value`](Slot::use_value) | users + 1, if generation and live agree | anyone with a handle |
//! | [`retire`](Slot::retire) | not live | one user: later uses of the handle fail |
//! | [`drop_unused`](Slot::drop_unused) | not live, if there are no users | anyone with a handle, who drops the value |
//! | drop of a [`Used`] | users − 1 | each user |
//!
//! The user whose drop leaves no users and a word that is not live is the last one: it drops the value, and the slot is empty.
//! A word never comes back, because generations ascend and a slot whose generations are used up stays empty.
//!
//! Model: the tests of this file, which `slot-model` runs under loom. Seeded bug: `live_is_not_checked`.

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use std::ops::Deref;

#[cfg(not(loom))]
pub(crate) use cell::UnsafeCell;

/// The interface of loom's cell.
#[cfg(not(loom))]
mod cell {
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(*const T) -> R) -> R {
            body(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
            body(self.0.get())
        }
    }
}

/// A place for one value at a time.
pub(crate) struct Slot<T> {
    word: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: C8 - a value is reached by users of one generation, who share it, and dropped by the last of them, on any thread.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}
// SAFETY: C8 - as above.
unsafe impl<T: Send + Sync> Send for Slot<T> {}

const LIVE: u64 = 1 << 31;
const USERS: u64 = LIVE - 1;
const GENERATION_SHIFT: u32 = 32;

impl<T> Slot<T> {
    pub(crate) fn new() -> Slot<T> {
        Slot { word: AtomicU64::new(0), value: UnsafeCell::new(None) }
    }

    /// Puts a value into an empty slot. Returns its generation. The caller owns the slot: nobody else publishes.
    #[inline]
    pub(crate) fn publish(&self, value: T) -> u32 {
        // Relaxed: the caller owns the slot, and came by it after the last user emptied it.
        let generation = self.generation() + 1;
        // SAFETY: C8 - the slot is empty and owned, so there is no user, and nothing to drop.
        self.value.with_mut(|place| unsafe { place.write(Some(value)) });
        // Release: pairs with the acquire in `use_value`, which reads the value.
        self.word.store(u64::from(generation) << GENERATION_SHIFT | LIVE, Ordering::Release);
        generation
    }

    /// The last generation that was published.
    pub(crate) fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> GENERATION_SHIFT) as u32
    }

    /// For tests of the last generation. The slot is empty.
    #[cfg(test)]
    pub(crate) fn set_generation(&self, generation: u32) {
        self.word.store(u64::from(generation) << GENERATION_SHIFT, Ordering::Relaxed);
    }

    /// Whether a generation is live at this moment.
    #[inline]
    pub(crate) fn is_live(&self, generation: u32) -> bool {
        // Relaxed: who retires it at the same time may come before or after.
        self.word.load(Ordering::Relaxed) & !USERS == u64::from(generation) << GENERATION_SHIFT | LIVE
    }

    /// The value of a generation, if it is live.
    #[inline]
    pub(crate) fn use_value(&self, generation: u32) -> Option<Used<'_, T>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_live = word & LIVE != 0 || live_is_not_checked();
            if !is_live || (word >> GENERATION_SHIFT) as u32 != generation {
                return None;
            }
            assert!(word & USERS != USERS, "a handle is used by two thousand million calls at once");
            // Acquire: pairs with the release of `publish`.
            match self.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Used { slot: self }),
                Err(changed) => word = changed,
            }
        }
    }

    /// Retires the value of a generation and drops it, if it has no user. The caller owns the slot then. False if there are users,
    /// or the generation is not live.
    #[inline]
    pub(crate) fn drop_unused(&self, generation: u32) -> bool {
        let live = u64::from(generation) << GENERATION_SHIFT | LIVE;
        // Acquire: pairs with the release of `publish` and of the users that have ended.
        let is_unused = self.word.compare_exchange(live, live & !LIVE, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_unused {
            self.drop_value();
        }
        is_unused
    }

    /// Drops the value where it is. The caller has found that no user is left and none can come.
    #[inline]
    fn drop_value(&self) {
        // SAFETY: C8 - the value is this thread's, by the caller's finding.
        self.value.with_mut(|place| unsafe { *place = None });
    }

    /// Makes the value of a user unreachable by later uses. False if another user was first.
    pub(crate) fn retire(used: &Used<'_, T>) -> bool {
        // Relaxed: users only stop to find the value; the drops of users order what they did.
        used.slot.word.fetch_and(!LIVE, Ordering::Relaxed) & LIVE != 0
    }
}

/// The seeded bug of the model.
#[inline]
fn live_is_not_checked() -> bool {
    #[cfg(loom)]
    return std::env::var_os("SEEDED_BUG").is_some_and(|bug| bug == "live_is_not_checked");
    #[cfg(not(loom))]
    false
}

/// A use of a value, which keeps it.
pub(crate) struct Used<'a, T> {
    slot: &'a Slot<T>,
}

impl<T> Used<'_, T> {
    /// Ends the use. If it was the last one of a retired value, drops the value, and returns true: the caller owns the slot then.
    #[inline]
    pub(crate) fn end(self) -> bool {
        // Release: what this user did happens before the drop of the value. Acquire: the last user sees what all did.
        let before = self.slot.word.fetch_sub(1, Ordering::AcqRel);
        let is_last = before & (LIVE | USERS) == 1;
        if is_last {
            self.slot.drop_value();
        }
        is_last
    }
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: C8 - the value is published and this use is counted, so nobody writes it or drops it.
        let value = self.slot.value.with(|place| unsafe { &*place });
        value.as_ref().expect("a value that is used is there")
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// One thread uses a value, another one takes it if it has no user, or else retires it: one of them drops it.
    #[test]
    fn use_versus_take() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let generation = slot.publish(std::sync::Arc::new(7));
            let used = slot.use_value(generation).expect("it is there");
            let value = (*used).clone();
            assert!(!used.end());
            let user = {
                let slot = slot.clone();
                thread::spawn(move || {
                    if let Some(used) = slot.use_value(generation) {
                        assert_eq!(**used, 7);
                        used.end();
                    }
                })
            };
            if !slot.drop_unused(generation) {
                let used = slot.use_value(generation).expect("nobody else takes it");
                assert!(Slot::retire(&used));
                used.end();
            }
            assert!(slot.use_value(generation).is_none() && !slot.drop_unused(generation));
            user.join().unwrap();
            assert_eq!(std::sync::Arc::strong_count(&value), 1);
        });
    }

    /// Two threads use a value, and one of them retires it and publishes another one in the slot when it is empty. The value is
    /// dropped once, by the last user; a use that comes after it fails.
    #[test]
    fn use_versus_retire_and_reuse() {
        loom::model(|| {
            static DROPS: AtomicUsize = AtomicUsize::new(0);
            DROPS.store(0, SeqCst);
            struct Value(u32);
            impl Drop for Value {
                fn drop(&mut self) {
                    DROPS.fetch_add(1, SeqCst);
                }
            }
            let slot = Arc::new(Slot::new());
            let generation = slot.publish(Value(7));
            let finish = move |slot: &Slot<Value>, used: Option<Used<'_, Value>>| {
                let Some(used) = used else { return };
                assert_eq!(used.0, 7);
                if used.end() {
                    assert_eq!(DROPS.load(SeqCst), 1);
                    // The slot is this thread's: another value takes the place.
                    assert_eq!(slot.publish(Value(8)), generation + 1);
                }
            };
            let user = {
                let slot = slot.clone();
                thread::spawn(move || finish(&slot, slot.use_value(generation)))
            };
            let remover = slot.use_value(generation).expect("nobody else retires it");
            assert!(Slot::retire(&remover) && !Slot::retire(&remover));
            finish(&slot, Some(remover));
            finish(&slot, slot.use_value(generation));
            user.join().unwrap();
            assert_eq!(DROPS.load(SeqCst), 1);
            assert!(slot.use_value(generation).is_none());
            let second = slot.use_value(generation + 1).expect("the slot has its second value");
            assert_eq!(second.0, 8);
            second.end();
        });
    }
}
