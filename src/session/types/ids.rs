//! Ids of dylibs and trackers, and [`ResourceKey`], under which managers record resources.

use std::fmt;

slotmap::new_key_type! {
    pub(crate) struct DylibId;
}

slotmap::new_key_type! {
    pub(crate) struct TrackerId;
}

/// Names the resources of one tracker. Keys are generational: a key is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey {
    pub(crate) dylib: DylibId,
    pub(crate) tracker: TrackerId,
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tracker {:?}/{:?}", slotmap::Key::data(&self.dylib), slotmap::Key::data(&self.tracker))
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
