//! [`sleep`], threads that run linked code, and a queue between threads.

/// A queue for the thread that waits for changed files. No model runs it.
#[cfg(feature = "watch")]
pub(crate) use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// Sleeps. Under loom, returns at once.
pub(crate) fn sleep(time: std::time::Duration) {
    if cfg!(not(loom)) {
        std::thread::sleep(time);
    }
}

/// Starts a thread that is never joined, with the stack that a first thread has, as code of others expects. Loom does not see it:
/// no model runs linked code.
#[cfg(feature = "executor")]
pub(crate) fn spawn_for_code(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_string()).stack_size(STACK).spawn(body).map(drop)
}

/// In bytes.
#[cfg(feature = "executor")]
const STACK: usize = 8 << 20;
