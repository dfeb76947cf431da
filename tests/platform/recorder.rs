//! Records the events that linked code reports to the host, in order and per thread. Each test has its own thread.

use std::cell::RefCell;

use jittison::{Jit, JitDylib};

use crate::support::define_function;

thread_local! {
    static LOG: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn record(event: i64) {
    LOG.with_borrow_mut(|log| log.push(event));
}

/// Lets the objects of a dylib call `void record(long)`.
pub fn install(jit: &Jit, dylib: &JitDylib) {
    define_function(jit, dylib, "record", record as extern "C" fn(i64));
}

/// A session whose main dylib has a recorder.
pub fn recording_jit() -> Jit {
    let jit = crate::support::new_jit();
    install(&jit, jit.main_dylib());
    take();
    jit
}

/// The events that this thread has recorded since the last call.
pub fn take() -> Vec<i64> {
    LOG.take()
}

/// Records an event of the host.
pub fn push(event: i64) {
    record(event);
}
