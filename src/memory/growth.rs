//! How the pools of a [`Window`] open and close.
//!
//! A pool opens from its end downwards, by *slabs*. Each slab belongs to one shard.
//!
//! A slab of code opens in steps, also downwards: each step stores into the frame table, and touches new pages of it. So the
//! link that needs more code pays for one step and not for a slab. Only the lowest slab is open in part. The table is sorted
//! down to the lowest open text, so the rest of that slab opens before another shard gets a slab below it.
//!
//! ```text
//!   code pool   … not open │ rest │ step │ step │ slab of shard 1 │ slab of shard 0 │
//!                          └─ lowest slab, shard 0 ─┘
//! ```
//!
//! A purge closes the lowest slabs that are empty. Model: `loom_tests/loom_growth.rs`.

use crate::base::{MemoryEvent, SegmentKind, align_up};
use crate::error::Result;
use crate::memory::events::EventBuf;
use crate::memory::layout::{CHUNK, TEXT_GRANULE, granule_size};
use crate::memory::window::{Growth, ShardLock, Window};
use crate::sync::{MutexGuard, seeded_bug};

impl Window {
    /// Opens as much of a pool as the request needs, below what is open, and adds it to a shard.
    pub(crate) fn grow(
        &self,
        shard: usize,
        pool: SegmentKind,
        request: (u32, u32),
        events: &mut EventBuf,
    ) -> Result<()> {
        let mut growth = self.growth.lock();
        let mut shortfall = self.shortfall(shard, pool, request, &growth);
        if shortfall == 0 {
            return Ok(()); // another thread has freed enough meanwhile
        }
        if seeded_bug!("grown_under_a_later_lock") {
            drop(growth);
            growth = self.growth.lock();
        }
        if pool == SegmentKind::Code && growth.code_owner != shard && self.unopened_part(&growth) > 0 {
            let (owner, rest) = (growth.code_owner, self.unopened_part(&growth));
            growth = self.open_below(owner, pool, rest, growth, events);
            shortfall = self.shortfall(shard, pool, request, &growth);
        }
        let (needed, open) = (u64::from(shortfall) * granule_size(pool), growth.opened[pool.index()]);
        let unopened = self.layout.pool(pool).size - open;
        // The open part is rounded, not what is added: a purge closes single chunks, and the slabs that open after it
        // still end where `purge.rs` expects it.
        let rounded =
            self.growth_units(pool).map(|unit| align_up(open + needed, unit).map_or(u64::MAX, |end| end - open));
        let added = rounded.into_iter().chain([unopened]).find(|added| *added <= unopened);
        let Some(added) = added.filter(|added| *added >= needed) else {
            drop(growth);
            return Err(self.pool_exhausted(pool, u64::from(request.0) * granule_size(pool)).into());
        };
        if pool == SegmentKind::Code {
            growth.code_owner = shard;
        }
        drop(self.open_below(shard, pool, added, growth, events));
        Ok(())
    }

    /// The granules that a shard lacks for a request, right below the open part of the pool.
    fn shortfall(&self, shard: usize, pool: SegmentKind, request: (u32, u32), growth: &Growth) -> u32 {
        let lowest_open = ((self.layout.pool(pool).size - growth.opened[pool.index()]) / granule_size(pool)) as u32;
        self.shards[shard].0.lock().spaces[pool.index()].free.shortfall(lowest_open, request.0, request.1)
    }

    /// The bytes by which a pool grows, best first.
    fn growth_units(&self, pool: SegmentKind) -> [u64; 2] {
        if self.opens_in_steps(pool) { [CODE_STEP, CODE_STEP] } else { [self.slab_size, CHUNK] }
    }

    /// Whether a slab of the pool opens in steps. A larger slab that the embedder asked for opens at once.
    fn opens_in_steps(&self, pool: SegmentKind) -> bool {
        pool == SegmentKind::Code && self.slab_size == CHUNK
    }

    /// The bytes of the lowest slab of code that are not open yet.
    fn unopened_part(&self, growth: &Growth) -> u64 {
        (self.layout.pool(SegmentKind::Code).size - growth.opened[SegmentKind::Code.index()]) % CHUNK
    }

