//! [`Overheard`]: a mapper whose windows say what they are asked before they pass it on, to somebody who may refuse it.

use std::sync::Arc;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::MemoryFault;
use jittison::memory::{MappedWindow, MemoryMapper, Placement, WindowLayout};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Map,
    Open,
    Seal,
    Purge,
    PurgeTable,
    Unmap,
}

/// A part of a pool: offset and bytes.
pub type Range = (SegmentKind, u64, u64);

pub trait Listener: Send + Sync + 'static {
    /// An error refuses the call, but for the unmapping.
    fn hear(&self, call: Call, range: Option<Range>) -> Result<(), MemoryFault>;
}

pub struct Overheard<M, L> {
    pub inner: M,
    pub listener: Arc<L>,
}

struct Window<L: Listener> {
    inner: Arc<dyn MappedWindow>,
    listener: Arc<L>,
}

impl<M: MemoryMapper, L: Listener> MemoryMapper for Overheard<M, L> {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        self.listener.hear(Call::Map, None)?;
        let inner = self.inner.map_window(layout, placement)?;
        Ok(Arc::new(Window { inner, listener: self.listener.clone() }))
    }
}

// SAFETY: all of it is the inner window's word, or a refusal.
unsafe impl<L: Listener> MappedWindow for Window<L> {
    fn base(&self) -> ExecutorAddr {
        self.inner.base()
    }
    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        self.inner.working_view(pool)
    }
    fn frame_header(&self) -> Option<*mut u8> {
        self.inner.frame_header()
    }
    fn granule(&self, pool: SegmentKind) -> u64 {
        self.inner.granule(pool)
    }
    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.listener.hear(Call::Open, Some((pool, offset, size)))?;
        // SAFETY: the caller's word, passed on.
        unsafe { self.inner.open(pool, offset, size) }
    }
    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.listener.hear(Call::Seal, Some((pool, offset, size)))?;
        // SAFETY: as above.
        unsafe { self.inner.seal(pool, offset, size) }
    }
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.listener.hear(Call::Purge, Some((pool, offset, size)))?;
        // SAFETY: as above.
        unsafe { self.inner.purge(pool, offset, size) }
    }
    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        self.listener.hear(Call::PurgeTable, None)?;
        // SAFETY: as above.
        unsafe { self.inner.purge_table(size) }
    }
}

impl<L: Listener> Drop for Window<L> {
    fn drop(&mut self) {
        let _ = self.listener.hear(Call::Unmap, None);
    }
}
