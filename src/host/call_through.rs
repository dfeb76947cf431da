//! [`CallThrough`]: finds the code of a lazy function at its first call, and continues the call there.
//!
//! ```text
//!   entry (linked memory)         call_through (assembly)              resolve
//!   number, jump by slot ───────► save argument registers ────────────► find the target by number
//!                                 restore them, jump to the address ◄─── address of the function
//! ```
//!
//! The call then continues as if the caller had called the function directly. `arch` has the machine code of both, and says
//! which registers are saved.
//!
//! If the target cannot be found, the caller cannot get an error: it expects the value that the function returns. The
//! embedder's handler supplies another function or ends the process (`lazy_failure.rs`).

use crate::arch;
use crate::base::{ExecutorAddr, catch};
use crate::error::{Error, Result};
use crate::host::lazy_failure::{LazyFailure, LazyFailureHandler, abort};
use crate::host::numbered_targets::NumberedTargets;
use crate::sync::Arc;

/// What is behind an entry. Called without a lock.
pub(crate) trait LazyTarget: Send + Sync {
    /// The address at which the call of the entry continues. The text with which the process aborts, if there is none.
    fn resolve(&self) -> std::result::Result<ExecutorAddr, String>;
}

/// The function behind an entry, which is found at the first call.
pub(crate) trait LazyFunction: Send + Sync {
    /// Finds the code, and keeps it in memory as long as the caller may be in it. Called without a lock.
    fn find(&self) -> Result<ExecutorAddr>;

    /// Describes a failure of [`find`](Self::find).
    fn failure<'a>(&'a self, error: &'a Error) -> LazyFailure<'a>;

    /// The handler that decides where the call continues after a failure.
    fn handler(&self) -> &LazyFailureHandler;
}

impl<F: LazyFunction> LazyTarget for F {
    fn resolve(&self) -> std::result::Result<ExecutorAddr, String> {
        let found = catch(|| self.find());
        let found = found.unwrap_or_else(|panic| Err(Error::other(format!("looking it up panicked: {panic}"))));
        found.or_else(|error| self.handler().redirect(&self.failure(&error)))
    }
}

/// A registered target. Drop it only when no thread can run its entry any more: that deregisters the target.
pub(super) struct CallThrough {
    number: u64,
}

static TARGETS: NumberedTargets<dyn LazyTarget> = NumberedTargets::new();

impl CallThrough {
    pub(super) fn new(target: Arc<dyn LazyTarget>) -> CallThrough {
        CallThrough { number: TARGETS.add(target) }
    }

    /// The number that the entry passes on.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for CallThrough {
    fn drop(&mut self) {
        TARGETS.remove(self.number);
    }
}

/// The address that entries jump to.
pub(super) fn call_through_address() -> ExecutorAddr {
    ExecutorAddr::new(call_through as *const () as u64)
}

/// Returns the address at which the call of an entry continues.
extern "C" fn resolve(number: u64) -> u64 {
    let target = TARGETS.find(number);
    // A caller of an entry keeps it alive, and an entry lives as long as its `CallThrough`.
    let Some(target) = target else { abort("a lazy function was called after its code was freed") };
    target.resolve().unwrap_or_else(|problem| abort(&problem)).value()
}

/// Does what the code of the entry with this number does. For models, which cannot run that code.
#[cfg(loom)]
#[doc(hidden)]
pub fn enter_for_models(number: u64) -> ExecutorAddr {
    ExecutorAddr::new(resolve(number))
}

/// The name has the crate version, because a program may contain two versions of this crate.
macro_rules! symbol {
    ($name:literal) => {
        concat!("jittison_", $name, "_", env!("CARGO_PKG_VERSION"))
    };
}

unsafe extern "C" {
    #[link_name = symbol!("call_through")]
    fn call_through();
}

arch::define_call_through!({ symbol!("call_through") }, resolve);
