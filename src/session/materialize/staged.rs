//! Definitions of many symbols enter a table in pieces, and become visible together. Other threads get the dylib's lock after each piece.
//! See `symbols/symbol_table/staged.rs`.
//!
//! Only for strong definitions of free names. Whoever finds that a name is taken defines all in one step (`define.rs`), which resolves or
//! reports it. Model: `loom_tests/loom_staged_definition.rs`.

use crate::base::{ExecutorAddr, RecycledVec};
use crate::error::Result;
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::pins::tracker_state::TrackerState;
use crate::session::symbols::symbol_table::insert::Definition;
use crate::session::symbols::symbol_table::staged::{StagedState, is_staged};
use crate::session::symbols::symbol_table::unfinished::SYMBOL_PIECE;
use crate::session::symbols::symbol_table::{Probe, UnitId};
use crate::session::types::symbol::SymbolId;
use crate::sync::Arc;

/// What is to be defined.
#[derive(Clone, Copy)]
pub(super) enum Staged<'a> {
    Lazy,
    Materializing,
    Ready(&'a [ExecutorAddr]),
}

/// Hidden symbols of one definition.
#[must_use]
pub(super) struct Stage<'a> {
    core: &'a Arc<TrackerCore>,
    /// The tracker that has them.
    stage: Arc<TrackerCore>,
    unit: Option<UnitId>,
    ids: RecycledVec<SymbolId>,
}

/// Inserts many strong symbols, hidden. `None`, and nothing is inserted, if they are few, if one is weak, or if a name is taken.
///
/// # Errors
/// A defunct tracker or dylib.
pub(super) fn stage<'a, 'n>(
    core: &'a Arc<TrackerCore>,
    unit_name: &Arc<str>,
    mut definitions: impl ExactSizeIterator<Item = Definition<'n>> + Clone,
    staged: Staged<'_>,
) -> Result<Option<Stage<'a>>> {
    let count = definitions.len();
    if !is_staged(count) || definitions.clone().any(|new| new.flags.is_weak()) {
        return Ok(None);
    }
    let mut stage = Stage::begin(core, staged, count)?;
    while definitions.len() > 0 {
        let done = count - definitions.len();
        let piece = definitions.by_ref().take(PIECE).map(|new| (new, Probe::unfound(new.name)));
        let expected = piece.len();
        let state = match (staged, stage.unit) {
            (Staged::Ready(addresses), _) => StagedState::Ready(&addresses[done..]),
            (_, Some(unit)) => StagedState::Lazy(unit),
            _ => StagedState::Materializing,
        };
        let mut locked = core.dylib().state.lock();
        let inserted = locked.table.stage_piece(stage.stage.id, unit_name, piece, state);
        locked.unlock_fair();
        match inserted {
            // A materialising symbol has one name.
            Some(inserted) if matches!(staged, Staged::Materializing) && inserted.len() < expected => {
                stage.abandon();
                return Ok(None);
            }
            Some(inserted) => stage.ids.extend(inserted.iter().copied()),
            None => {
                stage.abandon();
                return Ok(None);
            }
        }
    }
    Ok(Some(stage))
}

