//! [`Extended`]: an allocation that has more than its places in pools: sections apart, and scratch memory.
//!
//! An allocation that asks for neither is handed on as it is, so it costs nothing that the others do this. Scratch memory
//! is an allocation of its own, of the data pool, which is abandoned when the link is finalized: so it makes no system call,
//! and no error path can leak it.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::Result;
use crate::memory::frame_table::Frame;
use crate::memory::large_sections::{ApartBooks, LargeSection};
use crate::memory::manager::{Finalized, InFlight, MemoryUsage};
use crate::memory::plan::{SegmentPlan, SegmentRequest};
use crate::sync::{Arc, MappedU64};

/// Allocates all that a plan asks for; `in_pools` allocates what it asks of the pools.
///
/// # Errors
/// The first refusal; nothing is held then.
pub(crate) fn allocate(
    plan: &SegmentPlan,
    books: &Arc<ApartBooks>,
    in_pools: impl Fn(&SegmentPlan) -> Result<Box<dyn InFlight>>,
) -> Result<Box<dyn InFlight>> {
    let pools = in_pools(plan)?;
    if plan.apart.is_empty() && plan.scratch.size == 0 {
        return Ok(pools);
    }
    let scratch = match plan.scratch.size {
        0 => None,
        _ => Some(in_pools(&scratch_plan(plan.scratch))?),
    };
    let apart = plan.apart.iter().map(|request| LargeSection::map(books, request)).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Extended { pools, apart, scratch }))
}

fn scratch_plan(scratch: SegmentRequest) -> SegmentPlan {
    let mut plan = SegmentPlan::default();
    plan.segments[SegmentKind::Data.index()] = scratch;
    plan
}

/// In flight. Fields drop in order.
pub(crate) struct Extended {
    pools: Box<dyn InFlight>,
    apart: Vec<LargeSection>,
    scratch: Option<Box<dyn InFlight>>,
}

impl Extended {
    /// What is left to seal, its sections apart sealed and its scratch memory given back.
    ///
    /// # Errors
    /// What the kernel refused; everything is given back.
    pub(crate) fn seal_apart(mut self) -> Result<(Box<dyn InFlight>, Vec<LargeSection>)> {
        for section in &mut self.apart {
            section.seal()?;
        }
        Ok((self.pools, self.apart))
    }
}

impl InFlight for Extended {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.pools.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.pools.working(pool)
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        self.apart.get(index).map_or(ExecutorAddr::NULL, LargeSection::address)
    }

    fn apart(&mut self, index: usize) -> &mut [u8] {
        self.apart.get_mut(index).map_or(&mut [], LargeSection::bytes)
    }

    fn scratch_address(&self) -> ExecutorAddr {
        self.scratch.as_ref().map_or(ExecutorAddr::NULL, |scratch| scratch.address(SegmentKind::Data))
    }

    fn scratch(&mut self) -> &mut [u8] {
        self.scratch.as_mut().map_or(&mut [], |scratch| scratch.working(SegmentKind::Data))
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let (pools, apart) = self.seal_apart()?;
        Ok(with_apart(pools.finalize(frames)?, apart))
    }
}

/// A finalized allocation, with its sections apart.
pub(crate) fn with_apart(pools: Box<dyn Finalized>, apart: Vec<LargeSection>) -> Box<dyn Finalized> {
    if apart.is_empty() { pools } else { Box::new(ExtendedFinalized { pools, apart: apart.into() }) }
}

/// Fields drop in order: the code before what it refers to.
struct ExtendedFinalized {
    pools: Box<dyn Finalized>,
    apart: Box<[LargeSection]>,
}

impl Finalized for ExtendedFinalized {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.pools.address(pool)
    }

    fn apart_address(&self, index: usize) -> ExecutorAddr {
        self.apart.get(index).map_or(ExecutorAddr::NULL, LargeSection::address)
    }

    fn usage(&self) -> MemoryUsage {
        let own = MemoryUsage { metadata: size_of::<Self>() as u64, ..MemoryUsage::default() };
        [self.pools.usage(), own].into_iter().chain(self.apart.iter().map(LargeSection::usage)).sum()
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        self.pools.word(offset)
    }
}
