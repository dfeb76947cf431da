//! Signals of a crash: [`report_crashes`] calls a function with the place of the crash before the process ends by the signal.
//!
//! # A call of an address without code
//! No frame description covers that address, so an unwinder stops at once. The function there has executed no instruction, so its return
//! address is where the call has left it. If a frame description covers that one, the backtrace goes on with the call
//! ([`Registers::call_before`]). Else it ends: some unwinders read the bytes at the address.

use std::ffi::{c_int, c_void};
use std::io;

use crate::arch::SIGNAL_CONTEXT;
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
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: O9 - the signal is blocked until the handler returns. The default action is set (`SA_RESETHAND`).
    unsafe { libc::raise(signal) };
    let Some(report) = REPORT.get() else { return };
    // SAFETY: O2 - the kernel passes a `siginfo_t` that lives during the handler. For each of the signals it has an address,
    // which is any number for those that a process sent.
    let address = unsafe { (*info).si_addr() } as u64;
    // Without a backtrace first: the unwinder may crash, too.
    report(&CrashSite { signal, address, frames: &[] });
    let mut trace = Trace { frames: [0; MAX_FRAMES], skipped: 0, count: 0 };
    // SAFETY: O2 - the kernel passes a context that lives during the handler.
    let interrupted = unsafe { Registers::of(context) };
    if is_covered(interrupted.instruction.wrapping_add(1)) {
        trace.add_callers();
    } else {
        (trace.frames[0], trace.skipped) = (interrupted.instruction, 1);
        // SAFETY: O2 - as above.
        if let Some(call) = unsafe { interrupted.call_before(context) } {
            // SAFETY: O2 - as above. The unwinder begins with what the context says.
            unsafe { call.store(context) };
            trace.add_callers();
            // SAFETY: O2 - as above. A core dump has the registers of the crash.
            unsafe { interrupted.store(context) };
        }
    }
    report(&CrashSite { signal, address, frames: &trace.frames[..trace.skipped + trace.count] });
}

/// The registers of an interrupted thread from which an unwinder begins.
struct Registers {
    instruction: u64,
    stack: u64,
}

impl Registers {
    /// # Safety
    /// `context` is that of a signal handler that has not returned.
    unsafe fn of(context: *mut c_void) -> Registers {
        // SAFETY: O2 - the clause of `# Safety`.
        let read = |offset| unsafe { *register(context, offset) };
        Registers { instruction: read(SIGNAL_CONTEXT.instruction), stack: read(SIGNAL_CONTEXT.stack) }
    }

    /// The registers at the call of a function that has executed no instruction. `None` if it was not called from a function with a
    /// frame description.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn call_before(&self, context: *mut c_void) -> Option<Registers> {
        let (return_address, stack) = match SIGNAL_CONTEXT.link {
            // SAFETY: O2 - the clause of `# Safety`.
            Some(link) => (unsafe { *register(context, link) }, self.stack),
            None => (readable_word(self.stack)?, self.stack.wrapping_add(size_of::<u64>() as u64)),
        };
        // Inside the call instruction: behind it may be another function.
        is_covered(return_address).then(|| Registers { instruction: return_address - 1, stack })
    }

    /// Stores them in a context.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    unsafe fn store(&self, context: *mut c_void) {
        // SAFETY: O2 - the clause of `# Safety`.
        unsafe { *register(context, SIGNAL_CONTEXT.instruction) = self.instruction };
        // SAFETY: O2 - as above.
        unsafe { *register(context, SIGNAL_CONTEXT.stack) = self.stack };
    }
}

/// A register of a context.
fn register(context: *mut c_void, offset: usize) -> *mut u64 {
    context.wrapping_byte_add(offset).cast()
}

/// Whether a frame description covers what is before an address.
fn is_covered(address: u64) -> bool {
    // SAFETY: O9 - the unwinder searches its tables for the address, and does not follow it.
    !unsafe { _Unwind_FindEnclosingFunction(address as *mut c_void) }.is_null()
}

/// The word at an address that may be any.
fn readable_word(address: u64) -> Option<u64> {
    let place = address as *const u64;
    let no_action = -1_i32;
    // The kernel reads the set of signals before it refuses the action. `process_vm_readv` is not allowed in a sandbox.
    // SAFETY: O2 - the kernel checks the address itself, and with an action that there is not it changes nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, no_action, place, std::ptr::null_mut::<u64>(), size_of::<u64>()) };
    let is_readable = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    // SAFETY: O2 - the kernel has just read the word.
    is_readable.then(|| unsafe { place.read_unaligned() })
}

struct Trace {
    frames: [u64; MAX_FRAMES],
    /// Frames that were found without the unwinder. They come first.
    skipped: usize,
    /// Frames of the unwinder.
    count: usize,
}

impl Trace {
    /// Adds the frames from the one that the context of the signal describes on.
    fn add_callers(&mut self) {
        // SAFETY: O2 - `add_frame` gets the address of `self`, which lives through the call.
        unsafe { _Unwind_Backtrace(add_frame, (&raw mut *self).cast()) };
    }
}

/// Adds a frame, from the one that the signal interrupted on.
extern "C" fn add_frame(context: *mut c_void, trace: *mut c_void) -> c_int {
    let mut is_interrupted = 0;
    // SAFETY: O2 - the unwinder passes its context, and `is_interrupted` is local. `trace` is that of `add_callers`.
    let (address, trace) = unsafe { (_Unwind_GetIPInfo(context, &mut is_interrupted), &mut *trace.cast::<Trace>()) };
    let index = trace.skipped + trace.count;
    if (is_interrupted != 0 || trace.count > 0) && index < MAX_FRAMES {
        // The first one behind a frame that was skipped is inside the call instruction.
        let is_inside = trace.skipped > 0 && trace.count == 0;
        trace.frames[index] = address as u64 + u64::from(is_inside);
        trace.count += 1;
    }
    0
}

// The unwinder of the C++ ABI (Itanium C++ ABI, "Exception Handling"), which `std` links.
unsafe extern "C" {
    fn _Unwind_Backtrace(trace: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before_instruction: *mut c_int) -> usize;
}
