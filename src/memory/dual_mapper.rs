//! [`DualMapper`] and [`PlainDualMapper`]: windows whose code and constants are mapped twice.
//!
//! A window is made in these steps:
//!
//! 1. A sparse anonymous file (`memfd_create`) gets an ELF image of the window.
//! 2. The file is mapped writable: the *working view*. The kernel chooses its address. The view is never executable,
//!    and forked children do not get it (`fork_guard.rs`).
//! 3. The dynamic loader opens the file as a shared object. This reserves the address range of the window, and every
//!    unwinder finds it (`loaded_window.rs`).
//! 4. The pools are mapped over the range with their final protection: the *running view*. Code and constants are pages
//!    of the file, data is private and zero.
//!
//! [`DualMapper`] maps the running view from a *read-only descriptor* of the file. So no `mprotect` can make it
//! writable.
//!
//! [`PlainDualMapper`] is for systems where the file cannot be opened again read-only, because they have no `/proc`. It
//! maps the running view from the writable descriptor. The view is not writable, but `mprotect` could make it so.
//!
//! This file does not decide sizes (`layout.rs`) and does not write slots of the frame table (`frame_table.rs`).

use std::io;

use crate::arch::Arch;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::fork_guard::{SharedWindow, deregister, register, wait_for_forks};
use crate::memory::layout::WindowLayout;
use crate::memory::loaded_window::{
    LoadedWindow, load_descriptor, load_named, new_nonce, place, register_without_loader, reserve_unregistered,
};
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::report::intern;
use crate::memory::window_image::{WindowImage, dynamic_address, table_pages};
use crate::memory::working_view::{WorkingView, check_range, refused};
use crate::os::{FixedPages, PageKind, PrivatePages, Protection, SharedFile, map_fixed, page_size, purge_pages};
use crate::sync::Arc;

/// Maps windows of this process: code and constants twice, data once. The running view is mapped from a read-only
/// descriptor.
///
/// It needs `memfd_create`, and `/proc` to open the file again.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(not(feature = "unstable"), allow(dead_code))]
pub struct DualMapper {
    /// What forked children get of the windows.
    pub fork_policy: ForkPolicy,
}

/// As [`DualMapper`], but the running view is mapped from a writable descriptor: the kernel would allow `mprotect` to
/// make it writable.
///
/// It needs `memfd_create`. Without `/proc`, it also needs a directory for a small temporary file. Without both,
/// exceptions cannot cross the code, and [`MappedWindow::description`] says so.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(not(feature = "unstable"), allow(dead_code))]
pub struct PlainDualMapper {
    /// What forked children get of the windows.
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

/// The fields drop in this order: the loaded window with the address range of the running view, the working view, and
/// the descriptor in `shared`.
struct DualWindow {
    window: LoadedWindow,
    layout: WindowLayout,
    working_view: WorkingView,
    shared: Arc<SharedWindow>,
    description: &'static str,
}

/// Maps a window. Its description ends with `remark`.
pub(super) fn map(
    layout: &WindowLayout,
    placement: Placement,
    is_read_only: bool,
    fork_policy: ForkPolicy,
    remark: &str,
) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
    let description = if is_read_only { READ_ONLY } else { PLAIN };
    let dynamic_offset = dynamic_address(layout);
    let memory =
        SharedFile::create(c"jittison", dynamic_offset + page_size()).map_err(refused("memfd_create of the window"))?;
    let working_view = memory.map_writable().map_err(refused("mapping the working view of the window"))?;
    let file = if is_read_only {
        memory.reopen_read_only().map_err(refused("reopening the window read-only"))?
    } else {
        memory.duplicate().map_err(refused("duplicating the descriptor of the window"))?
    };
    let nonce = new_nonce();
    let window = place(layout, placement, |preferred| {
        let image = |dynamic_offset| WindowImage::new(Arch::NATIVE, layout, preferred, dynamic_offset, nonce);
        write_image(&memory, &image(dynamic_offset), dynamic_offset)?;
        match load_descriptor(&file, nonce).or_else(|reason| register_without_loader(layout, preferred, reason)) {
            Ok(window) => Ok(window),
            Err(reason) if is_read_only => {
                Err(MemoryFault::Refused { step: "loading the window as a shared object".to_string(), problem: reason })
            }
            Err(_) => load_named(image, nonce).or_else(|reason| reserve_unregistered(layout, preferred, reason)),
        }
    })?;
    let view = (working_view.as_ptr(), working_view.len());
    // SAFETY: M4, M7 - `DualWindow` owns the address range and the working view as long as `shared` is registered: its
    // drop deregisters `shared` before it drops them.
    let shared = unsafe { SharedWindow::new(window.base, layout, view, file, is_read_only, fork_policy) };
    if window.is_loaded() {
        // SAFETY: M1 - nobody else knows the window yet. M4 - the loader has mapped it, and `window` keeps it mapped.
        unsafe { replace_loader_pages(window.base.value(), layout) }?;
    }
    // SAFETY: M1 - `window` is new and has reserved the range of the layout, and no pool has an owner yet.
    unsafe { map_running_view(&shared, layout) }?;
    let unknown = window.unregistered_reason().map(|reason| format!("; {UNKNOWN_TO_UNWINDER}: {reason}"));
    let description = intern(description, &[unknown.as_deref().unwrap_or(""), remark]);
    let shared = Arc::new(shared);
    register(&shared)?;
    let working_view = WorkingView::new(working_view, layout);
    Ok(Arc::new(DualWindow { window, layout: *layout, working_view, shared, description }))
}

