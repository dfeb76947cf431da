//! Objects that are replaced as one unit while other objects call their functions.
//!
//! Calls of other objects go through stubs, which belong to the names of the exporting object. A replacement redirects the
//! stubs, so it redirects every caller, whoever linked it and when.
//!
//! There is one slot per exported function, not one per importer. So importers cost nothing more, a function has one address
//! for all of them, and a replacement takes as many stores as the object has exported functions.

use crate::base::Name;
use crate::error::Result;
use crate::jit::inner::Jit;
use crate::jit::patching::outcome::Committed;
use crate::jit::patching::patchable::Patchable;
use crate::link::{ObjectBuffer, ObjectInterface};
use crate::session::JitDylib;

impl Jit {
    /// Adds an object to a dylib, links it and runs its initialisers, so that it can be replaced later. Code that was linked
    /// against its functions, before or after this call, follows each [replacement](Patchable::replace). Every function that
    /// the object exports is behind a stub. Its variables keep their values, as with any [`Patch`](crate::Patch).
    ///
    /// ```
    /// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
    /// # const SCALE_2: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_2.o"));
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// // SAFETY: the object may run.
    /// let kernels = unsafe { jit.add_rebindable(jit.main_dylib(), "scale.o", SCALE_1)? };
    /// // SAFETY: every version of `scale` has this signature.
    /// let scale = unsafe { jit.lookup::<extern "C" fn(i32) -> i32>("scale")? };
    /// assert_eq!(scale.call(7), 7);
    ///
    /// // SAFETY: as above.
    /// let replaced = unsafe { kernels.replace("scale.o", SCALE_2)? };
    /// assert_eq!(scale.call(7), 702); // `calls` kept its value.
    /// assert_eq!(replaced.version, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Patch::link`](crate::Patch::link) and [`PreparedPatch::commit`](crate::PreparedPatch::commit). Also
    /// [`ErrorKind::NotPatchable`](crate::ErrorKind::NotPatchable) if the dylib already defines one of the functions, and
    /// [`ErrorKind::PatchRefused`](crate::ErrorKind::PatchRefused) if the object exports none. Then nothing is left.
    ///
    /// # Safety
    /// As [`Patchable::replace`], except that the functions have no callers yet.
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
        // SAFETY: J1 - the caller promises that this object and all that were added so far may run. The functions have no
        // callers yet, so any signature is the one that callers use.
        let committed = unsafe { patchable.replace(name, object)? };
        debug_assert!(committed.retired.is_empty(), "the first version replaces no other");
        Ok(patchable)
    }
}

impl Patchable {
    /// Replaces all of the functions by those of one object, in one step: [link](crate::Patch::link) and
    /// [commit](crate::PreparedPatch::commit). The replaced version is removed when it leaves the history. An object that
    /// was added with [`Jit::add_rebindable`] has no history, so it is removed at once.
    ///
    /// # Errors
    /// As the two steps. An object that lacks one of the functions is refused. Then no caller is redirected.
    ///
    /// # Safety
    /// - This object may run, and all objects that were added so far to the patched dylib and to the dylibs that it links
    ///   against: their initialisers in this call, their finalisers and exit handlers when they are removed or replaced.
    ///   Addresses that were given as numbers stay in memory, as [`Jit::lookup_in`] says.
    /// - Its functions have the signatures that callers use.
    pub unsafe fn replace(&self, name: &str, object: impl Into<ObjectBuffer>) -> Result<Committed> {
        let mut patch = self.patch();
        patch.add_object(name, object)?;
        for function in self.functions() {
            patch.require(&function);
        }
        // SAFETY: J1 - the patch has this one object. The caller promises that it and all objects that were added so far may
        // run.
        unsafe { patch.link()? }.commit()
    }
}
