//! [`RevocablePins`]: what a session's standing pins say of themselves, for whoever asks who is in the way of a removal.
//!
//! Only words. Whether a tracker may go is decided by the counts in its gate (`tracker_state.rs`); an entry here may come a
//! moment before its pin counts as standing, and go a moment before the pin does.

use crate::base::PagedArena;
use crate::session::core::resource_tracker::TrackerCore;
use crate::sync::{Arc, Mutex};

slotmap::new_key_type! {
    /// Names one standing pin.
    pub(crate) struct StandingId;
}

/// Reasons, with the trackers that they hold.
pub(crate) struct RevocablePins {
    reasons: Mutex<PagedArena<StandingId, Reason>>,
}

type Reason = (Arc<TrackerCore>, Arc<str>);

impl RevocablePins {
    pub(crate) fn new() -> RevocablePins {
        RevocablePins { reasons: Mutex::new(PagedArena::new()) }
    }

    pub(crate) fn add(&self, core: &Arc<TrackerCore>, reason: Arc<str>) -> StandingId {
        self.reasons.lock().insert((core.clone(), reason))
    }

    pub(crate) fn remove(&self, id: StandingId) {
        let removed = self.reasons.lock().remove(id);
        drop(removed);
    }

    /// What the pins of a tracker say, those included that came with a tracker that was merged into it.
    pub(crate) fn of(&self, core: &Arc<TrackerCore>) -> Vec<String> {
        let all: Vec<_> = self.reasons.lock().values().cloned().collect();
        // Followed outside the lock, under which no other may be taken.
        let of_it = all.into_iter().filter(|(pinned, _)| Arc::ptr_eq(&pinned.current(), core));
        let mut reasons: Vec<String> = of_it.map(|(_, reason)| reason.to_string()).collect();
        reasons.sort_unstable();
        reasons
    }
}
