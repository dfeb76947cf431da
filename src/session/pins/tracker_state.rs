//! [`TrackerState`]: whether a tracker is live, and what pins it.
//!
//! | from | event | to | moved by |
//! |---|---|---|---|
//! | Live | `retire`, pinned | Guarded | the remover, under the dylib's lock |
//! | Live | `retire`, not pinned | Reclaiming | the same |
//! | Live | `merge` | Merged | the transferring thread, under the dylib's lock |
//! | Reclaiming | `enter_guarded`: a guard may be executing its code | Guarded | the remover, before it calls a manager |
//! | Guarded | `leave_guarded`: no guard blocks it | Retired, or Reclaiming if nothing pins it | the remover, or the thread that left the last guard |
//! | Retired | the last pin is dropped (`unpin_handle`), or the pin graph finds a free cycle (`claim_unpinned`) | Reclaiming | the thread that dropped it |
//! | Live, Guarded, Retired | `force_reclaim`, in spite of pins and guards | Reclaiming | a remover whose caller promises that it is safe |
//! | Reclaiming | the managers have released the resources | Reclaimed | the same thread, or the one that reclaims for it (`ReclaimPolicy`) |
//!
//! In the state Guarded, pins may be dropped, and no thread reclaims the tracker. The remover uses it until it has read the
//! execution guards (`guards.rs`).
//!
//! Some handle pins are *revocable*: they have a reason, and their makers release them on request. When only revocable pins
//! are left of a retired tracker's handle pins, the session asks the makers (`reclaim.rs`). A retired tracker may get new
//! pins until it is being reclaimed (`pin_until_reclaimed`). This needs the lock of the witness forest, so that no cycle is
//! claimed meanwhile.
//!
//! `with_resource_key` and `retire` take the lock of this state, so one of them sees what the other did. This decides the race
//! between an allocation and a removal. Model: `loom_tests/loom_allocate_remove.rs`.

use std::mem;
use std::time::Instant;

use crate::error::{Error, Result as ManagersResult};
use crate::session::pins::pin_nodes::{NodeCell, PinNode};
use crate::session::pins::tracker_flags::{TrackerFlag, TrackerFlags};
use crate::sync::{Arc, AtomicU32, Condvar, GuardedU8, GuardedU32, Mutex, Ordering, Rank, seeded_bug};

/// The state of one tracker.
pub(crate) struct TrackerState<T> {
    /// Handles (`ResourceTracker`) of the tracker. An `Arc` count does not serve, since a responsibility makes a handle from
    /// the core. If leaked handles make the count wrap, the tracker is transferred too early; that frees nothing. Relaxed: the locks
    /// of the transfer order what it moves.
    pub(crate) handles: AtomicU32,
    /// Facts about the state that are readable without the lock.
    pub(super) flags: TrackerFlags,
    /// The tracker's own node in the pin graph, if it has one. Set under the lock too: a tracker that is not live gets none.
    pub(super) node: NodeCell,
    /// The tracker's node in the witness forest (`witnesses.rs`), if it has one.
    pub(super) witness: NodeCell,
    /// A bit for each pin table that has, or had, a remote node of the tracker. Set under the lock, never cleared. Who reads it
    /// without the lock and needs all bits knows that the tracker is not live, from a flag that acquires. For others it is a hint.
    pub(super) remote_tables: GuardedU8,
    /// The position of the tracker in the creation order of its dylib. Six bytes last for years of a tracker each microsecond.
    serial: [u8; 6],
    /// How many of the handle pins are revocable. The lock guards it. Not under the lock, so that a tracker is smaller.
    revocable_pins: GuardedU32,
    pub(super) inner: Mutex<StateInner<T>>,
}

pub(super) struct StateInner<T> {
    pub(super) status: Status<T>,
    /// Pins of owned handles (`Pin`), including the revocable ones.
    pub(super) handle_pins: PinCount,
    /// Pins of trackers whose code refers into this one. The pin graph counts them. Its node numbers have 32 bits, so they fit.
    pub(super) dependant_pins: u32,
}

