//! [`JitDylib`]: methods that query its symbols.

use crate::base::{ExecutorAddr, Name};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::Pin;
use crate::session::types::ids::ResourceKey;
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::sync::Arc;

impl JitDylib {
    /// The size of a symbol that this dylib defines, in bytes; zero when unknown.
    pub(crate) fn symbol_size(&self, name: &str) -> Option<u64> {
        let state = self.inner().state.lock();
        let symbol = state.table.symbol(state.table.find(name)?)?;
        Some(state.table.size(symbol))
    }

    /// Whether the definition of a symbol in this dylib is that of the unit with this name. Each unit has a name of its own.
    pub(crate) fn is_defined_by(&self, name: &str, unit: &Arc<str>) -> bool {
        let state = self.inner().state.lock();
        let symbol = state.table.find(name).and_then(|id| state.table.symbol(id));
        symbol.is_some_and(|symbol| Arc::ptr_eq(state.table.unit_name(symbol), unit))
    }

    /// The state of a symbol that this dylib defines.
    pub fn symbol_state(&self, name: &str) -> Option<SymbolState> {
        let state = self.inner().state.lock();
        let id = state.table.find(name)?;
        state.table.symbol(id).map(|symbol| symbol.state)
    }

    /// The number of symbols that this dylib defines.
    pub fn symbol_count(&self) -> usize {
        self.inner().state.lock().table.symbol_count()
    }

    /// The number of symbols that a tracker of this dylib owns; zero for a defunct tracker.
    pub fn symbol_count_of(&self, key: ResourceKey) -> usize {
        let state = self.inner().state.lock();
        if key.dylib == self.inner().id { state.table.symbol_count_of(key.tracker) } else { 0 }
    }

    /// Pins the tracker that owns a ready symbol, and returns the symbol's address. `None` when the symbol is not
    /// defined or not ready.
    pub fn pin(&self, name: &str) -> Option<(ExecutorAddr, Pin)> {
        let (address, core) = {
            let state = self.inner().state.lock();
            let symbol = state.table.symbol(state.table.find(name)?)?;
            if symbol.state != SymbolState::Ready {
                return None;
            }
            (symbol.address(), state.table.owner(symbol)?.clone())
        };
        Some((address, Pin::new(core)?))
    }

    /// The `SIDE_EFFECTS_ONLY` symbols that are not ready. Look them up to link all initialisers.
    pub fn pending_side_effects(&self) -> Vec<Name> {
        let state = self.inner().state.lock();
        let pending = state.table.symbols().filter(|symbol| {
            symbol.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) && symbol.state != SymbolState::Ready
        });
        pending.map(|symbol| state.table.name(symbol).to_name()).collect()
    }
}
