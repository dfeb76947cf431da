//! [`FunctionCompiler`]: the compiler of the embedder.

use crate::base::catch;
use crate::error::{Error, Result};
use crate::link::{BuiltGraph, ObjectBuffer};
use crate::session::JitDylib;

/// Compiles one function at a time, for a [`CompileOnDemandLayer`](crate::CompileOnDemandLayer) or a
/// [`ReOptimizeLayer`](crate::ReOptimizeLayer). Closures of this signature are compilers.
///
/// Several threads may call it at the same time, for different functions. No lock is held. A panic is an error.
///
/// The layer's functions own the compiler. A compiler that owns a [`Jit`](crate::Jit) keeps that session open until the
/// functions are removed.
pub trait FunctionCompiler: Send + Sync {
    /// Compiles a function.
    ///
    /// # Errors
    /// Any. [`Error::other`] makes one from a text. Each layer says whom it reaches.
    fn compile(&self, request: &CompileRequest<'_>) -> Result<CompiledFunction>;
}

/// The function to compile.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CompileRequest<'a> {
    /// The dylib that has the function.
    pub dylib: &'a JitDylib,
    /// The name by which the function was added, and by which other code calls it.
    pub function: &'a str,
    /// The symbol that the graph or object defines the function as. Calls of `function` in the code may stay calls of that name.
    pub symbol: &'a str,
    /// The tier, from 1. A [`CompileOnDemandLayer`](crate::CompileOnDemandLayer) has only tier 1.
    pub tier: u32,
}

/// What a compiler returns.
#[derive(Debug)]
pub struct CompiledFunction {
    pub(super) code: CompiledCode,
    pub(super) callees: Vec<String>,
}

/// What defines the symbol of a request.
#[derive(Debug)]
pub(super) enum CompiledCode {
    Graph(BuiltGraph),
    /// An object, with its name.
    Object(String, ObjectBuffer),
}

impl CompiledFunction {
    /// A graph that defines the symbol of the request. It may define more.
    pub fn new(graph: BuiltGraph) -> CompiledFunction {
        CompiledFunction { code: CompiledCode::Graph(graph), callees: Vec::new() }
    }

    /// As [`new`](Self::new), with an object. `name` is its name in errors and memory maps.
    pub fn from_object(name: &str, bytes: impl Into<ObjectBuffer>) -> CompiledFunction {
        CompiledFunction { code: CompiledCode::Object(name.to_string(), bytes.into()), callees: Vec::new() }
    }

    /// Names functions that the code is likely to call soon. A [`CompileOnDemandLayer`](crate::CompileOnDemandLayer) compiles
    /// those of them that are its own in the background, as [`speculate`](crate::CompileOnDemandLayer::speculate) does.
    pub fn with_callees<S: Into<String>>(mut self, callees: impl IntoIterator<Item = S>) -> CompiledFunction {
        self.callees.extend(callees.into_iter().map(Into::into));
        self
    }
}

impl From<BuiltGraph> for CompiledFunction {
    fn from(graph: BuiltGraph) -> CompiledFunction {
        CompiledFunction::new(graph)
    }
}

impl<F> FunctionCompiler for F
where
    F: Fn(&CompileRequest<'_>) -> Result<CompiledFunction> + Send + Sync,
{
    fn compile(&self, request: &CompileRequest<'_>) -> Result<CompiledFunction> {
        self(request)
    }
}

/// Compiles a function. A panic of the compiler is an error.
pub(super) fn compile(compiler: &dyn FunctionCompiler, request: &CompileRequest<'_>) -> Result<CompiledFunction> {
    catch(|| compiler.compile(request)).unwrap_or_else(|panic| {
        Err(Error::other(format!("the compiler of `{}` (tier {}) panicked: {panic}", request.function, request.tier)))
    })
}
