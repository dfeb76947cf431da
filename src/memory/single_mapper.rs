//! [`SingleMapper`]: windows mapped once, whose pages are writable or executable by turns.
//!
//! For systems that have no files without names, or let none be executed. Everything is private anonymous memory; the
//! granule of code and constants is a page, because the kernel protects pages: opening a range makes its pages writable,
//! sealing it makes them what they are for. Nothing is writable and executable at one time.
//!
//! A link costs two system calls for each of the two pools, and while it is under way up to two more mappings; sealed
//! neighbours are one mapping again. The frame table is writable throughout: it is data, beside the code. A forked child
//! has everything as it was, by copy on write, without anybody's doing.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::{UNKNOWN, cover_data, refused};
use crate::memory::layout::{DATA_GRANULE, FRAME_HEADER_OFFSET, PAGE, WindowLayout};
use crate::memory::loaded_window::{LoadedWindow, list, load_named, new_nonce, place, reserve};
use crate::memory::mapper::{MappedWindow, MemoryMapper, Placement};
use crate::memory::report::lasting;
use crate::memory::window_image::{WindowImage, has_room_for_dynamic, table_pages};
use crate::os::{FixedPages, PageKind, Protection, give_back, map_fixed, protect};
use crate::sync::Arc;

/// Maps windows of this process once, as anonymous memory.
///
/// Needs a kernel that lets pages that were writable become executable; and a directory for a small temporary file, or
/// exceptions cannot cross the code. [`MappedWindow::description`] says so, then.
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

/// Maps a window. `remark` is added to its description.
pub(super) fn map(
    layout: &WindowLayout,
    placement: Placement,
    remark: &str,
) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
    let nonce = new_nonce();
    let make = |preferred| {
        let image = |dynamic_offset| WindowImage::new(layout, preferred, dynamic_offset, nonce);
        let loaded = if has_room_for_dynamic(layout) {
            load_named(image, nonce)
        } else {
            Err("the layout has no guard before the data pool".to_string())
        };
        loaded.or_else(|reason| list(layout, preferred, reason)).or_else(|reason| reserve(layout, preferred, reason))
    };
    let window = place(layout, placement, make)?;
    let base = window.base.value();
    for pool in [SegmentKind::Code, SegmentKind::ReadOnly] {
        // SAFETY: M1 - the window was placed just now, and nobody knows it yet.
        unsafe { cover(base, layout, pool) }?;
    }
    // SAFETY: M1 - as above.
    unsafe { cover_data(base, layout) }?;
    if window.unknown_because().is_none() {
        // The header's page stays as the loader mapped it.
        let from = if window.is_loaded() { PAGE } else { 0 };
        // SAFETY: M1 - as above.
        unsafe { cover_table(base, layout, from) }?;
        // SAFETY: M1, M6 - the table was mapped by the line above.
        unsafe { write_header(base, layout, nonce, from) };
    }
    let unknown = window.unknown_because().map(|reason| format!("; {UNKNOWN}: {reason}"));
    let description = lasting(SINGLE, &[unknown.as_deref().unwrap_or(""), remark]);
    Ok(Arc::new(SingleWindow { window, layout: *layout, description }))
}

impl SingleWindow {
    /// # Safety
    /// The range is the caller's, in whole pages, and nobody uses it in a way that `protection` forbids.
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
        // SAFETY: M1, M6 - inside the pool by the assertion, and the caller's, by contract.
        let changed = unsafe { protect(pages, size as usize, protection) };
        changed.map_err(refused(&format!(
            "making {} KiB of the {} pool {}",
            size >> 10,
            pool.name(),
            if protection == Protection::ReadWrite { "writable" } else { "what they are for" }
        )))
    }
}

// SAFETY: M1, M2, M4 - the pools are what is mapped at the base, for as long as `self` lives; they are readable and, once
// opened, writable, of the sizes of the layout that mapped them, and fresh anonymous memory is zero.
unsafe impl MappedWindow for SingleWindow {
    fn base(&self) -> ExecutorAddr {
        self.window.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        (self.window.base.value() + self.layout.pool(pool).offset) as *mut u8
    }

