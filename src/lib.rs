//! A JIT linker in which every piece of running code can be taken back: exactly, safely, at once.
//!
//! # Security
//!
//! Linked code has all rights of the process. jittison does not confine it, and does not check what it does. What follows is
//! about mistakes and attacks that start outside of it.
//!
//! **No address is writable and executable.** Code and constants are mapped twice. The running view can be read and executed,
//! or read; the working view, at an address that the kernel chooses at random, can be read and written. Both are made once.
//! Linking and removing change no protection.
//!
//! | promise | held by |
//! |---|---|
//! | the running view cannot be made writable by `mprotect`, nor written by `/proc/self/mem` or a debugger | the kernel: it is a shared mapping of a descriptor that was opened to read |
//! | the descriptor that could write is closed when the window is mapped | jittison |
//! | one descriptor of each window stays open: it can only read, and is closed by `exec` | jittison |
//! | opening that descriptor again by `/proc/self/fd`, to write, is refused to an ordinary user | the kernel, by the file's mode 0444, where the sandbox allows `fchmod` |
//! | a forked child has a copy of its own and no working view of its parent's | jittison ([`memory::ForkPolicy::Snapshot`]) |
//!
//! Not promised:
//! - Whoever can write anywhere in the process, and learns where a working view is, can change code. The view is not hidden.
//! - Whoever can make system calls in the process, or may trace it, can change code: `fchmod` and a new descriptor, `mprotect`
//!   of the working view, `/proc/self/map_files`, or new memory that is writable and executable. A seccomp filter forbids
//!   these; linking into windows that are mapped needs none of them. `CAP_DAC_OVERRIDE` passes over the file's mode.
//! - Where a descriptor cannot be reopened (no `/proc`), the running view comes from a descriptor that can write and stays
//!   open. Where there is no `memfd_create`, pages are writable and executable by turns, never at once.
//!   [`memory::WindowMap::description`] says which of these a session got.
//! - A dump for `perf` has one of its pages mapped executable as long as it is written, because `perf` asks for that. Nobody
//!   runs it.
//!
//! **Objects are not trusted to be well-formed.** Bad bytes are an error, never a panic, and never an access outside of what the
//! object brings. To run the code is another matter: that takes an `unsafe` call, in which the caller gives its word.
//! Opening a shared library ([`JitBuilder::library`], [`host::LoadedLibrary`]) runs its constructors, as the system's loader
//! does: name only libraries that you trust.
//!
//! **Files are read, not mapped.** Another process may shorten, rewrite or replace a file at any time. An object is read
//! when it is added; a member of an archive when it is needed. A file that changed between two reads is an error; so is
//! whatever is no regular file. Two writes within one tick of the file system's clock look like one, so an archive that was
//! written in the last two seconds is read as a whole. Only [`MappedFile::open`] maps; it is `unsafe`, and lists what to
//! promise. The command `jittison run` maps archives, on the word of whoever types it.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod error;
#[allow(unsafe_code)]
pub mod host;
#[allow(unsafe_code)]
mod jit;
pub mod layer;
pub mod link;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
mod os;
pub mod platform;
#[allow(unsafe_code)]
mod prefetch;
pub mod session;
mod sync;

pub use error::{Error, ErrorKind};
pub use host::{Function, Symbol};
pub use jit::{
    CodeLocation, Committed, Jit, JitBuilder, Patch, PatchVersion, Patchable, PatchableBuilder, PreparedPatch, Program,
    ProgramEvent, RolledBack, Stub,
};
pub use memory::{MemoryMap, MemoryStatistics, MemoryUsage, PoolStatistics};
pub use os::{InputFile, MappedFile};
pub use session::{
    Event, ExecutionSession, Guard, JitDylib, Observer, ReclaimPolicy, Removal, ResourceKey, ResourceManager,
    ResourceTracker,
};
