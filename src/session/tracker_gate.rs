//! [`TrackerGate`]: the one place that says whether a tracker lives, and who still holds it.
//!
//! | from | event | to | who moves it |
//! |---|---|---|---|
//! | Live | `retire` | Retired, or Reclaiming when nothing pins | the remover, under the dylib's lock |
//! | Live | `merge_into` | Merged | the transferrer, under the dylib's lock |
//! | Retired | last pin goes (`unpin_handle`), or the pin graph finds a free ring (`claim_unpinned`) | Reclaiming | the thread that dropped it |
//! | Reclaiming | managers were told | Reclaimed | the same thread |
//!
//! Some handles are *standing* pins: they say why they are held, and go by themselves, or when their makers are asked. When
//! only such are left of a retired tracker's handles, the makers are asked (`reclaim.rs`). A retired tracker may get new
//! pins until it is being reclaimed (`pin_until_reclaimed`): under the pin graph's lock, so that no ring is claimed meanwhile.
//!
//! Recording a resource and retiring exclude each other through this lock: whoever comes second sees what the first
//! did. That is the race of allocating against removing. Model: `loom_tests/loom_allocate_remove.rs`.

use std::mem;

use crate::base::SlotNumber;
use crate::error::Error;
use crate::session::dependants::PinNode;
use crate::session::resource_tracker::{ResourceKey, TrackerCore};
use crate::sync::{Arc, Condvar, Mutex, Rank};

pub(crate) struct TrackerGate {
    state: Mutex<GateState>,
}

struct GateState {
    status: Status,
    /// Owned handles: `Pin`s, the standing ones included.
    handle_pins: u32,
    /// How many of them are standing.
    standing_pins: u32,
    /// Trackers whose code refers into this one; counted by the pin graph, whose numbers are no larger.
    dependant_pins: u32,
    /// Where the pin graph knows this tracker, if it does; changed under the graph's lock too.
    node: Option<SlotNumber<PinNode>>,
}

enum Status {
    Live,
    Merged(Arc<TrackerCore>),
    /// Removed; with what tells those who wait for the end, once somebody does.
    Leaving(Stage, Option<Arc<Condvar>>),
    /// Reclaimed; with what the managers said.
    #[allow(clippy::box_collection)] // mostly none, and there is one of this for each tracker
    Reclaimed(Option<Box<Vec<Error>>>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Retired,
    Reclaiming,
}

/// What `retire` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Retire {
    /// Nothing pins it: the caller must reclaim.
    Free,
    /// Handles hold it; whoever drops the last one reclaims.
    Held,
    /// Only dependants and standing pins hold it: the caller must ask the pin graph whether any of them still counts.
    HeldWithoutHandles,
    /// It had been retired before.
    AlreadyRetired,
    /// It was merged into another tracker.
    Merged,
}

/// What the drop of a handle pin leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Unpin {
    /// Nothing.
    Nothing,
    /// The caller must reclaim.
    Reclaim,
    /// The caller must ask the pin graph.
    AskGraph,
}

/// What a tracker's gate says to the pin graph, which looks for what may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Not retired, or held by a handle, or claimed by somebody.
    Firm,
    /// Retired, and of its handles only standing pins are left.
    Standing,
    /// Retired, with no handle.
    DependantsOnly,
}

impl TrackerGate {
    pub(crate) fn new() -> TrackerGate {
        TrackerGate {
            state: Mutex::ranked(
                Rank::Gate,
                GateState { status: Status::Live, handle_pins: 0, standing_pins: 0, dependant_pins: 0, node: None },
            ),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state.lock().status, Status::Live)
    }

    pub(crate) fn is_merged(&self) -> bool {
        matches!(self.state.lock().status, Status::Merged(_))
    }

    /// Whether every resource has been given back.
    pub(crate) fn is_reclaimed(&self) -> bool {
        matches!(self.state.lock().status, Status::Reclaimed(_))
    }

