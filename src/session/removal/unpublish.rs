//! [`RemovedDefinitions`]: definitions that were removed from a table, and the failure of everything that waits for them.
//!
//! Removal and failure both use it, in this order:
//!
//! 1. Under the dylib's lock, the symbols and lazy units are removed from the table.
//! 2. With no lock held, the lazy units are dropped.
//! 3. Every query that waits for one of these symbols fails with the cause.
//! 4. Symbols of other units that are emitted and wait for these symbols are removed too. Their queries fail in the
//!    same way.
//! 5. All failed queries are delivered. This comes last: a callback may wait for another of these queries.

use smallvec::SmallVec;

use crate::base::catch;
use crate::error::{Error, ErrorKind};
use crate::session::core::jit_dylib::{DylibInner, DylibState, RemovedSymbol, UnitRecord};
use crate::session::core::query::{Completions, Waiter, complete};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::types::symbol::SymbolState;
use crate::sync::Arc;

/// Symbols and lazy units that were removed from the table of their dylib.
pub(crate) struct RemovedDefinitions {
    /// Ready symbols may be missing, since nothing waits for them.
    pub(crate) symbols: Vec<RemovedSymbol>,
    pub(crate) units: Vec<UnitRecord>,
}

impl RemovedDefinitions {
    /// Fails what waits for these symbols of `dylib`, directly or through code that was linked against them. Calls `cause` only
    /// if a symbol is not ready. Returns whether a query failed.
    pub(crate) fn fail_waiters(mut self, dylib: &Arc<DylibInner>, cause: impl FnOnce() -> Error) -> bool {
        drop_units(dylib, std::mem::take(&mut self.units));
        if self.symbols.iter().all(|removed| removed.state == SymbolState::Ready) {
            return false;
        }
        self.fail_waiters_after(Completions::new(), dylib, cause)
    }

    /// As [`fail_waiters`](Self::fail_waiters). Delivers `completions` first.
    pub(crate) fn fail_waiters_after(
        self,
        mut completions: Completions,
        dylib: &Arc<DylibInner>,
        cause: impl FnOnce() -> Error,
    ) -> bool {
        let decided_before = completions.len();
        drop_units(dylib, self.units);
        fail_symbols(dylib, self.symbols, &cause(), &mut completions);
        let has_failed_query = completions.len() > decided_before;
        complete(&dylib.session.error_reporter, completions);
        has_failed_query
    }
}

/// Fails what waits for `symbols` of `dylib`. The caller delivers `completions`.
fn fail_symbols(dylib: &Arc<DylibInner>, symbols: Vec<RemovedSymbol>, cause: &Error, completions: &mut Completions) {
    let awaited: Vec<SymbolRef> = symbols
        .iter()
        .filter(|removed| removed.has_dependants || removed.state == SymbolState::Emitted)
        .map(|removed| SymbolRef { dylib: dylib.clone(), id: removed.id, name: removed.name.clone() })
        .collect();
    fail_queries(dylib, symbols, cause, completions);
    if awaited.is_empty() {
        return;
    }
    let mut dependants = dylib.session.waiting.lock().remove_groups_waiting_on(&awaited);
    dependants.sort_by_key(SymbolRef::sort_key);
    for group in dependants.chunk_by(|a, b| a.dylib.id == b.dylib.id) {
        let dylib = &group[0].dylib;
        let observers = &dylib.session.observers;
        let mut units: Vec<Arc<str>> = Vec::new();
        let removed: Vec<_> = {
            let mut state = dylib.state.lock();
            if observers.is_active() {
                let found = group.iter().filter_map(|symbol| state.table.symbol(symbol.id));
                units.extend(found.map(|symbol| state.table.unit_name(symbol).clone()));
            }
            group.iter().filter_map(|symbol| state.table.remove(symbol.id)).collect()
        };
        units.sort();
        units.dedup();
        units.iter().for_each(|unit| observers.deliver_refused(dylib, unit, cause));
        fail_queries(dylib, removed, cause, completions);
    }
}

/// Drops lazy units. A panic of a destructor goes to the error reporter: it must not stop the removal.
fn drop_units(dylib: &DylibInner, units: Vec<UnitRecord>) {
    for unit in units {
        if let Err(panic) = catch(|| drop(unit)) {
            let error = Error::other(format!("the drop of a lazy unit of `{}` panicked: {panic}", dylib.name));
            dylib.session.error_reporter.report(error);
        }
    }
}

impl DylibState {
    /// Removes everything that a just retired tracker owns. `None` if nothing can wait for it.
    pub(crate) fn unpublish(&mut self, core: &TrackerCore) -> Option<RemovedDefinitions> {
        self.clear_default_tracker(core);
        let (symbols, units) = self.table.remove_owned(core)?;
        let may_have_waiters = !symbols.is_empty() || !units.is_empty();
        may_have_waiters.then_some(RemovedDefinitions { symbols, units })
    }
}

/// Fails the queries that wait for `symbols`. The caller delivers `completions`.
fn fail_queries(dylib: &Arc<DylibInner>, symbols: Vec<RemovedSymbol>, cause: &Error, completions: &mut Completions) {
    if symbols.iter().all(|removed| removed.waiters.is_empty()) {
        return;
    }
    let is_in_progress = |state| !matches!(state, SymbolState::NeverSearched | SymbolState::Ready);
    let names = symbols.iter().filter(|r| is_in_progress(r.state)).map(|r| r.name.to_string()).collect();
    let waiters: SmallVec<[Waiter; 4]> = symbols.into_iter().flat_map(|removed| removed.waiters).collect();
    let error =
        ErrorKind::FailedToMaterialize { dylib: dylib.name.to_string(), symbols: names, cause: cause.clone() }.into();
    completions.extend(waiters.into_iter().filter_map(|waiter| waiter.query.fail(&error)));
}
