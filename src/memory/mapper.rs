//! [`MemoryMapper`]: the seam below the pools. It maps windows; it knows nothing of what is allocated in them.
//!
//! ORC's `MemoryMapper` reserves, prepares, initialises and deinitialises ranges one by one. Here protections are final
//! from the start, so one verb makes a window and everything else is arithmetic above it.

use crate::base::{ExecutorAddr, Pool};
use crate::error::MemoryFault;
use crate::memory::layout::{DATA_GRANULE, TEXT_GRANULE, WindowLayout};
use crate::sync::Arc;

/// Makes windows.
pub trait MemoryMapper: Send + Sync {
    /// Maps a window of `layout`.
    ///
    /// # Errors
    /// What was refused; nothing is mapped then. The pool above halves the window and asks again.
    fn map_window(&self, layout: &WindowLayout) -> Result<Arc<dyn MappedWindow>, MemoryFault>;
}

/// A window. Unmapped when the last handle is dropped.
///
/// # Safety
/// Implementors promise, for as long as the value lives:
/// - [`working_view`](Self::working_view) of a pool points to as many readable and writable bytes as the layout gives
///   the pool, which nobody else writes, and which are the bytes at [`base`](Self::base) + the pool's offset.
/// - [`frame_header`](Self::frame_header), if any, points to writable bytes for the unwind header and a slot per granule
///   of the code pool, aligned to 4 with the table behind it aligned to 8.
/// - Fresh memory of the data pool is zero.
pub unsafe trait MappedWindow: Send + Sync {
    /// The address of the window's first byte, where the code runs.
    fn base(&self) -> ExecutorAddr;

    /// Where a pool's bytes are written: in this process, not necessarily where the code runs.
    fn working_view(&self, pool: Pool) -> *mut u8;

    /// Where the unwind header is written; `None` when the unwinder does not know this window.
    fn frame_header(&self) -> Option<*mut u8>;

    /// What is allocated of a pool is aligned to this and a multiple of it, in bytes: a power of two, at least 64 for
    /// code and 16 for the others. More than that where protection has to change with every allocation.
    fn granule(&self, pool: Pool) -> u64 {
        if pool == Pool::Code { TEXT_GRANULE } else { DATA_GRANULE }
    }

    /// Lets a range be written through the working view, before its first byte is. Nothing to do where the working view
    /// is another mapping.
    ///
    /// # Errors
    /// What the kernel refused; nothing may be written then.
    ///
    /// # Safety
    /// The range lies in the pool, in whole granules, and is the caller's.
    unsafe fn open(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// Gives a range its final protection, after its last byte was written. Nothing to do where that is there for good.
    ///
    /// # Errors
    /// What the kernel refused; nothing may be run then.
    ///
    /// # Safety
    /// As for [`open`](Self::open), which was called.
    unsafe fn seal(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// How memory is mapped, in a few words for reports.
    fn description(&self) -> &'static str {
        "custom"
    }

    /// Gives whole pages of a pool back to the kernel; they read as zero from then on.
    ///
    /// # Errors
    /// What the kernel refused; the pages may hold what they held.
    ///
    /// # Safety
    /// `[offset, offset + size)` lies in the pool, in whole pages, and nobody uses it meanwhile.
    unsafe fn purge(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault>;

    /// Gives the pages of the first `size` bytes of the frame table back to the kernel, as far as they are whole; they read
    /// as zero from then on. Nothing to do where there is no table.
    ///
    /// # Errors
    /// What the kernel refused.
    ///
    /// # Safety
    /// Every slot in there belongs to text that is not open.
    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        let _ = size;
        Ok(())
    }
}
