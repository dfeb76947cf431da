//! Ids of dylibs and trackers, and [`ResourceKey`], under which managers record resources.

use std::fmt;

use crate::sync::{MappedU64, Ordering, per_process};

/// Names a dylib. No other dylib of the process has the same id, before or later, so keys of two sessions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DylibId(u64);

per_process! {
    /// Loom does not explore this counter. It starts at zero in each execution of a model.
    static NEXT_DYLIB: MappedU64 = MappedU64::new(0);
}

impl DylibId {
    /// An id above all earlier ones.
    pub(crate) fn next() -> DylibId {
        DylibId(NEXT_DYLIB.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

slotmap::new_key_type! {
    pub(crate) struct TrackerId;
}

/// Names the resources of one tracker. No key is used twice in a process, so a manager may serve several sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey {
    pub(crate) dylib: DylibId,
    pub(crate) tracker: TrackerId,
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tracker {}/{:?}", self.dylib.number(), slotmap::Key::data(&self.tracker))
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
