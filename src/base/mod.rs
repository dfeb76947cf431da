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
