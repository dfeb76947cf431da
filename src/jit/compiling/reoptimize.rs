//! [`ReOptimizeLayer`] and [`ReOptimized`]: functions that are compiled again when they have been called often.

use std::fmt;

use crate::error::{Error, Result};
use crate::jit::compiling::compiler::FunctionCompiler;
use crate::jit::compiling::on_demand::CompileOnDemandLayer;
use crate::jit::compiling::on_demand_tiers::{OnDemandTiers, TieredFunction};
use crate::jit::compiling::tiered::{Tiered, Tiers};
use crate::jit::inner::Jit;
use crate::jit::patching::PatchVersion;
use crate::session::{BackgroundWork, JitDylib, Removal, ResourceTracker};
use crate::sync::Arc;

/// Compiles functions at once, and again in the background when they have been called often (ORC: `ReOptimizeLayer`).
/// [`Jit::reoptimize_layer`] makes one.
///
/// Callers follow each tier, through handles and from linked code. A replaced tier is freed when the last caller has left it, as
/// a version of a [`Patchable`](crate::Patchable) is.
///
/// ```
/// use jittison::link::{GraphBuilder, NewBlock, NewSymbol};
/// use jittison::{CompileRequest, CompiledFunction, Jit};
///
/// # fn main() -> Result<(), jittison::Error> {
/// // The "compiler": a function returns the number of its tier.
/// let compiler = |request: &CompileRequest<'_>| {
///     let mut graph = GraphBuilder::new(&format!("{} in tier {}", request.function, request.tier));
///     let code = [0xb8, request.tier as u8, 0, 0, 0, 0xc3]; // mov $TIER, %eax; ret
///     let code = graph.add_block(NewBlock::code(&code[..]));
///     graph.add_symbol(NewSymbol::function(request.symbol, code, 0));
///     Ok(CompiledFunction::new(graph.finish()?))
/// };
///
/// let jit = Jit::new()?;
/// let layer = jit.reoptimize_layer(compiler, &[100]); // Two tiers: the second after 100 calls of the first.
/// // SAFETY: both tiers have the signature with which `tier` is called.
/// let functions = unsafe { layer.add(jit.main_dylib(), &["tier"])? };
/// // SAFETY: as above.
/// let tier = unsafe { jit.lookup::<extern "C" fn() -> i64>("tier")? };
/// assert_eq!(tier.call(), 1);
/// while tier.call() != 2 {
///     std::thread::yield_now(); // The second tier is compiled in the background.
/// }
/// drop(tier);
/// assert!(functions.remove()?.iter().all(|removal| removal.is_complete()));
/// # Ok(()) }
/// ```
///
/// # How calls are counted
/// All tiers but the last are behind a counter: a few instructions that the library adds. The compiler adds nothing. Calls are
/// counted approximately, because threads count without synchronisation. The call that uses the count up keeps the arguments
/// in registers but the upper halves of 256-bit and 512-bit ones, as the first call of a lazy function does.
///
/// # Errors of the compiler
/// [`add`](Self::add) returns those of the first tier. The session's [error reporter](crate::JitBuilder::error_reporter) gets
/// those of later tiers; callers stay in the tier that they have. [`ReOptimized::reoptimize`] tries again.
#[derive(Clone)]
pub struct ReOptimizeLayer {
    jit: Jit,
    tiers: Arc<Tiers>,
}

/// Functions that a [`ReOptimizeLayer`] has added together. Cheap to clone. They stay when the last clone is dropped, and go with
/// [`remove`](Self::remove), or when the dylib is [cleared](JitDylib::clear) or removed.
#[derive(Clone)]
pub struct ReOptimized {
    jit: Jit,
    functions: Arc<[TieredFunction]>,
    /// Owns the lazy stubs of functions that are compiled at their first call.
    stubs: Option<ResourceTracker>,
}

impl Jit {
    /// Makes a layer that compiles functions in tiers. `calls` has a number for each tier but the last: the calls of that tier,
    /// at least one, after which the next tier is compiled.
    pub fn reoptimize_layer(&self, compiler: impl FunctionCompiler + 'static, calls: &[u64]) -> ReOptimizeLayer {
        let (compiler, calls) = (Box::new(compiler), calls.iter().map(|calls| (*calls).max(1)).collect());
        let (work, jit) = (BackgroundWork::new(self.session()), Arc::downgrade(&self.0));
        ReOptimizeLayer { jit: self.clone(), tiers: Arc::new(Tiers { compiler, calls, work, jit }) }
    }
}

