//! [`TrackerWatch`]: a weak reference to the tracker of a resource. It follows transfers, and works after a removal too.
//!
//! A [`SymbolWatch`](crate::session::SymbolWatch) no longer finds its symbol when the tracker is removed. Code of a removed
//! tracker may still run, since something pins it, and may call the host. The host then pins the tracker through its watch.

use std::fmt;

use crate::session::core::resource_tracker::{Pin, ResourceTracker, TrackerCore};
use crate::session::pins::pinned::Pinned;
use crate::sync::Arc;

/// A weak reference to a tracker. It keeps the tracker's own data in memory, and no resource of the tracker.
#[derive(Clone)]
pub struct TrackerWatch {
    core: Arc<TrackerCore>,
}

impl TrackerWatch {
    pub(crate) fn new(core: Arc<TrackerCore>) -> TrackerWatch {
        TrackerWatch { core }
    }

    pub(crate) fn into_core(self) -> Arc<TrackerCore> {
        self.core
    }

    /// Whether the tracker is live, or was transferred to one that is.
    pub(crate) fn is_live(&self) -> bool {
        self.core.current().state.is_live()
    }

    /// Whether all resources of the tracker are released.
    #[cfg(feature = "reload")]
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.core.current().state.is_reclaimed()
    }

    /// Pins the tracker, even after its removal. `None` once its resources are being released.
    pub fn pin(&self) -> Option<Pin> {
        Pin::until_reclaimed(self.core.clone())
    }
}

impl ResourceTracker {
    /// A weak reference to the tracker. It follows transfers and keeps nothing alive.
    pub fn watch(&self) -> TrackerWatch {
        TrackerWatch::new(self.core().clone())
    }
}

impl fmt::Debug for TrackerWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {}", self.core.key())
    }
}
