//! [`GroupCounts`]: how many allocations each group has.
//!
//! A window has counts of its own, so that a group goes into a window that has it. The windows below 2 GiB share one
//! more, so that a group that has an allocation there goes there (`windows.rs`). Group zero is no group and is never
//! counted.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::sync::Mutex;

/// The number of allocations of each group. A group without allocations has no entry.
pub(crate) struct GroupCounts(Mutex<FxHashMap<u64, usize>>);

impl GroupCounts {
    pub(crate) fn new() -> GroupCounts {
        GroupCounts(Mutex::new(FxHashMap::default()))
    }

    /// Whether the group has an allocation. Never true for group zero.
    pub(crate) fn contains(&self, group: u64) -> bool {
        group != 0 && self.0.lock().contains_key(&group)
    }

    #[inline]
    pub(crate) fn add(&self, group: u64) {
        if group != 0 {
            *self.0.lock().entry(group).or_default() += 1;
        }
    }

    pub(crate) fn remove(&self, group: u64) {
        if group == 0 {
            return;
        }
        if let Entry::Occupied(mut count) = self.0.lock().entry(group) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
