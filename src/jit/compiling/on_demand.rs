//! [`CompileOnDemandLayer`]: functions that are compiled at their first call.
//!
//! ```text
//!   `f`: lazy stub ─► first call ─► lookup of `f$body` ─► unit of `f$body` ─► compiler ─► graph ─► link ─► redirect
//! ```
//!
//! Both names belong to the tracker that the function was added under, so one removal takes back stub, unit and code. The unit
//! has a part for each function, so each is compiled by itself. Threads that need one function at the same time wait for one
//! compilation, because a unit is taken out of the table once. A removal during a compilation is a removal during a link.

use std::fmt;

use crate::base::Name;
use crate::error::{Error, Result};
use crate::jit::compiling::compiler::{CompileRequest, CompiledCode, FunctionCompiler, compile};
use crate::jit::inner::{Jit, not_found};
use crate::layer::ObjectLinkingLayer;
use crate::session::{
    Alias, BackgroundWork, JitDylib, MaterializationResponsibility, MaterializationUnit, ResourceTracker, SymbolFlags,
    SymbolState, UnitSymbol,
};
use crate::sync::Arc;

/// Compiles functions when they are first called (ORC: `CompileOnDemandLayer`). [`Jit::compile_on_demand`] makes one.
///
/// ```
/// use jittison::base::ExecutorAddr;
/// use jittison::link::{GraphBuilder, NewBlock, NewSymbol, SymbolScope};
/// use jittison::{CompileRequest, CompiledFunction, Jit};
///
/// # fn main() -> Result<(), jittison::Error> {
/// // The "compiler": a function `returns_N` returns N.
/// let compiler = |request: &CompileRequest<'_>| {
///     let number: u8 = request.function.trim_start_matches("returns_").parse().map_err(jittison::Error::other)?;
///     let mut graph = GraphBuilder::new(request.function);
///     let code = graph.add_block(NewBlock::code(&[0xb8, number, 0, 0, 0, 0xc3][..])); // mov $N, %eax; ret
///     graph.add_symbol(NewSymbol::function(request.symbol, code, 0).with_scope(SymbolScope::Hidden));
///     Ok(CompiledFunction::new(graph.finish()?))
/// };
///
/// let jit = Jit::new()?;
/// let layer = jit.compile_on_demand(compiler);
/// let tracker = jit.main_dylib().create_tracker()?;
/// layer.add(&tracker, &["returns_6", "returns_7", "returns_8"])?; // Nothing is compiled yet.
///
/// // SAFETY: the functions have this signature.
/// let six = unsafe { jit.lookup::<extern "C" fn() -> i64>("returns_6")? };
/// assert_eq!(six.call(), 6); // Compiled now.
/// layer.speculate(jit.main_dylib(), "returns_7")?; // Compiled in the background.
/// drop(six);
/// assert!(tracker.remove()?.is_complete());
/// # Ok(()) }
/// ```
///
/// # Errors of the compiler
/// - A call whose function cannot be compiled goes to the session's
///   [handler](crate::JitBuilder::lazy_failure_handler), which has the error. By default the process aborts with a message.
/// - An error of a compilation ahead of calls goes to the session's
///   [error reporter](crate::JitBuilder::error_reporter), and later calls have it too.
/// - A failed function stays failed: its later calls go to the handler with the same cause. Remove its tracker to add it again.
#[derive(Clone)]
pub struct CompileOnDemandLayer {
    jit: Jit,
    shared: Arc<OnDemand>,
}

/// What the layer and its units share. It holds no [`Jit`], because the session holds the units.
pub(super) struct OnDemand {
    maker: Box<dyn BodyMaker>,
    layer: Arc<ObjectLinkingLayer>,
    work: Arc<BackgroundWork>,
}

/// Defines the bodies of functions.
pub(super) trait BodyMaker: Send + Sync {
    /// Resolves and emits the only symbol of a responsibility, the body of the requested function, or fails it.
    fn make(&self, on_demand: &OnDemand, request: &CompileRequest<'_>, responsibility: MaterializationResponsibility);
}

/// Compiles the bodies.
struct Compiled<C>(C);

impl Jit {
    /// Makes a layer that compiles functions when they are first called.
    pub fn compile_on_demand(&self, compiler: impl FunctionCompiler + 'static) -> CompileOnDemandLayer {
        CompileOnDemandLayer::with_maker(self, Compiled(compiler))
    }
}

impl CompileOnDemandLayer {
    pub(super) fn with_maker(jit: &Jit, maker: impl BodyMaker + 'static) -> CompileOnDemandLayer {
        let (layer, work) = (jit.layer().clone(), BackgroundWork::new(jit.session()));
        CompileOnDemandLayer { jit: jit.clone(), shared: Arc::new(OnDemand { maker: Box::new(maker), layer, work }) }
    }

