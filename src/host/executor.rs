//! [`Executor`]: the process that runs linked code, as the rest of the crate sees it.
//!
//! The rooms above `host` act on that process only through this trait. [`InProcess`](super::InProcess) implements it for code that
//! runs in the process that links it. `Remote` (`src/executor/requests.rs`) sends each call to a peer in another process, which
//! has an `InProcess` of its own.
//!
//! | not part of the trait | because |
//! |---|---|
//! | code memory | `memory` has traits of its own: `MemoryManager` and `MemoryMapper` |
//! | calls of code in this process | `Function` and `Symbol` are pointers with a type |
//! | the address of a thread-local variable | it is that of the calling thread, which runs in the process that links |
//! | the flush of instruction caches | `memory` flushes when it finalizes; another process does so when it gets the bytes |
//!
//! # Handles
//! What the process holds for a linked object has a handle, a boxed value. Dropping the handle undoes what made it.
//!
//! # Locks
//! Any thread may call each method. `open_exit_scope`, `set_keep_alive` and `register_symbol_file` are called while an object is
//! recorded under its key (`with_resource_key`), so they must not call the session. The others are called without a
//! session lock.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::path::Path;

use crate::arch::Arch;
use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::Result;
use crate::host::call_through::LazyTarget;
use crate::host::exit_hook::ExitHookFn;
use crate::host::exit_scopes::KeepAliveFn;
use crate::host::loader_scopes::LoaderView;
use crate::host::process::ProcessSymbol;
use crate::host::profile::Stamp;
#[cfg(feature = "reload")]
use crate::host::program_image::ProgramImage;
use crate::host::program_symbols::ProgramSymbol;
#[cfg(feature = "reload")]
use crate::host::reload_point::{ReloadFunctions, ReloadHooks};
use crate::host::thread_locals::StaticTls;
#[cfg(feature = "executor")]
use crate::host::{callback::CallbackTarget, passed_call::PassedCall};
use crate::sync::Arc;

/// The process that runs linked code.
pub(crate) trait Executor: Send + Sync + fmt::Debug {
    /// Whether it is the process that links.
    fn is_this_process(&self) -> bool {
        true
    }

    /// The architecture of its code. Whatever a session writes for the process is for it.
    fn arch(&self) -> Arch {
        Arch::NATIVE
    }

    /// Checks that the process still runs. Most other methods do nothing and find nothing if it does not.
    ///
    /// # Errors
    /// How it ended.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Calls a function in another process. The caller keeps its code in memory.
    ///
    /// # Errors
    /// The executor is this process. Or how the other one ended, before or in the call.
    #[cfg(feature = "executor")]
    fn call(&self, _address: ExecutorAddr, _call: &mut PassedCall) -> Result<()> {
        Err(crate::error::Error::other("the code of this session runs in this process; look it up with its type"))
    }

    // ---- symbols ----

    /// Finds a symbol that the program or one of its loaded libraries exports.
    fn find_symbol(&self, name: &str) -> Option<ProcessSymbol>;

    /// Finds several symbols, each as [`find_symbol`](Self::find_symbol).
    fn find_symbols(&self, names: &[&str]) -> Vec<Option<ProcessSymbol>> {
        names.iter().map(|name| self.find_symbol(name)).collect()
    }

    /// Opens a shared library by name or path. Constructors of the library run on the calling thread. The library stays loaded
    /// until the process ends, because linked code of any session may use it. Several threads may open one library.
    ///
    /// # Errors
    /// [`ErrorKind::File`](crate::ErrorKind::File) with the loader's error message.
    fn open_library(&self, name: &str) -> Result<()>;

    /// All global and weak functions and variables of the program, sorted by name.
    ///
    /// # Errors
    /// The program's file cannot be read, or has no symbol table.
    fn program_symbols(&self) -> Result<Vec<ProgramSymbol>>;

    /// The executable that this process runs, with its local symbols.
    ///
    /// # Errors
    /// The process is another one; or as [`program_symbols`](Self::program_symbols); or its code cannot be changed.
    #[cfg(feature = "reload")]
    fn program_image(&self) -> Result<ProgramImage> {
        Err(crate::error::Error::other(
            "the code of this session runs in another process, whose executable cannot be changed from here",
        ))
    }

    // ---- thread-local storage ----

    /// Loads a thread-local block of `size` bytes that starts with `image`. The other bytes are zero.
    ///
    /// # Errors
    /// The reason: the image is larger than the block, the block is too large, `align` is not supported, or the C library
    /// refuses.
    fn load_thread_locals(
        &self,
        image: &[u8],
        size: u64,
        align: u64,
        static_tls: StaticTls,
    ) -> std::result::Result<Box<dyn ThreadLocalBlock>, String>;

    /// A variable's distance from the thread pointer, if it is the same in every thread, or if the C library grants that now. A
    /// variable of a library is looked up by `name`; for one of linked code the name is not used.
    fn static_offset(&self, variable: TlsIndex, name: &str) -> Option<i64>;

