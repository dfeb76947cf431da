//! [`ClearHook`]: lets the `clear` of one dylib also remove trackers of other dylibs, such as versions of patched
//! functions.
//!
//! The trackers of the hook are retired in one batch with those of the dylib. Code on both sides may refer to each
//! other, and a cycle of references can be reclaimed only if all its trackers are retired together.

use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::ResourceTracker;

/// A hook that runs when a dylib to which it is [attached](crate::session::JitDylib::attach) is cleared. A hook that is
/// attached to several dylibs runs for the first of them that is cleared.
pub(crate) trait ClearHook: Send + Sync {
    /// `dylib` is about to be cleared. Returns the trackers to retire together with the dylib's own; the dylib's
    /// trackers are still live. Called once for each dylib, with no lock held.
    ///
    /// `None` if the hook does not concern the dylib any more: another thread may detach it, or clear another dylib,
    /// between the start of the clear and this call. Then [`cleared`](Self::cleared) is not called.
    fn trackers_to_remove(&self, dylib: &JitDylib) -> Option<Vec<ResourceTracker>>;

    /// The trackers that [`trackers_to_remove`](Self::trackers_to_remove) returned are retired. Those without pins are
    /// reclaimed.
    fn cleared(&self);
}
