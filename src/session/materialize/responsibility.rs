//! [`MaterializationResponsibility`]: the duty of making some symbols real.
//!
//! It is the only way to resolve, emit or fail them (emitting: `emission.rs`). Parts of it can be handed on, to another
//! responsibility or back to a lazy unit. One that is dropped fails what it still owes, so no lookup can hang on
//! forgotten work.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, PrefetchHints, RecycledVec, impl_recycle};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibState, JitDylib, Visibility};
use crate::session::core::materialization::{self, Definition, MaterializationUnit, NameSink, ReplacedUnits};
use crate::session::core::observer::{Event, Observers};
use crate::session::core::query::{Completions, Query, complete};
use crate::session::core::resource_tracker::{self, ResourceKey, ResourceTracker, TrackerCore};
use crate::session::lookup::blocking::{self, LookupResults, RequiredState, SymbolRequest};
use crate::session::lookup::ready_lookup::{self, ReadyLookup};
use crate::session::removal::symbol_watch::SymbolWatch;
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::symbols::symbol_table::{RemovedSymbol, SymbolTable, UnitId, UnitRecord};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::session::work::dispatch::Task;
use crate::sync::{Arc, seeded_bug};

/// The duty to resolve and emit, or to fail, some symbols (ORC: `MaterializationResponsibility`).
#[must_use = "dropping a responsibility fails its symbols"]
pub struct MaterializationResponsibility {
    pub(crate) core: Arc<TrackerCore>,
    pub(crate) unit_name: Arc<str>,
    pub(crate) owed: RecycledVec<ClaimedSymbol>,
    /// Whether whoever began it hears how it ends, so that a failure is told even if nobody has looked for a symbol.
    pub(crate) is_awaited: bool,
}

impl_recycle!(ClaimedSymbol);

/// A symbol that a responsibility has to supply.
#[derive(Debug, Clone)]
pub struct ClaimedSymbol {
    /// The name.
    pub name: Name,
    /// The flags it was promised with.
    pub flags: SymbolFlags,
    pub(crate) id: SymbolId,
    /// By which whoever supplies it knows it: its position in its unit's symbols, if nothing else was agreed upon.
    pub(crate) number: Option<u32>,
    /// Bytes; zero when unknown.
    pub(crate) size: u64,
    /// Null, until it is [located](MaterializationResponsibility::locate), and of what has none.
    pub(crate) address: ExecutorAddr,
}

impl ClaimedSymbol {
    /// One that is in no table yet, and of unknown size.
    #[inline(always)] // where it is put
    pub(crate) fn promised(name: Name, flags: SymbolFlags, number: Option<u32>) -> ClaimedSymbol {
        ClaimedSymbol { name, flags, id: SymbolId::default(), number, size: 0, address: ExecutorAddr::NULL }
    }

    fn has_address(&self) -> bool {
        !self.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY)
    }
}

/// The address that a unit has for what it owes, if it has one.
#[inline]
fn known(unit: &str, owed: &ClaimedSymbol, address: Option<ExecutorAddr>) -> Result<ExecutorAddr> {
    let not_defined = || {
        let (unit, symbol) = (unit.to_string(), owed.name.to_string());
        ErrorKind::InterfaceMismatch { unit, problem: "does not define", symbol }
    };
    address.ok_or_else(|| not_defined().into())
}

