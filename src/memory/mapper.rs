//! [`MemoryMapper`]: the seam below the pools. It maps windows; it knows nothing of what is allocated in them.
//!
//! ORC's `MemoryMapper` reserves, prepares, initialises and deinitialises ranges one by one. Here protections are final
//! from the start, so one verb makes a window and everything else is arithmetic above it.

use crate::base::{ExecutorAddr, Pool};
use crate::error::MemoryFault;
use crate::memory::layout::WindowLayout;
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
}
