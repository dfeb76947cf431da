//! [`TrackerState`]: the one place that says whether a tracker lives, and who still holds it.
//!
//! | from | event | to | who moves it |
//! |---|---|---|---|
//! | Live | `retire`, pinned | Guarded | the remover, under the dylib's lock |
//! | Live | `retire`, not pinned | Reclaiming | the same |
//! | Live | `merge` | Merged | the transferrer, under the dylib's lock |
//! | Reclaiming | `guard`: somebody may be executing it | Guarded | the remover, before any manager was told |
//! | Guarded | `settle`: no guard is in the way | Retired, or Reclaiming when nothing pins | the remover, or who left the last guard |
//! | Retired | last pin goes (`unpin_handle`), or the pin graph finds a free ring (`claim_unpinned`) | Reclaiming | the thread that dropped it |
//! | Live, Guarded, Retired | `force_reclaim`: whoever thinks what | Reclaiming | a remover who gave its word |
//! | Reclaiming | managers were told | Reclaimed | the same thread |
//!
//! Guarded is how a remover keeps the tracker in hand until it has looked at the execution guards (`guards.rs`): pins may go
//! meanwhile, and nobody reclaims.
//!
//! Some handles are *standing* pins: they say why they are held, and go by themselves, or when their makers are asked. When
//! only such are left of a retired tracker's handles, the makers are asked (`reclaim.rs`). A retired tracker may get new
//! pins until it is being reclaimed (`pin_until_reclaimed`): under the pin graph's lock, so that no ring is claimed meanwhile.
//!
//! Recording a resource and retiring exclude each other through this lock: whoever comes second sees what the first
//! did. That is the race of allocating against removing. Model: `loom_tests/loom_allocate_remove.rs`.

use std::mem;
use std::time::Instant;

use crate::error::{Error, Result as ManagersResult};
use crate::session::core::resource_tracker::{ResourceKey, TrackerCore};
use crate::session::pins::pin_nodes::{NodePlace, PinNode};
use crate::session::pins::tracker_flags::{TrackerFlag, TrackerFlags};
use crate::sync::{Arc, AtomicU32, Condvar, Mutex, MutexGuard, Rank, seeded_bug};

pub(crate) struct TrackerState {
    /// Handles that share the tracker. Counted here and not by an `Arc`, since a responsibility can make one from the core.
    /// Were it to wrap, by handles that were forgotten, the tracker would be transferred too early: nothing is freed by that.
    pub(crate) handles: AtomicU32,
    /// What is in the state, for those who only ask.
    sign: TrackerFlags,
    /// Where the pin graph knows this tracker, if it does. Put here under the gate too: a tracker that is not live gets none.
    node: NodePlace,
    state: Mutex<GateState>,
}

struct GateState {
    status: Status,
    /// Owned handles: `Pin`s, the standing ones included.
    handle_pins: PinCount,
    /// How many of them are standing.
    standing_pins: PinCount,
    /// Pins of trackers whose code refers into this one; counted by the pin graph, whose numbers are no larger.
    dependant_pins: u32,
}

enum Status {
    Live,
    Merged(Arc<TrackerCore>),
    /// Removed; with what is known of that, if it takes longer.
    Leaving(Stage, Option<Arc<PendingRemoval>>),
    /// Reclaimed; with what the managers said.
    #[allow(clippy::box_collection)] // mostly none, and there is one of this for each tracker
    Reclaimed(Option<Box<Vec<Error>>>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Guarded,
    Retired,
    Reclaiming,
}

/// A removal that takes longer, and who waits for its end.
struct PendingRemoval {
    since: Instant,
    reclaimed: Condvar,
    to_call: Mutex<Vec<OnReclaimed>>,
}

/// Called once a tracker is reclaimed, with what the managers said.
pub(crate) type OnReclaimed = Box<dyn FnOnce(ManagersResult<()>) + Send>;

impl PendingRemoval {
    fn now() -> Arc<PendingRemoval> {
        Arc::new(PendingRemoval { since: Instant::now(), reclaimed: Condvar::new(), to_call: Mutex::new(Vec::new()) })
    }
}

/// A number of pins. One that has ever been at its limit, by pins that were forgotten, stays there: what cannot be counted
/// is held for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PinCount(u32);

impl PinCount {
    const NONE: PinCount = PinCount(0);