/// What a unit owes that was taken out of the table.
fn owed_by(
    unit: &mut dyn MaterializationUnit,
    symbols: &[SymbolId],
    is_whole: bool,
    table: &mut SymbolTable,
) -> RecycledVec<ClaimedSymbol> {
    let mut owed = RecycledVec::with_capacity(symbols.len());
    let (mut given, mut next, mut others) = (0, 0, Vec::new());
    let mut take = |name: Name| {
        let number = Some(given);
        given += 1;
        // Both are in one order, but for what other definitions took.
        match symbols.get(next) {
            Some(id) if is_whole || table.is_named(*id, &name) => {
                next += 1;
                if let Some(flags) = table.begin(*id) {
                    owed.push(ClaimedSymbol { id: *id, ..ClaimedSymbol::promised(name, flags, number) });
                }
            }
            _ => others.push((name, number)),
        }
    };
    unit.give_names(&mut NameSink::new(&mut take));
    for id in symbols[next..].iter().copied() {
        let (Some(flags), Some(symbol)) = (table.begin(id), table.symbol(id)) else { continue };
        let name = table.name(symbol).to_name();
        let number = others.iter().find(|(other, _)| *other == name).and_then(|(_, number)| *number);
        owed.push(ClaimedSymbol { id, ..ClaimedSymbol::promised(name, flags, number) });
    }
    owed
}

/// A unit that somebody has looked for, and what it has to supply.
pub(crate) struct Materialization {
    unit: Box<dyn MaterializationUnit>,
    /// Names that other definitions took.
    discarded: Vec<Name>,
    responsibility: MaterializationResponsibility,
}

impl Materialization {
    pub(crate) fn run(self) {
        let Materialization { mut unit, discarded, responsibility } = self;
        for name in &discarded {
            unit.discard(name);
        }
        unit.materialize(responsibility);
    }
}

impl MaterializationResponsibility {
    pub(crate) fn new(core: Arc<TrackerCore>, unit_name: Arc<str>, owed: RecycledVec<ClaimedSymbol>) -> Self {
        MaterializationResponsibility { core, unit_name, owed, is_awaited: false }
    }

    /// The same, of which the caller sees to it that it hears how it ends.
    pub(crate) fn awaited(self) -> Self {
        let mut awaited = self;
        awaited.is_awaited = true;
        awaited
    }

    /// Takes a lazy unit out of the table; the task makes it real. Called under the dylib's lock.
    pub(crate) fn begin(state: &mut DylibState, unit: UnitId) -> Option<Task> {
        let record = state.table.take_unit(unit)?;
        let is_whole = record.is_whole();
        let UnitRecord { unit, symbols, discarded, .. } = record;
        let mut unit = unit?;
        let first = state.table.symbol(*symbols.first()?)?;
        let (core, unit_name) = (state.table.owner(first)?.clone(), state.table.place(first).clone());
        let owed = owed_by(&mut *unit, &symbols, is_whole, &mut state.table);
        let responsibility = MaterializationResponsibility::new(core, unit_name, owed);
        Some(Task::Materialize(Materialization { unit, discarded, responsibility }))
    }

    pub(crate) fn session(&self) -> &Arc<SessionInner> {
        &self.core.dylib().session
    }

    /// Who listens to the session.
    #[inline]
    pub(crate) fn observers(&self) -> &Observers {
        &self.session().observers
    }

    /// The dylib that the symbols belong to.
    pub fn dylib(&self) -> JitDylib {
        self.dylib_handle().clone()
    }

    /// The same, not counted.
    pub(crate) fn dylib_handle(&self) -> &JitDylib {
        &self.core.handle
    }

    /// The tracker that the symbols belong to, after transfers.
    pub fn tracker(&self) -> ResourceTracker {
        loop {
            let tracker = ResourceTracker::from_core(self.core.current());
            // Another handle may have been the last until now, and its drop may have won.
            if !tracker.is_merged() {
                return tracker;
            }
        }
    }

    /// The unit, as errors call it.
    pub fn unit_name(&self) -> &str {
        &self.unit_name
    }

    /// The symbols that are owed.
    pub fn symbols(&self) -> &[ClaimedSymbol] {
        &self.owed
    }

    /// A reference to an owed symbol, for the dependencies of others of the same responsibility.
    pub fn symbol(&self, name: &str) -> Option<SymbolRef> {
        let owed = self.owed.iter().find(|owed| owed.name.as_str() == name)?;
        Some(self.reference_to(owed))
    }

