//! [`MaterializationResponsibility`]: its operations, except emission (`emission.rs`).
//!
//! A responsibility is the only way to resolve, emit or fail its symbols. Some of its symbols can be moved to another
//! responsibility ([`delegate`](MaterializationResponsibility::delegate)), or back to a lazy unit
//! ([`replace`](MaterializationResponsibility::replace)). Dropping it fails the symbols that it still has. So a lookup
//! never waits for ever because a responsibility was lost.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, PrefetchHints};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::jit_dylib::{JitDylib, RemovedSymbol, check_order};
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::observer::Event;
use crate::session::core::query::{Completions, Query, complete};
use crate::session::core::resource_tracker;
use crate::session::core::resource_tracker::ResourceTracker;
use crate::session::core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::core::symbol_ref::{LookupResults, SymbolRef};
use crate::session::lookup::lazy_unit::{begun_since, take_unit};
use crate::session::lookup::origin::Origin;
use crate::session::lookup::ready_lookup::ReadyLookup;
use crate::session::lookup::searched::Searched;
use crate::session::lookup::{begin, ready_lookup};
use crate::session::materialize::define::{ReplacedUnits, claim_symbols};
use crate::session::pins::pinned::Pinned;
use crate::session::removal::symbol_watch::SymbolWatch;
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::symbols::symbol_table::insert::Definition;
use crate::session::types::ids::ResourceKey;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, seeded_bug};

/// The address of a symbol, or the error that its unit does not define it.
#[inline(always)] // into a loop over the symbols of an object
fn require_address(unit: &str, claimed: &ClaimedSymbol, address: Option<ExecutorAddr>) -> Result<ExecutorAddr> {
    match address {
        Some(address) => Ok(address),
        None => Err(not_defined(unit, &claimed.name)),
    }
}

#[cold]
fn not_defined(unit: &str, symbol: &Name) -> Error {
    let (unit, symbol) = (unit.to_string(), symbol.to_string());
    ErrorKind::InterfaceMismatch { unit, problem: "does not define", symbol }.into()
}

impl MaterializationResponsibility {
    /// The tracker that owns the symbols now. After a transfer, this is the destination.
    pub fn tracker(&self) -> ResourceTracker {
        loop {
            let tracker = ResourceTracker::from_core(self.core.current());
            // Between `current` and `from_core` the tracker's last handle may have been dropped, which merges the
            // tracker.
            if !tracker.is_merged() {
                return tracker;
            }
        }
    }

    /// The name of the unit in errors.
    pub fn unit_name(&self) -> &str {
        &self.unit_name
    }

    /// The symbols that this responsibility has to define (ORC: `getSymbols`).
    pub fn symbols(&self) -> &[ClaimedSymbol] {
        &self.claimed
    }

    /// A reference to one of the symbols, for the dependencies of other symbols of the same responsibility.
    pub fn symbol(&self, name: &str) -> Option<SymbolRef> {
        let claimed = self.claimed.iter().find(|claimed| claimed.name.as_str() == name)?;
        Some(self.reference_to(claimed))
    }

    pub(crate) fn reference_to(&self, claimed: &ClaimedSymbol) -> SymbolRef {
        SymbolRef { dylib: self.core.dylib().clone(), id: claimed.id, name: claimed.name.clone() }
    }

    /// The symbols that lookups wait for now (ORC: `getRequestedSymbols`). A lookup may find the others at any time.
    /// They too must be defined, unless they are [replaced](Self::replace) by a lazy unit.
    pub fn requested_symbols(&self) -> Vec<Name> {
        let state = self.core.dylib().state.lock();
        self.claimed
            .iter()
            .filter(|claimed| state.table.has_waiters(claimed.id))
            .map(|claimed| claimed.name.clone())
            .collect()
    }

    /// Moves the symbols `names` to a new responsibility (ORC: `delegate`). Looks at each symbol that this one has once, so
    /// move many symbols in one call.
    ///
    /// # Errors
    /// [`ErrorKind::NotResponsible`] when one of them is not a symbol of this responsibility; nothing is moved then.
    pub fn delegate(&mut self, names: &[&str]) -> Result<MaterializationResponsibility> {
        let wanted: FxHashSet<&str> = names.iter().copied().collect();
        let is_wanted = |claimed: &ClaimedSymbol| wanted.contains(claimed.name.as_str());
        if self.claimed.iter().filter(|claimed| is_wanted(claimed)).count() < wanted.len() {
            let claimed: FxHashSet<&str> = self.claimed.iter().map(|claimed| claimed.name.as_str()).collect();
            let unknown = names.iter().find(|name| !claimed.contains(**name));
            return Err(self.not_owed("delegates", unknown.unwrap_or(&"")));
        }
        let delegated = self.claimed.extract_if(.., |claimed| is_wanted(claimed)).collect();
        Ok(MaterializationResponsibility {
            core: self.core.clone(),
            unit_name: self.unit_name.clone(),
            claimed: delegated,
            caller_gets_outcome: self.caller_gets_outcome,
            since: self.since,
        })
    }