    fn add(&mut self, more: PinCount) {
        self.0 = self.0.saturating_add(more.0);
    }

    fn add_one(&mut self) {
        self.add(PinCount(1));
    }

    fn take_one(&mut self) {
        if self.0 != u32::MAX {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

/// What `retire` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum RetireOutcome {
    /// Nothing pins it: the caller must reclaim it, unless it has it guarded.
    Free,
    /// Something pins it: the caller must settle it, or have that done by whoever leaves the guards in the way.
    Held,
    /// It had been retired before.
    AlreadyRetired,
    /// It was merged into another tracker.
    Merged,
}

/// What the drop of a handle pin leaves to do.
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

/// What a tracker's pin on another is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeAdded {
    /// There before, and counted.
    Known,
    /// One more, counted, on the tracker that has this node.
    Own(PinNode),
    /// One more, counted, on the tracker that has this proxy, which it is the first to lead to.
    First(PinNode),
    /// One more that leads to this proxy, and is not counted.
    Shared(PinNode),
}

/// What a tracker's gate says to the pin graph, which looks for what may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinState {
    /// Not retired, or held by a handle, or claimed by somebody.
    Firm,
    /// Retired, and of its handles only standing pins are left.
    Standing,
    /// Retired, with no handle.
    DependantsOnly,
}

impl TrackerState {
    pub(crate) fn new() -> TrackerState {
        TrackerState {
            handles: AtomicU32::new(0),
            sign: TrackerFlags::new(),
            node: NodePlace::default(),
            state: Mutex::ranked(
                Rank::Gate,
                GateState {
                    status: Status::Live,
                    handle_pins: PinCount::NONE,
                    standing_pins: PinCount::NONE,
                    dependant_pins: 0,
                },
            ),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.sign.has(TrackerFlag::Defunct)
    }

    pub(crate) fn is_merged(&self) -> bool {
        matches!(self.state.lock().status, Status::Merged(_))
    }

    /// Whether every resource has been given back.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.sign.has(TrackerFlag::Reclaimed)
    }

    /// Whether anybody was given the key, and so may have recorded something under it.
    pub(crate) fn has_given_key(&self) -> bool {
        self.sign.has(TrackerFlag::KeyGiven)
    }

    /// Whether the pin graph has ever known the tracker.
    pub(crate) fn was_in_graph(&self) -> bool {
        self.sign.has(TrackerFlag::InGraph)
    }

    /// Whether managers may hold things under other keys besides (`unmoved.rs`).
    pub(crate) fn has_unmoved(&self) -> bool {
        self.sign.has(TrackerFlag::Unmoved)
    }

    /// For a transfer, whose gates are both locked.
    pub(crate) fn mark_unmoved(&self) {
        self.sign.put(TrackerFlag::Unmoved);
    }

    /// Whether dependants pin the tracker still.
    pub(crate) fn has_dependants(&self) -> bool {
        self.sign.has(TrackerFlag::HadDependants) && self.state.lock().dependant_pins > 0
    }

    /// `(handles, pins of dependants)` that hold the tracker; one of the latter may be shared.
    pub(crate) fn pins(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.handle_pins.0 as usize, state.dependant_pins as usize)
    }

    /// How many of the handles are standing pins.
    pub(crate) fn standing_pins(&self) -> usize {
        self.state.lock().standing_pins.0 as usize
    }

    /// When the tracker was removed, if that has taken longer than the call.
    pub(crate) fn leaving_since(&self) -> Option<Instant> {
        match &self.state.lock().status {
            Status::Leaving(_, Some(departure)) => Some(departure.since),
            _ => None,
        }
    }

