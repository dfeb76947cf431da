//! [`FailedVersion`]: a version whose initialiser threw or panicked. It stays in memory, because the exception may lie in it.
//!
//! The type of an exception, its destructor and its text may be in the version. Only the code that catches the exception knows
//! when it ends: C++ code may store it (`std::exception_ptr`), and `std::thread::panicking` does not see foreign exceptions. So
//! no other call on the `Patchable`, and no drop of it, removes a failed version. These remove it:
//!
//! | cause | what removes the version |
//! |---|---|
//! | the patched dylib is cleared or removed | the hook in that dylib, in the same batch |
//! | the version's own dylib is cleared or removed | that call; the hook in the version's dylib drops the handles |
//! | the session ends | the end of the session |
//!
//! The patched dylib may be cleared before the initialiser throws. Then the next clear finds the hook.

use crate::session::{ClearHook, JitDylib, ResourceTracker};
use crate::sync::{Arc, Mutex};

/// The code of a failed version. Its owners are the patched dylib and the dylib of the version.
pub(super) struct FailedVersion {
    /// `None` when it is removed.
    code: Mutex<Option<(JitDylib, ResourceTracker)>>,
}

impl FailedVersion {
    /// Keeps a version in memory until `home`, the patched dylib, or the dylib of the version is cleared.
    pub(super) fn keep(home: &JitDylib, dylib: JitDylib, tracker: ResourceTracker) {
        let failed = Arc::new(FailedVersion { code: Mutex::new(Some((dylib.clone(), tracker))) });
        for owner in [home, &dylib] {
            // Fails if that dylib was removed. The other one, or the end of the session, removes the version.
            let _ = owner.attach(failed.clone());
        }
    }
}

impl ClearHook for FailedVersion {
    fn trackers_to_remove(&self, _: &JitDylib) -> Option<Vec<ResourceTracker>> {
        Some(self.code.lock().iter().map(|(_, tracker)| tracker.clone()).collect())
    }

    fn cleared(&self) {
        // The handles are dropped without the lock.
        let code = self.code.lock().take();
        // If the version's dylib is closed, its removal is in progress.
        if let Some((dylib, _)) = code.filter(|(dylib, _)| !dylib.is_defunct()) {
            dylib.remove_and_report();
        }
    }
}
