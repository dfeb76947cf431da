//! Signals of a crash: [`report_crashes`] calls a function with the place of the crash before the process ends by the signal.

use std::ffi::{c_int, c_void};
use std::io;

use crate::sync::StaticCell;

/// The greatest number of frames of a backtrace.
pub(crate) const MAX_FRAMES: usize = 48;

/// A crash of this process.
pub(crate) struct CrashSite<'a> {
    pub(crate) signal: c_int,
    /// The address whose access faulted, or that of the instruction.
    pub(crate) address: u64,
    /// Addresses in functions, the innermost first: of the instruction, then behind each call. Empty if the unwinder finds none.
    pub(crate) frames: &'a [u64],
}

type Report = fn(&CrashSite<'_>);

static REPORT: StaticCell<Report> = StaticCell::new();

const SIGNALS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// Calls `report` when a crash ends this process, on the thread that crashes. Code that sets its own actions for the signals
/// replaces this. The report runs in a signal handler: it allocates nothing, takes no lock and calls nothing that does. The first
/// report of the process stays; a further call only sets the actions again.
///
/// # Errors
/// What the kernel refused.
pub(crate) fn report_crashes(report: Report) -> io::Result<()> {
    REPORT.get_or_init(|| report);
    for signal in SIGNALS {
        // SAFETY: O8 - `sigaction` consists of integers and a handler, so zeroes are a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        // Once: after the report, the signal ends the process. On the alternative stack, if the thread has one: its own may be
        // used up.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        // SAFETY: O2 - `action` is local, and no previous action is asked for. O4 - `handle` has the signature of a handler with
        // `SA_SIGINFO`, and it is in this program. O8 - the process is an executor, whose actions for crashes are these.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The handler. It sends the signal again, which ends the process when the handler returns: the action is the default then. To
/// return alone would not do. A process may have sent the signal, and the instruction of a trap is not run again.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: O9 - the signal is blocked until the handler returns. The default action is set (`SA_RESETHAND`).
    unsafe { libc::raise(signal) };
    let Some(report) = REPORT.get() else { return };
    // SAFETY: O2 - the kernel passes a `siginfo_t` that lives during the handler. For each of the signals it has an address,
    // which is any number for those that a process sent.
    let address = unsafe { (*info).si_addr() } as u64;
    // Without a backtrace first: the unwinder may crash, too.
    report(&CrashSite { signal, address, frames: &[] });
    let mut trace = Trace { frames: [0; MAX_FRAMES], count: 0 };
    // SAFETY: O2 - `add_frame` gets the address of `trace`, which lives through the call.
    unsafe { _Unwind_Backtrace(add_frame, (&raw mut trace).cast()) };
    report(&CrashSite { signal, address, frames: &trace.frames[..trace.count] });
}

struct Trace {
    frames: [u64; MAX_FRAMES],
    count: usize,
}

/// Adds a frame, from the one that the signal interrupted on.
extern "C" fn add_frame(context: *mut c_void, trace: *mut c_void) -> c_int {
    let mut is_interrupted = 0;
    // SAFETY: O2 - the unwinder passes its context, and `is_interrupted` is local. `trace` is that of `handle`.
    let (address, trace) = unsafe { (_Unwind_GetIPInfo(context, &mut is_interrupted), &mut *trace.cast::<Trace>()) };
    if (is_interrupted != 0 || trace.count > 0) && trace.count < MAX_FRAMES {
        trace.frames[trace.count] = address as u64;
        trace.count += 1;
    }
    0
}

// The unwinder of the C++ ABI (Itanium C++ ABI, "Exception Handling"), which `std` links.
unsafe extern "C" {
    fn _Unwind_Backtrace(trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before_instruction: *mut c_int) -> usize;
}
