//! [`JitBuilder`]: the settings of a session, and the step that builds all of its parts.
//!
//! The mapping of code memory depends on the tools that inspect it. A debugger writes breakpoints into private memory
//! only, and perf looks for names in anonymous memory only. So for either tool, code memory is mapped once instead of
//! twice.
//!
//! A program has the code for such a tool only if it calls the setting, or if the environment may ask for it (the feature
//! `environment`). So [`JitBuilder::debugger`] and [`JitBuilder::profiler`] store functions, and `build` names no tool.
//!
//! The managers have ranks, which decide the order of reclamation, whatever the order of registration
//! (`src/session/core/resource_manager.rs`). Managers of the embedder come before all of these:
//!
//! ```text
//!   removal ─► finalisers run ─► stubs ─► lazy functions ─► debuggers drop their entries ─► code is freed
//! ```

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

use rustc_hash::FxHashMap;

#[cfg(feature = "executor")]
use crate::error::Error;
use crate::error::Result;
#[cfg(feature = "executor")]
use crate::executor::{ExecutorProcess, Remote, executor_memory};
use crate::host::{Executor, InProcess, LazyFailureHandler};
use crate::jit::inner::{Jit, JitInner, RestartState, Runs};
#[cfg(feature = "executor")]
use crate::jit::session_inputs::SessionInputs;
use crate::jit::spare_dylibs::SpareDylibs;
use crate::layer::ObjectLinkingLayer;
use crate::memory::{
    MemoryManager, MemoryMapper, MemoryObserver, OnFull, Placement, QuarantineManager, SingleMapper, SlabPool,
    SlabPoolOptions, SystemMapper,
};
use crate::platform::{
    Debugger, InitFiniRegistry, LazyReexports, LoaderServices, ProcessSymbols, Profile, Profiler, StubManager,
};
#[cfg(feature = "executor")]
use crate::session::enable_calls_elsewhere;
use crate::session::{
    ErrorReporter, Event, ExecutionSession, ManagerRank, Observer, Observers, ReclaimPolicy, SessionOptions, Visibility,
};
use crate::sync::{Arc, Mutex};

/// Settings of a [`Jit`].
///
/// ```
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::builder()
///     .memory_budget(64 << 20) // Refuse links beyond 64 MiB of code memory.
///     .worker_threads(2)
///     .build()?;
/// assert_eq!(jit.memory_statistics().live_bytes, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct JitBuilder {
    memory: Option<Arc<dyn MemoryManager>>,
    pool: SlabPoolOptions,
    libraries: Vec<String>,
    reclaim: ReclaimPolicy,
    worker_threads: usize,
    error_reporter: Option<ErrorReporter>,
    lazy_failure_handler: LazyFailureHandler,
    /// `None`: the environment decides.
    debugger: Option<Option<Tool>>,
    /// `None`: the environment decides.
    profiler: Option<Option<Tool>>,
    observers: Vec<Arc<dyn Observer>>,
    wrapped: Vec<String>,
    /// `None`: this process.
    executor: Option<Arc<dyn Executor>>,
    #[cfg(feature = "executor")]
    executor_process: Option<ExecutorProcess>,
    #[cfg(feature = "executor")]
    keeps_objects: bool,
}

impl JitBuilder {
    /// Allocates code memory from `memory` instead of a new [`SlabPool`].
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

    /// Upper limit of code memory in bytes. A link that needs more fails.
    pub fn memory_budget(mut self, bytes: u64) -> JitBuilder {
        self.pool.budget = Some(bytes);
        self
    }

    /// Where in the address space code memory is reserved.
    pub fn placement(mut self, placement: Placement) -> JitBuilder {
        self.pool.placement = placement;
        self
    }

    /// What happens when a window of code memory is full.
    pub fn on_full(mut self, on_full: OnFull) -> JitBuilder {
        self.pool.on_full = on_full;
        self
    }

    /// Whether objects share windows of code memory. Default: `true`.
    pub fn pooled(mut self, is_pooled: bool) -> JitBuilder {
        self.pool.is_pooled = is_pooled;
        self
    }

    /// Whether a background thread returns free pages of code memory to the kernel. Default: `true`.
    pub fn returns_memory(mut self, returns: bool) -> JitBuilder {
        self.pool.returns_memory = returns;
        self
    }

    /// Whether freed code is overwritten with trap instructions.
    pub fn trap_freed_code(mut self, trap: bool) -> JitBuilder {
        self.pool.trap_freed_code = trap;
        self
    }

