//! [`MaterializationUnit`] and [`MaterializationResponsibility`]: a lazy definition, and the duty of making it real.
//!
//! A unit promises symbols. When one is looked for, the unit is taken out of the table and called with a responsibility:
//! the only way to resolve, emit or fail those symbols. A responsibility that is dropped fails what it still owes, so no
//! lookup can hang on forgotten work.

use std::fmt;

use rustc_hash::FxHashSet;

use crate::base::{ExecutorAddr, Name};
use crate::error::{Error, ErrorKind, Result};
use crate::session::dispatch::Task;
use crate::session::execution_session::SessionInner;
use crate::session::jit_dylib::{DylibState, JitDylib};
use crate::session::lookup::{self, LookupResults, RequiredState, SymbolRequest};
use crate::session::resource_tracker::{self, ResourceKey, ResourceTracker, TrackerCore};
use crate::session::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::session::symbol_table::{NewSymbol, RemovedSymbol, UnitId, UnitRecord};
use crate::session::symbol_watch::SymbolWatch;
use crate::session::unpublish::Unpublished;
use crate::session::waiting;
use crate::sync::Arc;

/// A lazy definition of some symbols (ORC: `MaterializationUnit`).
pub trait MaterializationUnit: Send {
    /// What the unit is called in errors.
    fn name(&self) -> &str;

    /// The symbols that it promises.
    fn symbols(&self) -> &[(Name, SymbolFlags)];

    /// One of the symbols was looked for: make all those in `responsibility` real. Called with no lock held.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility);

    /// Another definition of `name` counts. Called before [`materialize`](Self::materialize), with no lock held.
    fn discard(&mut self, name: &str) {
        let _ = name;
    }
}

/// The duty to resolve and emit, or to fail, some symbols (ORC: `MaterializationResponsibility`).
#[must_use = "dropping a responsibility fails its symbols"]
pub struct MaterializationResponsibility {
    session: Arc<SessionInner>,
    core: Arc<TrackerCore>,
    unit_name: Arc<str>,
    owed: Vec<OwedSymbol>,
}

/// A symbol that a responsibility has to supply.
#[derive(Debug, Clone)]
pub struct OwedSymbol {
    /// The name.
    pub name: Name,
    /// The flags it was promised with.
    pub flags: SymbolFlags,
    id: SymbolId,
}

impl MaterializationResponsibility {
    /// Takes a lazy unit out of the table; the task makes it real. Called under the dylib's lock.
    pub(crate) fn begin(
        session: &Arc<SessionInner>,
        dylib: &JitDylib,
        state: &mut DylibState,
        unit: UnitId,
    ) -> Option<Task> {
        let UnitRecord { mut unit, symbols, discarded } = state.table.take_unit(unit)?;
        let owner = state.table.symbol(*symbols.first()?)?.owner;
        let core = state.table.tracker(owner)?.core.clone();
        debug_assert!(Arc::ptr_eq(&core.dylib, dylib.inner()));
        let mut unit_name = None;
        let owed = symbols
            .iter()
            .filter_map(|id| {
                let symbol = state.table.symbol(*id)?;
                unit_name.get_or_insert_with(|| symbol.place.clone());
                Some(OwedSymbol { name: symbol.name.clone(), flags: symbol.flags, id: *id })
            })
            .collect();
        let unit_name = unit_name?;
        let responsibility = MaterializationResponsibility { session: session.clone(), core, unit_name, owed };
        Some(Box::new(move || {
            for name in &discarded {
                unit.discard(name);
            }
            unit.materialize(responsibility);
        }))
    }

    /// The dylib that the symbols belong to.
    pub fn dylib(&self) -> JitDylib {
        JitDylib::from_inner(self.session.clone(), self.core.dylib.clone())
    }

