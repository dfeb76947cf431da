//! [`DualMapper`] and [`PlainDualMapper`]: windows whose code and constants are mapped twice.
//!
//! A sparse anonymous file describes the window; the loader opens it, reserving the whole range and telling every
//! unwinder about it (`loaded_window.rs`); then the pools are mapped over that range for good: code and constants from a
//! *read-only descriptor* of the same file (so that no `mprotect` can ever make them writable), data as private zeroes.
//! The writable view of the file is elsewhere, where the kernel's randomisation puts it; it is never executable, and does
//! not go to forked children (`fork_guard.rs`).
//!
//! The plain mapper is for systems where a descriptor cannot be opened again as a read-only one (no `/proc`): the running
//! view is mapped from the writable descriptor. It is not writable either, but could be made so.
//!
//! This file decides no sizes (`layout.rs`) and fills no slots (`frame_table.rs`).

use memmap2::MmapRaw;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::fork_guard::{ForkedView, register, unregister, wait_for_forks};
use crate::memory::layout::{FRAME_HEADER_OFFSET, FRAME_TABLE_OFFSET, PAGE, WindowLayout};
use crate::memory::loaded_window::{LoadedWindow, list, load_descriptor, load_named, new_nonce, place, reserve};
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::report::lasting;
use crate::memory::window_image::{WindowImage, dynamic_address, has_room_for_dynamic, table_pages};
use crate::os::{FixedPages, PageKind, PrivatePages, Protection, SharedFile, back, give_back, map_fixed};
use crate::sync::Arc;

/// Maps windows of this process: code and constants twice, the running view from a read-only descriptor; data once.
///
/// Needs `memfd_create`, and `/proc` to open its file again.
#[derive(Debug, Clone, Copy, Default)]
pub struct DualMapper {
    /// What forked children have of the windows.
    pub fork_policy: ForkPolicy,
}

/// As [`DualMapper`], but with the running view mapped from a descriptor that can write: the kernel would let it be made
/// writable, if somebody asked.
///
/// Needs `memfd_create`; without `/proc`, also a directory for a small temporary file, or exceptions cannot cross the
/// code. [`MappedWindow::description`] says so, then.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainDualMapper {
    /// What forked children have of the windows.
    pub fork_policy: ForkPolicy,
}

impl MemoryMapper for DualMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        map(layout, placement, true, self.fork_policy, "")
    }
}

impl MemoryMapper for PlainDualMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        map(layout, placement, false, self.fork_policy, "")
    }
}

/// Fields drop in order: the loaded window (with the whole range), the writable view, the view's descriptor.
struct DualWindow {
    window: LoadedWindow,
    layout: WindowLayout,
    alias: MmapRaw,
    view: Arc<ForkedView>,
    description: &'static str,
}

/// Maps a window. `remark` is added to its description.
pub(super) fn map(
    layout: &WindowLayout,
    placement: Placement,
    is_read_only: bool,
    fork_policy: ForkPolicy,
    remark: &str,
) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
    let description = if is_read_only { READ_ONLY } else { PLAIN };
    if !has_room_for_dynamic(layout) {
        let problem = "the layout has no guard before the data pool".to_string();
        return Err(MemoryFault::Refused { step: "describing the window".to_string(), problem });
    }
    let dynamic_offset = dynamic_address(layout);
    let shared =
        SharedFile::create(c"jittison", dynamic_offset + PAGE).map_err(refused("memfd_create of the window"))?;
    let alias = shared.map_writable().map_err(refused("mapping the working view of the window"))?;
    let file = if is_read_only {
        shared.reopen_read_only().map_err(refused("reopening the window read-only"))?
    } else {
        shared.into_file()
    };
    let nonce = new_nonce();
    let window = place(layout, placement, |preferred| {
        let image = |dynamic_offset| WindowImage::new(layout, preferred, dynamic_offset, nonce);
        write_image(&alias, &image(dynamic_offset), dynamic_offset);
        match load_descriptor(&file, nonce).or_else(|reason| list(layout, preferred, reason)) {
            Ok(window) => Ok(window),
            Err(reason) if is_read_only => {
                Err(MemoryFault::Refused { step: "having the loader open the window".to_string(), problem: reason })
            }
            Err(_) => load_named(image, nonce).or_else(|reason| reserve(layout, preferred, reason)),
        }
    })?;
    // SAFETY: M4, M7 - the window holds both as long as it holds the view, and its drop unregisters the view first.
    let view =
        unsafe { ForkedView::new(window.base, layout, (alias.as_ptr(), alias.len()), file, is_read_only, fork_policy) };
    // SAFETY: M1 - the window was placed just now, and nobody knows it yet.
    unsafe { cover(&view, layout) }?;
    if window.is_loaded() {
        // SAFETY: M1, M4 - as above; the loader mapped it.
        unsafe { cover_rest(window.base.value(), layout) }?;
    }
    let unknown = window.unknown_because().map(|reason| format!("; {UNKNOWN}: {reason}"));
    let description = lasting(description, &[unknown.as_deref().unwrap_or(""), remark]);
    let view = Arc::new(view);
    register(&view)?;
    Ok(Arc::new(DualWindow { window, layout: *layout, alias, view, description }))
}

