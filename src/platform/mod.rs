//! Services that running code expects: initialisers and finalisers, exit handlers, stubs, symbols of the process, static
//! libraries, and registration with debuggers and profilers.
//!
//! | file | service |
//! |---|---|
//! | `init_fini.rs`, `init_queue.rs`, `init_counts.rs` | initialisers and finalisers, their queue, counts per dylib |
//! | `dso_handle.rs` | a `__dso_handle` for each object, so that its exit handlers are its own |
//! | `stubs.rs`, `lazy.rs` | functions whose target can change; functions that are linked at their first call |
//! | `process_symbols.rs`, `program_symbols.rs`, `static_libraries.rs` | generators of definitions |
//! | `debugger.rs`, `profiler.rs`, `jit_dump.rs`, `tracing_observer.rs` | gdb and lldb, perf, the `tracing` crate |
//!
//! Each resource of these services is recorded under a key, and is freed with that key. The services are registered after the
//! linking layer, and managers are called newest first. So a removal reaches them before the layer frees the code.
//!
//! Unwinding needs no service: a window of `memory` contains the unwind tables of its modules.
//!
//! This room contains no `unsafe` code. It calls linked code only through `host`.

mod debugger;
mod dso_handle;
mod init_counts;
mod init_fini;
mod init_queue;
mod jit_dump;
mod lazy;
mod process_symbols;
mod profiler;
mod program_symbols;
mod static_libraries;
mod stubs;
#[cfg(feature = "tracing")]
mod tracing_observer;

pub use debugger::Debugger;
pub use init_fini::InitFiniRegistry;
pub(crate) use init_fini::dependencies_first;
#[cfg(loom)]
pub use init_queue::{InitQueue, InitToken, QueuedObject};
pub use lazy::LazyReexports;
pub use process_symbols::ProcessSymbols;
pub use profiler::{Profile, Profiler};
pub use program_symbols::ProgramSymbols;
pub use static_libraries::{StaticLibraries, add_whole_archive};
pub(crate) use stubs::StubHandle;
pub use stubs::StubManager;
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;
