//! [`SingleMapper`]: windows that are mapped once. Their pages are writable or executable, never both.
//!
//! For systems that have no anonymous files (`memfd_create`), or that do not allow mapping them executable. All memory
//! is private and anonymous.
//!
//! # How it works
//!
//! The kernel protects pages, so the granule of code and constants is a page. A link changes the protection of its
//! pages:
//!
//! 1. `open` makes them writable. No thread runs them: they are not published.
//! 2. The link writes them.
//! 3. `seal` gives them their final protection: executable or read-only.
//!
//! The frame table is data of its own, and always writable.
//!
//! # What it costs
//!
//! - A link makes two system calls for each of the two pools.
//! - Until it seals its pages, they are up to two additional mappings. Then the kernel merges them with their
//!   neighbours.
//!
//! A forked child gets all memory by copy on write. Our fork handlers copy nothing. They only count the fork, so that the
//! child starts a purge thread of its own.

use crate::arch::Arch;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::{UNKNOWN_TO_UNWINDER, map_data_pool, replace_by_copy};
use crate::memory::fork_guard::count_forks;
use crate::memory::layout::{DATA_GRANULE, FRAME_HEADER_OFFSET, FRAME_TABLE_OFFSET, WindowLayout};
use crate::memory::loaded_window::{
    LoadedWindow, load_named, new_nonce, place, register_without_loader, reserve_unregistered,
};
use crate::memory::mapper::{MappedWindow, MemoryMapper, Placement};
use crate::memory::report::intern;
use crate::memory::window_image::{WindowImage, table_pages};
use crate::memory::working_view::refused;
use crate::os::{FixedPages, PageKind, Protection, map_fixed, page_size, protect, purge_pages};
use crate::sync::Arc;

/// Maps windows of this process once, as anonymous memory.
///
/// It needs a kernel that allows pages to become executable after they were writable. It also needs a directory for a
/// small temporary file. Without one, exceptions cannot cross the code, and [`MappedWindow::description`] says so.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleMapper;

impl MemoryMapper for SingleMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        map(layout, placement, "")
    }
}

struct SingleWindow {
    window: LoadedWindow,
    layout: WindowLayout,
    description: &'static str,
}

/// Maps a window. Its description ends with `remark`.
pub(super) fn map(
    layout: &WindowLayout,
    placement: Placement,
    remark: &str,
) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
    let nonce = new_nonce();
    let make = |preferred| {
        let image = |dynamic_offset| WindowImage::new(Arch::NATIVE, layout, preferred, dynamic_offset, nonce);
        load_named(image, nonce)
            .or_else(|reason| register_without_loader(layout, preferred, reason))
            .or_else(|reason| reserve_unregistered(layout, preferred, reason))
    };
    count_forks()?;
    let window = place(layout, placement, make)?;
    let base = window.base.value();
    for pool in [SegmentKind::Code, SegmentKind::ReadOnly] {
        // SAFETY: M1 - `window` is new and has reserved the range of the layout, and no pool has an owner yet.
        unsafe { map_pool(base, layout, pool) }?;
    }
    // SAFETY: M1 - as for the other pools.
    unsafe { map_data_pool(base, layout) }?;
    if window.unregistered_reason().is_none() {
        let from = if window.is_loaded() { FRAME_TABLE_OFFSET.next_multiple_of(page_size()) } else { 0 };
        // SAFETY: M1 - `window` has reserved the range of the layout, and nobody else knows the window yet.
        unsafe { map_table(base, layout, from) }?;
        if window.is_loaded() {
            // The loader mapped the header from a file. The first slots of the table are on the same pages, so they become writable.
            // SAFETY: M1, M4 - the loader mapped the start of the window, and these pages are in no pool. Nobody writes them yet.
            unsafe { replace_by_copy(base, from) }.map_err(refused("mapping the header"))?;
        } else {
            // SAFETY: M1 - nobody else knows the window yet. M6 - `map_table` has mapped the window from its base on.
            unsafe { write_header(base, layout, nonce) };
        }
    }
    let unknown = window.unregistered_reason().map(|reason| format!("; {UNKNOWN_TO_UNWINDER}: {reason}"));
    let description = intern(SINGLE, &[unknown.as_deref().unwrap_or(""), remark]);
    Ok(Arc::new(SingleWindow { window, layout: *layout, description }))
}

impl SingleWindow {
    /// Changes the protection of a range. Does nothing for the data pool, whose pages are always writable.
    ///
    /// # Safety
    /// - The range belongs to the caller (M1) and consists of complete pages.
    /// - Nobody accesses it in a way that `protection` forbids.
    unsafe fn protect(
        &self,
        pool: SegmentKind,
        offset: u64,
        size: u64,
        protection: Protection,
    ) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "the range lies in the pool");
        if pool == SegmentKind::Data || size == 0 {
            return Ok(());
        }
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the assertion, and consists of complete pages by contract. M1 - it
        // belongs to the caller, so the change affects nobody else.
        let changed = unsafe { protect(pages, size as usize, protection) };
        changed.map_err(refused(&format!(
            "making {} KiB of the {} pool {}",
            size >> 10,
            pool.name(),
            match protection {
                Protection::Read => "read-only",
                Protection::ReadExecute => "executable",
                Protection::ReadWrite => "writable",
            }
        )))
    }
}

