//! [`RemoteFunction`]: a function that runs in the process of an executor.

use std::fmt;

use crate::base::{CodeHold as _, ExecutorAddr};
use crate::error::{Error, ErrorKind, ExecutorCrash, Result};
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
        // What is missing because the executor has ended is missing for that reason.
        self.0.executor.check()?;
        let (address, pin) = found?;
        Ok(RemoteFunction { jit: self.clone(), name: name.to_string(), address, pin })
    }
}

impl Jit {
    /// Adds the names of functions and objects to the backtrace of an executor that has crashed.
    pub(in crate::jit) fn with_names(&self, error: Error) -> Error {
        let ErrorKind::ExecutorEnded { process, how, crash: Some(crash) } = error.kind() else { return error };
        // A return address may be that of the next function.
        let before = |(index, address): (usize, &ExecutorAddr)| {
            ExecutorAddr::new(address.value().saturating_sub(if index == 0 { 0 } else { 1 }))
        };
        let addresses: Vec<_> = crash.backtrace.iter().enumerate().map(before).collect();
        let located = self.locate(&addresses).into_iter().map(|found| found.map(|found| found.to_string())).collect();
        let crash = Some(Box::new(ExecutorCrash { located, ..(**crash).clone() }));
        ErrorKind::ExecutorEnded { process: *process, how: how.clone(), crash }.into()
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