    /// Makes the symbols of `unit` lazy again, to be materialised by `unit` (ORC: `replace`). If a lookup waits for one
    /// of them, the unit is dispatched at once.
    ///
    /// # Errors
    /// [`ErrorKind::NotResponsible`] when one of them is not a symbol of this responsibility, or is resolved already; or a
    /// defunct tracker or dylib. Nothing is changed then.
    pub fn replace(&mut self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        let mut names: Vec<Name> = unit.symbols().iter().map(|(name, _)| name.clone()).collect();
        // A name that the unit defines twice is one symbol.
        let mut seen = FxHashSet::default();
        names.retain(|name| seen.insert(name.clone()));
        if names.is_empty() {
            return Ok(());
        }
        let unit_name: Arc<str> = Arc::from(unit.name());
        let task = {
            let mut state = self.core.dylib().state.lock();
            state.check_current_live(&self.core)?;
            let claimed: FxHashMap<&Name, SymbolId> =
                self.claimed.iter().map(|claimed| (&claimed.name, claimed.id)).collect();
            let mut ids = Vec::with_capacity(names.len());
            for name in &names {
                let id = claimed.get(name).copied().filter(|id| {
                    state.table.symbol(*id).is_some_and(|symbol| symbol.state == SymbolState::Materializing)
                });
                ids.push(id.ok_or_else(|| self.not_owed("replaces", name))?);
            }
            let id = state.table.make_lazy_again(ids, Box::new(unit), &unit_name);
            let wanted = id.filter(|id| state.table.unit_has_waiters(*id));
            wanted.and_then(|id| take_unit(&mut state, id)).map(|task| begun_since(task, self.since))
        };
        self.claimed.retain(|claimed| !seen.contains(&claimed.name));
        self.session().dispatcher.start(task);
        Ok(())
    }

    /// The error that `name` is not a symbol of this responsibility. `problem` is a verb: what was to be done with it.
    pub(crate) fn not_owed(&self, problem: &'static str, name: &str) -> Error {
        ErrorKind::NotResponsible { unit: self.unit_name.to_string(), problem, symbol: name.to_string() }.into()
    }

    /// Runs `record` with the key of the symbols' tracker (ORC: `withResourceKeyDo`). The tracker can be neither
    /// removed nor transferred meanwhile. So this is the only sound way to record a resource under a key.
    ///
    /// `record` runs under the tracker's own lock. It must only write records; a call back into the session would
    /// deadlock.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] when the tracker was removed. `record` was not run: the caller must release the
    /// resource.
    pub fn with_resource_key<R>(&self, record: impl FnOnce(ResourceKey) -> R) -> Result<R> {
        resource_tracker::with_resource_key(&self.core, record)
            .map_err(|error| self.with_cause_of(&self.claimed, error))
    }