    /// Whether it was removed, and is not reclaimed yet.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.state.lock().status, Status::Leaving(..))
    }

    pub(crate) fn retire(&self) -> RetireOutcome {
        self.close(&mut self.state.lock())
    }

    /// As `retire`, unless something pins the tracker: `None` then, and nothing was done.
    pub(crate) fn retire_unpinned(&self) -> Option<RetireOutcome> {
        let mut state = self.state.lock();
        let is_pinned = matches!(state.status, Status::Live) && !state.is_unpinned();
        if seeded_bug!("asked_for_pins_under_an_earlier_lock") {
            drop(state);
            state = self.state.lock();
        }
        (!is_pinned).then(|| self.close(&mut state))
    }

    fn close(&self, state: &mut GateState) -> RetireOutcome {
        let found = state.retire();
        self.sign.put(TrackerFlag::Defunct);
        found
    }

    /// Retires it whoever holds it, or takes it out of the hands of who did. True for one caller, who must reclaim it.
    pub(crate) fn force_reclaim(&self) -> bool {
        let mut state = self.state.lock();
        match &mut state.status {
            Status::Live => state.status = Status::Leaving(Stage::Reclaiming, None),
            Status::Leaving(stage @ (Stage::Guarded | Stage::Retired), _) => *stage = Stage::Reclaiming,
            // Seeded bug: two threads tell the managers.
            Status::Leaving(..) if seeded_bug!("seized_while_it_is_reclaimed") => {}
            _ => return false,
        }
        self.sign.put(TrackerFlag::Defunct);
        true
    }

    /// Undoes the claim that `RetireOutcome::Free` was, before any manager was told: the tracker waits for guards.
    pub(crate) fn guard(&self) {
        let mut state = self.state.lock();
        if let Status::Leaving(stage @ Stage::Reclaiming, departure) = &mut state.status {
            *stage = Stage::Guarded;
            departure.get_or_insert_with(PendingRemoval::now);
        }
    }

    /// No guard is in the way any more; what that leaves to do.
    pub(crate) fn settle(&self) -> AfterUnpin {
        let mut state = self.state.lock();
        match &mut state.status {
            Status::Leaving(stage @ Stage::Guarded, _) => *stage = Stage::Retired,
            // Seized meanwhile.
            _ => return AfterUnpin::Nothing,
        }
        state.after_unpin(false)
    }

    /// Runs `body` at the source's and the destination's gate, then makes the source an alias of the destination.
    /// `None`, and nothing done, unless both are live and `still_wanted` agrees; else whether dependants pinned the source.
    pub(crate) fn merge(
        source: &Arc<TrackerCore>,
        destination: &Arc<TrackerCore>,
        still_wanted: impl FnOnce() -> bool,
        body: impl FnOnce(),
    ) -> Option<bool> {
        // One dylib's trackers merge under that dylib's lock, so no second merge can take the gates the other way round.
        let mut from = source.gate.state.lock();
        let mut into = destination.gate.state.lock();
        if !matches!(from.status, Status::Live) || !matches!(into.status, Status::Live) || !still_wanted() {
            return None;
        }
        into.handle_pins.add(mem::take(&mut from.handle_pins));
        into.standing_pins.add(mem::take(&mut from.standing_pins));
        // Seeded bug: a pin that is made between here and the merge stays behind.
        if seeded_bug!("transfer_opens_the_source_gate") {
            drop(from);
            from = source.gate.state.lock();
        }
        let dependant_pins = mem::take(&mut from.dependant_pins);
        into.dependant_pins += dependant_pins;
        from.status = Status::Merged(destination.clone());
        source.gate.sign.put(TrackerFlag::Defunct);
        for inherited in [TrackerFlag::KeyGiven, TrackerFlag::InGraph, TrackerFlag::HadDependants] {
            if source.gate.sign.has(inherited) {
                destination.gate.sign.put(inherited);
            }
        }
        body();
        Some(dependant_pins > 0)
    }

    /// For the pin graph: where it knows the tracker, which it may be told now. `None` when the tracker is not live: then
    /// there may be no edges from it, as its reclaim may have looked for them already.
    pub(crate) fn node_while_live(&self, enter: impl FnOnce() -> PinNode) -> Option<PinNode> {
        let state = self.state.lock();
        matches!(state.status, Status::Live).then(|| self.enter_graph(enter))
    }

    /// The gate is locked, of a live tracker.
    fn enter_graph(&self, enter: impl FnOnce() -> PinNode) -> PinNode {
        if let Some(node) = self.node.get() {
            return node;
        }
        let node = enter();
        self.put_node(node);
        node
    }

    fn put_node(&self, node: PinNode) {
        self.node.put(node);
        self.sign.put(TrackerFlag::InGraph);
    }

    /// Where the pin graph knows the tracker, if it does. Under the lock of the tracker's table, or of one that is not live: such
    /// a tracker gets no node any more. To others it is a hint.
    pub(crate) fn node(&self) -> Option<PinNode> {
        self.node.get()
    }

    /// For the pin graph, which forgets the tracker.
    pub(crate) fn take_node(&self) -> Option<PinNode> {
        self.node.take()
    }

    /// For the pin graph: takes a dependant's pin away; what that leaves to do.
    pub(crate) fn unpin_dependant(&self) -> AfterUnpin {
        let mut state = self.state.lock();
        state.dependant_pins = state.dependant_pins.saturating_sub(1);
        state.after_unpin(false)
    }

    /// For the pin graph: one of the dependants that share a pin has gone, and others stay; what that leaves to do.
    pub(crate) fn left_by_sharer(&self) -> AfterUnpin {
        if self.is_live() { AfterUnpin::Nothing } else { self.state.lock().after_unpin(false) }
    }

    /// For the pin graph: who holds the tracker, beside dependants.
    pub(crate) fn hold(&self) -> PinState {
        let state = self.state.lock();
        match state.status {
            Status::Leaving(Stage::Retired, _) if state.handle_pins == PinCount::NONE => PinState::DependantsOnly,
            Status::Leaving(Stage::Retired, _) if state.handle_pins == state.standing_pins => PinState::Standing,
            _ => PinState::Firm,
        }
    }

    /// For the pin graph, which found that no live tracker leads here: moves Retired to Reclaiming, once.
    pub(crate) fn claim_unpinned(&self) -> bool {
        let mut state = self.state.lock();
        let Status::Leaving(stage, _) = &mut state.status else { return false };
        mem::replace(stage, Stage::Reclaiming) == Stage::Retired
    }

    /// Every manager was told. Returns what is to be called now, with no lock held, if anything may be.
    #[must_use]
    pub(crate) fn finish_reclaim(&self, failures: Vec<Error>) -> Option<Vec<OnReclaimed>> {
        let failures = (!failures.is_empty()).then(|| Box::new(failures));
        let mut state = self.state.lock();
        debug_assert!(matches!(state.status, Status::Leaving(Stage::Reclaiming, _)));
        if failures.is_some() {
            self.sign.put(TrackerFlag::Failed);
        }
        self.sign.put(TrackerFlag::Reclaimed);
        let before = mem::replace(&mut state.status, Status::Reclaimed(failures));
        // Members of a ring are reclaimed while they still pin each other.
        state.dependant_pins = 0;
        let Status::Leaving(_, Some(departure)) = before else { return None };
        departure.reclaimed.notify_all();
        Some(mem::take(&mut *departure.to_call.lock()))
    }

    /// What the managers said, once reclaimed.
    pub(crate) fn outcome(&self) -> ManagersResult<()> {
        if self.sign.has(TrackerFlag::Failed) { Error::join(self.failures()) } else { Ok(()) }
    }

    /// The same, one by one.
    pub(crate) fn failures(&self) -> Vec<Error> {
        if !self.sign.has(TrackerFlag::Failed) {
            return Vec::new();
        }
        match &self.state.lock().status {
            Status::Reclaimed(Some(failures)) => failures.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Waits for the end of a removal; false when the deadline passes first.
    pub(crate) fn wait_reclaimed(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while let Status::Leaving(_, departure) = &mut state.status {
            let departure = departure.get_or_insert_with(PendingRemoval::now).clone();
            match deadline {
                None => departure.reclaimed.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => return false,
                Some(deadline) => departure.reclaimed.wait_until(&mut state, deadline),
            }
        }
        true
    }

    /// Keeps `to_call` for the end of the removal, or gives it back if that is over.
    pub(crate) fn when_reclaimed(&self, to_call: OnReclaimed) -> Option<OnReclaimed> {
        let mut state = self.state.lock();
        let Status::Leaving(_, departure) = &mut state.status else { return Some(to_call) };
        let departure = departure.get_or_insert_with(PendingRemoval::now).clone();
        // Seeded bug: who ends the removal in between has called everybody.
        let held = (!seeded_bug!("callback_left_under_a_later_lock")).then_some(state);
        departure.to_call.lock().push(to_call);
        drop(held);
        None
    }
}

impl GateState {
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
            true => Status::Leaving(Stage::Reclaiming, None),
            false => Status::Leaving(Stage::Guarded, Some(PendingRemoval::now())),
        };
        if is_free { RetireOutcome::Free } else { RetireOutcome::Held }
    }

    /// A standing pin that goes leaves nothing to do as long as there are others: their makers have been asked.
    fn after_unpin(&mut self, was_standing: bool) -> AfterUnpin {
        let Status::Leaving(stage @ Stage::Retired, _) = &mut self.status else { return AfterUnpin::Nothing };
        match (self.handle_pins, self.dependant_pins) {
            (PinCount::NONE, 0) => {
                *stage = Stage::Reclaiming;
                AfterUnpin::Reclaim
            }
            (PinCount::NONE, _) => AfterUnpin::AskGraph,
            (handles, _) if handles == self.standing_pins && !was_standing => AfterUnpin::AskGraph,
            _ => AfterUnpin::Nothing,
        }
    }
}

