//! [`SymbolWatch`]: a weak reference to one definition. It tells later which state the definition has reached.

use std::fmt;

use crate::error::Error;
use crate::session::core::jit_dylib::{DylibInner, JitDylib, RemovedSymbol};
use crate::session::core::resource_tracker::Pin;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::types::symbol::{SymbolId, SymbolState};
use crate::sync::{Arc, Weak};

/// A weak reference to one definition.
#[derive(Clone)]
pub struct SymbolWatch {
    dylib: Weak<DylibInner>,
    id: SymbolId,
}

impl SymbolRef {
    /// A weak reference to the definition, which keeps nothing alive.
    pub fn watch(&self) -> SymbolWatch {
        SymbolWatch::of(self)
    }

    /// A pin of the definition's tracker, if the definition is ready.
    pub(crate) fn ready_pin(&self) -> Option<Pin> {
        pin(&self.dylib, self.id).into_pin()
    }
}

impl JitDylib {
    /// A weak reference to the current definition of a name in this dylib.
    pub fn watch(&self, name: &str) -> Option<SymbolWatch> {
        let state = self.inner().state.lock();
        state.table.find(name).map(|id| SymbolWatch::new(self.inner(), id))
    }

    /// A pin of the tracker of one of this dylib's definitions, if the definition is ready.
    pub(crate) fn pin_ready(&self, id: SymbolId) -> Option<Pin> {
        pin(self.inner(), id).into_pin()
    }

    /// Whether this dylib has the definition, which was not removed or replaced and has not failed.
    pub(crate) fn has_definition(&self, id: SymbolId) -> bool {
        self.inner().state.lock().table.symbol(id).is_some()
    }
}

/// The state of a watched definition.
#[derive(Debug)]
pub enum Watched {
    /// The definition is ready, and the pin keeps it.
    Ready(Pin),
    /// The definition is not ready yet.
    Unready,
    /// The definition was removed, or failed.
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

    /// Whether the definition was removed or replaced, or has failed.
    pub fn is_gone(&self) -> bool {
        self.dylib.upgrade().is_none_or(|dylib| dylib.state.lock().table.symbol(self.id).is_none())
    }

    /// Removes the definition and all others of the same unit, as if the unit had failed. Their names may be defined again.
    /// Their code stays with its tracker until the tracker is removed. Queries that wait for one of them fail with `cause`.
    /// Returns false if the definition is gone already.
    pub(crate) fn remove_unit(&self, cause: &Error) -> bool {
        let Some(dylib) = self.dylib.upgrade() else { return false };
        let symbols: Vec<RemovedSymbol> = {
            let mut state = dylib.state.lock();
            let unit_symbols = state.table.symbols_of_same_unit(self.id);
            let removed: Vec<_> = unit_symbols.into_iter().filter_map(|id| state.table.remove(id)).collect();
            state.table.record_failures(removed.iter(), cause, dylib.session.failures.count());
            removed
        };
        dylib.session.pins.uncache_definitions(dylib.id.number(), symbols.iter().map(|symbol| symbol.id));
        let is_there = !symbols.is_empty();
        RemovedDefinitions::new(symbols, cause.clone()).fail_waiters(&dylib);
        is_there
    }

    /// Pins the definition's tracker if it is ready.
    pub fn pin(&self) -> Watched {
        match self.dylib.upgrade() {
            Some(dylib) => pin(&dylib, self.id),
            None => Watched::Gone,
        }
    }
}

impl Watched {
    fn into_pin(self) -> Option<Pin> {
        match self {
            Watched::Ready(pin) => Some(pin),
            Watched::Unready | Watched::Gone => None,
        }
    }
}

/// Pins the tracker of a definition in `dylib` if it is ready.
fn pin(dylib: &DylibInner, id: SymbolId) -> Watched {
    let core = {
        let state = dylib.state.lock();
        let Some(symbol) = state.table.symbol(id) else { return Watched::Gone };
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

impl fmt::Debug for SymbolWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {:?}", self.id)
    }
}
