//! Addresses, names and other small types.
//!
//! [`ExecutorAddr`] is an address, and [`Name`] is the name of a symbol. The containers of the crate are here, too, for the
//! crate itself.
//!
//! An address is a number in this room, never a pointer, because it may belong to another process.
//!
//! | group | types |
//! |---|---|
//! | values | [`ExecutorAddr`], [`Name`], [`SegmentKind`], [`TlsIndex`], [`MemoryEvent`], the linker-defined names |
//! | tables | `PagedArena` (values under generational keys), `SecondaryMap` (more values under the same keys), `SegmentedTable` (a hash table that grows in steps), `NumberMap` (an ordered map) |
//! | buffers that a thread uses again | `RecycledVec`, `PooledBox`, the cache of large buffers |
//! | threads | `ReentrantLock`, `ShardedArc`, [`CallEntry`] |
//! | the rest | `PrefetchHints`, `sort_by_number`, `sort_by_order` (sorts that are compiled once), the handling of panics of the embedder's code, the count of steps for tests |
//!
//! This room knows no symbol tables, maps no memory and reads no machine code.

mod addr;
mod call_entry;
mod chunk_list;
mod large_buffer_cache;
mod linker_names;
mod memory_event;
mod name;
mod number_map;
mod paged_arena;
mod panics;
mod pooled_box;
mod prefetch_hints;
mod recycled_vec;
mod reentrant_lock;
mod secondary_map;
mod segment_kind;
mod segmented_table;
mod sharded_arc;
mod sort_by_number;
mod step_count;
mod tls_index;

pub use addr::ExecutorAddr;
pub use call_entry::CallEntry;
pub(crate) use call_entry::{
    CallRecord, CodeHold, HostCalls, enable_call_entry, enter_host_call, is_call_entry_enabled,
};
pub(crate) use chunk_list::{ChunkList, ChunkListIter};
pub(crate) use large_buffer_cache::clear_thread_cache;
pub(crate) use linker_names::{LINKER_DEFINED, is_linker_defined, linker_made_hint};
pub use memory_event::MemoryEvent;
pub use name::Name;
pub(crate) use name::{NameRef, until_nul};
pub(crate) use number_map::{NumberMap, NumberTree};
pub(crate) use paged_arena::{PagedArena, SlotNumber};
pub(crate) use panics::{Payload, catch, discard, text_of};
pub(crate) use pooled_box::{Pooled, PooledBox};
pub(crate) use prefetch_hints::PrefetchHints;
pub(crate) use recycled_vec::{FreeList, Recycle, RecycledVec, impl_recycle};
pub(crate) use reentrant_lock::{ReentrantGuard, ReentrantLock};
pub(crate) use secondary_map::SecondaryMap;
pub use segment_kind::SegmentKind;
pub(crate) use segmented_table::SegmentedTable;
pub(crate) use sharded_arc::{ArcShard, ShardedArc};
pub(crate) use sort_by_number::{pair, sort_by_number, sort_by_order};
pub(crate) use step_count::count_step;
#[cfg(all(test, not(loom)))]
pub(crate) use step_count::steps_of;
pub use tls_index::TlsIndex;

/// A test size: `usual` in a native run, `under_miri` where Miri interprets the test.
#[cfg(test)]
pub(crate) const fn sized(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}

/// Rounds `value` up to a multiple of `align`, which is a power of two. `None` when the result does not fit.
pub(crate) fn align_up(value: u64, align: u64) -> Option<u64> {
    debug_assert!(align.is_power_of_two());
    Some(value.checked_add(align - 1)? & !(align - 1))
}

/// The capacity to which a table must shrink: twice its length, once it fills less than an eighth of a capacity above 64.
/// `None` when the table keeps its capacity. So a table that was large frees its memory, and rarely reallocates.
pub(crate) fn shrunk_capacity(length: usize, capacity: usize) -> Option<usize> {
    (capacity > 64 && length < capacity / 8).then_some(length * 2)
}

#[cfg(test)]
mod tests {
    use super::shrunk_capacity;

    #[test]
    fn a_table_shrinks_to_twice_its_length_when_it_fills_less_than_an_eighth() {
        assert_eq!(shrunk_capacity(0, 64), None);
        assert_eq!(shrunk_capacity(0, 65), Some(0));
        assert_eq!(shrunk_capacity(99, 800), Some(198));
        assert_eq!(shrunk_capacity(100, 800), None);
    }
}
