//! [`FrameTable`]: the unwind table of a window. Code needs no registration with the unwinder.
//!
//! An unwinder finds a window as it finds any shared object. At each throw it bisects the sorted table of
//! `(function, FDE)` that the `PT_GNU_EH_FRAME` segment of the window names. The table has one slot per granule of the
//! code pool, in order of address. **An allocation that owns the granules `[s, e)` owns exactly the slots `[s, e)`**:
//!
//! ```text
//!   text      │ g0 free │ g1 ──── f, g ──── g3 │ g4 free │ …
//!   table     │ (g0, ∅) │ (f,F) (g,G) (g,G)    │ (g4, ∅) │ …        F, G: FDEs in the linked .eh_frame of the object
//! ```
//!
//! # Changing the table
//!
//! The keys in the slots of an owner lie inside its text. So a bisection for any other address compares in the same way
//! before, during and after a change. Adding and removing code are plain 8-byte stores: the owner fills its slots
//! before it publishes the code, and clears them after the last pin of the code is gone. No thread waits for another,
//! and the cost depends on the added functions only. `frame_slots.rs` has the proof and the stores.
//!
//! # Values of slots
//!
//! | slot | value |
//! |---|---|
//! | of an owner | its frames, in order; the last frame repeats in the remaining slots |
//! | free | the start of its own granule, and an FDE of length zero |
//! | not open | zero, which compares less than any address of text |
//! | the last one that is not open | that of a free slot |
//!
//! Text is opened from the end of the pool downwards. So the table is sorted from the start, has a fixed length, and
//! uses no memory for text that is not open.
//!
//! The last row is needed for code that has the lowest address: a bisection for an address before its first frame ends
//! in the slot below it. A slot of zero there would name the ELF header as an FDE.
//!
//! Encoding: LSB 5.0, "Exception Frame Header"; `DW_EH_PE_datarel | DW_EH_PE_sdata4`, relative to the header's own
//! address.

use crate::base::ExecutorAddr;
use crate::memory::frame::Frame;
use crate::memory::frame_slots::FrameSlots;
use crate::memory::layout::{FRAME_HEADER_OFFSET, FRAME_SLOT, FRAME_TABLE_OFFSET, TEXT_GRANULE};
use crate::memory::mapper::MappedWindow;
use crate::sync::{Arc, MappedU32, MappedU64, Ordering, yield_point};

pub(crate) struct FrameTable {
    /// Keeps the memory of `slots` mapped (M4).
    window: Arc<dyn MappedWindow>,
    slots: *const MappedU64,
    slot_count: u64,
    entries: FrameSlots,
    /// Whether the window is told of what is stored.
    is_copied: bool,
}

// SAFETY: M4 - `slots` points into the window that `window` keeps mapped, on whichever thread. The slots are atomics,
// so access from several threads is no data race.
unsafe impl Send for FrameTable {}
// SAFETY: M4, M5 - as for `Send`. By M5 only the owner of a granule stores into its slot.
unsafe impl Sync for FrameTable {}

impl FrameTable {
    /// The table for the first `text_size` bytes of the code pool, which starts at `text_start`. `None` if no unwinder
    /// knows the window.
    ///
    /// # Safety
    /// - The code pool of the window has at least `text_size` bytes.
    /// - The window has no other table.
    pub(crate) unsafe fn new(
        window: &Arc<dyn MappedWindow>,
        text_start: ExecutorAddr,
        text_size: u64,
    ) -> Option<FrameTable> {
        let header = window.frame_header()?;
        // SAFETY: M6 - `frame_header` promises a header of 12 bytes and, after it, a slot per granule of the code pool.
        // Both offsets are inside the header or at its end.
        let (count, slots) = unsafe { (header.add(8).cast::<MappedU32>(), header.add(12).cast()) };
        // SAFETY: M4, M6 - `window` keeps the header mapped, and bytes 8 to 11 are in it, aligned to 4. Nobody else
        // accesses them: the window has no other table, and no unwinder looks for code in it yet. Relaxed: an unwinder that
        // needs the count has got an address of code, and what publishes the address orders this store before it.
        unsafe { (*count).store((text_size / TEXT_GRANULE) as u32, Ordering::Relaxed) };
        window.changed(FRAME_HEADER_OFFSET, FRAME_TABLE_OFFSET - FRAME_HEADER_OFFSET);
        Some(FrameTable {
            window: window.clone(),
            slots,
            slot_count: text_size / TEXT_GRANULE,
            entries: FrameSlots { header_addr: window.base().offset(FRAME_HEADER_OFFSET), text_start },
            is_copied: window.is_copied(),
        })
    }

    /// Opens the slots `[first, first + slots)`, which end where the open slots begin: stores free entries, from the
    /// last slot to the first, and then a free entry into the slot below them. The table is sorted at every moment.
    pub(crate) fn open(&self, first: u64, slots: u64) {
        let below = first.saturating_sub(1);
        yield_point();
        self.entries.open(self.slots(below, first + slots - below), below);
        self.changed(below, first + slots - below);
    }

    /// Returns the pages of the slots below `slot` to the kernel, so that they read as zero again. The slot right below
    /// `slot` stays a free one.
    ///
    /// # Safety
    /// No text below the granule of `slot` is open, and nobody opens any during the call.
    pub(crate) unsafe fn close_below(&self, slot: u64) {
        // SAFETY: M5 - the caller promises that no text below `slot` is open, so the slots in these bytes have no
        // owner. If the kernel refuses, the slots keep their values, which are free entries.
        let _ = unsafe { self.window.purge_table(slot.min(self.slot_count).saturating_sub(1) * FRAME_SLOT) };
    }

    /// Stores `frames` into the slots of the granules `[first, first + granules)`. The frames lie in these granules and
    /// are sorted. They are not more than the granules, because the plan reserved a slot for each.
    pub(crate) fn fill(&self, first: u64, granules: u64, frames: &[Frame]) {
        if !frames.is_empty() {
            yield_point();
            self.entries.fill(self.slots(first, granules), frames);
            self.changed(first, granules);
        }
    }

    /// Stores free entries into the slots of the granules `[first, first + granules)`.
    pub(crate) fn clear(&self, first: u64, granules: u64) {
        yield_point();
        self.entries.clear(self.slots(first, granules), first);
        self.changed(first, granules);
    }

    #[inline]
    fn changed(&self, first: u64, slots: u64) {
        if self.is_copied {
            self.window.changed(FRAME_TABLE_OFFSET + first * FRAME_SLOT, slots * FRAME_SLOT);
        }
    }

    fn slots(&self, first: u64, count: u64) -> &[MappedU64] {
        assert!(
            first.checked_add(count).is_some_and(|end| end <= self.slot_count),
            "the granules lie in the code pool"
        );
        // SAFETY: M6 - the slots are in bounds by the assertion. M4 - `self.window` keeps them mapped while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.slots.add(first as usize), count as usize) }
    }
}
