//! Calls under an execution guard, and the two methods that ask the caller where threads are.
//!
//! A [`Guard`] protects what its thread finds while it holds the guard. [`Jit::pass_quiescent_state`] and
//! [`Jit::remove_now`] work the other way round: the caller promises that no frame is in the code that they free.

use crate::error::{ErrorKind, Result};
use crate::host::{FunctionPointer, Symbol};
use crate::jit::inner::Jit;
use crate::session::{Guard, JitDylib, Removal, ResourceTracker, remove_now};

impl Jit {
    /// Enters a guard. Code that this thread finds from here on stays in memory until the guard is dropped, even if another
    /// thread removes it.
    ///
    /// A guard costs two stores and one fence. It delays every reclamation of the session, so use an owned
    /// [`Function`](crate::Function) for calls that may take long.
    ///
    /// ```
    /// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// let tracker = jit.main_dylib().create_tracker()?;
    /// jit.add_object(&tracker, "add.o", ADD)?;
    ///
    /// let guard = jit.guard();
    /// // SAFETY: `add` has this signature, and the object may run.
    /// let add = unsafe { jit.symbol::<extern "C" fn(i32, i32) -> i32>(&guard, jit.main_dylib(), "add")? };
    /// let removal = tracker.remove()?;
    /// assert_eq!(add.call(2, 3), 5); // The guard keeps the code.
    /// assert!(!removal.is_complete());
    ///
    /// drop(guard);
    /// assert!(removal.is_complete());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.0.session.guard()
    }

    /// As [`lookup_in`](Self::lookup_in), for use while `guard` is held. If the symbol is ready, this call allocates no
    /// memory and writes no memory that other threads read.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in). Also [`ErrorKind::ForeignGuard`] if the guard is of another session.
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
        self.0.check_runs_here()?;
        let address = match self.0.find_quietly(|| self.0.find_address(dylib, name))? {
            Some((address, _)) => address,
            None => self.0.find_initialized(dylib, name, |_| Some(()))?.0,
        };
        // SAFETY: J1 - the caller promises that `name`, which is at `address`, is a function of type `F`. The symbol was
        // found after `guard` of this session was entered, so its code stays in memory for `'g`, which the result cannot
        // outlive.
        Ok(unsafe { Symbol::from_address(address) })
    }

    /// Declares that the calling thread is inside no [patched](crate::Patchable) function. Replaced versions that only the
    /// calls of this thread hold are removed; the calls continue.
    ///
    /// Use it in a loop of linked code that calls patched functions and never returns to the host. Otherwise the call of
    /// that loop holds every version that is replaced during it.
    ///
    /// # Safety
    /// No frame on the stack of the calling thread is in a version of a patched function of this session.
    pub unsafe fn pass_quiescent_state(&self) {
        self.0.session.pass_quiescent_state();
    }

    /// Frees everything under a tracker at once, even if handles, guards, calls or other code still refer to it. This is
    /// what ORC's `ResourceTracker::remove` does.
    ///
    /// [`ResourceTracker::remove`] is the safe form. It is equally fast if nothing pins the tracker.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] if the tracker was transferred to another one. Errors of resource managers, joined.
    ///
    /// # Safety
    /// - No thread is inside code of the tracker, and no thread will call it: not through a handle or symbol that still
    ///   exists, a stub, other code that refers to it, or a destructor of a thread-local variable that is still to run.
    /// - No thread accesses data of the tracker.
    pub unsafe fn remove_now(&self, tracker: &ResourceTracker) -> Result<Removal> {
        remove_now(tracker)
    }
}
