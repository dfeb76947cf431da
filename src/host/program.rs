//! [`ProgramStart`]: sets up the process for a native program: arguments, environment, program name and default signals.
//!
//! It exists while the program runs, one at a time. Dropping it restores the name and the signals.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;

use crate::os;
use crate::sync::StaticMutex;

/// `int main(int argc, char **argv, char **envp)`. A `main` with fewer parameters ignores the others.
pub(super) type MainFunction = extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// The environment of a running program. Dropped when the program has ended.
pub(super) struct ProgramStart {
    /// The arguments as bytes, because the program may write to them and even shorten them.
    _strings: Vec<Vec<u8>>,
    /// A pointer to each argument, then null.
    argv: Vec<*mut c_char>,
    _name: Option<os::ProgramName>,
    _signals: os::DefaultSignals,
}

/// Number of arguments, address of `argv`, address of the environment.
static VECTORS: StaticMutex<Option<(c_int, usize, usize)>> = StaticMutex::new(None);

impl ProgramStart {
    pub(super) fn new(arguments: &[CString]) -> ProgramStart {
        let mut strings: Vec<Vec<u8>> =
            arguments.iter().map(|argument| argument.to_bytes_with_nul().to_vec()).collect();
        let mut argv: Vec<*mut c_char> = strings.iter_mut().map(|string| string.as_mut_ptr().cast()).collect();
        argv.push(std::ptr::null_mut());
        // Leaked: the C library may print the name after the program has ended.
        let name = arguments.first().map(|name| &*Box::leak(name.clone().into_boxed_c_str()));
        let start = ProgramStart {
            _strings: strings,
            argv,
            _name: name.map(|name: &'static CStr| os::ProgramName::set(name)),
            _signals: os::DefaultSignals::set(),
        };
        *VECTORS.lock() = Some((start.argc(), start.argv.as_ptr() as usize, os::environment() as usize));
        start
    }

    /// Calls `main`, with `errno` zero as at the start of a process.
    pub(super) fn call(&mut self, main: MainFunction) -> c_int {
        os::clear_errno();
        main(self.argc(), self.argv.as_mut_ptr(), os::environment())
    }

    fn argc(&self) -> c_int {
        (self.argv.len() - 1) as c_int
    }
}

impl Drop for ProgramStart {
    fn drop(&mut self) {
        *VECTORS.lock() = None;
    }
}

impl fmt::Debug for ProgramStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program's start with {} arguments", self.argc())
    }
}

/// The arguments for initialisers of the running program: `argc`, `argv`, `envp`. `None` if no program runs.
pub(super) fn vectors() -> Option<(c_int, *const *mut c_char, *const *mut c_char)> {
    let vectors = *VECTORS.lock();
    vectors.map(|(argc, argv, envp)| (argc, argv as *const *mut c_char, envp as *const *mut c_char))
}
