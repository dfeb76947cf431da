//! [`Jit`] and [`JitInner`]: the handle of a session with its services, and what all clones of the handle share.
//!
//! The other files of this room import this one and add methods to [`Jit`]; this one imports only the lists in `spare_dylibs.rs` and `session_inputs.rs`. So it also
//! holds the three steps that they have in common: find a symbol, run the initialisers that wait, and report a missing symbol.

use rustc_hash::FxHashMap;

use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind, MemoryFault, Result};
#[cfg(feature = "executor")]
use crate::executor::ExecutorProcess;
use crate::host::Executor;
#[cfg(feature = "reload")]
use crate::jit::reload_points::ReloadPoints;
use crate::jit::session_inputs::{InputSource, SessionInputs};
use crate::jit::spare_dylibs::SpareDylibs;
use crate::layer::ObjectLinkingLayer;
use crate::platform::{InitFiniRegistry, LazyReexports, StaticLibraries, StubManager};
use crate::session::{self, ExecutionSession, JitDylib, ResourceTracker, SymbolFlags, SymbolRef, SymbolWatch};
use crate::sync::{Arc, Mutex, Weak};

/// A session with the services that most embedders need (ORC: `LLJIT`): code memory, an object layer, initialisers, stubs,
/// and the symbols of the process.
///
/// Cheap to clone. The session ends when the last clone is dropped; [`ExecutionSession::end`] ends it earlier.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.add_object(&tracker, "add.o", ADD)?;
///
/// // SAFETY: `add` has this signature, and the object may run.
/// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
/// assert_eq!(add.call(2, 3), 5);
///
/// drop(add); // A handle keeps its code in memory.
/// assert!(tracker.remove()?.is_complete());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Jit(pub(in crate::jit) Arc<JitInner>);

/// What the clones of a [`Jit`] share.
pub(in crate::jit) struct JitInner {
    pub(in crate::jit) session: ExecutionSession,
    pub(in crate::jit) runs: Runs,
    /// The process that runs linked code.
    pub(in crate::jit) executor: Arc<dyn Executor>,
    pub(in crate::jit) main: JitDylib,
    pub(in crate::jit) process: JitDylib,
    /// The generator of that dylib.
    #[cfg(feature = "reload")]
    pub(in crate::jit) process_symbols: Arc<crate::platform::ProcessSymbols>,
    pub(in crate::jit) layer: Arc<ObjectLinkingLayer>,
    pub(in crate::jit) stubs: Arc<StubManager>,
    pub(in crate::jit) lazy: Arc<LazyReexports>,
    pub(in crate::jit) initializers: Arc<InitFiniRegistry>,
    /// By dylib id. Weak, because the dylib holds its static libraries as a generator.
    pub(in crate::jit) static_libraries: Mutex<FxHashMap<u64, Weak<StaticLibraries>>>,
    pub(in crate::jit) spare_dylibs: SpareDylibs,
    /// Set by the first reloader.
    #[cfg(feature = "reload")]
    pub(in crate::jit) reload_points: crate::sync::StaticCell<Arc<ReloadPoints>>,
    /// `None`: the session does not keep what was added.
    pub(in crate::jit) restart_state: Option<RestartState>,
}

#[cfg(feature = "executor")]
type Rebuild = dyn Fn(&ExecutorProcess) -> Result<Jit> + Send + Sync;

/// What a session keeps for a restart.
pub(in crate::jit) struct RestartState {
    pub(in crate::jit) inputs: Arc<SessionInputs>,
    /// Builds a session with the same settings in another executor.
    #[cfg(feature = "executor")]
    pub(in crate::jit) rebuild: Box<Rebuild>,
}

/// Where linked code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jit) enum Runs {
    Here,
    /// In the process of an executor.
    Elsewhere,
    /// The memory manager is for links that are never run.
    Never,
}

impl JitInner {
    /// Checks that `dylib` is of this session. The layer and the managers here free what they record only when this session
    /// reclaims it.
    #[inline]
    pub(in crate::jit) fn check_own(&self, dylib: &JitDylib) -> Result<()> {
        dylib.check_same_session(&self.main)
    }

    /// Checks that linked code may run. Each method of this room that runs linked code, or returns a handle that calls it,
    /// checks this first: in offline memory a call would jump to an address where nothing is mapped.
    #[inline]
    pub(in crate::jit) fn check_can_run(&self) -> Result<()> {
        if self.runs == Runs::Here { Ok(()) } else { self.check_elsewhere() }
    }

