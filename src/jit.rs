//! [`Jit`]: the ready-made house. Wires session, memory, layer and services, and gives typed handles.
//!
//! - **J1** The caller's word, for a signature and for the code's right to run, is asked for here, where the caller
//!   stands, and passed on unchanged to `host`.

mod files;
mod guarded;
mod libraries;
mod patching;
mod program;
mod stub;
mod symbolize;

use std::fmt;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::base::{CodeHold, ExecutorAddr, TlsIndex, clear_thread_cache};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{self, Function, FunctionPointer, LazyFailureHandler};
use crate::layer::ObjectLinkingLayer;
use crate::link::ObjectBuffer;
use crate::memory::{
    MemoryManager, MemoryMap, MemoryMapper, MemoryStatistics, MemoryUsage, OnFull, Placement, QuarantineManager,
    Released, SingleMapper, SlabPool, SlabPoolOptions, SystemMapper,
};
use crate::platform::{
    Debugger, InitFiniRegistry, LazyReexports, ProcessSymbols, Profile, Profiler, StaticLibraries, StubManager,
    dependencies_first,
};
use crate::session::{
    Alias, ErrorReporter, Event, ExecutionSession, JitDylib, LookupResult, Observer, Observers, ReclaimPolicy,
    RequiredState, ResourceTracker, SessionOptions, SymbolFlags, SymbolRef, SymbolRequest, SymbolWatch, Visibility,
};
use crate::sync::{Arc, Mutex, Weak};

pub use patching::{Committed, Patch, PatchVersion, Patchable, PatchableBuilder, PreparedPatch, RolledBack};
pub use program::{Program, ProgramEvent};
pub use stub::Stub;
pub use symbolize::CodeLocation;

/// A session with everything that ordinary code needs (ORC: `LLJIT`). Cheap to clone; the last one ends the session.
///
/// ```no_run
/// # fn main() -> Result<(), jittison::Error> {
/// # let object: Vec<u8> = Vec::new();
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", object)?;
/// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
/// assert_eq!(add.call(2, 3), 5);
/// drop(add); // a live handle keeps the code
/// assert!(tracker.remove()?.is_complete());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Jit(Arc<JitInner>);

struct JitInner {
    session: ExecutionSession,
    main: JitDylib,
    process: JitDylib,
    layer: Arc<ObjectLinkingLayer>,
    stubs: Arc<StubManager>,
    lazy: Arc<LazyReexports>,
    initializers: Arc<InitFiniRegistry>,
    /// By dylib, which keeps them.
    libraries: Mutex<FxHashMap<u64, Weak<StaticLibraries>>>,
}

impl Jit {
    /// A session with default settings.
    ///
    /// # Errors
    /// When no window of code memory can be had.
    pub fn new() -> Result<Jit> {
        Jit::builder().build()
    }

    /// Settings to change before building.
    pub fn builder() -> JitBuilder {
        JitBuilder::default()
    }

    /// The session, for everything that this type does not wrap.
    pub fn session(&self) -> &ExecutionSession {
        &self.0.session
    }

    /// The dylib that is there from the start.
    pub fn main_dylib(&self) -> &JitDylib {
        &self.0.main
    }

    /// The dylib of the process's own symbols; every other dylib has it last in its link order.
    pub fn process_dylib(&self) -> &JitDylib {
        &self.0.process
    }

    /// The layer that links objects.
    pub fn layer(&self) -> &Arc<ObjectLinkingLayer> {
        &self.0.layer
    }

