//! [`SlabAllocation`]: one allocation of a window. It is in flight until it is sealed, and finalized after that.
//!
//! | step | function | memory is |
//! |---|---|---|
//! | 1 | [`new`](SlabAllocation::new) | writable through the working view, zeroed where the plan says so |
//! | 2 | [`write_frames`](SlabAllocation::write_frames) | known to the unwinder |
//! | 3 | `Window::seal_spans`, [`mark_sealed`](SlabAllocation::mark_sealed) | in its final protection |
//! | 4 | `drop`, in any state | free |

use std::ptr;

use crate::arch::{FETCHES_EARLY, flush_code};
use crate::base::{ExecutorAddr, RecycledVec, SegmentKind};
use crate::error::{MemoryFault, Result};
use crate::memory::allocation::{Finalized, InFlight, not_written};
use crate::memory::fork_guard::before_writing;
use crate::memory::frame::Frame;
use crate::memory::layout::{DATA_GRANULE, TEXT_GRANULE, granule_size};
use crate::memory::plan::{PoolPlan, SegmentPlan};
use crate::memory::shard::{PoolSpan, Reservation, reserved_bytes};
use crate::memory::statistics::MemoryUsage;
use crate::memory::window::{ShardRef, only_span};
use crate::prefetch::prefetch_to_write;
use crate::sync::{Arc, MappedU64, synchronize_processors};

/// Bytes of a segment that are prefetched. The hardware prefetcher brings the bytes after them.
const PREFETCH_BYTES: usize = 2 << 10;

pub(crate) struct SlabAllocation {
    /// The shard that the memory came from. It keeps the window (M4).
    pub(crate) shard: Arc<ShardRef>,
    pub(crate) plan: PoolPlan,
    pub(crate) spans: [PoolSpan; 3],
    is_sealed: bool,
}

impl SlabAllocation {
    /// Turns a reservation into an allocation that is writable, and zero where the plan says so.
    ///
    /// # Errors
    /// If the kernel refuses to make the memory writable. The memory is free then.
    pub(crate) fn new(
        shard: &Arc<ShardRef>,
        plan: &SegmentPlan,
        reservation: &Reservation,
    ) -> Result<Box<SlabAllocation>> {
        let mut allocation = Box::new(SlabAllocation {
            shard: shard.clone(),
            plan: plan.pool_plan(),
            spans: reservation.spans,
            is_sealed: false,
        });
        // SAFETY: M1 - the free space of this window has given the spans to this reservation, and `allocation` now owns
        // them.
        unsafe { shard.window.open_spans(&allocation.spans) }?;
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
        for pool in SegmentKind::ALL {
            let bytes = self.working(pool);
            prefetch_to_write(&bytes[..bytes.len().min(PREFETCH_BYTES)]);
        }
    }

    /// Writes the frames that start in the code of this allocation into the frame table. Only sealing comes after it.
    ///
    /// # Errors
    /// If there are more frames than planned.
    pub(crate) fn write_frames(&mut self, frames: Vec<Frame>) -> Result<()> {
        let mut frames = RecycledVec::from(frames);
        let code = &self.spans[SegmentKind::Code.index()];
        let start = self.shard.window.address(SegmentKind::Code, code);
        let end = start.offset(self.plan.size(SegmentKind::Code));
        if !are_in_order(&frames, start, end) {
            frames.retain(|frame| (start..end).contains(&frame.start));
            // Compilers often place the cold part of a function before the function, and its frame after the frame of
            // the function. One pass over adjacent pairs sorts these, and leaves little work for the sort.
            for index in 1..frames.len() {
                if frames[index] < frames[index - 1] {
                    frames.swap(index, index - 1);
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
        if let Some(table) = &self.shard.window.frames {
            table.fill(u64::from(code.offset), u64::from(code.granules), &frames);
        }
        Ok(())
    }

    /// Records that all spans have their final protection, and makes the code visible to instruction fetches. The caller calls
    /// `synchronize_processors` after it.
    pub(crate) fn mark_sealed(&mut self) {
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

/// Whether all frames start in `[start, end)`, in ascending order, as compilers usually write them.
fn are_in_order(frames: &[Frame], start: ExecutorAddr, end: ExecutorAddr) -> bool {
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return true };
    first.start >= start && last.start < end && frames.windows(2).all(|pair| pair[0].start < pair[1].start)
}

impl InFlight for SlabAllocation {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.shard.window.address(pool, &self.spans[pool.index()])
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        // SAFETY: M1 - this allocation owns the span, `new` has opened it, and the slice borrows `self` mutably, so
        // there is no other reference to its bytes.
        unsafe { self.shard.window.working_bytes(pool, &self.spans[pool.index()], self.plan.size(pool)) }
    }

    fn finalize(mut self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        self.write_frames(frames)?;
        // SAFETY: M1 - this allocation owns the spans, and `new` has opened them.
        unsafe { self.shard.window.seal_spans(&self.spans) }?;
        self.mark_sealed();
        synchronize_processors();
        Ok(self)
    }
}

impl Finalized for SlabAllocation {
    fn free_space_record(&self) -> usize {
        self.shard.window.free_space_record(self.shard.index, &self.spans)
    }

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
            reserved: reserved_bytes(&self.spans),
            metadata: size_of::<SlabAllocation>() as u64,
        }
    }

    fn word(&self, offset: u64) -> Option<&MappedU64> {
        let fits = offset.is_multiple_of(8)
            && offset.checked_add(8).is_some_and(|end| end <= self.plan.size(SegmentKind::Data));
        if !self.is_sealed || !fits {
            return None;
        }
        let span = &self.spans[SegmentKind::Data.index()];
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
        if pool == SegmentKind::Code || !self.is_sealed || end.is_none_or(|end| end > self.plan.size(pool)) {
            return Err(not_written(pool, bytes, "the range is not in a finalized segment of constants or data"));
        }
        // The allocation may be older than a fork, and this the first write in the child.
        before_writing();
        let (window, span) = (&self.shard.window, &self.spans[pool.index()]);
        let spans = only_span(pool, span);
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

impl Drop for SlabAllocation {
    fn drop(&mut self) {
        if !self.is_sealed {
            for pool in SegmentKind::ALL {
                // A span that the kernel does not seal stays writable and is not executable (M2).
                // SAFETY: M1 - this allocation still owns the span; `release` below frees it.
                let _ = unsafe { self.shard.window.seal_spans(&only_span(pool, &self.spans[pool.index()])) };
            }
        }
        self.shard.window.release(self.shard.index, &self.spans, &self.plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
