//! [`InterceptingMapper`]: a mapper that wraps another one. It calls an [`Interceptor`] before each call of the mapper and of its
//! windows. The interceptor may record the call or refuse it.

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

/// A range of a pool: its segment kind, offset and size in bytes.
pub type Range = (SegmentKind, u64, u64);

pub trait Interceptor: Send + Sync + 'static {
    /// An error refuses the call. The result of [`Call::Unmap`] is ignored.
    fn before_call(&self, call: Call, range: Option<Range>) -> Result<(), MemoryFault>;
}

pub struct InterceptingMapper<M, L> {
    pub inner: M,
    pub interceptor: Arc<L>,
}

struct Window<L: Interceptor> {
    inner: Arc<dyn MappedWindow>,
    interceptor: Arc<L>,
}

impl<M: MemoryMapper, L: Interceptor> MemoryMapper for InterceptingMapper<M, L> {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        self.interceptor.before_call(Call::Map, None)?;
        let inner = self.inner.map_window(layout, placement)?;
        Ok(Arc::new(Window { inner, interceptor: self.interceptor.clone() }))
    }
}

// SAFETY: each method returns the result of the inner window, or an error.
unsafe impl<L: Interceptor> MappedWindow for Window<L> {
    fn layout(&self) -> &WindowLayout {
        self.inner.layout()
    }
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
        self.interceptor.before_call(Call::Open, Some((pool, offset, size)))?;
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.inner.open(pool, offset, size) }
    }
    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.interceptor.before_call(Call::Seal, Some((pool, offset, size)))?;
        // SAFETY: as above.
        unsafe { self.inner.seal(pool, offset, size) }
    }
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.interceptor.before_call(Call::Purge, Some((pool, offset, size)))?;
        // SAFETY: as above.
        unsafe { self.inner.purge(pool, offset, size) }
    }
    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        self.interceptor.before_call(Call::PurgeTable, None)?;
        // SAFETY: as above.
        unsafe { self.inner.purge_table(size) }
    }
}

impl<L: Interceptor> Drop for Window<L> {
    fn drop(&mut self) {
        let _ = self.interceptor.before_call(Call::Unmap, None);
    }
}