    /// A new dylib that sees the process's symbols.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn create_dylib(&self, name: &str) -> Result<JitDylib> {
        self.0.session.create_dylib_ahead_of(&[(&self.0.process, Visibility::ExportedOnly)], name)
    }

    /// Adds an object under a tracker. It is linked when one of its symbols is looked up.
    ///
    /// # Errors
    /// As [`ObjectLinkingLayer::add`].
    pub fn add_object(&self, tracker: &ResourceTracker, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.0.layer.add(tracker, name, bytes.into())
    }

    /// Adds an object file under a tracker. The file is read here, and may be changed afterwards.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object), or when the file cannot be read ([`InputFile`](crate::InputFile)).
    pub fn add_object_file(&self, tracker: &ResourceTracker, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.0.layer.add(tracker, &path.display().to_string(), files::read_object(path)?)
    }

    /// Adds an object under a tracker and links it at once, on this thread: when this returns, all that it defines is ready to
    /// be looked up, and what it refers to is linked, too. The short way for code that is about to run; as with
    /// [`add_object`](Self::add_object) and a lookup, its initialisers are run by [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object); and as a lookup, when the object or what it refers to cannot be linked. Then its
    /// names are free again, and its memory is given back, now or with the tracker.
    pub fn link_object(&self, tracker: &ResourceTracker, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.0.layer.link(tracker, name, bytes.into())
    }

    /// Looks a function up in the main dylib and what it links against; see [`lookup_in`](Self::lookup_in).
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    ///
    /// # Safety
    /// As [`lookup_in`](Self::lookup_in).
    pub unsafe fn lookup<F: FunctionPointer>(&self, name: &str) -> Result<Function<F>> {
        // SAFETY: J1 - the caller's word, passed on.
        unsafe { self.lookup_in(&self.0.main, name) }
    }

    /// Looks a function up in a dylib and what it links against: links what is needed, runs the initialisers that wait,
    /// and gives a handle that keeps the function's code in memory.
    ///
    /// # Errors
    /// Missing symbols, all of them; failures to link, with the cause; [`ErrorKind::TakenBack`]. An exception or panic of an
    /// initialiser passes through here, and its object is taken back.
    ///
    /// # Safety
    /// - `name` is a function of the signature and ABI `F`; if `F` is safe to call, so is the function.
    /// - The objects added so far may run: their initialisers now, their finalisers and exit handlers when removed.
    /// - What they have the C library call by itself (threads, signal handlers, handlers of `fork` and `quick_exit`) ends before
    ///   its code is removed, and is in no [patched](Patchable) function that is replaced meanwhile.
    pub unsafe fn lookup_in<F: FunctionPointer>(&self, dylib: &JitDylib, name: &str) -> Result<Function<F>> {
        let (address, pin) = self.find_initialized(dylib, name, |symbol| self.0.session.pin(symbol))?;
        let hold = pin.map(|pin| -> Arc<dyn CodeHold> { Arc::new(pin) });
        // SAFETY: J1 - the caller's word for the signature; the pin holds the code.
        Ok(unsafe { Function::with_hold(address, hold) })
    }

    /// The address of a symbol, once its code is ready. Nothing keeps it valid: the tracker may be removed at any time.
    /// Initialisers are not run.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    pub fn address_of(&self, dylib: &JitDylib, name: &str) -> Result<ExecutorAddr> {
        let found = self.find(dylib, name)?;
        if found.flags.contains(SymbolFlags::THREAD_LOCAL) {
            let variable = TlsIndex::from_address(found.address);
            let problem = || {
                Error::other(format!(
                    "thread-local variable `{name}` has no address: no library of this process has the module {} with a byte at \
                     offset {:#x}; it was removed, or defined with another value than `TlsIndex::to_address` gives",
                    variable.module, variable.offset
                ))
            };
            return host::address_in_this_thread(variable).ok_or_else(problem);
        }
        Ok(found.address)
    }

    /// Links every object that has initialisers, of a dylib and of what it links against, and runs those that wait,
    /// dependencies first: what `dlopen` does. Returns the number of functions called.
    ///
    /// Counts: [`deinitialize`](Self::deinitialize) undoes it when it is called as often. Objects that are added later are
    /// initialised by the next call, or the first lookup that needs them. If it fails, or an initialiser throws, it does
    /// not count; what was initialised by then stays so, and the object that threw is taken back.
    ///
    /// # Errors
    /// As [`lookup_in`](Self::lookup_in).
    ///
    /// # Safety
    /// The objects added so far may run: their initialisers now, their finalisers and exit handlers when removed or
    /// deinitialised.
    pub unsafe fn initialize(&self, dylib: &JitDylib) -> Result<usize> {
        let opening = self.0.initializers.open(dylib);
        for dylib in dependencies_first(dylib) {
            // Again while there are any: what is linked may have brought members of archives along.
            loop {
                let names = dylib.pending_side_effects();
                if names.is_empty() {
                    break;
                }
                let requests: Vec<_> = names.iter().map(|name| SymbolRequest::weak(name)).collect();
                dylib.lookup(&requests, RequiredState::Ready)?;
            }
        }
        let count = self.run_pending(dylib);
        opening.succeed();
        Ok(count)
    }

    /// Undoes one [`initialize`](Self::initialize), as `dlclose` does one `dlopen`. With the last, the exit handlers and
    /// finalisers of the dylib run, and of what it links against and no other dylib has open: in exact reverse of
    /// the initialisation, dependants first. Returns the number of functions called.
    ///
    /// No code is removed, and objects may be used again: their initialisers wait, for the next `initialize` or lookup.
    /// Removing an object later runs its finalisers only if it was initialised again.
    ///
    /// # Errors
    /// [`ErrorKind::NotInitialized`] when it was called as often as `initialize` before.
    pub fn deinitialize(&self, dylib: &JitDylib) -> Result<usize> {
        let not_initialized = || ErrorKind::NotInitialized { dylib: dylib.name().to_string() }.into();
        self.0.initializers.close(dylib).ok_or_else(not_initialized)
    }

    /// Defines a stub under a tracker: a function whose target can be changed while threads call it.
    ///
    /// # Errors
    /// As [`StubManager::create`].
    pub fn create_stub(&self, tracker: &ResourceTracker, name: &str, target: ExecutorAddr) -> Result<()> {
        self.0.stubs.create(tracker, &[(name, target)])
    }

    /// As [`create_stub`](Self::create_stub), for many `(name, target)` at once: all, or none. They stand side by side, at sixteen
    /// bytes of code and eight of data each.
    ///
    /// # Errors
    /// As [`StubManager::create`].
    pub fn create_stubs(&self, tracker: &ResourceTracker, stubs: &[(&str, ExecutorAddr)]) -> Result<()> {
        self.0.stubs.create(tracker, stubs)
    }

    /// Sends callers of a stub to another target, by one atomic store.
    ///
    /// # Errors
    /// When there is no such stub.
    ///
    /// # Safety
    /// `target` is a function of the signature that the stub's callers use, and its code stays as long as they call it.
    pub unsafe fn redirect_stub(&self, dylib: &JitDylib, name: &str, target: ExecutorAddr) -> Result<()> {
        self.0.stubs.redirect(dylib, name, target)
    }

    /// Defines names under a tracker that stand for functions of `source`, which are linked when they are first called.
    ///
    /// Once called, a lazy function keeps its function's tracker, as code that refers to it would: as long as its own tracker is
    /// there, removed or not. Where a call goes on whose function is gone, or cannot be linked, the
    /// [handler](JitBuilder::lazy_failure_handler) says.
    ///
    /// # Errors
    /// As [`LazyReexports::define`].
    pub fn lazy_reexport(&self, tracker: &ResourceTracker, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        self.0.lazy.define(tracker, source, aliases)
    }

    /// What the code under a tracker holds, its stubs included. Takes the same time whatever the tracker owns.
    pub fn usage(&self, tracker: &ResourceTracker) -> MemoryUsage {
        let (rooms, key) = (&*self.0, tracker.key());
        [rooms.layer.usage(key), rooms.stubs.usage(key), rooms.lazy.usage(key)].into_iter().sum()
    }

    /// What the code of a dylib holds, its stubs included, and what was removed and is pinned. Takes the same time
    /// whatever the dylib owns.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        let rooms = &*self.0;
        let usages =
            [rooms.layer.usage_of_dylib(dylib), rooms.stubs.usage_of_dylib(dylib), rooms.lazy.usage_of_dylib(dylib)];
        usages.into_iter().sum()
    }

    /// What stands where in code memory, with the names of modules and dylibs; `None` when the memory manager draws no
    /// maps. For people to look at: takes time and memory in proportion to what is linked. Links, calls and removals may go
    /// on meanwhile, and what comes and goes just now may be missing or nameless.
    pub fn memory_map(&self) -> Option<MemoryMap> {
        let rooms = &*self.0;
        let mut map = rooms.layer.memory().memory_map()?;
        for mut tenants in [rooms.layer.tenants(), rooms.stubs.tenants(), rooms.lazy.tenants()] {
            tenants.sort_by_key(|tenant| tenant.segments);
            map.attribute(tenants);
        }
        Some(map)
    }

    /// What all code of the session holds.
    pub fn memory_statistics(&self) -> MemoryStatistics {
        self.0.layer.memory().statistics()
    }

    /// Gives the kernel every page of code memory that nothing lives in: for quiet moments, and when memory is short.
    /// Links, calls and removals may go on meanwhile. The calling thread's room for arrays of large links, of which each
    /// thread keeps at most 2 MiB for its next, goes back to the allocator.
    pub fn release_free(&self) -> Released {
        clear_thread_cache();
        self.0.layer.memory().release_free()
    }

    /// Gives the kernel every whole slab of code memory that nothing lives in; how many there were.
    pub fn release_free_slabs(&self) -> usize {
        self.0.layer.memory().release_free_slabs()
    }

    fn find(&self, dylib: &JitDylib, name: &str) -> Result<LookupResult> {
        let order = dylib.search_order();
        let mut found = self.0.session.lookup(&order, &[SymbolRequest::required(name)], RequiredState::Ready)?;
        found.pop().ok_or_else(|| not_found(dylib, name))
    }

    /// Finds what is ready, or links it, has `hold` keep what is not absolute in memory, and runs the initialisers that wait.
    fn find_initialized<H>(
        &self,
        dylib: &JitDylib,
        name: &str,
        hold: impl FnOnce(&SymbolRef) -> Option<H>,
    ) -> Result<(ExecutorAddr, Option<H>)> {
        // Asked ahead of the search: see there.
        let failures = self.0.initializers.failures();
        let found = self.find(dylib, name)?;
        let held = match &found.symbol {
            Some(symbol) => Some(hold(symbol).ok_or_else(|| not_found(dylib, name))?),
            None => None,
        };
        self.run_pending(dylib);
        // Removed since it was found, maybe ahead of its initialisers, which are not run then; or one of them has failed.
        if found.symbol.as_ref().is_some_and(|symbol| SymbolWatch::of(symbol).is_gone()) {
            let (symbol, dylib_name) = (name.to_string(), dylib.name().to_string());
            return Err(match self.0.initializers.failures() != failures {
                true => ErrorKind::TakenBack { symbol, dylib: dylib_name }.into(),
                false => not_found(dylib, name),
            });
        }
        Ok((found.address, held))
    }

    /// Dependencies first, then the dylib itself.
    fn run_pending(&self, dylib: &JitDylib) -> usize {
        let order = dylib.search_order();
        order.iter().rev().map(|(dylib, _)| self.0.initializers.run_pending(dylib)).sum()
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").field("session", &self.0.session).field("memory", &self.memory_statistics()).finish()
    }
}

