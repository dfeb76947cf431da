//! [`OwnedSymbols`]: where a tracker's list of symbols begins, and how long it is (S1).
//!
//! Stands with the tracker, and not in its record: a removal comes from the tracker, and can ask for the symbols ahead of
//! everything else. The lock of the tracker's dylib guards it all the same; only whoever has that looks here.

use crate::base::SlotNumber;
use crate::session::types::symbol::SymbolId;
use crate::sync::{GuardedU32, Ordering};

#[derive(Default)]
pub(crate) struct OwnedSymbols {
    /// The number of a slot; zero for none.
    first: GuardedU32,
    count: GuardedU32,
}

impl OwnedSymbols {
    /// The head of the list.
    pub(crate) fn first(&self) -> Option<SlotNumber<SymbolId>> {
        SlotNumber::numbered(self.first.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Another head, ahead of the one there was.
    pub(super) fn add(&self, first: SlotNumber<SymbolId>) {
        self.add_all(Some(first), 1);
    }

    /// So many more, which lead from another head to the one there was.
    pub(super) fn add_all(&self, first: Option<SlotNumber<SymbolId>>, count: usize) {
        self.set(first, self.count() + count as u32);
    }

    /// One less, and what the list begins with then, if that has changed.
    pub(super) fn remove(&self, first: Option<Option<SlotNumber<SymbolId>>>) {
        self.set(first.unwrap_or_else(|| self.first()), self.count() - 1);
    }

    /// Empties the list; what it began with.
    pub(super) fn take(&self) -> Option<SlotNumber<SymbolId>> {
        let first = self.first();
        self.set(None, 0);
        first
    }

    /// Stores, and no locked instructions: nobody else writes meanwhile.
    fn set(&self, first: Option<SlotNumber<SymbolId>>, count: u32) {
        self.first.store(first.map_or(0, SlotNumber::number), Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}
