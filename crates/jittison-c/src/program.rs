//! Programs: the objects under a tracker, run from their initialisers to their exit handlers.

use std::ffi::{CStr, CString, c_char, c_int};

use jittison::Program;

use crate::entry::{check_out, put, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::session::{SESSIONS, Session};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker};

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_program_run(
    session: Session,
    tracker: Tracker,
    entry: Str,
    argc: c_int,
    argv: *const *const c_char,
    status: *mut c_int,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(status, "status")?;
            let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
            // SAFETY: C1 - the caller promises both.
            let (entry, arguments) = unsafe { (entry.read("entry")?, read_arguments(argc, argv)?) };
            Ok((Program::new(&jit, &tracker)?, entry, arguments))
        },
        |(program, entry, arguments)| {
            // SAFETY: C3 - the header states the promises.
            let returned = unsafe { program.run(entry, &arguments, |_| {})? };
            // SAFETY: C1 - the caller promises it.
            unsafe { put(status, "status", || Ok(returned)) }
        },
    )
}

/// # Safety
/// C1 for `argv` and its strings.
unsafe fn read_arguments(argc: c_int, argv: *const *const c_char) -> Result<Vec<CString>, Failure> {
    let count = usize::try_from(argc).map_err(|_| Failure::argument(format!("argc is {argc}")))?;
    // SAFETY: C1 - the caller promises it.
    let pointers = unsafe { read_slice(argv, count, "argv")? };
    let read = |(index, pointer): (usize, &*const c_char)| {
        if pointer.is_null() {
            return Err(Failure::argument(format!("argv[{index}] is null")));
        }
        // SAFETY: C1 - not null, as checked above; the caller promises a string.
        Ok(unsafe { CStr::from_ptr(*pointer) }.to_owned())
    };
    pointers.iter().enumerate().map(read).collect()
}
