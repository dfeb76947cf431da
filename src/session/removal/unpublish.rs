//! [`RemovedDefinitions`]: definitions that were removed from a table, and the failure of everything that waits for them.
//!
//! Removal and failure both use it, in this order:
//!
//! 1. Under the dylib's lock, the symbols and lazy units are removed from the table. Symbols that were being materialised are
//!    recorded as failed, with the cause, so that code that was linked against them gets it. If a tracker has many symbols, all are
//!    hidden at once, and are removed in pieces (`symbols/symbol_table/unfinished.rs`). Other threads get the lock in between.
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
use crate::session::core::jit_dylib::{DylibEntries, DylibInner, DylibState, RemovedSymbol, TrackerRecord, UnitRecord};
use crate::session::core::query::{Completions, Waiter, complete};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::core::waiting::Needs;
use crate::session::symbols::symbol_table::remove::{RemovedItems, RemovedNames};
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::ids::DylibId;
use crate::session::types::symbol::SymbolState;
use crate::sync::Arc;

/// Symbols and lazy units that were removed from the table of their dylib.
#[derive(Default)]
pub(crate) struct RemovedDefinitions {
    /// Ready symbols may be missing, since nothing waits for them.
    pub(crate) symbols: Vec<RemovedSymbol>,
    pub(crate) units: Vec<UnitRecord>,
    /// Why the symbols fail. `None` if none of them was being materialised.
    pub(crate) cause: Option<Error>,
    /// Records of trackers that were merged into the removed one.
    merged: Vec<TrackerRecord>,
    /// Whether the caller must call [`remove_rest`](Self::remove_rest).
    has_rest: bool,
}

impl RemovedDefinitions {
    pub(crate) fn new(symbols: Vec<RemovedSymbol>, cause: Error) -> RemovedDefinitions {
        let cause = Some(cause);
        RemovedDefinitions { symbols, units: Vec::new(), cause, merged: Vec::new(), has_rest: false }
    }

    /// Nothing yet. Another thread may be removing symbols of the tracker.
    pub(crate) fn rest() -> RemovedDefinitions {
        RemovedDefinitions { has_rest: true, ..RemovedDefinitions::default() }
    }

    /// Removes the hidden symbols of the tracker piece by piece, with no lock held between two pieces.
    pub(crate) fn remove_rest(&mut self, core: &TrackerCore, verb: &'static str) {
        while self.has_rest {
            let mut state = core.dylib().state.lock();
            let piece = state.table.remove_piece(core.id);
            piece.iter().for_each(|piece| state.record_removed(core, verb, piece, &mut self.cause));
            state.unlock_fair();
            self.has_rest = piece.as_ref().is_some_and(|piece| !piece.is_last);
            // With no lock held: the lists may be long.
            piece.into_iter().for_each(|piece| self.add(piece));
        }
    }

    fn add(&mut self, piece: RemovedItems<DylibEntries>) {
        self.symbols.extend(piece.symbols);
        self.units.extend(piece.units);
        self.merged.extend(piece.record);
    }

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
    /// Removes what a just retired tracker owns: all of it, or the first piece. `verb` is the method that removes it. `None` if
    /// nothing can wait for it, and nothing is left. The caller drops `names` as late as it can.
    pub(crate) fn unpublish(
        &mut self,
        core: &TrackerCore,
        verb: &'static str,
        names: &mut RemovedNames,
    ) -> Option<RemovedDefinitions> {
        self.clear_default_tracker(core);
        self.table.remove_lost_groups(core.id);
        let first = self.table.remove_owned(core, names)?;
        if first.is_nothing() {
            return None;
        }
        let mut removed = RemovedDefinitions { has_rest: !first.is_last, ..RemovedDefinitions::default() };
        self.record_removed(core, verb, &first, &mut removed.cause);
        removed.add(first);
        Some(removed)
    }

    /// Records the removed symbols of a tracker as failed if they were being materialised. Sets the cause with the first of them.
    fn record_removed(
        &mut self,
        core: &TrackerCore,
        verb: &'static str,
        piece: &RemovedItems<DylibEntries>,
        cause: &mut Option<Error>,
    ) {
        // A lookup that waits for a lazy symbol has started its unit, so a lazy symbol has no waiter.
        let is_materializing =
            |removed: &&RemovedSymbol| !matches!(removed.state, SymbolState::NeverSearched | SymbolState::Ready);
        if piece.symbols.iter().any(|symbol| is_materializing(&symbol)) {
            let cause = cause.get_or_insert_with(|| core.removed_by(verb));
            self.table.record_failures(piece.symbols.iter().filter(is_materializing), cause, FailureNumber::NONE);
        }
    }
}

/// Fails the queries that wait for `symbols`. The caller delivers `completions`.
fn fail_queries(symbols: Vec<RemovedSymbol>, error: &Error, completions: &mut Completions) {
    let waiters: SmallVec<[Waiter; 4]> = symbols.into_iter().flat_map(|removed| removed.waiters).collect();
    completions.extend(waiters.into_iter().filter_map(|waiter| waiter.query.fail(error)));
}
