//! [`UncommittedVersion`]: a version that no caller reaches yet. Dropping it removes all of it.
//!
//! | state when it is dropped | what happens to its dylib |
//! |---|---|
//! | linked, or failed to link | it is removed at once |
//! | an initialiser threw | it is removed at the next call on the `Patchable`: the exception that propagates may lie in it |
//! | committed ([`UncommittedVersion::into_code`]) | it stays |

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::jit::patching::variables::VersionVariables;
use crate::jit::patching::version_code::VersionCode;
use crate::session::{ExecutionSession, JitDylib, ResourceTracker};
use crate::sync::Arc;

/// Removes versions whose initialisers threw, after the exception has been handled.
pub(super) trait RemoveLater: Send + Sync {
    /// Removes the dylib at the next call on the `Patchable`.
    fn remove_later(&self, dylib: JitDylib, tracker: ResourceTracker);
}

/// A version that is linked, or is being linked, and that no caller reaches.
pub(super) struct UncommittedVersion {
    /// `None` once it is committed.
    code: Option<VersionCode>,
    remover: Arc<dyn RemoveLater>,
    session: ExecutionSession,
    /// Whether initialisers run. An exception of theirs may propagate when this is dropped.
    pub(super) is_initializing: bool,
}

impl UncommittedVersion {
    /// Creates a version without code. `home` is the dylib whose functions it will replace.
    pub(super) fn new(
        remover: Arc<dyn RemoveLater>,
        home: &JitDylib,
        session: &ExecutionSession,
        number: u64,
    ) -> Result<UncommittedVersion> {
        let dylib = session.create_version_dylib(&format!("{} patch {number}", home.name()))?;
        let tracker = dylib.create_tracker()?;
        let (functions, variables) = (FxHashMap::default(), VersionVariables::default());
        let code = VersionCode { number, dylib, tracker, functions, variables, pin: None };
        Ok(UncommittedVersion { code: Some(code), remover, session: session.clone(), is_initializing: false })
    }

    pub(super) fn code(&self) -> &VersionCode {
        self.code.as_ref().expect("the code is there until `into_code`, which consumes this value")
    }

    pub(super) fn code_mut(&mut self) -> &mut VersionCode {
        self.code.as_mut().expect("the code is there until `into_code`, which consumes this value")
    }

    /// Returns the code of a version that is being committed. From here on the caller has to remove it.
    pub(super) fn into_code(mut self) -> VersionCode {
        self.code.take().expect("the code is there until `into_code`, which consumes this value")
    }
}

impl Drop for UncommittedVersion {
    fn drop(&mut self) {
        let Some(VersionCode { dylib, tracker, pin, .. }) = self.code.take() else { return };
        drop(pin);
        match self.is_initializing {
            // The type of the exception and its text may lie in this code.
            true => self.remover.remove_later(dylib, tracker),
            false => {
                let removed = self.session.remove_dylib(&dylib);
                removed.err().into_iter().for_each(|error| self.session.report_error(error));
            }
        }
    }
}