    /// Adds a shared library for symbols that the process does not have. `name` is a name or a path, as the system's loader
    /// accepts it. Libraries are opened and searched in the order of these calls, when a symbol is first missing. An opened
    /// library stays loaded until the process ends, because code that was linked against it may be held for so long.
    ///
    /// The loader runs the constructors of the library: name only libraries that you trust.
    pub fn library(mut self, name: &str) -> JitBuilder {
        self.libraries.push(name.to_string());
        self
    }

    /// Which thread reclaims a removed tracker when its last pin goes.
    pub fn reclaim_policy(mut self, policy: ReclaimPolicy) -> JitBuilder {
        self.reclaim = policy;
        self
    }

    /// Upper limit of threads that link. They start when there is work. Default: none; the thread that looks up a symbol
    /// links what it needs.
    pub fn worker_threads(mut self, threads: usize) -> JitBuilder {
        self.worker_threads = threads;
        self
    }

    /// Calls `reporter` with errors that no caller receives. Without a reporter they are dropped.
    pub fn error_reporter(mut self, reporter: ErrorReporter) -> JitBuilder {
        self.error_reporter = Some(reporter);
        self
    }

    /// Sets the handler for a call of a [lazy function](Jit::lazy_reexport) that cannot be linked: its dylib was removed,
    /// the session has ended, or the link failed. The handler returns the address at which the call continues.
    ///
    /// Without a handler, such a call writes the function and the cause to standard error and aborts the process.
    pub fn lazy_failure_handler(mut self, handler: LazyFailureHandler) -> JitBuilder {
        self.lazy_failure_handler = handler;
        self
    }

    /// Whether linked objects are registered with debuggers, for breakpoints by name, backtraces and source lines
    /// ([`Debugger`]). Without this call the environment decides: they are if `JITTISON_GDB` is `1` (needs the feature
    /// `environment`).
    ///
    /// Breakpoints that a debugger can write have a price: code memory is mapped once, each object takes entire pages, and
    /// each link makes system calls. (Not if [`memory_manager`](Self::memory_manager) was called.) While a debugger is
    /// attached, the memory of removed code is not reused, because gdb leaves its breakpoints there.
    pub fn debugger(mut self, is_enabled: bool) -> JitBuilder {
        self.debugger = Some(is_enabled.then_some(DEBUGGER));
        self
    }

    /// How linked code is described to perf, if at all ([`Profiler`]). Without this call the environment decides:
    /// `JITTISON_PERF` may be `jitdump` or `map` (needs the feature `environment`).
    pub fn profiler(mut self, profile: Option<Profile>) -> JitBuilder {
        self.profiler = Some(profile.map(|profile| match profile {
            Profile::JitDump => JIT_DUMP,
            Profile::PerfMap => PERF_MAP,
        }));
        self
    }

