//! Symbols of the process, and [`LoadedLibrary`]: a library that is opened so that linked code finds its symbols.
//!
//! Such a library stays loaded until the process ends. No other time is safe: code of a session that has ended may be held
//! and call the library, a [`Function`](crate::Function) may point into the library without a pin, and the search of every
//! session of the process finds its symbols.
//!
//! Symbols are found by the system's loader. A thread-local variable needs another way, because its address differs from thread
//! to thread: it becomes a [`TlsIndex`] (`thread_locals.rs`).

use std::ffi::CString;
use std::fmt;

use crate::arch::support_function;
use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::{Error, ErrorKind};
use crate::host::thread_locals::{find_variable, prefer_static_offset};
use crate::os::{self, SymbolKind};

/// A shared library that was opened so that linked code finds its symbols. The library stays loaded until the process ends,
/// also after this value is dropped.
pub struct LoadedLibrary {
    name: String,
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))] // it is kept open
    library: os::Library,
}

impl LoadedLibrary {
    /// Opens a library by name or path. The system's loader searches it.
    ///
    /// # Errors
    /// [`ErrorKind::File`] with the loader's error message.
    pub fn open(name: &str) -> Result<LoadedLibrary, Error> {
        let fail = |problem: String| Error::from(ErrorKind::File { path: name.to_string(), problem });
        let c_name = CString::new(name).map_err(|error| fail(error.to_string()))?;
        let library = os::Library::open(&c_name, true).map_err(fail)?;
        prefer_static_offset(&library);
        Ok(LoadedLibrary { name: name.to_string(), library })
    }

    /// The name or path with which it was opened.
    #[cfg(feature = "unstable")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the library exports a symbol of this name. Libraries that it needs do not count.
    #[cfg(feature = "unstable")]
    pub fn exports(&self, name: &str) -> bool {
        self.library.exports(name.split('@').next().unwrap_or(name))
    }
}

impl fmt::Debug for LoadedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "library {}", self.name)
    }
}

/// A symbol that the process exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessSymbol {
    /// A function, or a symbol whose type is not known.
    Function(ExecutorAddr),
    /// Another symbol with an address.
    Data(ExecutorAddr),
    /// A thread-local variable.
    TlsIndex(TlsIndex),
}

/// Finds a symbol that the program or one of its loaded libraries exports. `name@VERSION` is that version of the symbol.
pub(super) fn find_symbol(name: &str) -> Option<ProcessSymbol> {
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(CString::new(version.trim_start_matches('@')).ok()?)),
        None => (name, None),
    };
    let c_name = CString::new(name).ok()?;
    // `dlsym` would give the address in the calling thread. The loader would also allocate the library's TLS block then, and
    // the variable could not get a static offset any more.
    if os::symbol_kind(name, NOWHERE) == SymbolKind::ThreadLocal
        && let Ok(variable) = find_variable(name)
    {
        return Some(ProcessSymbol::TlsIndex(variable));
    }
    let address = match version {
        Some(version) => os::process_symbol_of_version(&c_name, &version)?,
        None => os::process_symbol(&c_name).or_else(|| support_function(name).map(|function| function as u64))?,
    };
    match os::symbol_kind(name, address) {
        SymbolKind::Function => Some(ProcessSymbol::Function(ExecutorAddr::new(address))),
        SymbolKind::Data => Some(ProcessSymbol::Data(ExecutorAddr::new(address))),
        SymbolKind::ThreadLocal => None,
    }
}

/// An address without a symbol.
const NOWHERE: u64 = 0;
