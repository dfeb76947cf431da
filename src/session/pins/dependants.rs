//! [`PinGraph`]: which tracker's code refers into which other tracker.
//!
//! # Edges
//! An edge `from → to` pins `to`, and the state of `to` counts the pin. As long as `from` is not reclaimed, its code may call
//! or read what it was linked against.
//!
//! # Cycles
//! Trackers that refer to each other would pin each other for ever. So a retired tracker is reclaimed when *no live tracker
//! and no tracker with a handle pin leads to it*. [`PinGraph::claim_free`] decides this: it claims a tracker and all that leads
//! to it, or nothing. The witness forest (`witnesses.rs`) remembers what holds a tracker, so mostly it looks at one dependant;
//! otherwise it searches (`claim_search.rs`). What is free stays free: a retired tracker gets no new dependants, and a new
//! handle pin needs the lock of the forest. Trackers that only revocable pins hold are not claimed. The caller must first ask
//! the makers of these pins to release them.
//!
//! # Locks
//! The graph is split into tables by dylib (`pin_table.rs`). The lock of the forest comes before those of the tables. No thread
//! holds two tables. An operation on many edges holds a lock for a piece ([`PIECE`]) of them at a time, and then hands it to a
//! thread that waits. A tracker without references to or from other trackers locks none.

use smallvec::SmallVec;

use crate::base::{pair, sort_by_number};
use crate::session::pins::pin_table::{Neighbours, PIECE, PinTable, Released, TABLES};
use crate::session::pins::pinned::{Defunct, Pinned};
use crate::session::pins::witnesses::Witnesses;
use crate::session::types::symbol::SymbolId;
use crate::sync::{Arc, Mutex, MutexGuard, Rank, seeded_bug};

/// The pin graph of a session.
pub(crate) struct PinGraph<T> {
    tables: [PaddedTable<T>; TABLES],
    pub(super) witnesses: Mutex<Witnesses<T>>,
    /// How many edges and links the questions about free trackers have looked at.
    #[cfg(test)]
    pub(crate) steps: crate::sync::HintUsize,
}

/// A table in cache lines of its own.
#[repr(align(128))]
struct PaddedTable<T>(Mutex<PinTable<T>>);

/// The result of [`PinGraph::claim_free`].
#[must_use]
pub(crate) struct ReclaimSet<T> {
    /// Claimed: the caller must reclaim them.
    pub(crate) free: Vec<Arc<T>>,
    /// Apart from dependants in the set, only revocable pins hold these. Nothing was claimed; the caller may ask the makers.
    pub(crate) revocable: Vec<Arc<T>>,
    /// Other threads have asked about these meanwhile. The caller must ask about them.
    pub(crate) questions: Vec<Arc<T>>,
}

impl<T> ReclaimSet<T> {
    pub(crate) fn empty() -> ReclaimSet<T> {
        ReclaimSet { free: Vec::new(), revocable: Vec::new(), questions: Vec::new() }
    }
}

impl<T: Pinned> PinGraph<T> {
    pub(crate) fn new() -> PinGraph<T> {
        let table = |number| PaddedTable(Mutex::ranked(Rank::Pins, PinTable::new(number)));
        PinGraph {
            tables: std::array::from_fn(table),
            witnesses: Mutex::ranked(Rank::Witnesses, Witnesses::new()),
            #[cfg(test)]
            steps: crate::sync::HintUsize::new(0),
        }
    }

