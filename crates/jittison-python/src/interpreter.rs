//! Release of the GIL, and the end of the interpreter.
//!
//! A thread that comes back to an interpreter which is being finalized is ended by it, before Python 3.14 with a forced unwind
//! of its stack. Frames of Rust that catch panics do not survive that: the process aborts. So threads pass a gate when they
//! come back. The package closes the gate in its exit handler, which runs before finalization.
//!
//! | thread that comes back | exit handler |
//! |---|---|
//! | 1. count itself as passing; if the gate is closed, take that back and park for ever | 1. close the gate |
//! | 2. wait for the GIL | 2. release the GIL |
//! | 3. uncount itself | 3. wait until no thread is passing |
//!
//! Either the thread sees that the gate is closed, or the exit handler sees the thread. The thread of the exit handler goes
//! through a closed gate: it is the one that finalizes. A thread that is inside a callback stays counted, so it passes too.
//!
//! Linked code that runs in a link or a removal (initialisers, finalisers) may call callbacks, for which ctypes takes the GIL
//! without a gate. So the exit handler gives threads at work a moment to finish, and redirects the callbacks afterwards
//! (`session.rs`). An initialiser that takes longer and is inside a callback of its own then aborts the process.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The number of threads that pass the gate, and [`CLOSED`].
static GATE: AtomicUsize = AtomicUsize::new(0);
const CLOSED: usize = 1 << (usize::BITS - 1);
/// The thread that closed the gate.
static CLOSER: OnceLock<ThreadId> = OnceLock::new();
/// The number of calls of [`detached`] whose work goes on.
static WORKING: AtomicUsize = AtomicUsize::new(0);
/// A callback of the program that does not return must not keep the process from ending.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long the exit handler waits for work that goes on. Most work takes less than a millisecond.
const LONGEST_WORK: Duration = Duration::from_millis(300);

thread_local! {
    /// How often this thread is counted in [`GATE`].
    static PASSING: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` without the GIL (P2).
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let _leave = LeaveOnDrop;
    py.detach(|| {
        let _enter = EnterOnDrop;
        let _end = EndOfWork::begin();
        work()
    })
}

/// Runs `work` with the GIL, on a thread that may be unknown to the interpreter. `None` if the interpreter is about to end.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if !enter_unless_closed() {
        return None;
    }
    let _leave = LeaveOnDrop;
    Python::try_attach(work)
}

/// Closes the gate. Waits a moment for work that goes on.
pub(crate) fn close(py: Python<'_>) {
    let _ = CLOSER.set(thread::current().id());
    GATE.fetch_or(CLOSED, Ordering::SeqCst);
    py.detach(|| wait_until(LONGEST_WORK, || WORKING.load(Ordering::SeqCst) == 0));
}

/// Waits until no thread passes the gate, and again a moment for work that goes on. After this no thread comes back.
pub(crate) fn drain(py: Python<'_>) {
    py.detach(|| {
        wait_until(LONGEST_WAIT, || GATE.load(Ordering::SeqCst) == CLOSED);
        wait_until(LONGEST_WORK, || WORKING.load(Ordering::SeqCst) == 0);
    });
}

fn wait_until(longest: Duration, is_done: impl Fn() -> bool) {
    let end = Instant::now() + longest;
    while !is_done() && Instant::now() < end {
        thread::sleep(Duration::from_micros(200));
    }
}

/// A callback begins: its thread is counted as passing. Returns whether it ends with [`leave_callback`].
#[pyfunction(name = "_enter_callback")]
pub(crate) fn enter_callback() -> bool {
    enter_unless_closed()
}

/// A callback that was entered ends.
#[pyfunction(name = "_leave_callback")]
pub(crate) fn leave_callback() {
    drop(LeaveOnDrop);
}

/// For the child after a fork: the threads that were passing do not exist there.
#[pyfunction(name = "_after_fork")]
pub(crate) fn after_fork() {
    GATE.store(PASSING.get(), Ordering::SeqCst);
    WORKING.store(0, Ordering::SeqCst);
}

/// Counts this thread as passing. `false` if the gate is closed for it.
fn enter_unless_closed() -> bool {
    let before = GATE.fetch_add(1, Ordering::SeqCst);
    let is_closed = before & CLOSED != 0 && PASSING.get() == 0 && CLOSER.get() != Some(&thread::current().id());
    if is_closed {
        GATE.fetch_sub(1, Ordering::SeqCst);
        return false;
    }
    PASSING.set(PASSING.get() + 1);
    true
}

/// Passes the gate when it is dropped, or parks the thread.
struct EnterOnDrop;

impl Drop for EnterOnDrop {
    fn drop(&mut self) {
        while !enter_unless_closed() {
            thread::park();
        }
    }
}

/// Counts work.
struct EndOfWork;

impl EndOfWork {
    fn begin() -> EndOfWork {
        WORKING.fetch_add(1, Ordering::SeqCst);
        EndOfWork
    }
}

impl Drop for EndOfWork {
    fn drop(&mut self) {
        // The child of a fork starts again at zero.
        let _ = WORKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// The thread has passed the gate.
struct LeaveOnDrop;

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        PASSING.set(PASSING.get() - 1);
        GATE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A value whose drop may wait or run linked code: it is dropped without the GIL.
pub(crate) struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub(crate) fn new(value: T) -> Detached<T> {
        Detached(Some(value))
    }

    pub(crate) fn get(&self) -> &T {
        let Some(value) = &self.0 else { unreachable!("only the drop takes the value") };
        value
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        let Some(value) = &mut self.0 else { unreachable!("only the drop takes the value") };
        value
    }

    pub(crate) fn into_inner(mut self) -> T {
        let Some(value) = self.0.take() else { unreachable!("only the drop takes the value") };
        value
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        let mut value = Some(value);
        Python::try_attach(|py| {
            let value = value.take();
            detached(py, || drop(value));
        });
        // Without an interpreter there is no GIL to release.
        drop(value);
    }
}
