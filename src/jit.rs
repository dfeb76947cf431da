//! [`Jit`]: a session with the services that most embedders need, and typed handles to what it links.
//!
//! | file | holds |
//! |---|---|
//! | `inner.rs` | [`Jit`] and the state that its clones share; every other file of this room imports it |
//! | `builder.rs` | [`JitBuilder`]: the settings, and the construction of all parts |
//! | this file | methods that add, look up, initialise, stub and measure |
//! | `guarded.rs` | guards, lookups under a guard, and the removal that waits for nothing |
//! | `files.rs`, `libraries.rs` | objects and archives that are given by path |
//! | `compiling/` | functions that are compiled at their first call, and again when they are called often |
//! | `patching/` | functions that are replaced while threads call them |
//! | `reloading/` | objects of a running program that are replaced |
//! | `program.rs` | a set of objects that runs as a program |
//! | `remote.rs` | functions that run in the process of an executor |
//! | `session_inputs.rs`, `restart.rs` | what was added, by key; the same objects in another executor |
//! | `spare_dylibs.rs` | dylibs of replaced versions, for the next ones |
//! | `stub.rs`, `symbolize.rs` | handles to stubs; names for addresses of linked code |
//!
//! Imports go one way: no file of this room imports this one.
//!
//! # Invariant
//!
//! - **J1** *Promises of the caller.* Only the caller knows the signature of a function and whether the code may run. So
//!   each method here that needs such a promise is an `unsafe fn`, and its `# Safety` section states the promise. The method
//!   passes the promise on to `host` unchanged, and adds what keeps the code in memory.

mod builder;
mod compiling;
mod files;
mod guarded;
mod inner;
mod libraries;
mod patching;
mod program;
#[cfg(feature = "reload")]
mod reload_points;
#[cfg(feature = "reload")]
mod reloading;
#[cfg(feature = "executor")]
mod remote;
#[cfg(feature = "executor")]
mod restart;
mod session_inputs;
mod spare_dylibs;
mod stub;
mod symbolize;
#[cfg(feature = "watch")]
mod watcher;

use std::fmt;
use std::path::Path;

use crate::base::{CodeHold, ExecutorAddr, Name, TlsIndex, clear_thread_cache, sort_by_order};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Function, FunctionPointer, InProcess};
#[cfg(feature = "executor")]
use crate::jit::inner::Runs;
use crate::jit::session_inputs::InputSource;
use crate::layer::ObjectLinkingLayer;
use crate::link::{BuiltGraph, ObjectBuffer};
use crate::memory::{MemoryMap, MemoryStatistics, MemoryUsage, Released};
use crate::platform::dependencies_first;
use crate::session::{
    Alias, ExecutionSession, JitDylib, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};
use crate::sync::Arc;

pub use builder::JitBuilder;
#[cfg(loom)]
pub use compiling::TierState;
pub use compiling::{
    CompileOnDemandLayer, CompileRequest, CompiledFunction, FunctionCompiler, ReOptimizeLayer, ReOptimized,
};
pub use inner::Jit;
pub use patching::{Committed, Patch, PatchVersion, Patchable, PatchableBuilder, PreparedPatch, RolledBack};
pub use program::{Program, ProgramEvent};
#[cfg(feature = "reload")]
pub use reloading::{ObjectVersion, Reload, Reloader};
#[cfg(feature = "executor")]
pub use remote::RemoteFunction;
#[cfg(feature = "executor")]
pub use restart::Restarted;
pub use stub::Stub;
pub use symbolize::CodeLocation;
#[cfg(feature = "watch")]
pub use watcher::{WatchEvent, Watcher};

impl Jit {
    /// Creates a session with default settings. Its code memory is mapped by the first link.
    ///
    /// # Errors
    /// As [`JitBuilder::build`]; with default settings, none that is known.
    pub fn new() -> Result<Jit> {
        Jit::builder().build()
    }

    /// Returns settings, to change before the session is built.
    pub fn builder() -> JitBuilder {
        JitBuilder::default()
    }

    /// The session, for everything that this type does not wrap.
    pub fn session(&self) -> &ExecutionSession {
        &self.0.session
    }

    /// The dylib `main`, which every session has.
    pub fn main_dylib(&self) -> &JitDylib {
        &self.0.main
    }

