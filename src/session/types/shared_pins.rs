//! [`SharedPin`]: one pin of a tracker that many owned handles share. [`SharedPins`]: those of one dylib.
//!
//! A pin of its own costs a handle two locks of the tracker and an allocation, and as many when it is dropped. So a symbol that
//! is looked up often gets a shared pin: the dylib holds it, the index of ready symbols refers to it weakly, and a lookup that
//! finds it there only counts one reference.
//!
//! The session counts a shared pin as one pin of its tracker. Before the tracker is retired or transferred, the dylib drops its
//! reference. Either no handle has one, and the pin is gone. Or a handle keeps the pin: then the tracker is pinned, and a
//! lookup that still finds the symbol in the index shares the pin of that handle.
//!
//! The numbers of handles are for reports: [`SharedPins::extra_handles`].

use rustc_hash::FxHashMap;

use crate::base::{CallEntry, CodeHold};
use crate::session::types::ids::TrackerId;
use crate::sync::{Arc, Weak};

/// One pin, and the references of all handles that share it.
pub(crate) struct SharedPin(Box<dyn CodeHold>);

/// The shared pins of the trackers of one dylib. The dylib's lock guards them.
#[derive(Default)]
pub(in crate::session) struct SharedPins(FxHashMap<TrackerId, PinsOfTracker>);

#[derive(Default)]
struct PinsOfTracker {
    /// The pin that lookups share.
    current: Option<Arc<SharedPin>>,
    /// Earlier pins. Only handles hold them.
    released: Vec<Weak<SharedPin>>,
}

impl SharedPin {
    pub(in crate::session) fn new(pin: Box<dyn CodeHold>) -> SharedPin {
        SharedPin(pin)
    }
}

impl CodeHold for SharedPin {
    fn enter_call(&self) -> Option<CallEntry> {
        self.0.enter_call()
    }
}

impl SharedPins {
    #[inline]
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pin that lookups of a tracker share. Made with `pin` if there is none. `None` if `pin` returns `None`.
    pub(in crate::session) fn get_or_insert(
        &mut self,
        tracker: TrackerId,
        pin: impl FnOnce() -> Option<Box<dyn CodeHold>>,
    ) -> Option<Arc<SharedPin>> {
        if let Some(current) = self.0.get(&tracker).and_then(|pins| pins.current.as_ref()) {
            return Some(current.clone());
        }
        let new = Arc::new(SharedPin::new(pin()?));
        self.0.entry(tracker).or_default().current = Some(new.clone());
        Some(new)
    }

    /// Drops the dylib's reference to the pin of a tracker, which is live.
    #[cold]
    pub(in crate::session) fn release(&mut self, tracker: TrackerId) {
        let Some(pins) = self.0.get_mut(&tracker) else { return };
        if let Some(current) = pins.current.take() {
            pins.released.retain(|pin| pin.strong_count() > 0);
            let released = Arc::downgrade(&current);
            drop(current);
            pins.released.extend((released.strong_count() > 0).then_some(released));
        }
        if pins.released.is_empty() {
            self.0.remove(&tracker);
        }
    }

    /// `source`, whose pin is released, was transferred to `destination`.
    pub(in crate::session) fn transfer(&mut self, source: TrackerId, destination: TrackerId) {
        if let Some(moved) = self.0.remove(&source) {
            self.0.entry(destination).or_default().released.extend(moved.released);
        }
    }

    /// The tracker is reclaimed.
    pub(in crate::session) fn remove(&mut self, tracker: TrackerId) {
        self.0.remove(&tracker);
    }

    /// How many more handles a tracker has than pins.
    pub(in crate::session) fn extra_handles(&self, tracker: TrackerId) -> isize {
        let Some(pins) = self.0.get(&tracker) else { return 0 };
        let beyond_one = |references: usize| (references as isize - 1).max(0);
        // The dylib's own reference is no handle.
        let of_current = pins.current.as_ref().map_or(0, |current| Arc::strong_count(current) as isize - 2);
        of_current + pins.released.iter().map(|pin| beyond_one(pin.strong_count())).sum::<isize>()
    }
}
