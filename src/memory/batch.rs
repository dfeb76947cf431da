//! [`finalize_all`]: finalizes many allocations as one batch, either all of them or none.
//!
//! If code is mapped once (`single_mapper.rs`), each change of protection is a system call for one range. Allocations
//! that are made one after the other are mostly adjacent. So a batch merges its adjacent spans and makes one call for
//! each merged range.

use std::ops::Range;

use crate::base::{SegmentKind, pair, sort_by_number};
use crate::error::Result;
use crate::memory::allocation::{Finalized, InFlight, downcast};
use crate::memory::extended::{Extended, with_large_sections};
use crate::memory::frame::Frame;
use crate::memory::large_sections::LargeSection;
use crate::memory::layout::granule_size;
use crate::memory::shard::PoolSpan;
use crate::memory::slab_allocation::{SlabMemory, slab_memory};
use crate::memory::window::Window;
use crate::sync::{Arc, synchronize_processors};

/// One allocation of a batch. Its large sections are sealed already.
enum Member {
    /// An allocation of a window, whose frames are written. The batch seals its spans.
    Slab(Box<dyn SlabMemory>, Vec<LargeSection>),
    /// Another kind of memory, which seals itself.
    Other(Box<dyn InFlight>, Vec<Frame>, Vec<LargeSection>),
}

/// Finalizes a batch. Returns the finalized allocations in the same order.
///
/// # Errors
/// The first failure. The memory of the entire batch is free then.
pub(crate) fn finalize_all(batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
    let members = batch.into_iter().map(|(allocation, frames)| Member::new(allocation, frames));
    let mut members = members.collect::<Result<Vec<_>>>()?;
    seal_merged(&members)?;
    for member in &mut members {
        if let Member::Slab(allocation, _) = member {
            allocation.mark_sealed();
        }
    }
    synchronize_processors();
    members.into_iter().map(Member::finish).collect()
}

impl Member {
    fn new(allocation: Box<dyn InFlight>, frames: Vec<Frame>) -> Result<Member> {
        let (pools, large) = match downcast::<Extended>(allocation) {
            Ok(extended) => extended.seal_large_sections()?,
            Err(allocation) => (allocation, Vec::new()),
        };
        Ok(match slab_memory(pools) {
            Ok(mut allocation) => {
                allocation.write_frames(frames)?;
                Member::Slab(allocation, large)
            }
            Err(other) => Member::Other(other, frames, large),
        })
    }

    fn finish(self) -> Result<Box<dyn Finalized>> {
        match self {
            Member::Slab(allocation, large) => Ok(with_large_sections(allocation, large)),
            Member::Other(other, frames, large) => Ok(with_large_sections(other.finalize(frames)?, large)),
        }
    }
}

/// Seals the spans of all allocations of windows. Adjacent spans are sealed by one call.
fn seal_merged(members: &[Member]) -> Result<()> {
    let allocations = members.iter().filter_map(|member| match member {
        Member::Slab(allocation, _) => Some(allocation),
        Member::Other(..) => None,
    });
    let mut spans: Vec<(&Arc<Window>, SegmentKind, Range<u64>)> = allocations
        .flat_map(|allocation| {
            let spans = allocation.spans();
            SegmentKind::ALL.map(|pool| (allocation.window(), pool, byte_range(&spans, pool)))
        })
        .filter(|(_, _, range)| !range.is_empty())
        .collect();
    // An offset in a window has 31 bits.
    sort_by_number(&mut spans, |(window, pool, range)| {
        pair(Arc::as_ptr(window) as usize as u64, (pool.index() as u64) << 32 | range.start)
    });
    let mut runs: Vec<(&Arc<Window>, SegmentKind, Range<u64>)> = Vec::new();
    for (window, pool, range) in spans {
        match runs.last_mut() {
            Some((before, same, run)) if Arc::ptr_eq(before, window) && *same == pool && run.end == range.start => {
                run.end = range.end;
            }
            _ => runs.push((window, pool, range)),
        }
    }
    for (window, pool, run) in runs {
        // SAFETY: M1, M6 - the run consists of adjacent spans of this batch. The free space of the window gave them
        // out, and their allocations own and have opened them.
        unsafe { window.mapped.seal(pool, run.start, run.end - run.start) }?;
    }
    Ok(())
}

/// The bytes of an allocation's span, as offsets from the start of the pool.
fn byte_range(spans: &[PoolSpan; 3], pool: SegmentKind) -> Range<u64> {
    let span = &spans[pool.index()];
    let start = u64::from(span.offset) * granule_size(pool);
    start..start + u64::from(span.granules) * granule_size(pool)
}
