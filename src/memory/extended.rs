//! [`Extended`]: an allocation with large sections or scratch memory, besides its segments in the pools.
//!
//! [`allocate`] wraps an allocation only if its plan requests one of them. Other allocations are passed through
//! unchanged, so the feature costs them nothing.
//!
//! Scratch memory is a second allocation, in the data pool. It is dropped when the link is finalized or abandoned. So
//! it needs no system call, and no error path leaks it.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::allocation::{Finalized, InFlight};
use crate::memory::frame::Frame;
use crate::memory::large_sections::{LargeSection, LargeTotals};
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::memory::statistics::MemoryUsage;
use crate::sync::{Arc, MappedU64};

/// Allocates everything that `plan` requests. `in_pools` allocates the segments of a plan.
///
/// # Errors
/// The first refusal. A failed call holds no memory.
pub(crate) fn allocate(
    plan: &SegmentPlan,
    totals: &Arc<LargeTotals>,
    in_pools: impl Fn(&SegmentPlan) -> Result<Box<dyn InFlight>>,
) -> Result<Box<dyn InFlight>> {
    let pools = in_pools(plan)?;
    if plan.large_sections.is_empty() && plan.scratch.size == 0 {
        return Ok(pools);
    }
    let scratch = match plan.scratch.size {
        0 => None,
        _ => Some(in_pools(&scratch_plan(plan.scratch))?),
    };
    let large =
        plan.large_sections.iter().map(|request| LargeSection::map(totals, request)).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Extended { pools, large, scratch }))
}

fn scratch_plan(scratch: SegmentRequest) -> SegmentPlan {
    let mut plan = SegmentPlan::default();
    plan.segments[SegmentKind::Data.index()] = scratch;
    plan
}

/// An allocation in flight. The fields drop in this order.
pub(crate) struct Extended {
    pools: Box<dyn InFlight>,
    large: Vec<LargeSection>,
    scratch: Option<Box<dyn InFlight>>,
}

impl Extended {
    /// Seals the large sections and frees the scratch memory. Returns the allocation in the pools, which is not sealed
    /// yet, and the sealed sections.
    ///
    /// # Errors
    /// What the kernel refused. All memory of the allocation is free then.
    pub(crate) fn seal_large_sections(mut self) -> Result<(Box<dyn InFlight>, Vec<LargeSection>)> {
        for section in &mut self.large {
            section.seal()?;
        }
        Ok((self.pools, self.large))
    }
}

impl InFlight for Extended {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.pools.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.pools.working(pool)
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.large.get(index).map_or(ExecutorAddr::NULL, LargeSection::address)
    }

    fn large_section(&mut self, index: usize) -> &mut [u8] {
        self.large.get_mut(index).map_or(&mut [], LargeSection::bytes)
    }

    fn scratch_address(&self) -> ExecutorAddr {
        self.scratch.as_ref().map_or(ExecutorAddr::NULL, |scratch| scratch.address(SegmentKind::Data))
    }

    fn scratch(&mut self) -> &mut [u8] {
        self.scratch.as_mut().map_or(&mut [], |scratch| scratch.working(SegmentKind::Data))
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let (pools, large) = self.seal_large_sections()?;
        Ok(with_large_sections(pools.finalize(frames)?, large))
    }
}

/// Combines a finalized allocation in the pools with its large sections. Without any, returns `pools` itself.
pub(crate) fn with_large_sections(pools: Box<dyn Finalized>, large: Vec<LargeSection>) -> Box<dyn Finalized> {
    if large.is_empty() { pools } else { Box::new(ExtendedFinalized { pools, more: large.into_boxed_slice() }) }
}

/// Combines finalized memory with `resources`, which are dropped after it.
pub(crate) fn keep_with<T: Send + Sync + 'static>(memory: Box<dyn Finalized>, resources: T) -> Box<dyn Finalized> {
    Box::new(ExtendedFinalized { pools: memory, more: Resources(resources) })
}

/// A finalized allocation and more. The fields drop in this order: the code before what it uses.
struct ExtendedFinalized<M> {
    pools: Box<dyn Finalized>,
    more: M,
}

/// What an [`ExtendedFinalized`] has besides its allocation.
trait More: Send + Sync {
    /// The address of a large section. `None` leaves the answer to the allocation.
    fn large_section_address(&self, index: usize) -> Option<ExecutorAddr>;

    fn usage(&self) -> MemoryUsage;
}

impl More for Box<[LargeSection]> {
    fn large_section_address(&self, index: usize) -> Option<ExecutorAddr> {
        Some(self.get(index).map_or(ExecutorAddr::NULL, LargeSection::address))
    }

    fn usage(&self) -> MemoryUsage {
        let metadata = size_of::<ExtendedFinalized<Self>>() as u64;
        let own = MemoryUsage { metadata, ..MemoryUsage::default() };
        std::iter::once(own).chain(self.iter().map(LargeSection::usage)).sum()
    }
}

/// Resources that are no memory of code.
struct Resources<T>(#[allow(dead_code)] T); // only dropped

impl<T: Send + Sync> More for Resources<T> {
    fn large_section_address(&self, _index: usize) -> Option<ExecutorAddr> {
        None
    }

    fn usage(&self) -> MemoryUsage {
        MemoryUsage::default()
    }
}

impl<M: More> Finalized for ExtendedFinalized<M> {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.pools.address(pool)
    }

    fn large_section_address(&self, index: usize) -> ExecutorAddr {
        self.more.large_section_address(index).unwrap_or_else(|| self.pools.large_section_address(index))
    }

    fn usage(&self) -> MemoryUsage {
        [self.pools.usage(), self.more.usage()].into_iter().sum()
    }

    fn free_space_record(&self) -> Option<usize> {
        self.pools.free_space_record()
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        self.pools.word(offset)
    }

    fn is_copied(&self) -> bool {
        self.pools.is_copied()
    }

    fn word_stored(&self, word: &MappedU64) {
        self.pools.word_stored(word);
    }

    unsafe fn write(&self, pool: SegmentKind, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: M9 - as the caller promises.
        unsafe { self.pools.write(pool, offset, bytes) }
    }
}
