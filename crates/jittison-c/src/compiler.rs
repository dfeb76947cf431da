//! Compilers of the embedder: functions that a callback compiles at their first call, or again when they are called often.
//!
//! The callback gets a graph and fills it. The library takes it back when the callback returns.

use std::ffi::c_void;

use jittison::{
    CompileOnDemandLayer, CompileRequest, CompiledFunction, Error, FunctionCompiler, ReOptimizeLayer, ReOptimized,
};
use parking_lot::Mutex;

use crate::callbacks::{BorrowedDylib, Dropped, OwnedContext, outcome};
use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::graph::{GRAPHS, Graph, GraphHandle};
use crate::handle::{Kind, Table};
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session, read_options};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker};

/// `jittison_on_demand`.
pub(crate) type OnDemandHandle = Handle<CompileOnDemandLayer>;
static ON_DEMAND: Table<CompileOnDemandLayer> = Table::new(Kind::OnDemand);

/// `jittison_reoptimizer`.
pub(crate) type ReoptimizerHandle = Handle<ReOptimizeLayer>;
static REOPTIMIZERS: Table<ReOptimizeLayer> = Table::new(Kind::Reoptimizer);

/// `jittison_tiered`.
pub(crate) type TieredHandle = Handle<ReOptimized>;
static TIERED: Table<ReOptimized> = Table::new(Kind::Tiered);

/// `jittison_compile_request`.
#[repr(C)]
struct Request {
    dylib: Dylib,
    function: Str,
    symbol: Str,
    tier: u32,
    reserved: u32,
}

/// `jittison_compiler_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callbacks {
    size: usize,
    compile: Option<unsafe extern "C-unwind" fn(*const Request, GraphHandle, *mut c_void) -> *mut ErrorObject>,
    dropped: Option<Dropped>,
}

struct Compiler {
    callbacks: Callbacks,
    context: OwnedContext,
}

/// A graph that a callback fills. Dropped, it takes back what the callback left.
struct LentGraph(GraphHandle);

impl LentGraph {
    fn new(name: &str) -> Result<LentGraph, Error> {
        let bits = GRAPHS.insert(Mutex::new(Some(Graph::new(name)))).map_err(Error::other)?;
        Ok(LentGraph(Handle::new(bits)))
    }

    fn finish(&self) -> Result<CompiledFunction, Failure> {
        crate::graph::take_graph(self.0)?.finish()
    }
}

impl Drop for LentGraph {
    fn drop(&mut self) {
        // The callback may have released it against the rules.
        let _ = GRAPHS.take(self.0.bits);
    }
}

impl FunctionCompiler for Compiler {
    fn compile(&self, request: &CompileRequest<'_>) -> Result<CompiledFunction, Error> {
        let Some(compile) = self.callbacks.compile else { return Err(Error::other("nothing compiles it")) };
        let dylib = BorrowedDylib::new(request.dylib)?;
        let graph = LentGraph::new(request.symbol)?;
        let shown = Request {
            dylib: dylib.handle(),
            function: Str::of(request.function),
            symbol: Str::of(request.symbol),
            tier: request.tier,
            reserved: 0,
        };
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away. The request lives
        // during the call.
        unsafe { outcome(compile(&shown, graph.0, self.context.get()))? };
        graph.finish().map_err(Failure::into_error)
    }
}

/// # Safety
/// C1 for the callbacks, C5 for what they are.
unsafe fn read_compiler(callbacks: *const c_void, context: *mut c_void) -> Result<Compiler, Failure> {
    check_out(callbacks.cast_mut().cast::<usize>(), "callbacks")?;
    // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
    let callbacks: Callbacks = unsafe { read_options(callbacks.cast())? };
    if callbacks.compile.is_none() {
        return Err(Failure::argument("a compiler needs the callback `compile`"));
    }
    Ok(Compiler { callbacks, context: OwnedContext::new(context, callbacks.dropped) })
}

