//! Calls into linked code.
//!
//! [`Function`] and [`Symbol`] are handles to functions. [`LazyFailureHandler`] decides what happens if a
//! lazy function cannot be linked.
//!
//! # How it is built
//!
//! This room has everything that jittison does in the process that runs the code. It calls linked code, keeps its exit
//! handlers, finds symbols of the process, and writes what debuggers and profilers read.
//!
//! | file | what it does |
//! |---|---|
//! | `executor.rs` | the trait `Executor`, through which the rooms above reach the process, and its handles |
//! | `in_process.rs` | `InProcess`, which implements it by the other files |
//! | `call.rs` | typed handles to linked code, and calls through them |
//! | `remote_call.rs`, `callback.rs`, `passed_call.rs` | calls of these handles that another process runs, calls of that process that this one runs, and what is passed |
//! | `numbered_targets.rs` | what is behind entries that linked code calls |
//! | `call_through.rs`, `lazy_failure.rs` | the first call of a lazy function, and what happens if it fails |
//! | `exit_handlers.rs`, `exit_scopes.rs`, `thread_exit_handlers.rs` | handlers that linked code registers, per object |
//! | `loader_functions.rs`, `loader_scopes.rs` | `dlsym` and `dladdr` for linked code, per object |
//! | `exit_hook.rs` | `exit` of the process |
//! | `process.rs`, `program_symbols.rs` | symbols of the process and of its program file |
//! | `reload_point.rs`, `linked_threads.rs`, `native_threads.rs` | reload points; threads that linked code starts; threads of a program that was started normally |
//! | `program_image.rs` | the running executable: its local symbols, and writes to its code |
//! | `thread_locals.rs`, `thread_local_image.rs` | thread-local blocks, held by the C library |
//! | `program.rs`, `stack_end.rs` | the start of a native program, and the frame below its `main` |
//! | `debugger_list.rs`, `profile.rs`, `fork_lock.rs` | what gdb, lldb and perf read; a lock that survives a fork |
//!
//! The rooms above import from here the trait, its handles, plain values and typed calls. Functions that act on the
//! process are private to this room. `LoadedLibrary` and `ThreadLocalModule` are public, for embedders that run in the
//! same process.
//!
//! This room does not know dylibs, trackers or keys. It gets whatever keeps memory alive as an opaque box.
//!
//! # Invariants
//!
//! Each SAFETY note cites one of these, and says why it holds at that line.
//!
//! - **H1** *Signatures.* A function pointer is made only from the address of a function that is ready, or that an object lists
//!   as an initialiser or finaliser. Its type is the one that an `unsafe` caller promised, or that the ABI prescribes.
//! - **H2** *Code is held.* Linked code is called, and its memory is read, only while something holds that memory: the pin of
//!   a handle, a guard, or the registry that runs initialisers and finalisers before the memory is freed. Whoever calls
//!   `Executor::run_initializer` or `NativeProgram::call_main` is such a holder. The C library keeps
//!   an address of linked code only until the scope of its object is closed, which is before the memory is freed.
//! - **H3** *Consent.* Whoever first looks code up or initialises it agrees that its initialisers, finalisers and exit handlers
//!   run. None of them runs before that.
//! - **H4** *Callback arguments.* The untyped pointer that a callback gets points to a value of the declared type on the stack
//!   of the function that passed it, in the same file. That function waits for the callback.
//! - **H5** *Loaded modules.* Bytes that the loader mapped for a module are read and written only while its `Library` is open,
//!   and only at the offsets that the file of the module defines.
//! - **H6** *Locked data.* Data that several threads reach through pointers (the debuggers' list, the value of a `ForkLock`) is
//!   touched only by the thread that holds its lock. An entry of the list lives until it is removed from the list.
//! - **H7** *Arguments of linked code.* A function of this room that stands for one of the C library gets the arguments that
//!   linked code would pass to that one: C strings, handles of the loader that are open, and pointers to write results to.

mod call;
mod call_through;
#[cfg(feature = "executor")]
mod callback;
mod debugger_list;
mod executor;
mod exit_handlers;
mod exit_hook;
mod exit_scopes;
mod fork_lock;
mod in_process;
mod lazy_failure;
#[cfg(feature = "reload")]
mod linked_threads;
mod loader_functions;
mod loader_scopes;
#[cfg(feature = "reload")]
mod native_threads;
mod numbered_targets;
#[cfg(feature = "executor")]
mod passed_call;
mod process;
mod profile;
mod program;
#[cfg(feature = "reload")]
mod program_image;
mod program_symbols;
#[cfg(feature = "reload")]
mod reload_point;
#[cfg(feature = "executor")]
mod remote_call;
mod stack_end;
mod thread_exit_handlers;
mod thread_local_image;
mod thread_locals;

pub use call::{Function, FunctionPointer, Symbol};
#[cfg(loom)]
pub use call_through::enter_for_models;
pub(crate) use call_through::{LazyFunction, LazyTarget};
pub(crate) use executor::{
    CodeDumpFile, Executor, ExecutorHandle, HandlerScope, LazyEntries, NameMapFile, ProcessExitHook, ThreadLocalBlock,
    ViewScope,
};
#[cfg(loom)]
pub use exit_scopes::ExitScopes;
pub(crate) use in_process::InProcess;
pub use lazy_failure::{LazyFailure, LazyFailureHandler};
#[cfg(feature = "reload")]
pub(crate) use linked_threads::ThreadHooks;
pub(crate) use loader_scopes::{LoaderView, SymbolSearch, ViewedAddress, ViewedSymbol};
pub(crate) use process::ProcessSymbol;
#[cfg(feature = "executor")]
pub(crate) use profile::CodeDump;
pub(crate) use profile::Stamp;
#[cfg(feature = "reload")]
pub(crate) use program_image::{CodeWrite, ImageObject, ImageSymbol, ImageSymbolKind, ProgramImage};
pub(crate) use program_symbols::ProgramSymbol;
#[cfg(feature = "reload")]
pub(crate) use reload_point::{ReloadHooks, WalkFn};

#[cfg(all(feature = "unstable", feature = "reload"))]
pub use native_threads::NativeThreads;
#[cfg(not(feature = "unstable"))]
pub(crate) use thread_locals::StaticTls;
#[cfg(feature = "executor")]
pub(crate) use {
    callback::{CallbackTarget, HostFunction},
    exit_scopes::CodeKeepAlive,
    passed_call::{CallRegisters, CallShape, MAX_RESULT, MAX_STACK_WORDS, PassedCall},
    remote_call::{RemoteCalls, RemoteHold},
};
#[cfg(any(all(test, not(loom)), feature = "executor"))]
pub(crate) use {
    executor::{ExecutorResource, HandlerFunctions, LoaderFunction, NativeProgram},
    exit_hook::ExitHookFn,
    exit_scopes::KeepAliveFn,
};
#[cfg(feature = "unstable")]
pub use {
    process::LoadedLibrary,
    thread_locals::{StaticTls, ThreadLocalModule},
};
