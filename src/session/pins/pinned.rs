//! [`Pinned`]: a tracker as this sub-room sees it, and the operations on the *current* tracker.
//!
//! A tracker that was merged leads to the tracker that it was merged into; the last one of this chain is the current tracker.
//! Each operation here follows the chain first ([`with_current`]), then runs under the lock of the current tracker.

use crate::session::pins::pin_nodes::PinNode;
use crate::session::pins::tracker_flags::TrackerFlag;
use crate::session::pins::tracker_state::{AfterUnpin, EdgeAdded, PinCount};
use crate::session::pins::tracker_state::{RemovalStage, StateInner, Status, TrackerState};
use crate::session::types::ids::ResourceKey;
use crate::sync::{Arc, MutexGuard, seeded_bug};

/// A tracker with a [`TrackerState`].
pub(crate) trait Pinned: Sized {
    fn state(&self) -> &TrackerState<Self>;

    fn key(&self) -> ResourceKey;

    /// The position of its dylib in the creation order of the session.
    fn dylib_serial(&self) -> u64;

    /// Its position in the creation order of its dylib.
    fn serial(&self) -> u64;

    /// Whether the current tracker is live.
    fn is_current_live(self: &Arc<Self>) -> bool {
        with_current(self, |_, state| matches!(state.status, Status::Live))
    }

    /// The current tracker. It is this one if it was never merged.
    fn current(self: &Arc<Self>) -> Arc<Self> {
        with_current(self, |core, _| core.clone())
    }

    /// For the pin graph: adds a dependant's pin to the current tracker, unless `choose` returns an existing edge or `None`.
    /// `choose` gets the tracker, its own node, and whether it is live. `table` is the number of the dependant's table.
    fn pin_dependant(
        self: &Arc<Self>,
        table: usize,
        choose: impl FnOnce(&Arc<Self>, Option<PinNode>, bool) -> Option<EdgeAdded>,
    ) -> Option<EdgeAdded> {
        with_current(self, |core, mut state| {
            let is_live = matches!(state.status, Status::Live);
            if seeded_bug!("dependant_pinned_after_the_gate_was_left") {
                drop(state);
                state = core.state().inner.lock();
            }
            let edge = choose(core, core.state().node(), is_live)?;
            if let EdgeAdded::Local(_) | EdgeAdded::FirstRemote(_) = edge {
                state.dependant_pins += 1;
                core.state().flags.set(TrackerFlag::InGraph);
                core.state().flags.set(TrackerFlag::HadDependants);
            }
            match edge {
                EdgeAdded::Local(node) => core.state().node.set(node),
                EdgeAdded::FirstRemote(_) => core.state().add_remote_table(table),
                _ => {}
            }
            Some(edge)
        })
    }

    /// For the pin graph: removes a dependant's pin from the current tracker. Returns what the caller must do.
    fn unpin_dependant(self: &Arc<Self>) -> AfterUnpin {
        with_current(self, |core, mut state| {
            state.dependant_pins = state.dependant_pins.saturating_sub(1);
            core.state().after_unpin(&mut state, false)
        })
    }

    /// For the pin graph: the node of the current tracker, and whether it may get new edges. It may if it is live, or if the
    /// caller has a pin of it and it is not being reclaimed. In that case a missing node is inserted. Otherwise the
    /// reclamation may have read the edges already, and a missing node gives `None`.
    fn node_or_insert(
        self: &Arc<Self>,
        is_pinned: bool,
        make_node: impl FnOnce(&Arc<Self>) -> PinNode,
    ) -> Option<(PinNode, bool)> {
        with_current(self, |core, state| {
            let may_refer = match state.status {
                Status::Live => true,
                Status::Removing(RemovalStage::Guarded | RemovalStage::Retired, _) => is_pinned,
                // Seeded bug: the reclamation has read the edges, so nobody drops this one.
                _ if seeded_bug!("edge_from_a_tracker_that_is_reclaimed") => is_pinned,
                _ => false,
            };
            let node =
                if may_refer { core.state().get_or_insert_node(|| make_node(core)) } else { core.state().node()? };
            Some((node, may_refer))
        })
    }