pub(super) enum Status<T> {
    Live,
    Merged(Arc<T>),
    /// Removed. A removal that outlasts its call has a [`PendingRemoval`], so one in the stages Guarded and Retired has one.
    Removing(RemovalStage, Option<Arc<PendingRemoval>>),
    /// Reclaimed, with the errors of the managers.
    #[allow(clippy::box_collection)] // mostly `None`, and each tracker has one
    Reclaimed(Option<Box<Vec<Error>>>),
}

/// The stages of a removal; see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalStage {
    Guarded,
    Retired,
    Reclaiming,
}

/// A removal that outlasts its call, and what waits for its end.
pub(super) struct PendingRemoval {
    since: Instant,
    reclaimed: Condvar,
    callbacks: Mutex<Vec<OnReclaimed>>,
    /// The number of the search that has visited the tracker (`claim_search.rs`), or zero. While it is set, only that search
    /// claims the tracker. The lock of the tracker's state guards it.
    search: GuardedU32,
}

/// Called when a tracker is reclaimed, with the result of the managers.
pub(crate) type OnReclaimed = Box<dyn FnOnce(ManagersResult<()>) + Send>;

impl PendingRemoval {
    fn now() -> Arc<PendingRemoval> {
        Arc::new(PendingRemoval {
            since: Instant::now(),
            reclaimed: Condvar::new(),
            callbacks: Mutex::new(Vec::new()),
            search: GuardedU32::new(0),
        })
    }
}

/// A number of pins. If leaked pins make it reach its maximum, it stays there: pins that cannot be counted hold the tracker for
/// ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PinCount(u32);

impl PinCount {
    const NONE: PinCount = PinCount(0);

    fn add(&mut self, more: PinCount) {
        self.0 = self.0.saturating_add(more.0);
    }

    pub(super) fn add_one(&mut self) {
        self.add(PinCount(1));
    }

    pub(super) fn subtract_one(&mut self) {
        if self.0 != u32::MAX {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

/// The result of `retire`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum RetireOutcome {
    /// Nothing pins it: the caller must reclaim it, or call `enter_guarded`.
    Free,
    /// Something pins it, so it is Guarded: the caller must call `leave_guarded`, or defer that until the guards are left.
    Held,
    /// It was retired before.
    AlreadyRetired,
    /// It was merged into another tracker.
    Merged,
}

/// What the caller must do after a pin was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterUnpin {
    /// Nothing.
    Nothing,
    /// The caller must reclaim.
    Reclaim,
    /// The caller must ask the pin graph.
    AskGraph,
}

/// The result of a request for an edge to a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeAdded {
    /// The edge exists already and is counted.
    Existing,
    /// A new edge to the tracker's own node, counted as a pin.
    Local(PinNode),
    /// The first edge to a new remote node of the tracker, counted as a pin.
    FirstRemote(PinNode),
    /// A further edge to a remote node, not counted.
    SharedRemote(PinNode),
}

/// The result of a visit by a search for free trackers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchVisit {
    /// Not retired, or held by a handle pin, or claimed.
    Held,
    /// This search has visited the tracker before.
    Known,
    /// The search with this number has visited it.
    OfAnother(u32),
    /// The first visit. Whether revocable pins hold the tracker.
    First { is_revocable: bool },
}

/// What holds a tracker besides its dependants; the pin graph uses it to find free cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinState {
    /// Not retired, or held by a handle pin, or claimed already.
    Held,
    /// Retired, and only revocable pins are left of its handle pins.
    RevocableOnly,
    /// Retired, without a handle pin.
    DependantsOnly,
}

impl<T> TrackerState<T> {
    pub(crate) fn new(serial: u64) -> TrackerState<T> {
        let [a, b, c, d, e, f, ..] = serial.to_le_bytes();
        TrackerState {
            handles: AtomicU32::new(0),
            flags: TrackerFlags::new(),
            node: NodeCell::default(),
            witness: NodeCell::default(),
            remote_tables: GuardedU8::new(0),
            serial: [a, b, c, d, e, f],
            revocable_pins: GuardedU32::new(0),
            inner: Mutex::ranked(
                Rank::Gate,
                StateInner { status: Status::Live, handle_pins: PinCount::NONE, dependant_pins: 0 },
            ),
        }
    }

