//! [`OwnedSymbols`]: the head and the length of a tracker's list of symbols (S1).
//!
//! It is in the tracker's core and not in its [`TrackerRecord`](super::TrackerRecord). A removal starts from the core, so it
//! can prefetch the symbols first. The lock of the tracker's dylib guards it: only a thread that holds this lock reads or
//! writes it.

use crate::base::SlotNumber;
use crate::session::types::symbol::SymbolId;
use crate::sync::{GuardedU32, Ordering};

#[derive(Default)]
pub(crate) struct OwnedSymbols {
    /// The number of a slot. Zero if the list is empty.
    first: GuardedU32,
    count: GuardedU32,
}

impl OwnedSymbols {
    /// The head of the list.
    pub(crate) fn first(&self) -> Option<SlotNumber<SymbolId>> {
        SlotNumber::from_number(self.first.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a new head.
    pub(super) fn add(&self, first: SlotNumber<SymbolId>) {
        self.add_all(Some(first), 1);
    }

    /// Adds `count` entries. `first` is the new head; the entries are linked, and the last of them to the old head.
    pub(super) fn add_all(&self, first: Option<SlotNumber<SymbolId>>, count: usize) {
        self.set(first, self.count() + count as u32);
    }

    /// Removes one entry. `first` is the new head, if the head has changed.
    pub(super) fn remove(&self, first: Option<Option<SlotNumber<SymbolId>>>) {
        self.set(first.unwrap_or_else(|| self.first()), self.count() - 1);
    }

    /// Makes the list empty. Returns the former head.
    pub(super) fn take(&self) -> Option<SlotNumber<SymbolId>> {
        let first = self.first();
        self.set(None, 0);
        first
    }

    /// Plain stores instead of atomic read-modify-write operations: no other thread writes meanwhile.
    fn set(&self, first: Option<SlotNumber<SymbolId>>, count: u32) {
        self.first.store(first.map_or(0, SlotNumber::number), Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}
