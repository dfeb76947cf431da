//! [`SlabAllocation`]: one allocation of a window. It is in flight until it is sealed, and finalized after that.
//!
//! | step | function | memory is |
//! |---|---|---|
//! | 1 | [`new_allocation`] | writable through the working view, zeroed where the plan says so |
//! | 2 | [`write_frames`](SlabMemory::write_frames) | known to the unwinder |
//! | 3 | `Window::seal_spans`, [`mark_sealed`](SlabMemory::mark_sealed) | in its final protection |
//! | 4 | `drop`, in any state | free |
//!
//! A session has one for each link, so it is small: it has records of the pools only from which it has memory. Their number is part
//! of the type, [`SlabMemory`] stands for all of the types.

use std::ptr;

use crate::arch::{FETCHES_EARLY, flush_code};
use crate::base::{ExecutorAddr, RecycledVec, SegmentKind, pair, sort_by_number};
use crate::error::{MemoryFault, Result};
use crate::memory::allocation::{Finalized, InFlight, downcast, not_written};
use crate::memory::fork_guard::before_writing;
use crate::memory::frame::Frame;
use crate::memory::layout::{DATA_GRANULE, TEXT_GRANULE, granule_size};
use crate::memory::plan::SegmentPlan;
use crate::memory::shard::{PoolPart, PoolParts, PoolSpan, Reservation, pool_count};
use crate::memory::statistics::MemoryUsage;
use crate::memory::window::{ShardRef, Window, only_span};
use crate::prefetch::prefetch_to_write;
use crate::sync::{Arc, MappedU64, synchronize_processors};

/// Bytes of a segment that are prefetched. The hardware prefetcher brings the bytes after them.
const PREFETCH_BYTES: usize = 2 << 10;

/// An allocation with memory of `N` pools.
struct SlabAllocation<const N: usize> {
    /// The shard that the memory came from. It keeps the window (M4).
    shard: Arc<ShardRef>,
    /// As in the plan.
    group: u64,
    parts: [PoolPart; N],
    /// The pool of each part.
    pools: [SegmentKind; N],
    is_sealed: bool,
}

/// An allocation of a window, whatever number of pools it has memory of.
pub(crate) trait SlabMemory: InFlight + Finalized {
    fn window(&self) -> &Arc<Window>;

    /// The spans by pool.
    fn spans(&self) -> [PoolSpan; 3];

    /// Writes the frames that start in the code of this allocation into the frame table. Only sealing comes after it.
    ///
    /// # Errors
    /// If there are more frames than planned.
    fn write_frames(&mut self, frames: Vec<Frame>) -> Result<()>;

    /// Records that all spans have their final protection, and makes the code visible to instruction fetches. The caller calls
    /// `synchronize_processors` after it.
    fn mark_sealed(&mut self);
}

/// Turns a reservation into an allocation that is writable, and zero where the plan says so.
///
/// # Errors
/// If the kernel refuses to make the memory writable. The memory is free then.
pub(crate) fn new_allocation(
    shard: &Arc<ShardRef>,
    plan: &SegmentPlan,
    reservation: &Reservation,
) -> Result<Box<dyn InFlight>> {
    match pool_count(&reservation.spans) {
        0 => SlabAllocation::<0>::open(shard, plan, reservation),
        1 => SlabAllocation::<1>::open(shard, plan, reservation),
        2 => SlabAllocation::<2>::open(shard, plan, reservation),
        _ => SlabAllocation::<3>::open(shard, plan, reservation),
    }
}

/// Bytes of the records of these numbers of allocations, by the number of their pools.
pub(crate) fn record_bytes(allocations: &[usize; 4]) -> u64 {
    let sizes = [
        size_of::<SlabAllocation<0>>(),
        size_of::<SlabAllocation<1>>(),
        size_of::<SlabAllocation<2>>(),
        size_of::<SlabAllocation<3>>(),
    ];
    allocations.iter().zip(sizes).map(|(count, size)| (count * size) as u64).sum()
}

/// Returns an allocation of a window, or `allocation` itself if it is none.
pub(crate) fn slab_memory(
    allocation: Box<dyn InFlight>,
) -> std::result::Result<Box<dyn SlabMemory>, Box<dyn InFlight>> {
    let allocation = match downcast::<SlabAllocation<1>>(allocation) {
        Ok(found) => return Ok(found),
        Err(other) => other,
    };
    let allocation = match downcast::<SlabAllocation<2>>(allocation) {
        Ok(found) => return Ok(found),
        Err(other) => other,
    };
    let allocation = match downcast::<SlabAllocation<3>>(allocation) {
        Ok(found) => return Ok(found),
        Err(other) => other,
    };
    Ok(downcast::<SlabAllocation<0>>(allocation)?)
}

