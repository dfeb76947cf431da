//! [`Version`]: the code of one version of an object, in a dylib of its own.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::error::Result;
use crate::jit::inner::JitInner;
use crate::jit::patching::{keep_for, pin_for_late_bindings, publish_variables};
use crate::jit::reload_points::VersionCode;
use crate::jit::reloading::object_version::CodeSize;
use crate::session::{ExecutionSession, JitDylib, Pin, Removal, ResourceTracker};
use crate::sync::Arc;

/// A linked version. Without [`commit`](Self::commit), dropping it removes all of it.
pub(super) struct Version {
    session: ExecutionSession,
    pub(super) dylib: JitDylib,
    tracker: ResourceTracker,
    /// Keeps the code in memory while a stub leads to it, even if other code removes the tracker.
    pub(super) pin: Option<Arc<Pin>>,
    /// The tracker under which the home dylib finds the variables that the version brought.
    pub(super) variables: Option<ResourceTracker>,
    /// Trackers under which the version finds constants of other versions.
    constants: Vec<ResourceTracker>,
    /// Whether it is removed only with the reloader.
    pub(super) stays: bool,
    /// The name of the object.
    pub(super) object: String,
    /// Known from the commit on.
    pub(super) size: CodeSize,
    is_committed: bool,
}

impl Version {
    /// A version without code.
    pub(super) fn new(jit: &JitInner, object: &str, number: u64) -> Result<Version> {
        let dylib = jit.session.create_reloaded_dylib(&format!("{object} version {number}"))?;
        let tracker = dylib.create_tracker().inspect_err(|_| dylib.remove_and_report())?;
        let session = jit.session.clone();
        let (pin, variables, constants) = (None, None, Vec::new());
        let (object, size) = (object.to_string(), CodeSize::default());
        Ok(Version {
            session,
            dylib,
            tracker,
            pin,
            variables,
            constants,
            stays: false,
            object,
            size,
            is_committed: false,
        })
    }

    /// Lets the version find constants of another version by their names. That version stays in memory meanwhile.
    pub(super) fn find_constants_in(&mut self, other: &Version, constants: &FxHashMap<Name, u64>) -> Result<()> {
        self.constants.push(publish_variables(&self.dylib, &other.dylib, constants)?);
        Ok(())
    }

    pub(super) fn tracker(&self) -> &ResourceTracker {
        &self.tracker
    }

    /// Where its code is.
    pub(super) fn code(&self, jit: &JitInner) -> Vec<VersionCode> {
        let object: Arc<str> = self.object.as_str().into();
        let all = jit.layer.code_of(self.tracker.key()).into_iter();
        all.map(|(start, size)| VersionCode {
            range: (start.value(), start.value() + size),
            object: object.clone(),
            tracker: Some(self.tracker.watch()),
            is_replaced: false,
        })
        .collect()
    }

    /// Pins the code by one of its symbols.
    pub(super) fn pin_by(&mut self, symbol: &Name) {
        self.pin = self.dylib.pin(symbol.as_str()).map(|(_, pin)| Arc::new(pin));
    }

    /// From here on only [`retire`](Self::retire) removes it.
    pub(super) fn commit(&mut self) {
        self.is_committed = true;
    }

    /// Removes a version. Nothing leads to it but calls that are in it, and `callers`, whose stubs lead to it for good.
    pub(super) fn retire(mut self, callers: Option<&Pin>) -> Option<Removal> {
        self.is_committed = true;
        pin_for_late_bindings(&self.session, self.pin.as_ref());
        if let (Some(callers), Some(pin)) = (callers, &self.pin) {
            keep_for(callers, pin);
        }
        drop(self.pin.take());
        let mut report = |error| self.session.report_error(error);
        let removal = self.tracker.remove().or_else(|error| {
            report(error);
            // The error is that of a resource manager. A second removal returns the ticket of the first one.
            self.tracker.remove()
        });
        self.variables.take().and_then(|variables| variables.remove().err()).into_iter().for_each(&mut report);
        self.session.remove_dylib(&self.dylib).err().into_iter().for_each(report);
        removal.ok()
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        drop(self.pin.take());
        drop(self.variables.take().map(|variables| variables.remove()));
        let removed = self.session.remove_dylib(&self.dylib);
        removed.err().into_iter().for_each(|error| self.session.report_error(error));
    }
}