/// # Safety
/// C1 for the names, for as long as the result is used.
unsafe fn read_names<'a>(names: *const Str, count: usize) -> Result<Vec<&'a str>, Failure> {
    // SAFETY: C1 - the caller promises it.
    let names = unsafe { read_slice(names, count, "functions")? };
    // SAFETY: C1 - the caller promises it.
    names.iter().map(|name| unsafe { name.read("the name of a function") }).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_on_demand_create(
    session: Session,
    callbacks: *const c_void,
    context: *mut c_void,
    out: *mut OnDemandHandle,
) -> *mut ErrorObject {
    let create = || {
        let jit = SESSIONS.get(session.bits)?;
        // SAFETY: C1 - the caller promises it.
        let compiler = unsafe { read_compiler(callbacks, context)? };
        ON_DEMAND.insert_with(|| Ok(jit.compile_on_demand(compiler))).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_on_demand_release(layer: OnDemandHandle) -> *mut ErrorObject {
    run(|| ON_DEMAND.release(layer.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_on_demand_add(
    layer: OnDemandHandle,
    tracker: Tracker,
    functions: *const Str,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        let (layer, tracker) = (ON_DEMAND.get(layer.bits)?, TRACKERS.get(tracker.bits)?);
        // SAFETY: C1 - the caller promises it.
        Ok(layer.add(&tracker, &unsafe { read_names(functions, count)? })?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_on_demand_speculate(
    layer: OnDemandHandle,
    dylib: Dylib,
    function: Str,
) -> *mut ErrorObject {
    run(|| {
        let (layer, dylib) = (ON_DEMAND.get(layer.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        Ok(layer.speculate(&dylib, unsafe { function.read("function")? })?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reoptimizer_create(
    session: Session,
    callbacks: *const c_void,
    context: *mut c_void,
    calls: *const u64,
    count: usize,
    out: *mut ReoptimizerHandle,
) -> *mut ErrorObject {
    let create = || {
        let jit = SESSIONS.get(session.bits)?;
        // SAFETY: C1 - the caller promises it.
        let calls = unsafe { read_slice(calls, count, "calls")? };
        // SAFETY: C1 - the caller promises it.
        let compiler = unsafe { read_compiler(callbacks, context)? };
        REOPTIMIZERS.insert_with(|| Ok(jit.reoptimize_layer(compiler, calls))).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_reoptimizer_release(layer: ReoptimizerHandle) -> *mut ErrorObject {
    run(|| REOPTIMIZERS.release(layer.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_reoptimizer_add(
    layer: ReoptimizerHandle,
    dylib: Dylib,
    functions: *const Str,
    count: usize,
    out: *mut TieredHandle,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(out, "out")?;
            let (layer, dylib) = (REOPTIMIZERS.get(layer.bits)?, DYLIBS.get(dylib.bits)?);
            // SAFETY: C1 - the caller promises it.
            Ok((layer, dylib, unsafe { read_names(functions, count)? }, TIERED.reserve()?))
        },
        |(layer, dylib, functions, place)| {
            // SAFETY: C3 - the header states the promises.
            let tiered = unsafe { layer.add(&dylib, &functions)? };
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(Handle::new(place.fill(tiered)))) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tiered_release(tiered: TieredHandle) -> *mut ErrorObject {
    run(|| TIERED.release(tiered.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tiered_tier(tiered: TieredHandle, function: Str, out: *mut u32) -> *mut ErrorObject {
    let find = || {
        let tiered = TIERED.get(tiered.bits)?;
        // SAFETY: C1 - the caller promises it.
        let function = unsafe { function.read("function")? };
        let is_other = || Failure::argument(format!("`{function}` is not one of the functions"));
        tiered.tier(function).ok_or_else(is_other)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tiered_reoptimize(
    tiered: TieredHandle,
    function: Str,
    has_begun: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(has_begun, "has_begun")?;
        let tiered = TIERED.get(tiered.bits)?;
        // SAFETY: C1 - the caller promises it.
        let begun = tiered.reoptimize(unsafe { function.read("function")? });
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(has_begun, begun) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_tiered_remove(tiered: TieredHandle, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(TIERED.get(tiered.bits)?.remove()?)) })
}
