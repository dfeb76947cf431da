//! Windows of plain memory, for models of the memory manager.

#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::MemoryFault;
use jittison::memory::*;
use loom::cell::UnsafeCell;

/// One cell for each page, by address. Loom reports two unordered writes to one cell.
pub struct Cells([UnsafeCell<()>; 16]);

impl Cells {
    pub fn new() -> Arc<Cells> {
        Arc::new(Cells(std::array::from_fn(|_| UnsafeCell::new(()))))
    }

    pub fn write(&self, address: u64, pages: u64) {
        for page in address / 4096..address / 4096 + pages {
            self.0[page as usize % 16].with_mut(|_| ());
        }
    }
}

// SAFETY: loom checks that writes exclude each other. The models exist to check this.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

/// A window of plain memory. A purge writes zeroes to its pages.
pub struct Plain {
    bytes: Vec<u64>,
    layout: WindowLayout,
    cells: Arc<Cells>,
    has_frames: bool,
}

impl Plain {
    fn of(layout: &WindowLayout, cells: &Arc<Cells>, has_frames: bool) -> Plain {
        let bytes = vec![0; layout.size() as usize / 8 + 512];
        Plain { bytes, layout: *layout, cells: cells.clone(), has_frames }
    }
}

/// Maps windows without a frame table.
pub struct PlainMapper(pub Arc<Cells>);

impl MemoryMapper for PlainMapper {
    fn map_window(&self, layout: &WindowLayout, _: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        Ok(Arc::new(Plain::of(layout, &self.0, false)))
    }
}

/// Maps windows with a frame table, and reads the table of the last one.
#[derive(Clone, Default)]
pub struct FramedMapper(Arc<Mutex<Option<Arc<Plain>>>>);

impl MemoryMapper for FramedMapper {
    fn map_window(&self, layout: &WindowLayout, _: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let window = Arc::new(Plain::of(layout, &Cells::new(), true));
        *self.0.lock().unwrap() = Some(window.clone());
        Ok(Arc::new(Read(window)))
    }
}

impl FramedMapper {
    /// `(start, FDE)` in the slot of the code at an address.
    pub fn frame_of(&self, code: ExecutorAddr) -> (ExecutorAddr, ExecutorAddr) {
        let window = self.0.lock().unwrap().clone().expect("a window is mapped");
        let header = window.base().offset(FRAME_HEADER);
        let granule =
            code.distance_from(window.base().offset(window.layout.pool(SegmentKind::Code).offset)) as u64 / 64;
        let slot = (header.value() + 12 + granule * 8) as *const AtomicU64;
        // SAFETY: the slot lies inside the window, and all its writes are atomic stores.
        let entry = unsafe { &*slot }.load(Ordering::Relaxed);
        let at =
            |distance: u64| ExecutorAddr::new(header.value().wrapping_add_signed(i64::from(distance as u32 as i32)));
        (at(entry), at(entry >> 32))
    }
}

/// Offset of the unwind header in a window.
const FRAME_HEADER: u64 = 0x1004;

// SAFETY: the vector is longer than the layout and never resized. Only the owners of its parts write it.
unsafe impl MappedWindow for Plain {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }
    fn base(&self) -> ExecutorAddr {
        ExecutorAddr::new((self.bytes.as_ptr() as u64).next_multiple_of(4096))
    }
    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        (self.base().value() + self.layout.pool(pool).offset) as *mut u8
    }
    fn frame_header(&self) -> Option<*mut u8> {
        self.has_frames.then(|| (self.base().value() + FRAME_HEADER) as *mut u8)
    }
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        self.cells.write(pages as u64, size / 4096);
        // SAFETY: by the contract of `purge`, no one uses these pages.
        unsafe { pages.write_bytes(0, size as usize) };
        Ok(())
    }
}

/// A window whose table [`FramedMapper`] reads. A pool refuses a window that has another handle, so this is a window of its
/// own around a shared one.
struct Read(Arc<Plain>);

// SAFETY: each method returns the result of the inner window. Its other owner only loads atomic words.
unsafe impl MappedWindow for Read {
    fn layout(&self) -> &WindowLayout {
        self.0.layout()
    }
    fn base(&self) -> ExecutorAddr {
        self.0.base()
    }
    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        self.0.working_view(pool)
    }
    fn frame_header(&self) -> Option<*mut u8> {
        self.0.frame_header()
    }
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.0.purge(pool, offset, size) }
    }
}