impl<const N: usize> SlabAllocation<N> {
    /// As [`new_allocation`], for a reservation of `N` pools.
    fn open(shard: &Arc<ShardRef>, plan: &SegmentPlan, reservation: &Reservation) -> Result<Box<dyn InFlight>> {
        let mut allocation = Box::new(SlabAllocation {
            shard: shard.clone(),
            group: plan.group,
            parts: [PoolPart { span: PoolSpan::default(), size: 0 }; N],
            pools: [SegmentKind::Code; N],
            is_sealed: false,
        });
        let reserved = SegmentKind::ALL.into_iter().filter(|pool| reservation.spans[pool.index()].id.is_some());
        for ((part, its_pool), pool) in allocation.parts.iter_mut().zip(&mut allocation.pools).zip(reserved) {
            let span = reservation.spans[pool.index()];
            (*part, *its_pool) = (PoolPart { span, size: plan.segment(pool).size as u32 }, pool);
        }
        // SAFETY: M1 - the free space of this window has given the spans to this reservation, and `allocation` now owns
        // them.
        unsafe { shard.window.open_spans(&reservation.spans) }?;
        if reservation.is_cold {
            allocation.prefetch();
        }
        for (pool, range) in &reservation.to_zero {
            allocation.working(*pool)[range.start as usize..range.end as usize].fill(0);
        }
        Ok(allocation)
    }

    /// Prefetches the bytes that the link writes first. If much memory is live, reused memory is in no cache. Without a
    /// prefetch, the thread waits for all of its stores at the next lock.
    fn prefetch(&mut self) {
        for pool in self.pools {
            let bytes = self.working(pool);
            prefetch_to_write(&bytes[..bytes.len().min(PREFETCH_BYTES)]);
        }
    }

    fn parts(&self) -> PoolParts<'_> {
        PoolParts { parts: &self.parts, pools: &self.pools }
    }

    /// What the allocation has of a pool.
    #[inline]
    fn part(&self, pool: SegmentKind) -> PoolPart {
        self.parts().of(pool).copied().unwrap_or(PoolPart { span: PoolSpan::default(), size: 0 })
    }

    /// Requested bytes of a pool.
    fn size(&self, pool: SegmentKind) -> u64 {
        u64::from(self.part(pool).size)
    }
}

/// Whether all frames start in `[start, end)`, in ascending order, as compilers usually write them.
fn are_in_order(frames: &[Frame], start: ExecutorAddr, end: ExecutorAddr) -> bool {
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return true };
    first.start >= start && last.start < end && frames.windows(2).all(|pair| pair[0].start < pair[1].start)
}

impl<const N: usize> SlabMemory for SlabAllocation<N> {
    fn window(&self) -> &Arc<Window> {
        &self.shard.window
    }

    #[inline]
    fn spans(&self) -> [PoolSpan; 3] {
        let mut spans = [PoolSpan::default(); 3];
        for (part, pool) in self.parts.iter().zip(self.pools) {
            spans[pool.index()] = part.span;
        }
        spans
    }

    fn write_frames(&mut self, frames: Vec<Frame>) -> Result<()> {
        let mut frames = RecycledVec::from(frames);
        let PoolPart { span: code, size } = self.part(SegmentKind::Code);
        let start = self.shard.window.address(SegmentKind::Code, &code);
        let end = start.offset(u64::from(size));
        if !are_in_order(&frames, start, end) {
            frames.retain(|frame| (start..end).contains(&frame.start));
            // Compilers often place the cold part of a function before the function, and its frame after the frame of
            // the function. One pass over adjacent pairs sorts these, and leaves little work for the sort.
            for index in 1..frames.len() {
                if frames[index] < frames[index - 1] {
                    frames.swap(index, index - 1);
                }
            }
            sort_by_number(&mut frames, |frame| pair(frame.start.value(), frame.fde.value()));
            frames.dedup_by_key(|frame| frame.start);
        }
        if frames.len() as u64 > u64::from(code.granules) {
            return Err(MemoryFault::BadPlan {
                pool: SegmentKind::Code.name(),
                size: u64::from(size),
                align: TEXT_GRANULE,
                problem: "the code has more frames than were planned",
            }
            .into());
        }
        if let Some(table) = &self.shard.window.frames {
            table.fill(u64::from(code.offset), u64::from(code.granules), &frames);
        }
        Ok(())
    }

    fn mark_sealed(&mut self) {
        self.shard.window.mapped.wait_for_fork();
        self.is_sealed = true;
        // The process that runs a copy does this for its own caches.
        if FETCHES_EARLY && !self.shard.window.mapped.is_copied() {
            let running = InFlight::address(self, SegmentKind::Code).value() as *const u8;
            let written = self.working(SegmentKind::Code);
            // SAFETY: M1, M4 - both are views of the span, which this allocation owns in a window that it keeps.
            unsafe { flush_code(written.as_ptr(), running, written.len()) };
        }
    }
}

impl<const N: usize> InFlight for SlabAllocation<N> {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.shard.window.address(pool, &self.part(pool).span)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        let PoolPart { span, size } = self.part(pool);
        // SAFETY: M1 - this allocation owns the span, `open` has opened it, and the slice borrows `self` mutably, so
        // there is no other reference to its bytes.
        unsafe { self.shard.window.working_bytes(pool, &span, u64::from(size)) }
    }

    fn finalize(mut self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        self.write_frames(frames)?;
        // SAFETY: M1 - this allocation owns the spans, and `open` has opened them.
        unsafe { self.shard.window.seal_spans(&self.spans()) }?;
        self.mark_sealed();
        synchronize_processors();
        Ok(self)
    }
}