    /// The call that has removed the symbols `own` meanwhile, if `error` is that their tracker or dylib is defunct.
    #[cold]
    pub(crate) fn with_cause_of(&self, own: &[ClaimedSymbol], error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::TrackerDefunct { removed_by: None, .. } | ErrorKind::DylibDefunct { .. })
        {
            return error;
        }
        let state = self.core.dylib().state.lock();
        let failure = own.iter().find_map(|symbol| state.table.failure_of_definition(symbol.id, &symbol.name)).cloned();
        failure.unwrap_or(error)
    }

    /// The addresses that a removal of the tracker will touch. A manager that records memory under the key adds to
    /// them.
    pub(crate) fn prefetch_hints(&self) -> &PrefetchHints {
        &self.core.prefetch_hints
    }

    /// Looks names up in the dylib's [search order](JitDylib::search_order). Then calls `on_complete` with this
    /// responsibility and the results, in the order of `requests`, on the thread that has the last result. A panic of
    /// `on_complete` goes to the caller if the results are there already, else to the error reporter.
    pub fn lookup(
        self,
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        // If every symbol is far enough along, no query is needed.
        let names: SmallVec<[&[u8]; 8]> = requests.iter().map(|request| request.name.as_bytes()).collect();
        if let Some(found) = self.try_lookup(&names, required) {
            let results = found.results(self.core.dylib(), requests);
            return on_complete(self, Ok(results));
        }
        let order = Searched::from_dylib(self.dylib_handle());
        self.start_lookup(order, requests, required, on_complete);
    }

    fn start_lookup(
        self,
        order: Searched<'_>,
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        let (dylib, unit_name, since) = (self.core.dylib().clone(), self.unit_name.clone(), self.since);
        let query = Query::with_callback(required, move |outcome| on_complete(self, outcome));
        let origin = Origin { needed_by: Some(&unit_name), since };
        begin::start(&dylib.session, order, requests, origin, query);
    }

    /// What [`lookup`](Self::lookup) would find for these names. `None` unless the names are few and all are found, in
    /// the required state or beyond. Materialises nothing, and calls no generator.
    pub(crate) fn try_lookup(&self, names: &[&[u8]], required: RequiredState) -> Option<ReadyLookup> {
        ready_lookup::try_lookup(self.core.dylib(), names, required)
    }

    /// As [`lookup`](Self::lookup), in the given search order.
    pub fn lookup_in(
        self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        if let Err(error) = check_order(&self.core.dylib().session, order) {
            return on_complete(self, Err(error));
        }
        // If every symbol is far enough along, no query is needed.
        if let Some(found) = ready_lookup::try_lookup_results(order, requests, required) {
            return on_complete(self, Ok(found.into_vec()));
        }
        self.start_lookup(order.into(), requests, required, on_complete);
    }

    /// A watch of the first symbol: it tells later how far the symbols have come, and keeps nothing alive. `None` when
    /// this responsibility has no symbols.
    pub fn watch(&self) -> Option<SymbolWatch> {
        let first = self.claimed.first()?;
        Some(SymbolWatch::new(self.core.dylib(), first.id))
    }

    /// A watch of the tracker: it leads to the tracker later, also after transfers, and keeps nothing alive.
    pub fn watch_tracker(&self) -> TrackerWatch {
        TrackerWatch::new(self.core.clone())
    }

    /// Adds symbols to this responsibility (ORC: `defineMaterializing`). A weak symbol that is already defined is left
    /// out. The result says for each symbol whether it was added.
    ///
    /// # Errors
    /// A duplicate strong definition, or a defunct tracker or dylib. Nothing is added then.
    pub fn define_materializing(&mut self, symbols: &[(Name, SymbolFlags)]) -> Result<Vec<bool>> {
        let mut replaced = ReplacedUnits::default();
        let claimed = {
            let mut state = self.core.dylib().state.lock();
            // S2: read under the dylib's lock, so that the tracker cannot be transferred from here on.
            let core = self.core.current();
            state.check_live(&core)?;
            if seeded_bug!("claimed_under_a_later_lock") {
                drop(state);
                state = self.core.dylib().state.lock();
            }
            let definitions = symbols.iter().map(Definition::declared);
            claim_symbols(&mut state, &core, definitions, &[], &self.unit_name, &mut replaced)?
        };
        drop(replaced);
        let outcome = claimed.iter().map(Option::is_some).collect();
        let added = symbols.iter().zip(claimed).filter_map(|((name, flags), id)| {
            Some(ClaimedSymbol { id: id?, ..ClaimedSymbol::with_flags(name.clone(), flags.declared(), None) })
        });
        self.claimed.extend(added);
        Ok(outcome)
    }

    /// Sets the address of every symbol, so that other code may be linked against them (ORC: `notifyResolved`).
    /// `address_of` is called once for each symbol that has an address.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when `address_of` returns `None`; [`ErrorKind::TrackerDefunct`] when the
    /// tracker was removed. Fail or drop the responsibility then.
    pub fn notify_resolved(&self, mut address_of: impl FnMut(&ClaimedSymbol) -> Option<ExecutorAddr>) -> Result<()> {
        let address = |claimed| require_address(&self.unit_name, claimed, address_of(claimed));
        let addresses = self.claimed.iter().filter(|claimed| claimed.has_address()).map(address);
        self.resolve(&self.claimed, &addresses.collect::<Result<Vec<_>>>()?)
    }

    /// Stores the addresses of all symbols in this responsibility. The table does not have them yet. `address_of` is
    /// called once for each symbol that has an address.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when `address_of` returns `None`.
    pub(crate) fn locate(&mut self, mut address_of: impl FnMut(&ClaimedSymbol) -> Option<ExecutorAddr>) -> Result<()> {
        self.claimed.iter_mut().filter(|claimed| claimed.has_address()).try_for_each(|claimed| {
            claimed.address = require_address(&self.unit_name, claimed, address_of(claimed))?;
            Ok(())
        })
    }

    /// As [`notify_resolved`](Self::notify_resolved), for symbols that are [located](Self::locate).
    pub(crate) fn resolve_located(&self, own: &[ClaimedSymbol]) -> Result<()> {
        let addresses = own.iter().filter(|claimed| claimed.has_address()).map(|claimed| claimed.address);
        self.resolve(own, &addresses.collect::<SmallVec<[_; 16]>>())
    }

    /// Resolves `own`. `addresses` are those of the symbols that have one, in order.
    fn resolve(&self, own: &[ClaimedSymbol], addresses: &[ExecutorAddr]) -> Result<()> {
        self.try_resolve(own, addresses).map_err(|error| self.with_cause_of(own, error))
    }

    fn try_resolve(&self, own: &[ClaimedSymbol], addresses: &[ExecutorAddr]) -> Result<()> {
        let mut completions = Completions::new();
        {
            let resolved = own.iter().filter(|claimed| claimed.has_address()).zip(addresses);
            let mut state = self.core.dylib().state.lock();
            // All errors come before the first change: a completion that was taken out of the table must be delivered.
            state.check_current_live(&self.core)?;
            if resolved.clone().any(|(claimed, _)| state.table.symbol(claimed.id).is_none()) {
                return Err(self.core.defunct());
            }
            for (claimed, address) in resolved {
                state.table.resolve(claimed.id, *address, &mut completions);
            }
        }
        if self.observers().is_active() {
            self.deliver_resolved(own);
        }
        complete(&self.session().error_reporter, completions);
        Ok(())
    }

    #[cold]
    fn deliver_resolved(&self, symbols: &[ClaimedSymbol]) {
        let (dylib, key, unit) = (self.dylib(), self.core.current().key(), self.unit_name());
        self.observers().deliver(&Event::Resolved { dylib: &dylib, key, unit, symbols });
    }

    /// Fails the symbols (ORC: `failMaterialization`): they leave the table, and the lookups that wait for them fail
    /// with `error`. If no lookup waits, the session's [error reporter](crate::session::SessionOptions::error_reporter)
    /// receives the error.
    pub fn fail(mut self, error: Error) {
        let own = std::mem::take(&mut self.claimed);
        let error = self.with_cause_of(&own, error);
        self.fail_symbols(&own, &error, Completions::new());
    }

    /// Fails those of `own` that are not ready. Then delivers `completions` and what failed with the symbols.
    pub(crate) fn fail_symbols(&self, own: &[ClaimedSymbol], error: &Error, completions: Completions) {
        let mut symbols: Vec<RemovedSymbol> = Vec::new();
        for piece in own.chunks(FAILED_PIECE) {
            let mut state = self.core.dylib().state.lock();
            // A ready symbol may be in use, so it stays.
            let is_ready = |id| state.table.symbol(id).is_some_and(|symbol| symbol.state == SymbolState::Ready);
            let failed: SmallVec<[_; 16]> = piece.iter().map(|symbol| symbol.id).filter(|id| !is_ready(*id)).collect();
            let first = symbols.len();
            symbols.extend(failed.into_iter().filter_map(|id| state.table.remove(id)));
            state.table.record_failures(symbols[first..].iter(), error, self.session().failures.count());
            state.unlock_fair();
        }
        if !own.is_empty() {
            self.observers().deliver_refused(self.core.dylib(), &self.unit_name, error);
        }
        if symbols.is_empty() {
            return complete(&self.session().error_reporter, completions);
        }
        let names = symbols.iter().map(|removed| removed.name.to_string()).collect();
        let unpublished = RemovedDefinitions::new(symbols, error.clone());
        let has_failed_query = unpublished.fail_waiters_after(completions, self.core.dylib());
        if !has_failed_query && !self.caller_gets_outcome {
            let error = Error::failed_to_materialize(&self.core.dylib().name, names, error);
            self.session().error_reporter.report(error);
        }
    }
}

/// How many symbols fail under one lock. Other threads may see some of a failed unit's symbols before it has failed as a whole.
const FAILED_PIECE: usize = 128;

impl Drop for MaterializationResponsibility {
    fn drop(&mut self) {
        if self.claimed.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.claimed);
        let error = ErrorKind::ResponsibilityDropped {
            unit: self.unit_name.to_string(),
            symbols: own.iter().map(|symbol| symbol.name.to_string()).collect(),
        };
        self.fail_symbols(&own, &error.into(), Completions::new());
    }
}

impl fmt::Debug for MaterializationResponsibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "responsibility of {} for {:?}", self.unit_name, self.claimed)
    }
}
