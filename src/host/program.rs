//! [`ProgramStart`]: what a native program finds when it starts: arguments, environment, a name, default signals.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;

use crate::os;
use crate::sync::StaticMutex;

/// `int main(int argc, char **argv, char **envp)`; one that takes less does not notice.
pub(crate) type MainFunction = extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// The arguments of a program that runs; dropped when it has ended. One at a time.
pub(crate) struct ProgramStart {
    /// The program may write to them, and even shorten them, so they are kept as plain bytes.
    _strings: Vec<Vec<u8>>,
    /// As many pointers as arguments, and a null.
    argv: Vec<*mut c_char>,
    _name: Option<os::ProgramName>,
    _signals: os::DefaultSignals,
}

/// Argument count, arguments, environment: the last two as addresses.
static VECTORS: StaticMutex<Option<(c_int, usize, usize)>> = StaticMutex::new(None);

impl ProgramStart {
    pub(crate) fn new(arguments: &[CString]) -> ProgramStart {
        let mut strings: Vec<Vec<u8>> =
            arguments.iter().map(|argument| argument.to_bytes_with_nul().to_vec()).collect();
        let mut argv: Vec<*mut c_char> = strings.iter_mut().map(|string| string.as_mut_ptr().cast()).collect();
        argv.push(std::ptr::null_mut());
        // The C library may still print the name after everything else is over.
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

    /// Calls `main`, with `errno` as a process begins.
    pub(crate) fn call(&mut self, main: MainFunction) -> c_int {
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

/// What initialisers of the program that runs are called with.
pub(crate) fn vectors() -> Option<(c_int, *const *mut c_char, *const *mut c_char)> {
    let vectors = *VECTORS.lock();
    vectors.map(|(argc, argv, envp)| (argc, argv as *const *mut c_char, envp as *const *mut c_char))
}