    /// The position of the tracker in the creation order of its dylib.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        let [a, b, c, d, e, f] = self.serial;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.flags.has(TrackerFlag::Defunct)
    }

    pub(crate) fn is_merged(&self) -> bool {
        matches!(self.inner.lock().status, Status::Merged(_))
    }

    /// Whether all resources are released.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.flags.has(TrackerFlag::Reclaimed)
    }

    /// Whether the key was passed to a caller, which may have recorded something under it.
    pub(crate) fn has_given_key(&self) -> bool {
        self.flags.has(TrackerFlag::KeyGiven)
    }

    /// Whether the pin graph has or had a node for the tracker.
    pub(crate) fn was_in_graph(&self) -> bool {
        self.flags.has(TrackerFlag::InGraph)
    }

    /// Whether managers may hold resources of the tracker under other keys too (`failed_transfers.rs`).
    pub(crate) fn has_failed_transfers(&self) -> bool {
        self.flags.has(TrackerFlag::FailedTransfer)
    }

    /// For a transfer, which holds the locks of both trackers.
    pub(crate) fn mark_failed_transfer(&self) {
        self.flags.set(TrackerFlag::FailedTransfer);
    }

    /// Whether dependants still pin the tracker.
    pub(crate) fn has_dependants(&self) -> bool {
        self.flags.has(TrackerFlag::HadDependants) && self.inner.lock().dependant_pins > 0
    }

    /// The numbers of `(handle pins, dependant pins)`. Several dependants may share one of the latter.
    pub(crate) fn pins(&self) -> (usize, usize) {
        let state = self.inner.lock();
        (state.handle_pins.0 as usize, state.dependant_pins as usize)
    }

    /// How many of the handle pins are revocable.
    pub(crate) fn revocable_pins(&self) -> usize {
        let _state = self.inner.lock();
        self.revocable().0 as usize
    }

    /// The caller holds the lock of this state.
    fn revocable(&self) -> PinCount {
        PinCount(self.revocable_pins.load(Ordering::Relaxed))
    }

    /// Changes the number of revocable pins. The caller holds the lock of this state.
    pub(super) fn update_revocable(&self, update: impl FnOnce(&mut PinCount)) {
        let mut pins = self.revocable();
        update(&mut pins);
        self.revocable_pins.store(pins.0, Ordering::Relaxed);
    }

    /// When the tracker was removed. `None` unless the removal has outlasted its call and is not complete.
    pub(crate) fn removed_since(&self) -> Option<Instant> {
        match &self.inner.lock().status {
            Status::Removing(_, Some(pending)) => Some(pending.since),
            _ => None,
        }
    }

    /// Moves Live to Reclaiming, or to Guarded if something pins the tracker.
    pub(crate) fn retire(&self) -> RetireOutcome {
        self.retire_locked(&mut self.inner.lock())
    }

    /// Like `retire`, unless something pins the tracker. Then it does nothing and returns `None`.
    pub(crate) fn retire_unpinned(&self) -> Option<RetireOutcome> {
        let mut state = self.inner.lock();
        let is_pinned = matches!(state.status, Status::Live) && !state.is_unpinned();
        if seeded_bug!("asked_for_pins_under_an_earlier_lock") {
            drop(state);
            state = self.inner.lock();
        }
        (!is_pinned).then(|| self.retire_locked(&mut state))
    }

    fn retire_locked(&self, state: &mut StateInner<T>) -> RetireOutcome {
        let found = state.retire();
        self.flags.set(TrackerFlag::Defunct);
        found
    }

    /// Moves the tracker to Reclaiming, in spite of its pins. Returns true to one caller only, which must reclaim it.
    pub(crate) fn force_reclaim(&self) -> bool {
        let mut state = self.inner.lock();
        match &mut state.status {
            Status::Live => state.status = Status::Removing(RemovalStage::Reclaiming, None),
            Status::Removing(stage @ (RemovalStage::Guarded | RemovalStage::Retired), _) => {
                *stage = RemovalStage::Reclaiming
            }
            // Seeded bug: two threads call the managers.
            Status::Removing(..) if seeded_bug!("seized_while_it_is_reclaimed") => {}
            _ => return false,
        }
        self.flags.set(TrackerFlag::Defunct);
        true
    }

    /// Takes back the claim of `RetireOutcome::Free`, before any manager was called: the tracker waits for guards.
    pub(crate) fn enter_guarded(&self) {
        let mut state = self.inner.lock();
        if let Status::Removing(stage @ RemovalStage::Reclaiming, pending) = &mut state.status {
            *stage = RemovalStage::Guarded;
            pending.get_or_insert_with(PendingRemoval::now);
        }
    }

    /// No guard blocks the tracker any more. Returns what the caller must do.
    pub(crate) fn leave_guarded(&self) -> AfterUnpin {
        let mut state = self.inner.lock();
        match &mut state.status {
            Status::Removing(stage @ RemovalStage::Guarded, _) => *stage = RemovalStage::Retired,
            // `force_reclaim` came first.
            _ => return AfterUnpin::Nothing,
        }
        self.after_unpin(&mut state, false)
    }

    /// Makes the source an alias of the destination, and runs `body` meanwhile, under the locks of both. Returns whether
    /// dependants pinned the source. If one of them is not live, or `still_valid` returns false, does nothing and returns
    /// `None`.
    pub(crate) fn merge(
        source: &TrackerState<T>,
        destination: (&Arc<T>, &TrackerState<T>),
        still_valid: impl FnOnce() -> bool,
        body: impl FnOnce(),
    ) -> Option<bool> {
        let (into_core, destination) = destination;
        // Trackers of one dylib are merged under the lock of that dylib, so no other merge takes the two locks in reverse
        // order.
        let mut from = source.inner.lock();
        let mut into = destination.inner.lock();
        if !matches!(from.status, Status::Live) || !matches!(into.status, Status::Live) || !still_valid() {
            return None;
        }
        into.handle_pins.add(mem::take(&mut from.handle_pins));
        destination.update_revocable(|into| source.update_revocable(|from| into.add(mem::take(from))));
        // Seeded bug: a pin that is added between here and the end of the merge stays with the source.
        if seeded_bug!("transfer_opens_the_source_gate") {
            drop(from);
            from = source.inner.lock();
        }
        let dependant_pins = mem::take(&mut from.dependant_pins);
        into.dependant_pins += dependant_pins;
        source.remote_tables().for_each(|table| destination.add_remote_table(table));
        from.status = Status::Merged(into_core.clone());
        source.flags.set(TrackerFlag::Defunct);
        for inherited in [TrackerFlag::KeyGiven, TrackerFlag::InGraph, TrackerFlag::HadDependants] {
            if source.flags.has(inherited) {
                destination.flags.set(inherited);
            }
        }
        body();
        Some(dependant_pins > 0)
    }

    /// For the pin graph: the tracker, which is live, gets the node of a tracker that was merged into it.
    pub(crate) fn replace_node(&self, node: PinNode) {
        let state = self.inner.lock();
        debug_assert!(matches!(state.status, Status::Live), "the dylib of the two is locked");
        self.set_node(node);
        drop(state);
    }

    /// The caller holds the lock of this state, and the tracker may get edges.
    pub(super) fn get_or_insert_node(&self, make_node: impl FnOnce() -> PinNode) -> PinNode {
        if let Some(node) = self.node.get() {
            return node;
        }
        let node = make_node();
        self.set_node(node);
        node
    }

    fn set_node(&self, node: PinNode) {
        self.node.set(node);
        self.flags.set(TrackerFlag::InGraph);
    }

    /// The tracker's own node in the pin graph. The result is exact under the lock of the tracker's pin table, and for a
    /// tracker that is not live, since such a tracker gets no node. Otherwise it is a hint.
    pub(crate) fn node(&self) -> Option<PinNode> {
        self.node.get()
    }

    /// For the pin graph, which removes the node.
    pub(crate) fn take_node(&self) -> Option<PinNode> {
        self.node.take()
    }

    /// Whether the witness forest has a node for the tracker. A hint without the lock of the forest.
    pub(crate) fn has_witness_node(&self) -> bool {
        self.witness.get().is_some()
    }

    /// The caller holds the lock of this state.
    pub(super) fn add_remote_table(&self, table: usize) {
        self.remote_tables.store(self.remote_tables.load(Ordering::Relaxed) | 1 << table, Ordering::Relaxed);
    }

    /// The numbers of the pin tables that may have a remote node of the tracker. A tracker that is not live gets no further one.
    pub(crate) fn remote_tables(&self) -> impl Iterator<Item = usize> + use<T> {
        let mask = self.remote_tables.load(Ordering::Relaxed);
        (0..8).filter(move |table| mask & 1 << table != 0)
    }

    /// For the pin graph: an edge that shares a pin with other edges was removed. Returns what the caller must do.
    pub(crate) fn after_shared_edge_removed(&self) -> AfterUnpin {
        if self.is_live() { AfterUnpin::Nothing } else { self.after_unpin(&mut self.inner.lock(), false) }
    }

    /// For the pin graph: what holds the tracker besides its dependants, and the number of the search that has visited it, or
    /// zero.
    pub(crate) fn pin_state(&self) -> (PinState, u32) {
        let state = self.inner.lock();
        (self.pin_state_of(&state), state.search())
    }

    /// For a search with this number, which visits the tracker. It may take the tracker from the search `stolen_from`.
    pub(crate) fn visit(&self, search: u32, stolen_from: u32) -> SearchVisit {
        let state = self.inner.lock();
        let pins = self.pin_state_of(&state);
        match state.search() {
            _ if pins == PinState::Held => return SearchVisit::Held,
            other if other == search => return SearchVisit::Known,
            other if other != 0 && other != stolen_from => return SearchVisit::OfAnother(other),
            _ => state.set_search(search),
        }
        SearchVisit::First { is_revocable: pins == PinState::RevocableOnly }
    }

    /// The search ends, and has not claimed the tracker.
    pub(crate) fn end_visit(&self, search: u32) {
        let state = self.inner.lock();
        if state.search() == search {
            state.set_search(0);
        }
    }

    /// For the pin graph, which found that no live tracker leads here: moves Retired to Reclaiming. True for one caller only.
    pub(crate) fn claim_unpinned(&self) -> bool {
        let mut state = self.inner.lock();
        let Status::Removing(stage, _) = &mut state.status else { return false };
        mem::replace(stage, RemovalStage::Reclaiming) == RemovalStage::Retired
    }

    /// All managers were called. If the removal was pending, returns since when, and the callbacks, which the caller runs with no
    /// lock held.
    #[must_use]
    pub(crate) fn finish_reclaim(&self, failures: Vec<Error>) -> Option<(Instant, Vec<OnReclaimed>)> {
        let failures = (!failures.is_empty()).then(|| Box::new(failures));
        let mut state = self.inner.lock();
        debug_assert!(matches!(state.status, Status::Removing(RemovalStage::Reclaiming, _)));
        if failures.is_some() {
            self.flags.set(TrackerFlag::Failed);
        }
        self.flags.set(TrackerFlag::Reclaimed);
        let before = mem::replace(&mut state.status, Status::Reclaimed(failures));
        // The trackers of a cycle still pin each other when they are reclaimed.
        state.dependant_pins = 0;
        let Status::Removing(_, Some(pending)) = before else { return None };
        pending.reclaimed.notify_all();
        Some((pending.since, mem::take(&mut *pending.callbacks.lock())))
    }

    /// The errors of the managers, joined, once the tracker is reclaimed.
    pub(crate) fn outcome(&self) -> ManagersResult<()> {
        if self.flags.has(TrackerFlag::Failed) { Error::join(self.failures()) } else { Ok(()) }
    }

    /// The errors of the managers, one by one.
    pub(crate) fn failures(&self) -> Vec<Error> {
        if !self.flags.has(TrackerFlag::Failed) {
            return Vec::new();
        }
        match &self.inner.lock().status {
            Status::Reclaimed(Some(failures)) => failures.to_vec(),
            _ => Vec::new(),
        }
    }

    fn pin_state_of(&self, state: &StateInner<T>) -> PinState {
        match state.status {
            Status::Removing(RemovalStage::Retired, _) if state.handle_pins == PinCount::NONE => {
                PinState::DependantsOnly
            }
            Status::Removing(RemovalStage::Retired, _) if state.handle_pins == self.revocable() => {
                PinState::RevocableOnly
            }
            _ => PinState::Held,
        }
    }

    /// What the caller must do after a pin was dropped. After a revocable pin, the remaining revocable pins need no new
    /// request: the session has asked their makers already.
    pub(super) fn after_unpin(&self, state: &mut StateInner<T>, was_revocable: bool) -> AfterUnpin {
        let is_visited = state.search() != 0;
        let Status::Removing(stage @ RemovalStage::Retired, _) = &mut state.status else { return AfterUnpin::Nothing };
        match (state.handle_pins, state.dependant_pins) {
            // A search that has visited the tracker claims it itself, with what it found to be free together with it.
            (PinCount::NONE, 0) if !is_visited => {
                *stage = RemovalStage::Reclaiming;
                AfterUnpin::Reclaim
            }
            (PinCount::NONE, _) => AfterUnpin::AskGraph,
            (handles, _) if handles == self.revocable() && !was_revocable => AfterUnpin::AskGraph,
            _ => AfterUnpin::Nothing,
        }
    }

    /// Waits for the end of a removal. Returns false if the deadline passes first.
    pub(crate) fn wait_reclaimed(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.inner.lock();
        while let Status::Removing(_, pending) = &mut state.status {
            let pending = pending.get_or_insert_with(PendingRemoval::now).clone();
            match deadline {
                None => pending.reclaimed.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => return false,
                Some(deadline) => pending.reclaimed.wait_until(&mut state, deadline),
            }
        }
        true
    }

    /// Stores `callback` for the end of the removal. Returns it if the removal is over.
    pub(crate) fn when_reclaimed(&self, callback: OnReclaimed) -> Option<OnReclaimed> {
        let mut state = self.inner.lock();
        let Status::Removing(_, pending) = &mut state.status else { return Some(callback) };
        let pending = pending.get_or_insert_with(PendingRemoval::now).clone();
        // Seeded bug: the thread that ends the removal in between has called all callbacks.
        let held = (!seeded_bug!("callback_left_under_a_later_lock")).then_some(state);
        pending.callbacks.lock().push(callback);
        drop(held);
        None
    }
}

