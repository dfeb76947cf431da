//! [`MaterializationUnit`]: a lazy definition; and how definitions get into a table.
//!
//! A unit promises symbols. When one is looked for, the unit is taken out of the table and called with a
//! responsibility (`responsibility.rs`). Definitions are all or nothing: every name is checked before the first is
//! placed.

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, RecycledVec};
use crate::error::{ErrorKind, Result};
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::observer::Event;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::materialize::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::symbols::symbol_table::{NewSymbol, Probe, Symbol, SymbolTable, UnitId, UnitRecord};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

/// A lazy definition of some symbols (ORC: `MaterializationUnit`).
pub trait MaterializationUnit: Send {
    /// What the unit is called in errors.
    fn name(&self) -> &str;

    /// The same, to be kept: for units that have it so already.
    fn shared_name(&self) -> Arc<str> {
        Arc::from(self.name())
    }

    /// The symbols that it promises.
    fn symbols(&self) -> &[(Name, SymbolFlags)];

    /// Bytes of the symbol at a position of [`symbols`](Self::symbols); zero when unknown. Common symbols need it.
    fn size_bytes(&self, index: usize) -> u64 {
        let _ = index;
        0
    }

    /// Gives the names of all its symbols away, in order, just ahead of [`materialize`](Self::materialize), if it has no more
    /// use for them: then they need not be copied. Called under the dylib's lock, and so only this crate's units can have it:
    /// the type of its argument has no public name.
    ///
    /// ```compile_fail,E0053
    /// # use jittison::base::Name;
    /// # use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags};
    /// # struct Unit;
    /// impl MaterializationUnit for Unit {
    ///     fn give_names(&mut self, _: &mut dyn FnMut(Name)) {}
    /// #   fn name(&self) -> &str { "" }
    /// #   fn symbols(&self) -> &[(Name, SymbolFlags)] { &[] }
    /// #   fn materialize(self: Box<Self>, _: MaterializationResponsibility) {}
    /// }
    /// ```
    #[doc(hidden)]
    fn give_names(&mut self, sink: &mut NameSink<'_>) {
        let _ = sink;
    }

    /// One of the symbols was looked for: make all those in `responsibility` real. Called with no lock held.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility);

    /// Another definition of `name` counts. Called before [`materialize`](Self::materialize), with no lock held.
    fn discard(&mut self, name: &str) {
        let _ = name;
    }
}

/// Takes the names that a unit gives away. Not public, so that no unit of an embedder's runs under the dylib's lock.
pub struct NameSink<'a>(&'a mut dyn FnMut(Name));

