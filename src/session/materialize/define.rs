//! Definitions enter a table: lazy symbols, symbols that the caller materialises, and absolute symbols.
//!
//! A set of definitions is added as a whole or not at all: every name is checked before the first is inserted.

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, RecycledVec};
use crate::error::{ErrorKind, Result};
use crate::session::core::jit_dylib::{DylibState, JitDylib, SymbolTable, UnitRecord};
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::observer::Event;
use crate::session::core::resource_tracker::{ResourceTracker, TrackerCore};
use crate::session::core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::materialize::staged::{Staged, stage};
use crate::session::symbols::symbol_table::insert::{Definition, NewSymbol};
use crate::session::symbols::symbol_table::staged::is_staged;
use crate::session::symbols::symbol_table::{Probe, Symbol, UnitId};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

impl ResourceTracker {
    /// Adds the symbols of a lazy unit to the dylib, owned by this tracker (ORC: `JITDylib::define`). Nothing is
    /// materialised until a lookup finds one of them.
    ///
    /// # Errors
    /// A duplicate strong definition, or a defunct tracker or dylib. The table is unchanged then.
    pub fn define(&self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        define(self.core(), Box::new(unit), SymbolFlags::ABSOLUTE)
    }

    /// As [`define`](Self::define), for a unit that decides itself which of its symbols are absolute: those without code or
    /// data that the tracker owns.
    pub(crate) fn define_with_absolute(&self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        define(self.core(), Box::new(unit), SymbolFlags::NONE)
    }

    /// Adds symbols that the caller materialises itself: for a caller that has the code at hand and needs no
    /// [unit](Self::define). A weak symbol whose name is taken is left out. `name` is the name of the unit in errors.
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn define_materializing(
        &self,
        name: &str,
        symbols: impl IntoIterator<Item = (Name, SymbolFlags)>,
    ) -> Result<MaterializationResponsibility> {
        let claim = |((name, flags), number): ((Name, SymbolFlags), u32)| {
            ClaimedSymbol::with_flags(name, flags.declared(), Some(number))
        };
        let symbols = symbols.into_iter().zip(0..).map(claim).collect();
        begin(self.core(), Arc::from(name), symbols, &[])
    }

    /// As [`define_materializing`](Self::define_materializing), for symbols with numbers and sizes, and for
    /// [members of groups](MaterializationUnit::group_members). The caller receives the outcome.
    pub(crate) fn begin_materializing(
        &self,
        name: Arc<str>,
        symbols: RecycledVec<ClaimedSymbol>,
        group_members: &[(u32, u32)],
    ) -> Result<MaterializationResponsibility> {
        begin(self.core(), name, symbols, group_members).map(MaterializationResponsibility::with_outcome_to_caller)
    }

    /// Adds symbols that have an address; they are ready at once (ORC: `absoluteSymbols`).
    ///
    /// An address is a number, and the tracker keeps no memory for it. Whoever [looks up](crate::Jit::lookup_in) code that may
    /// reach the address promises that the memory stays.
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn define_absolute(&self, symbols: impl IntoIterator<Item = (Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
        define_absolute(self.core(), symbols.into_iter().collect())
    }
}

impl JitDylib {
    /// Adds the symbols of a lazy unit, owned by the default tracker.
    ///
    /// # Errors
    /// As [`ResourceTracker::define`].
    pub fn define(&self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        define(&self.inner().default_core()?, Box::new(unit), SymbolFlags::ABSOLUTE)
    }

