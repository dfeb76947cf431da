//! What an executor by a network says before it ends: [`ToController::Crashed`] or [`ToController::Exited`], on its control connection.

use std::ffi::{c_int, c_void};

use crate::executor::lane::Closer;
use crate::os::at_exit_with_status;
use crate::sync::StaticCell;
use crate::wire::{self, CRASH_FRAME, ToController};

/// The control connection of this process, if it is such an executor.
static CONTROL: StaticCell<Closer> = StaticCell::new();

/// Sends the end of this process to its controller. Nothing else is sent on the connection from now on.
pub(super) fn send_end_by(control: Closer) {
    CONTROL.get_or_init(|| control);
    // Without it, the controller knows only that the connections have closed.
    let _ = at_exit_with_status(send_status);
}

/// Sends a crash, if this process is such an executor. A signal handler calls it. It does not wait: a controller that does not read gets no
/// report.
pub(super) fn send_crash(signal: u32, address: u64, frames: &[u64]) {
    if let Some(control) = CONTROL.get()
        && let Some(frame) = wire::encode_crash(&mut [0; CRASH_FRAME], signal, address, frames)
    {
        control.send_now(frame);
    }
}

extern "C" fn send_status(status: c_int, _: *mut c_void) {
    if let Some(control) = CONTROL.get()
        && let Ok(frame) = wire::encode(&ToController::Exited(status))
    {
        control.send_now(&frame);
    }
}