impl<T> StateInner<T> {
    fn is_unpinned(&self) -> bool {
        (self.handle_pins, self.dependant_pins) == (PinCount::NONE, 0)
    }

    fn retire(&mut self) -> RetireOutcome {
        match self.status {
            Status::Live => {}
            Status::Merged(_) => return RetireOutcome::Merged,
            _ => return RetireOutcome::AlreadyRetired,
        }
        let is_free = self.is_unpinned();
        self.status = match is_free {
            true => Status::Removing(RemovalStage::Reclaiming, None),
            false => Status::Removing(RemovalStage::Guarded, Some(PendingRemoval::now())),
        };
        if is_free { RetireOutcome::Free } else { RetireOutcome::Held }
    }

    /// The number of the search that has visited the tracker, or zero.
    pub(super) fn search(&self) -> u32 {
        match &self.status {
            Status::Removing(_, Some(pending)) => pending.search.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    fn set_search(&self, search: u32) {
        if let Status::Removing(_, Some(pending)) = &self.status {
            pending.search.store(search, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::core::resource_tracker::TrackerCore;

    #[test]
    fn a_tracker_takes_88_bytes_and_its_state_24() {
        assert_eq!(
            (size_of::<StateInner<TrackerCore>>(), size_of::<TrackerCore>()),
            (24, if cfg!(debug_assertions) { 96 } else { 88 })
        );
    }

    #[test]
    fn the_serial_number_of_a_tracker_has_48_bits() {
        let last = (1 << 48) - 1;
        assert_eq!(TrackerState::<TrackerCore>::new(last).serial(), last);
    }

    #[test]
    fn a_pin_count_at_its_maximum_never_goes_back() {
        let mut pins = PinCount(u32::MAX - 1);
        pins.add_one();
        pins.add_one();
        pins.subtract_one();
        assert_eq!(pins, PinCount(u32::MAX));
        let mut none = PinCount::NONE;
        none.subtract_one();
        assert_eq!(none, PinCount::NONE);
    }
}