    /// The dylib of the symbols of this process. Every other dylib has it last in its link order.
    ///
    /// Linked code holds addresses of these symbols. A library that the program opens itself must stay loaded as long as such
    /// code may run. A library that [`library`](JitBuilder::library) names stays loaded.
    pub fn process_dylib(&self) -> &JitDylib {
        &self.0.process
    }

    /// The layer that links objects.
    pub fn layer(&self) -> &Arc<ObjectLinkingLayer> {
        &self.0.layer
    }

    /// Creates a dylib. It links against the dylib of the process.
    ///
    /// # Errors
    /// The session has ended.
    pub fn create_dylib(&self, name: &str) -> Result<JitDylib> {
        self.0.session.create_dylib_with_link_order(&[(&self.0.process, Visibility::ExportedOnly)], name)
    }

    /// Adds an object under a tracker. The object is linked when one of its symbols is looked up.
    ///
    /// # Errors
    /// As [`ObjectLinkingLayer::add`]. [`ErrorKind::ForeignSession`] if the tracker is of another session; this holds for
    /// every method that gets a tracker or a dylib.
    pub fn add_object(&self, tracker: &ResourceTracker, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.0.add_recorded(tracker, name, bytes.into(), InputSource::object, |bytes| {
            self.0.layer.add(tracker, name, bytes)
        })
    }

    /// Adds an object file under a tracker. This call reads the entire file; later changes to the file have no effect.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object), or the file cannot be read ([`InputFile`](crate::InputFile)).
    pub fn add_object_file(&self, tracker: &ResourceTracker, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.0.check_own(tracker.dylib_handle())?;
        self.add_object(tracker, &path.display().to_string(), files::read_object(path)?)
    }

    /// Adds an object under a tracker and links it at once on this thread, together with what it refers to. When this call
    /// returns, all symbols of the object are ready.
    ///
    /// Use it for code that will run soon: it is faster than [`add_object`](Self::add_object) and a lookup. Initialisers do
    /// not run here; a lookup of a function or [`initialize`](Self::initialize) runs them.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object). Also as a lookup, if the object or what it refers to cannot be linked: then its
    /// names can be defined again, and its memory is freed at once or with the tracker.
    pub fn link_object(&self, tracker: &ResourceTracker, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.0.add_recorded(tracker, name, bytes.into(), InputSource::object, |bytes| {
            self.0.layer.link(tracker, name, bytes)
        })
    }

    /// Adds a graph of a code generator under a tracker, as [`add_object`](Self::add_object) adds an object.
    /// [`GraphBuilder`](crate::link::GraphBuilder) makes it.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object).
    pub fn add_graph(&self, tracker: &ResourceTracker, graph: BuiltGraph) -> Result<()> {
        self.0.layer.add_graph(tracker, graph)
    }

    /// Adds a graph of a code generator under a tracker and links it at once, as [`link_object`](Self::link_object) does with
    /// an object.
    ///
    /// # Errors
    /// As [`link_object`](Self::link_object).
    pub fn link_graph(&self, tracker: &ResourceTracker, graph: BuiltGraph) -> Result<()> {
        self.0.layer.link_graph(tracker, graph)
    }

    /// Looks up a function in the main dylib and the dylibs that it links against. See [`lookup_in`](Self::lookup_in).
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    ///
    /// # Safety
    /// As [`lookup_in`](Self::lookup_in).
    pub unsafe fn lookup<F: FunctionPointer>(&self, name: &str) -> Result<Function<F>> {
        // SAFETY: J1 - this function has the same `# Safety` section, so the caller made every promise for `name` and `F`.
        unsafe { self.lookup_in(&self.0.main, name) }
    }

