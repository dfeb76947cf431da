//! [`MemoryMapper`] and [`MappedWindow`]: the interface between the pools and the operating system. A mapper maps
//! windows and knows nothing of the allocations in them.
//!
//! ORC's `MemoryMapper` reserves, prepares, initializes and deinitializes each range. Here a window has its final
//! protections from the start, so one call maps a window, and the pools calculate the rest.
//!
//! # The order of calls
//!
//! | step | who calls | call |
//! |---|---|---|
//! | a pool needs a window | `Windows` | [`map_window`](MemoryMapper::map_window) |
//! | an allocation is reserved | the link | [`open_all`](MappedWindow::open_all) |
//! | its bytes and frames are written | the link | [`seal_all`](MappedWindow::seal_all), then [`wait_for_fork`](MappedWindow::wait_for_fork) |
//! | free pages return to the kernel | a purge | [`purge`](MappedWindow::purge), [`purge_table`](MappedWindow::purge_table) |

use crate::arch::Arch;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::layout::{DATA_GRANULE, PoolRange, TEXT_GRANULE, WindowLayout};
use crate::sync::Arc;

/// Maps windows.
pub trait MemoryMapper: Send + Sync {
    /// Maps a window of `layout` at an address that `placement` allows. The mapper keeps no handle of the window: a pool
    /// refuses a window that has another handle, strong or weak, or another layout ([`MemoryFault::BadWindow`]).
    ///
    /// # Errors
    /// What the kernel or the loader refused. Nothing stays mapped then, and the pool tries again with half the size.
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

/// Where in the address space a window is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// At an address that the kernel chooses.
    Anywhere,
    /// With the code pool within 2 GiB of the program's own code, and the entire window if it is small enough, so that
    /// calls between the two are direct. If there is no space, the kernel chooses the address.
    #[default]
    NearHost,
    /// With the entire window within 2 GiB of the shared libraries that are loaded at this moment. Then objects that
    /// access data of the libraries as if it were their own (`-fPIE`) need no indirection. Only windows of at most 1
    /// GiB fit. If there is no space, the kernel chooses the address.
    NearLibraries,
    /// Below 2 GiB, for objects that are compiled for fixed addresses (`-fno-pic`). If there is no space, mapping the
    /// window fails. The default window is slightly too large, so it is halved.
    Low2GiB,
}

/// What a forked child gets of a window. Only `fork` counts: `posix_spawn` and `vfork`, which `std::process::Command`
/// uses too, copy nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForkPolicy {
    /// A copy of the window at the moment of the fork. The child runs the linked code, whatever the parent does later.
    /// It can link and remove, if no other thread of the parent was linking or removing at the fork. Each fork copies
    /// the used pages of code and constants.
    #[default]
    Snapshot,
    /// The pages of the parent. A fork copies nothing. The child can run the linked code until the parent removes it
    /// and reuses its memory. It cannot link. For programs that fork only to run another program.
    Share,
}

/// A mapped window. It is unmapped when its last handle is dropped.
///
/// # Safety
/// Implementors promise, while the value lives:
/// - [`working_view`](Self::working_view) of a pool points to as many readable and writable bytes as the layout gives
///   the pool. Nobody else writes them. They are the same bytes as at [`base`](Self::base) plus the offset of the pool.
/// - [`frame_header`](Self::frame_header), if it is `Some`, points to writable bytes for the unwind header and one slot
///   per granule of the code pool. The header is aligned to 4, the table after it to 8.
/// - [`data_header`](Self::data_header), if it is `Some`, points to a writable `Elf64_Phdr`, aligned to 8, which only the loader
///   reads. Every byte of the data pool can be read.
/// - Memory of the data pool is zero until it is written, and after [`purge`](Self::purge).
/// - [`base`](Self::base), [`layout`](Self::layout) and [`granule`](Self::granule) never change.
/// - No other value that implements this trait describes the same memory, unless this one forwards to it and owns it.
pub unsafe trait MappedWindow: Send + Sync {
    /// The layout with which the window was mapped.
    fn layout(&self) -> &WindowLayout;

    /// The address of the first byte of the window, where the code runs.
    fn base(&self) -> ExecutorAddr;

    /// Where this process writes the bytes of a pool. This may be another mapping than the one that runs.
    fn working_view(&self, pool: SegmentKind) -> *mut u8;

    /// Where the unwind header is written. `None` if no unwinder knows this window.
    fn frame_header(&self) -> Option<*mut u8>;

    /// Where this process writes the program header of the data pool that `dl_iterate_phdr` gives out. It becomes that of the
    /// open part. `None` if no loader knows this window, or if the header cannot be written.
    fn data_header(&self) -> Option<*mut u64> {
        None
    }

    /// Bytes of the unit of allocation in a pool: addresses and sizes of allocations are multiples of it. It is a power
    /// of two, at least 64 for code and 16 for other pools. It is larger if the mapping changes the protection for each
    /// allocation.
    fn granule(&self, pool: SegmentKind) -> u64 {
        if pool == SegmentKind::Code { TEXT_GRANULE } else { DATA_GRANULE }
    }

