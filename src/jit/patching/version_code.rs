//! [`VersionCode`]: the code of one version, in a dylib of its own.

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name};
use crate::jit::patching::variables::VersionVariables;
use crate::session::{JitDylib, Pin, ResourceTracker, SymbolRef};
use crate::sync::Arc;

/// The code of one version, in a dylib of its own.
pub(super) struct VersionCode {
    pub(super) number: u64,
    pub(super) dylib: JitDylib,
    pub(super) tracker: ResourceTracker,
    /// The patchable functions that it defines.
    pub(super) functions: FxHashMap<Name, VersionFunction>,
    /// The variables that it is the first to define.
    pub(super) variables: VersionVariables,
    /// Keeps the code in memory while callers may reach it, even if other code removes the tracker. Shared with a
    /// redirect in progress.
    pub(super) pin: Option<Arc<Pin>>,
}

/// One function of a version.
pub(super) struct VersionFunction {
    pub(super) address: ExecutorAddr,
    pub(super) symbol: SymbolRef,
}
