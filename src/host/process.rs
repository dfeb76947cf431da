//! The process's own symbols, and libraries opened for theirs.

use std::ffi::CString;
use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind};
use crate::os;

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
        Ok(LoadedLibrary { name: name.to_string(), _library: library })
    }
}

impl fmt::Debug for LoadedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "library {}", self.name)
    }
}

/// The address of a symbol that the program, or a library that it has loaded, exports.
pub(crate) fn find_symbol(name: &str) -> Option<ExecutorAddr> {
    let name = CString::new(name).ok()?;
    os::process_symbol(&name).map(ExecutorAddr::new)
}