// SAFETY: M4 - the working view and the data pool are mapped while `self` lives. Their sizes are those of the layout
// that mapped them. M2 - code and constants are written through the working view only, which shows the bytes of the
// file that the running view shows. M1 - the mappings belong to this window alone. The data pool is anonymous memory,
// which is zero until it is written.
unsafe impl MappedWindow for DualWindow {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }

    fn base(&self) -> ExecutorAddr {
        self.window.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        match pool {
            SegmentKind::Data => (self.window.base.value() + self.layout.pool(pool).offset) as *mut u8,
            SegmentKind::Code | SegmentKind::ReadOnly => self.working_view.pool(pool),
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        self.window.unregistered_reason().is_none().then(|| self.working_view.frame_header())
    }

    fn data_header(&self) -> Option<*mut u64> {
        self.window.is_loaded().then(|| self.working_view.data_header())
    }

    #[inline] // into `open_all`
    unsafe fn open(&self, _pool: SegmentKind, _offset: u64, _size: u64) -> Result<(), MemoryFault> {
        if self.shared.is_detached() { Err(no_link_in_child()) } else { Ok(()) }
    }

    fn pages_to_populate(&self, pool: SegmentKind) -> u32 {
        if pool == SegmentKind::Data { 0 } else { pages_at_once() }
    }

    fn populate(&self, pool: SegmentKind, offset: u64, size: u64) {
        check_range(&self.layout, pool, offset, size);
        if pool != SegmentKind::Data {
            self.working_view.populate(pool, offset, size);
        }
    }

    fn wait_for_fork(&self) {
        wait_for_forks();
    }

    fn description(&self) -> &'static str {
        self.description
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M5 - the caller fulfils the same contract.
        unsafe { self.working_view.purge_table(size, PageKind::Shared) }
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        check_range(&self.layout, pool, offset, size);
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        let kind =
            if pool == SegmentKind::Data || self.shared.is_detached() { PageKind::Private } else { PageKind::Shared };
        // SAFETY: M6 - the range is in the pool by the check, and consists of complete pages by contract. M1 - nobody
        // uses it, by contract.
        let purged = unsafe { purge_pages(pages, size as usize, kind) };
        purged.map_err(refused(&format!("returning pages of the {} pool", pool.name())))
    }
}

impl Drop for DualWindow {
    fn drop(&mut self) {
        deregister(&self.shared);
    }
}

/// How many pages are 32 KiB. One system call that populates them costs less than a page fault for each. The neighbours of a new module's
/// pages are populated, too, so the next module finds them.
pub(super) fn pages_at_once() -> u32 {
    ((32 << 10) / page_size()).max(1) as u32
}

