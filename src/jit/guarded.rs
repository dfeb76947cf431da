//! Code under execution guards: found, called, and not freed meanwhile; and the one removal that asks nobody.

use crate::error::{ErrorKind, Result};
use crate::host::{FunctionPointer, Symbol};
use crate::jit::Jit;
use crate::session::{Guard, JitDylib, Removal, ResourceTracker, remove_now};

impl Jit {
    /// Enters a guard: code that this thread finds from now on stays in memory until the guard is dropped, whoever removes it
    /// meanwhile. A few nanoseconds; for calls that may take long, an owned [`Function`](crate::Function) blocks less.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// # let jit = jittison::Jit::new()?;
    /// let guard = jit.guard();
    /// let add = unsafe { jit.symbol::<extern "C" fn(i32, i32) -> i32>(&guard, jit.main_dylib(), "add")? };
    /// assert_eq!(add.call(2, 3), 5); // even if its tracker was removed since the line above
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.0.session.guard()
    }

    /// As [`lookup_in`](Self::lookup_in), for as long as a guard is entered: allocates nothing, and writes nothing that other
    /// threads read.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in); [`ErrorKind::ForeignGuard`].
    ///
    /// # Safety
    /// As [`lookup_in`](Self::lookup_in).
    pub unsafe fn symbol<'g, F: FunctionPointer>(
        &self,
        guard: &'g Guard<'_>,
        dylib: &JitDylib,
        name: &str,
    ) -> Result<Symbol<'g, F>> {
        if !guard.is_of(&self.0.session) {
            return Err(ErrorKind::ForeignGuard { symbol: name.to_string() }.into());
        }
        let (address, _) = self.find_initialized(dylib, name, |_| Some(()))?;
        // SAFETY: J1 - the caller's word for the signature; the code was there after the guard was entered, which holds it.
        Ok(unsafe { Symbol::from_address(address) })
    }

    /// Says that the calling thread is inside of no [patched](crate::Patchable) function. Replaced versions that only its calls
    /// hold are removed, and the calls go on. For a loop in linked code that calls patched functions and never returns to the
    /// host: without this, its call holds every version that is replaced meanwhile.
    ///
    /// # Safety
    /// No frame on the calling thread's stack is in a version of a patched function of this session.
    pub unsafe fn pass_quiescent_state(&self) {
        self.0.session.pass_quiescent_state();
    }

    /// Frees everything under a tracker now, whoever is in it, refers to it or holds it: what ORC's `ResourceTracker::remove`
    /// does. [`ResourceTracker::remove`] is the safe one, and as fast where nobody is in the way.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] for a tracker that was transferred away; what managers report, joined.
    ///
    /// # Safety
    /// No thread executes the tracker's code, or will: not through a handle or symbol that is left, not through a stub, not from
    /// other code that refers to it, not because it owes destructors to it. Nor does anybody touch its data.
    pub unsafe fn remove_now(&self, tracker: &ResourceTracker) -> Result<Removal> {
        remove_now(tracker)
    }
}