    #[cold]
    fn check_elsewhere(&self) -> Result<()> {
        if self.runs == Runs::Never { Err(MemoryFault::NeverRuns.into()) } else { self.executor.check() }
    }

    /// Checks that linked code does not run in another process. Each method of this room that returns a handle with a pointer checks this
    /// first.
    #[inline]
    pub(in crate::jit) fn check_runs_here(&self) -> Result<()> {
        if self.runs == Runs::Elsewhere { Err(ErrorKind::RunsElsewhere.into()) } else { Ok(()) }
    }

    /// Adds something by `add`. If that succeeds, a session that keeps its objects records `source` under the key of the tracker.
    #[inline]
    pub(in crate::jit) fn add_recorded<T, R>(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        input: T,
        source: impl FnOnce(&T) -> InputSource,
        add: impl FnOnce(T) -> Result<R>,
    ) -> Result<R> {
        let Some(state) = &self.restart_state else { return add(input) };
        let source = source(&input);
        let added = add(input)?;
        state.inputs.record(tracker, name, source);
        Ok(added)
    }

    /// The address and the flags of a symbol that is ready, or is linked by this call.
    #[inline]
    pub(in crate::jit) fn find_address(&self, dylib: &JitDylib, name: &str) -> Result<(ExecutorAddr, SymbolFlags)> {
        self.check_own(dylib)?;
        dylib.find_address(name)
    }

    /// As [`find_initialized`](Self::find_initialized), if no object of the session waits for its initialisers before and
    /// after `find` runs. Then the object of the symbol is initialised, and no walk of the link order is needed.
    #[inline]
    pub(in crate::jit) fn find_quietly<R>(&self, find: impl FnOnce() -> Result<R>) -> Result<Option<R>> {
        self.check_can_run()?;
        let Some(before) = self.initializers.finished_queue() else { return Ok(None) };
        let found = find()?;
        Ok((self.initializers.finished_queue() == Some(before)).then_some(found))
    }

    /// Finds a symbol that is ready, or links it. Then keeps its code in memory with `hold`, unless the symbol is absolute,
    /// and runs the initialisers that wait.
    pub(in crate::jit) fn find_initialized<H>(
        &self,
        dylib: &JitDylib,
        name: &str,
        hold: impl FnOnce(&SymbolRef) -> Option<H>,
    ) -> Result<(ExecutorAddr, Option<H>)> {
        self.check_can_run()?;
        // Read before the search, so that a failure on another thread during the search counts as well.
        let failures = self.initializers.failures();
        self.check_own(dylib)?;
        let found = dylib.find_from(name)?;
        let held = match &found.symbol {
            Some(symbol) => Some(hold(symbol).ok_or_else(|| not_found(dylib, name))?),
            None => None,
        };
        self.run_pending(dylib);
        // The symbol may be gone for two reasons. Either its tracker was removed, possibly before its initialisers ran,
        // and then they never run. Or one of its initialisers failed.
        if found.symbol.as_ref().is_some_and(|symbol| SymbolWatch::of(symbol).is_gone()) {
            return Err(match self.initializers.failures() != failures {
                true => removed_by_failed_initializer(dylib, name),
                false => not_found(dylib, name),
            });
        }
        Ok((found.address, held))
    }

    /// Runs the initialisers that wait: those of the dependencies first, then those of the dylib. Returns the number of
    /// functions called.
    pub(in crate::jit) fn run_pending(&self, dylib: &JitDylib) -> usize {
        if !self.initializers.has_pending() {
            return 0;
        }
        let order = dylib.search_order();
        self.initializers.run_pending_of_all(order.iter().rev().map(|(dylib, _)| dylib))
    }
}

/// The error for one missing symbol. If its definition failed, the error has the cause.
pub(in crate::jit) fn not_found(dylib: &JitDylib, name: &str) -> Error {
    session::not_found_in(dylib, name)
}

/// The error for a symbol whose object was removed because one of its initialisers failed.
pub(in crate::jit) fn removed_by_failed_initializer(dylib: &JitDylib, name: &str) -> Error {
    ErrorKind::InitializerFailed { symbol: name.to_string(), dylib: dylib.name().to_string() }.into()
}