    /// Calls `observer` with each event: links, removals, redirects, refusals, and changes of code memory (not those of a
    /// [memory manager](Self::memory_manager) that the caller provides). May be called for several observers.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> JitBuilder {
        self.observers.push(observer);
        self
    }

    /// Wraps a symbol, as `ld --wrap` does: undefined references of objects to `symbol` go to `__wrap_SYMBOL`, and undefined
    /// references to `__real_SYMBOL` go to `symbol`. Holds for all dylibs. May be called for several symbols.
    ///
    /// References inside the object that defines `symbol` are not wrapped, because they are not undefined. Neither are lookups
    /// of the host, which ask for definitions: [`Jit::lookup`] of `symbol` finds the original.
    ///
    /// ```
    /// let jit = jittison::Jit::builder().wrap("malloc").build()?;
    /// // An object that defines `__wrap_malloc` and calls `__real_malloc` now sees every call of `malloc` by other objects.
    /// assert_eq!(jit.layer().name_of_reference("malloc"), "__wrap_malloc");
    /// assert_eq!(jit.layer().name_of_reference("__real_malloc"), "malloc");
    /// # Ok::<(), jittison::Error>(())
    /// ```
    pub fn wrap(mut self, symbol: &str) -> JitBuilder {
        self.wrapped.push(symbol.to_string());
        self
    }

    /// Runs linked code in another process. Code memory is shared with it, unless [`memory_manager`](Self::memory_manager) was
    /// called: then [`build`](Self::build) fails. The session links for the architecture of that process
    /// ([`ExecutorProcess::machine`]).
    ///
    /// [`Function`](crate::Function)s of the session are called there: the arguments are passed on as they are, so pointers among
    /// them must be addresses of the executor, and results are trusted to be values of their type. A call panics when the executor ends; [`Function::try_call`](crate::Function) and
    /// [`Jit::remote_function`] return errors. A [`Symbol`](crate::Symbol) is a pointer of this process, so the session refuses it.
    /// If the executor is of another architecture, only [`Jit::remote_function`] calls its functions.
    #[cfg(feature = "executor")]
    pub fn executor(mut self, executor: &ExecutorProcess) -> JitBuilder {
        self.executor_process = Some(executor.clone());
        self
    }

    /// Keeps the bytes of each object until its tracker is removed, so that [`Jit::restart`] can link them in another executor. Bytes that
    /// the caller shares ([`ObjectBuffer`](crate::link::ObjectBuffer)) are not copied.
    #[cfg(feature = "executor")]
    pub fn keep_objects(mut self) -> JitBuilder {
        self.keeps_objects = true;
        self
    }

    /// Runs linked code through `executor`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn run_through(mut self, executor: Arc<dyn Executor>) -> JitBuilder {
        self.executor = Some(executor);
        self
    }

    /// Builds the session.
    ///
    /// # Errors
    /// The file of the [`profiler`](Self::profiler) cannot be created; or an executor has ended, or has no memory for code. The code
    /// memory of this process is mapped by the first link, whose error says why the kernel refuses it. A
    /// [`SlabPool`] that is passed to [`memory_manager`](Self::memory_manager) is mapped before.
    pub fn build(self) -> Result<Jit> {
        #[cfg(feature = "environment")]
        let settings = self.or_environment();
        #[cfg(not(feature = "environment"))]
        let settings = self;
        settings.build_with_tools()
    }

    /// Asks the environment for tools that the caller did not decide about.
    #[cfg(feature = "environment")]
    fn or_environment(mut self) -> JitBuilder {
        if self.debugger.is_none() {
            self = self.debugger(std::env::var_os("JITTISON_GDB").is_some_and(|value| value == "1"));
        }
        if self.profiler.is_none() {
            self = self.profiler(Profile::from_environment());
        }
        self
    }

    fn build_with_tools(self) -> Result<Jit> {
        #[cfg(feature = "executor")]
        let restart_state = self.keeps_objects.then(|| self.restart_state());
        #[cfg(not(feature = "executor"))]
        let restart_state: Option<RestartState> = None;
        #[cfg(feature = "executor")]
        let executor_process = match self.executor_process {
            // Not without that feature: programs may rely on pointers to linked code that their own choice of a session gives them.
            None if cfg!(feature = "unstable") && self.executor.is_none() && self.memory.is_none() => {
                ExecutorProcess::from_environment()?
            }
            chosen => chosen,
        };
        let executor = self.executor.unwrap_or_else(|| Arc::new(InProcess));
        #[cfg(feature = "executor")]
        let (executor, memory) = match &executor_process {
            Some(_) if self.memory.is_some() => {
                return Err(Error::other(
                    "a session with an executor makes its own code memory; nothing was done; leave out `memory_manager`",
                ));
            }
            Some(process) => {
                let memory = executor_memory(process, |mapper| {
                    let pool = pool(mapper, self.pool, &self.observers)?;
                    // So that an executor that has ended is noticed here.
                    pool.map_first_window()?;
                    Ok(pool)
                })?;
                let executor: Arc<dyn Executor> = Arc::new(Remote::new(process));
                enable_calls_elsewhere();
                (executor, Some(memory))
            }
            None => (executor, self.memory),
        };
        #[cfg(not(feature = "executor"))]
        let memory = self.memory;
        let (debugger, profiler) = (self.debugger.flatten(), self.profiler.flatten());
        let tool_memory = debugger.and_then(|tool| tool.memory).or_else(|| profiler.and_then(|tool| tool.memory));
        let memory: Arc<dyn MemoryManager> = match (memory, tool_memory) {
            (Some(memory), _) => memory,
            (None, Some(make_memory)) => make_memory(self.pool, &self.observers)?,
            (None, None) => Arc::new(pool(SystemMapper::default(), self.pool, &self.observers)?),
        };
        let session = ExecutionSession::with_options(SessionOptions {
            reclaim: self.reclaim,
            worker_threads: self.worker_threads,
            error_reporter: self.error_reporter,
            observers: self.observers,
        });
        let runs = match (memory.can_run(), executor.is_this_process()) {
            (false, _) => Runs::Never,
            (true, true) => Runs::Here,
            (true, false) => Runs::Elsewhere,
        };
        let layer = ObjectLinkingLayer::with_executor(memory.clone(), executor.clone(), &self.wrapped);
        let stubs = StubManager::for_arch(memory.clone(), executor.arch());
        let initializers = InitFiniRegistry::with_executor(executor.clone());
        let lazy = LazyReexports::with_executor(
            memory,
            stubs.clone(),
            self.lazy_failure_handler,
            executor.clone(),
            Some(initializers.clone()),
        );
        layer.add_plugin(initializers.clone());
        layer.register(&session);
        // The profiler is the last plugin, so that it sees what the other plugins make of an object.
        for tool in debugger.into_iter().chain(profiler) {
            (tool.attach)(&layer, &session, &executor)?;
        }
        lazy.register(&session);
        stubs.register(&session);
        initializers.register(&session);
        if let Some(state) = &restart_state {
            session.register_ranked(ManagerRank::CodeMemory, state.inputs.clone());
        }
        let process = session.create_dylib("process")?;
        let process_symbols = Arc::new(ProcessSymbols::with_executor(self.libraries, executor.clone()));
        process.add_generator(process_symbols.clone());
        let (weak, weak_layer) = (Arc::downgrade(&initializers), Arc::downgrade(&layer));
        initializers.set_loader_services(LoaderServices::new(executor.clone(), &process, weak, weak_layer));
        let main = session.create_dylib("main")?;
        main.set_link_order(&[(process.clone(), Visibility::ExportedOnly)])?;
        let static_libraries = Mutex::new(FxHashMap::default());
        Ok(Jit(Arc::new(JitInner {
            session,
            runs,
            executor,
            main,
            process,
            #[cfg(feature = "reload")]
            process_symbols,
            layer,
            stubs,
            lazy,
            initializers,
            static_libraries,
            spare_dylibs: SpareDylibs::new(),
            #[cfg(feature = "reload")]
            reload_points: Default::default(),
            restart_state,
        })))
    }
}