    /// Adds symbols that have an address, owned by the default tracker.
    ///
    /// # Errors
    /// As [`ResourceTracker::define`].
    pub fn define_absolute(&self, symbols: impl IntoIterator<Item = (Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
        define_absolute(&self.inner().default_core()?, symbols.into_iter().collect())
    }
}

/// Adds the symbols of a lazy unit, without the flags in `ignored`. Observers hear of a failure.
fn define(core: &Arc<TrackerCore>, unit: Box<dyn MaterializationUnit>, ignored: SymbolFlags) -> Result<()> {
    let unit_name = unit.shared_name();
    let outcome = try_define(core, unit, &unit_name, ignored);
    if let Err(error) = &outcome {
        core.dylib().session.observers.deliver_refused(core.dylib(), &unit_name, error);
    }
    outcome
}

fn try_define(
    core: &Arc<TrackerCore>,
    unit: Box<dyn MaterializationUnit>,
    unit_name: &Arc<str>,
    ignored: SymbolFlags,
) -> Result<()> {
    let unit = if is_staged(unit.symbols().len()) {
        match define_in_pieces(core, unit, unit_name, ignored)? {
            Some(unit) => unit,
            None => return Ok(()),
        }
    } else {
        unit
    };
    let mut replaced = ReplacedUnits::default();
    {
        // S5: the unit is the embedder's, so it is called before the lock is taken.
        let (symbols, members) = (unit.symbols(), unit.group_members());
        let sizes: SmallVec<[u64; 16]> = (0..symbols.len()).map(|index| unit.size_bytes(index)).collect();
        let definitions = || {
            symbols.iter().zip(&sizes).map(|((name, flags), size)| {
                let flags = flags.without(ignored);
                Definition { name, flags, size: *size }
            })
        };
        let mut state = core.dylib().state.lock();
        state.check_live(core)?;
        // A strong name is rarely taken. So the unit is inserted at once, and removed again if one of its names is
        // taken.
        let is_strong = symbols.iter().all(|(_, flags)| !flags.is_weak());
        let unprobed = definitions().map(|new| (new, Probe::unfound(new.name)));
        let inserted = if is_strong { state.table.insert_unit(core.id, unit_name, unprobed) } else { None };
        let id = match inserted {
            Some(id) => id,
            None => define_with_collisions(&mut state, core, definitions, members, unit_name, &mut replaced)?,
        };
        state.table.set_unit(id, unit);
        replaced.units.extend(state.table.drop_unit_if_empty(id));
    }
    drop(replaced);
    Ok(())
}

/// As [`try_define`], for many symbols. Returns the unit if it must be defined in one step.
#[cold]
fn define_in_pieces(
    core: &Arc<TrackerCore>,
    unit: Box<dyn MaterializationUnit>,
    unit_name: &Arc<str>,
    ignored: SymbolFlags,
) -> Result<Option<Box<dyn MaterializationUnit>>> {
    let definitions = unit.symbols().iter().enumerate().map(|(index, (name, flags))| {
        let (flags, size) = (flags.without(ignored), unit.size_bytes(index));
        Definition { name, flags, size }
    });
    // S5: the unit is the embedder's, so it is called before the lock is taken.
    let definitions: Vec<_> = definitions.collect();
    let Some(stage) = stage(core, unit_name, definitions.into_iter(), Staged::Lazy)? else { return Ok(Some(unit)) };
    let mut unit = Some(unit);
    stage.end(|state, ids, id| {
        if let (Some(id), Some(unit)) = (id, unit.take()) {
            state.table.set_unit_symbols(id, ids);
            state.table.set_unit(id, unit);
        }
    })?;
    Ok(unit)
}

/// Adds symbols in state Materializing, and makes the responsibility for them. Weak symbols whose names are taken are
/// left out.
fn begin(
    core: &Arc<TrackerCore>,
    unit_name: Arc<str>,
    mut symbols: RecycledVec<ClaimedSymbol>,
    group_members: &[(u32, u32)],
) -> Result<MaterializationResponsibility> {
    let mut replaced = ReplacedUnits::default();
    let outcome = try_begin(core, &unit_name, &mut symbols, group_members, &mut replaced);
    drop(replaced);
    if let Err(error) = &outcome {
        core.dylib().session.observers.deliver_refused(core.dylib(), &unit_name, error);
    }
    outcome.map(|()| MaterializationResponsibility::new(core.clone(), unit_name, symbols))
}

/// Inserts `symbols` and sets their entries. Removes those for which an existing definition is kept.
fn try_begin(
    core: &Arc<TrackerCore>,
    unit_name: &Arc<str>,
    symbols: &mut RecycledVec<ClaimedSymbol>,
    group_members: &[(u32, u32)],
    replaced: &mut ReplacedUnits,
) -> Result<()> {
    let definitions = symbols.iter().map(|ClaimedSymbol { name, flags, size, .. }| {
        let (flags, size) = (*flags, *size);
        Definition { name, flags, size }
    });
    if is_staged(symbols.len())
        && let Some(stage) = stage(core, unit_name, definitions.clone(), Staged::Materializing)?
    {
        let mut staged = RecycledVec::default();
        if stage.end(|_, ids, _| staged = ids)? {
            symbols.iter_mut().zip(&staged).for_each(|(symbol, id)| symbol.id = *id);
            return Ok(());
        }
    }
    let mut state = core.dylib().state.lock();
    state.check_live(core)?;
    let unprobed = definitions.clone().map(|new| (new, Probe::unfound(new.name)));
    let is_strong = symbols.iter().all(|symbol| !symbol.flags.is_weak());
    let inserted = if is_strong { state.table.insert_materializing(core.id, unit_name, unprobed) } else { None };
    match inserted {
        Some(ids) => {
            drop(state);
            symbols.iter_mut().zip(&ids).for_each(|(symbol, id)| symbol.id = *id);
        }
        None => {
            let claimed = claim_symbols(&mut state, core, definitions, group_members, unit_name, replaced)?;
            drop(state);
            let mut claimed = claimed.into_iter();
            symbols.retain_mut(|symbol| claimed.next().flatten().map(|id| symbol.id = id).is_some());
        }
    }
    Ok(())
}

/// For each definition its entry, or `None` if an existing definition is kept.
pub(crate) type ClaimedIds = SmallVec<[Option<SymbolId>; 16]>;

/// Inserts definitions in state Materializing. All are checked before the first is inserted.
pub(crate) fn claim_symbols<'a>(
    state: &mut DylibState,
    core: &TrackerCore,
    definitions: impl Iterator<Item = Definition<'a>> + Clone,
    group_members: &[(u32, u32)],
    unit_name: &Arc<str>,
    replaced: &mut ReplacedUnits,
) -> Result<ClaimedIds> {
    let lost = LostMembers::find(&state.table, group_members, definitions.clone());
    let kept = definitions.clone().enumerate().filter(|(position, _)| !lost.contains(*position));
    check_definable(state, core, kept.map(|(_, new)| new), unit_name)?;
    let mut claim = |(position, new): (usize, Definition<'_>)| {
        if lost.contains(position) {
            return None;
        }
        let probe = state.table.probe(new.name);
        insert_definition(state, core, new, probe, InitialState::Materializing, unit_name, replaced)
    };
    Ok(definitions.enumerate().map(&mut claim).collect())
}

/// The definitions that are left out with their COMDAT groups, because the table has other groups of the same signatures.
struct LostMembers {
    /// By position of the definition. Empty if no definition is left out.
    is_lost: Vec<bool>,
}

impl LostMembers {
    /// `group_members` are pairs of positions: see [`MaterializationUnit::group_members`].
    fn find<'a>(
        table: &SymbolTable,
        group_members: &[(u32, u32)],
        definitions: impl Iterator<Item = Definition<'a>>,
    ) -> LostMembers {
        if group_members.is_empty() {
            return LostMembers { is_lost: Vec::new() };
        }
        let is_taken = |new: Definition<'_>| {
            let existing = table.find(new.name).and_then(|id| table.symbol(id));
            existing.is_some_and(|existing| is_same_group(existing.flags, new.flags))
        };
        let is_lost_group: Vec<bool> = definitions.map(is_taken).collect();
        let mut is_lost = vec![false; is_lost_group.len()];
        for (member, leader) in group_members {
            if let (Some(is_lost), Some(true)) =
                (is_lost.get_mut(*member as usize), is_lost_group.get(*leader as usize))
            {
                *is_lost = true;
            }
        }
        LostMembers { is_lost }
    }

    fn contains(&self, position: usize) -> bool {
        self.is_lost.get(position) == Some(&true)
    }
}

