//! [`WorkingView`]: the writable view of the file of a window. The file has the header, the frame table, the code and the
//! constants.

use std::ops::Range;

use memmap2::MmapRaw;

use crate::base::SegmentKind;
use crate::error::MemoryFault;
use crate::memory::layout::{FRAME_HEADER_OFFSET, FRAME_TABLE_OFFSET, WindowLayout, complete_pages};
use crate::memory::window_image::{DATA_HEADER_OFFSET, table_pages};
use crate::os::{PageKind, page_size, populate, purge_pages};

/// The view, which shows the first bytes of the window of this layout.
pub(super) struct WorkingView {
    pages: MmapRaw,
    layout: WindowLayout,
}

impl WorkingView {
    pub(super) fn new(pages: MmapRaw, layout: &WindowLayout) -> WorkingView {
        WorkingView { pages, layout: *layout }
    }

    /// The first byte of a pool that is in the file.
    pub(super) fn pool(&self, pool: SegmentKind) -> *mut u8 {
        let offset = self.layout.pool(pool).offset as usize;
        assert!(offset < self.pages.len(), "the pool lies in the file");
        self.pages.as_mut_ptr().wrapping_add(offset)
    }

    /// Bytes at an offset from the start of the window.
    #[cfg(feature = "executor")]
    pub(super) fn bytes(&self, offset: u64, size: u64) -> *mut u8 {
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= self.pages.len() as u64);
        assert!(is_inside, "the bytes lie in the file");
        self.pages.as_mut_ptr().wrapping_add(offset as usize)
    }

    pub(super) fn frame_header(&self) -> *mut u8 {
        self.pages.as_mut_ptr().wrapping_add(FRAME_HEADER_OFFSET as usize)
    }

    pub(super) fn data_header(&self) -> *mut u64 {
        self.pages.as_mut_ptr().wrapping_add(DATA_HEADER_OFFSET as usize).cast()
    }

    /// Populates pages of a pool that is in the file.
    pub(super) fn populate(&self, pool: SegmentKind, offset: u64, size: u64) {
        populate(&self.pages, (self.layout.pool(pool).offset + offset) as usize, size as usize);
    }

    /// Returns the pages of the first `size` bytes of the frame table.
    ///
    /// # Safety
    /// As [`MappedWindow::purge_table`](crate::memory::MappedWindow::purge_table).
    pub(super) unsafe fn purge_table(&self, size: u64, kind: PageKind) -> Result<(), MemoryFault> {
        // The first page of the table contains the unwind header, too, so it stays.
        let Range { start: first, end } = complete_pages(FRAME_TABLE_OFFSET, size, page_size());
        if first == end {
            return Ok(());
        }
        assert!(end <= table_pages(&self.layout), "the purged pages lie in the table");
        let pages = self.pages.as_mut_ptr().wrapping_add(first as usize);
        // SAFETY: M6 - the pages are in the table by the assertion. M5 - their slots have no owner: their text is not
        // open, by contract.
        let purged = unsafe { purge_pages(pages, (end - first) as usize, kind) };
        purged.map_err(refused("returning pages of the frame table"))
    }
}

/// Checks that a range lies in a pool.
pub(super) fn check_range(layout: &WindowLayout, pool: SegmentKind, offset: u64, size: u64) {
    let range = layout.pool(pool);
    assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "the pages lie in the pool");
}

/// Makes the error for what the kernel refused in a step.
pub(super) fn refused(step: &str) -> impl FnOnce(std::io::Error) -> MemoryFault + use<> {
    let step = step.to_string();
    move |problem| MemoryFault::Refused { step, problem: problem.to_string() }
}