impl TrackerCore {
    /// Runs `body` at the gate of the tracker that this one has become: itself, if it was never merged.
    fn at_gate<R>(
        self: &Arc<TrackerCore>,
        body: impl for<'a> FnOnce(&'a Arc<TrackerCore>, MutexGuard<'a, GateState>) -> R,
    ) -> R {
        let mut merged = None;
        loop {
            let core = merged.as_ref().unwrap_or(self);
            let state = core.gate.state.lock();
            let Status::Merged(next) = &state.status else { return body(core, state) };
            let next = next.clone();
            drop(state);
            merged = Some(next);
        }
    }

    /// Whether the tracker that this one has become is live.
    pub(crate) fn is_now_live(self: &Arc<TrackerCore>) -> bool {
        self.at_gate(|_, state| matches!(state.status, Status::Live))
    }

    /// The tracker that this one has become, and itself if it was never merged.
    pub(crate) fn current(self: &Arc<TrackerCore>) -> Arc<TrackerCore> {
        self.at_gate(|core, _| core.clone())
    }

    /// For the pin graph: adds a dependant's pin to the tracker that this one has become, unless `choose` finds that it is
    /// there already, or that it may not be. It is told where the graph knows the tracker, and whether the tracker is live.
    pub(crate) fn pin_dependant(
        self: &Arc<TrackerCore>,
        choose: impl FnOnce(&Arc<TrackerCore>, Option<PinNode>, bool) -> Option<EdgeAdded>,
    ) -> Option<EdgeAdded> {
        self.at_gate(|core, mut state| {
            let is_live = matches!(state.status, Status::Live);
            if seeded_bug!("dependant_pinned_after_the_gate_was_left") {
                drop(state);
                state = core.gate.state.lock();
            }
            let edge = choose(core, core.gate.node(), is_live)?;
            if let EdgeAdded::Own(_) | EdgeAdded::First(_) = edge {
                state.dependant_pins += 1;
                core.gate.sign.put(TrackerFlag::InGraph);
                core.gate.sign.put(TrackerFlag::HadDependants);
            }
            if let EdgeAdded::Own(node) = edge {
                core.gate.node.put(node);
            }
            Some(edge)
        })
    }

