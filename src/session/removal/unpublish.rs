//! [`RemovedDefinitions`]: definitions that were removed from a table, and the failure of everything that waits for them.
//!
//! Removal and failure both use it, in this order:
//!
//! 1. Under the dylib's lock, the symbols and lazy units are removed from the table. Symbols that were being materialised are
//!    recorded as failed, with the cause, so that code that was linked against them gets it.
//! 2. With no lock held, the lazy units are dropped.
//! 3. Every query that waits for one of these symbols fails with the cause.
//! 4. Symbols of other units that are emitted and wait for these symbols are removed too, those that wait for them directly
//!    first. Their queries fail in the same way. Each error names the symbol that the unit needs, and the first cause. The graph
//!    knows these symbols as failing until they have left the table.
//! 5. All failed queries are delivered. This comes last: a callback may wait for another of these queries.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::base::catch;
use crate::error::Error;
use crate::session::core::jit_dylib::{DylibInner, DylibState, RemovedSymbol, UnitRecord};
use crate::session::core::query::{Completions, Waiter, complete};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::core::waiting::Needs;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::ids::DylibId;
use crate::session::types::symbol::SymbolState;
use crate::sync::Arc;

/// Symbols and lazy units that were removed from the table of their dylib.
pub(crate) struct RemovedDefinitions {
    /// Ready symbols may be missing, since nothing waits for them.
    pub(crate) symbols: Vec<RemovedSymbol>,
    pub(crate) units: Vec<UnitRecord>,
    /// Why the symbols fail. `None` if none of them was being materialised.
    pub(crate) cause: Option<Error>,
}

impl RemovedDefinitions {
    /// Fails what waits for these symbols of `dylib`, directly or through code that was linked against them. Returns whether a
    /// query failed.
    pub(crate) fn fail_waiters(self, dylib: &Arc<DylibInner>) -> bool {
        self.fail_waiters_after(Completions::new(), dylib)
    }

    /// As [`fail_waiters`](Self::fail_waiters). Delivers `completions` first.
    pub(crate) fn fail_waiters_after(self, mut completions: Completions, dylib: &Arc<DylibInner>) -> bool {
        let decided_before = completions.len();
        drop_units(dylib, self.units);
        if let Some(cause) = &self.cause {
            fail_symbols(dylib, self.symbols, cause, &mut completions);
        }
        let has_failed_query = completions.len() > decided_before;
        complete(&dylib.session.error_reporter, completions);
        has_failed_query
    }
}

/// Fails what waits for `symbols` of `dylib`. The caller delivers `completions`.
fn fail_symbols(dylib: &Arc<DylibInner>, symbols: Vec<RemovedSymbol>, cause: &Error, completions: &mut Completions) {
    let awaited: Vec<SymbolRef> = symbols
        .iter()
        .filter(|removed| removed.state != SymbolState::Ready)
        .filter(|removed| removed.has_dependants || removed.state == SymbolState::Emitted)
        .map(|removed| SymbolRef { dylib: dylib.clone(), id: removed.id, name: removed.name.clone() })
        .collect();
    if awaited.is_empty() && symbols.iter().all(|removed| removed.waiters.is_empty()) {
        return;
    }
    let error = failure_of(dylib, &symbols, cause);
    fail_queries(symbols, &error, completions);
    if !awaited.is_empty() {
        fail_dependants(dylib, &awaited, cause, &error, completions);
    }
}

/// Removes and fails the groups of emitted symbols that wait for `awaited`, removed symbols of `dylib`. `error` is the failure of
/// these symbols because of `cause`.
fn fail_dependants(
    dylib: &Arc<DylibInner>,
    awaited: &[SymbolRef],
    cause: &Error,
    error: &Error,
    completions: &mut Completions,
) {
    let session = &dylib.session;
    let groups = session.waiting.lock().remove_groups_waiting_on(awaited, error);
    let (mut errors, mut refused) = (Vec::with_capacity(groups.len()), FxHashSet::default());
    for group in &groups {
        let cause = match &group.needs {
            Needs::Nothing => cause,
            Needs::Symbol(awaited) => &Error::failed_to_materialize(&dylib.name, vec![awaited.name.to_string()], cause),
            // A group comes after the one that it needs.
            Needs::Group(number) => &errors[*number],
        };
        errors.push(fail_group(&group.symbols, cause, &mut refused, completions));
    }
    if !groups.is_empty() {
        session.waiting.lock().forget_failing(groups.iter().flat_map(|group| &group.symbols));
    }
}