/// Settings of a [`Jit`].
#[derive(Default)]
pub struct JitBuilder {
    memory: Option<Arc<dyn MemoryManager>>,
    pool: SlabPoolOptions,
    libraries: Vec<String>,
    reclaim: ReclaimPolicy,
    worker_threads: usize,
    error_reporter: Option<ErrorReporter>,
    lazy_failure_handler: LazyFailureHandler,
    debugger: Option<bool>,
    profiler: Option<Option<Profile>>,
    observers: Vec<Arc<dyn Observer>>,
}

impl JitBuilder {
    /// Takes code memory from `memory` instead of a [`SlabPool`] of its own.
    pub fn memory_manager(mut self, memory: Arc<dyn MemoryManager>) -> JitBuilder {
        self.memory = Some(memory);
        self
    }

    /// Bytes of address space to reserve for code memory.
    pub fn window_size(mut self, bytes: u64) -> JitBuilder {
        self.pool.window_size = bytes;
        self
    }

    /// Bytes by which each pool of code memory grows.
    pub fn slab_size(mut self, bytes: u64) -> JitBuilder {
        self.pool.slab_size = bytes;
        self
    }

    /// Bytes that code memory may hold; what goes beyond is refused.
    pub fn memory_budget(mut self, bytes: u64) -> JitBuilder {
        self.pool.budget = Some(bytes);
        self
    }

