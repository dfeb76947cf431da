//! The services that running code expects: initialisers and finalisers, exit handlers, redirectable stubs, the process's
//! own symbols, static libraries, what debuggers and profilers know. Each is a resource: it arrives with a key and leaves with it.
//!
//! Removal reaches these rooms before the layer below frees code: they are registered later, and managers are told
//! newest first. Unwinding is not among them: the window knows its frames (`memory`), and no module is ever registered.
//!
//! This room holds no `unsafe`: it calls code only through `host`.

mod debugger;
mod dso_handle;
mod init_fini;
mod init_queue;
mod jit_dump;
mod lazy;
mod opened;
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
pub use init_queue::{InitQueue, InitTurn, Waiting};
pub use lazy::LazyReexports;
pub use process_symbols::ProcessSymbols;
pub use profiler::{Profile, Profiler};
pub use program_symbols::ProgramSymbols;
pub use static_libraries::{StaticLibraries, add_whole_archive};
pub(crate) use stubs::StubHandle;
pub use stubs::StubManager;
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;
