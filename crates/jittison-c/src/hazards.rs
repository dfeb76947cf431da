//! [`UseRecord`]: where a thread notes the slots whose values it uses, so that the uses of a slot's owner need no atomic
//! read-modify-write (`slot.rs`).
//!
//! Only the thread that has the record writes to it. Others look into it after a [`heavy_barrier`](crate::barriers::heavy_barrier).
//! Records are never freed. That of a thread that has ended goes to a later thread, unless something is noted in it.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Uses of one thread.
pub(crate) struct UseRecord {
    /// The number of the thread that has the record, which no other thread has or had. Only that thread reads it.
    thread: AtomicU64,
    /// A bit for each free place. Only the thread that has the record reads and writes it.
    free: AtomicU32,
    /// Addresses of slots. 0: none.
    places: [AtomicUsize; PLACES],
}

/// The uses of a thread that are noted at once, at most. Further ones are counted in the slot.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };
const ALL_FREE: u32 = (1 << PLACES) - 1;

impl UseRecord {
    pub(crate) fn new() -> UseRecord {
        UseRecord {
            thread: AtomicU64::new(0),
            free: AtomicU32::new(ALL_FREE),
            places: std::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// Gives the record to the calling thread, whose number is `thread`.
    pub(crate) fn give_to(&self, thread: u64) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The number of the calling thread, which has the record.
    #[inline]
    pub(crate) fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Notes the use of a slot. `None` if all places are taken.
    #[inline]
    pub(crate) fn note(&self, slot: usize) -> Option<usize> {
        let free = self.free.load(Ordering::Relaxed);
        let place = free.trailing_zeros() as usize;
        let noted = self.places.get(place)?;
        self.free.store(free & (free - 1), Ordering::Relaxed);
        // Relaxed: a light barrier follows.
        noted.store(slot, Ordering::Relaxed);
        Some(place)
    }

    /// Ends a use that was noted.
    #[inline]
    pub(crate) fn forget(&self, place: usize) {
        // Release: what the use did happens before the drop of the value by a thread that finds the place empty.
        self.places[place].store(0, Ordering::Release);
        self.free.store(self.free.load(Ordering::Relaxed) | 1 << place, Ordering::Relaxed);
    }

    /// Whether a use of a slot is noted. Any thread may ask.
    pub(crate) fn has(&self, slot: usize) -> bool {
        // Acquire: pairs with the release in `forget`.
        self.places.iter().any(|noted| noted.load(Ordering::Acquire) == slot)
    }

    /// Whether nothing is noted. Only for the thread that has the record.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.load(Ordering::Relaxed) == ALL_FREE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_notes_as_many_uses_as_it_has_places_and_forgets_each() {
        let record = UseRecord::new();
        let places: Vec<usize> = (1..=PLACES).map(|slot| record.note(slot).unwrap()).collect();
        assert_eq!(record.note(PLACES + 1), None);
        assert!((1..=PLACES).all(|slot| record.has(slot)) && !record.has(PLACES + 1));
        record.forget(places[2]);
        assert!(!record.has(3) && record.has(4) && !record.is_empty());
        assert_eq!(record.note(3), Some(places[2]));
        places.into_iter().for_each(|place| record.forget(place));
        assert!(record.is_empty() && !record.has(1));
    }
}
