//! [`OwnedSlot`]: a value that belongs to one thread, with a generation, so that a handle is checked and its value used without a
//! count of users.
//!
//! ```text
//!   63         32  31    30       0     63               0
//!  ┌─────────────┬─────┬───────────┐   ┌──────────────────┐
//!  │ generation  │live │     0     │   │ number of thread │
//!  └─────────────┴─────┴───────────┘   └──────────────────┘
//!               word                          owner
//! ```
//!
//! | step | change | who |
//! |---|---|---|
//! | [`publish`](OwnedSlot::publish) | the value, then `owner`, then `word`: generation + 1, live | the thread that has the empty slot |
//! | [`borrow`](OwnedSlot::borrow), [`borrow_mut`](OwnedSlot::borrow_mut) | none | the thread in `owner`, if generation and live agree |
//! | [`end`](OwnedSlot::end) | `word`: not live, then the value goes | that thread, which has the empty slot then |
//!
//! A thread that reads the word of a generation and then its own number has published that generation: a thread that published it
//! before would have stored another number first, and a later generation of this thread would be in the word already. No other
//! thread ends the generation, so what it borrows stays. Other threads read `word` and `owner`, and no value.
//!
//! Model: the tests of this file, which `slot-model` runs under loom. Seeded bug: `owner_is_not_checked`.

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use std::cell::{Ref, RefCell, RefMut};

#[cfg(not(loom))]
use crate::slot::UnsafeCell;

/// A place for one value at a time.
pub(crate) struct OwnedSlot<T> {
    word: AtomicU64,
    owner: AtomicU64,
    value: UnsafeCell<RefCell<Option<T>>>,
}

/// Why a thread gets no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The generation is not live.
    Stale,
    /// The value belongs to another thread.
    Elsewhere,
    /// This thread borrows the value already.
    Borrowed,
}

// SAFETY: C8 - threads share `word` and `owner` only. The thread that publishes a value is the only one that reaches it.
unsafe impl<T> Sync for OwnedSlot<T> {}
// SAFETY: C8 - as above. A slot moves to another thread only while it is empty: tables never move their slots.
unsafe impl<T> Send for OwnedSlot<T> {}

const LIVE: u64 = 1 << 31;
const GENERATION_SHIFT: u32 = 32;

impl<T> OwnedSlot<T> {
    pub(crate) fn new() -> OwnedSlot<T> {
        OwnedSlot { word: AtomicU64::new(0), owner: AtomicU64::new(0), value: UnsafeCell::new(RefCell::new(None)) }
    }

    /// Puts a value of the calling thread into an empty slot. Returns its generation. The caller has the slot: nobody else
    /// publishes. `thread` is the number of the calling thread, which no other thread has or had.
    #[inline]
    pub(crate) fn publish(&self, value: T, thread: u64) -> u32 {
        // Relaxed: the caller has the slot, and came by it after the last owner emptied it.
        let generation = self.generation() + 1;
        // SAFETY: C8 - the slot is empty and this thread has it, so nobody borrows from it.
        self.value.with_mut(|place| unsafe { *(*place).get_mut() = Some(value) });
        // Relaxed: the store of the word releases it.
        self.owner.store(thread, Ordering::Relaxed);
        // Release: pairs with the acquire in `cell_of`, which reads `owner`.
        self.word.store(live(generation), Ordering::Release);
        generation
    }

