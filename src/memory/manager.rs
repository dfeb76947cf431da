//! [`MemoryManager`]: the trait through which links get code memory.
//!
//! [`SlabPool`](crate::memory::SlabPool) and [`OfflineMemory`](crate::memory::OfflineMemory) implement it. Programs may
//! bring managers of their own. The states of an allocation are in `allocation.rs`.

use crate::error::Result;
use crate::memory::allocation::{Finalized, InFlight};
use crate::memory::frame::Frame;
use crate::memory::memory_map::MemoryMap;
use crate::memory::plan::SegmentPlan;
use crate::memory::statistics::MemoryStatistics;

/// Allocates code memory for links (ORC: `JITLinkMemoryManager`).
pub trait MemoryManager: Send + Sync {
    /// Allocates everything that a plan requests, in one step.
    ///
    /// # Errors
    /// [`MemoryFault`](crate::error::MemoryFault). A failed call holds no memory.
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>>;

    /// Finalizes many allocations of this manager as one batch, each with its frames: either all of them or none.
    /// Returns the finalized allocations in the same order.
    ///
    /// # Errors
    /// As [`InFlight::finalize`], for any of them. The memory of the entire batch is free then.
    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        batch.into_iter().map(|(allocation, frames)| allocation.finalize(frames)).collect()
    }

    /// Whether this process can run what is linked into this memory. If not, a [`Jit`](crate::Jit) refuses each call that
    /// would run it, or that returns a handle to call it ([`MemoryFault::NeverRuns`](crate::error::MemoryFault::NeverRuns)).
    fn can_run(&self) -> bool {
        true
    }

    /// What the manager holds at this moment.
    fn statistics(&self) -> MemoryStatistics;

    /// Returns every free page to the kernel. Call it when the program is idle or short of memory. Links and removals
    /// may run at the same time.
    fn release_free(&self) -> Released {
        Released::default()
    }

    /// Returns the slabs that are entirely free to the kernel, and says how many.
    fn release_free_slabs(&self) -> usize {
        0
    }

    /// A map of the memory, for display. `None` if the manager has no maps. Links and removals may run at the same
    /// time.
    fn memory_map(&self) -> Option<MemoryMap> {
        None
    }
}

/// What was returned to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Bytes of pages that the kernel may have backed.
    pub bytes: u64,
    /// Entire slabs.
    pub slabs: usize,
}