impl<'a> NameSink<'a> {
    pub(crate) fn new(take: &'a mut dyn FnMut(Name)) -> NameSink<'a> {
        NameSink(take)
    }

    pub(crate) fn take(&mut self, name: Name) {
        (self.0)(name);
    }
}

/// Adds a unit's symbols to its tracker's dylib.
pub(crate) fn define(core: &Arc<TrackerCore>, unit: Box<dyn MaterializationUnit>) -> Result<()> {
    let unit_name = unit.shared_name();
    let outcome = try_define(core, unit, &unit_name);
    if let Err(error) = &outcome {
        core.dylib().session.observers.tell_refused(core.dylib(), &unit_name, error);
    }
    outcome
}

fn try_define(core: &Arc<TrackerCore>, unit: Box<dyn MaterializationUnit>, unit_name: &Arc<str>) -> Result<()> {
    let mut displaced = ReplacedUnits::default();
    {
        // Asked before anything is locked: the unit is the embedder's.
        let symbols = unit.symbols();
        let sizes: SmallVec<[u64; 16]> = (0..symbols.len()).map(|index| unit.size_bytes(index)).collect();
        let definitions =
            || symbols.iter().zip(&sizes).map(|((name, flags), size)| Definition { name, flags: *flags, size: *size });
        let mut state = core.dylib().state.lock();
        state.check_live(core)?;
        // What cannot give way is rarely there already: it is put in at once, and taken out again if one name is not free.
        let is_strong = symbols.iter().all(|(_, flags)| !flags.is_weak());
        let unprobed = definitions().map(|new| (new, Probe::unfound(new.name)));
        let inserted = if is_strong { state.table.insert_unit(core.id, unit_name, unprobed) } else { None };
        let id = match inserted {
            Some(id) => id,
            None => define_among_others(&mut state, core, definitions, unit_name, &mut displaced)?,
        };
        state.table.supply(id, unit);
        displaced.units.extend(state.table.drop_unit_if_empty(id));
    }
    drop(displaced);
    Ok(())
}

/// Adds symbols that are being materialised from the start, by whoever holds the responsibility. Weak ones whose names are
/// taken are none of it.
pub(crate) fn begin(
    core: &Arc<TrackerCore>,
    unit_name: Arc<str>,
    mut symbols: RecycledVec<ClaimedSymbol>,
) -> Result<MaterializationResponsibility> {
    let mut displaced = ReplacedUnits::default();
    let outcome = try_begin(core, &unit_name, &mut symbols, &mut displaced);
    drop(displaced);
    if let Err(error) = &outcome {
        core.dylib().session.observers.tell_refused(core.dylib(), &unit_name, error);
    }
    outcome.map(|()| MaterializationResponsibility::new(core.clone(), unit_name, symbols))
}

/// Those are left whose definitions count, and know their entries.
fn try_begin(
    core: &Arc<TrackerCore>,
    unit_name: &Arc<str>,
    symbols: &mut RecycledVec<ClaimedSymbol>,
    displaced: &mut ReplacedUnits,
) -> Result<()> {
    let definitions = symbols.iter().map(|ClaimedSymbol { name, flags, size, .. }| {
        let (flags, size) = (*flags, *size);
        Definition { name, flags, size }
    });
    let mut state = core.dylib().state.lock();
    state.check_live(core)?;
    let unprobed = definitions.clone().map(|new| (new, Probe::unfound(new.name)));
    let is_strong = symbols.iter().all(|owed| !owed.flags.is_weak());
    let inserted = if is_strong { state.table.insert_begun(core.id, unit_name, unprobed) } else { None };
    match inserted {
        Some(ids) => {
            drop(state);
            symbols.iter_mut().zip(&ids).for_each(|(owed, id)| owed.id = *id);
        }
        None => {
            let claimed = claim(&mut state, core, definitions, unit_name, displaced)?;
            drop(state);
            let mut claimed = claimed.into_iter();
            symbols.retain_mut(|owed| claimed.next().flatten().map(|id| owed.id = id).is_some());
        }
    }
    Ok(())
}

/// For each of some definitions its entry, or `None` if an existing one counts.
pub(crate) type Claimed = SmallVec<[Option<SymbolId>; 16]>;

/// Puts definitions into the table that are being materialised already; for each its entry, or `None` if an existing one counts.
pub(crate) fn claim<'a>(
    state: &mut DylibState,
    core: &TrackerCore,
    definitions: impl Iterator<Item = Definition<'a>> + Clone,
    unit_name: &Arc<str>,
    displaced: &mut ReplacedUnits,
) -> Result<Claimed> {
    check_definable(state, core, definitions.clone(), unit_name)?;
    let mut claim = |new: Definition<'_>| {
        let probe = state.table.probe(new.name);
        place(state, core, new, probe, Start::Materializing, unit_name, displaced)
    };
    Ok(definitions.map(&mut claim).collect())
}