    /// Where in the address space code memory is put.
    pub fn placement(mut self, placement: Placement) -> JitBuilder {
        self.pool.placement = placement;
        self
    }

    /// What happens when a window of code memory is full.
    pub fn on_full(mut self, on_full: OnFull) -> JitBuilder {
        self.pool.on_full = on_full;
        self
    }

    /// Whether objects share windows of code memory. They do unless told otherwise.
    pub fn pooled(mut self, is_pooled: bool) -> JitBuilder {
        self.pool.is_pooled = is_pooled;
        self
    }

    /// Whether code memory that nothing lives in goes back to the kernel by itself. It does unless told otherwise.
    pub fn returns_memory(mut self, returns: bool) -> JitBuilder {
        self.pool.returns_memory = returns;
        self
    }

    /// Whether freed code is filled with traps.
    pub fn trap_freed_code(mut self, trap: bool) -> JitBuilder {
        self.pool.trap_freed_code = trap;
        self
    }

    /// Opens a shared library for symbols that the process does not have; by name or path, as the system's loader
    /// takes it. Tried in the order given, at the first name that is missing.
    pub fn library(mut self, name: &str) -> JitBuilder {
        self.libraries.push(name.to_string());
        self
    }

    /// Who reclaims a removed tracker when its last handle goes.
    pub fn reclaim_policy(mut self, policy: ReclaimPolicy) -> JitBuilder {
        self.reclaim = policy;
        self
    }

