//! [`RevocablePins`]: the reasons of the revocable pins of a session. `Removal::obstacles` shows them.
//!
//! A revocable pin is a handle that its maker releases when the session asks for it. This table has only the texts. The
//! counts in the tracker decide whether the tracker may be reclaimed (`tracker_state.rs`). An entry may be added a moment
//! before the pin counts as revocable, and removed a moment before the pin is dropped.

use crate::base::{PagedArena, sort_by_order};
use crate::session::pins::pinned::Pinned;
use crate::sync::{Arc, Mutex};

slotmap::new_key_type! {
    /// Names one revocable pin.
    pub(crate) struct RevocablePinId;
}

/// The reasons, each with the tracker that its pin holds.
pub(crate) struct RevocablePins<T> {
    reasons: Mutex<PagedArena<RevocablePinId, Reason<T>>>,
}

type Reason<T> = (Arc<T>, Arc<str>);

impl<T: Pinned> RevocablePins<T> {
    pub(crate) fn new() -> RevocablePins<T> {
        RevocablePins { reasons: Mutex::new(PagedArena::new()) }
    }

    pub(crate) fn add(&self, core: &Arc<T>, reason: Arc<str>) -> RevocablePinId {
        self.reasons.lock().insert((core.clone(), reason))
    }

    pub(crate) fn remove(&self, id: RevocablePinId) {
        let removed = self.reasons.lock().remove(id);
        drop(removed);
    }

    /// The reasons of all pins of a tracker, also of pins that a merge has moved to it.
    pub(crate) fn reasons_of(&self, core: &Arc<T>) -> Vec<String> {
        let all: Vec<_> = self.reasons.lock().values().cloned().collect();
        // `current` takes the locks of trackers, so it runs after this leaf lock is released.
        let of_it = all.into_iter().filter(|(pinned, _)| Arc::ptr_eq(&pinned.current(), core));
        let mut reasons: Vec<String> = of_it.map(|(_, reason)| reason.to_string()).collect();
        sort_by_order(&mut reasons, String::cmp);
        reasons
    }
}
