//! A JIT linker in which **every piece of running code can be removed again**: exactly, safely, at once.
//!
//! Relocatable objects and archives go in: ELF files for x86-64 or AArch64 Linux from gcc, clang, rustc, Cranelift or LLVM. Callable
//! addresses come out. Everything that an object brought is recorded under one key: code, constants, data, thread-local
//! variables, stubs, unwind tables, initialisers, symbol names. One call frees all of it while other threads keep running.
//!
//! The scheme is that of LLVM ORCv2, and so are the names: [`ExecutionSession`], [`JitDylib`], [`ResourceTracker`],
//! [`ResourceManager`].
//!
//! # Example
//!
//! ```
//! use jittison::Jit;
//!
//! # fn main() -> Result<(), jittison::Error> {
//! // Made from `int add(int a, int b) { return a + b; }` with `gcc -c -O2 -fPIC`.
//! let object = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
//!
//! let jit = Jit::new()?;
//! let tracker = jit.main_dylib().create_tracker()?;
//! jit.add_object(&tracker, "add.o", &object[..])?;
//! // SAFETY: `add` has this signature, and the object may run in this process.
//! let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
//! assert_eq!(add.call(2, 3), 5);
//!
//! let removal = tracker.remove()?; // The name `add` is gone.
//! assert_eq!(add.call(2, 3), 5); // The handle keeps the code in memory.
//! assert!(!removal.is_complete());
//! drop(add);
//! assert!(removal.is_complete()); // The memory is free.
//! # Ok(()) }
//! ```
//!
//! # Where to start
//!
//! | to do | start with |
//! |---|---|
//! | link objects and call their functions | [`Jit::add_object`], [`Jit::lookup`] |
//! | link static libraries | [`Jit::link_static_library`] |
//! | remove code | [`ResourceTracker::remove`], [`Removal`] |
//! | call functions without an owned handle | [`Jit::guard`], [`Jit::symbol`] |
//! | replace functions while threads call them | [`Jit::patchable`], [`Patch`] |
//! | link what a code generator makes | [`link::GraphBuilder`], [`Jit::link_graph`] |
//! | compile functions at their first call, or again when they are called often | [`Jit::compile_on_demand`], [`Jit::reoptimize_layer`] |
//! | run a program with a `main` | [`Program`] |
//! | use gdb, lldb or perf | [`JitBuilder::debugger`], [`JitBuilder::profiler`] |
//! | follow what a session does | [`Observer`], [`MemoryMap`], [`Jit::locate`] |
//! | supply symbols when a lookup misses them | [`session::DefinitionGenerator`] |
//! | read or change objects while they are linked | [`layer::LinkPlugin`] |
//! | own what belongs to code, and free it with the code | [`ResourceManager`], [`session::Ledger`] |
//! | limit, share or replace code memory | [`JitBuilder::memory_budget`], [`memory::SlabPool`], [`memory::MemoryManager`] |
//!
//! `DESIGN.md` in the repository says how the crate is built.
//!
//! # Features
//!
//! `range-extension`, `reload` and `environment` are on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `range-extension` | `-fno-pic` and `-fPIE` code may name data of shared libraries that is out of reach; brings `iced-x86` |
//! | `reload` | `Reloader`: objects of a running program are replaced |
//! | `environment` | `JITTISON_GDB` and `JITTISON_PERF` register linked code with debuggers and perf; about 120 KB of code |
//! | `cli` | the command `jittison`, with `run`, `inspect`, `map` and `check` (`docs/cli.md`) |
//! | `executor` | code runs in another process, which may be sandboxed or of another architecture (`docs/executor.md`) |
//! | `executor-tls` | such a connection may be encrypted; brings `rustls` |
//! | `tracing` | `platform::TracingObserver`, which reports events to the `tracing` crate |
//! | `watch` | `Watcher`: objects are reloaded when their files are written again |
//! | `unstable` | internals that the tests and the command use; a new version may change or remove them |
//!
//! # Platforms and limits
//!
//! - Linux on x86-64 or AArch64 (pages of 4, 16 or 64 KiB), ELF objects.
//! - Code of the static thread-local models shares one to two thousand bytes of variables per process. Beyond that, thunks of the
//!   feature `range-extension` compute the addresses.
//! - `__start_X` and `__stop_X` span the objects that are added to a dylib before the first of them is linked.
//! - What the crate does not link, it refuses with an error that names the object, the section and the symbol. The section
//!   *Limits* of `DESIGN.md` has the list.
//!
//! # Removal
//!
//! 1. A tracker owns what was added under it. [`ResourceTracker::remove`] removes all of that, and never blocks on a running
//!    call.
//! 2. *Unpublish*: its names leave the dylib at once. Lookups that wait for them fail, and links in progress stop.
//! 3. *Pins* keep its memory: an owned [`Function`], a [`Guard`] that was entered before, a counted call, or linked code of
//!    another tracker that refers to it.
//! 4. *Reclaim*: when the last pin goes, every [`ResourceManager`] frees what it owns under the key: the
//!    embedder's managers, newest first, then those of the crate, code memory last.
//! 5. A [`Removal`] is the ticket: whether it is complete, what pins the tracker, and how to wait for the end.
//!
//! | verb | if something pins the tracker |
//! |---|---|
//! | [`remove`](ResourceTracker::remove) | names are gone at once, memory is freed when the last pin goes |
//! | [`try_remove`](ResourceTracker::try_remove) | nothing is done; the error names the holders |
//! | [`remove_cascade`](ResourceTracker::remove_cascade), [`remove_all`](ResourceTracker::remove_all) | dependants are removed too; several trackers in one step |
//! | [`Jit::remove_now`] (`unsafe`) | memory is freed at once, as in ORC |
//!
//! [`Patchable`] replaces functions while threads call them: it links a new version, redirects callers with one store each,
//! and removes the old version in this way.
//!
//! # Safety
//!
//! Safe code cannot reach freed memory, whatever it removes. But the crate cannot know what linked code does. So each step
//! that depends on this is `unsafe`, and its caller makes a promise. Each `# Safety` section has the exact list.
//!
//! | `unsafe` item | what its caller promises |
//! |---|---|
//! | [`Jit::lookup`], [`Jit::lookup_in`], [`Jit::symbol`], [`PreparedPatch::lookup`] | the name is a function of this signature, and all objects that were added so far may run |
//! | [`Jit::initialize`], [`Patch::link`], [`Jit::add_rebindable`], [`Patchable::replace`] | all objects that were added so far may run: initialisers now, finalisers at removal |
//! | [`ReOptimizeLayer::add`] | each tier has the signature that callers use, and all objects that were added so far may run |
//! | [`Jit::deinitialize`] | no thread is in code of what is finalised, or calls it before it is initialised again |
//! | [`Program::run`] | the entry is a `main`, and all objects that were added so far may run |
//! | all of these | an address that was given as a number (absolute symbol, target of a stub, custom unit, plugin) stays in memory while code reaches it |
//! | [`Jit::redirect_stub`], [`Stub::redirect`] | the target has the signature that callers use, and stays as long as they call it |
//! | [`Function::from_address`], [`Symbol::from_address`] | the address is a function of this signature, and stays in memory |
//! | [`Function::as_ptr`], [`Symbol::as_ptr`] | the pointer is not called after the handle or the guard is dropped |
//! | `call` of a handle to an `unsafe extern` function | what that function itself requires |
//! | [`Jit::pass_quiescent_state`] | no frame of this thread is in a patched function |
//! | [`Jit::remove_now`] | no thread is in the code, will call it, or accesses its data |
//! | [`LazyFailureHandler::new`](host::LazyFailureHandler::new) | each address that the handler returns is a function of the right signature |
//! | [`MappedFile::open`] | no one changes the file while it is mapped |
//! | [`Finalized::write`](memory::Finalized::write) | no other thread writes the allocation, and no code uses the range yet |
//! | [`MemoryManager`](memory::MemoryManager), an `unsafe trait` | its allocations keep their memory and addresses until they are dropped |
//! | [`MappedWindow`](memory::MappedWindow), an `unsafe trait` | an implementation maps memory as the trait describes |
//!
//! # Errors
//!
//! Fallible functions return [`Error`]; memory mappers return [`error::MemoryFault`]. An `Error` is one pointer wide and cheap
//! to clone. [`Error::kind`] has the [`ErrorKind`], to match on; [`Error::root_cause`] has the first failure. The message says
//! what failed, what was undone and what to do.
//!
//! After an error the session keeps working. A failed link frees its memory, fails the lookups that wait for its symbols,
//! and leaves the names free for another definition. Errors that no caller receives, such as those of a background removal,
//! go to the [error reporter](JitBuilder::error_reporter).
//!
//! # Security
//!
//! Linked code has all rights of the process. This crate does not confine it and does not check what it does. This section
//! is about mistakes and attacks that start outside of linked code.
//!
//! **No address is writable and executable.** Code and constants are mapped twice. The running view is readable, and
//! executable for code. The working view is readable and writable, at an address that the kernel chooses at random. Both
//! views are made once. Links and removals change no protection.
//!
//! | promise | held by |
//! |---|---|
//! | `mprotect` cannot make the running view writable; `/proc/self/mem` and debuggers cannot write it | the kernel: it is a shared mapping of a read-only descriptor |
//! | the writable descriptor is closed after the window is mapped | this crate |
//! | one descriptor of each window stays open; it is read-only and is closed by `exec` | this crate |
//! | an ordinary user cannot reopen that descriptor for writing through `/proc/self/fd` | the kernel: the file has mode 0444, if the sandbox allows `fchmod` |
//! | a forked child has its own copy, and no working view of its parent's memory | this crate ([`memory::ForkPolicy::Snapshot`]) |
//!
//! These are not promised:
//! - An attacker that can write anywhere in the process and knows the address of a working view can change code. The view is
//!   not hidden.
//! - An attacker that can make system calls in the process, or trace it, can change code: with `fchmod` and a new
//!   descriptor, with `mprotect` of the working view, through `/proc/self/map_files`, or in new memory that is writable and
//!   executable. A seccomp filter can forbid these calls; links into windows that are mapped need none of them.
//!   `CAP_DAC_OVERRIDE` overrides the file's mode.
//! - If a descriptor cannot be reopened (no `/proc`), the running view comes from a writable descriptor that stays open. If
//!   there is no `memfd_create`, pages are writable and executable in turn, never both. [`memory::WindowMap::description`]
//!   says which mapping a session has.
//! - While a dump for `perf` is written, one of its pages is mapped executable, because `perf` requires this. The page is
//!   never run.
//!
//! **Objects need not be well-formed.** Bad bytes cause an error. They never cause a panic, or an access outside of the
//! object. To run linked code takes an `unsafe` call. The system's loader runs the constructors of a shared library when the
//! library is opened ([`JitBuilder::library`]): name only libraries that you trust.
//!
//! **Files are read, not mapped,** because another process may shorten, rewrite or replace a file at any time. An object is
//! read when it is added, a member of an archive when it is needed. It is an error if a file changed between two reads, or
//! if it is not a regular file. Two writes within one tick of the file system's clock look like one; so an archive that was
//! written in the last two seconds is read entirely when it is opened. Only [`MappedFile::open`] maps a file: it is `unsafe`
//! and lists what to promise. The command `jittison run` maps archives; its user makes that promise.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[allow(unsafe_code)]
mod arch;
pub mod base;
pub mod error;
#[cfg(feature = "executor")]
#[allow(unsafe_code)]
pub mod executor;
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
mod prefetch;
pub mod session;
mod sync;
#[cfg(any(feature = "executor", loom))]
mod wire;

