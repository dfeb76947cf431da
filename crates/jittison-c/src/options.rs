//! The options of a session.

use std::ffi::c_void;
use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::host::{LazyFailure, LazyFailureHandler};
use jittison::memory::{
    ForkPolicy, MemoryManager, MemoryObserver, OfflineMemory, OnFull, SlabPool, SlabPoolOptions, SystemMapper,
};
use jittison::platform::Profile;
use jittison::{Event, Jit, JitBuilder, Observer, ReclaimPolicy};

use crate::error::{ErrorObject, Failure};
use crate::mapper::{self, Mapper, PLACEMENTS};
use crate::observer::{CallbackObserver, OnEvent};
use crate::session::{Context, choice, read_options};
use crate::text::{Str, read_slice};

/// Called with an error that no caller receives. The callee owns the error.
type ReportError = unsafe extern "C-unwind" fn(*mut ErrorObject, *mut c_void);

/// Supplies the function to call in place of a lazy one that cannot be linked.
type OnLazyFailure = unsafe extern "C-unwind" fn(*const RawLazyFailure, *mut c_void) -> u64;

/// `jittison_lazy_failure`.
#[repr(C)]
struct RawLazyFailure {
    symbol: Str,
    dylib: Str,
    aliasee: Str,
    source: Str,
    error: *const ErrorObject,
}

/// `jittison_session_options`. All zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Options {
    size: usize,
    memory_budget: u64,
    window_size: u64,
    slab_size: u64,
    worker_threads: u32,
    reclaim: u32,
    on_full: u32,
    placement: u32,
    debugger: u32,
    profiler: u32,
    trap_freed_code: u32,
    reserved: u32,
    libraries: *const Str,
    library_count: usize,
    wrapped: *const Str,
    wrapped_count: usize,
    report_error: Option<ReportError>,
    report_error_context: *mut c_void,
    returns_memory: u32,
    pooled: u32,
    shards: u32,
    fork: u32,
    offline_address: u64,
    mapper: *const c_void,
    mapper_context: *mut c_void,
    observe: Option<OnEvent>,
    observe_context: *mut c_void,
    lazy_failure: Option<OnLazyFailure>,
    lazy_failure_context: *mut c_void,
}

/// The default, on, off.
const SWITCH: [Option<bool>; 3] = [None, Some(true), Some(false)];

/// # Safety
/// C1, C5 for what the options refer to.
pub(crate) unsafe fn builder_of(options: &Options) -> Result<JitBuilder, Failure> {
    let policies = [ReclaimPolicy::OnDrop, ReclaimPolicy::Background, ReclaimPolicy::Explicit];
    let mut builder = Jit::builder().worker_threads(options.worker_threads as usize).reclaim_policy(choice(
        "reclaim",
        options.reclaim,
        &policies,
    )?);
    if let Some(is_on) = choice("debugger", options.debugger, &SWITCH)? {
        builder = builder.debugger(is_on);
    }
    const PROFILERS: [Option<Option<Profile>>; 4] =
        [None, Some(None), Some(Some(Profile::JitDump)), Some(Some(Profile::PerfMap))];
    if let Some(profiler) = choice("profiler", options.profiler, &PROFILERS)? {
        builder = builder.profiler(profiler);
    }
    // SAFETY: C1 - the caller promises both lists and their strings.
    let (libraries, wrapped) = unsafe {
        (
            read_slice(options.libraries, options.library_count, "libraries")?,
            read_slice(options.wrapped, options.wrapped_count, "wrapped")?,
        )
    };
    for library in libraries {
        // SAFETY: C1 - as above.
        builder = builder.library(unsafe { library.read("the name of a library")? });
    }
    for symbol in wrapped {
        // SAFETY: C1 - as above.
        builder = builder.wrap(unsafe { symbol.read("the name of a wrapped symbol")? });
    }
    let observer = observer_of(options);
    if let Some(observer) = &observer {
        builder = builder.observer(observer.clone());
    }
    if let Some(report) = options.report_error {
        let context = Context(options.report_error_context);
        builder = builder.error_reporter(Arc::new(move |error| {
            let error = Failure::from(error).into_raw();
            // SAFETY: C5 - the caller promises that both are valid as long as the session reports.
            unsafe { report(error, context.get()) };
        }));
    }
    if let Some(handler) = lazy_failure_of(options) {
        builder = builder.lazy_failure_handler(handler);
    }
    let pool = pool_of(options)?;
    // SAFETY: C1, C5 - the caller promises the mapper.
    match unsafe { memory_of(options, pool, observer)? } {
        Some(memory) => Ok(builder.memory_manager(memory)),
        None => Ok(with_pool(builder, pool)),
    }
}