// SAFETY: M1, M2, M4 - the alias shows the file's bytes and the data pool is itself; both live as long as `self`, their
// sizes are those of the layout that mapped them, and fresh anonymous memory is zero.
unsafe impl MappedWindow for DualWindow {
    fn base(&self) -> ExecutorAddr {
        self.window.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        let offset = self.layout.pool(pool).offset as usize;
        match pool {
            SegmentKind::Data => (self.window.base.value() as usize + offset) as *mut u8,
            SegmentKind::Code | SegmentKind::ReadOnly => {
                assert!(offset < self.alias.len());
                self.alias.as_mut_ptr().wrapping_add(offset)
            }
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        let is_known = self.window.unknown_because().is_none();
        is_known.then(|| self.alias.as_mut_ptr().wrapping_add(FRAME_HEADER_OFFSET as usize))
    }

    #[inline] // into `open_all`
    unsafe fn open(&self, _pool: SegmentKind, _offset: u64, _size: u64) -> Result<(), MemoryFault> {
        if self.view.is_severed() { Err(is_the_parents()) } else { Ok(()) }
    }

    fn pages_at_once(&self, pool: SegmentKind) -> u32 {
        if pool == SegmentKind::Data { 0 } else { PAGES_AT_ONCE }
    }

    fn back(&self, pool: SegmentKind, offset: u64, size: u64) {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "backed pages lie in the pool");
        if pool != SegmentKind::Data {
            back(&self.alias, (range.offset + offset) as usize, size as usize);
        }
    }

    fn settle(&self) {
        wait_for_forks();
    }

    fn description(&self) -> &'static str {
        self.description
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // The first page holds the header as well.
        let end = (FRAME_TABLE_OFFSET + size) / PAGE * PAGE;
        let first = FRAME_TABLE_OFFSET.next_multiple_of(PAGE);
        if end <= first {
            return Ok(());
        }
        assert!(end <= table_pages(&self.layout), "purged pages lie in the table");
        let pages = self.alias.as_mut_ptr().wrapping_add(first as usize);
        // SAFETY: M5, M6 - inside the table by the line above, and nobody's slots, by contract.
        let purged = unsafe { give_back(pages, (end - first) as usize, PageKind::Shared) };
        purged.map_err(refused("giving pages of the frame table back"))
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "purged pages lie in the pool");
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        let kind =
            if pool == SegmentKind::Data || self.view.is_severed() { PageKind::Private } else { PageKind::Shared };
        // SAFETY: M1, M6 - inside the pool by the assertion; nobody uses it, by contract.
        let purged = unsafe { give_back(pages, size as usize, kind) };
        purged.map_err(refused(&format!("giving pages of the {} pool back", pool.name())))
    }
}

impl Drop for DualWindow {
    fn drop(&mut self) {
        unregister(&self.view);
    }
}

/// The first write to a page of a shared file takes 3.2 µs, of one among as many that are backed at once 2.2; and code that
/// is called for the first time finds its neighbours there.
const PAGES_AT_ONCE: u32 = 8;