    /// Runs `body` with the key of the current tracker, unless the tracker is defunct. The tracker is not removed and not
    /// transferred meanwhile (S3).
    fn with_resource_key<R>(self: &Arc<Self>, body: impl FnOnce(ResourceKey) -> R) -> Result<R, Defunct> {
        with_current(self, |core, state| {
            if !matches!(state.status, Status::Live) {
                return Err(Defunct);
            }
            // Seeded bug: a removal in between skips the managers that skip unused keys.
            let is_flag_late = seeded_bug!("key_marked_under_a_later_lock");
            if !is_flag_late {
                core.state().flags.set(TrackerFlag::KeyGiven);
            }
            let held = (!seeded_bug!("record_outside_gate")).then_some(state);
            let recorded = body(core.key());
            drop(held);
            if is_flag_late {
                let _state = core.state().inner.lock();
                core.state().flags.set(TrackerFlag::KeyGiven);
            }
            Ok(recorded)
        })
    }

    /// Adds a handle's pin to the current tracker, unless the tracker is defunct.
    fn pin_handle(self: &Arc<Self>) -> Result<(), Defunct> {
        with_current(self, |core, mut state| {
            if !matches!(state.status, Status::Live) {
                return Err(Defunct);
            }
            if seeded_bug!("pinned_after_the_gate_was_left") {
                drop(state);
                state = core.state().inner.lock();
            }
            state.handle_pins.add_one();
            Ok(())
        })
    }

    /// Like [`pin_handle`](Self::pin_handle), but also pins a retired tracker that is not being reclaimed yet. The caller holds
    /// the lock of the witness forest ([`PinGraph::pin_until_reclaimed`]). Returns the number of the search that has visited the
    /// tracker, or zero.
    ///
    /// [`PinGraph::pin_until_reclaimed`]: crate::session::pins::dependants::PinGraph::pin_until_reclaimed
    fn pin_unless_reclaimed(self: &Arc<Self>) -> Result<u32, Defunct> {
        with_current(self, |_, mut state| match state.status {
            Status::Live | Status::Removing(RemovalStage::Guarded | RemovalStage::Retired, _) => {
                state.handle_pins.add_one();
                Ok(state.search())
            }
            _ => Err(Defunct),
        })
    }

    /// Counts a pin that the caller holds as revocable.
    fn make_pin_revocable(self: &Arc<Self>) {
        with_current(self, |core, _state| core.state().update_revocable(PinCount::add_one));
    }

    /// Adds a second pin for a caller that holds one. This cannot fail, even if the tracker is retired.
    fn pin_handle_again(self: &Arc<Self>) {
        with_current(self, |_, mut state| state.handle_pins.add_one());
    }

    /// Removes a handle's pin from the current tracker. Returns that tracker and what the caller must do.
    fn unpin_handle(self: &Arc<Self>, is_revocable: bool) -> (Arc<Self>, AfterUnpin) {
        with_current(self, |core, mut state| {
            state.handle_pins.subtract_one();
            if is_revocable {
                core.state().update_revocable(PinCount::subtract_one);
            }
            (core.clone(), core.state().after_unpin(&mut state, is_revocable))
        })
    }
}

/// Runs `body` with the current tracker, under its lock.
fn with_current<T: Pinned, R>(
    this: &Arc<T>,
    body: impl for<'a> FnOnce(&'a Arc<T>, MutexGuard<'a, StateInner<T>>) -> R,
) -> R {
    let mut merged = None;
    loop {
        let core = merged.as_ref().unwrap_or(this);
        let state = core.state().inner.lock();
        let Status::Merged(next) = &state.status else { return body(core, state) };
        let next = next.clone();
        drop(state);
        merged = Some(next);
    }
}

/// The tracker was removed or transferred away.
#[derive(Debug)]
pub(crate) struct Defunct;
