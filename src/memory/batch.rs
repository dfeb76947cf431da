//! Many allocations finalised as one batch: all of them, or none.
//!
//! Where protection changes with every allocation (`single_mapper.rs`), a system call seals one range. Allocations that are
//! made one after the other mostly touch, so a batch is sealed by a few calls: one for each stretch of a pool that is
//! wholly of the batch.

use std::any::Any;
use std::ops::Range;

use crate::base::SegmentKind;
use crate::error::Result;
use crate::memory::extended::{Extended, with_apart};
use crate::memory::frame_table::Frame;
use crate::memory::large_sections::LargeSection;
use crate::memory::manager::{Finalized, InFlight};
use crate::memory::shard::granule;
use crate::memory::slab_allocation::SlabAllocation;
use crate::memory::window::Window;
use crate::sync::Arc;

/// One of a batch.
enum Member {
    /// Cut from a window, its frames entered: its parts are sealed with the others'.
    Cut(Box<SlabAllocation>, Vec<LargeSection>),
    /// Some other kind of memory, which seals itself.
    Other(Box<dyn InFlight>, Vec<Frame>, Vec<LargeSection>),
}

/// Seals a batch; what it becomes, in order.
///
/// # Errors
/// The first failure; everything of the batch is given back.
pub(crate) fn finalize_all(batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
    let mut members = batch.into_iter().map(|(one, frames)| Member::new(one, frames)).collect::<Result<Vec<_>>>()?;
    seal_together(&members)?;
    for member in &mut members {
        if let Member::Cut(claim, _) = member {
            claim.mark_sealed();
        }
    }
    members.into_iter().map(Member::finish).collect()
}

impl Member {
    fn new(one: Box<dyn InFlight>, frames: Vec<Frame>) -> Result<Member> {
        let (pools, apart) = match downcast::<Extended>(one) {
            Ok(extended) => extended.seal_apart()?,
            Err(one) => (one, Vec::new()),
        };
        Ok(match downcast::<SlabAllocation>(pools) {
            Ok(mut claim) => {
                claim.enter_frames(frames)?;
                Member::Cut(claim, apart)
            }
            Err(other) => Member::Other(other, frames, apart),
        })
    }

    fn finish(self) -> Result<Box<dyn Finalized>> {
        match self {
            Member::Cut(claim, apart) => Ok(with_apart(claim, apart)),
            Member::Other(one, frames, apart) => Ok(with_apart(one.finalize(frames)?, apart)),
        }
    }
}

fn downcast<T: InFlight>(one: Box<dyn InFlight>) -> std::result::Result<Box<T>, Box<dyn InFlight>> {
    if !(&*one as &dyn Any).is::<T>() {
        return Err(one);
    }
    (one as Box<dyn Any>).downcast().map_err(|_| unreachable!("it was asked for just now"))
}

/// Seals the parts of all members that were cut from windows, those that touch by one call.
fn seal_together(members: &[Member]) -> Result<()> {
    let claims = members.iter().filter_map(|member| match member {
        Member::Cut(claim, _) => Some(claim),
        Member::Other(..) => None,
    });
    let mut parts: Vec<(&Arc<Window>, SegmentKind, Range<u64>)> = claims
        .flat_map(|claim| SegmentKind::ALL.map(|pool| (&claim.home.window, pool, extent(claim, pool))))
        .filter(|(_, _, range)| !range.is_empty())
        .collect();
    parts.sort_unstable_by_key(|(window, pool, range)| (Arc::as_ptr(window) as usize, pool.index(), range.start));
    let mut runs: Vec<(&Arc<Window>, SegmentKind, Range<u64>)> = Vec::new();
    for (window, pool, range) in parts {
        match runs.last_mut() {
            Some((before, same, run)) if Arc::ptr_eq(before, window) && *same == pool && run.end == range.start => {
                run.end = range.end;
            }
            _ => runs.push((window, pool, range)),
        }
    }
    for (window, pool, run) in runs {
        // SAFETY: M1, M6 - every byte of the run is of a part of this batch, which owns it and has opened it.
        unsafe { window.mapped.seal(pool, run.start, run.end - run.start) }?;
    }
    Ok(())
}

/// Bytes of a claim's part, from the start of the pool.
fn extent(claim: &SlabAllocation, pool: SegmentKind) -> Range<u64> {
    let part = &claim.parts[pool.index()];
    let start = u64::from(part.offset) * granule(pool);
    start..start + u64::from(part.granules) * granule(pool)
}
