//! [`function_graph`]: one function as a graph, for the layers of jittison that ask for functions one by one.

use cranelift_codegen::Context;
use cranelift_codegen::isa::TargetIsa;
use cranelift_control::ControlPlane;
use cranelift_module::{FuncId, FuncOrDataId, ModuleDeclarations, ModuleResult, default_libcall_names};
use jittison::link::BuiltGraph;

use crate::definition::{self, Names, Store};

/// Compiles a function into a graph that defines it as `symbol`: for the compiler of a [`jittison::CompileOnDemandLayer`] or a
/// [`jittison::ReOptimizeLayer`], which names the symbol. `title` is the name of the graph in errors and memory maps.
///
/// The code refers to other functions and data by the names of their declarations. If `symbol` is not the declared name of `id`,
/// calls of the function itself go by that name too, so they reach its stub and with it later tiers.
///
/// `examples/tiers.rs` of this crate uses it.
///
/// # Errors
/// Cranelift cannot compile the function, or its code has a relocation of another system.
pub fn function_graph(
    isa: &dyn TargetIsa,
    declarations: &ModuleDeclarations,
    id: FuncId,
    symbol: &str,
    title: &str,
    context: &mut Context,
) -> ModuleResult<BuiltGraph> {
    let mut store = Store::default();
    let mut definition = store.compile(isa, id, context, &mut ControlPlane::default())?;
    let libcalls = default_libcall_names();
    let names = Names { declarations, libcalls: &libcalls };
    let is_declared = names.of(FuncOrDataId::Func(id)) == symbol;
    definition.symbol = (!is_declared).then(|| symbol.to_string());
    definition::titled_graph(title, [&definition].into_iter(), &store, &names, isa)
}
