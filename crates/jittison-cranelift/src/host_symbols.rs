//! [`HostSymbols`]: symbols that the searches of [`JITBuilder::symbol_lookup_fn`](crate::JITBuilder::symbol_lookup_fn) find, as
//! definitions of a dylib.

use std::sync::{Mutex, PoisonError};

use jittison::JitDylib;
use jittison::base::{ExecutorAddr, Name};
use jittison::error::Result;
use jittison::session::{DefinitionGenerator, SymbolFlags, SymbolRequest};

use crate::builder::SymbolLookup;

/// Asks the searches for each name that the dylib does not have.
pub(crate) struct HostSymbols(Mutex<Vec<SymbolLookup>>);

impl HostSymbols {
    pub(crate) fn new(lookups: Vec<SymbolLookup>) -> HostSymbols {
        HostSymbols(Mutex::new(lookups))
    }
}

impl DefinitionGenerator for HostSymbols {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let lookups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = missing.iter().filter_map(|request| {
            let address = lookups.iter().rev().find_map(|lookup| lookup(request.name))?;
            Some(definition(request.name, ExecutorAddr::new(address as u64)))
        });
        dylib.define_absolute(found.collect::<Vec<_>>())
    }
}

/// A symbol of the host, as `define_absolute` takes it.
pub(crate) fn definition(name: &str, address: ExecutorAddr) -> (Name, ExecutorAddr, SymbolFlags) {
    (Name::new(name), address, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)
}