fn observer_of(options: &Options) -> Option<Arc<CallbackObserver>> {
    let context = Context(options.observe_context);
    options.observe.map(|callback| Arc::new(CallbackObserver { callback, context }))
}

fn lazy_failure_of(options: &Options) -> Option<LazyFailureHandler> {
    let callback = options.lazy_failure?;
    let context = Context(options.lazy_failure_context);
    let handler = move |failure: &LazyFailure<'_>| {
        let error = ErrorObject::new(&Failure::from(failure.error.clone()));
        let shown = RawLazyFailure {
            symbol: Str::of(failure.symbol),
            dylib: Str::of(failure.dylib),
            aliasee: Str::of(failure.aliasee),
            source: Str::of(failure.source),
            error: &error,
        };
        // SAFETY: C5 - the caller promises the callback and its context. What the struct refers to lives during the call.
        let address = unsafe { callback(&shown, context.get()) };
        (address != 0).then_some(ExecutorAddr::new(address))
    };
    // SAFETY: C3 - the header states the promises about the returned address.
    Some(unsafe { LazyFailureHandler::new(handler) })
}

fn pool_of(options: &Options) -> Result<SlabPoolOptions, Failure> {
    let mut pool = SlabPoolOptions {
        shards: options.shards as usize,
        budget: (options.memory_budget != 0).then_some(options.memory_budget),
        on_full: choice("on_full", options.on_full, &[OnFull::Refuse, OnFull::OpenAnother])?,
        ..SlabPoolOptions::default()
    };
    if options.window_size != 0 {
        pool.window_size = options.window_size;
    }
    if options.slab_size != 0 {
        pool.slab_size = options.slab_size;
    }
    if options.placement != 0 {
        pool.placement = choice("placement", options.placement - 1, &PLACEMENTS)?;
    }
    let set =
        |name, number, field: &mut bool| choice(name, number, &SWITCH).map(|value| *field = value.unwrap_or(*field));
    set("trap_freed_code", options.trap_freed_code, &mut pool.trap_freed_code)?;
    set("returns_memory", options.returns_memory, &mut pool.returns_memory)?;
    set("pooled", options.pooled, &mut pool.is_pooled)?;
    Ok(pool)
}

fn with_pool(builder: JitBuilder, pool: SlabPoolOptions) -> JitBuilder {
    let builder = builder
        .window_size(pool.window_size)
        .slab_size(pool.slab_size)
        .placement(pool.placement)
        .on_full(pool.on_full)
        .pooled(pool.is_pooled)
        .returns_memory(pool.returns_memory)
        .trap_freed_code(pool.trap_freed_code);
    match pool.budget {
        Some(budget) => builder.memory_budget(budget),
        None => builder,
    }
}

/// The memory of a session whose options ask for more than those of a builder. `None` for other sessions.
///
/// # Safety
/// C1, C5, C7 for the mapper.
unsafe fn memory_of(
    options: &Options,
    pool: SlabPoolOptions,
    observer: Option<Arc<CallbackObserver>>,
) -> Result<Option<Arc<dyn MemoryManager>>, Failure> {
    let fork_policy = choice("fork", options.fork, &[ForkPolicy::Snapshot, ForkPolicy::Share])?;
    if options.offline_address != 0 {
        return Ok(Some(Arc::new(OfflineMemory::new(ExecutorAddr::new(options.offline_address)))));
    }
    let system = SystemMapper { fork_policy };
    let observer: MemoryObserver = Arc::new(move |event| {
        if let Some(observer) = &observer {
            observer.observe(&Event::Memory(event));
        }
    });
    if !options.mapper.is_null() {
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: mapper::Callbacks = unsafe { read_options(options.mapper.cast())? };
        let mapper = Mapper::new(callbacks, options.mapper_context, system)?;
        return Ok(Some(Arc::new(SlabPool::observed(mapper, pool, observer)?)));
    }
    if fork_policy == ForkPolicy::Snapshot && pool.shards == 0 {
        return Ok(None);
    }
    Ok(Some(Arc::new(SlabPool::observed(system, pool, observer)?)))
}