    /// For the pin graph: where it knows the tracker that this one has become, and whether there may be new edges from it: if it
    /// is live, or if the caller has a pin of it and nobody reclaims it. If the graph does not know the tracker, it is told
    /// now, unless there may be no edges: its reclaim may have looked for them already.
    pub(crate) fn node_or_enter(
        self: &Arc<TrackerCore>,
        is_pinned: bool,
        enter: impl FnOnce(&Arc<TrackerCore>) -> PinNode,
    ) -> Option<(PinNode, bool)> {
        self.at_gate(|core, state| {
            let may_refer = match state.status {
                Status::Live => true,
                Status::Leaving(Stage::Guarded | Stage::Retired, _) => is_pinned,
                // Seeded bug: nobody looks for the edge any more.
                _ if seeded_bug!("edge_from_a_tracker_that_is_reclaimed") => is_pinned,
                _ => false,
            };
            let node = if may_refer { core.gate.enter_graph(|| enter(core)) } else { core.gate.node()? };
            Some((node, may_refer))
        })
    }

    /// Runs `body` with the key of the tracker that this one has become, unless that is defunct. No removal and no
    /// transfer of the tracker can happen meanwhile (S3).
    pub(crate) fn with_resource_key<R>(
        self: &Arc<TrackerCore>,
        body: impl FnOnce(ResourceKey) -> R,
    ) -> Result<R, Defunct> {
        self.at_gate(|core, state| {
            if !matches!(state.status, Status::Live) {
                return Err(Defunct);
            }
            // Seeded bug: a removal in between tells no manager that skips unused keys.
            let is_marked_late = seeded_bug!("key_marked_under_a_later_lock");
            if !is_marked_late {
                core.gate.sign.put(TrackerFlag::KeyGiven);
            }
            let held = (!seeded_bug!("record_outside_gate")).then_some(state);
            let recorded = body(core.key());
            drop(held);
            if is_marked_late {
                let _state = core.gate.state.lock();
                core.gate.sign.put(TrackerFlag::KeyGiven);
            }
            Ok(recorded)
        })
    }

