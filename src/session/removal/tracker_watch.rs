//! [`TrackerWatch`]: leads back to the tracker of something that was put under one, wherever that was transferred since,
//! and after its removal too.
//!
//! A [`SymbolWatch`](crate::session::SymbolWatch) loses sight of its symbol when the tracker is removed. Code that runs at
//! that time is there all the same, since somebody holds it; what it asks for may have to hold it, too.

use std::fmt;

use crate::session::core::resource_tracker::{Pin, TrackerCore};
use crate::sync::Arc;

/// Finds a tracker again. Keeps the tracker's name and counts in memory, and nothing that was put under it.
#[derive(Clone)]
pub struct TrackerWatch {
    core: Arc<TrackerCore>,
}

impl TrackerWatch {
    pub(crate) fn new(core: Arc<TrackerCore>) -> TrackerWatch {
        TrackerWatch { core }
    }

    /// Whether the tracker was not removed.
    pub(crate) fn is_live(&self) -> bool {
        self.core.current().gate.is_live()
    }

    /// Pins the tracker, even when it was removed, as long as its resources are all there: `None` once they are being
    /// given back.
    pub fn pin(&self) -> Option<Pin> {
        Pin::until_reclaimed(self.core.clone())
    }
}

impl fmt::Debug for TrackerWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {}", self.core.key())
    }
}
