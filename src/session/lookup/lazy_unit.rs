//! [`take_unit_of`]: takes a lazy unit out of the table when a lookup finds one of its symbols.
//!
//! A unit whose symbols have nothing in common, such as a set of aliases, gives a part for each symbol. Then a lookup of one
//! of n symbols costs the same for every n.

use crate::base::{Name, RecycledVec, count_step};
use crate::session::core::jit_dylib::{DylibState, SymbolTable, TakenUnit};
use crate::session::core::materialization::{Materialization, MaterializationUnit, NameSink, Task, UnitSymbol};
use crate::session::core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::symbols::symbol_table::UnitId;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::symbol::SymbolId;

/// Takes what materialises the lazy symbol `wanted` out of the table: its unit, or only its part of it. The returned task
/// materialises it. Called under the dylib's lock.
pub(crate) fn take_unit_of(state: &mut DylibState, wanted: SymbolId) -> Option<Task> {
    let symbol = state.table.symbol(wanted)?;
    let unit_id = symbol.unit()?;
    let record = state.table.unit(unit_id)?;
    let name = state.table.name(symbol);
    // The last symbol takes the unit itself along.
    let is_shared = record.owed_count() > 1;
    let part = record.unit.as_ref().filter(|_| is_shared).and_then(|unit| unit.part(UnitSymbol(name.as_str())));
    let Some(unit) = part else { return take_unit(state, unit_id) };
    count_step();
    let name = name.to_name();
    let (core, unit_name) = (state.table.owner(symbol)?.clone(), state.table.unit_name(symbol).clone());
    let flags = state.table.begin_alone(wanted)?;
    let mut claimed = RecycledVec::with_capacity(1);
    claimed.push(ClaimedSymbol { id: wanted, ..ClaimedSymbol::with_flags(name, flags, None) });
    let responsibility = MaterializationResponsibility::new(core, unit_name, claimed);
    Some(Task::Materialize(Materialization { unit, discarded: Vec::new(), responsibility }))
}

/// The task of a unit, for a lookup that began at `since`.
pub(in crate::session) fn begun_since(mut task: Task, since: FailureNumber) -> Task {
    if let Task::Materialize(materialization) = &mut task {
        materialization.responsibility.since = since;
    }
    task
}

/// As [`take_unit_of`], for all symbols of a unit.
pub(crate) fn take_unit(state: &mut DylibState, unit: UnitId) -> Option<Task> {
    let TakenUnit { mut unit, symbols, is_complete, discarded } = state.table.take_unit(unit)?;
    let first = state.table.symbol(*symbols.first()?)?;
    let (core, unit_name) = (state.table.owner(first)?.clone(), state.table.unit_name(first).clone());
    let claimed = claim_symbols_of(&mut *unit, &symbols, is_complete, &mut state.table);
    let responsibility = MaterializationResponsibility::new(core, unit_name, claimed);
    Some(Task::Materialize(Materialization { unit, discarded, responsibility }))
}

/// The symbols that a unit has to define. The state of their entries becomes Materializing. `symbols` are the entries
/// that the unit still has; `is_complete` says that they are all symbols of the unit, in its order.
fn claim_symbols_of(
    unit: &mut dyn MaterializationUnit,
    symbols: &[SymbolId],
    is_complete: bool,
    table: &mut SymbolTable,
) -> RecycledVec<ClaimedSymbol> {
    let mut claimed = RecycledVec::with_capacity(symbols.len());
    let (mut position, mut next, mut unmatched) = (0, 0, Vec::new());
    let mut receive = |name: Name| {
        count_step();
        let number = Some(position);
        position += 1;
        // The names and the entries are in the same order, but a name that another definition took has no entry.
        match symbols.get(next) {
            Some(id) if is_complete || table.is_named(*id, &name) => {
                next += 1;
                if let Some(flags) = table.begin(*id) {
                    claimed.push(ClaimedSymbol { id: *id, ..ClaimedSymbol::with_flags(name, flags, number) });
                }
            }
            _ => unmatched.push((name, number)),
        }
    };
    unit.give_names(&mut NameSink::new(&mut receive));
    // The entries that no received name has matched: all of them if the unit gives no names.
    for id in symbols[next..].iter().copied() {
        count_step();
        let (Some(flags), Some(symbol)) = (table.begin(id), table.symbol(id)) else { continue };
        let name = table.name(symbol).to_name();
        let number = unmatched.iter().find(|(other, _)| *other == name).and_then(|(_, number)| *number);
        claimed.push(ClaimedSymbol { id, ..ClaimedSymbol::with_flags(name, flags, number) });
    }
    claimed
}