    /// The alignment in bytes of the thread-local block of a module. Zero if it is unknown.
    fn thread_local_alignment(&self, module: u32) -> u64;

    // ---- initialisers and exit handlers ----

    /// Calls an initialiser or finaliser as the system's loader does. It runs on behalf of the calling thread, which waits. An
    /// exception or panic unwinds through this method. The caller keeps the memory of the function alive, and has the user's
    /// consent (H2, H3).
    fn run_initializer(&self, address: ExecutorAddr);

    /// Calls a function that takes three integers or pointers and returns nothing, as [`run_initializer`](Self::run_initializer).
    ///
    /// # Errors
    /// How another process ended, before or in the call.
    #[cfg(feature = "reload")]
    fn run_hook(&self, address: ExecutorAddr, arguments: [u64; 3]) -> Result<()>;

    /// Opens a scope for the exit handlers of one object.
    fn open_exit_scope(&self) -> Box<dyn HandlerScope>;

    /// Runs the destructors of thread-local variables that are pending for `scopes` in the calling thread. Then runs the exit
    /// handlers of `scopes`, the latest first, including those that handlers register meanwhile. Returns the number of calls.
    fn run_exit_handlers(&self, scopes: &[u64]) -> usize;

    /// Runs the destructors of thread-local variables that are pending for `scopes` in the calling thread. Returns the number
    /// of calls.
    fn run_thread_dtors(&self, scopes: &[u64]) -> usize;

    /// The functions that linked code calls to register exit handlers.
    fn handler_functions(&self) -> HandlerFunctions;

    /// Registers a function that runs at `exit`, newest first. It gets the exit status if linked code called `exit`, else
    /// `None`.
    fn add_exit_hook(&self, hook: Arc<ExitHookFn>) -> Box<dyn ProcessExitHook>;

    /// Sets the exit status for `on_exit` handlers that run from now on.
    fn set_exit_status(&self, status: c_int);

    /// The address of `exit` for linked code.
    fn exit_address(&self) -> ExecutorAddr;

    // ---- reload points ----

    /// Whether each thread of the process is counted as a call ([`native_threads`](super::native_threads)).
    #[cfg(feature = "reload")]
    fn counts_native_threads(&self) -> bool {
        false
    }

    /// The functions by which linked code passes reload points and starts threads that are counted as calls. None if the code runs
    /// in another process: it would ask this one at each reload point.
    #[cfg(feature = "reload")]
    fn reload_functions(&self, _hooks: ReloadHooks) -> ReloadFunctions {
        ReloadFunctions::default()
    }

    // ---- the loader's functions ----

    /// Opens a scope for the calls of the loader's functions by one object. `view` answers them.
    fn open_loader_scope(&self, view: Arc<dyn LoaderView>) -> Box<dyn ViewScope>;

    /// The functions that linked code calls in place of the loader's.
    fn loader_functions(&self) -> [LoaderFunction; 3];

    /// The address of a symbol, or of a version of it, that the program or one of its libraries exports at this time.
    fn find_in_process(&self, name: &CStr, version: Option<&CStr>) -> Option<ExecutorAddr>;

    // ---- lazy functions ----

    /// Registers the functions behind a row of entries. Drop the handle only when no thread can run an entry any more.
    fn register_lazy_targets(&self, targets: Vec<Arc<dyn LazyTarget>>) -> Box<dyn LazyEntries>;

    /// The address that entries jump to.
    fn call_through_address(&self) -> ExecutorAddr;

    /// Registers a function of the process that links, which code there calls through an entry. Drop the handle only when no thread
    /// can run the entry any more.
    #[cfg(feature = "executor")]
    fn register_callback(&self, target: Arc<dyn CallbackTarget>) -> Box<dyn LazyEntries>;

    /// The address that the entries of callbacks jump to.
    #[cfg(feature = "executor")]
    fn callback_address(&self) -> ExecutorAddr;

    // ---- debuggers and profilers ----

    /// Adds a symbol file to the list that debuggers read, and notifies an attached debugger. Dropping the handle removes it.
    fn register_symbol_file(&self, symbol_file: Vec<u8>) -> ExecutorHandle;

