//! [`ProgramSymbols`]: a generator that defines the running program's own symbols, those included that its dynamic symbol
//! table does not name.
//!
//! A program that was linked without `-rdynamic` tells the loader of few of its functions and variables; its file tells of
//! all, unless it was stripped. The file's table is read once. Symbols that are local to one of the program's object files
//! are not known, since their names may stand for several.

use std::fmt;

use crate::base::Name;
use crate::error::Result;
use crate::host::{self, ProgramSymbol};
use crate::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};

/// Supplies the global symbols of the running program, out of its file.
///
/// They count as the dylib's own: objects that are linked into it cannot define them again, and versions of
/// [patched](crate::Patchable) functions share its variables.
pub struct ProgramSymbols {
    /// Sorted by name.
    symbols: Vec<ProgramSymbol>,
}

impl ProgramSymbols {
    /// The symbols of the program that runs.
    ///
    /// # Errors
    /// When its file cannot be mapped, or has no symbol table because it was stripped.
    pub fn new() -> Result<ProgramSymbols> {
        Ok(ProgramSymbols { symbols: host::program_symbols()? })
    }

    /// Number of symbols that are known.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }
}

impl DefinitionGenerator for ProgramSymbols {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let find = |request: &SymbolRequest<'_>| {
            let position = self.symbols.binary_search_by(|symbol| (*symbol.name).cmp(request.name)).ok()?;
            let ProgramSymbol { name, address, is_function } = &self.symbols[position];
            let flag = if *is_function { SymbolFlags::CALLABLE } else { SymbolFlags::NONE };
            // Weak, because another thread may be defining the same name now.
            Some((Name::new(name), *address, SymbolFlags::EXPORTED | SymbolFlags::WEAK | flag))
        };
        let found: Vec<_> = missing.iter().filter_map(find).collect();
        if found.is_empty() { Ok(()) } else { dylib.define_absolute(found) }
    }
}

impl fmt::Debug for ProgramSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} symbols of the program", self.symbol_count())
    }
}
