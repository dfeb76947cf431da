//! [`Unfinished`]: the trackers whose lists of symbols are moved or removed in pieces.
//!
//! A transfer and a removal change each symbol of a tracker. With many symbols they do so in pieces ([`SYMBOL_PIECE`]), and other
//! threads get the dylib's lock in between. An entry here makes the step look whole to them from its first piece on:
//!
//! | entry | symbols of the tracker's list | the list ends with |
//! |---|---|---|
//! | transfer | are of the destination ([`SymbolTable::owner`]) | the removal of the tracker's record |
//! | removal | are *hidden*: no search by name or id finds them, and their names may be defined again | the removal of the entry |
//!
//! The table is empty unless such a step is under way, so each search asks one word. A transfer costs a constant for others,
//! whatever the number of symbols. So does a removal.
//!
//! If a destination is transferred itself, its entries follow at once: an owner is found in one step. If a destination is removed,
//! the symbols that are still in the lists of its sources are removed with it, and the thread of the transfer finds nothing
//! left to move. Several threads may work at one list, piece by piece.
//!
//! The hash table of names keeps a hidden symbol, and may have a new one of the same name. The index of ready symbols still answers
//! with a hidden symbol, until a search or a definition that comes across it in the table removes it there too. So a name that was
//! not found once, or was defined again, is never answered with the hidden symbol.

use super::insert::link;
use super::remove::RemovedItems;
use super::{Owner, Symbol, SymbolTable, TableTypes, TrackerRecord, name};
use crate::base::{PagedArena, SlotNumber};
use crate::session::symbols::ready_index::{IndexState, ReadyIndex};
use crate::session::types::ids::TrackerId;
use crate::session::types::name_sources::NameSources;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, seeded_bug};

#[derive(Default)]
pub(super) struct Unfinished(Vec<Entry>);

#[derive(Clone, Copy)]
struct Entry {
    /// The tracker whose list is worked at.
    tracker: TrackerId,
    /// The live tracker that owns the symbols, or the removed one that owned them.
    owner: TrackerId,
    is_removal: bool,
}

impl Unfinished {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a removal has hidden a symbol.
    #[inline(always)]
    pub(super) fn hides(&self, symbol: &Symbol) -> bool {
        !self.0.is_empty() && self.hides_owner(symbol.owner)
    }

    #[cold]
    fn hides_owner(&self, owner: SlotNumber<TrackerId>) -> bool {
        self.0.iter().any(|entry| entry.is_removal && SlotNumber::of(entry.tracker) == owner)
    }

    /// The tracker that owns the symbols with this owner in their entries.
    #[inline(always)]
    pub(super) fn owner(&self, owner: SlotNumber<TrackerId>) -> SlotNumber<TrackerId> {
        if self.0.is_empty() { owner } else { self.find_owner(owner) }
    }

    #[cold]
    fn find_owner(&self, owner: SlotNumber<TrackerId>) -> SlotNumber<TrackerId> {
        let found = self.0.iter().find(|entry| SlotNumber::of(entry.tracker) == owner);
        found.map_or(owner, |entry| SlotNumber::of(entry.owner))
    }

    /// The other trackers in whose lists symbols of `owner`, a live tracker, are.
    pub(super) fn sources(&self, owner: TrackerId) -> impl Iterator<Item = TrackerId> {
        self.0.iter().filter(move |entry| entry.owner == owner && !entry.is_removal).map(|entry| entry.tracker)
    }
}

/// For a search that has come to a symbol of the name that it looks for: whether the symbol is hidden. Then it leaves the index too.
#[inline(always)]
pub(super) fn skips(
    unfinished: &Unfinished,
    ready: &ReadyIndex,
    sources: &NameSources,
    (slot, symbols): (SlotNumber<SymbolId>, &PagedArena<SymbolId, Symbol>),
) -> bool {
    !unfinished.is_empty() && unfinished.hides(&symbols[slot]) && {
        leave_index(ready, sources, (slot, symbols));
        true
    }
}

#[cold]
fn leave_index(
    ready: &ReadyIndex,
    sources: &NameSources,
    (slot, symbols): (SlotNumber<SymbolId>, &PagedArena<SymbolId, Symbol>),
) {
    let Some((id, symbol)) = symbols.entry_at(slot) else { return };
    // Seeded bug: a thread finds no such name and defines it, and the index still answers with the old definition.
    if symbol.index_state == IndexState::Indexed && !seeded_bug!("hidden_symbol_left_in_the_index") {
        ready.remove(std::iter::once((&name(sources, symbol).to_name(), id)));
    }
}

