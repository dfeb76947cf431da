//! [`RemoteFunction`], and handles with a type to functions that run in the process of an executor.

use std::fmt;

use crate::arch::Arch;
use crate::base::{CodeHold, ExecutorAddr};
use crate::error::{Error, Result};
use crate::host::{
    CallShape, Executor, Function, FunctionPointer, HostFunction, MAX_STACK_WORDS, PassedCall, RemoteCalls, RemoteHold,
};
use crate::jit::inner::{Jit, JitInner};
use crate::session::{JitDylib, Pin, ResourceTracker};
use crate::sync::{Arc, Weak};

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
        let (address, pin) = self.find_elsewhere(dylib, name)?;
        Ok(RemoteFunction { jit: self.clone(), name: name.to_string(), address, pin })
    }

    /// As [`lookup_in`](Self::lookup_in), in a session with an executor.
    ///
    /// # Safety
    /// As [`lookup_in`](Self::lookup_in).
    #[cold]
    pub(in crate::jit) unsafe fn lookup_elsewhere<F: FunctionPointer>(
        &self,
        dylib: &JitDylib,
        name: &str,
    ) -> Result<Function<F>> {
        self.check_type_elsewhere::<F>(name)?;
        let (address, pin) = self.find_elsewhere(dylib, name)?;
        // SAFETY: J1 - the caller promises that `name`, which is at `address`, is a function of type `F`.
        Ok(unsafe { self.function_elsewhere(address, pin) })
    }

    /// A handle to a function that the executor runs.
    ///
    /// # Safety
    /// At `address` is a function of type `F`, and `pin` keeps its code in memory.
    pub(in crate::jit) unsafe fn function_elsewhere<F: FunctionPointer>(
        &self,
        address: ExecutorAddr,
        pin: Option<Pin>,
    ) -> Function<F> {
        let calls = Calls { executor: self.0.executor.clone(), jit: Arc::downgrade(&self.0) };
        let pin = pin.map(|pin| -> Arc<dyn CodeHold> { Arc::new(pin) });
        // SAFETY: J1 - the caller promises the same. The handle owns the pin.
        unsafe { Function::with_hold(address, Some(Arc::new(RemoteHold { pin, calls: Box::new(calls) }))) }
    }

    /// Defines a name for a function of this process, in a session with an executor.
    ///
    /// # Safety
    /// As [`define_function`](Self::define_function).
    #[cold]
    pub(in crate::jit) unsafe fn define_function_elsewhere<F: FunctionPointer>(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        function: F,
    ) -> Result<()> {
        let shape = self.check_type_elsewhere::<F>(name)?;
        let address = ExecutorAddr::new(function.to_address() as u64);
        // SAFETY: J1 - the caller promises a function that stays in memory and takes any arguments that linked code passes.
        let function = unsafe { HostFunction::new(address, shape) };
        self.0.lazy.define_callback(tracker, name, Arc::new(function))
    }

    /// Checks that calls of a type can be passed from this process to the executor, or back, and returns what they pass.
    ///
    /// The compiler of the caller has put the arguments into registers, and nothing here knows their classes. So both sides must have the
    /// same ABI.
    pub(in crate::jit) fn check_type_elsewhere<F: FunctionPointer>(&self, name: &str) -> Result<CallShape> {
        let arch = self.0.executor.arch();
        if arch != Arch::NATIVE {
            return Err(Error::other(format!(
                "`{name}` cannot be called with its type: this process is of {}, and the executor of {}, which has other registers for \
                 arguments; nothing was done; call functions of the executor with integers, by `Jit::remote_function`",
                Arch::NATIVE.name(),
                arch.name()
            )));
        }
        Function::<F>::check_remote(name)
    }

    fn find_elsewhere(&self, dylib: &JitDylib, name: &str) -> Result<(ExecutorAddr, Option<Pin>)> {
        let found = self.0.find_initialized(dylib, name, |symbol| self.0.session.pin(symbol));
        // An initialiser may have ended the executor. What is missing for that reason is not missing.
        self.check_executor()?;
        found
    }
}

/// The calls of a handle. It does not keep the session alive, as other handles do not.
struct Calls {
    executor: Arc<dyn Executor>,
    jit: Weak<JitInner>,
}

impl RemoteCalls for Calls {
    fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()> {
        self.executor.call(address, call).map_err(|error| match self.jit.upgrade() {
            Some(jit) => Jit(jit).with_names(error),
            None => error,
        })
    }
}

impl RemoteFunction {
    /// Calls the function with integers or pointers of the executor, and returns its integer result. The result of a function
    /// without one is any number.
    ///
    /// An exception that the function does not catch ends the executor, as it ends a program.
    ///
    /// # Errors
    /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded): before or during the call. Also if there are more than 256
    /// arguments.
    pub fn call(&self, arguments: &[u64]) -> Result<u64> {
        if arguments.len() > MAX_STACK_WORDS {
            return Err(Error::other(format!(
                "`{}` was not called with {} arguments: an executor takes {MAX_STACK_WORDS} at most; pass the address of a block",
                self.name,
                arguments.len()
            )));
        }
        let mut call = PassedCall::of_integers(self.jit.0.executor.arch(), arguments);
        // The versions of patchable functions that the call runs in stay in memory until it returns.
        let _entry = self.pin.as_ref().and_then(|pin| pin.enter_call());
        self.jit.0.executor.call(self.address, &mut call).map_err(|error| self.jit.with_names(error))?;
        Ok(call.registers.integers[0])
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
