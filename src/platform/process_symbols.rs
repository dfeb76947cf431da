//! [`ProcessSymbols`]: a generator that defines symbols of the process and its libraries when a lookup misses them.
//!
//! Each symbol becomes an absolute definition of the dylib that the generator is attached to. Fallback libraries are opened one
//! by one, when the process does not have a name, and stay loaded until the process ends.

use std::fmt;

use crate::base::{ExecutorAddr, Name, is_linker_defined};
use crate::error::Result;
use crate::host::{Executor, ProcessSymbol};
use crate::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};
use crate::sync::{Arc, Mutex};

/// Supplies the symbols of the process (ORC: `DynamicLibrarySearchGenerator`).
pub struct ProcessSymbols {
    executor: Arc<dyn Executor>,
    fallbacks: Mutex<Fallbacks>,
}

struct Fallbacks {
    /// Libraries that are not opened yet, in reverse order.
    unopened: Vec<String>,
    /// Names of the opened libraries.
    opened: Vec<String>,
}

impl ProcessSymbols {
    /// A generator for the symbols of the process, then those of `fallbacks` in order. A fallback is a name or path for the
    /// system's loader. One that cannot be opened is skipped.
    #[cfg(feature = "unstable")]
    pub fn new(fallbacks: impl IntoIterator<Item = String>) -> ProcessSymbols {
        ProcessSymbols::with_executor(fallbacks, Arc::new(crate::host::InProcess))
    }

    /// As [`new`](Self::new), for the process behind `executor`.
    pub(crate) fn with_executor(
        fallbacks: impl IntoIterator<Item = String>,
        executor: Arc<dyn Executor>,
    ) -> ProcessSymbols {
        let mut unopened: Vec<String> = fallbacks.into_iter().collect();
        unopened.reverse();
        ProcessSymbols { executor, fallbacks: Mutex::new(Fallbacks { unopened, opened: Vec::new() }) }
    }

    /// Opens the next fallback. Returns false if there is none.
    fn open_next(&self) -> bool {
        let Some(name) = self.fallbacks.lock().unopened.pop() else { return false };
        // Outside the lock, because constructors of the library run here.
        if self.executor.open_library(&name).is_ok() {
            self.fallbacks.lock().opened.push(name);
        }
        true
    }
}

impl DefinitionGenerator for ProcessSymbols {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        // Linker-defined names, such as `_end`, describe the host program or one of its libraries, not linked code.
        let is_searched = |name: &&str| !is_linker_defined(name.as_bytes());
        let mut missing: Vec<&str> = missing.iter().map(|request| request.name).filter(is_searched).collect();
        loop {
            let mut found = Vec::new();
            missing.retain(|name| {
                let symbol = self.executor.find_symbol(name);
                found.extend(symbol.map(|symbol| definition(name, symbol)));
                symbol.is_none()
            });
            dylib.define_absolute(found)?;
            if missing.is_empty() || !self.open_next() {
                return Ok(());
            }
        }
    }
}

fn definition(name: &str, symbol: ProcessSymbol) -> (Name, ExecutorAddr, SymbolFlags) {
    let (address, flag) = match symbol {
        ProcessSymbol::Function(address) => (address, SymbolFlags::CALLABLE),
        ProcessSymbol::Data(address) => (address, SymbolFlags::NONE),
        ProcessSymbol::TlsIndex(variable) => (variable.to_address(), SymbolFlags::THREAD_LOCAL),
    };
    // Weak, because another thread may define the same name at the same time.
    (Name::new(name), address, SymbolFlags::EXPORTED | SymbolFlags::WEAK | flag)
}

impl fmt::Debug for ProcessSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The lock is released before formatting, because the formatter may be code of the embedder.
        let (opened, unopened) = {
            let fallbacks = self.fallbacks.lock();
            (fallbacks.opened.clone(), fallbacks.unopened.clone())
        };
        write!(f, "process symbols, with {opened:?}, not yet {unopened:?}")
    }
}
