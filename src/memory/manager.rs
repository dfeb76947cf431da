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
///
/// # Safety
/// This crate runs code in the memory, writes it and trusts its addresses. Implementors promise for each allocation that
/// [`allocate`](Self::allocate) or [`finalize_all`](Self::finalize_all) returns, in flight and finalized:
///
/// - *Owner*: From `allocate` until the allocation is dropped, its memory belongs to it alone. Nobody else writes it, frees
///   it or hands it out, even if the manager is dropped first. A moved allocation keeps its memory.
/// - *Addresses*: The addresses never change. A finalized allocation has those that it had in flight. Each one is aligned as
///   the plan requests. If [`can_run`](Self::can_run) is true, the segments lie within 2 GiB of each other.
/// - *Bytes*: [`working`](InFlight::working) returns as many bytes as the plan requests, and the last `zero_fill` of them
///   are zero at first. [`large_section`](InFlight::large_section) and [`scratch`](InFlight::scratch) return as many bytes
///   as the plan requests, or none. Once the allocation is finalized, the bytes at its addresses are those that were written.
/// - *Access*: If `can_run` is true, the process that runs the code of the session can read the finalized constants, and read and
///   write the data. It can execute the code, or a call of the code faults. The answer never changes. That process is this
///   one, unless the session has an executor.
/// - *Words*: If `can_run` is true, [`Finalized::word`] returns the word at the address of the data segment plus `offset`,
///   for each multiple of eight inside the segment. If it is false, it returns that word or `None`.
/// - *Writes*: [`Finalized::write`] either writes the bytes at the address of the segment plus `offset`, and changes no other
///   byte, or returns an error. Code may read other bytes of the segment meanwhile.
/// - *Frames*: The unwinder knows frames of an allocation at most from [`finalize`](InFlight::finalize) until the drop
///   frees the code.
///
/// A manager that returns the allocations of another manager unchanged keeps the contract:
///
/// ```
/// # use jittison::{MemoryStatistics, memory::{InFlight, MemoryManager, SegmentPlan, SlabPool}};
/// struct Limited(SlabPool);
///
/// // SAFETY: the pool makes all allocations.
/// unsafe impl MemoryManager for Limited {
///     fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
///         if self.0.statistics().allocations == 100 {
///             return Err(jittison::Error::other("there are 100 allocations"));
///         }
///         self.0.allocate(plan)
///     }
///
///     fn statistics(&self) -> MemoryStatistics {
///         self.0.statistics()
///     }
/// }
/// ```
///
/// Code that gives no such promise does not compile:
///
/// ```compile_fail,E0200
/// # use jittison::{MemoryStatistics, memory::{InFlight, MemoryManager, SegmentPlan, SlabPool}};
/// struct Safe(SlabPool);
///
/// impl MemoryManager for Safe {
///     fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
///         self.0.allocate(plan)
///     }
///     fn statistics(&self) -> MemoryStatistics {
///         self.0.statistics()
///     }
/// }
/// ```
pub unsafe trait MemoryManager: Send + Sync {
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

    /// Whether the process that runs the code of the session can run what is linked into this memory. If not, a
    /// [`Jit`](crate::Jit) refuses each call that would run it, or that returns a handle to call it
    /// ([`MemoryFault::NeverRuns`](crate::error::MemoryFault::NeverRuns)).
    fn can_run(&self) -> bool {
        true
    }

    /// Whether links may request [large sections](SegmentPlan::large_sections). If not, they put everything into the segments.
    /// The answer never changes.
    fn has_large_sections(&self) -> bool {
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
