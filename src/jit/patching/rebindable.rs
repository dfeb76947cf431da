//! Objects that are replaced as a whole while others are bound to them: the importers' calls lead through slots that stand with
//! the exporter's names, so that a replacement rebinds all of them, whoever linked them and when.
//!
//! One slot for each exported function, not one in each importer: an importer costs nothing more, a function has one
//! address for all of them, and a replacement takes as many stores as the exporter has functions.

use crate::base::Name;
use crate::error::Result;
use crate::jit::Jit;
use crate::jit::patching::{Committed, Patchable};
use crate::link::{ObjectBuffer, ObjectInterface};
use crate::session::JitDylib;

impl Jit {
    /// Adds an object to a dylib, links it and runs its initialisers, so that it can be replaced while others use it: what is
    /// linked against its functions, before or after, follows each [replacement](Patchable::replace). Every function that the
    /// object exports is behind a stub; its variables stay, as with any [`Patch`](crate::Patch).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// # let (jit, codec, better) = (jittison::Jit::new()?, Vec::new(), Vec::new());
    /// let codec = unsafe { jit.add_rebindable(jit.main_dylib(), "codec.o", codec)? };
    /// // Objects that call `encode` and `decode` are added, linked, run; then, while they run:
    /// let replaced = unsafe { codec.replace("codec.o", better)? };
    /// assert!(replaced.retired.iter().all(|old| old.is_complete() || !old.obstacles().is_empty()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Patchable::patch`]'s steps: [`Patch::link`](crate::Patch::link) and [`PreparedPatch::commit`](crate::PreparedPatch::commit);
    /// [`ErrorKind::NotPatchable`](crate::ErrorKind::NotPatchable) when the dylib defines one of the functions already, or the
    /// object exports none. Nothing is left then.
    ///
    /// # Safety
    /// The object may run: its initialisers now, its finalisers and exit handlers when it is removed or replaced.
    pub unsafe fn add_rebindable(
        &self,
        dylib: &JitDylib,
        name: &str,
        object: impl Into<ObjectBuffer>,
    ) -> Result<Patchable> {
        let object = object.into();
        let mut functions = Vec::new();
        ObjectInterface::visit(name, &object, |symbol, _| {
            if symbol.is_exported && symbol.is_callable {
                functions.push(symbol.name);
            }
        })?;
        let functions: Vec<_> = functions.iter().map(Name::as_str).collect();
        let patchable = self.patchable_builder(dylib, &functions).history(0).build()?;
        // SAFETY: J1 - the caller's word, passed on.
        let committed = unsafe { patchable.replace(name, object)? };
        debug_assert!(committed.retired.is_empty(), "there was no version before");
        Ok(patchable)
    }
}

impl Patchable {
    /// Replaces all of the functions by those of one object, at one go: [link](crate::Patch::link) and
    /// [commit](crate::PreparedPatch::commit). What was replaced is removed when it leaves the history; of an object that was
    /// [added to be replaced](Jit::add_rebindable), at once.
    ///
    /// # Errors
    /// As the two steps; an object that lacks one of the functions is refused. All callers stay where they are then.
    ///
    /// # Safety
    /// The object may run: its initialisers now, its finalisers and exit handlers when it is removed or replaced. Its functions
    /// have the signatures that callers use.
    pub unsafe fn replace(&self, name: &str, object: impl Into<ObjectBuffer>) -> Result<Committed> {
        let mut patch = self.patch();
        patch.add_object(name, object)?;
        for function in self.functions() {
            patch.require(&function);
        }
        // SAFETY: J1 - the caller's word, passed on.
        unsafe { patch.link()? }.commit()
    }
}