    /// Looks up a function in a dylib and the dylibs that it links against. Links what is needed, runs the initialisers that
    /// wait, and returns a handle that keeps the code of the function in memory.
    ///
    /// # Errors
    /// - [`ErrorKind::SymbolsNotFound`] lists all missing symbols.
    /// - A failure to link, with its cause.
    /// - [`ErrorKind::InitializerFailed`]: an initialiser of the object failed on another thread.
    /// - [`MemoryFault::NeverRuns`](crate::error::MemoryFault::NeverRuns): the session's memory is for links that are never
    ///   run.
    /// - [`ErrorKind::ExecutorEnded`], in a session with an executor. There is another error if the signature of `F` cannot be
    ///   called there (`docs/executor.md`).
    ///
    /// If an initialiser throws an exception or panics on this thread, its object is removed and the exception or panic
    /// passes through this call.
    ///
    /// # Safety
    /// - `name` is a function of signature and ABI `F`. If `F` is a safe type, every call of the function is sound.
    /// - The objects that were added so far may run: their initialisers in this call, their finalisers and exit handlers
    ///   when they are removed.
    /// - An address that was given as a number stays in memory as long as code may reach it: an absolute symbol, the target of
    ///   a stub, an address from a materialisation unit, and what a [plugin](crate::layer::LinkPlugin) writes into code.
    /// - If a call may reach a [lazy function](Self::lazy_reexport) for the first time, the same holds for all objects
    ///   that are then in the source of that function and in the dylibs that the source links against.
    /// - If a call may reach a `dlsym` of linked code, the same holds for all objects that are then in the dylib of the calling
    ///   object and in the dylibs that it links against.
    /// - The C library may call linked code on its own: threads, signal handlers, handlers of `fork` and `quick_exit`. Such
    ///   code returns before it is removed, and it is not inside a [patched](Patchable) function while that is replaced.
    pub unsafe fn lookup_in<F: FunctionPointer>(&self, dylib: &JitDylib, name: &str) -> Result<Function<F>> {
        #[cfg(feature = "executor")]
        if self.0.runs == Runs::Elsewhere {
            // SAFETY: J1 - this function has the same `# Safety` section.
            return unsafe { self.lookup_elsewhere(dylib, name) };
        }
        self.0.check_own(dylib)?;
        let (address, hold) = match self.0.find_quietly(|| Ok(dylib.find_pinned(name)))?.flatten() {
            Some(found) => found,
            None => {
                let (address, pin) = self.0.find_initialized(dylib, name, |symbol| self.0.session.pin(symbol))?;
                (address, pin.map(|pin| -> Arc<dyn CodeHold> { Arc::new(pin) }))
            }
        };
        // SAFETY: J1 - the caller promises that `name`, which is at `address`, is a function of type `F`. The pin was taken
        // when the symbol was found, and the handle owns it; without a pin the symbol is absolute, and no removal frees it.
        Ok(unsafe { Function::with_hold(address, hold) })
    }

    /// Defines a name under a tracker for a function of this process, such as
    /// `note as extern "C" fn(i32) -> i32`. Linked code calls it as any function.
    ///
    /// In a session with an executor the call comes back: the thread here that waits for the code makes it, or a thread of its own for
    /// a thread that linked code has started. Arguments and results are passed on as they are, so a pointer among them is an address
    /// of the executor. A panic of the function ends the executor then; in this process it passes through the code that called it.
    ///
    /// ```
    /// # fn main() -> Result<(), jittison::Error> {
    /// extern "C" fn add(a: i32, b: i32) -> i32 {
    ///     a + b
    /// }
    /// let jit = jittison::Jit::new()?;
    /// let tracker = jit.main_dylib().create_tracker()?;
    /// // SAFETY: the function may be called with any arguments.
    /// unsafe { jit.define_function(&tracker, "add", add as extern "C" fn(i32, i32) -> i32)? };
    /// assert!(jit.address_of(jit.main_dylib(), "add")?.value() != 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DuplicateDefinition`]. [`ErrorKind::TrackerDefunct`]. In a session with an executor also if calls of the
    /// type cannot be passed on (`docs/executor.md`). Then nothing is defined.
    ///
    /// # Safety
    /// The function stays in memory as long as code may call it. It is sound for all arguments that linked code passes; if the executor
    /// is not trusted, for all bytes.
    pub unsafe fn define_function<F: FunctionPointer>(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        function: F,
    ) -> Result<()> {
        self.0.check_own(tracker.dylib_handle())?;
        #[cfg(feature = "executor")]
        if self.0.runs == Runs::Elsewhere {
            // SAFETY: J1 - this function has the same `# Safety` section.
            return unsafe { self.define_function_elsewhere(tracker, name, function) };
        }
        let address = ExecutorAddr::new(function.to_address() as u64);
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE | SymbolFlags::ABSOLUTE;
        tracker.define_absolute([(Name::new(name), address, flags)])
    }

