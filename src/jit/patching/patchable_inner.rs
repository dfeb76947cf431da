//! [`PatchableInner`]: what the clones of a [`Patchable`](crate::Patchable) and its patches share.

use std::fmt;

use crate::jit::inner::Jit;
use crate::jit::patching::versions::Versions;
use crate::sync::Arc;

/// A set of patchable functions, and the session that links them.
///
/// The dylib holds the versions too. When the last handle is dropped, versions that were committed stay with the dylib.
pub(super) struct PatchableInner {
    pub(super) jit: Jit,
    pub(super) versions: Arc<Versions>,
}

/// A set of patchable functions, without a hold on the session. For owners that the session owns.
pub(in crate::jit) struct UnheldPatchable(pub(super) Arc<Versions>);

impl Drop for PatchableInner {
    fn drop(&mut self) {
        self.versions.sweep();
        self.versions.detach_if_unused();
    }
}

impl fmt::Debug for PatchableInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "patchable {:?} of {:?}", self.versions.function_names(), self.versions.dylib())
    }
}