    /// Creates a jitdump in a new directory below `base`, and writes the bytes that `header` returns.
    ///
    /// # Errors
    /// [`ErrorKind::File`](crate::ErrorKind::File) with the text of the system.
    fn create_code_dump(&self, base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<Box<dyn CodeDumpFile>>;

    /// Opens perf's map of names.
    ///
    /// # Errors
    /// [`ErrorKind::File`](crate::ErrorKind::File) with the text of the system.
    fn open_name_map(&self) -> Result<Box<dyn NameMapFile>>;

    // ---- native programs ----

    /// Sets up the process for a native program with these arguments. One program runs at a time. Dropping the handle restores
    /// what was changed.
    fn start_program(&self, arguments: &[CString]) -> Box<dyn NativeProgram>;

    /// Calls `body` once, so that the unwinder finds the end of the stack below it. An exception that no handler in
    /// `body` catches ends the process. A panic that leaves `body` ends the process, too.
    fn at_stack_end(&self, body: &mut dyn FnMut());
}

/// Something that the process holds until this value is dropped.
pub(crate) type ExecutorHandle = Box<dyn ExecutorResource>;

/// See [`ExecutorHandle`].
pub(crate) trait ExecutorResource: Send + Sync + fmt::Debug {}

/// The thread-local block of linked code. Dropping it frees the copies of all threads: no code may use them any more.
pub(crate) trait ThreadLocalBlock: Send + Sync + fmt::Debug {
    /// The number of its module in the C library.
    fn number(&self) -> u32;

    /// Distance of the block from the thread pointer, if it is the same in every thread.
    fn static_offset(&self) -> Option<i64>;

    /// The image, to be completed before any thread has a copy of it. `None` if the block is complete. A block with a static
    /// offset always is.
    fn image(&mut self) -> Option<&mut [u8]>;

    /// Ends the writing of the image. From now on threads may copy it.
    fn complete(&mut self);

    /// Requests a static offset for a complete block that was loaded without one.
    fn request_static_offset(&mut self) -> Option<i64>;
}

/// The exit handlers of one object. Dropping it closes the scope: handlers that have not run are dropped.
pub(crate) trait HandlerScope: Send + Sync + fmt::Debug {
    /// The word of the object's `__dso_handle`.
    fn number(&self) -> u64;

    /// Sets the closure that keeps the object's code alive while destructors of a thread are pending. The closure gets
    /// the name of the thread.
    fn set_keep_alive(&self, keep_alive: Arc<KeepAliveFn>);

    /// Removes the object's handlers of forks and of `quick_exit` from the C library.
    fn deregister_at_libc(&self);
}

/// The open scope of an object that calls the loader's functions. Dropping it closes the scope: later calls find nothing.
pub(crate) trait ViewScope: Send + Sync + fmt::Debug {
    /// The word of the object that its calls pass on.
    fn number(&self) -> u64;
}

/// A function of the loader for which another one stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoaderFunction {
    pub(crate) name: &'static str,
    /// The loader's function. `None` if the process has none.
    pub(crate) native: Option<ExecutorAddr>,
    /// The function that linked code calls. The address of the object's word follows the other arguments.
    pub(crate) address: ExecutorAddr,
    /// Number of arguments of the loader's function.
    pub(crate) argument_count: usize,
}

/// Addresses of the functions that linked code calls to register handlers. Each gets the address of the object's
/// `__dso_handle` as its last argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandlerFunctions {
    /// `__cxa_atexit`.
    pub(crate) atexit: ExecutorAddr,
    /// `on_exit`.
    pub(crate) on_exit: ExecutorAddr,
    /// `__cxa_thread_atexit`.
    pub(crate) thread_atexit: ExecutorAddr,
    /// `__cxa_at_quick_exit`.
    pub(crate) at_quick_exit: ExecutorAddr,
    /// `__register_atfork`.
    pub(crate) atfork: ExecutorAddr,
}

/// A registered exit hook. Dropping it deregisters the hook.
pub(crate) trait ProcessExitHook: Send + Sync + fmt::Debug {
    /// Registers all hooks with the C library, so that they run before all handlers that it has at this time.
    fn register_at_libc(&self);
}

/// Registered targets of lazy functions, or a callback. Dropping it deregisters them.
pub(crate) trait LazyEntries: Send + Sync {
    /// Number of targets.
    fn count(&self) -> usize;

    /// The number that the entry of a target passes on.
    fn number(&self, index: usize) -> u64;
}

/// An open jitdump.
pub(crate) trait CodeDumpFile: Send + Sync {
    /// Appends `count` records. `records` gets the time and the number of the first record, and returns the bytes. It is called
    /// at most once; after a failed write it is not called any more.
    fn append(&self, count: u64, records: &mut dyn FnMut(Stamp, u64) -> Vec<u8>);
}

/// An open map of names.
pub(crate) trait NameMapFile: Send + Sync {
    /// Appends lines.
    fn append(&self, lines: &str);
}

/// A native program that is set up to start.
pub(crate) trait NativeProgram {
    /// Calls `main` on the calling thread, with `errno` zero as at the start of a process. Returns its result, or the status
    /// with which the process ended, if it is another one.
    ///
    /// # Errors
    /// The process is another one, and a fault ended it.
    ///
    /// # Safety
    /// - At `main` is a function that can be called as `int main(int, char **, char **)`.
    /// - Its code stays in memory until the call has returned.
    unsafe fn call_main(&mut self, main: ExecutorAddr) -> Result<c_int>;
}
