//! [`PeerMapper`]: windows that run in another process of this machine.
//!
//! | what | this process | the peer |
//! |---|---|---|
//! | code, constants, header and frame table | writes them, in a working view of one shared file | maps them from a read-only descriptor of that file (`hosted_window.rs`) |
//! | data | reads and writes it, in a view of a second shared file | maps the same file, writable |
//! | which memory is free | the pools | nothing |
//!
//! Both processes map the same pages, so a link copies nothing and sends nothing. A purge removes pages from the files, so
//! they leave both processes at once.
//!
//! # The order
//! 1. The peer reserves the addresses, and says for which base the loader read the header.
//! 2. This process creates the files and writes the same header for the unwinder of the peer.
//! 3. The peer maps the files over the range.
//!
//! # Forks
//! A forked child has no view of the files: it finds zeroes there and cannot link (as with [`ForkPolicy::Share`]).

use std::os::fd::{AsFd, BorrowedFd};

use memmap2::MmapRaw;

use crate::arch::{Arch, MIN_PAGE_SIZE};
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::{no_link_in_child, pages_at_once};
use crate::memory::fork_guard::{SharedWindow, deregister, register};
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::window_image::{SMALL_FILE_DYNAMIC_OFFSET, WindowImage};
use crate::memory::working_view::{WorkingView, check_range, refused};
use crate::os::{PageKind, SharedFile, populate, purge_pages};
use crate::sync::Arc;

/// A process that holds windows for this one.
pub(crate) trait HoldsWindows: Send + Sync {
    /// Unmaps a window, mapped or only reserved. Nothing is left to do if the process has ended.
    fn release(&self, window: u64);
}

/// The process in which windows run.
pub(crate) trait WindowPeer: HoldsWindows {
    /// Reserves the addresses of a window.
    ///
    /// # Errors
    /// What the peer refused, or that it has ended.
    fn reserve(&self, layout: &WindowLayout, placement: Placement) -> Result<PeerPlace, MemoryFault>;

    /// Maps the files of a reserved window: a read-only one of everything before the data pool, and the one of the data pool.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    fn map(&self, window: u64, code: BorrowedFd<'_>, data: BorrowedFd<'_>) -> Result<(), MemoryFault>;
}

/// A window that a peer has reserved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerPlace {
    /// The peer's number of the window.
    pub(crate) window: u64,
    pub(crate) base: ExecutorAddr,
    /// The base for which the header is written.
    pub(crate) preferred: u64,
    /// The random number in the header.
    pub(crate) nonce: u64,
    /// Whether the peer's unwinder knows the window.
    pub(crate) is_loaded: bool,
}

/// Maps windows in the process behind a peer.
pub(crate) struct PeerMapper(pub(crate) Arc<dyn WindowPeer>);

impl MemoryMapper for PeerMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let reserved = Reserved { place: self.0.reserve(layout, placement)?, peer: self.0.clone() };
        let place = reserved.place;
        check_place(&place, layout)?;
        let code =
            SharedFile::create(c"jittison", layout.file_size()).map_err(refused("memfd_create of the window"))?;
        let data = SharedFile::create_fixed(c"jittison data", layout.pool(SegmentKind::Data).size)
            .map_err(refused("memfd_create of the data pool"))?;
        let code_view = code.map_writable().map_err(refused("mapping the working view of the window"))?;
        let data_view = data.map_writable().map_err(refused("mapping the data pool"))?;
        let read_only = code.reopen_read_only().map_err(refused("reopening the window read-only"))?;
        let image = WindowImage::new(Arch::NATIVE, layout, place.preferred, SMALL_FILE_DYNAMIC_OFFSET, place.nonce);
        code.write_at(0, &image.header).map_err(refused("writing the header of the window"))?;
        let data = data.into_file();
        self.0.map(place.window, read_only.as_fd(), data.as_fd())?;
        let forked = |view: &MmapRaw, file| {
            let view = (view.as_ptr(), view.len());
            // SAFETY: M4, M7 - `PeerWindow` owns both views as long as they are registered: its drop deregisters them before
            // it drops the views. With `ForkPolicy::Share` nothing is mapped at the addresses of the layout, which belong to
            // the peer.
            Arc::new(unsafe { SharedWindow::new(place.base, layout, view, file, true, ForkPolicy::Share) })
        };
        let forked = [forked(&code_view, read_only), forked(&data_view, data)];
        let code_view = WorkingView::new(code_view, layout);
        let window = PeerWindow { forked, code_view, data_view, layout: *layout, reserved };
        window.forked.iter().try_for_each(register)?;
        Ok(Arc::new(window))
    }
}

/// Checks the numbers of a peer, which may be any. This process computes with them, and writes them into code.
pub(super) fn check_place(place: &PeerPlace, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let is_inside = |base: u64| base.is_multiple_of(MIN_PAGE_SIZE) && base <= ADDRESS_SPACE - layout.size();
    match is_inside(place.base.value()) && place.base.value() != 0 && is_inside(place.preferred) {
        true => Ok(()),
        false => Err(MemoryFault::BadWindow { problem: "its process gave it an address that no window can have" }),
    }
}

