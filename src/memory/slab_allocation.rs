//! [`SlabAllocation`]: one allocation, in flight until it is sealed, then finalized. Its drop gives everything back.

use crate::base::{ExecutorAddr, RecycledVec, SegmentKind};
use crate::error::{MemoryFault, Result};
use crate::memory::frame_table::Frame;
use crate::memory::layout::{DATA_GRANULE, TEXT_GRANULE};
use crate::memory::manager::{Finalized, InFlight, MemoryUsage};
use crate::memory::plan::{PoolPlan, SegmentPlan};
use crate::memory::shard::{PoolSpan, Reservation, held_by};
use crate::memory::window::{ShardRef, only};
use crate::prefetch::prefetch_to_write;
use crate::sync::{Arc, MappedU64};

/// Bytes of a segment that are asked for ahead: of more, a processor has asked itself when it comes to them.
const AT_ONCE: usize = 2 << 10;

pub(crate) struct SlabAllocation {
    /// Whose memory it is; keeps the window (M4).
    pub(crate) home: Arc<ShardRef>,
    pub(crate) plan: PoolPlan,
    pub(crate) parts: [PoolSpan; 3],
    sealed: bool,
}

impl SlabAllocation {
    /// Makes what was taken out of a shard's books an allocation: writable, and zero where the plan says so.
    pub(crate) fn new(home: &Arc<ShardRef>, plan: &SegmentPlan, claimed: &Reservation) -> Result<Box<SlabAllocation>> {
        let mut claim =
            Box::new(SlabAllocation { home: home.clone(), plan: plan.pools(), parts: claimed.parts, sealed: false });
        // SAFETY: M1 - taken out of the books for this allocation.
        unsafe { home.window.open_parts(&claim.parts) }?;
        if claimed.is_far {
            claim.prefetch();
        }
        for (pool, range) in &claimed.dirt {
            claim.working(*pool)[range.start as usize..range.end as usize].fill(0);
        }
        Ok(claim)
    }
}

impl SlabAllocation {
    /// Asks for what is written soon. Memory that was used before is in no cache where much is alive, and whoever writes to it
    /// waits at the next lock until all of it has come.
    fn prefetch(&mut self) {
        for pool in SegmentKind::ALL {
            let bytes = self.working(pool);
            prefetch_to_write(&bytes[..bytes.len().min(AT_ONCE)]);
        }
    }

    /// Lets the unwinder know of the frames that start in this allocation's code: the last but one thing before it is
    /// sealed.
    ///
    /// # Errors
    /// When there are more of them than were planned.
    pub(crate) fn enter_frames(&mut self, frames: Vec<Frame>) -> Result<()> {
        let mut frames = RecycledVec::from(frames);
        let code = &self.parts[SegmentKind::Code.index()];
        let start = self.home.window.address(SegmentKind::Code, code);
        let end = start.offset(self.plan.size(SegmentKind::Code));
        if !are_in_order(&frames, start, end) {
            frames.retain(|frame| (start..end).contains(&frame.start));
            // Mostly a function stands behind its own unlikely parts, whose frames are behind its.
            for at in 1..frames.len() {
                if frames[at] < frames[at - 1] {
                    frames.swap(at, at - 1);
                }
            }
            frames.sort_unstable();
            frames.dedup_by_key(|frame| frame.start);
        }
        if frames.len() as u64 > u64::from(code.granules) {
            return Err(MemoryFault::BadPlan {
                pool: SegmentKind::Code.name(),
                size: self.plan.size(SegmentKind::Code),
                align: TEXT_GRANULE,
                problem: "the code has more frames than were planned",
            }
            .into());
        }
        if let Some(table) = &self.home.window.frames {
            table.fill(u64::from(code.offset), u64::from(code.granules), &frames);
        }
        Ok(())
    }

    /// Takes note that all parts have their final protection.
    pub(crate) fn mark_sealed(&mut self) {
        self.home.window.mapped.settle();
        self.sealed = true;
    }
}

/// Whether every frame starts in the range, and behind the one before: as compilers write them.
fn are_in_order(frames: &[Frame], start: ExecutorAddr, end: ExecutorAddr) -> bool {
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return true };
    first.start >= start && last.start < end && frames.windows(2).all(|pair| pair[0].start < pair[1].start)
}

impl InFlight for SlabAllocation {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.home.window.address(pool, &self.parts[pool.index()])
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        // SAFETY: M1 - this allocation's part, opened by `new` and borrowed with `self`.
        unsafe { self.home.window.bytes(pool, &self.parts[pool.index()], self.plan.size(pool)) }
    }

    fn finalize(mut self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        self.enter_frames(frames)?;
        // SAFETY: M1 - this allocation's parts, opened by `new`.
        unsafe { self.home.window.seal_parts(&self.parts) }?;
        self.mark_sealed();
        Ok(self)
    }
}

impl Finalized for SlabAllocation {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        InFlight::address(self, pool)
    }

    fn usage(&self) -> MemoryUsage {
        let size = |pool| self.plan.size(pool);
        MemoryUsage {
            allocations: 1,
            code: size(SegmentKind::Code),
            read_only: size(SegmentKind::ReadOnly),
            data: size(SegmentKind::Data),
            reserved: held_by(&self.parts),
            metadata: size_of::<SlabAllocation>() as u64,
        }
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        let fits = offset.is_multiple_of(8)
            && offset.checked_add(8).is_some_and(|end| end <= self.plan.size(SegmentKind::Data));
        if !self.sealed || !fits {
            return None;
        }
        let part = &self.parts[SegmentKind::Data.index()];
        let start = u64::from(part.offset) * DATA_GRANULE + offset;
        // SAFETY: M1, M3, M6 - inside this allocation's data segment by `fits`, aligned, and only ever read by running
        // code and written by this allocation's stores, all atomic on aligned words.
        Some(unsafe {
            &*self.home.window.mapped.working_view(SegmentKind::Data).add(start as usize).cast::<MappedU64>()
        })
    }
}

impl Drop for SlabAllocation {
    fn drop(&mut self) {
        if !self.sealed {
            for pool in SegmentKind::ALL {
                // What cannot be sealed stays writable, and is not executable.
                // SAFETY: M1 - as in `finalize`.
                let _ = unsafe { self.home.window.seal_parts(&only(pool, &self.parts[pool.index()])) };
            }
        }
        self.home.window.release(self.home.shard, &self.parts, &self.plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_in_order_that_ascend_within_the_code() {
        let frame = |start| Frame { start: ExecutorAddr::new(start), fde: ExecutorAddr::new(1) };
        let is_so = |starts: &[u64]| {
            let frames: Vec<_> = starts.iter().copied().map(frame).collect();
            are_in_order(&frames, ExecutorAddr::new(10), ExecutorAddr::new(20))
        };
        assert!(is_so(&[]) && is_so(&[10]) && is_so(&[19]) && is_so(&[10, 11, 19]));
        assert!(!is_so(&[9]) && !is_so(&[9, 11]), "before the code");
        assert!(!is_so(&[20]) && !is_so(&[11, 20]), "behind the code");
        assert!(!is_so(&[11, 10]) && !is_so(&[11, 11]), "not ascending");
    }
}