    pub(crate) fn reference_to(&self, owed: &ClaimedSymbol) -> SymbolRef {
        SymbolRef { dylib: self.core.dylib().clone(), id: owed.id, name: owed.name.clone() }
    }

    /// The owed symbols that somebody waits for now. Others may be looked for at any time: they are part of the duty all
    /// the same, unless they are [given back](Self::replace).
    pub fn requested_symbols(&self) -> Vec<Name> {
        let state = self.core.dylib().state.lock();
        self.owed.iter().filter(|owed| state.table.is_wanted(owed.id)).map(|owed| owed.name.clone()).collect()
    }

    /// Hands the duty for `names` on to another responsibility.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when one of them is not owed; nothing is handed on then.
    pub fn delegate(&mut self, names: &[&str]) -> Result<MaterializationResponsibility> {
        let is_owed = |name: &str| self.owed.iter().any(|owed| owed.name.as_str() == name);
        if let Some(unknown) = names.iter().find(|name| !is_owed(name)) {
            return Err(self.not_owed("delegates", unknown));
        }
        let is_delegated = |owed: &mut ClaimedSymbol| names.contains(&owed.name.as_str());
        let delegated = self.owed.extract_if(.., is_delegated).collect();
        Ok(MaterializationResponsibility {
            core: self.core.clone(),
            unit_name: self.unit_name.clone(),
            owed: delegated,
            is_awaited: self.is_awaited,
        })
    }

    /// Gives the symbols of `unit` back: they are lazy again, with `unit` to supply them. If somebody waits for one of
    /// them, the unit is called at once.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when one of them is not owed, or is resolved already; a defunct tracker. Nothing
    /// was given back then.
    pub fn replace(&mut self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        let mut names: Vec<Name> = unit.symbols().iter().map(|(name, _)| name.clone()).collect();
        // A name that the unit promises twice is one symbol.
        let mut seen = FxHashSet::default();
        names.retain(|name| seen.insert(name.clone()));
        if names.is_empty() {
            return Ok(());
        }
        let unit_name: Arc<str> = Arc::from(unit.name());
        let task = {
            let mut state = self.core.dylib().state.lock();
            state.check_now_live(&self.core)?;
            let owed: FxHashMap<&Name, SymbolId> = self.owed.iter().map(|owed| (&owed.name, owed.id)).collect();
            let mut ids = Vec::with_capacity(names.len());
            for name in &names {
                let id = owed.get(name).copied().filter(|id| {
                    state.table.symbol(*id).is_some_and(|symbol| symbol.state == SymbolState::Materializing)
                });
                ids.push(id.ok_or_else(|| self.not_owed("gives back", name))?);
            }
            let id = state.table.put_back(ids, Box::new(unit), &unit_name);
            let wanted = id.filter(|id| state.table.is_unit_wanted(*id));
            wanted.and_then(|id| MaterializationResponsibility::begin(&mut state, id))
        };
        self.owed.retain(|owed| !seen.contains(&owed.name));
        self.session().dispatcher.start(task);
        Ok(())
    }

    pub(crate) fn not_owed(&self, problem: &'static str, name: &str) -> Error {
        ErrorKind::NotOwed { unit: self.unit_name.to_string(), problem, symbol: name.to_string() }.into()
    }

    /// Runs `record` with the key of the symbols' tracker, while that can be neither removed nor transferred: the sound
    /// way to put a resource under a key (ORC: `withResourceKeyDo`).
    ///
    /// `record` runs under the tracker's own lock: it must only keep books, and not call back into the session.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`], and `record` was not run: give the resource back yourself.
    pub fn with_resource_key<R>(&self, record: impl FnOnce(ResourceKey) -> R) -> Result<R> {
        resource_tracker::with_resource_key(&self.core, record)
    }

    /// For who records something under the key, and has the memory for it.
    pub(crate) fn whereabouts(&self) -> &PrefetchHints {
        &self.core.whereabouts
    }

