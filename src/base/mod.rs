//! Ground words that every room speaks: addresses, names, pools.
//!
//! An address is a number here, never a pointer: it may belong to another process. This room knows no symbol, no
//! memory and no machine code.

mod addr;
mod call_entry;
mod large_buffer_cache;
mod linker_names;
mod memory_event;
mod name;
mod paged_arena;
mod panics;
mod pooled_box;
mod prefetch_hints;
mod recycled_vec;
mod reentrant_lock;
mod secondary_map;
mod segment_kind;
mod sharded_arc;
mod tls_index;

pub use addr::ExecutorAddr;
pub use call_entry::CallEntry;
pub(crate) use call_entry::{
    CallRecord, CodeHold, HostCalls, are_calls_entered, enter_calls_from_now_on, enter_host_call,
};
pub(crate) use large_buffer_cache::clear_thread_cache;
pub(crate) use linker_names::{LINKER_MADE, is_linker_made};
pub use memory_event::MemoryEvent;
pub use name::Name;
pub(crate) use name::{NameRef, ahead_of_null};
pub(crate) use paged_arena::{PagedArena, SlotNumber};
pub(crate) use panics::{Payload, catch, discard, text_of};
pub(crate) use pooled_box::{Pooled, PooledBox};
pub(crate) use prefetch_hints::PrefetchHints;
pub(crate) use recycled_vec::{FreeList, Recycle, RecycledVec, impl_recycle};
pub(crate) use reentrant_lock::{ReentrantGuard, ReentrantLock};
pub(crate) use secondary_map::SecondaryMap;
pub use segment_kind::SegmentKind;
pub(crate) use sharded_arc::{ArcShard, ShardedArc};
pub use tls_index::TlsIndex;

/// How many of something a test does: few where Miri interprets it.
#[cfg(test)]
pub(crate) const fn sized(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}

/// Rounds up to a multiple of `align`, a power of two; `None` when that does not fit.
pub(crate) fn align_up(value: u64, align: u64) -> Option<u64> {
    debug_assert!(align.is_power_of_two());
    Some(value.checked_add(align - 1)? & !(align - 1))
}

/// The capacity to which a table is shrunk: twice its length, once it fills less than an eighth of a capacity above 64.
/// `None` when it stays as it is. So a table that was large once gives its memory back, and rarely pays for it.
pub(crate) fn capacity_to_keep(length: usize, capacity: usize) -> Option<usize> {
    (capacity > 64 && length < capacity / 8).then_some(length * 2)
}

#[cfg(test)]
mod tests {
    use super::capacity_to_keep;

    #[test]
    fn a_table_is_shrunk_to_twice_its_length_when_it_fills_less_than_an_eighth() {
        assert_eq!(capacity_to_keep(0, 64), None);
        assert_eq!(capacity_to_keep(0, 65), Some(0));
        assert_eq!(capacity_to_keep(99, 800), Some(198));
        assert_eq!(capacity_to_keep(100, 800), None);
    }
}
