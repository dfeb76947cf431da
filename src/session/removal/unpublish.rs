//! [`RemovedDefinitions`]: what has left a table, and the telling of everybody who waited for it.
//!
//! Used by removal and by failure alike: in both, names are out of the table first, under the lock; then, with no lock
//! held, lazy units are dropped, symbols of other units that were emitted and waited for these fail with them, and
//! every query that waited for any of them gets the cause.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::query::{Completions, Waiter, complete};
use crate::session::symbols::symbol_table::{RemovedSymbol, UnitRecord};
use crate::session::types::symbol::{SymbolRef, SymbolState};
use crate::sync::Arc;

/// Symbols and lazy units that are no longer in their dylib's table.
pub(crate) struct RemovedDefinitions {
    /// Those that are ready need not be among them: nobody waits for such.
    pub(crate) symbols: Vec<RemovedSymbol>,
    pub(crate) units: Vec<UnitRecord>,
}

impl RemovedDefinitions {
    /// Fails whoever waits for these symbols of `dylib`, directly or through code that was linked against them. `cause` is
    /// asked only if there may be somebody. Whether there was anybody to tell.
    pub(crate) fn settle(self, dylib: &Arc<DylibInner>, cause: impl FnOnce() -> Error) -> bool {
        let RemovedDefinitions { symbols, units } = self;
        drop(units);
        if symbols.iter().all(|removed| removed.state == SymbolState::Ready) {
            return false;
        }
        let cause = &cause();
        let awaited: Vec<SymbolRef> = symbols
            .iter()
            .filter(|removed| removed.has_dependants || removed.state == SymbolState::Emitted)
            .map(|removed| SymbolRef { dylib: dylib.clone(), id: removed.id, name: removed.name.clone() })
            .collect();
        let mut is_heard = fail_waiters(dylib, symbols, cause);
        if awaited.is_empty() {
            return is_heard;
        }
        let mut dependants = dylib.session.waiting.lock().abandon(&awaited);
        dependants.sort_by_key(SymbolRef::order);
        for group in dependants.chunk_by(|a, b| a.dylib.id == b.dylib.id) {
            let dylib = &group[0].dylib;
            let observers = &dylib.session.observers;
            let mut units: Vec<Arc<str>> = Vec::new();
            let removed: Vec<_> = {
                let mut state = dylib.state.lock();
                if observers.is_heard() {
                    let found = group.iter().filter_map(|symbol| state.table.symbol(symbol.id));
                    units.extend(found.map(|symbol| state.table.place(symbol).clone()));
                }
                group.iter().filter_map(|symbol| state.table.remove(symbol.id)).collect()
            };
            units.sort();
            units.dedup();
            units.iter().for_each(|unit| observers.tell_refused(dylib, unit, cause));
            is_heard |= fail_waiters(dylib, removed, cause);
        }
        is_heard
    }
}

/// Whether there was anybody to tell.
fn fail_waiters(dylib: &Arc<DylibInner>, symbols: Vec<RemovedSymbol>, cause: &Error) -> bool {
    if symbols.iter().all(|removed| removed.waiters.is_empty()) {
        return false;
    }
    let at_work = |state| !matches!(state, SymbolState::NeverSearched | SymbolState::Ready);
    let names = symbols.iter().filter(|r| at_work(r.state)).map(|r| r.name.to_string()).collect();
    let waiters: SmallVec<[Waiter; 4]> = symbols.into_iter().flat_map(|removed| removed.waiters).collect();
    let error =
        ErrorKind::FailedToMaterialize { dylib: dylib.name.to_string(), symbols: names, cause: cause.clone() }.into();
    let completions: Completions = waiters.into_iter().filter_map(|waiter| waiter.query.fail(&error)).collect();
    let is_heard = !completions.is_empty();
    complete(completions);
    is_heard
}
