//! What a [`SymbolTable`] knows of aliases.

use super::{Aliasee, Symbol, SymbolTable, TableTypes};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};

impl<E: TableTypes> SymbolTable<E> {
    /// The target of an alias that is not resolved. `None` before the first lookup, and for other symbols.
    pub(crate) fn alias_of(&self, symbol: &Symbol) -> Option<&Aliasee<E::Dylib>> {
        self.extras.at(symbol.extra?)?.alias_of.as_deref()
    }

    pub(crate) fn set_alias(&mut self, id: SymbolId, aliasee: Aliasee<E::Dylib>) {
        if let Some(extra) = self.extra_mut(id) {
            extra.alias_of = Some(Box::new(aliasee));
        }
    }

    /// Makes an alias absolute, because its aliasee is. Called before the alias has an address, so that a lookup sees both.
    pub(crate) fn set_absolute(&mut self, id: SymbolId) {
        if let Some(symbol) = self.visible_mut(id) {
            debug_assert!(symbol.state == SymbolState::Materializing);
            symbol.flags = symbol.flags | SymbolFlags::ABSOLUTE;
        }
    }
}