    /// Locks the table of a dylib's trackers.
    pub(crate) fn table_of(&self, dylib_serial: u64) -> MutexGuard<'_, PinTable<T>> {
        self.table(PinTable::<T>::index_of(dylib_serial))
    }

    pub(super) fn table(&self, number: usize) -> MutexGuard<'_, PinTable<T>> {
        self.tables[number].0.lock()
    }

    /// Calls `step` with a table until it returns true. Other threads get the lock in between.
    fn in_pieces(&self, number: usize, mut step: impl FnMut(&mut PinTable<T>) -> bool) {
        loop {
            let mut table = self.table(number);
            if step(&mut table) {
                return;
            }
            table.unlock_fair();
        }
    }

    /// Removes definitions of a dylib from the caches of all tables. The dylib has removed them, and their trackers stay.
    pub(crate) fn uncache_definitions(&self, dylib_serial: u64, definitions: impl Iterator<Item = SymbolId> + Clone) {
        for number in 0..TABLES {
            let mut definitions = definitions.clone();
            self.in_pieces(number, |table| {
                let piece = definitions.by_ref().take(PIECE);
                piece.map(|id| table.uncache_definition((dylib_serial, id))).count() < PIECE
            });
        }
    }

    /// Prefetches what the release of `core` will read. `core` is about to be removed.
    pub(crate) fn prefetch(&self, core: &T) {
        if let Some(node) = core.state().node() {
            self.table_of(core.dylib_serial()).prefetch(node);
        }
    }

    /// Adds a handle's pin, also to a retired tracker that is not being reclaimed yet. Use it for a tracker whose code
    /// is running: something holds such a tracker.
    pub(crate) fn pin_until_reclaimed(&self, core: &Arc<T>) -> Result<(), Defunct> {
        if core.pin_handle().is_ok() {
            return Ok(());
        }
        // A search claims the trackers that it has visited one by one. No pin may be added in between.
        if seeded_bug!("pinned_while_a_ring_is_claimed") {
            return core.pin_unless_reclaimed().map(drop);
        }
        let mut witnesses = self.witnesses.lock();
        let core = core.current();
        if witnesses.is_being_claimed(&core) {
            return Err(Defunct);
        }
        // A search may visit the tracker until it is pinned. It does not begin to claim meanwhile.
        let search = core.pin_unless_reclaimed()?;
        if let Some(search) = witnesses.search_mut(search) {
            search.pinned = Some(core);
        }
        Ok(())
    }

    /// `core` was reclaimed. Drops the pins that it holds, and adds the trackers that lost a pin to `released`.
    pub(crate) fn release(&self, core: &T, released: &mut Released<T>) {
        self.in_pieces(PinTable::<T>::index_of(core.dylib_serial()), |table| table.release(core, released));
        // It still has dependants if it is in a cycle or was reclaimed by force.
        if core.state().has_dependants() {
            core.state().remote_tables().for_each(|table| self.in_pieces(table, |table| table.remove_remote(core)));
        }
        while core.state().has_witness_node() {
            let mut witnesses = self.witnesses.lock();
            if witnesses.remove(core) {
                break;
            }
            witnesses.unlock_fair();
        }
    }

    /// The caller has claimed these trackers, and is about to ask about others that it reclaims together with them.
    pub(crate) fn note_claimed(&self, cores: &[Arc<T>]) {
        for core in cores.iter().filter(|core| core.state().has_witness_node()) {
            self.witnesses.lock().open_claimed(core);
        }
    }

    /// The numbers of `(handles, dependants)` that hold `core`.
    pub(crate) fn holders(&self, core: &T) -> (usize, usize) {
        match core.state().pins() {
            (handles, 0) => (handles, 0),
            // Dependants of one table share a pin, so the edges are counted.
            (handles, _) => {
                let count = |table| self.table(table).dependant_count(core);
                (handles, self.tables_of_dependants(core).into_iter().map(count).sum())
            }
        }
    }

    /// Up to `limit` of the trackers that pin `core`, and the number of all. Holds the lock of one table at a time.
    pub(crate) fn first_dependents(&self, core: &T, limit: usize) -> (Vec<Arc<T>>, usize) {
        let first = self.some_dependants(core, limit).0.iter().map(|core| core.current()).collect();
        (first, self.holders(core).1)
    }

    /// `source` was merged into `destination`, of the same dylib. Moves its edges. Without dependants it has no remote node. The
    /// lock of the dylib keeps `destination` live.
    pub(crate) fn merge(&self, source: &Arc<T>, destination: &Arc<T>, had_dependants: bool) {
        if had_dependants {
            source.state().remote_tables().for_each(|table| self.table(table).merge_remotes(source, destination));
        }
        self.table_of(source.dylib_serial()).merge(source, destination);
        if source.state().was_in_graph() {
            self.witnesses.lock().merge(source, destination);
        }
    }

    /// The trackers that `core` pins.
    pub(crate) fn dependencies(&self, core: &T) -> Vec<Arc<T>> {
        let (mut all, mut last) = (Vec::new(), None);
        self.in_pieces(PinTable::<T>::index_of(core.dylib_serial()), |table| {
            let piece = table.dependencies_after(core, last);
            last = piece.last().map(|(node, _)| *node);
            let is_last = piece.len() < PIECE;
            all.extend(piece.into_iter().map(|(_, core)| core.current()));
            is_last
        });
        all
    }

    /// The trackers that pin `core`.
    pub(crate) fn dependents(&self, core: &T) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for table in self.tables_of_dependants(core) {
            let before = all.len();
            let _: Result<(), ()> = self.read_dependants(table, core, |piece, begins_again| {
                all.truncate(if begins_again { before } else { all.len() });
                all.extend(piece.iter().map(|(_, core)| core.current()));
                Ok(())
            });
        }
        all
    }

    /// Calls `visit` with pieces of the trackers of a table that pin `core`. Other threads get the lock in between. Begins again if a
    /// transfer has moved edges meanwhile, so that none is missed, and then passes true with the first piece.
    pub(super) fn read_dependants<E>(
        &self,
        table: usize,
        core: &T,
        mut visit: impl FnMut(&Neighbours<T>, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut moves) = (None, None);
        loop {
            let table = self.table(table);
            let begins_again = *moves.get_or_insert(table.moves) != table.moves;
            if begins_again {
                (last, moves) = (None, Some(table.moves));
            }
            let piece = table.dependants_after(core, last);
            table.unlock_fair();
            last = piece.last().map(|(node, _)| *node);
            visit(&piece, begins_again)?;
            if piece.len() < PIECE {
                return Ok(());
            }
        }
    }

    /// The first trackers that pin `core`, up to `count`, and whether these are all.
    pub(super) fn some_dependants(&self, core: &T, count: usize) -> (SmallVec<[Arc<T>; 4]>, bool) {
        let mut found: SmallVec<[Arc<T>; 4]> = SmallVec::new();
        for table in self.tables_of_dependants(core) {
            let are_all = self.table(table).first_dependants(core, count, &mut found);
            if !are_all {
                return (found, false);
            }
        }
        (found, true)
    }

    /// The numbers of the tables that may have trackers that pin `core`.
    pub(super) fn tables_of_dependants(&self, core: &T) -> SmallVec<[usize; TABLES]> {
        std::iter::once(PinTable::<T>::index_of(core.dylib_serial())).chain(core.state().remote_tables()).collect()
    }

    /// Whether `from` pins `to`.
    pub(super) fn has_edge(&self, from: &T, to: &T) -> bool {
        self.table_of(from.dylib_serial()).has_edge_between(from, to)
    }

    #[inline(always)]
    pub(super) fn count_step(&self) {
        #[cfg(test)]
        self.steps.fetch_add(1, crate::sync::Ordering::Relaxed);
    }
}

