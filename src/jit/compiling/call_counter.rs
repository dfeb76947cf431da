//! [`CallCounter`]: counts the calls of one tier, and asks for the next one when the count is used up.
//!
//! ```text
//!   stub `f` ─► counter stub: subtract 1 ─┬─ not zero ─► `f$tier1`
//!                                         └─ zero ─► entry ─► find: ask for the next tier ─► `f$tier1`
//! ```
//!
//! The counter stub is a graph that is linked into the version of its tier. The entry is recorded under the version's key before
//! the graph is linked. So both go with the version, after the last caller has left it. Threads subtract without synchronisation.
//! A lost subtraction delays the end of the count, and two threads may reach it at once; `tier_state.rs` begins one compilation.

use crate::arch::{Arch, CounterTarget, TemplateField};
use crate::base::{ExecutorAddr, Name};
use crate::error::{Error, Result};
use crate::host::{LazyFailure, LazyFailureHandler, LazyFunction};
use crate::jit::inner::JitInner;
use crate::link::{BuiltGraph, Edge, GraphBuilder, NewBlock, NewSymbol};
use crate::session::{JitDylib, ResourceTracker};
use crate::sync::{Arc, AtomicU64, Ordering};

/// A tier whose calls are counted.
pub(super) struct CallCounter {
    /// The function that callers call.
    pub(super) function: Name,
    /// The name of the tier's code.
    pub(super) body: Name,
    /// The calls after which the next tier is asked for.
    pub(super) calls: u64,
}

/// What the entry of a used up count leads to.
struct UsedUp {
    /// The dylib of the version.
    dylib: JitDylib,
    function: Name,
    body: Name,
    /// The address of the body; zero before the version is linked.
    address: Arc<AtomicU64>,
    handler: LazyFailureHandler,
    on_used_up: Box<dyn Fn() + Send + Sync>,
}

impl CallCounter {
    /// The name of the counter's graph.
    pub(super) fn graph_name(&self) -> String {
        format!("call counter of {}", self.function)
    }

    /// Makes the graph of the counter stub for a version, and gives the version's tracker its entry. `address` gets the address
    /// of the body when the version is linked. `on_used_up` is called with no lock held, on the thread that calls.
    pub(super) fn into_graph(
        self,
        jit: &JitInner,
        version: &ResourceTracker,
        address: Arc<AtomicU64>,
        on_used_up: impl Fn() + Send + Sync + 'static,
    ) -> Result<BuiltGraph> {
        let name = self.graph_name();
        let CallCounter { function, body, calls } = self;
        let (dylib, handler) = (version.dylib(), LazyFailureHandler::default());
        let (target_function, target_body, on_used_up) = (function.clone(), body.clone(), Box::new(on_used_up));
        let target = UsedUp { dylib, function: target_function, body: target_body, address, handler, on_used_up };
        let entry = jit.lazy.make_entry(Arc::new(target), &function)?;
        let entry_address = entry.address();
        jit.lazy.record_entry(version, entry)?;
        graph(jit.executor.arch(), &name, &function, &body, calls, entry_address)
    }
}

/// The counter stub, its counter, and the word with the address of the entry.
fn graph(arch: Arch, name: &str, function: &str, body: &str, calls: u64, entry: ExecutorAddr) -> Result<BuiltGraph> {
    let mut graph = GraphBuilder::for_arch(name, arch);
    let template = arch.counter_stub();
    let code = graph.add_block(NewBlock::code(template.bytes));
    let counter = graph.add_block(NewBlock::data(&calls.to_le_bytes()[..]).with_align(8));
    let word = graph.add_block(NewBlock::constants(&entry.value().to_le_bytes()[..]).with_align(8));
    let counter = graph.add_symbol(NewSymbol::local("", counter, 0));
    let word = graph.add_symbol(NewSymbol::local("", word, 0));
    let body = graph.add_external(body);
    graph.add_symbol(NewSymbol::function(function, code, 0).with_size(template.bytes.len() as u64));
    let edge = |field: &TemplateField<CounterTarget>| Edge {
        offset: field.offset,
        kind: field.kind,
        symbol: match field.target {
            CounterTarget::Counter => counter,
            CounterTarget::Entry => word,
            CounterTarget::Function => body,
        },
        addend: field.addend,
    };
    let edges: Vec<Edge> = template.fields.iter().map(edge).collect();
    graph.set_edges(code, &edges);
    graph.finish()
}

impl LazyFunction for UsedUp {
    fn find(&self) -> Result<ExecutorAddr> {
        (self.on_used_up)();
        // Acquire pairs with the store of `Tiered::build`.
        match self.address.load(Ordering::Acquire) {
            // An initialiser of the version calls the function, so the version is there.
            0 => self.dylib.lookup_address(&self.body),
            address => Ok(ExecutorAddr::new(address)),
        }
    }

    fn failure<'a>(&'a self, error: &'a Error) -> LazyFailure<'a> {
        let dylib = self.dylib.name();
        LazyFailure { dylib, symbol: &self.function, source: dylib, aliasee: &self.body, error }
    }

    fn handler(&self) -> &LazyFailureHandler {
        &self.handler
    }
}