#[doc(inline)]
pub use error::{Error, ErrorKind};
#[doc(inline)]
pub use host::{Function, Symbol};
#[cfg(loom)]
#[doc(hidden)]
pub use jit::TierState;
pub use jit::{
    CodeLocation, Committed, CompileOnDemandLayer, CompileRequest, CompiledFunction, FunctionCompiler, Jit, JitBuilder,
    Patch, PatchVersion, Patchable, PatchableBuilder, PreparedPatch, Program, ProgramEvent, ReOptimizeLayer,
    ReOptimized, RolledBack, Stub,
};
#[cfg(feature = "reload")]
pub use jit::{ObjectVersion, Reload, Reloader};
#[cfg(feature = "executor")]
pub use jit::{RemoteFunction, Restarted};
#[cfg(feature = "watch")]
pub use jit::{WatchEvent, Watcher};
#[doc(inline)]
pub use memory::{MemoryMap, MemoryStatistics, MemoryUsage, PoolStatistics};
pub use os::{InputFile, MappedFile};
#[doc(inline)]
pub use session::{
    Event, ExecutionSession, Guard, JitDylib, Observer, OwningTracker, ReclaimPolicy, Removal, ResourceKey,
    ResourceManager, ResourceTracker,
};
#[cfg(loom)]
#[doc(hidden)]
pub use wire::{Arrival, Mailbox};
