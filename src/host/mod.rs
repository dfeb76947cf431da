//! The hands: everything that is done in the process that runs the code. Calls it, listens to its `atexit`, finds the
//! process's own symbols, tells debuggers and profilers.
//!
//! # Invariants
//!
//! - **H1** A function pointer is made only of an address that a session reported ready, and only where a caller has
//!   given its word for the signature (`unsafe`).
//! - **H2** Code is called only while its memory is held: by a handle's pin, a guard, or the registry that calls initialisers
//!   and finalisers before the memory goes.
//! - **H3** That initialisers, finalisers and exit handlers may run is part of the word given when code is first looked
//!   up or initialised; none runs before that.
//! - **H4** What a callback is handed as an untyped pointer is what its own caller, in the same file, has on its stack.
//! - **H5** What the loader mapped of a library is read and written only while the `Library` is open, and only where the
//!   file said that it would be.
//! - **H6** What several threads edit through pointers (the debuggers' list, the value of a `ForkLock`) is touched only by
//!   the thread that holds its lock, and an entry of the list lives until it was taken out.
//!
//! This room does not know dylibs, trackers or keys: what keeps memory alive is handed to it as an opaque box.

mod call;
mod call_through;
mod debugger_list;
mod exit_handlers;
mod exit_hook;
mod exit_scopes;
mod fork_lock;
mod lazy_failure;
mod process;
mod profile;
mod program;
mod program_symbols;
mod stack_end;
mod thread_exit_handlers;
mod thread_local_image;
mod thread_locals;

pub(crate) use call::run_initializer;
pub use call::{Function, FunctionPointer, Symbol};
#[cfg(loom)]
pub use call_through::enter_for_models;
pub(crate) use call_through::{CallThrough, ENTRY_SIZE, LazyTarget, call_through_address};
pub(crate) use debugger_list::DebuggerEntry;
pub(crate) use exit_handlers::{
    ExitScope, at_quick_exit_capture_address, atexit_capture_address, atfork_capture_address, on_exit_capture_address,
    set_exit_status,
};
pub(crate) use exit_hook::{ExitHook, exit_address};
#[cfg(loom)]
pub use exit_scopes::ExitScopes;
pub use lazy_failure::{LazyFailure, LazyFailureHandler};
pub use process::LoadedLibrary;
pub(crate) use process::{ProcessSymbol, find_symbol};
pub(crate) use profile::{CodeDump, NameMap, Stamp};
pub(crate) use program::{MainFunction, ProgramStart};
pub(crate) use program_symbols::{ProgramSymbol, program_symbols};
pub(crate) use stack_end::at_stack_end;
pub(crate) use thread_exit_handlers::thread_atexit_capture_address;
pub use thread_locals::{StaticTls, ThreadLocalModule};
pub(crate) use thread_locals::{address_in_this_thread, static_offset};
