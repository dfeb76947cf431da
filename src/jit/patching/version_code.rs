//! [`VersionCode`]: the code of one version, in a dylib that holds no other version with names.

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name};
use crate::jit::patching::variables::VersionVariables;
use crate::jit::spare_dylibs::OrderEdits;
use crate::session::{JitDylib, Pin, ResourceTracker, SymbolId};
use crate::sync::Arc;

/// The code of one version. No other version has names in its dylib.
pub(super) struct VersionCode {
    pub(super) number: u64,
    pub(super) dylib: JitDylib,
    /// Whether the dylib can take another version after this one (`jit/spare_dylibs.rs`).
    pub(super) is_plain: bool,
    /// The state of the link orders for which the dylib got its own.
    pub(super) order: Option<OrderEdits>,
    pub(super) tracker: ResourceTracker,
    /// The patchable functions that it defines, sorted by name.
    pub(super) functions: VersionFunctions,
    /// The variables that it is the first to define.
    pub(super) variables: VersionVariables,
    /// Keeps the code in memory while callers may reach it, even if other code removes the tracker. Shared with a
    /// redirect in progress.
    pub(super) pin: Option<Arc<Pin>>,
}

/// The functions of a version, mostly one, sorted by name.
pub(super) type VersionFunctions = SmallVec<[(Name, VersionFunction); 1]>;

/// One function of a version.
pub(super) struct VersionFunction {
    pub(super) address: ExecutorAddr,
    /// In the dylib of the version.
    pub(super) id: SymbolId,
}

impl VersionCode {
    /// The address of a function, if the version defines it.
    pub(super) fn address_of(&self, name: &Name) -> Option<ExecutorAddr> {
        let position = self.functions.binary_search_by(|(known, _)| known.cmp(name)).ok()?;
        Some(self.functions[position].1.address)
    }
}
