//! Release of the GIL, and the end of the interpreter.
//!
//! A thread that wants the GIL while the interpreter is being finalized is ended there, before Python 3.14 with a forced unwind
//! of its stack. A thread that comes back to pyo3 is stopped by pyo3. But initialisers and finalisers of linked code run inside
//! of links and removals, and may call callbacks, for which ctypes takes the GIL. Frames of Rust are on the stack then, and the
//! process would abort. So the exit handler of the package, which runs before finalization, does three steps:
//!
//! 1. It ends the sessions, so that no initialiser starts, and redirects all callbacks (`session.rs`), so that none is entered.
//! 2. It waits for the callbacks that were entered before.
//! 3. It waits a moment for the work that began before, because ctypes tells of a callback only when it has the GIL.
//!
//! From step 1 on, calls of other threads that fail raise SystemExit (`error.rs`).
//!
//! | thread at work | exit handler, step 3 |
//! |---|---|
//! | 1. count itself in the generation | 1. begin a new generation |
//! | 2. if the generation is another now, take that back and start again | 2. wait until the old one has no thread |

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The present generation of work. `drain` adds one and then reads `WORKING`; work adds one to `WORKING` and then reads this. All four
/// are SeqCst, and each pairs with the others: work sees the next generation, or `drain` waits for it.
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// The number of calls of [`detached`] whose work goes on, for generations of even and odd numbers. Pairs with `GENERATION`.
static WORKING: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// The number of callbacks that were entered: those of `jittison.callback`, and what the package calls itself. A decrement pairs with
/// the load of `drain`, which sees what the callback did.
static CALLBACKS: AtomicUsize = AtomicUsize::new(0);
/// A callback of the program that does not return must not keep the process from ending.
const LONGEST_CALLBACK: Duration = Duration::from_secs(5);
/// How long the exit handler waits for work that goes on. Most work takes less than a millisecond.
const LONGEST_WORK: Duration = Duration::from_millis(300);

/// The thread that runs the exit handler.
static EXITING: OnceLock<ThreadId> = OnceLock::new();

/// The exit handler begins, on the calling thread.
pub(crate) fn begin_exit() {
    let _ = EXITING.set(thread::current().id());
}

/// Whether the exit handler has begun, on another thread than the calling one.
pub(crate) fn is_exiting_elsewhere() -> bool {
    EXITING.get().is_some_and(|exiting| *exiting != thread::current().id())
}

/// Runs `work` without the GIL (P2).
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let _work = Work::begin();
        work()
    })
}

/// Waits for callbacks and work that began before. The callbacks are redirected, so that no other is entered.
pub(crate) fn drain(py: Python<'_>) {
    py.detach(|| {
        wait_until(LONGEST_CALLBACK, || CALLBACKS.load(Ordering::SeqCst) == 0);
        let old = GENERATION.fetch_add(1, Ordering::SeqCst);
        wait_until(LONGEST_WORK, || WORKING[old % 2].load(Ordering::SeqCst) == 0);
    });
}

fn wait_until(longest: Duration, is_done: impl Fn() -> bool) {
    let end = Instant::now() + longest;
    while !is_done() && Instant::now() < end {
        thread::sleep(Duration::from_micros(200));
    }
}

/// Calls Python from a thread that may not have the GIL. The exit handler waits for it, as for a callback. `None` if the
/// interpreter has ended.
pub(crate) fn with_interpreter<R>(body: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    /// Leaves the callback, also after a panic.
    struct Callback;
    impl Drop for Callback {
        fn drop(&mut self) {
            leave_callback();
        }
    }
    enter_callback();
    let _callback = Callback;
    Python::try_attach(body)
}

/// A callback begins.
#[pyfunction(name = "_enter_callback")]
pub(crate) fn enter_callback() {
    CALLBACKS.fetch_add(1, Ordering::SeqCst);
}

/// A callback ends.
#[pyfunction(name = "_leave_callback")]
pub(crate) fn leave_callback() {
    subtract_one(&CALLBACKS);
}

/// For the child after a fork: the threads of the counts do not exist there. A store pairs with nothing: there is one thread.
#[pyfunction(name = "_after_fork")]
pub(crate) fn after_fork() {
    for count in WORKING.iter().chain([&CALLBACKS]) {
        count.store(0, Ordering::SeqCst);
    }
}

/// Work that is counted until it is dropped.
struct Work {
    generation: usize,
}

impl Work {
    fn begin() -> Work {
        loop {
            let generation = GENERATION.load(Ordering::SeqCst);
            WORKING[generation % 2].fetch_add(1, Ordering::SeqCst);
            if GENERATION.load(Ordering::SeqCst) == generation {
                return Work { generation };
            }
            subtract_one(&WORKING[generation % 2]);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        subtract_one(&WORKING[self.generation % 2]);
    }
}

/// Subtracts one. In the child of a fork, counts start again at zero. Pairs with the loads of `drain`.
fn subtract_one(count: &AtomicUsize) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
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