// SAFETY: M4 - the pools are mapped at the base while `self.window` lives. Their sizes are those of the layout that
// mapped them. M2 - pages are writable after `open`; no address is writable and executable at the same time. Anonymous
// memory is zero until it is written.
unsafe impl MappedWindow for SingleWindow {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }

    fn base(&self) -> ExecutorAddr {
        self.window.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        (self.window.base.value() + self.layout.pool(pool).offset) as *mut u8
    }

    fn frame_header(&self) -> Option<*mut u8> {
        let is_known = self.window.unregistered_reason().is_none();
        is_known.then(|| (self.window.base.value() + FRAME_HEADER_OFFSET) as *mut u8)
    }

    fn granule(&self, pool: SegmentKind) -> u64 {
        if pool == SegmentKind::Data { DATA_GRANULE } else { page_size() }
    }

    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M1 - the range belongs to the caller, by contract. Its granules are pages. Its code is not published,
        // so nobody runs it while it is not executable.
        unsafe { self.protect(pool, offset, size, Protection::ReadWrite) }
    }

    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M1 - the range belongs to the caller, by contract. Its granules are pages. M3 - the caller has made
        // its last write.
        unsafe { self.protect(pool, offset, size, final_protection(pool)) }
    }

    fn description(&self) -> &'static str {
        self.description
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "the purged pages lie in the pool");
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the assertion, and consists of complete pages by contract. M1 -
        // nobody uses it, by contract.
        let purged = unsafe { purge_pages(pages, size as usize, PageKind::Private) };
        purged.map_err(refused(&format!("returning pages of the {} pool", pool.name())))
    }
}

fn final_protection(pool: SegmentKind) -> Protection {
    match pool {
        SegmentKind::Code => Protection::ReadExecute,
        SegmentKind::ReadOnly => Protection::Read,
        SegmentKind::Data => Protection::ReadWrite,
    }
}

/// Maps the code pool or the read-only pool, with its final protection.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing is allocated in it yet (M1).
unsafe fn map_pool(base: u64, layout: &WindowLayout, pool: SegmentKind) -> Result<(), MemoryFault> {
    let range = if pool == SegmentKind::Code { layout.readable_code() } else { layout.pool(pool) };
    let (pages, size) = ((base + range.offset) as *mut u8, range.size as usize);
    // SAFETY: M1 - by contract, this window has reserved the range, and nothing is allocated in it.
    unsafe { map_fixed(pages, size, FixedPages::PrivateZero) }
        .map_err(refused(&format!("mapping the {} pool", pool.name())))?;
    // The kernel merges the parts of a split mapping only if they share an anonymous VMA. A write before the first
    // split creates it.
    // SAFETY: M6 - the first byte of the pool, which the line above has mapped. M1 - nothing is allocated in it.
    unsafe { pages.write_volatile(0) };
    // A kernel that does not allow pages to become executable after they were writable refuses this call.
    // SAFETY: M1 - by contract, nothing is allocated in the range, so nobody accesses it.
    unsafe { protect(pages, size, final_protection(pool)) }.map_err(|error| MemoryFault::Refused {
        step: format!("protecting the {} pool after writing", pool.name()),
        problem: format!("{error}. PR_SET_MDWE, SELinux (execmem) and PaX forbid it"),
    })
}

/// Maps the header and the frame table, from the byte `from` on, which is a multiple of the page size.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing is allocated in it yet (M1).
unsafe fn map_table(base: u64, layout: &WindowLayout, from: u64) -> Result<(), MemoryFault> {
    let size = (table_pages(layout) - from) as usize;
    // SAFETY: M1 - by contract, this window has reserved the range, and nothing is allocated in it.
    unsafe { map_fixed((base + from) as *mut u8, size, FixedPages::PrivateZero) }
        .map_err(refused("mapping the frame table"))
}

/// Writes the header of the image at the base of a window.
///
/// # Safety
/// [`map_table`] was called for the window, from its first byte on, and nobody else knows the window yet.
unsafe fn write_header(base: u64, layout: &WindowLayout, nonce: u64) {
    let bytes = WindowImage::new(Arch::NATIVE, layout, 0, 0, nonce).header;
    assert!(bytes.len() as u64 <= table_pages(layout), "the header lies in the pages of the table");
    // SAFETY: M6 - in bounds by the assertion, and mapped by `map_table`. M1 - nobody else knows the window.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base as *mut u8, bytes.len()) };
}

const SINGLE: &str = "mapped once, pages alternate between writable and executable";