impl ReOptimizeLayer {
    /// Compiles the first tier of functions, and defines them in a dylib.
    ///
    /// # Errors
    /// The error of the compiler; as [`Patch::link`](crate::Patch::link) and
    /// [`PreparedPatch::commit`](crate::PreparedPatch::commit), for example if a name is already defined. Then none of the
    /// functions is defined.
    ///
    /// # Safety
    /// For each tier of each function, which the compiler returns in this call or later:
    /// - It has the signature and ABI with which callers call the function.
    /// - It and all that was added to the dylib and to those that it links against may run: see
    ///   [`Patch::link`](crate::Patch::link).
    pub unsafe fn add(&self, dylib: &JitDylib, functions: &[&str]) -> Result<ReOptimized> {
        self.jit.0.check_own(dylib)?;
        let mut added = Vec::with_capacity(functions.len());
        for function in functions {
            match Tiered::start(&self.jit, &self.tiers, dylib, function) {
                Ok(function) => added.push(TieredFunction::compiled(function)),
                Err(error) => {
                    let undone = ReOptimized { jit: self.jit.clone(), functions: added.into(), stubs: None }.remove();
                    undone.err().into_iter().for_each(|error| dylib.report_error(error));
                    return Err(error);
                }
            }
        }
        Ok(ReOptimized { jit: self.jit.clone(), functions: added.into(), stubs: None })
    }

    /// As [`add`](Self::add), but the first tier of each function is compiled at its first call, as by a
    /// [`CompileOnDemandLayer`]. An error of the compiler for the first tier then goes where that layer says.
    ///
    /// The dylib also gets hidden names for each function: `NAME$body`, whose lookup compiles the function, and `NAME$tiers`.
    ///
    /// # Errors
    /// As [`CompileOnDemandLayer::add`]. Then none of the functions is defined.
    ///
    /// # Safety
    /// As [`add`](Self::add).
    pub unsafe fn add_on_demand(&self, dylib: &JitDylib, functions: &[&str]) -> Result<ReOptimized> {
        let stubs = dylib.create_tracker()?;
        let added: Arc<[TieredFunction]> =
            functions.iter().map(|function| TieredFunction::on_demand(function)).collect();
        let maker = OnDemandTiers { tiers: self.tiers.clone(), functions: added.clone() };
        CompileOnDemandLayer::with_maker(&self.jit, maker).add(&stubs, functions)?;
        Ok(ReOptimized { jit: self.jit.clone(), functions: added, stubs: Some(stubs) })
    }
}

impl ReOptimized {
    /// The names of the functions, in the order in which they were added.
    pub fn functions(&self) -> Vec<&str> {
        self.functions.iter().map(|function| function.name()).collect()
    }

    /// The tier that new callers of a function reach, from 1; 0 before its first tier is compiled. `None` if it is not one of
    /// the functions.
    pub fn tier(&self, function: &str) -> Option<u32> {
        self.find(function).map(|function| function.tier())
    }

    /// The versions of a function that are in memory: the current one, and replaced ones that something uses. `None` if it is
    /// not one of the functions, has no tier yet, or they were removed.
    pub fn versions(&self, function: &str) -> Option<Vec<PatchVersion>> {
        let patchable = self.find(function)?.tiered()?.versions().hold(&self.jit);
        patchable.ok().map(|patchable| patchable.versions())
    }

    /// Begins the next tier of a function now, whatever its count. False if it is not one of the functions, was removed, has no
    /// further tier, or is being compiled.
    pub fn reoptimize(&self, function: &str) -> bool {
        self.find(function).and_then(TieredFunction::tiered).is_some_and(|function| function.ask_for_next())
    }

    /// Removes the functions with all tiers. A tier that is being compiled is not committed. A handle to a function keeps the
    /// function and its tier in memory, and so does a caller that is inside. Returns a ticket for each part that was removed.
    ///
    /// # Errors
    /// As [`Patchable::remove`](crate::Patchable::remove), joined; all functions are removed in that case too.
    pub fn remove(&self) -> Result<Vec<Removal>> {
        let (mut removals, mut errors) = (Vec::new(), Vec::new());
        // First the lazy stubs, so that no first call begins a function from here on.
        for removed in self.stubs.iter().map(ResourceTracker::remove) {
            match removed {
                Ok(removed) => removals.push(removed),
                Err(error) => errors.push(error),
            }
        }
        for function in self.functions.iter() {
            match function.remove(&self.jit) {
                Ok(removed) => removals.extend(removed),
                Err(error) => errors.push(error),
            }
        }
        Error::join(errors).map(|()| removals)
    }

    fn find(&self, function: &str) -> Option<&TieredFunction> {
        self.functions.iter().find(|known| known.name() == function)
    }
}

impl fmt::Debug for ReOptimizeLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "re-optimising layer of {} tiers of {:?}", self.tiers.calls.len() + 1, self.jit.session())
    }
}

impl fmt::Debug for ReOptimized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.functions.iter()).finish()
    }
}
