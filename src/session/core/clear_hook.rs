//! [`ClearHook`]: what goes with a dylib although it stands in other dylibs, such as the versions of patched functions.
//!
//! A dylib that is cleared takes its companions' trackers along, in one batch with its own: code on both sides may refer to
//! each other, and only what is retired together can be reclaimed as a ring.

use crate::session::core::resource_tracker::ResourceTracker;

/// Goes when a dylib to which it was [attached](crate::session::JitDylib::attach) is cleared. Attached once more, it goes
/// with whichever is cleared first.
pub(crate) trait ClearHook: Send + Sync {
    /// The dylib is about to be cleared: the trackers that are to be retired with its own. All of them are live still.
    /// Called with no lock held, once for each dylib.
    fn leave(&self) -> Vec<ResourceTracker>;

    /// What [`leave`](Self::leave) named is retired, and reclaimed as far as nothing pins it.
    fn left(&self);
}