    /// Threads that link, started as there is work. With none, which is the default, the thread that looks something up
    /// links what it needs.
    pub fn worker_threads(mut self, threads: usize) -> JitBuilder {
        self.worker_threads = threads;
        self
    }

    /// Has `reporter` hear of errors that no caller receives; without one they are dropped.
    pub fn error_reporter(mut self, reporter: ErrorReporter) -> JitBuilder {
        self.error_reporter = Some(reporter);
        self
    }

    /// Says where the call of a [lazy function](Jit::lazy_reexport) goes on whose function is not found or cannot be linked: its
    /// dylib was removed, the session has ended, the link failed. Without it such a call says on the standard error which function
    /// it was, and why, and aborts the process.
    pub fn lazy_failure_handler(mut self, handler: LazyFailureHandler) -> JitBuilder {
        self.lazy_failure_handler = handler;
        self
    }

    /// Whether debuggers are told of linked objects, for breakpoints by name, backtraces and source lines ([`Debugger`]).
    /// Without this call the environment decides: they are if `JITTISON_GDB` is `1`.
    ///
    /// Code memory is mapped once then, unless [`memory_manager`](Self::memory_manager) was called: whole pages for each
    /// object and system calls for each link are the price of breakpoints that debuggers can write. While a debugger is
    /// attached, memory of removed code is kept, because gdb leaves its breakpoints there.
    pub fn debugger(mut self, is_told: bool) -> JitBuilder {
        self.debugger = Some(is_told);
        self
    }

