//! [`FrameSlots`]: the contents of the slots of the frame table, and the order in which they are stored.
//!
//! A slot is one aligned word of 8 bytes. Its lower half is the start of a function, its upper half the address of the
//! FDE. Both are relative to the unwind header. An unwinder bisects the slots by their lower half, with plain loads.
//!
//! # Protocol
//!
//! Three rules keep every bisection right while slots change:
//!
//! 1. An owner stores only into its own slots, and only function starts inside its own text. So for an address outside
//!    that text, the slot compares as it did before.
//! 2. A slot changes from one complete entry to another by a single store.
//! 3. An owner fills its slots before it publishes its code. It clears them after the last pin of that code is gone and
//!    its finalisers have run. A thread gets the address of the code from the publication, and the code is pinned while
//!    the thread unwinds through it. So every bisection for that code comes after the fill and before the clear.
//!
//! So the stores need no ordering of their own: they are relaxed.
//!
//! `frame_table.rs` holds the mapped memory of the slots. Model: `loom_tests/loom_frame_slots.rs`.

use crate::base::ExecutorAddr;
use crate::memory::frame::Frame;
use crate::memory::layout::{EMPTY_FDE_FROM_HEADER, TEXT_GRANULE};
use crate::sync::{MappedU64, Ordering, seeded_bug};

/// A slot of the frame table.
pub trait Slot {
    /// Replaces the complete entry by one relaxed store.
    fn store(&self, entry: u64);
}

impl Slot for MappedU64 {
    #[inline(always)]
    fn store(&self, entry: u64) {
        MappedU64::store(self, entry, Ordering::Relaxed);
    }
}

/// Computes the entries of one table and stores them. The caller passes the slots.
#[derive(Debug, Clone, Copy)]
pub struct FrameSlots {
    /// The address of the unwind header: entries are relative to it.
    pub header_addr: ExecutorAddr,
    /// The address of the text of slot 0.
    pub text_start: ExecutorAddr,
}

impl FrameSlots {
    /// Stores free entries into `slots`; the first of them has the number `first`. It stores from the last slot to the
    /// first, so the table is sorted at every moment.
    #[inline]
    pub fn open(&self, slots: &[impl Slot], first: u64) {
        for (index, slot) in slots.iter().enumerate().rev() {
            slot.store(self.free_entry(first + index as u64));
        }
    }

    /// Stores the frames of an owner into its slots. The frames lie in its text, are sorted, and are not more than the
    /// slots.
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
        // The remaining slots repeat the last frame.
        let last_entry = self.entry(last.start, last.fde);
        slots.iter().skip(frames.len()).for_each(|slot| slot.store(last_entry));
    }

    /// Stores free entries into the slots of an owner; the first of them has the number `first`.
    #[inline]
    pub fn clear(&self, slots: &[impl Slot], first: u64) {
        let mut entry = self.free_entry(first);
        for slot in slots {
            // Seeded bug: zero is the value of a slot that was never opened.
            slot.store(if seeded_bug!("slot_cleared_to_zero") { 0 } else { entry });
            // The free entry of the next granule. The start is in the lower half and never overflows into the upper
            // half.
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