    /// Defines functions under a tracker, which are compiled at their first call: one function, or all of a module. Each is
    /// compiled by itself. A removal of the tracker removes them, compiled or not.
    ///
    /// The dylib also gets a hidden name for each, `NAME$body`. A lookup of that name compiles the function.
    ///
    /// # Errors
    /// A name is already defined, the tracker is defunct or of another session, or there is not enough memory. In these cases
    /// nothing is defined.
    pub fn add(&self, tracker: &ResourceTracker, functions: &[&str]) -> Result<()> {
        let dylib = tracker.dylib();
        self.jit.0.check_own(&dylib)?;
        if functions.is_empty() {
            return Ok(());
        }
        // A tracker of their own, so that an error leaves nothing.
        let own = dylib.create_tracker()?;
        let added = self.add_under(&own, &dylib, functions).and_then(|()| own.transfer_and_report(tracker));
        added.inspect_err(|_| drop(own.remove()))
    }

    fn add_under(&self, tracker: &ResourceTracker, dylib: &JitDylib, functions: &[&str]) -> Result<()> {
        let bodies = functions.iter().map(|function| Name::from(body_of(function)));
        tracker.define(FunctionsUnit::new(&self.shared, bodies))?;
        let alias = |function: &&str| Alias {
            name: Name::new(function),
            aliasee: Name::from(body_of(function)),
            flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
        };
        self.jit.lazy_reexport(tracker, dylib, &functions.iter().map(alias).collect::<Vec<_>>())
    }

    /// Compiles a function in the background, so that its first call finds it compiled (ORC: speculative compilation). A call
    /// meanwhile waits for that compilation. Does nothing if the function is compiled or being compiled.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`](crate::ErrorKind::SymbolsNotFound): the dylib has no such function, or its compilation
    /// has failed; then with the cause.
    pub fn speculate(&self, dylib: &JitDylib, function: &str) -> Result<()> {
        self.jit.0.check_own(dylib)?;
        match self.shared.speculate(dylib, function) {
            true => Ok(()),
            false => Err(not_found(dylib, &body_of(function))),
        }
    }
}

impl OnDemand {
    /// Begins to compile a function unless that has begun. False if the dylib has no such function.
    fn speculate(&self, dylib: &JitDylib, function: &str) -> bool {
        let body = body_of(function);
        let state = dylib.symbol_state(&body);
        if state == Some(SymbolState::NeverSearched) {
            let dylib = dylib.clone();
            self.work.push(move || dylib.begin_lookup(&body));
        }
        state.is_some()
    }

    /// Makes the only symbol of a responsibility.
    fn materialize(&self, responsibility: MaterializationResponsibility) {
        let (dylib, body) = (responsibility.dylib(), responsibility.symbols()[0].name.clone());
        let function = body.as_str().strip_suffix(BODY).unwrap_or(&body);
        let request = CompileRequest { dylib: &dylib, function, symbol: &body, tier: 1 };
        self.maker.make(self, &request, responsibility);
    }
}

impl<C: FunctionCompiler> BodyMaker for Compiled<C> {
    fn make(&self, on_demand: &OnDemand, request: &CompileRequest<'_>, responsibility: MaterializationResponsibility) {
        match compile(&self.0, request) {
            Ok(compiled) => {
                for callee in &compiled.callees {
                    on_demand.speculate(request.dylib, callee);
                }
                match compiled.code {
                    CompiledCode::Graph(graph) => on_demand.layer.emit_graph(responsibility, graph),
                    CompiledCode::Object(name, bytes) => on_demand.layer.emit_object(responsibility, &name, bytes),
                }
            }
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Functions that are not compiled yet. Each lookup takes the part that it needs.
struct FunctionsUnit {
    shared: Arc<OnDemand>,
    symbols: Vec<(Name, SymbolFlags)>,
}

impl FunctionsUnit {
    fn new(shared: &Arc<OnDemand>, bodies: impl Iterator<Item = Name>) -> FunctionsUnit {
        let symbols = bodies.map(|body| (body, SymbolFlags::CALLABLE)).collect();
        FunctionsUnit { shared: shared.clone(), symbols }
    }
}

impl MaterializationUnit for FunctionsUnit {
    fn name(&self) -> &str {
        match &self.symbols[..] {
            [(body, _)] => body.as_str(),
            _ => "functions that are compiled on demand",
        }
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn part(&self, symbol: UnitSymbol<'_>) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(FunctionsUnit::new(&self.shared, std::iter::once(Name::new(symbol.0)))))
    }

    fn materialize(self: Box<Self>, mut responsibility: MaterializationResponsibility) {
        while let [_, .., last] = responsibility.symbols() {
            let last = last.name.clone();
            // An error is impossible: the symbol is one of the responsibility. If it came, the rest would fail with it.
            let Ok(one) = responsibility.delegate(&[last.as_str()]) else {
                return responsibility.fail(Error::other(format!("`{last}` cannot be compiled by itself")));
            };
            self.shared.materialize(one);
        }
        self.shared.materialize(responsibility);
    }
}

/// The name of a function's code.
fn body_of(function: &str) -> String {
    format!("{function}{BODY}")
}

const BODY: &str = "$body";

impl fmt::Debug for CompileOnDemandLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compile on demand layer of {:?}", self.jit.session())
    }
}