    /// Looks names up in the dylib's [search order](JitDylib::search_order), then calls `on_complete` with this
    /// responsibility and the results, in the order of `requests`, on whichever thread has them.
    pub fn lookup(
        self,
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        let order = self.dylib().whole_order();
        self.lookup_in(&order, requests, required, on_complete);
    }

    /// What [`lookup`](Self::lookup) would find of these names, if all of it is there already and they are few; otherwise `None`.
    /// Materialises nothing, and asks no generator.
    pub(crate) fn lookup_now(&self, names: &[&[u8]], required: RequiredState) -> Option<ReadyLookup> {
        ready_lookup::found_now(self.core.dylib(), names, required)
    }

    /// As [`lookup`](Self::lookup), in an order of the caller's.
    pub fn lookup_in(
        self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        // What is there already needs no query.
        if let Some(found) = ready_lookup::results_now(order, requests, required) {
            return on_complete(self, Ok(found.into_vec()));
        }
        let (dylib, unit_name) = (self.core.dylib().clone(), self.unit_name.clone());
        let query = Query::calling(required, move |outcome| on_complete(self, outcome));
        blocking::start(&dylib.session, order, requests, Some(&unit_name), query);
    }

    /// Tells later how the owed symbols have come on, without keeping anything alive. `None` when none is owed.
    pub fn watch(&self) -> Option<SymbolWatch> {
        let owed = self.owed.first()?;
        Some(SymbolWatch::new(self.core.dylib(), owed.id))
    }

    /// Leads back to the tracker later, wherever it is transferred, without keeping anything alive.
    pub fn watch_tracker(&self) -> TrackerWatch {
        TrackerWatch::new(self.core.clone())
    }

    /// Claims further symbols in the middle of the work. A weak one that is defined already is left out; the result says
    /// which were claimed.
    ///
    /// # Errors
    /// A duplicate strong definition, or a defunct tracker; nothing was claimed then.
    pub fn define_materializing(&mut self, symbols: &[(Name, SymbolFlags)]) -> Result<Vec<bool>> {
        let mut displaced = ReplacedUnits::default();
        let claimed = {
            let mut state = self.core.dylib().state.lock();
            // Asked under the dylib's lock: the tracker cannot be transferred from here on.
            let core = self.core.current();
            state.check_live(&core)?;
            if seeded_bug!("claimed_under_a_later_lock") {
                drop(state);
                state = self.core.dylib().state.lock();
            }
            let definitions = symbols.iter().map(Definition::of);
            materialization::claim(&mut state, &core, definitions, &self.unit_name, &mut displaced)?
        };
        drop(displaced);
        let outcome = claimed.iter().map(Option::is_some).collect();
        let claimed = symbols.iter().zip(claimed).filter_map(|((name, flags), id)| {
            Some(ClaimedSymbol { id: id?, ..ClaimedSymbol::promised(name.clone(), *flags, None) })
        });
        self.owed.extend(claimed);
        Ok(outcome)
    }

    /// Gives every owed symbol its address; links against them may go on. `address_of` is asked once for each.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when `address_of` does not know a promised symbol;
    /// [`ErrorKind::TrackerDefunct`] when the tracker was removed. Fail or drop the responsibility then.
    pub fn notify_resolved(&self, mut address_of: impl FnMut(&ClaimedSymbol) -> Option<ExecutorAddr>) -> Result<()> {
        let address = |owed| known(&self.unit_name, owed, address_of(owed));
        let addresses = self.owed.iter().filter(|owed| owed.has_address()).map(address);
        self.resolve(&self.owed, &addresses.collect::<Result<Vec<_>>>()?)
    }