    /// `(handles, dependants)` that hold the tracker.
    pub(crate) fn pins(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.handle_pins as usize, state.dependant_pins as usize)
    }

    /// How many of the handles are standing pins.
    pub(crate) fn standing_pins(&self) -> usize {
        self.state.lock().standing_pins as usize
    }

    pub(crate) fn retire(&self) -> Retire {
        let mut state = self.state.lock();
        match state.status {
            Status::Live => {}
            Status::Merged(_) => return Retire::Merged,
            _ => return Retire::AlreadyRetired,
        }
        let (stage, held) = match (state.handle_pins, state.dependant_pins) {
            (0, 0) => (Stage::Reclaiming, Retire::Free),
            (handles, _) if handles == state.standing_pins => (Stage::Retired, Retire::HeldWithoutHandles),
            _ => (Stage::Retired, Retire::Held),
        };
        state.status = Status::Leaving(stage, None);
        held
    }

    /// Runs `body` at the source's and the destination's gate, then makes the source an alias of the destination.
    /// `None`, and nothing done, unless both are live and `still_wanted` agrees.
    pub(crate) fn merge(
        source: &Arc<TrackerCore>,
        destination: &Arc<TrackerCore>,
        still_wanted: impl FnOnce() -> bool,
        body: impl FnOnce(),
    ) -> Option<()> {
        // One dylib's trackers merge under that dylib's lock, so no second merge can take the gates the other way round.
        let mut from = source.gate.state.lock();
        let mut into = destination.gate.state.lock();
        if !matches!(from.status, Status::Live) || !matches!(into.status, Status::Live) || !still_wanted() {
            return None;
        }
        let handles = into.handle_pins.checked_add(mem::take(&mut from.handle_pins));
        into.handle_pins = handles.expect("no tracker has four billion handles");
        into.standing_pins += mem::take(&mut from.standing_pins);
        // Seeded bug: a pin that is made between here and the merge stays behind.
        #[cfg(mutant = "transfer_opens_the_source_gate")]
        let mut from = (drop(from), source.gate.state.lock()).1;
        into.dependant_pins += mem::take(&mut from.dependant_pins);
        from.status = Status::Merged(destination.clone());
        body();
        Some(())
    }

    /// For the pin graph: adds a dependant's pin. Where the graph knows the tracker, which it may be told now; `None` when
    /// the tracker is not live.
    pub(crate) fn pin_dependant(&self, enter: impl FnOnce() -> SlotNumber<PinNode>) -> Option<SlotNumber<PinNode>> {
        let mut state = self.state.lock();
        let live = matches!(state.status, Status::Live);
        #[cfg(mutant = "dependant_pinned_after_the_gate_was_left")]
        let mut state = (drop(state), self.state.lock()).1;
        state.dependant_pins += u32::from(live);
        live.then(|| *state.node.get_or_insert_with(enter))
    }

    /// For the pin graph: where it knows the tracker, which it may be told now. `None` when the tracker is not live: then
    /// there may be no edges from it, as its reclaim may have looked for them already.
    pub(crate) fn node_while_live(&self, enter: impl FnOnce() -> SlotNumber<PinNode>) -> Option<SlotNumber<PinNode>> {
        let mut state = self.state.lock();
        matches!(state.status, Status::Live).then(|| *state.node.get_or_insert_with(enter))
    }

    /// Where the pin graph knows the tracker, if it does.
    pub(crate) fn node(&self) -> Option<SlotNumber<PinNode>> {
        self.state.lock().node
    }

    /// For the pin graph, which forgets the tracker.
    pub(crate) fn take_node(&self) -> Option<SlotNumber<PinNode>> {
        self.state.lock().node.take()
    }

    /// For the pin graph: takes a dependant's pin away; what that leaves to do.
    pub(crate) fn unpin_dependant(&self) -> Unpin {
        let mut state = self.state.lock();
        state.dependant_pins = state.dependant_pins.saturating_sub(1);
        state.after_unpin(false)
    }

    /// For the pin graph: who holds the tracker, beside dependants.
    pub(crate) fn hold(&self) -> Hold {
        let state = self.state.lock();
        match state.status {
            Status::Leaving(Stage::Retired, _) if state.handle_pins == 0 => Hold::DependantsOnly,
            Status::Leaving(Stage::Retired, _) if state.handle_pins == state.standing_pins => Hold::Standing,
            _ => Hold::Firm,
        }
    }

    /// For the pin graph, which found that no live tracker leads here: moves Retired to Reclaiming, once.
    pub(crate) fn claim_unpinned(&self) -> bool {
        let mut state = self.state.lock();
        let Status::Leaving(stage, _) = &mut state.status else { return false };
        mem::replace(stage, Stage::Reclaiming) == Stage::Retired
    }

    pub(crate) fn finish_reclaim(&self, failures: Vec<Error>) {
        let failures = (!failures.is_empty()).then(|| Box::new(failures));
        let mut state = self.state.lock();
        debug_assert!(matches!(state.status, Status::Leaving(Stage::Reclaiming, _)));
        let before = mem::replace(&mut state.status, Status::Reclaimed(failures));
        // Members of a ring are reclaimed while they still pin each other.
        state.dependant_pins = 0;
        if let Status::Leaving(_, Some(waited_for)) = before {
            waited_for.notify_all();
        }
    }

    /// What the managers said, once reclaimed.
    pub(crate) fn failures(&self) -> Vec<Error> {
        match &self.state.lock().status {
            Status::Reclaimed(Some(failures)) => failures.to_vec(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn wait_reclaimed(&self) {
        let mut state = self.state.lock();
        while let Status::Leaving(_, waited_for) = &mut state.status {
            let waited_for = waited_for.get_or_insert_with(|| Arc::new(Condvar::new())).clone();
            waited_for.wait(&mut state);
        }
    }
}

impl GateState {
    /// A standing pin that goes leaves nothing to do as long as there are others: their makers have been asked.
    fn after_unpin(&mut self, was_standing: bool) -> Unpin {
        match (&mut self.status, self.handle_pins, self.dependant_pins) {
            (Status::Leaving(stage @ Stage::Retired, _), 0, 0) => {
                *stage = Stage::Reclaiming;
                Unpin::Reclaim
            }
            (Status::Leaving(Stage::Retired, _), 0, _) => Unpin::AskGraph,
            (Status::Leaving(Stage::Retired, _), handles, _) if handles == self.standing_pins && !was_standing => {
                Unpin::AskGraph
            }
            _ => Unpin::Nothing,
        }
    }

    fn pin(&mut self) {
        // A count that came round would free code under its holders.
        self.handle_pins = self.handle_pins.checked_add(1).expect("no tracker has four billion handles");
    }
}

impl TrackerCore {
    /// The tracker that this one has become, and itself if it was never merged.
    pub(crate) fn current(self: &Arc<TrackerCore>) -> Arc<TrackerCore> {
        let mut core = self.clone();
        loop {
            let next = match &core.gate.state.lock().status {
                Status::Merged(next) => next.clone(),
                _ => break,
            };
            core = next;
        }
        core
    }

    /// Runs `body` with the key of the tracker that this one has become, unless that is defunct. No removal and no
    /// transfer of the tracker can happen meanwhile (S3).
    pub(crate) fn with_resource_key<R>(
        self: &Arc<TrackerCore>,
        body: impl FnOnce(ResourceKey) -> R,
    ) -> Result<R, Defunct> {
        let mut core = self.clone();
        loop {
            let state = core.gate.state.lock();
            let next = match &state.status {
                Status::Live => {
                    #[cfg(mutant = "record_outside_gate")]
                    drop(state);
                    return Ok(body(core.key()));
                }
                Status::Merged(next) => next.clone(),
                _ => return Err(Defunct),
            };
            drop(state);
            core = next;
        }
    }

    /// Adds a handle's pin to the tracker that this one has become, unless that is defunct.
    pub(crate) fn pin_handle(self: &Arc<TrackerCore>) -> Result<(), Defunct> {
        let mut core = self.clone();
        loop {
            let mut state = core.gate.state.lock();
            let next = match &state.status {
                Status::Live => {
                    #[cfg(mutant = "pinned_after_the_gate_was_left")]
                    let mut state = (drop(state), core.gate.state.lock()).1;
                    state.pin();
                    return Ok(());
                }
                Status::Merged(next) => next.clone(),
                _ => return Err(Defunct),
            };
            drop(state);
            core = next;
        }
    }

    /// Adds a handle's pin, even when the tracker is retired, as long as nobody reclaims it: for code that runs, and so is
    /// held by somebody.
    pub(crate) fn pin_until_reclaimed(self: &Arc<TrackerCore>) -> Result<(), Defunct> {
        if self.pin_handle().is_ok() {
            return Ok(());
        }
        // A ring is looked at member by member, and then claimed: not with a new pin in between.
        #[cfg(not(mutant = "pinned_while_a_ring_is_claimed"))]
        let _no_claim = self.dylib.session.pins.lock();
        let mut core = self.clone();
        loop {
            let mut state = core.gate.state.lock();
            let next = match &state.status {
                Status::Live | Status::Leaving(Stage::Retired, _) => {
                    state.pin();
                    return Ok(());
                }
                Status::Merged(next) => next.clone(),
                _ => return Err(Defunct),
            };
            drop(state);
            core = next;
        }
    }

    /// Makes a pin that the caller holds a standing one.
    pub(crate) fn let_pin_stand(self: &Arc<TrackerCore>) {
        let mut core = self.clone();
        loop {
            let mut state = core.gate.state.lock();
            let Status::Merged(next) = &state.status else {
                state.standing_pins += 1;
                return;
            };
            let next = next.clone();
            drop(state);
            core = next;
        }
    }

    /// Adds a pin beside one that the caller holds: this cannot fail, even when the tracker is retired.
    pub(crate) fn pin_handle_again(self: &Arc<TrackerCore>) {
        let mut core = self.clone();
        loop {
            let mut state = core.gate.state.lock();
            let Status::Merged(next) = &state.status else {
                state.pin();
                return;
            };
            let next = next.clone();
            drop(state);
            core = next;
        }
    }

    /// Takes a handle's pin away from the tracker that this one has become.
    pub(crate) fn unpin_handle(self: &Arc<TrackerCore>, is_standing: bool) -> (Arc<TrackerCore>, Unpin) {
        let mut core = self.clone();
        loop {
            let mut state = core.gate.state.lock();
            let Status::Merged(next) = &state.status else {
                state.handle_pins -= 1;
                state.standing_pins -= u32::from(is_standing);
                let left = state.after_unpin(is_standing);
                drop(state);
                return (core, left);
            };
            let next = next.clone();
            drop(state);
            core = next;
        }
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
        assert_eq!(size_of::<GateState>(), 32);
    }
}
