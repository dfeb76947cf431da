//! Reload points: a thread declares which replaced versions it may still be inside.
//!
//! Which versions are on its stack is known to the caller (`jit/reload_points.rs`). The protocol is in `pins/calls.rs`.

use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::resource_tracker::Pin;
use crate::session::pins::calls::refresh_host_calls_holding;
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::sync::seeded_bug;

/// Declares that the calling thread is inside no version but those of `on_stack`, which has all sessions with such versions. What only
/// the calls of this thread keep is reclaimed; the calls go on. Does nothing for versions that others made
/// ([`ExecutionSession::create_version_dylib`]).
pub(crate) fn pass_reload_point(on_stack: &[(&ExecutionSession, Vec<TrackerWatch>)]) {
    let pin_all = || -> Vec<Vec<Pin>> {
        on_stack.iter().map(|(_, code)| code.iter().filter_map(TrackerWatch::pin).collect()).collect()
    };
    // Seeded bug: a version that only the calls of this thread keep is freed by the refresh.
    let is_pinned_late = seeded_bug!("pinned_after_the_refresh");
    let pins = if is_pinned_late { Vec::new() } else { pin_all() };
    for (index, (session, _)) in on_stack.iter().enumerate() {
        let own = pins.get(index).cloned();
        session.inner().calls.refresh_holding(Box::new(own));
    }
    refresh_host_calls_holding(Box::new(pins));
    if is_pinned_late {
        drop(pin_all());
    }
}

/// For models: passes a reload point with these versions on the stack.
#[cfg(loom)]
#[doc(hidden)]
pub fn pass_reload_point_with(session: &ExecutionSession, on_stack: &[TrackerWatch]) {
    pass_reload_point(&[(session, on_stack.to_vec())]);
}