impl<'a> Stage<'a> {
    fn begin(core: &'a Arc<TrackerCore>, staged: Staged<'_>, count: usize) -> Result<Stage<'a>> {
        let mut state = core.dylib().state.lock();
        state.check_live(core)?;
        let stage = state.new_core(core.dylib())?;
        // Both are live under this lock. From here on, a removal of the dylib's trackers passes the stage over.
        let merged = TrackerState::merge(&stage.state, (core, &core.state), || true, || {});
        debug_assert!(merged.is_some());
        state.table.begin_stage(stage.id, core.id);
        let unit = matches!(staged, Staged::Lazy).then(|| state.table.begin_staged_unit(count));
        Ok(Stage { core, stage, unit, ids: RecycledVec::with_capacity(count) })
    }

    /// Makes the symbols visible. `finish` gets their ids and the record of the lazy unit, under the same lock. Returns false, and
    /// removes the symbols, if one of their names was taken meanwhile.
    ///
    /// # Errors
    /// A defunct tracker or dylib.
    pub(super) fn end(
        mut self,
        finish: impl FnOnce(&mut DylibState, RecycledVec<SymbolId>, Option<UnitId>),
    ) -> Result<bool> {
        let mut state = self.core.dylib().state.lock();
        let checked = state.check_live(self.core);
        if checked.is_err() || !state.table.end_stage(self.stage.id) {
            drop(state);
            self.abandon();
            return checked.map(|()| false);
        }
        finish(&mut state, std::mem::take(&mut self.ids), self.unit);
        let mut record = None;
        while !state.table.move_piece(self.stage.id, &mut record) {
            state.unlock_fair();
            state = self.core.dylib().state.lock();
        }
        drop(state);
        drop(record);
        Ok(true)
    }

    /// Removes the hidden symbols, unless the removal of the tracker does.
    fn abandon(self) {
        let dylib = self.core.dylib();
        let is_ours = dylib.state.lock().table.abandon_stage(self.stage.id);
        let mut is_done = !is_ours;
        while !is_done {
            let mut state = dylib.state.lock();
            let piece = state.table.remove_piece(self.stage.id);
            state.unlock_fair();
            // Dropped with no lock held.
            is_done = piece.is_none_or(|piece| piece.is_last);
        }
        let mut state = dylib.state.lock();
        let unit = self.unit.and_then(|unit| state.table.remove_staged_unit(unit));
        let record = if is_ours { state.remove_tracker(&self.stage) } else { None };
        drop(state);
        drop((unit, record));
    }
}