    /// The tracker that the symbols belong to, after transfers.
    pub fn tracker(&self) -> ResourceTracker {
        loop {
            let tracker = ResourceTracker::from_core(self.session.clone(), self.core.current());
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
    pub fn symbols(&self) -> &[OwedSymbol] {
        &self.owed
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

    /// Looks names up in the dylib's [search order](JitDylib::search_order), then calls `on_complete` with this
    /// responsibility and the results, in the order of `requests`, on whichever thread has them.
    pub fn lookup(
        self,
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Self, Result<LookupResults>) + Send + 'static,
    ) {
        let order = self.dylib().search_order();
        let (session, unit_name) = (self.session.clone(), self.unit_name.clone());
        let on_complete = Box::new(move |outcome| on_complete(self, outcome));
        lookup::start(&session, &order, requests, required, Some(&unit_name), on_complete);
    }

    /// Tells later how the owed symbols have come on, without keeping anything alive. `None` when none is owed.
    pub fn watch(&self) -> Option<SymbolWatch> {
        let owed = self.owed.first()?;
        Some(SymbolWatch::new(&self.session, &self.core.dylib, owed.id))
    }

    /// Claims further symbols in the middle of the work. A weak one that is defined already is left out; the result says
    /// which were claimed.
    ///
    /// # Errors
    /// A duplicate strong definition, or a defunct tracker; nothing was claimed then.
    pub fn define_materializing(&mut self, symbols: &[(Name, SymbolFlags)]) -> Result<Vec<bool>> {
        let mut displaced = Displaced::default();
        let claimed = {
            let mut state = self.core.dylib.state.lock();
            // Asked under the dylib's lock: the tracker cannot be transferred from here on.
            let core = self.core.current();
            state.check_live(&core)?;
            check_definable(&state, &core, symbols, &self.unit_name)?;
            let claim = |(name, flags): &(Name, SymbolFlags)| {
                let id = place(
                    &mut state,
                    &core,
                    name,
                    *flags,
                    None,
                    Start::Materializing,
                    &self.unit_name,
                    &mut displaced,
                )?;
                Some(OwedSymbol { name: name.clone(), flags: *flags, id })
            };
            symbols.iter().map(claim).collect::<Vec<_>>()
        };
        drop(displaced);
        let outcome = claimed.iter().map(Option::is_some).collect();
        self.owed.extend(claimed.into_iter().flatten());
        Ok(outcome)
    }

    /// Gives every owed symbol its address; links against them may go on. `address_of` is asked once for each.
    ///
    /// # Errors
    /// [`ErrorKind::InterfaceMismatch`] when `address_of` does not know a promised symbol;
    /// [`ErrorKind::TrackerDefunct`] when the tracker was removed. Fail or drop the responsibility then.
    pub fn notify_resolved(&self, mut address_of: impl FnMut(&OwedSymbol) -> Option<ExecutorAddr>) -> Result<()> {
        let mut resolved = Vec::with_capacity(self.owed.len());
        for owed in self.owed.iter().filter(|owed| !owed.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY)) {
            let address = address_of(owed).ok_or_else(|| ErrorKind::InterfaceMismatch {
                unit: self.unit_name.to_string(),
                problem: "does not define",
                symbol: owed.name.to_string(),
            })?;
            resolved.push((owed.id, address));
        }
        let mut completions = Vec::new();
        {
            let mut state = self.core.dylib.state.lock();
            // All refusals first: a completion that was taken out of the table must be told.
            state.check_live(&self.core.current())?;
            if resolved.iter().any(|(id, _)| state.table.symbol(*id).is_none()) {
                return Err(self.core.defunct());
            }
            for (id, address) in resolved {
                let Some(symbol) = state.table.symbol_mut(id) else { continue };
                symbol.address = address;
                state.table.advance(id, SymbolState::Resolved, &mut completions);
            }
        }
        lookup::complete(completions);
        Ok(())
    }

    /// The code is in place, and refers to `dependencies` (from [`lookup`](Self::lookup)). The symbols are ready as soon
    /// as all of those are, and the tracker pins the trackers of those.
    ///
    /// # Errors
    /// When the tracker or a dependency was removed; the symbols have failed then.
    pub fn notify_emitted(mut self, dependencies: Vec<SymbolRef>) -> Result<()> {
        let own = self.take_owed();
        let mut completions = Vec::new();
        let outcome = self.emit(own.clone(), dependencies, &mut completions);
        lookup::complete(completions);
        if let Err(error) = &outcome {
            self.fail_symbols(own, error);
        }
        outcome
    }

    /// Gives up: the symbols leave the table, and whoever waits for them is told why.
    pub fn fail(mut self, error: Error) {
        let own = self.take_owed();
        self.fail_symbols(own, &error);
    }

    fn emit(
        &self,
        own: Vec<SymbolRef>,
        dependencies: Vec<SymbolRef>,
        completions: &mut Vec<lookup::Completion>,
    ) -> Result<()> {
        self.check_resolved(&own)?;
        let own_nodes: FxHashSet<_> = own.iter().map(SymbolRef::order).collect();
        let dependencies = waiting::distinct(dependencies, &own_nodes);
        let all_ready = self.pin_dependencies(&own, &dependencies)?;
        if all_ready && self.ready_at_once(&own, completions)? {
            return Ok(());
        }
        self.session.waiting.lock().emit(&self.core.current(), own, &dependencies, completions)
    }

    /// Code without an address cannot be used, so it cannot become ready.
    fn check_resolved(&self, own: &[SymbolRef]) -> Result<()> {
        let state = self.core.dylib.state.lock();
        for owed in own {
            let symbol = state.table.symbol(owed.id).ok_or_else(|| self.core.defunct())?;
            if symbol.state < SymbolState::Resolved && !symbol.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) {
                let (unit, symbol) = (self.unit_name.to_string(), owed.name.to_string());
                return Err(ErrorKind::InterfaceMismatch { unit, problem: "emits without an address", symbol }.into());
            }
        }
        Ok(())
    }

