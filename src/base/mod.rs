//! Ground words that every room speaks: addresses, names, pools.
//!
//! An address is a number here, never a pointer: it may belong to another process. This room knows no symbol, no
//! memory and no machine code.

mod addr;
mod call_entry;
mod kept;
mod large_rooms;
mod linker_names;
mod memory_event;
mod name;
mod panics;
mod pool;
mod reused;
mod side_table;
mod slots;
mod spread;
mod thread_local;
mod turns;
mod whereabouts;

pub use addr::ExecutorAddr;
pub use call_entry::CallEntry;
pub(crate) use call_entry::{
    CallRecord, CodeHold, HostCalls, are_calls_entered, enter_calls_from_now_on, enter_host_call,
};
pub(crate) use kept::{Aside, Keep, Kept, keep};
pub(crate) use large_rooms::let_go as let_go_of_large_rooms;
pub(crate) use linker_names::{LINKER_MADE, is_linker_made};
pub use memory_event::MemoryEvent;
pub use name::Name;
pub(crate) use name::{NameRef, ahead_of_null};
pub(crate) use panics::{Payload, catch, discard, text_of};
pub use pool::Pool;
pub(crate) use reused::{Reuse, Reused};
pub(crate) use side_table::SideTable;
pub(crate) use slots::{SlotNumber, Slots};
pub(crate) use spread::{Share, Spread};
pub use thread_local::ThreadLocal;
pub(crate) use turns::{Turn, Turns};
pub(crate) use whereabouts::Whereabouts;

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

/// Whether a table of this length and capacity holds so little that it should be made smaller, to twice its length: rarely
/// enough that it costs nothing to speak of.
pub(crate) fn is_sparse(length: usize, capacity: usize) -> bool {
    capacity > 64 && length < capacity / 8
}
