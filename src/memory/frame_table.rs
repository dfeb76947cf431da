//! [`FrameTable`]: unwinding without registration.
//!
//! The unwinder finds a window as it finds any shared object, and bisects the sorted table of `(function, FDE)` behind
//! its `PT_GNU_EH_FRAME` segment, afresh at every throw. Here that table has one slot per granule of text, in address
//! order, and **an allocation that owns granules `[s, e)` owns exactly slots `[s, e)`**:
//!
//! ```text
//!   text      │ g0 free │ g1 ──── f, g ──── g3 │ g4 free │ …
//!   table     │ (g0, ∅) │ (f,F) (g,G) (g,G)    │ (g4, ∅) │ …        F, G: FDEs, where the object's .eh_frame was linked
//! ```
//!
//! Whatever stands in an owner's slots has keys inside the owner's text, so a bisection for any other address compares
//! the same way before, during and after a change. Adding and removing are therefore plain 8-byte stores, made before
//! the code is published and after its last pin is gone (`frame_slots.rs` has the reasons and the stores); nobody waits for
//! anybody, and the cost is that of the functions added. A free slot holds its own granule and an FDE of length zero.
//!
//! Text is opened from the end of the pool downwards. What is not open has slots of zero, which compare less than any
//! address of text: so the table is sorted from the start, has a fixed length, and takes no memory for text that was never
//! opened or is closed again. The last slot that is not open is a free one nevertheless: a bisection for code that stands
//! lowest, before the first function with frames, ends there, and a slot of zero would name the header as an FDE. Encodings: LSB 5.0 "Exception Frame Header"; `DW_EH_PE_datarel | DW_EH_PE_sdata4` from the
//! header's own address.

use crate::base::{ExecutorAddr, impl_recycle};
use crate::memory::frame_slots::FrameSlots;
use crate::memory::layout::{FRAME_HEADER_OFFSET, FRAME_SLOT, TEXT_GRANULE};
use crate::memory::mapper::MappedWindow;
use crate::sync::{Arc, MappedU32, MappedU64, Ordering, others_may_come};

/// A function with unwind information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The function's first byte.
    pub start: ExecutorAddr,
    /// Its frame description entry.
    pub fde: ExecutorAddr,
}

impl_recycle!(Frame);

pub(crate) struct FrameTable {
    /// Keeps the memory behind the pointers below (M4).
    window: Arc<dyn MappedWindow>,
    slots: *const MappedU64,
    slot_count: u64,
    entries: FrameSlots,
}

// SAFETY: M5 - the pointers lead to atomics, and who may store into which slot is decided by who owns the granule.
unsafe impl Send for FrameTable {}
// SAFETY: M5 - as above.
unsafe impl Sync for FrameTable {}

impl FrameTable {
    /// The table of a window that the unwinder knows, for `text_size` bytes of code pool at `text_start`.
    ///
    /// # Safety
    /// The window's code pool is of that size at least, and no other table of the window was made.
    pub(crate) unsafe fn new(
        window: &Arc<dyn MappedWindow>,
        text_start: ExecutorAddr,
        text_size: u64,
    ) -> Option<FrameTable> {
        let header = window.frame_header()?;
        // SAFETY: M6 - the window promises a header of 12 bytes and the table behind it.
        let (count, slots) = unsafe { (header.add(8).cast::<MappedU32>(), header.add(12).cast()) };
        // SAFETY: M4, M6 - as above; nobody reads it before the window is given out.
        unsafe { (*count).store((text_size / TEXT_GRANULE) as u32, Ordering::Release) };
        Some(FrameTable {
            window: window.clone(),
            slots,
            slot_count: text_size / TEXT_GRANULE,
            entries: FrameSlots { header_addr: window.base().offset(FRAME_HEADER_OFFSET), text_start },
        })
    }

    /// Gives the slots `[first, first + slots)`, right below those that were given entries before, entries of their own.
    /// The last one first, so that the table is sorted at every moment; and at last the one below.
    pub(crate) fn open(&self, first: u64, slots: u64) {
        let below = first.saturating_sub(1);
        others_may_come();
        self.entries.open(self.slots(below, first + slots - below), below);
    }

    /// Gives the pages of slots below `slot` back to the kernel, where nothing is open any more: they read as zero, as
    /// before they were opened. The one right below stays what it is, free.
    ///
    /// # Safety
    /// No text below the slot's granule is open, or is opened meanwhile.
    pub(crate) unsafe fn close_below(&self, slot: u64) {
        // SAFETY: M5 - by contract. Pages that are refused stay as they are.
        let _ = unsafe { self.window.purge_table(slot.min(self.slot_count).saturating_sub(1) * FRAME_SLOT) };
    }

    /// Fills the slots of the granules `[first, first + granules)` with the frames that lie in them, in order. There are
    /// no more frames than granules: the plan reserved for that.
    pub(crate) fn fill(&self, first: u64, granules: u64, frames: &[Frame]) {
        if !frames.is_empty() {
            others_may_come();
            self.entries.fill(self.slots(first, granules), frames);
        }
    }

    /// Makes the slots of the granules `[first, first + granules)` free again.
    pub(crate) fn clear(&self, first: u64, granules: u64) {
        others_may_come();
        self.entries.clear(self.slots(first, granules), first);
    }

    fn slots(&self, first: u64, count: u64) -> &[MappedU64] {
        assert!(first.checked_add(count).is_some_and(|end| end <= self.slot_count), "granules lie in the code pool");
        // SAFETY: M4, M6 - in bounds by the line above; the window is held by `self`.
        unsafe { std::slice::from_raw_parts(self.slots.add(first as usize), count as usize) }
    }
}

/// The FDE that free slots name stands in the header page (`dual_mapper.rs` writes it), before the unwind header.
pub(crate) const EMPTY_CIE_OFFSET: u64 = 0xa00;
pub(crate) const EMPTY_FDE_OFFSET: u64 = EMPTY_CIE_OFFSET + 24;
pub(crate) const EMPTY_FDE_FROM_HEADER: u64 = EMPTY_FDE_OFFSET.wrapping_sub(FRAME_HEADER_OFFSET);
