//! The pieces of a transfer and of a removal of many symbols: what each does under one lock. What other threads see meanwhile is in
//! `unfinished.rs`.

use super::insert::link;
use super::remove::RemovedItems;
use super::unfinished::{Entry, SYMBOL_PIECE, Step};
use super::{Owner, SymbolTable, TableTypes, TrackerRecord};
use crate::base::SlotNumber;
use crate::session::types::ids::TrackerId;
use crate::sync::seeded_bug;

impl<E: TableTypes> SymbolTable<E> {
    /// Makes `destination` the owner of all symbols of `source`. Both have a record, and the state of `source` is Merged already.
    /// The caller then calls [`move_piece`](Self::move_piece) until it returns true.
    pub(crate) fn begin_transfer(&mut self, source: TrackerId, destination: TrackerId) {
        self.lost_groups.transfer(source, destination);
        let moving_here = self.unfinished.entries.iter_mut().filter(|entry| entry.owner == source);
        // Seeded bug: the symbols that are on their way to the source stay behind, and have no owner.
        if !seeded_bug!("transfer_leaves_an_earlier_one_behind") {
            moving_here.for_each(|entry| entry.owner = destination);
        }
        self.unfinished.entries.push(Entry { tracker: source, owner: destination, step: Step::Transfer });
    }

    /// Moves up to [`SYMBOL_PIECE`] symbols of `source` to the list of their owner. With the last one, `record` gets the record of
    /// `source`. Returns whether nothing is left to move; then the symbols were moved, or removed with their owner.
    pub(crate) fn move_piece(&mut self, source: TrackerId, record: &mut Option<TrackerRecord<E>>) -> bool {
        let is_transfer = |entry: &Entry| entry.tracker == source && entry.step == Step::Transfer;
        let Some(position) = self.unfinished.entries.iter().position(is_transfer) else { return true };
        let owner = SlotNumber::of(self.unfinished.entries[position].owner);
        let (Some(from), Some(to)) = (self.trackers.get(source), self.trackers.at(owner)) else { return true };
        let (from, to) = (from.core.owned(), to.core.owned());
        for _ in 0..SYMBOL_PIECE {
            let Some(slot) = from.first() else { break };
            let next = self.symbols[slot].next;
            from.remove(Some(next));
            self.symbols[slot].owner = owner;
            link(&mut self.symbols, to, slot);
            if let Some(next) = next {
                self.symbols[next].previous = None;
            }
        }
        let is_last = from.first().is_none();
        if is_last {
            self.unfinished.entries.swap_remove(position);
            *record = self.trackers.remove(source);
        }
        is_last
    }

    /// Hides all symbols of a tracker that is not live any more. The caller then calls [`remove_piece`](Self::remove_piece) until
    /// nothing is left.
    #[cold]
    pub(super) fn hide_owned(&mut self, owner: TrackerId) {
        for entry in self.unfinished.entries.iter_mut().filter(|entry| entry.owner == owner) {
            // Seeded bug: symbols that a transfer is about to move stay in the table when their new owner is removed.
            if !seeded_bug!("removal_skips_symbols_of_a_transfer") {
                entry.step = Step::Removal;
            }
        }
        self.unfinished.entries.push(Entry { tracker: owner, owner, step: Step::Removal });
    }

    /// Removes up to [`SYMBOL_PIECE`] hidden symbols of a tracker, and says with the last of them that nothing is left. `None` if
    /// nothing was left before.
    #[cold]
    pub(crate) fn remove_piece(&mut self, owner: TrackerId) -> Option<RemovedItems<E>> {
        let position =
            self.unfinished.entries.iter().position(|entry| entry.owner == owner && entry.step == Step::Removal)?;
        let tracker = self.unfinished.entries[position].tracker;
        let core = self.trackers.get(tracker)?.core.clone();
        let mut items = self.remove_from_list(core.owned(), SYMBOL_PIECE);
        if core.owned().first().is_none() {
            self.unfinished.entries.swap_remove(position);
            // The record of a removed tracker stays until the tracker is reclaimed.
            items.record = if tracker == owner { None } else { self.trackers.remove(tracker) };
        }
        items.is_last = !self.unfinished.entries.iter().any(|entry| entry.owner == owner);
        Some(items)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name};
    use crate::session::pins::tracker_state::{RetireOutcome, TrackerState};
    use crate::session::removal::unpublish::RemovedDefinitions;
    use crate::session::{ExecutionSession, JitDylib, ResourceTracker, SymbolFlags};
    use crate::sync::Arc;

    const PIECES: usize = 4;
    const COUNT: usize = PIECES * SYMBOL_PIECE;

    fn name(index: usize) -> Name {
        Name::new(&format!("symbol {index}"))
    }

    /// A tracker with `count` symbols at `address`. Its handle is leaked by callers that change the tracker's state themselves.
    fn defined(dylib: &JitDylib, first: usize, count: usize, address: u64) -> ResourceTracker {
        let tracker = dylib.create_tracker().unwrap();
        let symbol = |index| (name(index), ExecutorAddr::new(address), SymbolFlags::EXPORTED);
        tracker.define_absolute((first..first + count).map(symbol)).unwrap();
        tracker
    }

    fn begin_transfer(dylib: &JitDylib, source: &ResourceTracker, destination: &ResourceTracker) {
        let mut state = dylib.inner().state.lock();
        let (source, destination) = (source.core(), destination.core());
        TrackerState::merge(&source.state, (destination, &destination.state), || true, || {}).unwrap();
        state.table.begin_transfer(source.id, destination.id);
    }

