//! [`ProgramSymbols`]: a generator that defines all global symbols of the running program.
//!
//! A program that was linked without `-rdynamic` exports few of its functions and variables to the loader. The symbol table of
//! its file has all of them, unless it was stripped. The generator reads that table once. It does not define symbols that are
//! local to one object file of the program, because several of them may have the same name.

use std::fmt;

use crate::base::Name;
use crate::error::Result;
use crate::host::{Executor, ProgramSymbol};
use crate::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};

/// Supplies the global symbols of the running program, which it reads from the program's file.
///
/// The symbols count as definitions of the dylib: objects that are linked into it cannot define them again, and versions of
/// [patched](crate::Patchable) functions share the program's variables.
pub struct ProgramSymbols {
    /// Sorted by name.
    symbols: Vec<ProgramSymbol>,
}

impl ProgramSymbols {
    /// Reads the symbols of the running program.
    ///
    /// # Errors
    /// The file cannot be read, or has no symbol table because it was stripped.
    #[cfg(feature = "unstable")]
    pub fn new() -> Result<ProgramSymbols> {
        ProgramSymbols::with_executor(&crate::host::InProcess)
    }

    /// As [`new`](Self::new), for the program that runs in the process behind `executor`.
    pub(crate) fn with_executor(executor: &dyn Executor) -> Result<ProgramSymbols> {
        Ok(ProgramSymbols { symbols: executor.program_symbols()? })
    }

    /// Number of symbols.
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
            // Weak, because another thread may define the same name at the same time.
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
