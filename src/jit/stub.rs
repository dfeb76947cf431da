//! [`Stub`]: a redirectable function, found once and redirected many times.

use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::jit::Jit;
use crate::platform::StubHandle;
use crate::session::JitDylib;

/// A stub of a dylib, with what keeps it in memory. Redirecting it is one store, without a look at its name.
pub struct Stub(StubHandle);

impl Jit {
    /// Finds a stub that was [created](Self::create_stub) in a dylib. The handle holds the stub's tracker, as a
    /// [`Function`](crate::Function) holds its code's.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`](crate::ErrorKind::NoSuchStub).
    pub fn stub(&self, dylib: &JitDylib, name: &str) -> Result<Stub> {
        self.0.stubs.find(dylib, name).map(Stub)
    }
}

impl Stub {
    /// Sends callers to another target, by one atomic store. Calls that are in the old target stay there: remove that after
    /// this, and callers' [guards](Jit::guard) hold it as long as they need it.
    ///
    /// # Safety
    /// As [`Jit::redirect_stub`].
    #[inline]
    pub unsafe fn redirect(&self, target: ExecutorAddr) {
        self.0.redirect(target);
    }
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stub `{}`", self.0.name())
    }
}
