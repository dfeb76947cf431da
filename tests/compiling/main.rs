//! Tests of functions that a compiler of the embedder makes when they are needed: at the first call, ahead of it, and again after
//! many calls. One file per theme.

mod on_demand;
mod on_demand_tiers;
mod reoptimize;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jittison_test_support as support;

use jittison::host::LazyFailureHandler;
use jittison::link::{BuiltGraph, GraphBuilder, NewBlock, NewSymbol, SymbolScope};
use jittison::{CompileRequest, Error, Jit, JitBuilder, JitDylib};
use support::machine_code::{self, MachineCode};

type Number = extern "C" fn() -> i64;

/// Texts that several threads write.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn sorted(&self) -> Vec<String> {
        let mut texts = self.0.lock().unwrap().clone();
        texts.sort();
        texts
    }
}

/// A session whose errors without a caller go to the first log. A call that cannot be compiled returns −1, and its cause goes to
/// the second log.
fn session(builder: JitBuilder) -> (Jit, Log, Log) {
    extern "C" fn minus_one() -> i64 {
        -1
    }
    let (reported, failed) = (Log::default(), Log::default());
    let (report, fail) = (reported.clone(), failed.clone());
    // SAFETY: the functions of these tests that can fail are of the type `Number`.
    let handler = unsafe {
        LazyFailureHandler::new(move |failure| {
            fail.push(format!("{}: {}", failure.symbol, failure.error.root_cause()));
            Some(jittison::base::ExecutorAddr::new(minus_one as *const () as u64))
        })
    };
    let jit = builder
        .trap_freed_code(true)
        .lazy_failure_handler(handler)
        .error_reporter(Arc::new(move |error: Error| report.push(error.to_string())))
        .build()
        .unwrap();
    (jit, reported, failed)
}

/// `long symbol(void) { return number; }`
fn number(request: &CompileRequest<'_>, number: i32) -> Result<BuiltGraph, Error> {
    graph(request, |_| MachineCode { bytes: machine_code::returns(number), edges: Vec::new() })
}

/// `long symbol(void) { return callee() + 1; }`
fn one_more(request: &CompileRequest<'_>, callee: &str) -> Result<BuiltGraph, Error> {
    graph(request, |graph| machine_code::one_more_than(graph.add_external(callee)))
}

/// A graph that defines the requested symbol as what `code` writes.
fn graph(
    request: &CompileRequest<'_>,
    code: impl FnOnce(&mut GraphBuilder) -> MachineCode,
) -> Result<BuiltGraph, Error> {
    let mut graph = GraphBuilder::new(&format!("{} tier {}", request.function, request.tier));
    let code = code(&mut graph);
    let size = code.bytes.len();
    let block = graph.add_block(NewBlock::code(code.bytes));
    let symbol = NewSymbol::function(request.symbol, block, 0).with_size(size as u64);
    let symbol = graph.add_symbol(symbol.with_scope(SymbolScope::Hidden));
    graph.set_edges(block, &code.edges);
    graph.add_unwind(symbol, size as u32, &[]);
    graph.finish()
}

fn call(jit: &Jit, name: &str) -> i64 {
    support::function::<Number>(jit, name).call()
}

/// Repeats a step until it returns true. A test that waits for the count of calls uses it: if calls are not counted, it fails
/// and does not hang.
#[track_caller]
fn repeat_until(mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        // Far more than a busy machine needs.
        assert!(start.elapsed() < Duration::from_secs(120), "the tier does not come");
    }
}

/// As [`repeat_until`], for what another thread does.
#[track_caller]
fn await_tier(mut condition: impl FnMut() -> bool) {
    repeat_until(|| {
        let is_there = condition();
        if !is_there {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_there
    });
}

/// Symbols of a dylib, and memory of a session.
fn state(jit: &Jit, dylib: &JitDylib) -> (usize, (usize, u64, u64)) {
    (dylib.symbol_count(), support::held(jit))
}