    fn frame_header(&self) -> Option<*mut u8> {
        let is_known = self.window.unknown_because().is_none();
        is_known.then(|| (self.window.base.value() + FRAME_HEADER_OFFSET) as *mut u8)
    }

    fn granule(&self, pool: SegmentKind) -> u64 {
        if pool == SegmentKind::Data { DATA_GRANULE } else { PAGE }
    }

    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M1 - the caller's range, by contract; it is not published, so that nobody runs it.
        unsafe { self.protect(pool, offset, size, Protection::ReadWrite) }
    }

    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M1 - the caller's range, by contract, which has been written.
        unsafe { self.protect(pool, offset, size, final_protection(pool)) }
    }

    fn description(&self) -> &'static str {
        self.description
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "purged pages lie in the pool");
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M1, M6 - inside the pool by the assertion; nobody uses it, by contract.
        let purged = unsafe { give_back(pages, size as usize, PageKind::Private) };
        purged.map_err(refused(&format!("giving pages of the {} pool back", pool.name())))
    }
}

fn final_protection(pool: SegmentKind) -> Protection {
    match pool {
        SegmentKind::Code => Protection::ReadExecute,
        SegmentKind::ReadOnly => Protection::Read,
        SegmentKind::Data => Protection::ReadWrite,
    }
}

/// Maps a pool as it is when nothing of it is open.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing has been allocated in it yet (M1).
unsafe fn cover(base: u64, layout: &WindowLayout, pool: SegmentKind) -> Result<(), MemoryFault> {
    let range = if pool == SegmentKind::Code { layout.readable_code() } else { layout.pool(pool) };
    let (pages, size) = ((base + range.offset) as *mut u8, range.size as usize);
    // SAFETY: M1 - the range was reserved for this window, and nothing has been allocated in it yet.
    unsafe { map_fixed(pages, size, FixedPages::PrivateZero) }
        .map_err(refused(&format!("mapping the {} pool", pool.name())))?;
    // A page that has been written, before the pool is ever split: only so does the kernel merge what is split later.
    // SAFETY: M1, M6 - the pool was mapped just now, and has a first byte.
    unsafe { pages.write_volatile(0) };
    // Where the kernel refuses pages that were writable the right to be executed, it does so here.
    // SAFETY: M1 - as above.
    unsafe { protect(pages, size, final_protection(pool)) }.map_err(|error| MemoryFault::Refused {
        step: format!("protecting the {} pool after writing", pool.name()),
        problem: format!("{error}; PR_SET_MDWE, SELinux (execmem) and PaX forbid it"),
    })
}

/// Maps header and frame table for good, `from` a page on.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing has been allocated in it yet (M1).
unsafe fn cover_table(base: u64, layout: &WindowLayout, from: u64) -> Result<(), MemoryFault> {
    let size = (table_pages(layout) - from) as usize;
    // SAFETY: M1 - the range was reserved for this window, and nothing has been allocated in it yet.
    unsafe { map_fixed((base + from) as *mut u8, size, FixedPages::PrivateZero) }
        .map_err(refused("mapping the frame table"))
}

/// Writes the image's header, `from` a page on: behind its first page, that is the unwind header.
///
/// # Safety
/// [`cover_table`] was called with the same, and nobody knows the window yet.
unsafe fn write_header(base: u64, layout: &WindowLayout, nonce: u64, from: u64) {
    let image = WindowImage::new(layout, 0, 0, nonce);
    let bytes = &image.header[from as usize..];
    assert!(from + bytes.len() as u64 <= table_pages(layout));
    // SAFETY: M1, M6 - inside the table by the line above, which was mapped just now and is nobody else's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (base + from) as *mut u8, bytes.len()) };
}

const SINGLE: &str = "mapped once, by turns writable and executable";
