//! [`UncommittedVersion`]: a version that is linked and not committed. Dropped, it leaves nothing behind.

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name};
use crate::error::Result;
use crate::jit::patching::variables::VersionVariables;
use crate::jit::patching::versions::Versions;
use crate::session::{ExecutionSession, JitDylib, Pin, ResourceTracker, SymbolRef};
use crate::sync::Arc;

/// One function of a version.
pub(super) struct Entry {
    pub(super) address: ExecutorAddr,
    pub(super) symbol: SymbolRef,
}

/// The code of one version, in a dylib of its own.
pub(super) struct Code {
    pub(super) number: u64,
    pub(super) dylib: JitDylib,
    pub(super) tracker: ResourceTracker,
    pub(super) functions: FxHashMap<Name, Entry>,
    pub(super) brought: VersionVariables,
    /// Whoever removes the tracker without being asked to leaves the code where callers are led to it.
    pub(super) pin: Option<Pin>,
}

/// Code that nobody is led to.
pub(super) struct UncommittedVersion {
    /// There until it is committed.
    code: Option<Code>,
    versions: Arc<Versions>,
    session: ExecutionSession,
    /// Whether initialisers run: an exception of theirs may be on its way when this is dropped.
    pub(super) is_initializing: bool,
}

impl UncommittedVersion {
    pub(super) fn new(versions: &Arc<Versions>, session: &ExecutionSession, number: u64) -> Result<UncommittedVersion> {
        let dylib = session.create_version_dylib(&format!("{} patch {number}", versions.dylib().name()))?;
        let tracker = dylib.create_tracker()?;
        let (functions, brought) = (FxHashMap::default(), VersionVariables::default());
        let code = Code { number, dylib, tracker, functions, brought, pin: None };
        Ok(UncommittedVersion {
            code: Some(code),
            versions: versions.clone(),
            session: session.clone(),
            is_initializing: false,
        })
    }

    pub(super) fn code(&self) -> &Code {
        self.code.as_ref().expect("it is taken only when this ends")
    }

    pub(super) fn code_mut(&mut self) -> &mut Code {
        self.code.as_mut().expect("it is taken only when this ends")
    }

    /// Ends being aside: the code is the caller's to look after.
    pub(super) fn take(mut self) -> Code {
        self.code.take().expect("it is taken only when this ends")
    }
}

impl Drop for UncommittedVersion {
    fn drop(&mut self) {
        let Some(Code { dylib, tracker, pin, .. }) = self.code.take() else { return };
        drop(pin);
        match self.is_initializing {
            // The exception may be of a type, and hold text, that lie in there.
            true => self.versions.discard_later(dylib, tracker),
            false => {
                let removed = self.session.remove_dylib(&dylib);
                removed.err().into_iter().for_each(|error| self.session.report_error(error));
            }
        }
    }
}
