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
        let find = |request: &SymbolRequest<'_>| {
            let lookups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let address = lookups.iter().rev().find_map(|lookup| lookup(request.name))?;
            let (name, address, flags) = definition(request.name, ExecutorAddr::new(address as u64));
            // Weak, because another thread may define the same name at the same time.
            Some((name, address, flags | SymbolFlags::WEAK))
        };
        dylib.define_absolute(missing.iter().filter_map(find).collect::<Vec<_>>())
    }
}

/// A symbol of the host, as `define_absolute` takes it.
pub(crate) fn definition(name: &str, address: ExecutorAddr) -> (Name, ExecutorAddr, SymbolFlags) {
    (Name::new(name), address, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_threads_search_for_at_once_is_found_by_both() {
        let jit = jittison::Jit::new().unwrap();
        let dylib = jit.create_dylib("host").unwrap();
        let host = HostSymbols::new(vec![Box::new(|_| Some(8 as *const u8))]);
        // Both threads found the name missing, and then asked.
        let missing = [SymbolRequest::required("host_function")];
        assert_eq!([(); 2].map(|()| host.generate(&dylib, &missing).is_ok()), [true; 2]);
        assert_eq!(jit.address_of(&dylib, "host_function").unwrap(), ExecutorAddr::new(8));
    }
}