    /// Adds a handle's pin to the tracker that this one has become, unless that is defunct.
    pub(crate) fn pin_handle(self: &Arc<TrackerCore>) -> Result<(), Defunct> {
        self.at_gate(|core, mut state| {
            if !matches!(state.status, Status::Live) {
                return Err(Defunct);
            }
            if seeded_bug!("pinned_after_the_gate_was_left") {
                drop(state);
                state = core.gate.state.lock();
            }
            state.handle_pins.add_one();
            Ok(())
        })
    }

    /// Adds a handle's pin, even when the tracker is retired, as long as nobody reclaims it: for code that runs, and so is
    /// held by somebody.
    pub(crate) fn pin_until_reclaimed(self: &Arc<TrackerCore>) -> Result<(), Defunct> {
        if self.pin_handle().is_ok() {
            return Ok(());
        }
        // A ring is looked at member by member, and then claimed: not with a new pin in between.
        let pins = &self.dylib().session.pins;
        let _no_claim = (!seeded_bug!("pinned_while_a_ring_is_claimed")).then(|| pins.table_of(self.dylib()));
        self.at_gate(|_, mut state| match state.status {
            Status::Live | Status::Leaving(Stage::Guarded | Stage::Retired, _) => {
                state.handle_pins.add_one();
                Ok(())
            }
            _ => Err(Defunct),
        })
    }

    /// Makes a pin that the caller holds a standing one.
    pub(crate) fn let_pin_stand(self: &Arc<TrackerCore>) {
        self.at_gate(|_, mut state| state.standing_pins.add_one());
    }

    /// Adds a pin beside one that the caller holds: this cannot fail, even when the tracker is retired.
    pub(crate) fn pin_handle_again(self: &Arc<TrackerCore>) {
        self.at_gate(|_, mut state| state.handle_pins.add_one());
    }

    /// Takes a handle's pin away from the tracker that this one has become.
    pub(crate) fn unpin_handle(self: &Arc<TrackerCore>, is_standing: bool) -> (Arc<TrackerCore>, AfterUnpin) {
        self.at_gate(|core, mut state| {
            state.handle_pins.take_one();
            if is_standing {
                state.standing_pins.take_one();
            }
            (core.clone(), state.after_unpin(is_standing))
        })
    }
}

/// The tracker was removed.
#[derive(Debug)]
pub(crate) struct Defunct;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_takes_few_bytes_since_there_is_one_for_each_tracker() {
        assert_eq!(
            (size_of::<GateState>(), size_of::<TrackerCore>()),
            (32, if cfg!(debug_assertions) { 112 } else { 104 })
        );
    }

    #[test]
    fn pins_that_cannot_be_counted_hold_for_ever() {
        let mut pins = PinCount(u32::MAX - 1);
        pins.add_one();
        pins.add_one();
        pins.take_one();
        assert_eq!(pins, PinCount(u32::MAX));
        let mut none = PinCount::NONE;
        none.take_one();
        assert_eq!(none, PinCount::NONE);
    }
}