#[cfg(feature = "executor")]
impl JitBuilder {
    /// What the session keeps for a restart.
    fn restart_state(&self) -> RestartState {
        let settings = self.clone();
        let rebuild = Box::new(move |executor: &ExecutorProcess| settings.clone().executor(executor).build());
        RestartState { inputs: Arc::new(SessionInputs::new()), rebuild }
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

/// What `build` does for a debugger or a profiler.
#[derive(Clone, Copy)]
struct Tool {
    /// Makes the code memory that the tool needs. `None`: any will do.
    memory: Option<MakeMemory>,
    attach: fn(&ObjectLinkingLayer, &ExecutionSession, &Arc<dyn Executor>) -> Result<()>,
}

type MakeMemory = fn(SlabPoolOptions, &[Arc<dyn Observer>]) -> Result<Arc<dyn MemoryManager>>;

const DEBUGGER: Tool = Tool {
    // Debuggers write breakpoints into private memory only, and leave them there.
    memory: Some(|options, observers| Ok(Arc::new(QuarantineManager::new(pool(SingleMapper, options, observers)?)))),
    attach: |layer, session, executor| {
        let debugger = Debugger::with_executor(executor.clone());
        layer.add_plugin(debugger.clone());
        debugger.register(session);
        Ok(())
    },
};

const JIT_DUMP: Tool = Tool {
    memory: None,
    attach: |layer, _, executor| {
        layer.add_plugin(Profiler::with_executor(Profile::JitDump, &**executor)?);
        Ok(())
    },
};

const PERF_MAP: Tool = Tool {
    // perf looks for names in anonymous memory only.
    memory: Some(|options, observers| Ok(Arc::new(pool(SingleMapper, options, observers)?))),
    attach: |layer, _, executor| {
        layer.add_plugin(Profiler::with_executor(Profile::PerfMap, &**executor)?);
        Ok(())
    },
};

/// Creates a pool of code memory that reports to the observers, if there are any. It maps its first window when it first allocates.
fn pool(
    mapper: impl MemoryMapper + 'static,
    options: SlabPoolOptions,
    observers: &[Arc<dyn Observer>],
) -> Result<SlabPool> {
    let observer: Option<MemoryObserver> = (!observers.is_empty()).then(|| {
        let observers = Observers::new(observers.to_vec());
        Arc::new(move |event| observers.deliver(&Event::Memory(event))) as MemoryObserver
    });
    SlabPool::lazy(mapper, options, observer)
}
