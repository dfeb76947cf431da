//! [`ProgramStart`]: sets up the process for a native program: arguments, environment, program name and default signals.
//!
//! It exists while the program runs, one at a time. Dropping it restores the name and the signals.
//!
//! # Arguments and environment
//! `main` and initialisers get pointers that C code may keep: in a native process they are valid until it ends. So the
//! arguments are copied once for each program, and once for the process, and never freed. The environment is that of the C
//! library at the time of the call, as the system's loader passes it; `setenv` may replace it later.
//!
//! Behind `argv` lies what the kernel puts there: the variables of the environment, and the auxiliary vector. Some code walks
//! from `argv` to them, such as the runtime of Go. They are copied at the first program or initialiser of the process.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;

use crate::os;
use crate::sync::{StaticCell, StaticMutex};

/// `int main(int argc, char **argv, char **envp)`. A `main` with fewer parameters ignores the others.
pub(super) type MainFunction = extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// The state of the process while a program runs. Dropped when the program has ended.
pub(super) struct ProgramStart {
    arguments: Arguments,
    _name: Option<os::ProgramName>,
    _signals: os::DefaultSignals,
}

/// A copy of arguments that is never freed.
#[derive(Clone, Copy)]
struct Arguments {
    argc: c_int,
    /// Address of an array with a pointer to each argument, null, and [`behind_arguments`].
    argv: usize,
}

/// The arguments of the running program. `None` if no program runs.
static RUNNING: StaticMutex<Option<Arguments>> = StaticMutex::new(None);

impl ProgramStart {
    pub(super) fn new(arguments: &[CString]) -> ProgramStart {
        // Leaked: the C library may print the name after the program has ended.
        let name = arguments.first().map(|name| &*Box::leak(name.clone().into_boxed_c_str()));
        let arguments = Arguments::leak(arguments.iter().cloned());
        let start = ProgramStart {
            arguments,
            _name: name.map(|name: &'static CStr| os::ProgramName::set(name)),
            _signals: os::DefaultSignals::set(),
        };
        *RUNNING.lock() = Some(arguments);
        start
    }

    /// Calls `main`, with `errno` zero as at the start of a process.
    pub(super) fn call(&mut self, main: MainFunction) -> c_int {
        os::clear_errno();
        let (argc, argv, envp) = self.arguments.vectors();
        main(argc, argv, envp)
    }
}

impl Drop for ProgramStart {
    fn drop(&mut self) {
        *RUNNING.lock() = None;
    }
}

impl fmt::Debug for ProgramStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program's start with {} arguments", self.arguments.argc)
    }
}

/// The arguments for initialisers and finalisers: `argc`, `argv`, `envp`. Without a running program they are those of the
/// process.
pub(super) fn vectors() -> (c_int, *mut *mut c_char, *mut *mut c_char) {
    let running = *RUNNING.lock();
    running.unwrap_or_else(Arguments::of_process).vectors()
}

impl Arguments {
    /// The arguments of the process, which are copied at the first call.
    fn of_process() -> Arguments {
        static PROCESS: StaticCell<Arguments> = StaticCell::new();
        // An argument has no null byte, because the kernel passes C strings.
        let copy =
            || Arguments::leak(std::env::args_os().filter_map(|argument| CString::new(argument.into_vec()).ok()));
        *PROCESS.get_or_init(copy)
    }

    /// Copies the arguments into memory that is writable, because a program may write to its arguments.
    fn leak(arguments: impl Iterator<Item = CString>) -> Arguments {
        let mut argv: Vec<*mut c_char> = arguments.map(CString::into_raw).collect();
        let argc = argv.len() as c_int;
        argv.push(std::ptr::null_mut());
        argv.extend(behind_arguments().iter().map(|word| std::ptr::with_exposed_provenance_mut(*word)));
        Arguments { argc, argv: argv.leak().as_mut_ptr().expose_provenance() }
    }

    /// The arguments with the current environment.
    fn vectors(self) -> (c_int, *mut *mut c_char, *mut *mut c_char) {
        // `clearenv` leaves no environment, but callers walk the list up to its null.
        static NO_VARIABLES: usize = 0;
        let environment = os::environment();
        let envp = if environment.is_null() { (&raw const NO_VARIABLES).cast_mut().cast() } else { environment };
        (self.argc, std::ptr::with_exposed_provenance_mut(self.argv), envp)
    }
}

/// A pointer to each variable of the environment, null, and the pairs of the auxiliary vector. The last pair is zero.
fn behind_arguments() -> &'static [usize] {
    static WORDS: StaticCell<Vec<usize>> = StaticCell::new();
    WORDS.get_or_init(|| {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let text = [name.into_vec(), value.into_vec()].join(&b'=');
            Some(CString::new(text).ok()?.into_raw().expose_provenance())
        });
        let mut words: Vec<usize> = variables.collect();
        words.push(0);
        // Without the file, the vector is empty.
        let auxiliary = std::fs::read("/proc/self/auxv").unwrap_or_default();
        let (pairs, _) = auxiliary.as_chunks::<{ size_of::<usize>() }>();
        words.extend(pairs.iter().map(|word| usize::from_ne_bytes(*word)));
        words.extend([0, 0]);
        words
    })
}