/// Sorts trackers by creation, the newest first.
pub(crate) fn newest_first<T: Pinned>(batch: &mut [Arc<T>]) {
    sort_by_number(batch, |core| !pair(core.dylib_serial(), core.serial()));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::base::sized;
    use crate::session::pins::pin_table::PIECE;
    use crate::session::pins::pinned::Pinned;
    use crate::session::{ExecutionSession, Pin, ResourceTracker};
    use crate::sync::Ordering;

    /// Trackers of one dylib, by creation.
    struct Shape {
        session: ExecutionSession,
        trackers: Vec<ResourceTracker>,
    }

    impl Shape {
        /// `refers_to` returns the index of the tracker that the tracker with an index refers to.
        fn new(count: usize, refers_to: impl Fn(usize) -> Option<usize>) -> Shape {
            let session = ExecutionSession::new();
            let dylib = session.create_dylib("dylib").unwrap();
            let trackers: Vec<_> = (0..count).map(|_| dylib.create_tracker().unwrap()).collect();
            let shape = Shape { session, trackers };
            for (from, to) in (0..count).filter_map(|from| Some((from, refers_to(from)?))) {
                assert!(shape.pin(from).depend_on(&shape.pin(to)));
            }
            shape
        }

        fn pin(&self, index: usize) -> Pin {
            Pin::new(self.trackers[index].core().clone()).unwrap()
        }

        /// Removes trackers, and returns the steps of the questions meanwhile, for each.
        fn steps_to_remove(&self, order: impl ExactSizeIterator<Item = usize>) -> f64 {
            let count = order.len();
            self.steps_of(count, || order.for_each(|index| drop(self.trackers[index].remove().unwrap())))
        }

        fn steps_of(&self, count: usize, act: impl FnOnce()) -> f64 {
            let steps = || self.session.inner().pins.steps.load(Ordering::Relaxed);
            let before = steps();
            act();
            (steps() - before) as f64 / count as f64
        }

        fn are_complete(&self) -> bool {
            self.trackers.iter().all(|tracker| tracker.core().state.is_reclaimed())
        }

        /// Removes what is left, and checks that nothing is remembered.
        fn end(self) {
            ResourceTracker::remove_all(&self.trackers).unwrap();
            assert!(self.are_complete());
            assert_eq!(self.session.inner().pins.witnesses.lock().node_count(), 0);
        }
    }

    /// Checks that `steps`, with the number of trackers, returns about the same at two sizes, and not more than `limit`.
    /// A whole shape may cost four steps more, whatever its size.
    fn check_flat(limit: f64, steps: impl Fn(usize) -> f64) {
        let smaller = sized(1000, 8);
        let (small, large) = (steps(smaller), steps(4 * smaller));
        let once = 4.0 / smaller as f64;
        assert!(small <= limit && large <= limit, "{small} and {large} steps, not {limit}");
        assert!(
            (large - small).abs() <= 0.05 * small.max(1.0) + once,
            "{small} steps at the small size, {large} at the large one"
        );
    }

    #[test]
    fn a_chain_whose_last_is_live_is_removed_newest_first_in_constant_steps_each() {
        check_flat(2.0, |count| {
            let chain = Shape::new(count, |from| from.checked_sub(1));
            let steps = chain.steps_to_remove((0..count - 1).rev());
            assert!(!chain.are_complete());
            chain.trackers[count - 1].remove().unwrap();
            assert!(chain.are_complete());
            chain.end();
            steps
        });
    }

    #[test]
    fn a_chain_is_removed_in_constant_steps_each_in_other_orders() {
        check_flat(2.0, |count| {
            let chain = Shape::new(count, |from| from.checked_sub(1));
            let steps = chain.steps_to_remove(0..count - 1);
            chain.end();
            steps
        });
        // Every second one first: then each of the others joins two pieces.
        check_flat(8.0, |count| {
            let chain = Shape::new(count, |from| from.checked_sub(1));
            let (odd, even) =
                ((0..count / 2).rev().map(|half| 2 * half), (0..count / 2 - 1).rev().map(|half| 2 * half + 1));
            let steps = (chain.steps_to_remove(odd) + chain.steps_to_remove(even)) / 2.0;
            chain.end();
            steps
        });
    }

    #[test]
    fn a_ring_is_removed_in_constant_steps_each_and_its_last_removal_walks_it_once() {
        for is_forward in [false, true] {
            check_flat(6.0, |count| {
                let next = |from| if is_forward { (from + 1) % count } else { (from + count - 1) % count };
                let ring = Shape::new(count, |from| Some(next(from)));
                let steps = ring.steps_to_remove((1..count).rev());
                assert!(steps <= 2.0, "{steps}");
                assert!(!ring.are_complete());
                let last = ring.steps_to_remove(0..1) / count as f64;
                assert!(ring.are_complete());
                ring.end();
                steps + last
            });
        }
    }

    #[test]
    fn handles_of_a_star_whose_base_is_removed_are_dropped_in_constant_steps_each() {
        check_flat(4.0, |count| {
            let star = Shape::new(count, |from| (from > 0).then_some(0));
            let handles: Vec<_> = (1..count).map(|index| star.pin(index)).collect();
            star.steps_to_remove(1..count);
            assert!(star.steps_to_remove(0..1) <= 2.0, "the removal of the base does not depend on the size");
            let steps = star.steps_of(count, || drop(handles));
            assert!(star.are_complete());
            star.end();
            steps
        });
    }

    #[test]
    fn the_others_are_removed_in_constant_steps_each_after_the_one_that_all_refer_to() {
        check_flat(4.0, |count| {
            let modules = Shape::new(count, |from| (from > 0).then_some(0));
            let steps = modules.steps_to_remove(0..count);
            assert!(modules.are_complete());
            modules.end();
            steps
        });
    }

    #[test]
    fn a_batch_is_removed_in_constant_steps_each() {
        for is_star in [false, true] {
            let shape =
                |count| Shape::new(count, |from| if is_star { (from > 0).then_some(0) } else { from.checked_sub(1) });
            check_flat(4.0, |count| {
                let batch = shape(count);
                let steps = batch.steps_of(count, || drop(ResourceTracker::remove_all(&batch.trackers).unwrap()));
                batch.end();
                steps
            });
            check_flat(4.0, |count| {
                let cascade = shape(count);
                let steps = cascade.steps_of(count, || drop(cascade.trackers[0].remove_cascade().unwrap()));
                assert!(cascade.are_complete());
                cascade.end();
                steps
            });
        }
    }

    #[test]
    fn no_dependant_is_missed_if_a_transfer_moves_its_edge_while_they_are_read() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let trackers: Vec<_> = (0..2 * PIECE + 2).map(|_| dylib.create_tracker().unwrap()).collect();
        let pin = |tracker: &ResourceTracker| Pin::new(tracker.core().clone()).unwrap();
        let (base, others) = trackers.split_first().unwrap();
        let (destination, others) = others.split_first().unwrap();
        // The destination has the lowest node.
        assert!(pin(destination).depend_on(&pin(&others[0])));
        for other in others {
            assert!(pin(other).depend_on(&pin(base)));
        }
        let (core, graph) = (base.core(), &session.inner().pins);
        let (table, mut keys, mut is_first) = (graph.tables_of_dependants(&**core)[0], Vec::new(), true);
        let read: Result<(), ()> = graph.read_dependants(table, core, |piece, begins_again| {
            if std::mem::replace(&mut is_first, false) {
                others.last().unwrap().transfer_to(destination).unwrap();
            }
            keys.truncate(if begins_again { 0 } else { keys.len() });
            keys.extend(piece.iter().map(|(_, core)| core.current().key()));
            Ok(())
        });
        assert!(read.is_ok() && keys.contains(&destination.key()));
        assert_eq!(keys.len(), others.len());
    }
}