/// Whether both symbols stand for a COMDAT group. Called for two symbols of one name.
fn is_same_group(existing: SymbolFlags, new: SymbolFlags) -> bool {
    existing.contains(SymbolFlags::COMDAT) && new.contains(SymbolFlags::COMDAT)
}

/// Inserts the definitions of a lazy unit when some of its names may be taken. All are checked before the first is
/// inserted.
fn define_with_collisions<'a, I: ExactSizeIterator<Item = Definition<'a>>>(
    state: &mut DylibState,
    core: &TrackerCore,
    definitions: impl Fn() -> I,
    group_members: &[(u32, u32)],
    unit_name: &Arc<str>,
    replaced: &mut ReplacedUnits,
) -> Result<UnitId> {
    let mut probes: SmallVec<[_; 16]> = SmallVec::with_capacity(definitions().len());
    let mut are_all_free = true;
    let lost = LostMembers::find(&state.table, group_members, definitions());
    for (position, new) in definitions().enumerate() {
        let probe = state.table.probe(new.name);
        // A group is lost only if the name of its symbol is taken.
        if probe.found.is_some() && !lost.contains(position) {
            are_all_free = false;
            check_definition(state, core, &new, probe, unit_name)?;
        }
        probes.push(probe);
    }
    if are_all_free
        && let Some(id) = state.table.insert_unit(core.id, unit_name, definitions().zip(probes.iter().copied()))
    {
        return Ok(id);
    }
    let id = state.table.reserve_unit(probes.len());
    for (position, (new, probe)) in definitions().zip(probes).enumerate() {
        // Probed again: an earlier definition of this unit may have the same name.
        let (name, probe) = (new.name, state.table.probe_again(new.name, probe));
        // A name that the unit defines twice is one symbol.
        let existing = probe.found.and_then(|existing| state.table.symbol(existing));
        if existing.is_some_and(|existing| existing.unit() == Some(id)) {
            continue;
        }
        if (lost.contains(position)
            || insert_definition(state, core, new, probe, InitialState::Lazy(id), unit_name, replaced).is_none())
            && let Some(record) = state.table.unit_mut(id)
        {
            record.discarded.push(name.clone());
        }
    }
    Ok(id)
}

