//! The process's own symbols, and libraries opened for theirs.

use std::ffi::CString;
use std::fmt;

use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::{Error, ErrorKind};
use crate::host::thread_locals::{find_variable, prefer_static_place};
use crate::os::{self, SymbolKind};

/// A shared library that was opened so that linked code finds its symbols. Closed when dropped.
pub struct LoadedLibrary {
    name: String,
    _library: os::Library,
}

impl LoadedLibrary {
    /// Opens a library by name or path, as the system's loader finds it.
    ///
    /// # Errors
    /// The loader's own words.
    pub fn open(name: &str) -> Result<LoadedLibrary, Error> {
        let fail = |problem: String| Error::from(ErrorKind::File { path: name.to_string(), problem });
        let c_name = CString::new(name).map_err(|error| fail(error.to_string()))?;
        let library = os::Library::open(&c_name, true).map_err(fail)?;
        prefer_static_place(&library);
        Ok(LoadedLibrary { name: name.to_string(), _library: library })
    }
}

impl fmt::Debug for LoadedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "library {}", self.name)
    }
}

/// What the process knows of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessSymbol {
    /// A function, for all that is known.
    Function(ExecutorAddr),
    /// Something else with an address.
    Data(ExecutorAddr),
    /// A thread-local variable.
    TlsIndex(TlsIndex),
}

/// A symbol that the program, or a library that it has loaded, exports.
pub(crate) fn find_symbol(name: &str) -> Option<ProcessSymbol> {
    let c_name = CString::new(name).ok()?;
    // Asked by name, a thread-local variable would be the calling thread's, and its library's block would be settled.
    if os::symbol_kind(name, NOWHERE) == SymbolKind::TlsIndex
        && let Ok(variable) = find_variable(name)
    {
        return Some(ProcessSymbol::TlsIndex(variable));
    }
    let address = os::process_symbol(&c_name)?;
    match os::symbol_kind(name, address) {
        SymbolKind::Function => Some(ProcessSymbol::Function(ExecutorAddr::new(address))),
        SymbolKind::Data => Some(ProcessSymbol::Data(ExecutorAddr::new(address))),
        SymbolKind::TlsIndex => None,
    }
}

/// No symbol is there.
const NOWHERE: u64 = 0;