    /// How perf is told of linked code, if it is ([`Profiler`]). Without this call the environment decides: `JITTISON_PERF`
    /// may be `jitdump` or `map`.
    pub fn profiler(mut self, profile: Option<Profile>) -> JitBuilder {
        self.profiler = Some(profile);
        self
    }

    /// Has `observer` hear what happens: links, removals, redirects, refusals, and what becomes of code memory unless that is
    /// a [memory manager](Self::memory_manager) of the caller's. May be called for several.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> JitBuilder {
        self.observers.push(observer);
        self
    }

    /// Builds the house.
    ///
    /// # Errors
    /// When no window of code memory can be had, or no file for the [`profiler`](Self::profiler).
    pub fn build(self) -> Result<Jit> {
        let is_debugged =
            self.debugger.unwrap_or_else(|| std::env::var_os("JITTISON_GDB").is_some_and(|value| value == "1"));
        let profile = self.profiler.unwrap_or_else(Profile::from_environment);
        let memory: Arc<dyn MemoryManager> = match self.memory {
            Some(memory) => memory,
            // Debuggers write breakpoints into private memory only, and leave them there.
            None if is_debugged => Arc::new(QuarantineManager::new(pool(SingleMapper, self.pool, &self.observers)?)),
            // perf looks for names in anonymous memory only.
            None if profile == Some(Profile::PerfMap) => Arc::new(pool(SingleMapper, self.pool, &self.observers)?),
            None => Arc::new(pool(SystemMapper::default(), self.pool, &self.observers)?),
        };
        let session = ExecutionSession::with_options(SessionOptions {
            reclaim: self.reclaim,
            worker_threads: self.worker_threads,
            error_reporter: self.error_reporter,
            observers: self.observers,
        });
        let layer = ObjectLinkingLayer::new(memory.clone());
        let stubs = StubManager::new(memory.clone());
        let lazy = LazyReexports::with_handler(memory, stubs.clone(), self.lazy_failure_handler);
        let initializers = InitFiniRegistry::new();
        layer.add_plugin(initializers.clone());
        // Told of removals in reverse: finalisers run, then stubs go, then debuggers forget, then code goes.
        session.register_manager(layer.clone());
        if is_debugged {
            let debugger = Debugger::new();
            layer.add_plugin(debugger.clone());
            session.register_manager(debugger);
        }
        // The last to see what the plugins make of an object.
        if let Some(profile) = profile {
            layer.add_plugin(Profiler::new(profile)?);
        }
        session.register_manager(lazy.clone());
        session.register_manager(stubs.clone());
        session.register_manager(initializers.clone());
        let process = session.create_dylib("process")?;
        process.add_generator(Arc::new(ProcessSymbols::new(self.libraries)));
        let main = session.create_dylib("main")?;
        main.set_link_order(&[(process.clone(), Visibility::ExportedOnly)]);
        let libraries = Mutex::new(FxHashMap::default());
        Ok(Jit(Arc::new(JitInner { session, main, process, layer, stubs, lazy, initializers, libraries })))
    }
}

impl fmt::Debug for JitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitBuilder")
            .field("pool", &self.pool)
            .field("libraries", &self.libraries)
            .finish_non_exhaustive()
    }
}

fn not_found(dylib: &JitDylib, name: &str) -> crate::error::Error {
    ErrorKind::SymbolsNotFound {
        symbols: vec![name.to_string()],
        needed_by: None,
        searched: vec![dylib.name().to_string()],
    }
    .into()
}

/// A pool of code memory that tells observers, if there are any.
fn pool(
    mapper: impl MemoryMapper + 'static,
    options: SlabPoolOptions,
    observers: &[Arc<dyn Observer>],
) -> Result<SlabPool> {
    if observers.is_empty() {
        return SlabPool::with_mapper(mapper, options);
    }
    let observers = Observers::new(observers.to_vec());
    SlabPool::observed(mapper, options, Arc::new(move |event| observers.tell(&Event::Memory(event))))
}