/// Defines what a unit promises, some of which may be there already: all of it is judged before the first is placed.
fn define_among_others<'a, I: ExactSizeIterator<Item = Definition<'a>>>(
    state: &mut DylibState,
    core: &TrackerCore,
    definitions: impl Fn() -> I,
    unit_name: &Arc<str>,
    displaced: &mut ReplacedUnits,
) -> Result<UnitId> {
    let mut probes: SmallVec<[_; 16]> = SmallVec::with_capacity(definitions().len());
    let mut are_all_free = true;
    for new in definitions() {
        let probe = state.table.probe(new.name);
        if probe.found.is_some() {
            are_all_free = false;
            check_one(state, core, &new, probe, unit_name)?;
        }
        probes.push(probe);
    }
    if are_all_free
        && let Some(id) = state.table.insert_unit(core.id, unit_name, definitions().zip(probes.iter().copied()))
    {
        return Ok(id);
    }
    let id = state.table.reserve_unit(probes.len());
    for (new, probe) in definitions().zip(probes) {
        // Again: the one before may have been of the same name.
        let (name, probe) = (new.name, state.table.probe_again(new.name, probe));
        // A name that one unit promises twice is one symbol.
        let existing = probe.found.and_then(|existing| state.table.symbol(existing));
        if existing.is_some_and(|existing| existing.unit() == Some(id)) {
            continue;
        }
        if place(state, core, new, probe, Start::Lazy(id), unit_name, displaced).is_none()
            && let Some(record) = state.table.unit_mut(id)
        {
            record.discarded.push(name.clone());
        }
    }
    Ok(id)
}

/// Adds symbols that are ready at once.
pub(crate) fn define_absolute(core: &Arc<TrackerCore>, symbols: Vec<(Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
    let place_name: Arc<str> = Arc::from("absolute symbols");
    let outcome = try_define_absolute(core, &symbols, &place_name);
    let observers = &core.dylib().session.observers;
    if observers.is_heard() {
        match &outcome {
            Ok(()) => {
                let (dylib, key) = (&core.handle, core.key());
                let names: Vec<_> = symbols.into_iter().map(|(name, ..)| name).collect();
                observers.tell(&Event::Published { dylib, key, symbols: &names });
            }
            Err(error) => observers.tell_refused(core.dylib(), &place_name, error),
        }
    }
    outcome
}

fn try_define_absolute(
    core: &Arc<TrackerCore>,
    symbols: &[(Name, ExecutorAddr, SymbolFlags)],
    place_name: &Arc<str>,
) -> Result<()> {
    let promised: Vec<_> = symbols.iter().map(|(name, _, flags)| (name.clone(), *flags)).collect();
    let mut displaced = ReplacedUnits::default();
    {
        let mut state = core.dylib().state.lock();
        state.check_live(core)?;
        check_definable(&state, core, promised.iter().map(Definition::of), place_name)?;
        for (name, address, flags) in symbols {
            let flags = *flags | SymbolFlags::ABSOLUTE;
            let new = Definition { name, flags, size: 0 };
            let probe = state.table.probe(name);
            place(&mut state, core, new, probe, Start::Ready(*address), place_name, &mut displaced);
        }
    }
    drop(displaced);
    Ok(())
}

/// What definitions pushed out of the table: dropped after the lock is released.
#[derive(Default)]
pub(crate) struct ReplacedUnits {
    units: Vec<UnitRecord>,
}

enum Start {
    /// When somebody looks for it, by this unit.
    Lazy(UnitId),
    Materializing,
    Ready(ExecutorAddr),
}

/// A definition on its way into a table.
#[derive(Clone, Copy)]
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a Name,
    pub(crate) flags: SymbolFlags,
    /// Bytes; zero when unknown.
    pub(crate) size: u64,
}