    /// Moves one piece, and returns whether it was the last one.
    fn move_piece(dylib: &JitDylib, source: &ResourceTracker) -> bool {
        let mut record = None;
        let is_last = dylib.inner().state.lock().table.move_piece(source.core().id, &mut record);
        assert!(record.is_none() || is_last);
        is_last
    }

    /// Retires a tracker that a pin holds, and removes the first piece of its symbols.
    fn begin_removal(tracker: &ResourceTracker) -> RemovedDefinitions {
        let core = tracker.core();
        let mut state = core.dylib().state.lock();
        assert_eq!(core.state.retire(), RetireOutcome::Held);
        state.unpublish(core, "a test", &mut None).unwrap()
    }

    fn addresses(dylib: &JitDylib) -> Vec<Option<u64>> {
        (0..COUNT).map(|index| dylib.lookup_address(&name(index)).ok().map(ExecutorAddr::value)).collect()
    }

    #[test]
    fn a_transfer_moves_one_piece_of_the_symbols_under_each_lock_and_changes_their_owner_at_once() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let source = defined(&dylib, 0, COUNT, 8);
        let destination = dylib.create_tracker().unwrap();
        begin_transfer(&dylib, &source, &destination);
        for moved in 1..=PIECES {
            for index in (0..COUNT).step_by(SYMBOL_PIECE / 2) {
                let (_, pin) = dylib.pin(&name(index)).unwrap();
                assert!(Arc::ptr_eq(&pin.core, destination.core()));
            }
            assert_eq!(dylib.symbol_count_of(destination.key()), COUNT);
            assert_eq!(move_piece(&dylib, &source), moved == PIECES);
            assert_eq!(destination.core().owned.count() as usize, moved * SYMBOL_PIECE);
        }
        assert!(move_piece(&dylib, &source), "nothing is left to move");
        assert_eq!((dylib.symbol_count(), dylib.symbol_count_of(source.key())), (COUNT, 0));
        assert!(destination.remove().unwrap().is_complete());
        assert_eq!(dylib.symbol_count(), 0);
    }

    #[test]
    fn symbols_of_an_unfinished_transfer_go_where_their_new_owner_goes() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let [first, second] = [0, 1].map(|number| defined(&dylib, number * COUNT, COUNT, 8));
        let third = dylib.create_tracker().unwrap();
        begin_transfer(&dylib, &first, &second);
        assert!(!move_piece(&dylib, &first));
        second.transfer_to(&third).unwrap();
        assert_eq!(dylib.symbol_count_of(third.key()), 2 * COUNT);
        assert!(!move_piece(&dylib, &first));
        assert!(third.remove().unwrap().is_complete());
        assert_eq!(dylib.symbol_count(), 0);
        assert!(move_piece(&dylib, &first));
        assert!(dylib.clear().unwrap().is_empty() && dylib.inner().state.lock().table.is_empty());
    }

    #[test]
    fn symbols_of_a_removed_tracker_are_hidden_at_once_and_removed_one_piece_under_each_lock() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let old = defined(&dylib, 0, COUNT, 8);
        // Twice, so that the index of ready symbols has them.
        assert!((0..3).all(|_| addresses(&dylib).iter().all(|address| *address == Some(8))));
        let pin = dylib.pin(&name(0)).unwrap().1;
        let mut removed = begin_removal(&old);
        assert_eq!(dylib.symbol_count(), 0);
        let left = || dylib.inner().state.lock().table.symbols.len();
        assert_eq!(left(), COUNT - SYMBOL_PIECE);
        // A search of the table removes a hidden symbol from the index.
        assert!((0..COUNT).all(|index| dylib.symbol_flags(&name(index)).is_none()));
        assert!(addresses(&dylib).iter().all(Option::is_none));
        let new = defined(&dylib, 0, COUNT, 16);
        assert!((0..3).all(|_| addresses(&dylib).iter().all(|address| *address == Some(16))));
        removed.remove_rest(old.core(), "a test");
        removed.fail_waiters(dylib.inner());
        assert_eq!((left(), dylib.symbol_count()), (COUNT, COUNT));
        assert!((0..3).all(|_| addresses(&dylib).iter().all(|address| *address == Some(16))));
        assert!(crate::session::remove_now(&old).unwrap().is_complete());
        drop(pin);
        assert!(new.remove().unwrap().is_complete());
        assert_eq!((left(), dylib.symbol_count()), (0, 0));
    }

    #[test]
    fn a_forced_removal_finishes_the_removal_of_the_symbols_that_another_thread_has_begun() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let tracker = defined(&dylib, 0, COUNT, 8);
        let pin = dylib.pin(&name(0)).unwrap().1;
        let (core, mut removed) = (tracker.core(), begin_removal(&tracker));
        assert!(crate::session::remove_now(&tracker).unwrap().is_complete());
        assert!(dylib.inner().state.lock().table.is_empty());
        // The slot of the record is used again.
        let other = defined(&dylib, 0, COUNT, 16);
        removed.remove_rest(core, "a test");
        removed.fail_waiters(dylib.inner());
        assert_eq!(dylib.symbol_count_of(other.key()), COUNT);
        drop(pin);
    }

    #[test]
    fn many_trackers_with_many_symbols_are_cleared_together() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        const EACH: usize = SYMBOL_PIECE + SYMBOL_PIECE / 2;
        let count = if cfg!(miri) { 10 } else { 100 };
        let trackers: Vec<_> = (0..count).map(|number| defined(&dylib, number * EACH, EACH, 8)).collect();
        assert!(dylib.clear().unwrap().is_empty());
        assert!(trackers.iter().all(ResourceTracker::is_defunct) && dylib.inner().state.lock().table.is_empty());
        defined(&dylib, 0, COUNT, 16).remove().unwrap();
        assert!(dylib.inner().state.lock().table.is_empty());
    }
}