/// Adds absolute symbols. Observers hear of the outcome.
fn define_absolute(core: &Arc<TrackerCore>, symbols: Vec<(Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
    let unit_name: Arc<str> = Arc::from("absolute symbols");
    let outcome = try_define_absolute(core, &symbols, &unit_name);
    let observers = &core.dylib().session.observers;
    if observers.is_active() {
        match &outcome {
            Ok(()) => {
                let (dylib, key) = (&core.handle, core.key());
                let names: Vec<_> = symbols.into_iter().map(|(name, ..)| name).collect();
                observers.deliver(&Event::Published { dylib, key, symbols: &names });
            }
            Err(error) => observers.deliver_refused(core.dylib(), &unit_name, error),
        }
    }
    outcome
}

fn try_define_absolute(
    core: &Arc<TrackerCore>,
    symbols: &[(Name, ExecutorAddr, SymbolFlags)],
    unit_name: &Arc<str>,
) -> Result<()> {
    let declared: Vec<_> = symbols.iter().map(|(name, _, flags)| (name.clone(), *flags)).collect();
    if is_staged(symbols.len()) {
        let addresses: Vec<_> = symbols.iter().map(|(_, address, _)| *address).collect();
        let absolute = declared.iter().map(Definition::of).map(|Definition { name, flags, size }| {
            let flags = flags | SymbolFlags::ABSOLUTE;
            Definition { name, flags, size }
        });
        if let Some(stage) = stage(core, unit_name, absolute, Staged::Ready(&addresses))?
            && stage.end(|_, _, _| {})?
        {
            return Ok(());
        }
    }
    let mut replaced = ReplacedUnits::default();
    {
        let mut state = core.dylib().state.lock();
        state.check_live(core)?;
        check_definable(&state, core, declared.iter().map(Definition::of), unit_name)?;
        for (name, address, flags) in symbols {
            let flags = *flags | SymbolFlags::ABSOLUTE;
            let new = Definition { name, flags, size: 0 };
            let probe = state.table.probe(name);
            insert_definition(&mut state, core, new, probe, InitialState::Ready(*address), unit_name, &mut replaced);
        }
    }
    drop(replaced);
    Ok(())
}

/// Units that new definitions have replaced. S5: units are the embedder's, so drop this after the lock is released.
#[derive(Default)]
pub(crate) struct ReplacedUnits {
    units: Vec<UnitRecord>,
}

/// The state in which a definition enters the table.
enum InitialState {
    /// NeverSearched, materialised by this unit.
    Lazy(UnitId),
    Materializing,
    Ready(ExecutorAddr),
}

/// The outcome of a definition whose name is taken (ELF symbol resolution).
#[derive(Debug, PartialEq, Eq)]
enum SymbolResolution {
    /// The existing definition stays; the new one is left out.
    KeepExisting,
    /// The new definition replaces the existing one.
    ReplaceExisting,
    /// Both are strong: an error.
    Duplicate,
    /// A common symbol needs more bytes than the definition that takes its place has: an error.
    TooSmall { wanted: u64, found: u64 },
}

impl SymbolResolution {
    /// The rules of native linkers, and one more: a symbol that was looked up is never replaced. Of two common symbols the
    /// larger is used. A strong definition replaces a common symbol if it is large enough. A size of zero is unknown,
    /// and is accepted. A common symbol replaces a weak definition. Of two COMDAT groups the first is used, whatever the
    /// bindings of their symbols.
    fn resolve(table: &SymbolTable, existing: &Symbol, new: &Definition<'_>) -> SymbolResolution {
        let existing_size = table.size(existing);
        let is_untouched = existing.state == SymbolState::NeverSearched;
        let is_common = |flags: SymbolFlags| flags.contains(SymbolFlags::COMMON);
        let is_too_small = |wanted: u64, found: u64| found != 0 && wanted > found;
        if is_same_group(existing.flags, new.flags) {
            return SymbolResolution::KeepExisting;
        }
        match (is_common(existing.flags), is_common(new.flags)) {
            (true, true) if is_untouched && is_too_small(new.size, existing_size) => SymbolResolution::ReplaceExisting,
            // The code that has the weak definition would not see the common symbol.
            (false, true) if existing.flags.is_weak() && !is_untouched => SymbolResolution::Duplicate,
            (false, true) if existing.flags.is_weak() => SymbolResolution::ReplaceExisting,
            (_, true) if is_too_small(new.size, existing_size) => {
                SymbolResolution::TooSmall { wanted: new.size, found: existing_size }
            }
            (_, true) => SymbolResolution::KeepExisting,
            (true, false) if new.flags.is_weak() => SymbolResolution::KeepExisting,
            (true, false) if is_untouched && is_too_small(existing_size, new.size) => {
                SymbolResolution::TooSmall { wanted: existing_size, found: new.size }
            }
            _ if new.flags.is_weak() => SymbolResolution::KeepExisting,
            _ if existing.flags.is_weak() && is_untouched => SymbolResolution::ReplaceExisting,
            // Code has the weak definition. A group may be left out, because every object that needs it has a copy.
            (false, _) if existing.flags.is_weak() && new.flags.contains(SymbolFlags::COMDAT) => {
                SymbolResolution::KeepExisting
            }
            _ => SymbolResolution::Duplicate,
        }
    }
}

/// Checks that every one of `definitions` can be inserted. Called before the first is, so that all are inserted or
/// none.
fn check_definable<'a>(
    state: &DylibState,
    core: &TrackerCore,
    definitions: impl IntoIterator<Item = Definition<'a>>,
    unit_name: &str,
) -> Result<()> {
    definitions
        .into_iter()
        .try_for_each(|new| check_definition(state, core, &new, state.table.probe(new.name), unit_name))
}

