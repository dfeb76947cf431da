//! [`SlabPoolOptions`]: the settings of a [`SlabPool`](crate::memory::SlabPool), as plain data.

use crate::memory::layout::{CHUNK, MAX_WINDOW};
use crate::memory::mapper::Placement;
use crate::sync::processors;

/// Settings of a [`SlabPool`](crate::memory::SlabPool).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabPoolOptions {
    /// Bytes of address space to reserve. If the kernel refuses, the pool tries half of it, down to 32 MiB.
    pub window_size: u64,
    /// Bytes by which a pool grows, rounded up to 2 MiB. A slab of code of 2 MiB opens in steps of 64 KiB.
    pub slab_size: u64,
    /// The number of shards: how many threads can link at the same time without waiting for a lock. 0 means one shard
    /// per processor, at most eight.
    pub shards: usize,
    /// The greatest number of bytes that allocations may hold, with padding and the frame table. An allocation beyond
    /// it fails. `None` means no limit.
    pub budget: Option<u64>,
    /// Whether free memory returns to the kernel in the background: late, in large pieces, by a thread that runs only
    /// while there is memory to return. Otherwise it returns on request only.
    pub returns_memory: bool,
    /// Whether freed code is filled with trap instructions, so that a call into it stops at once. The pages of such
    /// code do not return to the kernel. The default is on in builds with debug assertions.
    pub trap_freed_code: bool,
    /// Where in the address space windows are mapped.
    pub placement: Placement,
    /// What happens when a window is full.
    pub on_full: OnFull,
    /// Whether allocations share windows. Otherwise each allocation has a window of its own, which is unmapped when the
    /// allocation is freed. That finds faults, and costs a dozen system calls for each allocation.
    pub is_pooled: bool,
}

impl Default for SlabPoolOptions {
    fn default() -> Self {
        SlabPoolOptions {
            window_size: MAX_WINDOW,
            slab_size: CHUNK,
            shards: 0,
            budget: None,
            returns_memory: true,
            trap_freed_code: cfg!(debug_assertions),
            placement: Placement::default(),
            on_full: OnFull::default(),
            is_pooled: true,
        }
    }
}

impl SlabPoolOptions {
    pub(crate) fn shard_count(&self) -> usize {
        let count = if self.shards == 0 { processors().min(8) } else { self.shards.min(64) };
        if cfg!(loom) { 1 } else { count }
    }
}

/// What happens when a window is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFull {
    /// The allocation fails with [`MemoryFault::PoolExhausted`](crate::error::MemoryFault::PoolExhausted). Remove code
    /// and retry.
    #[default]
    Refuse,
    /// The pool opens another window. [`release_free`](crate::memory::MemoryManager::release_free) closes it when it is
    /// empty. A dylib that outgrows its window continues in the new one. A link fails if a displacement between the two
    /// does not reach.
    OpenAnother,
}