    /// Notes the addresses of all owed symbols, and tells nobody yet. `address_of` is asked once for each that has one.
    ///
    /// # Errors
    /// As [`notify_resolved`](Self::notify_resolved), when one is not known.
    pub(crate) fn locate(&mut self, mut address_of: impl FnMut(&ClaimedSymbol) -> Option<ExecutorAddr>) -> Result<()> {
        self.owed.iter_mut().filter(|owed| owed.has_address()).try_for_each(|owed| {
            owed.address = known(&self.unit_name, owed, address_of(owed))?;
            Ok(())
        })
    }

    /// As [`notify_resolved`](Self::notify_resolved), of symbols that are [located](Self::locate).
    pub(crate) fn resolve_located(&self, own: &[ClaimedSymbol]) -> Result<()> {
        let addresses = own.iter().filter(|owed| owed.has_address()).map(|owed| owed.address);
        self.resolve(own, &addresses.collect::<SmallVec<[_; 16]>>())
    }

    /// As [`notify_resolved`](Self::notify_resolved), with the addresses of those that have one, in order.
    fn resolve(&self, own: &[ClaimedSymbol], addresses: &[ExecutorAddr]) -> Result<()> {
        let mut completions = Completions::new();
        {
            let resolved = own.iter().filter(|owed| owed.has_address()).zip(addresses);
            let mut state = self.core.dylib().state.lock();
            // All refusals first: a completion that was taken out of the table must be told.
            state.check_now_live(&self.core)?;
            if resolved.clone().any(|(owed, _)| state.table.symbol(owed.id).is_none()) {
                return Err(self.core.defunct());
            }
            for (owed, address) in resolved {
                state.table.resolve(owed.id, *address, &mut completions);
            }
        }
        if self.observers().is_heard() {
            self.tell_resolved(own);
        }
        complete(completions);
        Ok(())
    }

    #[cold]
    fn tell_resolved(&self, symbols: &[ClaimedSymbol]) {
        let (dylib, key, unit) = (self.dylib(), self.core.current().key(), self.unit_name());
        self.observers().tell(&Event::Resolved { dylib: &dylib, key, unit, symbols });
    }

    /// Gives up: the symbols leave the table, and whoever waits for them is told why; if nobody does, the session's
    /// [error reporter](crate::session::SessionOptions::error_reporter).
    pub fn fail(mut self, error: Error) {
        let own = std::mem::take(&mut self.owed);
        self.fail_symbols(&own, &error);
    }

    pub(crate) fn fail_symbols(&self, own: &[ClaimedSymbol], error: &Error) {
        let symbols: Vec<RemovedSymbol> = {
            let mut state = self.core.dylib().state.lock();
            // What is ready may be in use, and does not fail any more.
            let is_ready = |id| state.table.symbol(id).is_some_and(|symbol| symbol.state == SymbolState::Ready);
            let failed: Vec<_> = own.iter().map(|symbol| symbol.id).filter(|id| !is_ready(*id)).collect();
            failed.into_iter().filter_map(|id| state.table.remove(id)).collect()
        };
        if !own.is_empty() {
            self.observers().tell_refused(self.core.dylib(), &self.unit_name, error);
        }
        if symbols.is_empty() {
            return;
        }
        let names = symbols.iter().map(|removed| removed.name.to_string()).collect();
        let unpublished = RemovedDefinitions { symbols, units: Vec::new() };
        if !unpublished.settle(self.core.dylib(), || error.clone()) && !self.is_awaited {
            let (dylib, cause) = (self.core.dylib().name.to_string(), error.clone());
            self.session().unheard.report(ErrorKind::FailedToMaterialize { dylib, symbols: names, cause }.into());
        }
    }
}

impl Drop for MaterializationResponsibility {
    fn drop(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.owed);
        let error = ErrorKind::ResponsibilityDropped {
            unit: self.unit_name.to_string(),
            symbols: own.iter().map(|symbol| symbol.name.to_string()).collect(),
        };
        self.fail_symbols(&own, &error.into());
    }
}

impl fmt::Debug for MaterializationResponsibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "responsibility of {} for {:?}", self.unit_name, self.owed)
    }
}
