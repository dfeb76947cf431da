//! [`InFlight`] and [`Finalized`]: the two states of an allocation.
//!
//! ```text
//!   MemoryManager::allocate ──► InFlight: writable ──► finalize ──► Finalized: final protection
//!                                  │ drop: the link is abandoned        │ drop: the code is removed
//!                                  └──────────► the memory is free ◄────┘
//! ```
//!
//! The contract of [`MemoryManager`](crate::memory::MemoryManager) covers both. The traits themselves are safe, because this
//! crate gets allocations from a manager only.

use std::any::Any;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::{Error, MemoryFault, Result};
use crate::memory::frame::Frame;
use crate::memory::statistics::MemoryUsage;
use crate::sync::MappedU64;

/// Memory that a link writes. If it is dropped, the link is abandoned and the memory is free.
///
/// The trait requires [`Any`], so that a manager recognises its own allocations in a batch.
#[must_use = "dropping an allocation in flight abandons it"]
pub trait InFlight: Send + Any {
    /// The address at which the segment of a pool will run.
    fn address(&self, pool: SegmentKind) -> ExecutorAddr;

    /// The bytes of the segment, as many as the plan requested.
    fn working(&mut self, pool: SegmentKind) -> &mut [u8];

    /// The address of a section of [`SegmentPlan::large_sections`](crate::memory::SegmentPlan::large_sections). Null if the plan has no
    /// such section, or if this memory does not support large sections.
    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        let _ = index;
        ExecutorAddr::NULL
    }

    /// The bytes of a section of [`SegmentPlan::large_sections`](crate::memory::SegmentPlan::large_sections), as many as the plan
    /// requested. Empty if the plan has no such section, or if this memory does not support large sections.
    fn large_section(&mut self, index: usize) -> &mut [u8] {
        let _ = index;
        &mut []
    }

    /// The address of the scratch memory. Null if the plan requested none, or if this memory does not support it.
    fn scratch_address(&self) -> ExecutorAddr {
        ExecutorAddr::NULL
    }

    /// The scratch memory, as many bytes as the plan requested. Empty if this memory does not support it. Finalizing
    /// and abandoning both free it.
    fn scratch(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Gives the memory its final protection and makes `frames` known to the unwinder. Frames that do not start in the
    /// code of this allocation are skipped.
    ///
    /// # Errors
    /// If there are more frames than planned, or if the kernel refuses the protection. The memory is free then.
    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>>;
}

/// Memory of linked code. Dropping it frees it: drop it only when no thread runs the code and nothing points into it.
/// The drop makes its frames unknown to the unwinder before it frees the code.
///
/// A caller may hold locks of the session when it calls a method. So the methods answer from their own state and call
/// nothing of the session. It is dropped with no lock held.
#[must_use = "dropping a finalized allocation frees it"]
pub trait Finalized: Send + Sync {
    /// The address of the segment of a pool.
    fn address(&self, pool: SegmentKind) -> ExecutorAddr;

    /// The address of a section of [`SegmentPlan::large_sections`](crate::memory::SegmentPlan::large_sections). Null if the plan has no
    /// such section.
    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        let _ = index;
        ExecutorAddr::NULL
    }

    /// The bytes that it holds.
    fn usage(&self) -> MemoryUsage;

    /// The address of a record that the drop of `self` reads. A removal prefetches it. `None`, the default: there is none.
    fn free_space_record(&self) -> Option<usize> {
        None
    }

    /// The word at `offset` of the data segment. Running code reads it, and this process may change it at the same
    /// time. The address of the word does not change while `self` lives.
    ///
    /// `None` if `offset` is no multiple of eight inside the segment, or if no code reads this memory.
    fn word(&self, offset: u64) -> Option<&MappedU64>;

    /// Whether the code runs in a copy of this memory. Then whoever stores into a [word](Self::word) calls
    /// [`word_stored`](Self::word_stored) after it. The default says no.
    fn is_copied(&self) -> bool {
        false
    }

    /// A [word](Self::word) of this allocation was stored. Memory whose code runs in a copy sends it there. The default does nothing.
    fn word_stored(&self, word: &MappedU64) {
        let _ = word;
    }

    /// Writes `bytes` at `offset` of the read-only segment or of the data segment. Memory that several links fill is finalized
    /// before they write it.
    ///
    /// # Errors
    /// If the range is not in the segment, if the kernel refuses the write, or if this memory cannot be written any more. That
    /// is the default.
    ///
    /// # Safety
    /// - No other thread calls this for the same value.
    /// - No code uses the range before this returns.
    unsafe fn write(&self, pool: SegmentKind, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = offset;
        Err(not_written(pool, bytes, "this memory manager cannot write memory that is finalized"))
    }
}

/// Returns an allocation of the type `T`, or `allocation` itself if it has another type.
pub(crate) fn downcast<T: InFlight>(allocation: Box<dyn InFlight>) -> std::result::Result<Box<T>, Box<dyn InFlight>> {
    if !(&*allocation as &dyn Any).is::<T>() {
        return Err(allocation);
    }
    (allocation as Box<dyn Any>).downcast().map_err(|_| unreachable!("the type was checked above"))
}

/// The error for bytes that cannot be written to finalized memory.
#[cold]
pub(crate) fn not_written(pool: SegmentKind, bytes: &[u8], problem: &'static str) -> Error {
    MemoryFault::BadPlan { pool: pool.name(), size: bytes.len() as u64, align: 1, problem }.into()
}