    /// Returns the address of a symbol when its code is ready. Initialisers do not run.
    ///
    /// The address is only a number: nothing keeps the code in memory, and the tracker may be removed at any time.
    /// A thread-local variable has one address for each thread; this call returns that of the calling thread.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    pub fn address_of(&self, dylib: &JitDylib, name: &str) -> Result<ExecutorAddr> {
        let (address, flags) = self.0.find_address(dylib, name)?;
        if flags.contains(SymbolFlags::THREAD_LOCAL) {
            self.0.check_runs_here()?;
            let variable = TlsIndex::from_address(address);
            let no_address = || {
                Error::other(format!(
                    "thread-local variable `{name}` has no address: no loaded library has the TLS module {} with a byte at offset \
                     {:#x}; its object was removed or is not linked yet, or it was defined with a value that is not from `TlsIndex::to_address`",
                    variable.module, variable.offset
                ))
            };
            return InProcess::address_in_this_thread(variable).ok_or_else(no_address);
        }
        Ok(address)
    }

    /// Links every object of a dylib that has initialisers, and every such object of the dylibs that it links against. Then
    /// runs the initialisers that wait, dependencies first, as `dlopen` does. Returns the number of functions called.
    ///
    /// Calls are counted: [`deinitialize`](Self::deinitialize) has its effect when it was called as often. The initialisers
    /// of objects that are added later run in the next call, or in the first lookup that needs them.
    ///
    /// If the call fails, or an initialiser throws, the call does not count. Objects that were initialised stay initialised;
    /// the object that threw is removed.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    ///
    /// # Safety
    /// The objects that were added so far may run: their initialisers in this call, their finalisers and exit handlers when
    /// they are removed or deinitialised. If this call fails and undoes the last count, it finalises as
    /// [`deinitialize`](Self::deinitialize) does, under the same promises. Addresses that were given as numbers stay in memory,
    /// as [`lookup_in`](Self::lookup_in) says.
    pub unsafe fn initialize(&self, dylib: &JitDylib) -> Result<usize> {
        self.0.check_own(dylib)?;
        self.0.check_can_run()?;
        let pending = self.0.initializers.begin_initialize(dylib);
        for dylib in dependencies_first([dylib]) {
            // A link may add archive members that have initialisers of their own, so look again until there are none.
            loop {
                let names = dylib.pending_side_effects();
                if names.is_empty() {
                    break;
                }
                let requests: Vec<_> = names.iter().map(|name| SymbolRequest::weak(name)).collect();
                dylib.lookup(&requests, RequiredState::Ready)?;
            }
        }
        let count = self.0.run_pending(dylib);
        self.check_executor()?;
        pending.commit();
        Ok(count)
    }

    /// Undoes one [`initialize`](Self::initialize), as one `dlclose` undoes one `dlopen`. Returns the number of functions
    /// called.
    ///
    /// The last such call runs exit handlers and finalisers, in exact reverse of the initialisation, dependants first. It
    /// runs those of the dylib, and those of the dylibs that it links against unless another initialised dylib needs them.
    ///
    /// No code is removed, and objects can be used again: their initialisers wait for the next `initialize` or lookup. A
    /// later removal of an object runs its finalisers only if the object was initialised again.
    ///
    /// The removal of a dylib undoes its calls of `initialize`, but finalises no other dylib: what it links against
    /// stays initialised until that is removed, or until the last `deinitialize` of another dylib that links against it.
    ///
    /// Safe code cannot call it, because a handle that it still has may call code that is finalised:
    ///
    /// ```compile_fail,E0133
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// jit.deinitialize(jit.main_dylib())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotInitialized`]: every call of `initialize` was undone before. [`ErrorKind::ExecutorEnded`].
    ///
    /// # Safety
    /// For each dylib that this call finalises, until it is initialised again:
    /// - No thread is inside code of the dylib.
    /// - No thread calls that code: not through a handle or symbol that still exists, a stub, or other code that refers to it.
    ///
    /// Two kinds of code are exempt: code that needs nothing that the finalisers undo, and what exit handlers and
    /// finalisers call.
    ///
    /// [`ResourceTracker::remove`] is the safe form: it finalises an object when the last pin of its tracker goes.
    pub unsafe fn deinitialize(&self, dylib: &JitDylib) -> Result<usize> {
        self.0.check_own(dylib)?;
        let not_initialized = || Error::from(ErrorKind::NotInitialized { dylib: dylib.name().to_string() });
        let count = self.0.initializers.deinitialize(self.session(), dylib).ok_or_else(not_initialized)?;
        self.check_executor()?;
        Ok(count)
    }

    /// Defines a stub under a tracker: a function that jumps to a target, which can be changed while threads call the stub.
    /// The stub is freed with its tracker. It does not keep its target in memory.
    ///
    /// # Errors
    /// A name is already defined, the tracker is defunct, or there is not enough memory. In these cases no stub is made.
    pub fn create_stub(&self, tracker: &ResourceTracker, name: &str, target: ExecutorAddr) -> Result<()> {
        self.create_stubs(tracker, &[(name, target)])
    }

    /// Defines several stubs, each a `(name, target)`, in one step: either all or none. They are adjacent in memory. Each
    /// takes sixteen bytes of code and eight bytes of data.
    ///
    /// # Errors
    /// As [`create_stub`](Self::create_stub).
    pub fn create_stubs(&self, tracker: &ResourceTracker, stubs: &[(&str, ExecutorAddr)]) -> Result<()> {
        self.0.check_own(tracker.dylib_handle())?;
        self.0.stubs.create(tracker, stubs)
    }

    /// Redirects a stub to another target with one atomic store.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`].
    ///
    /// # Safety
    /// `target` is a function of the signature that callers of the stub use. Its code stays in memory as long as they call
    /// it.
    pub unsafe fn redirect_stub(&self, dylib: &JitDylib, name: &str, target: ExecutorAddr) -> Result<()> {
        self.0.stubs.redirect(dylib, name, target)
    }

    /// Defines names under a tracker that stand for functions of `source`. Each function is linked at its first call.
    ///
    /// After its first call, a lazy name depends on the function, as code that refers to the function does. The dependency
    /// lasts as long as the tracker of the lazy name holds resources, whether or not that tracker was removed.
    ///
    /// The first call runs the initialisers that wait, on the calling thread, as a [lookup](Self::lookup_in) of the function
    /// in `source` does. So an initialiser must not wait for another thread that makes a first call into its dylib. If one of
    /// them throws an exception, the process aborts, because the caller of a lazy function expects none.
    ///
    /// If the function is missing, it cannot be linked, or its initialisers panic, the
    /// [handler](JitBuilder::lazy_failure_handler) returns the address at which the call continues.
    ///
    /// # Errors
    /// A name is already defined, the tracker is defunct, or there is not enough memory. In these cases nothing is defined.
    pub fn lazy_reexport(&self, tracker: &ResourceTracker, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        self.0.check_own(tracker.dylib_handle())?;
        self.0.lazy.define(tracker, source, aliases)
    }

    /// Code memory that a tracker owns, with that of its stubs. Takes constant time.
    pub fn usage(&self, tracker: &ResourceTracker) -> MemoryUsage {
        let (inner, key) = (&*self.0, tracker.key());
        [inner.layer.usage(key), inner.stubs.usage(key), inner.lazy.usage(key)].into_iter().sum()
    }

    /// Code memory that a dylib owns, with that of its stubs and of removed trackers that are still pinned. Takes constant
    /// time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        let inner = &*self.0;
        let usages =
            [inner.layer.usage_of_dylib(dylib), inner.stubs.usage_of_dylib(dylib), inner.lazy.usage_of_dylib(dylib)];
        usages.into_iter().sum()
    }

    /// A map of code memory, with the names of modules and dylibs. `None` if the memory manager provides no map.
    ///
    /// Time and memory grow with what is linked. Other threads may link, call and remove during this call; what they add or
    /// remove in that time may be missing from the map, or have no name.
    pub fn memory_map(&self) -> Option<MemoryMap> {
        let inner = &*self.0;
        let mut map = inner.layer.memory().memory_map()?;
        for mut tenants in [inner.layer.tenants(), inner.stubs.tenants(), inner.lazy.tenants()] {
            sort_by_order(&mut tenants, |a, b| a.segments.cmp(&b.segments));
            map.attribute(tenants);
        }
        Some(map)
    }

    /// Totals of code memory for the session.
    pub fn memory_statistics(&self) -> MemoryStatistics {
        self.0.layer.memory().statistics()
    }

    /// Returns every free page of code memory to the kernel. Call it when the program is idle or memory is short.
    ///
    /// Also frees the buffers for large links that the calling thread caches (at most 2 MiB). Other threads may link, call
    /// and remove during this call.
    pub fn release_free(&self) -> Released {
        clear_thread_cache();
        self.0.layer.memory().release_free()
    }

    /// Returns every slab of code memory that is entirely free to the kernel. Returns the number of slabs.
    pub fn release_free_slabs(&self) -> usize {
        self.0.layer.memory().release_free_slabs()
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("session", &self.0.session).field("memory", &self.memory_statistics()).finish()
    }
}