/// The addresses that a process can have, with five levels of page tables.
const ADDRESS_SPACE: u64 = 1 << 56;

/// A window that the peer holds until this is dropped.
pub(super) struct Reserved<P: HoldsWindows + ?Sized> {
    pub(super) place: PeerPlace,
    pub(super) peer: Arc<P>,
}

impl<P: HoldsWindows + ?Sized> Drop for Reserved<P> {
    fn drop(&mut self) {
        self.peer.release(self.place.window);
    }
}

/// The views of this process, and the window of the peer.
struct PeerWindow {
    forked: [Arc<SharedWindow>; 2],
    code_view: WorkingView,
    data_view: MmapRaw,
    layout: WindowLayout,
    reserved: Reserved<dyn WindowPeer>,
}

// SAFETY: M4 - the views are mapped while `self` lives, and their sizes are those of the layout. M1 - this process makes both
// files for this window alone. The peer runs code that was linked into them, and gives the descriptors to nobody. M2 - the
// peer maps code and constants from a read-only descriptor. The file of the data pool is sparse, so it is zero until it is
// written.
unsafe impl MappedWindow for PeerWindow {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }

    fn base(&self) -> ExecutorAddr {
        self.reserved.place.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        match pool {
            SegmentKind::Data => self.data_view.as_mut_ptr(),
            SegmentKind::Code | SegmentKind::ReadOnly => self.code_view.pool(pool),
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        self.reserved.place.is_loaded.then(|| self.code_view.frame_header())
    }

    fn data_header(&self) -> Option<*mut u64> {
        self.reserved.place.is_loaded.then(|| self.code_view.data_header())
    }

    unsafe fn open(&self, _pool: SegmentKind, _offset: u64, _size: u64) -> Result<(), MemoryFault> {
        if self.is_in_child() { Err(no_link_in_child()) } else { Ok(()) }
    }

    fn pages_to_populate(&self, _pool: SegmentKind) -> u32 {
        pages_at_once()
    }

    fn populate(&self, pool: SegmentKind, offset: u64, size: u64) {
        check_range(&self.layout, pool, offset, size);
        match pool {
            SegmentKind::Data => populate(&self.data_view, offset as usize, size as usize),
            SegmentKind::Code | SegmentKind::ReadOnly => self.code_view.populate(pool, offset, size),
        }
    }

    fn description(&self) -> &'static str {
        match self.reserved.place.is_loaded {
            true => "in another process, which maps code and constants from a read-only descriptor",
            false => "in another process; no exception can cross its code, because the loader there did not open it",
        }
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M5 - the caller fulfils the same contract.
        unsafe { self.code_view.purge_table(size, self.page_kind()) }
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        check_range(&self.layout, pool, offset, size);
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the check, and consists of complete pages by contract. M1 - nobody
        // uses it, by contract.
        let purged = unsafe { purge_pages(pages, size as usize, self.page_kind()) };
        purged.map_err(refused(&format!("returning pages of the {} pool", pool.name())))
    }
}

impl PeerWindow {
    /// Whether this is a forked child, where zeroes are mapped at the addresses of the views.
    fn is_in_child(&self) -> bool {
        self.forked[0].is_detached()
    }

    fn page_kind(&self) -> PageKind {
        if self.is_in_child() { PageKind::Private } else { PageKind::Shared }
    }
}

impl Drop for PeerWindow {
    fn drop(&mut self) {
        self.forked.iter().for_each(deregister);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A peer that reserves nothing, and gives any place.
    struct Liar(PeerPlace);

    impl WindowPeer for Liar {
        fn reserve(&self, _: &WindowLayout, _: Placement) -> Result<PeerPlace, MemoryFault> {
            Ok(self.0)
        }

        fn map(&self, _: u64, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> Result<(), MemoryFault> {
            Ok(())
        }
    }

    impl HoldsWindows for Liar {
        fn release(&self, _: u64) {}
    }

    #[cfg_attr(miri, ignore = "maps memory")]
    #[test]
    fn a_place_that_no_window_can_have_is_refused() {
        let layout = WindowLayout::divide(64 << 20).unwrap();
        let map = |base, preferred| {
            let place = PeerPlace { window: 1, base: ExecutorAddr::new(base), preferred, nonce: 0, is_loaded: true };
            PeerMapper(Arc::new(Liar(place))).map_window(&layout, Placement::Anywhere).err()
        };
        let end = ADDRESS_SPACE - layout.size();
        assert!(map(1 << 30, 0).is_none() && map(end, end).is_none());
        for (base, preferred) in [
            (0, 0),
            (1 << 30 | 1, 0),
            (end + MIN_PAGE_SIZE, 0),
            (u64::MAX, 0),
            (1 << 30, end + MIN_PAGE_SIZE),
            (1 << 30, u64::MAX),
        ] {
            assert!(matches!(map(base, preferred), Some(MemoryFault::BadWindow { .. })), "{base:#x} {preferred:#x}");
        }
    }
}
