//! [`RemoteFunction`]: a function that runs in the process of an executor.

use std::fmt;

use crate::base::{CodeHold as _, ExecutorAddr};
use crate::error::{Error, Result};
use crate::host::MAX_ARGUMENTS;
use crate::jit::inner::Jit;
use crate::session::{JitDylib, Pin};

/// A function in the process of an executor ([`JitBuilder::executor`](crate::JitBuilder::executor)), and the pin that keeps its
/// code in memory.
///
/// A call from one thread always runs on the same thread of the executor. If the function crashes, the executor ends and the
/// call returns an error; this process goes on.
pub struct RemoteFunction {
    jit: Jit,
    name: String,
    address: ExecutorAddr,
    /// Keeps the code in memory. `None`: the address was given as a number.
    pin: Option<Pin>,
}

impl Jit {
    /// Looks up a function of a session with an executor, as [`lookup_in`](Self::lookup_in) does: links what is needed and runs
    /// the initialisers that wait.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in). [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded). Also if the session has no
    /// executor.
    pub fn remote_function(&self, dylib: &JitDylib, name: &str) -> Result<RemoteFunction> {
        if self.0.executor.is_this_process() {
            return Err(Error::other(format!(
                "`{name}` was not looked up: the code of this session runs in this process; look it up with its type"
            )));
        }
        let found = self.0.find_initialized(dylib, name, |symbol| self.0.session.pin(symbol));
        // An initialiser may have ended the executor. What is missing for that reason is not missing.
        self.check_executor()?;
        let (address, pin) = found?;
        Ok(RemoteFunction { jit: self.clone(), name: name.to_string(), address, pin })
    }
}

impl RemoteFunction {
    /// Calls the function with up to six integers or pointers of the executor, and returns its integer result. The result of a
    /// function without one is any number.
    ///
    /// An exception that the function does not catch ends the executor, as it ends a program.
    ///
    /// # Errors
    /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded): before or during the call. Also if there are more than six
    /// arguments.
    pub fn call(&self, arguments: &[u64]) -> Result<u64> {
        if arguments.len() > MAX_ARGUMENTS {
            return Err(Error::other(format!(
                "`{}` was not called with {} arguments: an executor takes {MAX_ARGUMENTS} at most; pass the address of a block",
                self.name,
                arguments.len()
            )));
        }
        // The versions of patchable functions that the call runs in stay in memory until it returns.
        let _entry = self.pin.as_ref().and_then(|pin| pin.enter_call());
        self.jit.0.executor.call(self.address, arguments).map_err(|error| self.jit.with_names(error))
    }

    /// Where the code is in the executor.
    pub fn address(&self) -> ExecutorAddr {
        self.address
    }
}

impl fmt::Debug for RemoteFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFunction({} at {})", self.name, self.address)
    }
}