    /// Makes a range writable through the working view. Called before the first write to the range. The default does
    /// nothing: the working view is a mapping of its own, and always writable.
    ///
    /// Also called for a sealed range of constants or data that gets further bytes ([`Finalized::write`]). Code may read
    /// other bytes of such a range at any time, so the range keeps its bytes and stays readable until it is sealed again.
    ///
    /// [`Finalized::write`]: crate::memory::Finalized::write
    ///
    /// # Errors
    /// What the kernel refused. The range must not be written then.
    ///
    /// # Safety
    /// - The range lies in the pool and consists of complete granules.
    /// - It belongs to the caller (M1).
    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// Gives a range its final protection. Called after the last write to the range and to its frames, and before the
    /// code is published. The default does nothing: pages have their final protection from the start.
    ///
    /// # Errors
    /// What the kernel refused. The range must not be executed then.
    ///
    /// # Safety
    /// As for [`open`](Self::open), which was called for the range before.
    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let _ = (pool, offset, size);
        Ok(())
    }

    /// Calls [`open`](Self::open) for one range of each pool, in [`SegmentKind::ALL`] order. Empty ranges are skipped.
    ///
    /// # Errors
    /// The first refusal. No range may be written then.
    ///
    /// # Safety
    /// As for [`open`](Self::open), for each range.
    unsafe fn open_all(&self, ranges: &[PoolRange; 3]) -> Result<(), MemoryFault> {
        // SAFETY: M1, M6 - the caller promises for each range that it lies in its pool, in complete granules, and is
        // its own.
        nonempty(ranges).try_for_each(|(pool, PoolRange { offset, size })| unsafe { self.open(pool, offset, size) })
    }

    /// Calls [`seal`](Self::seal) for one range of each pool, in [`SegmentKind::ALL`] order. Empty ranges are skipped.
    ///
    /// # Errors
    /// The first refusal. No range may be executed then.
    ///
    /// # Safety
    /// As for [`seal`](Self::seal), for each range.
    unsafe fn seal_all(&self, ranges: &[PoolRange; 3]) -> Result<(), MemoryFault> {
        // SAFETY: M1, M6 - the caller promises for each range what `seal` requires: in its pool, its own, and opened
        // before.
        nonempty(ranges).try_for_each(|(pool, PoolRange { offset, size })| unsafe { self.seal(pool, offset, size) })
    }

    /// The byte that fills freed code. A thread that runs into it traps, on the processor that runs the code. The default is that of this
    /// process.
    fn trap(&self) -> u8 {
        Arch::NATIVE.trap()
    }

    /// Whether the code runs in a copy of this memory, to which the mapper sends what this process writes. Then it is told of every write:
    /// by [`seal`](Self::seal), or by [`changed`](Self::changed).
    fn is_copied(&self) -> bool {
        false
    }

    /// Bytes of the window were written outside of [`open`](Self::open) and [`seal`](Self::seal): of the headers, of the frame table, words
    /// or words that running code reads. `offset` counts from the start of the window. Called only if the window
    /// [is a copy](Self::is_copied), perhaps with locks held. The default does nothing.
    fn changed(&self, offset: u64, size: u64) {
        let _ = (offset, size);
    }

    /// Running code must see now what [`changed`](Self::changed). Called without a lock of the memory. The default does nothing.
    fn send_changes(&self) {}

    /// Waits until no fork is under way. Called by the thread that wrote an allocation, after its last range is sealed
    /// and before it is published. A fork that begins later copies everything that was written before this call.
    fn wait_for_fork(&self) {}

    /// How many pages of a pool [`populate`](Self::populate) populates at once, when the first of them is written. 0 if
    /// populating takes as long as the page faults that it saves.
    fn pages_to_populate(&self, pool: SegmentKind) -> u32 {
        let _ = pool;
        0
    }

    /// Asks the kernel to back complete pages of a pool before they are written. This is a hint. The contents of the
    /// pages do not change, so the pages may belong to anybody.
    fn populate(&self, pool: SegmentKind, offset: u64, size: u64) {
        let _ = (pool, offset, size);
    }

    /// How the window is mapped, in a few words for reports, and why no better mode was possible.
    fn description(&self) -> &'static str {
        "custom"
    }

    /// Returns complete pages of a pool to the kernel. They read as zero afterwards.
    ///
    /// # Errors
    /// What the kernel refused. The pages may keep their contents then.
    ///
    /// # Safety
    /// - `[offset, offset + size)` lies in the pool and consists of complete pages.
    /// - Nobody uses it during the call.
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault>;

    /// Returns the pages of the first `size` bytes of the frame table to the kernel. A page that lies only partly in
    /// these bytes stays. The returned pages read as zero afterwards. The default does nothing: there is no table, or
    /// it stays.
    ///
    /// # Errors
    /// What the kernel refused.
    ///
    /// # Safety
    /// Every slot in these bytes belongs to text that is not open.
    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        let _ = size;
        Ok(())
    }
}

/// Checks the window that a mapper returned. A mapper is safe code, so it may return any window that it has a handle of.
///
/// # Errors
/// [`MemoryFault::BadWindow`]: somebody else has a handle of the window, or its layout is not `requested`.
pub(super) fn check_new(
    mut window: Arc<dyn MappedWindow>,
    requested: &WindowLayout,
) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
    // Two pools of one window would both be its owner (M1). A weak handle counts: it can become a second owner later.
    if Arc::get_mut(&mut window).is_none() {
        return Err(MemoryFault::BadWindow { problem: "it has another handle, so it is not new" });
    }
    // Ranges are checked against the requested layout (M6), so they could lie outside a smaller window.
    if window.layout() != requested {
        return Err(MemoryFault::BadWindow { problem: "its layout is not the requested one" });
    }
    Ok(window)
}

/// The ranges that are not empty, with their pools.
fn nonempty(ranges: &[PoolRange; 3]) -> impl Iterator<Item = (SegmentKind, PoolRange)> {
    SegmentKind::ALL.into_iter().map(|pool| (pool, ranges[pool.index()])).filter(|(_, range)| range.size > 0)
}
