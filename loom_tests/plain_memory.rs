//! Windows of plain memory, for models of the memory manager.

use std::sync::Arc;

use jittison::base::{ExecutorAddr, Pool};
use jittison::error::MemoryFault;
use jittison::memory::*;
use loom::cell::UnsafeCell;

/// Stand for pages, by address. Loom reports two threads that write one with nothing to order them.
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

// SAFETY: loom checks that writes exclude each other, which is what the models are for.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

/// A window of plain memory, whose pages are emptied by writing zeroes.
struct Plain {
    bytes: Vec<u64>,
    layout: WindowLayout,
    cells: Arc<Cells>,
}

pub struct PlainMapper(pub Arc<Cells>);

impl MemoryMapper for PlainMapper {
    fn map_window(&self, layout: &WindowLayout, _: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let bytes = vec![0; layout.size as usize / 8 + 512];
        Ok(Arc::new(Plain { bytes, layout: *layout, cells: self.0.clone() }))
    }
}

// SAFETY: the vector is longer than the layout, is never resized, and nobody else writes it.
unsafe impl MappedWindow for Plain {
    fn base(&self) -> ExecutorAddr {
        ExecutorAddr::new((self.bytes.as_ptr() as u64).next_multiple_of(4096))
    }
    fn working_view(&self, pool: Pool) -> *mut u8 {
        (self.base().value() + self.layout.pool(pool).offset) as *mut u8
    }
    fn frame_header(&self) -> Option<*mut u8> {
        None
    }
    unsafe fn purge(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        self.cells.write(pages as u64, size / 4096);
        // SAFETY: the caller's word.
        unsafe { pages.write_bytes(0, size as usize) };
        Ok(())
    }
}
