//! The lazy units of a [`SymbolTable`].
//!
//! A unit has a list of its symbols, and the number of those that it still has to define. A symbol that leaves the unit
//! stays in the list and is only counted: its id is not found any more, or is that of a symbol without this unit. So each
//! symbol leaves in constant time, and the list is filtered once, when the unit is taken.

use super::{SymbolTable, TableTypes, UnitId};
use crate::base::{ExecutorAddr, Name, RecycledVec, SlotNumber};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

/// A lazy unit and its symbols.
pub(crate) struct UnitRecord<E: TableTypes> {
    /// `None` only while the symbols of the unit are inserted.
    pub(crate) unit: Option<E::Unit>,
    /// May have symbols that have left the unit.
    symbols: RecycledVec<SymbolId>,
    /// The number of symbols that have not left the unit.
    owed_count: usize,
    /// The number of symbols that the unit announced. `None` if it is unknown.
    promised_count: Option<usize>,
    /// Names that other definitions replaced. The unit learns of them before it materialises, with no lock held.
    pub(crate) discarded: Vec<Name>,
}

impl<E: TableTypes> UnitRecord<E> {
    pub(super) fn new(symbols: RecycledVec<SymbolId>, promised_count: Option<usize>) -> UnitRecord<E> {
        let owed_count = symbols.len();
        UnitRecord { unit: None, symbols, owed_count, promised_count, discarded: Vec::new() }
    }

    pub(super) fn add(&mut self, symbol: SymbolId) {
        self.symbols.push(symbol);
        self.owed_count += 1;
    }

    pub(super) fn set_symbols(&mut self, symbols: RecycledVec<SymbolId>) {
        (self.owed_count, self.symbols) = (symbols.len(), symbols);
    }

    /// Counts a symbol that leaves the unit. While its symbols are inserted, the unit counts none.
    pub(super) fn release_one(&mut self) {
        self.owed_count = self.owed_count.saturating_sub(1);
    }

    /// The number of symbols that the unit still has to define.
    pub(crate) fn owed_count(&self) -> usize {
        self.owed_count
    }

    /// The number of symbols that the unit once had.
    pub(crate) fn listed_count(&self) -> usize {
        self.symbols.len()
    }
}

/// A unit that was taken out of the table, to be materialised.
pub(crate) struct TakenUnit<E: TableTypes> {
    pub(crate) unit: E::Unit,
    /// The symbols that it has to define.
    pub(crate) symbols: RecycledVec<SymbolId>,
    /// Whether these are all symbols that the unit announced, in that order.
    pub(crate) is_complete: bool,
    pub(crate) discarded: Vec<Name>,
}

impl<E: TableTypes> SymbolTable<E> {
    /// Adds a record without a unit. The caller sets the unit with [`set_unit`](Self::set_unit) and may read its names before
    /// that.
    pub(crate) fn reserve_unit(&mut self, symbol_count: usize) -> UnitId {
        self.reserve_names(symbol_count);
        self.units.insert(UnitRecord::new(RecycledVec::with_capacity(symbol_count), Some(symbol_count)))
    }

    /// Grows the hash table once for `count` names.
    pub(super) fn reserve_names(&mut self, count: usize) {
        let rehash = |slot: &SlotNumber<SymbolId>| self.symbols[*slot].hash.spread();
        self.names.reserve(count, rehash);
    }

    /// Stores the symbols of a unit that was [staged](Self::begin_staged_unit).
    pub(crate) fn set_unit_symbols(&mut self, id: UnitId, symbols: RecycledVec<SymbolId>) {
        self.units[id].set_symbols(symbols);
    }

    /// Stores the unit in its record.
    pub(crate) fn set_unit(&mut self, id: UnitId, unit: E::Unit) {
        self.units[id].unit = Some(unit);
    }

    pub(crate) fn unit(&self, id: UnitId) -> Option<&UnitRecord<E>> {
        self.units.get(id)
    }

    pub(crate) fn unit_mut(&mut self, id: UnitId) -> Option<&mut UnitRecord<E>> {
        self.units.get_mut(id)
    }

    /// Removes a lazy unit that is to be materialised. The caller [begins](Self::begin) its symbols.
    pub(crate) fn take_unit(&mut self, id: UnitId) -> Option<TakenUnit<E>> {
        let UnitRecord { unit, mut symbols, owed_count, promised_count, discarded } = self.units.remove(id)?;
        let is_complete = promised_count == Some(owed_count);
        if symbols.len() != owed_count {
            symbols.retain(|symbol| self.symbols.get(*symbol).is_some_and(|symbol| symbol.unit() == Some(id)));
        }
        Some(TakenUnit { unit: unit?, symbols, is_complete, discarded })
    }

    /// Moves one symbol out of its lazy unit, from NeverSearched to Materializing. Returns its flags. The caller makes sure
    /// that the unit has other symbols left, or [drops](Self::drop_unit_if_empty) it.
    pub(crate) fn begin_alone(&mut self, id: SymbolId) -> Option<SymbolFlags> {
        let unit = self.visible(id)?.unit()?;
        self.units.get_mut(unit)?.release_one();
        self.begin(id)
    }

    /// Makes symbols that were being materialised lazy again; `unit` defines them now. Returns `None` if there are no symbols.
    pub(crate) fn make_lazy_again(
        &mut self,
        symbols: Vec<SymbolId>,
        unit: E::Unit,
        unit_name: &Arc<str>,
    ) -> Option<UnitId> {
        if symbols.is_empty() {
            return None;
        }
        let id = self.units.insert(UnitRecord::new(RecycledVec::default(), None));
        self.set_unit(id, unit);
        for symbol in &symbols {
            if let Some(symbol) = self.symbols.get_mut(*symbol) {
                symbol.make_lazy(id);
                let text = self.sources.text(symbol.name_source).clone();
                let old = std::mem::replace(&mut symbol.name_source, self.sources.add_user(&text, unit_name));
                drop(self.sources.release(old, 1));
            }
        }
        self.units[id].set_symbols(symbols.into_iter().collect());
        Some(id)
    }

    /// Whether anything waits for a symbol of a lazy unit.
    pub(crate) fn unit_has_waiters(&self, id: UnitId) -> bool {
        self.units.get(id).is_some_and(|record| record.symbols.iter().any(|id| self.has_waiters(*id)))
    }

    /// Removes a unit that has no symbols left.
    pub(crate) fn drop_unit_if_empty(&mut self, id: UnitId) -> Option<UnitRecord<E>> {
        let is_empty = self.units.get(id).is_some_and(|record| record.owed_count == 0);
        if is_empty { self.units.remove(id) } else { None }
    }

    /// Makes a lazy symbol ready at once: its unit has nothing to do for it. No lookup waits for the symbol. Returns the unit
    /// if it has no symbols left.
    pub(crate) fn finish_lazy(
        &mut self,
        id: SymbolId,
        address: ExecutorAddr,
        flags: SymbolFlags,
    ) -> Option<UnitRecord<E>> {
        let unit = self.visible(id)?.unit()?;
        self.begin_alone(id)?;
        let symbol = self.symbols.get_mut(id)?;
        symbol.set_address(address);
        (symbol.flags, symbol.state) = (flags, SymbolState::Ready);
        self.drop_unit_if_empty(unit)
    }
}