impl<const N: usize> Finalized for SlabAllocation<N> {
    fn free_space_record(&self) -> Option<usize> {
        self.shard.window.free_space_record(self.shard.index, self.parts())
    }

    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        InFlight::address(self, pool)
    }

    fn usage(&self) -> MemoryUsage {
        let size = |pool| self.size(pool);
        MemoryUsage {
            allocations: 1,
            code: size(SegmentKind::Code),
            read_only: size(SegmentKind::ReadOnly),
            data: size(SegmentKind::Data),
            reserved: self.parts().reserved_bytes(),
            metadata: size_of::<Self>() as u64,
        }
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        let PoolPart { span, size } = self.part(SegmentKind::Data);
        let fits = offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= u64::from(size));
        if !self.is_sealed || !fits {
            return None;
        }
        let start = u64::from(span.offset) * DATA_GRANULE + offset;
        // SAFETY: M6 - `fits` says that the word is aligned and inside the data segment, and the free space gave out
        // its span.
        let word = unsafe { self.shard.window.mapped.working_view(SegmentKind::Data).add(start as usize) };
        // SAFETY: M1, M3, M4 - this allocation owns the word and keeps its window. It is sealed, so only running code
        // and atomic stores through this reference access the word.
        Some(unsafe { &*word.cast::<MappedU64>() })
    }

    fn is_copied(&self) -> bool {
        self.shard.window.mapped.is_copied()
    }

    fn word_stored(&self, word: &MappedU64) {
        let window = &self.shard.window;
        if window.mapped.is_copied() {
            let start = window.mapped.working_view(SegmentKind::Data).addr();
            let offset = (std::ptr::from_ref(word).addr() - start) as u64;
            window.mapped.changed(window.layout.pool(SegmentKind::Data).offset + offset, 8);
            window.mapped.send_changes();
        }
    }

    unsafe fn write(&self, pool: SegmentKind, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        let PoolPart { span, size } = self.part(pool);
        if pool == SegmentKind::Code || !self.is_sealed || end.is_none_or(|end| end > u64::from(size)) {
            return Err(not_written(pool, bytes, "the range is not in a finalized segment of constants or data"));
        }
        // The allocation may be older than a fork, and this the first write in the child.
        before_writing();
        let window = &self.shard.window;
        let spans = only_span(pool, &span);
        // SAFETY: M1 - this allocation owns the span. M9 - the caller excludes other writers.
        unsafe { window.open_spans(&spans) }?;
        let start = u64::from(span.offset) * granule_size(pool) + offset;
        // SAFETY: M6 - `end` says that the range is inside the segment, and the free space gave out its span.
        let start = unsafe { window.mapped.working_view(pool).add(start as usize) };
        // SAFETY: M6 - the range is inside the span. M9 - no code uses it, and the caller's bytes are not in a window's memory
        // that is written.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        if window.mapped.is_copied() {
            // Not all of the span: code there may have written to the rest of it.
            let in_pool = u64::from(span.offset) * granule_size(pool) + offset;
            window.mapped.changed(window.layout.pool(pool).offset + in_pool, bytes.len() as u64);
            return Ok(());
        }
        // SAFETY: M1 - this allocation owns the span, and the lines above have opened it.
        unsafe { window.seal_spans(&spans) }
    }
}

impl<const N: usize> Drop for SlabAllocation<N> {
    fn drop(&mut self) {
        if !self.is_sealed {
            for (part, pool) in self.parts.iter().zip(self.pools) {
                // A span that the kernel does not seal stays writable and is not executable (M2).
                // SAFETY: M1 - this allocation still owns the span; `release` below frees it.
                let _ = unsafe { self.shard.window.seal_spans(&only_span(pool, &part.span)) };
            }
        }
        self.shard.window.release(self.shard.index, self.parts(), self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_of_one_pool_takes_40_bytes() {
        assert_eq!(
            (size_of::<SlabAllocation<1>>(), size_of::<SlabAllocation<2>>(), size_of::<SlabAllocation<3>>()),
            (40, 56, 72)
        );
    }

    #[test]
    fn frames_are_in_order_if_they_ascend_within_the_code() {
        let frame = |start| Frame { start: ExecutorAddr::new(start), fde: ExecutorAddr::new(1) };
        let in_order = |starts: &[u64]| {
            let frames: Vec<_> = starts.iter().copied().map(frame).collect();
            are_in_order(&frames, ExecutorAddr::new(10), ExecutorAddr::new(20))
        };
        assert!(in_order(&[]) && in_order(&[10]) && in_order(&[19]) && in_order(&[10, 11, 19]));
        assert!(!in_order(&[9]) && !in_order(&[9, 11]), "before the code");
        assert!(!in_order(&[20]) && !in_order(&[11, 20]), "after the code");
        assert!(!in_order(&[11, 10]) && !in_order(&[11, 11]), "not ascending");
    }
}
