//! [`OwningTracker`]: a tracker that is removed when its owner drops it.
//!
//! ORC's way is the other one: the last handle of a tracker gives what it owns to the default tracker of the dylib. Caches and
//! other owners want the code to go with its owner, also when that is dropped by an error or a panic.

use std::fmt;
use std::ops::Deref;

use crate::error::Result;
use crate::session::core::resource_tracker::ResourceTracker;
use crate::session::removal::ticket::Removal;

/// Owns a tracker, and removes it when it is dropped. Made by [`ResourceTracker::remove_on_drop`].
///
/// It is a [`ResourceTracker`] wherever a reference to one is needed. Clones of the tracker may exist; they are defunct after the
/// drop.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// {
///     let owner = jit.main_dylib().create_tracker()?.remove_on_drop();
///     jit.link_object(&owner, "add.o", ADD)?;
///     assert!(jit.usage(&owner).code > 0);
/// }
/// assert!(jit.address_of(jit.main_dylib(), "add").is_err());
/// # Ok(()) }
/// ```
#[must_use = "dropping it removes the tracker"]
pub struct OwningTracker {
    /// `None` after the owner gave it away.
    tracker: Option<ResourceTracker>,
}

impl ResourceTracker {
    /// Returns an owner that removes the tracker when it is dropped.
    pub fn remove_on_drop(self) -> OwningTracker {
        OwningTracker { tracker: Some(self) }
    }
}

impl OwningTracker {
    /// Removes the tracker now, and returns the ticket and the errors that a drop would report.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`].
    pub fn remove(mut self) -> Result<Removal> {
        self.take().remove()
    }

    /// Gives up the ownership: the tracker is an ordinary one again.
    pub fn into_tracker(mut self) -> ResourceTracker {
        self.take()
    }

    fn take(&mut self) -> ResourceTracker {
        let Some(tracker) = self.tracker.take() else { unreachable!("only methods that consume the owner take it") };
        tracker
    }
}

impl Deref for OwningTracker {
    type Target = ResourceTracker;
    fn deref(&self) -> &ResourceTracker {
        let Some(tracker) = &self.tracker else { unreachable!("only methods that consume the owner take it") };
        tracker
    }
}

impl Drop for OwningTracker {
    /// Removes the tracker, unless it is defunct. The [error reporter](crate::JitBuilder::error_reporter) gets the errors of
    /// managers.
    fn drop(&mut self) {
        let Some(tracker) = self.tracker.take().filter(|tracker| !tracker.is_defunct()) else { return };
        if let Err(error) = tracker.remove()
            && !tracker.is_merged()
        {
            tracker.core().dylib().session.error_reporter.report(error);
        }
    }
}

impl fmt::Debug for OwningTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner of {:?}", self.tracker)
    }
}