/// Maps the header, the frame table and the pools with their final protection.
///
/// # Safety
/// The range of the window is reserved for it, and nothing is allocated in it yet (M1).
unsafe fn map_running_view(shared: &SharedWindow, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let (views, file) = shared.running_views();
    for view in views {
        let executable = view.protection == Protection::ReadExecute;
        let pages = FixedPages::Shared { file, offset: view.offset, executable };
        // SAFETY: M1 - by contract, the window has reserved the range, and nothing is allocated in it. An unwinder may
        // read the header during the call: its bytes do not change.
        unsafe { map_fixed(view.address as *mut u8, view.size_bytes, pages) }.map_err(refused(if executable {
            "mapping the code pool"
        } else {
            "mapping constants and the frame table"
        }))?;
    }
    // SAFETY: M1 - by contract, the window has reserved the range. Its first view, the header, is at its base.
    unsafe { map_data_pool(views[0].address, layout) }
}

/// Replaces the pages that the loader mapped and that no view replaces: the guards, and the page of the dynamic section, into
/// which the loader has written. Anonymous pages take their place. Otherwise these pages of the file would keep the parent's
/// file alive in a forked child. The pools are mapped over the first guard later.
///
/// # Safety
/// The loader mapped the window of this layout at `base` (M4), and nothing is allocated in it yet (M1).
pub(super) unsafe fn replace_loader_pages(base: u64, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let dynamic = dynamic_address(layout);
    let data = layout.pool(SegmentKind::Data).offset;
    for guard in [table_pages(layout)..dynamic, dynamic + page_size()..data] {
        let size = (guard.end - guard.start) as usize;
        // SAFETY: M1 - the range is in this window, and no part of it has an owner: the pools are not mapped yet.
        unsafe { map_fixed((base + guard.start) as *mut u8, size, FixedPages::Guard) }
            .map_err(refused("mapping guards"))?;
    }
    // SAFETY: M1, M4 - the page belongs to this window and to no pool, and the loader mapped it. It writes the page only while it loads the
    // window, which is done.
    unsafe { replace_by_copy(base + dynamic, page_size()) }.map_err(refused("mapping the dynamic section"))
}

/// Replaces pages of a window that the loader mapped by a private writable copy. One system call does it: another thread that opens a
/// library, looks a symbol up or throws makes the loader or the unwinder read the pages at the same time, and it reads the same bytes
/// before and after.
///
/// # Errors
/// What the kernel refused. Nothing is replaced then.
///
/// # Safety
/// - `[address, address + size)` are pages of the caller's window, in no pool (M1). The loader mapped them (M4).
/// - Nobody writes them.
pub(super) unsafe fn replace_by_copy(address: u64, size: u64) -> io::Result<()> {
    let mut copy = PrivatePages::map(size as usize, 1)?;
    // SAFETY: M4 - the loader mapped these pages for the window, readable. The second clause: nobody writes them.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, copy.bytes().as_mut_ptr(), size as usize) };
    // SAFETY: M1 - the pages belong to the caller's window and to no pool. M4 - the bytes that others read do not change.
    unsafe { copy.move_to(address as *mut u8) }
}

/// Maps the data pool.
///
/// # Safety
/// The range of the layout at `base` is reserved for this window, and nothing is allocated in it yet (M1).
pub(super) unsafe fn map_data_pool(base: u64, layout: &WindowLayout) -> Result<(), MemoryFault> {
    let range = layout.pool(SegmentKind::Data);
    // SAFETY: M1 - by contract, this window has reserved the range, and nothing is allocated in it.
    unsafe { map_fixed((base + range.offset) as *mut u8, range.size as usize, FixedPages::PrivateZero) }
        .map_err(refused("mapping the data pool"))
}

#[cold]
pub(super) fn no_link_in_child() -> MemoryFault {
    MemoryFault::Refused {
        step: "linking in a forked child".to_string(),
        problem: "the code memory belongs to the parent, because of ForkPolicy::Share or because the kernel refused a \
                  copy; make a session in the child"
            .to_string(),
    }
}

/// Writes the parts of the ELF image that the loader and the unwinder read.
fn write_image(memory: &SharedFile, image: &WindowImage, dynamic_offset: u64) -> Result<(), MemoryFault> {
    let mut parts = image.parts(dynamic_offset).into_iter();
    parts
        .try_for_each(|(offset, bytes)| memory.write_at(offset, bytes))
        .map_err(refused("writing the header of the window"))
}

const READ_ONLY: &str = "mapped twice, the running view from a read-only descriptor";
const PLAIN: &str = "mapped twice, the running view from a writable descriptor";

/// What the description of a window says if the loader refused to open it.
pub(super) const UNKNOWN_TO_UNWINDER: &str = "no exception can cross its code, because the loader did not open it";
