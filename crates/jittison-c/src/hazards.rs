//! [`Hazards`]: hazard pointers of a thread. It has the addresses of the slots whose values the thread uses, so that the uses of a slot's
//! owner need no atomic read-modify-write (`slot.rs`).
//!
//! Only the thread that has the hazards writes to them. Others look into them after a
//! [`heavy_barrier`](crate::barriers::heavy_barrier). They are never freed. Those of a thread that has ended go to a later thread, unless
//! they protect something.
//!
//! Source: Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects" (2004).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The hazard pointers of one thread.
pub(crate) struct Hazards {
    /// A bit for each free place. Only the thread that has the hazards reads and writes it.
    free: AtomicU32,
    /// Addresses of slots. 0: none.
    slots: [AtomicUsize; PLACES],
}

/// The uses of a thread that are protected at once, at most. Further ones are counted in the slot.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };
const ALL_FREE: u32 = (1 << PLACES) - 1;

impl Hazards {
    pub(crate) fn new() -> Hazards {
        Hazards { free: AtomicU32::new(ALL_FREE), slots: std::array::from_fn(|_| AtomicUsize::new(0)) }
    }

    /// Protects the value of a slot. Returns the place of the hazard pointer, or `None` if all are taken.
    #[inline]
    pub(crate) fn protect(&self, slot: usize) -> Option<usize> {
        let free = self.free.load(Ordering::Relaxed);
        let place = free.trailing_zeros() as usize;
        let hazard = self.slots.get(place)?;
        self.free.store(free & (free - 1), Ordering::Relaxed);
        // Relaxed: a light barrier follows.
        hazard.store(slot, Ordering::Relaxed);
        Some(place)
    }

    /// Clears a hazard pointer.
    #[inline]
    pub(crate) fn clear(&self, place: usize) {
        // Release: pairs with the load in `protects`. What the use did happens before the drop of the value by a thread that finds the
        // place empty.
        self.slots[place].store(0, Ordering::Release);
        self.free.store(self.free.load(Ordering::Relaxed) | 1 << place, Ordering::Relaxed);
    }

    /// Whether the value of a slot is protected. Any thread may ask.
    pub(crate) fn protects(&self, slot: usize) -> bool {
        // Acquire: pairs with the release in `clear`.
        self.slots.iter().any(|hazard| hazard.load(Ordering::Acquire) == slot)
    }

    /// Whether nothing is protected. Only for the thread that has the hazards.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.load(Ordering::Relaxed) == ALL_FREE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hazards_protect_as_many_uses_as_they_have_places_and_each_until_it_is_cleared() {
        let hazards = Hazards::new();
        let places: Vec<usize> = (1..=PLACES).map(|slot| hazards.protect(slot).unwrap()).collect();
        assert_eq!(hazards.protect(PLACES + 1), None);
        assert!((1..=PLACES).all(|slot| hazards.protects(slot)) && !hazards.protects(PLACES + 1));
        hazards.clear(places[2]);
        assert!(!hazards.protects(3) && hazards.protects(4) && !hazards.is_empty());
        assert_eq!(hazards.protect(3), Some(places[2]));
        places.into_iter().for_each(|place| hazards.clear(place));
        assert!(hazards.is_empty() && !hazards.protects(1));
    }
}
