//! The operating system: pages, files, the dynamic loader, and the process as the C library sees it. Only this room and the
//! rooms that `DESIGN.md` lists may use `libc` and `memmap2`.
//!
//! Every function does one thing that the system does, and returns the text of the system when the system refuses. The room
//! does not know what the memory is for, does not allocate from what it maps, and keeps no tables of it.
//!
//! | file | what it wraps |
//! |---|---|
//! | `vm.rs`, `pages.rs`, `page_size.rs` | `mmap`, `mprotect`, `madvise`, `memfd_create`: shared files and private pages; the size of a page |
//! | `address_space.rs` | what is mapped where |
//! | `file.rs`, `named_file.rs`, `profile.rs` | files to read, files with a name, files that grow |
//! | `dynlib.rs`, `dynamic_symbols.rs` | `dlopen`, `dlsym`, and the symbol tables of loaded libraries |
//! | `loader_calls.rs` | `dlsym`, `dlvsym`, `dladdr` and `dlerror` on behalf of linked code |
//! | `static_loader.rs` | `dl_iterate_phdr` for programs without a loader |
//! | `crash.rs`, `signal_stack.rs` | the signals of a crash, and the stack on which they are handled |
//! | `socket.rs`, `futex.rs` | sockets that carry descriptors; waiting for a word to change |
//! | `sandbox.rs`, `namespaces.rs` | what this process may not do any more |
//! | `stack.rs`, `thread.rs` | the frames of a thread; threads that linked code starts |
//! | `fork.rs`, `process.rs` | fork handlers, exit handlers, program name, environment, signals |
//!
//! # Invariants
//!
//! Each SAFETY note cites one of these, and says why it holds at that line.
//!
//! - **O1** *Mappings.* An operation replaces, unmaps, protects or clears only address space that its caller owns: a mapping of
//!   its own value, or a range that the `# Safety` section of the function makes the caller's. A mapping without `MAP_FIXED`
//!   replaces nothing. Bytes are borrowed only from a mapping that is readable (for `&mut`: writable) and outlives the borrow.
//! - **O2** *Pointers in calls.* Every pointer that is passed to the C library, the loader or the kernel is valid for what the
//!   callee does with it, until the call returns, and the callee does not keep it. Text is NUL-terminated.
//! - **O3** *Loader handles.* A handle of the loader is open as long as its `Library` lives. The `Library` closes it exactly
//!   once. Linked code is responsible for handles that it has opened itself.
//! - **O4** *Handlers.* A handler that the C library keeps is a function with the declared signature. It is in this program,
//!   or in linked code that stays in memory until the handler is deregistered.
//! - **O5** *Loaded libraries.* The headers, dynamic section and symbol tables of a library are read only while it is loaded:
//!   inside the callback of the loader, or while a `Library` holds it. The program itself is always loaded. They are as long as
//!   the library's own headers say, and the loader relies on that, too.
//! - **O6** *List of windows.* A node of the list is never freed, and its `next` never changes once the node is on the list
//!   (`static_loader.rs`).
//! - **O7** *File descriptors.* Each descriptor has one owner (`File`, `OwnedFd`, or a field of `FileCopy`), which closes it
//!   exactly once in each process. An operation gets it from the owner or from a borrow of the owner, so it is open.
//! - **O8** *Process state.* The words of the C library that describe the process (program name, signal actions, `errno`,
//!   `environ`) are changed only by a value that restores them when it is dropped, or for the calling thread alone.
//! - **O9** *No memory.* A call that takes no pointer, and changes no memory of the process, has no precondition.

mod address_space;
#[cfg(feature = "executor")]
mod crash;
mod dynamic_symbols;
mod dynlib;
mod file;
mod fork;
#[cfg(feature = "executor")]
mod futex;
mod loader_calls;
mod named_file;
#[cfg(feature = "executor")]
mod namespaces;
#[cfg(feature = "executor")]
mod origin;
mod page_size;
mod pages;
mod process;
mod profile;
#[cfg(feature = "executor")]
mod sandbox;
#[cfg(feature = "executor")]
mod signal_stack;
#[cfg(feature = "executor")]
mod socket;
mod stack;
mod static_loader;
#[cfg(feature = "reload")]
mod thread;
mod vm;

pub(crate) use address_space::{heap_end, library_range, mappings_below, program_range};
#[cfg(feature = "executor")]
pub(crate) use crash::{CrashSite, report_crashes};
pub(crate) use dynamic_symbols::{SymbolKind, symbol_kind};
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
use dynlib::thread_local_address_in;
pub(crate) use dynlib::{
    Library, prevent_unload, process_symbol, process_symbol_of_version, thread_local_address, thread_local_alignment,
};
pub use file::{InputFile, MappedFile};
pub(crate) use fork::{FileCopy, FileView, at_fork, map_zeroes};
#[cfg(feature = "executor")]
pub(crate) use futex::{wait, wake};
pub(crate) use loader_calls::{
    AddressInfo, SEARCH_DEFAULT, SEARCH_NEXT, clear_loader_error, fail_search, is_program_handle, locate_address,
    process_symbol_version, symbol_in,
};
pub(crate) use named_file::NamedFile;
#[cfg(feature = "executor")]
pub(crate) use origin::OriginProcess;
pub(crate) use page_size::page_size;
pub(crate) use pages::PrivatePages;
#[cfg(feature = "executor")]
pub(crate) use process::at_exit_with_status;
pub(crate) use process::{
    DefaultSignals, ProgramName, at_exit, at_thread_exit, clear_errno, deregister_handlers, environment, exit_process,
    is_traced, register_at_fork, register_at_quick_exit,
};
#[cfg(feature = "executor")]
pub(crate) use profile::map_marker;
pub(crate) use profile::{AppendFile, monotonic_nanoseconds};
#[cfg(feature = "executor")]
pub(crate) use sandbox::{Restrictions, restrict};
#[cfg(feature = "executor")]
pub(crate) use signal_stack::SignalStack;
#[cfg(feature = "executor")]
pub(crate) use socket::{
    MAX_DESCRIPTORS, receive, send, set_standard_error, set_standard_input, set_standard_output, take_standard_input,
};
pub(crate) use stack::return_addresses;
pub(crate) use static_loader::{HAS_NO_LOADER, ListedWindow, WindowRange};
#[cfg(feature = "reload")]
pub(crate) use thread::{StartRoutine, ThreadEnd, create_thread};
pub(crate) use vm::{
    FixedPages, PageKind, Protection, Reservation, SharedFile, is_free, map_fixed, populate, protect, purge_pages,
};
