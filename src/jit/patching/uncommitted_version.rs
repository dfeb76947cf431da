//! [`UncommittedVersion`]: a version that no caller reaches yet. Dropping it removes all of it.
//!
//! | state when it is dropped | what happens to its dylib |
//! |---|---|
//! | linked, or failed to link | it is removed at once |
//! | an initialiser threw | it stays, because the exception that propagates may lie in it (`failed_version.rs`) |
//! | committed ([`UncommittedVersion::into_code`]) | it stays |
//!
//! A plain version may be in a dylib that held an earlier one (`jit/spare_dylibs.rs`).

use crate::error::Result;
use crate::jit::patching::failed_version::FailedVersion;
use crate::jit::patching::variables::VersionVariables;
use crate::jit::patching::version_code::{VersionCode, VersionFunctions};
use crate::jit::spare_dylibs::{OrderEdits, Spare};
use crate::session::{ExecutionSession, JitDylib};

/// A version that is linked, or is being linked, and that no caller reaches.
pub(super) struct UncommittedVersion {
    /// `None` once it is committed. Boxed, because it is moved at each step.
    code: Option<Box<VersionCode>>,
    /// The dylib whose functions it will replace.
    home: JitDylib,
    session: ExecutionSession,
    /// Whether initialisers run, or one has failed in a call of other code. An exception of theirs may propagate when this is
    /// dropped.
    pub(super) is_initializing: bool,
}

impl UncommittedVersion {
    /// Creates a version without code. `home` is the dylib whose functions it will replace. A plain version goes into `spare`, if
    /// there is one.
    pub(super) fn new(
        home: &JitDylib,
        session: &ExecutionSession,
        number: u64,
        is_plain: bool,
        spare: Option<Spare>,
    ) -> Result<UncommittedVersion> {
        // A spare may have been removed, as any dylib of the session.
        let reused = spare.and_then(|spare| Some((spare.dylib.create_tracker().ok()?, spare.dylib, spare.order)));
        let (tracker, dylib, order) = match reused {
            Some(reused) => reused,
            None => {
                let name = home.name();
                let name = if is_plain { format!("{name} patches") } else { format!("{name} patch {number}") };
                let dylib = session.create_version_dylib(&name)?;
                // The dylib has no owner yet that removes it.
                (dylib.create_tracker().inspect_err(|_| dylib.remove_and_report())?, dylib, None)
            }
        };
        let (functions, variables) = (VersionFunctions::new(), VersionVariables::default());
        let code = VersionCode { number, dylib, is_plain, order, tracker, functions, variables, pin: None };
        let (home, session) = (home.clone(), session.clone());
        Ok(UncommittedVersion { code: Some(Box::new(code)), home, session, is_initializing: false })
    }

    /// Gives the dylib the link order in which objects look up external symbols: `home`, hidden symbols included, then what that links
    /// against. A spare mostly has it.
    pub(super) fn set_link_order(&mut self, home: &JitDylib) -> Result<()> {
        let code = self.code_mut();
        // Read before the order, so that an edit that comes between makes the numbers differ the next time.
        let edits = OrderEdits::of(home, &code.dylib);
        if code.order != Some(edits) {
            code.dylib.set_link_order(&home.full_search_order())?;
            code.order = Some(edits);
        }
        Ok(())
    }

    pub(super) fn code(&self) -> &VersionCode {
        self.code.as_ref().expect("the code is there until `into_code`, which consumes this value")
    }

    pub(super) fn code_mut(&mut self) -> &mut VersionCode {
        self.code.as_mut().expect("the code is there until `into_code`, which consumes this value")
    }

    /// Returns the code of a version that is being committed. From here on the caller has to remove it.
    pub(super) fn into_code(mut self) -> Box<VersionCode> {
        self.code.take().expect("the code is there until `into_code`, which consumes this value")
    }
}

impl Drop for UncommittedVersion {
    fn drop(&mut self) {
        let Some(code) = self.code.take() else { return };
        let VersionCode { dylib, tracker, pin, .. } = *code;
        drop(pin);
        match self.is_initializing {
            // The type of the exception and its text may lie in this code, and no later call can tell when it has ended.
            true => FailedVersion::keep(&self.home, dylib, tracker),
            false => {
                let removed = self.session.remove_dylib(&dylib);
                removed.err().into_iter().for_each(|error| self.session.report_error(error));
            }
        }
    }
}
