//! Static libraries, debuggers and profilers.
//!
//! A `Jit` sets these services up. Use the types of this module for a session without a `Jit`.
//!
//! # How it is built
//!
//! This room has the services that running code expects.
//!
//! | file | service |
//! |---|---|
//! | `init_fini.rs`, `init_queue.rs`, `init_counts.rs` | initialisers and finalisers, their queue, counts per dylib |
//! | `call_order.rs` | the order of initialisers and finalisers |
//! | `dependency_order.rs` | the order in which dylibs are initialised |
//! | `dso_handle.rs` | a `__dso_handle` for each object, so that its exit handlers are its own |
//! | `loader_view.rs` | what each object finds by `dlsym` and `dladdr` |
//! | `wanted_names.rs` | the externals of an object that these two services define |
//! | `stubs.rs`, `lazy.rs` | functions whose target can change; functions that are linked at their first call |
//! | `process_symbols.rs`, `program_symbols.rs`, `static_libraries.rs` | generators of definitions |
//! | `debugger.rs`, `profiler.rs`, `jit_dump.rs`, `tracing_observer.rs` | gdb and lldb, perf, the `tracing` crate |
//!
//! Each resource of these services is recorded under a key, and is freed with that key. A removal reaches them
//! before the layer frees the code, whatever the order of registration (`src/session/core/resource_manager.rs`).
//!
//! Unwinding needs no service: a window of `memory` contains the unwind tables of its modules.
//!
//! This room contains no `unsafe` code. It calls linked code only through `host`.

mod call_order;
mod debugger;
mod dependency_order;
mod dso_handle;
mod init_counts;
mod init_fini;
mod init_queue;
mod jit_dump;
mod lazy;
mod loader_view;
mod process_symbols;
mod profiler;
mod program_symbols;
mod static_libraries;
mod stubs;
#[cfg(feature = "tracing")]
mod tracing_observer;
mod wanted_names;

pub use debugger::Debugger;
pub(crate) use dependency_order::dependencies_first;
#[cfg(loom)]
pub use init_queue::{InitQueue, InitToken, QueuedObject};
pub(crate) use loader_view::LoaderServices;
pub use profiler::{Profile, Profiler};
pub use static_libraries::StaticLibraries;
pub(crate) use stubs::{StubHandle, redirect as redirect_slot};
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;

#[cfg(feature = "unstable")]
pub use {
    init_fini::InitFiniRegistry, lazy::LazyReexports, process_symbols::ProcessSymbols, program_symbols::ProgramSymbols,
    static_libraries::add_whole_archive, stubs::StubManager,
};
#[cfg(not(feature = "unstable"))]
pub(crate) use {
    init_fini::InitFiniRegistry, lazy::LazyReexports, process_symbols::ProcessSymbols, program_symbols::ProgramSymbols,
    static_libraries::add_whole_archive, stubs::StubManager,
};