    /// The last generation that was published.
    pub(crate) fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> GENERATION_SHIFT) as u32
    }

    /// The value of a generation, if it is live and of this thread.
    #[inline]
    pub(crate) fn borrow(&self, generation: u32, thread: u64) -> Result<Ref<'_, T>, Refused> {
        let value = self.cell_of(generation, thread)?.try_borrow().map_err(|_| Refused::Borrowed)?;
        Ref::filter_map(value, Option::as_ref).map_err(|_| Refused::Stale)
    }

    /// As [`borrow`](Self::borrow), for a change.
    pub(crate) fn borrow_mut(&self, generation: u32, thread: u64) -> Result<RefMut<'_, T>, Refused> {
        let value = self.cell_of(generation, thread)?.try_borrow_mut().map_err(|_| Refused::Borrowed)?;
        RefMut::filter_map(value, Option::as_mut).map_err(|_| Refused::Stale)
    }

    /// Ends a generation, then drops its value. The caller has the slot then.
    #[inline]
    pub(crate) fn end(&self, generation: u32, thread: u64) -> Result<(), Refused> {
        drop(self.cell_of(generation, thread)?.try_borrow_mut().map_err(|_| Refused::Borrowed)?);
        // Relaxed: this thread hands the slot on, and whoever gets it is ordered after this.
        self.word.store(live(generation) & !LIVE, Ordering::Relaxed);
        // SAFETY: C8 - the value is of this thread, as `cell_of` found. Nothing borrows it, and nothing will: it is not live.
        self.value.with_mut(|place| unsafe { *(*place).get_mut() = None });
        Ok(())
    }

    #[inline]
    fn cell_of(&self, generation: u32, thread: u64) -> Result<&RefCell<Option<T>>, Refused> {
        // Acquire: pairs with the release in `publish`, so `owner` is not older than the generation.
        if self.word.load(Ordering::Acquire) != live(generation) {
            return Err(Refused::Stale);
        }
        // Relaxed: the load of the word orders it.
        if self.owner.load(Ordering::Relaxed) != thread && !owner_is_not_checked() {
            return Err(Refused::Elsewhere);
        }
        // SAFETY: C8 - this thread published the generation, as the header of this file shows, and has not ended it. So no other
        // thread reaches the cell, and this one publishes into it only after an `end`, which needs that nothing borrows.
        Ok(self.value.with(|place| unsafe { &*place }))
    }
}

/// The word of a live generation.
#[inline]
fn live(generation: u32) -> u64 {
    u64::from(generation) << GENERATION_SHIFT | LIVE
}

/// The seeded bug of the model.
#[inline]
fn owner_is_not_checked() -> bool {
    #[cfg(loom)]
    return std::env::var_os("SEEDED_BUG").is_some_and(|bug| bug == "owner_is_not_checked");
    #[cfg(not(loom))]
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_ended_while_it_is_borrowed() {
        let slot = OwnedSlot::new();
        let generation = slot.publish(7, 1);
        let borrowed = slot.borrow(generation, 1).unwrap();
        assert_eq!(*slot.borrow(generation, 1).unwrap(), 7);
        assert_eq!(slot.end(generation, 1), Err(Refused::Borrowed));
        assert_eq!(slot.borrow_mut(generation, 1).err(), Some(Refused::Borrowed));
        drop(borrowed);
        *slot.borrow_mut(generation, 1).unwrap() += 1;
        assert_eq!(slot.end(generation, 1), Ok(()));
        assert_eq!(slot.end(generation, 1), Err(Refused::Stale));
    }

    #[test]
    fn a_value_is_reached_by_the_thread_that_published_it_only() {
        let slot = OwnedSlot::new();
        let generation = slot.publish(7, 1);
        assert_eq!(slot.end(generation, 2), Err(Refused::Elsewhere));
        assert_eq!(slot.borrow(generation, 2).err(), Some(Refused::Elsewhere));
        assert_eq!(slot.borrow(generation + 1, 1).err(), Some(Refused::Stale));
        assert_eq!(slot.end(generation, 1), Ok(()));
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// A thread publishes a value, uses it, ends it and hands the empty slot on. Another thread tries the handle all the while: it
    /// gets nothing. It publishes its own value in the slot when it has it, and reaches that one only.
    #[test]
    fn owner_versus_others_and_reuse() {
        loom::model(|| {
            let slot = Arc::new(OwnedSlot::new());
            let empty = Arc::new(Mutex::new(false));
            let first = slot.publish(7, 1);
            let other = {
                let (slot, empty) = (slot.clone(), empty.clone());
                thread::spawn(move || {
                    let refused = slot.end(first, 2).expect_err("the value is of another thread");
                    assert_ne!(refused, Refused::Borrowed);
                    if *empty.lock().unwrap() {
                        let second = slot.publish(8, 2);
                        assert_eq!(second, first + 1);
                        assert_eq!(slot.borrow(first, 2).err(), Some(Refused::Stale));
                        assert_eq!(slot.end(second, 2), Ok(()));
                    }
                })
            };
            assert_eq!(*slot.borrow(first, 1).expect("it is there"), 7);
            assert_eq!(slot.end(first, 1), Ok(()));
            *empty.lock().unwrap() = true;
            // The other thread may have published by now.
            assert_eq!(slot.end(first, 1), Err(Refused::Stale));
            assert!(slot.borrow(first + 1, 1).is_err());
            other.join().unwrap();
        });
    }
}
