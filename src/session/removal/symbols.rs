//! Removal of single symbols by name. Their trackers stay.

use crate::error::{ErrorKind, Result};
use crate::session::core::jit_dylib::{DylibState, JitDylib};
use crate::session::types::symbol::{SymbolId, SymbolState};

impl JitDylib {
    /// Removes symbols by name: all of them, or none. A lazy symbol is also removed from its unit. The code of a ready symbol
    /// stays with its tracker until the tracker is removed.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`]. [`ErrorKind::SymbolsCouldNotBeRemoved`] if a symbol is being materialised. After an
    /// error, no symbol was removed.
    pub fn remove_symbols(&self, names: &[&str]) -> Result<()> {
        let mut units = Vec::new();
        let removed = {
            let mut state = self.inner().state.lock();
            let ids = state.removable(self, names)?;
            let removed: Vec<_> = ids.into_iter().filter_map(|id| state.table.remove(id)).collect();
            for removed in &removed {
                let Some(unit) = removed.unit else { continue };
                if let Some(record) = state.table.unit_mut(unit) {
                    record.discarded.push(removed.name.clone());
                }
                units.extend(state.table.drop_unit_if_empty(unit));
            }
            removed
        };
        self.inner()
            .session
            .pins
            .uncache_definitions(self.inner().id.number(), removed.iter().map(|removed| removed.id));
        drop((removed, units));
        Ok(())
    }
}

impl DylibState {
    /// The ids of `names`, if the dylib has all of them and none is being materialised.
    fn removable(&self, dylib: &JitDylib, names: &[&str]) -> Result<Vec<SymbolId>> {
        let (mut found, mut missing, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match self.table.find(name).and_then(|id| Some((id, self.table.symbol(id)?.state))) {
                Some((id, SymbolState::NeverSearched | SymbolState::Ready)) => found.push(id),
                Some(_) => busy.push(name.to_string()),
                None => missing.push(name.to_string()),
            }
        }
        let dylib = dylib.name().to_string();
        if !missing.is_empty() {
            let (symbols, searched) = (missing, vec![dylib]);
            return Err(ErrorKind::SymbolsNotFound { symbols, needed_by: None, searched, failed: Vec::new() }.into());
        }
        if !busy.is_empty() {
            return Err(ErrorKind::SymbolsCouldNotBeRemoved { dylib, symbols: busy }.into());
        }
        Ok(found)
    }
}
