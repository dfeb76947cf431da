//! [`FrameSlots`]: what stands in the slots of the frame table, and the order of the stores.
//!
//! A slot is the start of a function and its FDE, both relative to the unwind header, in one aligned word of 8 bytes. The
//! unwinder bisects by the lower half, with plain loads. Three rules keep every bisection right while slots change:
//!
//! 1. An owner stores only into its own slots, and only starts that lie in its own text. So a slot compares with an address
//!    outside of that text as it did before.
//! 2. A slot changes by one store, from one whole entry to another.
//! 3. An owner fills its slots before it publishes its code, and frees them after the last pin of that code is gone. So a
//!    bisection for an address of the owner is ordered after the one and before the other, by whatever hands out the address.
//!
//! Therefore the stores need no order of their own: they are relaxed. `frame_table.rs` has the mapped memory.
//! Model: `loom_tests/loom_frame_slots.rs`.

use crate::base::ExecutorAddr;
use crate::memory::frame_table::{EMPTY_FDE_FROM_HEADER, Frame};
use crate::memory::layout::TEXT_GRANULE;
use crate::sync::{MappedU64, Ordering, seeded_bug};

/// A slot of the table.
pub trait Slot {
    /// Replaces the whole entry at once. Nothing else is ordered by it.
    fn store(&self, entry: u64);
}

impl Slot for MappedU64 {
    #[inline(always)]
    fn store(&self, entry: u64) {
        MappedU64::store(self, entry, Ordering::Relaxed);
    }
}

/// The entries of a table. The slots themselves are the caller's.
#[derive(Debug, Clone, Copy)]
pub struct FrameSlots {
    /// What entries are relative to.
    pub header_addr: ExecutorAddr,
    /// The text of the first slot.
    pub text_start: ExecutorAddr,
}

impl FrameSlots {
    /// Gives `slots`, of which the first has the number `first`, entries of free slots. The last one first, so that the table is
    /// sorted at every moment.
    #[inline]
    pub fn open(&self, slots: &[impl Slot], first: u64) {
        for (index, slot) in slots.iter().enumerate().rev() {
            slot.store(self.free_entry(first + index as u64));
        }
    }

    /// Fills the slots of an owner with the frames that lie in its text, in order. There are no more frames than slots.
    #[inline]
    pub fn fill(&self, slots: &[impl Slot], frames: &[Frame]) {
        debug_assert!(frames.len() <= slots.len() && frames.is_sorted());
        let Some(last) = frames.last() else { return };
        if seeded_bug!("slot_emptied_before_it_is_filled") {
            slots.iter().for_each(|slot| slot.store(0));
        }
        for (slot, frame) in slots.iter().zip(frames) {
            slot.store(self.entry(frame.start, frame.fde));
        }
        // The last one again, as often as there is room.
        let again = self.entry(last.start, last.fde);
        slots.iter().skip(frames.len()).for_each(|slot| slot.store(again));
    }

    /// Makes the slots of an owner free again. The first has the number `first`.
    #[inline]
    pub fn clear(&self, slots: &[impl Slot], first: u64) {
        let mut entry = self.free_entry(first);
        for slot in slots {
            // Seeded bug: as if the slots had not been opened yet.
            slot.store(if seeded_bug!("slot_cleared_to_zero") { 0 } else { entry });
            // The next granule's: starts stand in the lower half, and never reach the upper.
            entry += TEXT_GRANULE;
        }
    }

    fn free_entry(&self, slot: u64) -> u64 {
        self.entry(self.text_start.offset(slot * TEXT_GRANULE), self.header_addr.offset(EMPTY_FDE_FROM_HEADER))
    }

    fn entry(&self, start: ExecutorAddr, fde: ExecutorAddr) -> u64 {
        let start = start.distance_from(self.header_addr) as i32 as u32;
        let fde = fde.distance_from(self.header_addr) as i32 as u32;
        u64::from(start) | u64::from(fde) << 32
    }
}