impl<'a> Definition<'a> {
    pub(crate) fn of((name, flags): &'a (Name, SymbolFlags)) -> Definition<'a> {
        Definition { name, flags: *flags, size: 0 }
    }
}

/// What becomes of a definition whose name is taken.
#[derive(Debug, PartialEq, Eq)]
enum SymbolResolution {
    /// The one that is there counts.
    Recycle,
    /// The new one counts.
    Replace,
    /// Neither gives way.
    Duplicate,
    /// A common symbol wants more room than the definition that counts has.
    TooSmall { wanted: u64, found: u64 },
}

impl SymbolResolution {
    /// ELF's rules, with one of ours: what has been looked for stays. Of common symbols the largest counts; a
    /// definition stands in for a common symbol if it is large enough.
    fn judge(table: &SymbolTable, existing: &Symbol, new: &Definition<'_>) -> SymbolResolution {
        let there = table.size(existing);
        let is_untouched = existing.state == SymbolState::NeverSearched;
        let is_common = |flags: SymbolFlags| flags.contains(SymbolFlags::COMMON);
        let lacks_room = |wanted: u64, found: u64| found != 0 && wanted > found;
        match (is_common(existing.flags), is_common(new.flags)) {
            (true, true) if is_untouched && lacks_room(new.size, there) => SymbolResolution::Replace,
            (_, true) if lacks_room(new.size, there) => SymbolResolution::TooSmall { wanted: new.size, found: there },
            (_, true) => SymbolResolution::Recycle,
            (true, false) if new.flags.is_weak() => SymbolResolution::Recycle,
            (true, false) if is_untouched && lacks_room(there, new.size) => {
                SymbolResolution::TooSmall { wanted: there, found: new.size }
            }
            _ if new.flags.is_weak() => SymbolResolution::Recycle,
            _ if existing.flags.is_weak() && is_untouched => SymbolResolution::Replace,
            _ => SymbolResolution::Duplicate,
        }
    }
}

/// Whether every one of `definitions` can be defined, before any is: definitions are all or nothing.
fn check_definable<'a>(
    state: &DylibState,
    core: &TrackerCore,
    definitions: impl IntoIterator<Item = Definition<'a>>,
    place: &str,
) -> Result<()> {
    definitions.into_iter().try_for_each(|new| check_one(state, core, &new, state.table.probe(new.name), place))
}

fn check_one(state: &DylibState, core: &TrackerCore, new: &Definition<'_>, probe: Probe, place: &str) -> Result<()> {
    let Some(existing) = probe.found.and_then(|id| state.table.symbol(id)) else { return Ok(()) };
    let contest = SymbolResolution::judge(&state.table, existing, new);
    if matches!(contest, SymbolResolution::Recycle | SymbolResolution::Replace) {
        return Ok(());
    }
    let (symbol, dylib) = (new.name.to_string(), core.dylib().name.to_string());
    let (first, second) = (state.table.place(existing).to_string(), place.to_string());
    match contest {
        SymbolResolution::Recycle | SymbolResolution::Replace => Ok(()),
        SymbolResolution::Duplicate => Err(ErrorKind::DuplicateDefinition { symbol, dylib, first, second }.into()),
        SymbolResolution::TooSmall { wanted, found } => {
            Err(ErrorKind::CommonTooSmall { symbol, dylib, first, second, wanted, found }.into())
        }
    }
}

/// Defines one name, which `probe` has just looked for; `None` when an existing definition counts.
fn place(
    state: &mut DylibState,
    core: &TrackerCore,
    new: Definition<'_>,
    probe: Probe,
    start: Start,
    place: &Arc<str>,
    displaced: &mut ReplacedUnits,
) -> Option<SymbolId> {
    if let Some(existing) = probe.found {
        // Every name was judged before the first was placed; what cannot give way now was defined by this very call: a
        // name given twice is one symbol.
        if SymbolResolution::judge(&state.table, state.table.symbol(existing)?, &new) != SymbolResolution::Replace {
            return None;
        }
        let old = state.table.remove(existing)?;
        if let Some(old_unit) = old.unit {
            if let Some(record) = state.table.unit_mut(old_unit) {
                record.discarded.push(new.name.clone());
            }
            displaced.units.extend(state.table.drop_unit_if_empty(old_unit));
        }
    }
    let (symbol_state, unit, address) = match start {
        Start::Lazy(unit) => (SymbolState::NeverSearched, Some(unit), ExecutorAddr::NULL),
        Start::Materializing => (SymbolState::Materializing, None, ExecutorAddr::NULL),
        Start::Ready(address) => (SymbolState::Ready, None, address),
    };
    Some(
        state
            .table
            .insert(probe, NewSymbol { definition: new, owner: core.id, unit, state: symbol_state, address, place }),
    )
}