    /// Pins the trackers that own the dependencies; whether all dependencies are ready.
    fn pin_dependencies(&self, own: &[SymbolRef], dependencies: &[SymbolRef]) -> Result<bool> {
        let mut owners: Vec<(Arc<TrackerCore>, &SymbolRef)> = Vec::new();
        let mut all_ready = true;
        for group in dependencies.chunk_by(|a, b| a.dylib.id == b.dylib.id) {
            let state = group[0].dylib.state.lock();
            for dependency in group {
                let symbol = state.table.symbol(dependency.id).ok_or_else(|| waiting::removed(dependency, own))?;
                all_ready &= symbol.state == SymbolState::Ready;
                let owner = state.table.tracker(symbol.owner).map(|record| &record.core);
                let owner = owner.ok_or_else(|| waiting::removed(dependency, own))?;
                if !owners.iter().any(|(known, _)| known.key == owner.key) {
                    owners.push((owner.clone(), dependency));
                }
            }
        }
        let core = self.core.current();
        owners.retain(|(owner, _)| owner.key != core.key);
        if owners.is_empty() {
            return Ok(all_ready);
        }
        let mut pins = self.session.pins.lock();
        // Merges hold the pin graph, so what a tracker has become cannot change from here on.
        let core = core.current();
        for (owner, dependency) in owners {
            if !pins.add(&core, &owner.current()) {
                return Err(if core.gate.is_live() { waiting::removed(dependency, own) } else { core.defunct() });
            }
        }
        Ok(all_ready)
    }

    /// Makes the symbols ready without the waiting graph, unless somebody in there waits for one of them.
    fn ready_at_once(&self, own: &[SymbolRef], completions: &mut Vec<lookup::Completion>) -> Result<bool> {
        let mut state = self.core.dylib.state.lock();
        state.check_live(&self.core.current())?;
        for symbol in own {
            let symbol = state.table.symbol(symbol.id).ok_or_else(|| self.core.defunct())?;
            if symbol.has_dependants {
                return Ok(false);
            }
        }
        for symbol in own {
            state.table.advance(symbol.id, SymbolState::Ready, completions);
        }
        Ok(true)
    }

    fn take_owed(&mut self) -> Vec<SymbolRef> {
        let dylib = &self.core.dylib;
        let owed = std::mem::take(&mut self.owed);
        owed.into_iter().map(|owed| SymbolRef { dylib: dylib.clone(), id: owed.id, name: owed.name }).collect()
    }

    fn fail_symbols(&self, own: Vec<SymbolRef>, error: &Error) {
        let symbols: Vec<RemovedSymbol> = {
            let mut state = self.core.dylib.state.lock();
            own.iter().filter_map(|symbol| state.table.remove(symbol.id)).collect()
        };
        Unpublished { dylib: self.core.dylib.clone(), symbols, units: Vec::new() }.settle(&self.session, error);
    }
}

impl Drop for MaterializationResponsibility {
    fn drop(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let own = self.take_owed();
        let error = ErrorKind::ResponsibilityDropped {
            unit: self.unit_name.to_string(),
            symbols: own.iter().map(|symbol| symbol.name.to_string()).collect(),
        };
        self.fail_symbols(own, &error.into());
    }
}

impl fmt::Debug for MaterializationResponsibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "responsibility of {} for {:?}", self.unit_name, self.owed)
    }
}

