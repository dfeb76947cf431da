//! [`MemoryMapper`]: the seam below the pools. It maps windows; it knows nothing of what is allocated in them.
//!
//! ORC's `MemoryMapper` reserves, prepares, initialises and deinitialises ranges one by one. Here protections are final
//! from the start, so one verb makes a window and everything else is arithmetic above it.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::layout::{DATA_GRANULE, PoolRange, TEXT_GRANULE, WindowLayout};
use crate::sync::Arc;

/// Makes windows.
pub trait MemoryMapper: Send + Sync {
    /// Maps a window of `layout` where `placement` says.
    ///
    /// # Errors
    /// What was refused; nothing is mapped then. The pool above halves the window and asks again.
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault>;
}

impl<M: MemoryMapper + ?Sized> MemoryMapper for &M {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        (**self).map_window(layout, placement)
    }
}

impl<M: MemoryMapper + ?Sized> MemoryMapper for Arc<M> {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        (**self).map_window(layout, placement)
    }
}

/// Where in the address space a window is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// Wherever the kernel likes.
    Anywhere,
    /// With its code pool within 2 GiB of the program's own code, and the whole window if it is small enough for that; so
    /// that calls between the two are direct. A wish: where there is no room, anywhere.
    #[default]
    NearHost,
    /// Within 2 GiB of the shared libraries that are loaded by now, as a whole: objects that refer to the libraries' data as
    /// if it were their own (`-fPIE`) need no detour there. A wish, and only for windows of at most 1 GiB.
    NearLibraries,
    /// Below 2 GiB, for objects that were compiled for fixed addresses (`-fno-pic`). A condition: where there is no room,
    /// the window is refused. The default window is too large for it by a little, and is halved.
    Low2GiB,
}

/// What a forked child has of a window. `std::process::Command` and whatever else starts programs by `posix_spawn` or
/// `vfork` forks nothing in this sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForkPolicy {
    /// A copy of its own, as it was at the fork: the child runs what was linked whatever the parent does next, and goes
    /// on linking and removing, if no other thread of the parent was linking or removing at the fork. Each fork copies
    /// the pages of code and constants that are in use.
    #[default]
    Snapshot,
    /// A view of the parent's. A fork copies nothing. The child runs what was linked until the parent removes it and
    /// uses its memory again; it cannot link. For programs that fork only to run another program.
    Share,
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
/// - [`base`](Self::base) and [`granule`](Self::granule) are always the same.
pub unsafe trait MappedWindow: Send + Sync {
    /// The address of the window's first byte, where the code runs.
    fn base(&self) -> ExecutorAddr;

    /// Where a pool's bytes are written: in this process, not necessarily where the code runs.
    fn working_view(&self, pool: SegmentKind) -> *mut u8;

    /// Where the unwind header is written; `None` when the unwinder does not know this window.
    fn frame_header(&self) -> Option<*mut u8>;

    /// What is allocated of a pool is aligned to this and a multiple of it, in bytes: a power of two, at least 64 for
    /// code and 16 for the others. More than that where protection has to change with every allocation.
    fn granule(&self, pool: SegmentKind) -> u64 {
        if pool == SegmentKind::Code { TEXT_GRANULE } else { DATA_GRANULE }
    }

    /// Lets a range be written through the working view, before its first byte is. Nothing to do where the working view
    /// is another mapping.
    ///
    /// # Errors
    /// What the kernel refused; nothing may be written then.
    ///
    /// # Safety
    /// The range lies in the pool, in whole granules, and is the caller's.
    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// Gives a range its final protection, after its last byte was written and its frames were entered: the last thing
    /// that is done before the code is published. Where protection is there for good, this waits for a fork under way.
    ///
    /// # Errors
    /// What the kernel refused; nothing may be run then.
    ///
    /// # Safety
    /// As for [`open`](Self::open), which was called.
    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// As [`open`](Self::open), a range of each pool, in [`SegmentKind::ALL`] order; those that are empty need nothing.
    ///
    /// # Errors
    /// The first refusal; nothing may be written then.
    ///
    /// # Safety
    /// As for [`open`](Self::open), for each of them.
    unsafe fn open_all(&self, ranges: &[PoolRange; 3]) -> Result<(), MemoryFault> {
        // SAFETY: M1, M6 - by contract.
        used(ranges).try_for_each(|(pool, PoolRange { offset, size })| unsafe { self.open(pool, offset, size) })
    }

    /// As [`seal`](Self::seal), a range of each pool, in [`SegmentKind::ALL`] order; those that are empty need nothing.
    ///
    /// # Errors
    /// The first refusal; nothing may be run then.
    ///
    /// # Safety
    /// As for [`seal`](Self::seal), for each of them.
    unsafe fn seal_all(&self, ranges: &[PoolRange; 3]) -> Result<(), MemoryFault> {
        // SAFETY: M1, M6 - by contract.
        used(ranges).try_for_each(|(pool, PoolRange { offset, size })| unsafe { self.seal(pool, offset, size) })
    }

    /// Called by the thread that wrote an allocation, after its last range was sealed and before anybody else learns of it.
    /// Whatever is done by then is in the copy that a fork makes from here on; while one is being made, this waits.
    fn settle(&self) {}

    /// How many pages of a pool are worth backing at one go, when the first of them is written. None, where that takes no
    /// less than a page fault for each.
    fn pages_at_once(&self, pool: SegmentKind) -> u32 {
        let _ = pool;
        0
    }

    /// Has the kernel back whole pages of a pool that will be written, the first time for some of them. A wish: what is in
    /// them stays, whoever uses them.
    fn back(&self, pool: SegmentKind, offset: u64, size: u64) {
        let _ = (pool, offset, size);
    }

    /// How memory is mapped, in a few words for reports; and why it is not mapped in a better way.
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
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault>;

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

/// Those of the pools' ranges that are not empty.
fn used(ranges: &[PoolRange; 3]) -> impl Iterator<Item = (SegmentKind, PoolRange)> {
    SegmentKind::ALL.into_iter().map(|pool| (pool, ranges[pool.index()])).filter(|(_, range)| range.size > 0)
}