impl<E: TableTypes> SymbolTable<E> {
    /// A symbol that is not hidden.
    #[inline(always)]
    pub(super) fn visible(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id).filter(|symbol| !self.unfinished.hides(symbol))
    }

    /// As [`visible`](Self::visible).
    #[inline(always)]
    pub(super) fn visible_mut(&mut self, id: SymbolId) -> Option<&mut Symbol> {
        self.symbols.get_mut(id).filter(|symbol| !self.unfinished.hides(symbol))
    }

    /// The number of symbols that are not hidden.
    pub(crate) fn symbol_count(&self) -> usize {
        let hidden = self.unfinished.0.iter().filter(|entry| entry.is_removal);
        self.symbols.len() - hidden.map(|entry| self.list_len(entry.tracker)).sum::<usize>()
    }

    /// The number of symbols that a tracker owns. Zero if it is not live.
    pub(crate) fn symbol_count_of(&self, tracker: TrackerId) -> usize {
        let is_unfinished = self.unfinished.0.iter().any(|entry| entry.tracker == tracker);
        let own = if is_unfinished { 0 } else { self.list_len(tracker) };
        own + self.unfinished.sources(tracker).map(|source| self.list_len(source)).sum::<usize>()
    }

    fn list_len(&self, tracker: TrackerId) -> usize {
        self.trackers.get(tracker).map_or(0, |record| record.core.owned().count() as usize)
    }

    /// The heads of the lists that have the symbols of a live tracker.
    pub(super) fn lists_of(&self, owner: &Arc<E::Tracker>) -> impl Iterator<Item = SlotNumber<SymbolId>> {
        let sources = self.unfinished.sources(owner.id()).filter_map(|source| self.trackers.get(source));
        let heads = sources.filter_map(|source| source.core.owned().first());
        owner.owned().first().into_iter().chain(heads)
    }

    /// Makes `destination` the owner of all symbols of `source`. Both are live in the table, and the source is merged. The caller
    /// then calls [`move_piece`](Self::move_piece) until it returns true.
    pub(crate) fn begin_transfer(&mut self, source: TrackerId, destination: TrackerId) {
        self.lost_groups.transfer(source, destination);
        let moving_here = self.unfinished.0.iter_mut().filter(|entry| entry.owner == source);
        // Seeded bug: the symbols that are on their way to the source stay behind, and have no owner.
        if !seeded_bug!("transfer_leaves_an_earlier_one_behind") {
            moving_here.for_each(|entry| entry.owner = destination);
        }
        self.unfinished.0.push(Entry { tracker: source, owner: destination, is_removal: false });
    }

    /// Moves up to [`SYMBOL_PIECE`] symbols of `source` to the list of their owner. With the last one, `record` gets the record of
    /// `source`. Returns whether nothing is left to move; then the symbols were moved, or removed with their owner.
    pub(crate) fn move_piece(&mut self, source: TrackerId, record: &mut Option<TrackerRecord<E>>) -> bool {
        let is_transfer = |entry: &Entry| entry.tracker == source && !entry.is_removal;
        let Some(position) = self.unfinished.0.iter().position(is_transfer) else { return true };
        let owner = SlotNumber::of(self.unfinished.0[position].owner);
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
            self.unfinished.0.swap_remove(position);
            *record = self.trackers.remove(source);
        }
        is_last
    }

    /// Hides all symbols of a tracker that is not live any more. The caller then calls [`remove_piece`](Self::remove_piece) until
    /// nothing is left.
    #[cold]
    pub(super) fn hide_owned(&mut self, owner: TrackerId) {
        for entry in self.unfinished.0.iter_mut().filter(|entry| entry.owner == owner) {
            // Seeded bug: symbols that a transfer is about to move stay in the table when their new owner is removed.
            if !seeded_bug!("removal_skips_symbols_of_a_transfer") {
                entry.is_removal = true;
            }
        }
        self.unfinished.0.push(Entry { tracker: owner, owner, is_removal: true });
    }

    /// Removes up to [`SYMBOL_PIECE`] hidden symbols of a tracker, and says with the last of them that nothing is left. `None` if
    /// nothing was left before.
    #[cold]
    pub(crate) fn remove_piece(&mut self, owner: TrackerId) -> Option<RemovedItems<E>> {
        let position = self.unfinished.0.iter().position(|entry| entry.owner == owner && entry.is_removal)?;
        let tracker = self.unfinished.0[position].tracker;
        let core = self.trackers.get(tracker)?.core.clone();
        let mut items = self.remove_from_list(core.owned(), SYMBOL_PIECE);
        if core.owned().first().is_none() {
            self.unfinished.0.swap_remove(position);
            // The record of a removed tracker stays until the tracker is reclaimed.
            items.record = if tracker == owner { None } else { self.trackers.remove(tracker) };
        }
        items.is_last = !self.unfinished.0.iter().any(|entry| entry.owner == owner);
        Some(items)
    }
}

/// How many symbols are moved or removed under one lock.
pub(crate) const SYMBOL_PIECE: usize = if cfg!(loom) { 1 } else { 128 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name};
    use crate::session::pins::tracker_state::{RetireOutcome, TrackerState};
    use crate::session::removal::unpublish::RemovedDefinitions;
    use crate::session::{ExecutionSession, JitDylib, ResourceTracker, SymbolFlags};

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

    fn begin_removal(tracker: &ResourceTracker) -> RemovedDefinitions {
        let core = tracker.core();
        let mut state = core.dylib().state.lock();
        assert_eq!(core.state.retire(), RetireOutcome::Free);
        state.unpublish(core, "a test").unwrap()
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
        assert!(new.remove().unwrap().is_complete());
        assert_eq!((left(), dylib.symbol_count()), (0, 0));
    }

    #[test]
    fn a_forced_removal_finishes_the_removal_of_the_symbols_that_another_thread_has_begun() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let tracker = defined(&dylib, 0, COUNT, 8);
        let pin = dylib.pin(&name(0)).unwrap().1;
        let core = tracker.core();
        let mut removed = {
            let mut state = dylib.inner().state.lock();
            assert_eq!(core.state.retire(), RetireOutcome::Held);
            state.unpublish(core, "a test").unwrap()
        };
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
        let trackers: Vec<_> = (0..100).map(|number| defined(&dylib, number * 200, 200, 8)).collect();
        assert!(dylib.clear().unwrap().is_empty());
        assert!(trackers.iter().all(ResourceTracker::is_defunct) && dylib.inner().state.lock().table.is_empty());
        defined(&dylib, 0, COUNT, 16).remove().unwrap();
        assert!(dylib.inner().state.lock().table.is_empty());
    }
}