/// Adds a unit's symbols to its tracker's dylib.
pub(crate) fn define(core: &Arc<TrackerCore>, unit: Box<dyn MaterializationUnit>) -> Result<()> {
    let symbols = unit.symbols().to_vec();
    let unit_name: Arc<str> = Arc::from(unit.name());
    let mut displaced = Displaced::default();
    {
        let mut state = core.dylib.state.lock();
        state.check_live(core)?;
        check_definable(&state, core, &symbols, &unit_name)?;
        let id = state.table.add_unit(unit);
        for (name, flags) in &symbols {
            // A name that one unit promises twice is one symbol.
            let existing = state.table.find(name).and_then(|existing| state.table.symbol(existing));
            if existing.is_some_and(|existing| existing.unit == Some(id)) {
                continue;
            }
            if place(&mut state, core, name, *flags, Some(id), Start::Lazy, &unit_name, &mut displaced).is_none()
                && let Some(record) = state.table.unit_mut(id)
            {
                record.discarded.push(name.clone());
            }
        }
        displaced.units.extend(state.table.drop_unit_if_empty(id));
    }
    drop(displaced);
    Ok(())
}

/// Adds symbols that are ready at once.
pub(crate) fn define_absolute(core: &Arc<TrackerCore>, symbols: Vec<(Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
    let promised: Vec<_> = symbols.iter().map(|(name, _, flags)| (name.clone(), *flags)).collect();
    let place_name: Arc<str> = Arc::from("absolute symbols");
    let mut displaced = Displaced::default();
    {
        let mut state = core.dylib.state.lock();
        state.check_live(core)?;
        check_definable(&state, core, &promised, &place_name)?;
        for (name, address, flags) in &symbols {
            let flags = *flags | SymbolFlags::ABSOLUTE;
            place(&mut state, core, name, flags, None, Start::Ready(*address), &place_name, &mut displaced);
        }
    }
    drop(displaced);
    Ok(())
}

/// What definitions pushed out of the table: dropped after the lock is released.
#[derive(Default)]
struct Displaced {
    units: Vec<UnitRecord>,
}

enum Start {
    Lazy,
    Materializing,
    Ready(ExecutorAddr),
}

/// Whether every one of `symbols` can be defined, before any is: definitions are all or nothing.
fn check_definable(state: &DylibState, core: &TrackerCore, symbols: &[(Name, SymbolFlags)], place: &str) -> Result<()> {
    for (name, flags) in symbols {
        let Some(existing) = state.table.find(name).and_then(|id| state.table.symbol(id)) else { continue };
        let gives_way = existing.flags.is_weak() && existing.state == SymbolState::NeverSearched;
        if !flags.is_weak() && !gives_way {
            return Err(ErrorKind::DuplicateDefinition {
                symbol: name.to_string(),
                dylib: core.dylib.name.to_string(),
                first: existing.place.to_string(),
                second: place.to_string(),
            }
            .into());
        }
    }
    Ok(())
}

/// Defines one name; `None` when an existing definition counts.
#[allow(clippy::too_many_arguments)]
fn place(
    state: &mut DylibState,
    core: &TrackerCore,
    name: &Name,
    flags: SymbolFlags,
    unit: Option<UnitId>,
    start: Start,
    place: &Arc<str>,
    displaced: &mut Displaced,
) -> Option<SymbolId> {
    if let Some(existing) = state.table.find(name) {
        // What cannot give way here was defined by this very call: a name given twice is one symbol.
        if flags.is_weak() || state.table.symbol(existing)?.state != SymbolState::NeverSearched {
            return None;
        }
        let old = state.table.remove(existing)?;
        if let Some(old_unit) = old.symbol.unit {
            if let Some(record) = state.table.unit_mut(old_unit) {
                record.discarded.push(name.clone());
            }
            displaced.units.extend(state.table.drop_unit_if_empty(old_unit));
        }
    }
    let (symbol_state, address) = match start {
        Start::Lazy => (SymbolState::NeverSearched, ExecutorAddr::NULL),
        Start::Materializing => (SymbolState::Materializing, ExecutorAddr::NULL),
        Start::Ready(address) => (SymbolState::Ready, address),
    };
    Some(state.table.insert(NewSymbol {
        name: name.clone(),
        flags,
        owner: core.key.tracker,
        unit,
        state: symbol_state,
        address,
        place: place.clone(),
    }))
}
