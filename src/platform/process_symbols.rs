//! [`ProcessSymbols`]: a generator that defines what the process and its libraries export, when it is asked for.
//!
//! Symbols become absolute definitions of the dylib that it is attached to. Libraries named as fallbacks are opened at
//! the first name that the process does not have, and stay open as long as the generator.

use std::fmt;

use crate::base::{ExecutorAddr, Name, is_linker_made};
use crate::error::Result;
use crate::host::{self, LoadedLibrary, ProcessSymbol};
use crate::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};
use crate::sync::Mutex;

/// Supplies the symbols of the process (ORC: `DynamicLibrarySearchGenerator`).
pub struct ProcessSymbols {
    fallbacks: Mutex<Fallbacks>,
}

struct Fallbacks {
    /// Not opened yet, the first to try last.
    unopened: Vec<String>,
    opened: Vec<LoadedLibrary>,
}

impl ProcessSymbols {
    /// Symbols of the process, and of `fallbacks` in order: library names as the system's loader takes them. A fallback
    /// that does not exist is passed over.
    pub fn new(fallbacks: impl IntoIterator<Item = String>) -> ProcessSymbols {
        let mut unopened: Vec<String> = fallbacks.into_iter().collect();
        unopened.reverse();
        ProcessSymbols { fallbacks: Mutex::new(Fallbacks { unopened, opened: Vec::new() }) }
    }

    /// Opens the next fallback; false when there is none left.
    fn open_next(&self) -> bool {
        let Some(name) = self.fallbacks.lock().unopened.pop() else { return false };
        // Outside the lock: a library's constructors run here.
        if let Ok(library) = LoadedLibrary::open(&name) {
            self.fallbacks.lock().opened.push(library);
        }
        true
    }
}

impl DefinitionGenerator for ProcessSymbols {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        // Those of the process are about the host program or one of its libraries.
        let is_sought = |name: &&str| !is_linker_made(name.as_bytes());
        let mut missing: Vec<&str> = missing.iter().map(|request| request.name).filter(is_sought).collect();
        loop {
            let mut found = Vec::new();
            missing.retain(|name| {
                let symbol = host::find_symbol(name);
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
    // Weak, because another thread may be defining the same name now.
    (Name::new(name), address, SymbolFlags::EXPORTED | SymbolFlags::WEAK | flag)
}

impl fmt::Debug for ProcessSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Outside the lock: the formatter may be the embedder's.
        let (opened, unopened) = {
            let fallbacks = self.fallbacks.lock();
            (format!("{:?}", fallbacks.opened), fallbacks.unopened.clone())
        };
        write!(f, "process symbols, with {opened}, not yet {unopened:?}")
    }
}