/// Removes and fails the symbols of one group, which are of one dylib. Returns the error of the group. `refused` are the units
/// of which the observers have heard.
fn fail_group(
    group: &[SymbolRef],
    cause: &Error,
    refused: &mut FxHashSet<(DylibId, Arc<str>)>,
    completions: &mut Completions,
) -> Error {
    let Some(first) = group.first() else { return cause.clone() };
    let (dylib, observers) = (&first.dylib, &first.dylib.session.observers);
    let (mut units, mut removed) = (Vec::new(), Vec::new());
    {
        let mut state = dylib.state.lock();
        if observers.is_active() {
            let found = group.iter().filter_map(|symbol| state.table.symbol(symbol.id));
            units.extend(found.map(|symbol| state.table.unit_name(symbol).clone()));
        }
        removed.extend(group.iter().filter_map(|symbol| state.table.remove(symbol.id)));
        state.table.record_failures(removed.iter(), cause, dylib.session.failures.count());
    }
    units.retain(|unit| refused.insert((dylib.id, unit.clone())));
    units.iter().for_each(|unit| observers.deliver_refused(dylib, unit, cause));
    // The symbols of the failed unit itself have left the table already, and their queries have failed.
    if removed.is_empty() {
        return cause.clone();
    }
    let error = failure_of(dylib, &removed, cause);
    fail_queries(removed, &error, completions);
    error
}

/// The error of `symbols` of `dylib` that fail because of `cause`. Those with waiters are first, because they were asked for.
fn failure_of(dylib: &DylibInner, symbols: &[RemovedSymbol], cause: &Error) -> Error {
    let is_lazy = |removed: &&RemovedSymbol| removed.state == SymbolState::NeverSearched;
    let is_awaited = |removed: &&RemovedSymbol| !removed.waiters.is_empty();
    let mut names: Vec<String> = Vec::with_capacity(symbols.len());
    names.extend(symbols.iter().filter(is_awaited).map(|removed| removed.name.to_string()));
    let others = symbols.iter().filter(|removed| !is_awaited(removed) && !is_lazy(removed));
    names.extend(others.map(|removed| removed.name.to_string()));
    Error::failed_to_materialize(&dylib.name, names, cause)
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
    /// Removes everything that a just retired tracker owns. `verb` is the method that removes it. `None` if nothing can wait for it.
    pub(crate) fn unpublish(&mut self, core: &TrackerCore, verb: &'static str) -> Option<RemovedDefinitions> {
        self.clear_default_tracker(core);
        self.table.remove_lost_groups(core.id);
        let (symbols, units) = self.table.remove_owned(core)?;
        // A lookup that waits for a lazy symbol has started its unit, so a lazy symbol has no waiter.
        let is_materializing =
            |removed: &&RemovedSymbol| !matches!(removed.state, SymbolState::NeverSearched | SymbolState::Ready);
        let cause = symbols.iter().any(|removed| is_materializing(&removed)).then(|| core.removed_by(verb));
        if let Some(cause) = &cause {
            self.table.record_failures(symbols.iter().filter(is_materializing), cause, FailureNumber::NONE);
        }
        let may_have_waiters = !symbols.is_empty() || !units.is_empty();
        may_have_waiters.then_some(RemovedDefinitions { symbols, units, cause })
    }
}

/// Fails the queries that wait for `symbols`. The caller delivers `completions`.
fn fail_queries(symbols: Vec<RemovedSymbol>, error: &Error, completions: &mut Completions) {
    let waiters: SmallVec<[Waiter; 4]> = symbols.into_iter().flat_map(|removed| removed.waiters).collect();
    completions.extend(waiters.into_iter().filter_map(|waiter| waiter.query.fail(error)));
}