/// Maps header, table and pools for good.
///
/// # Safety
/// The range of the view's window is reserved, and nothing has been allocated in it yet (M1).
unsafe fn cover(view: &ForkedView, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let (parts, file) = view.shown();
    for part in parts {
        let executable = part.protection == Protection::ReadExecute;
        let pages = FixedPages::Shared { file, offset: part.offset, executable };
        // SAFETY: M1 - the range was reserved for this window, and nothing has been allocated in it yet. The header's
        // bytes are the same as before.
        unsafe { map_fixed(part.address as *mut u8, part.size_bytes, pages) }.map_err(refused(if executable {
            "mapping the code pool"
        } else {
            "mapping constants and the frame table"
        }))?;
    }
    // SAFETY: M1 - by contract; the window begins where its header is shown.
    unsafe { cover_data(parts[0].address, layout) }
}

/// Gives what is left of the loader's mapping memory that is no page of the file, by which a forked child would keep its
/// parent's: the guards, and the dynamic section, which the loader has written into.
///
/// # Safety
/// The loader mapped the window of this layout at `base`, and nothing has been allocated in it yet (M1, M4).
unsafe fn cover_rest(base: u64, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let dynamic = dynamic_address(layout);
    let ends = SegmentKind::ALL.map(|pool| layout.pool(pool)).map(|range| (range.offset, range.offset + range.size));
    let code = (layout.readable_code().offset, ends[0].1);
    let mut used = [(0, table_pages(layout)), code, ends[1], (dynamic, dynamic + PAGE), ends[2]];
    used.sort_unstable();
    for guard in used.windows(2).map(|pair| pair[0].1..pair[1].0).filter(|guard| !guard.is_empty()) {
        let size = (guard.end - guard.start) as usize;
        // SAFETY: M1 - between the pools of this window, where nothing is.
        unsafe { map_fixed((base + guard.start) as *mut u8, size, FixedPages::Guard) }
            .map_err(refused("mapping guards"))?;
    }
    let page = (base + dynamic) as *mut u8;
    let mut copy = PrivatePages::map(PAGE as usize, 1).map_err(refused("mapping the dynamic section"))?;
    // SAFETY: M4 - the loader mapped the page, readable and writable, for this window alone, and has done its writing.
    let bytes = unsafe { page.cast::<[u8; PAGE as usize]>().read() };
    copy.bytes().copy_from_slice(&bytes);
    // In one step: whoever opens any library, or asks for a symbol, has the loader read the page at that moment.
    // SAFETY: M1, M4 - the page is this window's.
    unsafe { copy.move_to(page) }.map_err(refused("mapping the dynamic section"))
}

/// Maps the data pool for good.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing has been allocated in it yet (M1).
pub(super) unsafe fn cover_data(base: u64, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let range = layout.pool(SegmentKind::Data);
    // SAFETY: M1 - the range was reserved for this window, and nothing has been allocated in it yet.
    unsafe { map_fixed((base + range.offset) as *mut u8, range.size as usize, FixedPages::PrivateZero) }
        .map_err(refused("mapping the data pool"))
}

#[cold]
fn is_the_parents() -> MemoryFault {
    MemoryFault::Refused {
        step: "linking in a forked child".to_string(),
        problem: "the code memory is the parent's, by ForkPolicy::Share or because the kernel refused a copy; make a \
                  session in the child"
            .to_string(),
    }
}

pub(super) fn refused(step: &str) -> impl FnOnce(std::io::Error) -> MemoryFault + use<> {
    let step = step.to_string();
    move |problem| MemoryFault::Refused { step, problem: problem.to_string() }
}

/// Writes what the loader and the unwinder want to know.
fn write_image(alias: &MmapRaw, image: &WindowImage, dynamic_offset: u64) {
    for (offset, bytes) in [(0, &image.header[..]), (dynamic_offset as usize, &image.dynamic[..])] {
        assert!(offset + bytes.len() <= alias.len());
        // SAFETY: M1, M6 - the view was mapped just now, nobody else has it, and it is long enough by the line above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), alias.as_mut_ptr().add(offset), bytes.len()) };
    }
}

const READ_ONLY: &str = "mapped twice, the running view from a read-only descriptor";
const PLAIN: &str = "mapped twice, the running view from a writable descriptor";

/// Of windows that the loader would not have.
pub(super) const UNKNOWN: &str = "no exception can cross its code, because the loader would not open it";