fn check_definition(
    state: &DylibState,
    core: &TrackerCore,
    new: &Definition<'_>,
    probe: Probe,
    unit_name: &str,
) -> Result<()> {
    let Some(existing) = probe.found.and_then(|id| state.table.symbol(id)) else { return Ok(()) };
    let resolution = SymbolResolution::resolve(&state.table, existing, new);
    if matches!(resolution, SymbolResolution::KeepExisting | SymbolResolution::ReplaceExisting) {
        return Ok(());
    }
    let (symbol, dylib) = (new.name.to_string(), core.dylib().name.to_string());
    let (first, second) = (state.table.unit_name(existing).to_string(), unit_name.to_string());
    match resolution {
        SymbolResolution::KeepExisting | SymbolResolution::ReplaceExisting => Ok(()),
        SymbolResolution::Duplicate => Err(ErrorKind::DuplicateDefinition { symbol, dylib, first, second }.into()),
        SymbolResolution::TooSmall { wanted, found } => {
            Err(ErrorKind::CommonTooSmall { symbol, dylib, first, second, wanted, found }.into())
        }
    }
}

/// Inserts one definition. `probe` is the result of probing the table for its name just before. `None` when an existing
/// definition is kept.
fn insert_definition(
    state: &mut DylibState,
    core: &TrackerCore,
    new: Definition<'_>,
    probe: Probe,
    initial: InitialState,
    unit_name: &Arc<str>,
    replaced: &mut ReplacedUnits,
) -> Option<SymbolId> {
    let mut group = None;
    if let Some(existing) = probe.found {
        // All names were checked before the first was inserted. A definition that cannot replace the existing one now
        // has the same name as an earlier one of the same call: a name given twice is one symbol.
        let resolution = SymbolResolution::resolve(&state.table, state.table.symbol(existing)?, &new);
        if resolution != SymbolResolution::ReplaceExisting {
            if new.flags.contains(SymbolFlags::COMDAT) {
                // The group is the first of its signature, although another definition has its name. Later groups are left
                // out, until this one is removed.
                state.table.stand_for_group(existing, core.id);
            }
            return None;
        }
        // The group stays, and with it the rule that later groups of its signature are left out.
        group = state.table.tracker_of_group(existing);
        let old = state.table.remove(existing)?;
        if let Some(old_unit) = old.unit {
            if let Some(record) = state.table.unit_mut(old_unit) {
                record.discarded.push(new.name.clone());
            }
            replaced.units.extend(state.table.drop_unit_if_empty(old_unit));
        }
    }
    let (symbol_state, unit, address) = match initial {
        InitialState::Lazy(unit) => (SymbolState::NeverSearched, Some(unit), ExecutorAddr::NULL),
        InitialState::Materializing => (SymbolState::Materializing, None, ExecutorAddr::NULL),
        InitialState::Ready(address) => (SymbolState::Ready, None, address),
    };
    let id = state
        .table
        .insert(probe, NewSymbol { definition: new, owner: core.id, unit, state: symbol_state, address, unit_name });
    if let Some(tracker) = group {
        state.table.stand_for_group(id, tracker);
    }
    Some(id)
}
