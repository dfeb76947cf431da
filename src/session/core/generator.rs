//! [`DefinitionGenerator`]: the seam through which a dylib gets definitions that nobody has added yet.

use std::cell::RefCell;
use std::fmt;

use crate::error::Result;
use crate::session::lookup::search::{GeneratorEntry, SuspendedSlot};
use crate::session::{JitDylib, SymbolRequest};
use crate::sync::Arc;

/// Supplies definitions on demand (ORC: `DefinitionGenerator`), for instance out of the process or an archive.
///
/// Implement [`generate`](Self::generate), or [`generate_or_suspend`](Self::generate_or_suspend) to take time.
pub trait DefinitionGenerator: Send + Sync {
    /// A lookup did not find `missing` in `dylib`: define those that this generator knows, into `dylib`. Each name comes
    /// once, and is [required](SymbolRequest::required) if the lookup fails without it: one that is not is worth a
    /// definition that is at hand, and none that has to be fetched.
    ///
    /// Leaving a name undefined is no error: the lookup goes on to the next generator and the next dylib. Called with
    /// no lock held, possibly from several threads at once; may call back into the session.
    ///
    /// # Errors
    /// Fail the lookup.
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let _ = (dylib, missing);
        Ok(())
    }

    /// As [`generate`](Self::generate), but the lookup may be captured and resumed later, from any thread. Until then,
    /// other lookups that come to this generator wait behind it.
    ///
    /// # Errors
    /// Fail the lookup.
    fn generate_or_suspend(
        &self,
        dylib: &JitDylib,
        missing: &[SymbolRequest<'_>],
        suspension: &Suspension,
    ) -> Result<()> {
        let _ = suspension;
        self.generate(dylib, missing)
    }
}

/// The chance to capture a lookup.
pub struct Suspension {
    entry: Arc<GeneratorEntry>,
    dylib: JitDylib,
    may_capture: bool,
    captured: RefCell<Option<Arc<SuspendedSlot>>>,
}

impl Suspension {
    pub(crate) fn new(entry: Arc<GeneratorEntry>, dylib: &JitDylib, may_capture: bool) -> Suspension {
        Suspension { entry, dylib: dylib.clone(), may_capture, captured: RefCell::new(None) }
    }

    /// Captures the lookup: it goes on when the result is [resumed](SuspendedLookup::resume). `None` when it cannot
    /// wait, or is captured already.
    pub fn capture(&self) -> Option<SuspendedLookup> {
        let mut captured = self.captured.borrow_mut();
        if !self.may_capture || captured.is_some() {
            return None;
        }
        let slot = self.entry.capture(self.dylib.name());
        *captured = Some(slot.clone());
        Some(SuspendedLookup { slot: Some(slot) })
    }

    pub(crate) fn into_captured(self) -> Option<Arc<SuspendedSlot>> {
        self.captured.take()
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        // Still here when the generator panicked.
        if let Some(slot) = self.captured.take() {
            slot.give_up();
        }
    }
}

impl fmt::Debug for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suspension(captured: {})", self.captured.borrow().is_some())
    }
}

/// A lookup that a generator has captured. Dropping it fails the lookup.
#[must_use = "a captured lookup waits until it is resumed"]
pub struct SuspendedLookup {
    slot: Option<Arc<SuspendedSlot>>,
}

impl SuspendedLookup {
    /// Lets the lookup go on with what is defined now, or fails it.
    pub fn resume(mut self, outcome: Result<()>) {
        if let Some(slot) = self.slot.take() {
            slot.resume(Some(outcome));
        }
    }
}

impl Drop for SuspendedLookup {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.resume(None);
        }
    }
}

impl fmt::Debug for SuspendedLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SuspendedLookup")
    }
}
