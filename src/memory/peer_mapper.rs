//! [`PeerMapper`]: windows that run in another process of this machine.
//!
//! | what | this process | the peer |
//! |---|---|---|
//! | code, constants, header and frame table | writes them, in a working view of one shared file | maps them from a read-only descriptor of that file (`peer_window.rs`) |
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

use crate::arch::PAGE_SIZE;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::{PAGES_AT_ONCE, no_link_in_child, refused};
use crate::memory::fork_guard::{SharedWindow, deregister, register};
use crate::memory::layout::{FRAME_HEADER_OFFSET, FRAME_TABLE_OFFSET, WindowLayout};
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::window_image::{DATA_HEADER_OFFSET, SMALL_FILE_DYNAMIC_OFFSET, WindowImage, table_pages};
use crate::os::{PageKind, SharedFile, populate, purge_pages};
use crate::sync::Arc;

/// The process in which windows run.
pub(crate) trait WindowPeer: Send + Sync {
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

    /// Unmaps a window, mapped or only reserved. Nothing is left to do if the peer has ended.
    fn release(&self, window: u64);
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
        let code =
            SharedFile::create(c"jittison", layout.file_size()).map_err(refused("memfd_create of the window"))?;
        let data = SharedFile::create_fixed(c"jittison data", layout.pool(SegmentKind::Data).size)
            .map_err(refused("memfd_create of the data pool"))?;
        let code_view = code.map_writable().map_err(refused("mapping the working view of the window"))?;
        let data_view = data.map_writable().map_err(refused("mapping the data pool"))?;
        let read_only = code.reopen_read_only().map_err(refused("reopening the window read-only"))?;
        let image = WindowImage::new(layout, place.preferred, SMALL_FILE_DYNAMIC_OFFSET, place.nonce);
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
        let window = PeerWindow { forked, code_view, data_view, layout: *layout, reserved };
        window.forked.iter().try_for_each(register)?;
        Ok(Arc::new(window))
    }
}

/// A window that the peer holds until this is dropped.
struct Reserved {
    place: PeerPlace,
    peer: Arc<dyn WindowPeer>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.peer.release(self.place.window);
    }
}

/// The views of this process, and the window of the peer.
struct PeerWindow {
    forked: [Arc<SharedWindow>; 2],
    code_view: MmapRaw,
    data_view: MmapRaw,
    layout: WindowLayout,
    reserved: Reserved,
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
            SegmentKind::Code | SegmentKind::ReadOnly => {
                let offset = self.layout.pool(pool).offset as usize;
                assert!(offset < self.code_view.len(), "the pool lies in the file");
                self.code_view.as_mut_ptr().wrapping_add(offset)
            }
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        let header = self.code_view.as_mut_ptr().wrapping_add(FRAME_HEADER_OFFSET as usize);
        self.reserved.place.is_loaded.then_some(header)
    }

    fn data_header(&self) -> Option<*mut u64> {
        let header = self.code_view.as_mut_ptr().wrapping_add(DATA_HEADER_OFFSET as usize);
        self.reserved.place.is_loaded.then(|| header.cast())
    }

    unsafe fn open(&self, _pool: SegmentKind, _offset: u64, _size: u64) -> Result<(), MemoryFault> {
        if self.is_in_child() { Err(no_link_in_child()) } else { Ok(()) }
    }

    fn pages_to_populate(&self, _pool: SegmentKind) -> u32 {
        PAGES_AT_ONCE
    }

    fn populate(&self, pool: SegmentKind, offset: u64, size: u64) {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "the pages to back lie in the pool");
        match pool {
            SegmentKind::Data => populate(&self.data_view, offset as usize, size as usize),
            _ => populate(&self.code_view, (range.offset + offset) as usize, size as usize),
        }
    }

    fn description(&self) -> &'static str {
        match self.reserved.place.is_loaded {
            true => "in another process, which maps code and constants from a read-only descriptor",
            false => "in another process; no exception can cross its code, because the loader there did not open it",
        }
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // The first page of the table contains the unwind header, too, so it stays.
        let end = (FRAME_TABLE_OFFSET + size) / PAGE_SIZE * PAGE_SIZE;
        let first = FRAME_TABLE_OFFSET.next_multiple_of(PAGE_SIZE);
        if end <= first {
            return Ok(());
        }
        assert!(end <= table_pages(&self.layout), "the purged pages lie in the table");
        let pages = self.code_view.as_mut_ptr().wrapping_add(first as usize);
        // SAFETY: M6 - the pages are in the table by the assertion. M5 - their slots have no owner: their text is not
        // open, by contract.
        unsafe { purge_pages(pages, (end - first) as usize, self.page_kind()) }
            .map_err(refused("returning pages of the frame table"))
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "the purged pages lie in the pool");
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the assertion, and consists of complete pages by contract. M1 -
        // nobody uses it, by contract.
        unsafe { purge_pages(pages, size as usize, self.page_kind()) }
            .map_err(refused(&format!("returning pages of the {} pool", pool.name())))
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