    /// Opens `added` bytes of a pool below what is open, and adds them to a shard.
    fn open_below<'a>(
        &'a self,
        shard: usize,
        pool: SegmentKind,
        added: u64,
        mut growth: MutexGuard<'a, Growth>,
        events: &mut EventBuf,
    ) -> MutexGuard<'a, Growth> {
        let start = self.layout.pool(pool).size - growth.opened[pool.index()] - added;
        if let (SegmentKind::Code, Some(frames)) = (pool, &self.frames) {
            frames.open(start / TEXT_GRANULE, added / TEXT_GRANULE);
        }
        growth.opened[pool.index()] += added;
        if let (SegmentKind::Data, Some(segment)) = (pool, &self.data_segment) {
            segment.grow(growth.opened[pool.index()]);
        }
        if seeded_bug!("slab_added_under_a_later_lock") {
            drop(growth);
            growth = self.growth.lock();
        }
        let (offset, granules) = ((start / granule_size(pool)) as u32, (added / granule_size(pool)) as u32);
        self.shards[shard].0.lock().spaces[pool.index()].free.add(offset, granules);
        let address = self.pool_starts[pool.index()].offset(start);
        self.sink.record(events, MemoryEvent::SlabOpened { pool, address, bytes: added });
        growth
    }

    /// Opens the rest of the lowest slab of code if its open part is entirely free, so that it is a free slab.
    pub(crate) fn open_rest_of_free_slab(&self, events: &mut EventBuf) {
        let growth = self.growth.lock();
        let (owner, rest) = (growth.code_owner, self.unopened_part(&growth));
        if rest == 0 {
            return;
        }
        let lowest = self.layout.pool(SegmentKind::Code).size - growth.opened[SegmentKind::Code.index()];
        let [offset, granules] = [lowest, CHUNK - rest].map(|bytes| (bytes / TEXT_GRANULE) as u32);
        let is_free = self.shards[owner].0.lock().spaces[SegmentKind::Code.index()].free.is_free_part(offset, granules);
        if is_free {
            drop(self.open_below(owner, SegmentKind::Code, rest, growth, events));
        }
    }

    /// Closes the lowest open slabs, as far as they are empty, so that any shard may open them again. Their pages of
    /// the frame table return to the kernel.
    pub(crate) fn close_slabs(&self, growth: &mut Growth, events: &mut EventBuf) {
        for pool in SegmentKind::ALL.into_iter().filter(|pool| self.may_purge(*pool)) {
            let (size, opened) = (self.layout.pool(pool).size, &mut growth.opened[pool.index()]);
            let lowest = size - *opened;
            while *opened > 0 {
                // The lowest slab may be open in part.
                let bytes = CHUNK - (size - *opened) % CHUNK;
                let [offset, granules] = [size - *opened, bytes].map(|bytes| (bytes / granule_size(pool)) as u32);
                let withdraw = |shard: &ShardLock| shard.0.lock().spaces[pool.index()].withdraw(offset, granules);
                if !self.shards.iter().any(withdraw) {
                    break;
                }
                *opened -= bytes;
            }
            let closed = size - *opened - lowest;
            if closed > 0 {
                let address = self.pool_starts[pool.index()].offset(lowest);
                self.sink.record(events, MemoryEvent::SlabClosed { pool, address, bytes: closed });
            }
        }
        if let Some(segment) = &self.data_segment {
            segment.shrink(growth.opened[SegmentKind::Data.index()]);
        }
        if let Some(frames) = &self.frames {
            let closed_code = self.layout.pool(SegmentKind::Code).size - growth.opened[SegmentKind::Code.index()];
            // SAFETY: M5 - the caller holds `growth`, so no code opens meanwhile, and no code below `closed_code` is
            // open. So no allocation owns these slots.
            unsafe { frames.close_below(closed_code / TEXT_GRANULE) };
        }
    }
}

/// The bytes by which a slab of code opens: two pages of the frame table.
const CODE_STEP: u64 = 64 << 10;
