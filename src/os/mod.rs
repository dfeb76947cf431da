//! The cellar: pages, shared files, foreign symbols. The only room that says `libc` or `memmap2`.
//!
//! Every function does one thing that the system does and reports the system's words when it refuses. Nothing here
//! knows what the memory is for.
//!
//! # Invariants
//!
//! - **O1** A fixed mapping replaces only address space that the caller says, by contract, is its own.
//! - **O2** Text handed to the C library is NUL-terminated and lives through the call.
//! - **O3** A handle from the loader is closed exactly once, by the `Library` that holds it.
//! - **O4** Handlers handed to the C library are functions of this program, or of linked code that stays until they are
//!   forgotten. Words of the C library that describe the
//!   process (name, signals) are changed only by a value that puts them back when it is dropped.
//! - **O5** What the loader shows of a library (headers, dynamic section, symbol tables) is read only while the
//!   library is sure to be there: inside the loader's callback, or while a `Library` holds it. The program itself is always there.
//! - **O6** Nodes of the list of windows stay for good once they are on it (`static_loader.rs`).
//!
//! This room does not allocate from what it maps, and keeps no books.

mod address_space;
mod dynamic_symbols;
mod dynlib;
mod file;
mod fork;
mod named_file;
mod pages;
mod process;
mod profile;
mod static_loader;
mod vm;

pub(crate) use address_space::{heap_end, library_range, occupants_below, program_range};
pub(crate) use dynamic_symbols::{SymbolKind, symbol_kind};
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
use dynlib::thread_local_address_in;
pub(crate) use dynlib::{Library, process_symbol, stay_loaded, thread_local_address};
pub use file::{InputFile, MappedFile};
pub(crate) use fork::{FileCopy, FileView, at_fork, map_zeroes};
pub(crate) use named_file::NamedFile;
pub(crate) use pages::PrivatePages;
pub(crate) use process::{
    DefaultSignals, ProgramName, at_exit, at_thread_exit, clear_errno, environment, exit_process, forget_handlers,
    is_traced, register_at_fork, register_at_quick_exit,
};
pub(crate) use profile::{GrowingFile, monotonic_nanoseconds};
pub(crate) use static_loader::{Listed, ListedRange};
pub(crate) use vm::{
    FixedPages, PageKind, Protection, Reservation, SharedFile, back, give_back, is_free, map_fixed, protect,
};
