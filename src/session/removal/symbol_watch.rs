//! [`SymbolWatch`]: asks later how far one definition has come, without keeping anything alive meanwhile.

use std::fmt;

use crate::error::Error;
use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::resource_tracker::Pin;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::symbols::symbol_table::RemovedSymbol;
use crate::session::types::symbol::{SymbolId, SymbolRef, SymbolState};
use crate::sync::{Arc, Weak};

/// A weak reference to one definition.
#[derive(Clone)]
pub struct SymbolWatch {
    dylib: Weak<DylibInner>,
    id: SymbolId,
}

/// What a watch saw.
#[derive(Debug)]
pub enum Watched {
    /// Ready; the pin keeps it so.
    Ready(Pin),
    /// On its way.
    Unready,
    /// Removed, or failed.
    Gone,
}

impl SymbolWatch {
    pub(crate) fn new(dylib: &Arc<DylibInner>, id: SymbolId) -> SymbolWatch {
        SymbolWatch { dylib: Arc::downgrade(dylib), id }
    }

    /// A watch of a definition that a lookup found.
    pub(crate) fn of(symbol: &SymbolRef) -> SymbolWatch {
        SymbolWatch::new(&symbol.dylib, symbol.id)
    }

    /// Whether the definition was removed, overridden, or failed.
    pub fn is_gone(&self) -> bool {
        self.dylib.upgrade().is_none_or(|dylib| dylib.state.lock().table.symbol(self.id).is_none())
    }

    /// Takes the definition out of the table, and with it all that came from the same unit, as if the unit had failed:
    /// the names may be defined again. What they lead to stays with its tracker until that is removed. False when it is
    /// gone already. `cause` is what those are told who still wait for any of it.
    pub(crate) fn take_back_unit(&self, cause: impl FnOnce() -> Error) -> bool {
        let Some(dylib) = self.dylib.upgrade() else { return false };
        let symbols: Vec<RemovedSymbol> = {
            let mut state = dylib.state.lock();
            let mates = state.table.mates(self.id);
            mates.into_iter().filter_map(|id| state.table.remove(id)).collect()
        };
        dylib.session.pins.forget_known(&dylib, symbols.iter().map(|symbol| symbol.id));
        let is_there = !symbols.is_empty();
        RemovedDefinitions { symbols, units: Vec::new() }.settle(&dylib, cause);
        is_there
    }

    /// Pins the definition's tracker if it is ready.
    pub fn pin(&self) -> Watched {
        let Some(dylib) = self.dylib.upgrade() else { return Watched::Gone };
        let core = {
            let state = dylib.state.lock();
            let Some(symbol) = state.table.symbol(self.id) else { return Watched::Gone };
            if symbol.state != SymbolState::Ready {
                return Watched::Unready;
            }
            state.table.owner(symbol).cloned()
        };
        match core.and_then(Pin::new) {
            Some(pin) => Watched::Ready(pin),
            None => Watched::Gone,
        }
    }
}

impl fmt::Debug for SymbolWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {:?}", self.id)
    }
}