/// How many symbols are inserted under one lock.
const PIECE: usize = if cfg!(loom) { 2 } else { SYMBOL_PIECE };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::Name;
    use crate::error::ErrorKind;
    use crate::session::types::symbol::SymbolFlags;
    use crate::session::{ExecutionSession, JitDylib, ResourceTracker};

    const COUNT: usize = 9 * PIECE + 1;
    const EXPORTED: SymbolFlags = SymbolFlags::EXPORTED;

    fn name(index: usize) -> Name {
        Name::new(&format!("symbol {index}"))
    }

    fn absolute(indices: std::ops::Range<usize>, address: u64) -> Vec<(Name, ExecutorAddr, SymbolFlags)> {
        indices.map(|index| (name(index), ExecutorAddr::new(address), EXPORTED)).collect()
    }

    fn fixture() -> (ExecutionSession, JitDylib, ResourceTracker) {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let tracker = dylib.create_tracker().unwrap();
        (session, dylib, tracker)
    }

    fn staged(tracker: &ResourceTracker, first: usize) -> Option<Stage<'_>> {
        let names: Vec<_> = (first..first + COUNT).map(|index| (name(index), EXPORTED)).collect();
        let addresses = vec![ExecutorAddr::new(8); COUNT];
        let definitions = names.iter().map(Definition::of);
        stage(tracker.core(), &Arc::from("unit"), definitions, Staged::Ready(&addresses)).unwrap()
    }

    fn end(stage: Option<Stage<'_>>) -> Result<bool> {
        stage.unwrap().end(|_, _, _| {})
    }

    fn is_empty(dylib: &JitDylib) -> bool {
        let tracker = dylib.default_tracker().unwrap();
        tracker.remove().unwrap();
        dylib.clear().unwrap();
        dylib.inner().state.lock().table.is_empty()
    }

    #[test]
    fn many_symbols_of_one_definition_become_visible_together() {
        let (_session, dylib, tracker) = fixture();
        let stage = staged(&tracker, 0);
        let is_seen = |index| dylib.symbol_flags(&name(index)).is_some();
        let address = |index| dylib.lookup_address(&name(index)).map(ExecutorAddr::value).ok();
        assert!(!(0..COUNT).any(is_seen) && address(0).is_none());
        assert_eq!((dylib.symbol_count(), dylib.symbol_count_of(tracker.key())), (0, 0));
        assert!(end(stage).unwrap());
        assert!((0..COUNT).all(|index| is_seen(index) && address(index) == Some(8)));
        assert_eq!((dylib.symbol_count(), dylib.symbol_count_of(tracker.key())), (COUNT, COUNT));
        assert!(tracker.remove().unwrap().is_complete() && is_empty(&dylib));
    }

    #[test]
    fn a_name_that_others_take_meanwhile_is_theirs_and_the_definition_is_refused() {
        let (_session, dylib, tracker) = fixture();
        let stage = staged(&tracker, 0);
        let other = dylib.create_tracker().unwrap();
        other.define_absolute(absolute(COUNT - 1..COUNT, 16)).unwrap();
        assert!(!end(stage).unwrap());
        assert_eq!((dylib.symbol_count(), dylib.symbol_count_of(tracker.key())), (1, 0));
        let refused = tracker.define_absolute(absolute(0..COUNT, 8)).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::DuplicateDefinition { symbol, .. } if **symbol == *name(COUNT - 1))
        );
        assert_eq!(dylib.lookup_address(&name(COUNT - 1)).unwrap().value(), 16);
        other.remove().unwrap();
        tracker.define_absolute(absolute(0..COUNT, 8)).unwrap();
        assert_eq!(dylib.symbol_count(), COUNT);
        assert!(is_empty(&dylib));
    }

    #[test]
    fn of_two_long_definitions_with_a_common_name_the_one_that_ends_first_is_made() {
        for order in [[0, 1], [1, 0]] {
            let (_session, dylib, tracker) = fixture();
            let other = dylib.create_tracker().unwrap();
            let mut stages = [staged(&tracker, 0), staged(&other, COUNT - 1)];
            let ended = order.map(|number| end(stages[number].take()).unwrap());
            assert_eq!((ended, dylib.symbol_count()), ([true, false], COUNT));
            assert!(is_empty(&dylib));
        }
        let (_session, dylib, tracker) = fixture();
        let other = dylib.create_tracker().unwrap();
        let (first, second) = (staged(&tracker, 0), staged(&other, COUNT - 1));
        first.unwrap().abandon();
        assert!(end(second).unwrap(), "the other one was given up");
        assert!(is_empty(&dylib));
    }

    #[test]
    fn a_definition_whose_tracker_is_removed_or_transferred_meanwhile_leaves_nothing() {
        let verbs: [fn(&ResourceTracker, &ResourceTracker); 4] = [
            |tracker, _| drop(tracker.remove().unwrap()),
            |tracker, other| tracker.transfer_to(other).unwrap(),
            |tracker, _| drop(tracker.dylib().clear().unwrap()),
            |tracker, other| {
                tracker.transfer_to(other).unwrap();
                other.remove().unwrap();
            },
        ];
        for verb in verbs {
            let (_session, dylib, tracker) = fixture();
            let other = dylib.create_tracker().unwrap();
            let stage = staged(&tracker, 0);
            verb(&tracker, &other);
            assert!(matches!(end(stage).unwrap_err().kind(), ErrorKind::TrackerDefunct { .. }));
            assert_eq!(dylib.symbol_count(), 0);
            assert!(is_empty(&dylib));
        }
    }

    /// Symptom: the name was absent twice, and stayed absent after its definition.
    #[test]
    fn names_that_lookups_missed_meanwhile_are_found_after_the_definition() {
        let (session, dylib, tracker) = fixture();
        let stage = staged(&tracker, 0);
        let searched = session.create_dylib("searched").unwrap();
        searched.set_link_order(&[(dylib.clone(), crate::session::Visibility::ExportedOnly)]).unwrap();
        let find = |dylib: &JitDylib| session.lookup_address(&dylib.search_order(), &name(3)).ok();
        assert!((0..4).all(|_| find(&dylib).is_none() && find(&searched).is_none()));
        assert!(end(stage).unwrap());
        assert!((0..4).all(|_| find(&dylib).is_some() && find(&searched).is_some()));
    }

    #[test]
    fn a_name_that_is_given_twice_is_one_symbol_however_far_apart() {
        let (_session, dylib, tracker) = fixture();
        let mut symbols = absolute(0..COUNT, 8);
        symbols.extend(absolute(0..1, 16));
        tracker.define_absolute(symbols).unwrap();
        assert_eq!((dylib.symbol_count(), dylib.lookup_address(&name(0)).unwrap().value()), (COUNT, 8));
        let twice = (0..COUNT).chain([0]).map(|index| (name(index + COUNT), EXPORTED));
        let made = tracker.define_materializing("unit", twice).map(drop);
        assert_eq!(dylib.symbol_count(), COUNT, "{made:?}");
    }
}
