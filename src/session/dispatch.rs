//! In-place dispatch: a task runs on the thread that caused it, after the work that caused it has returned.
//!
//! Every thread has a queue. The first dispatch on a thread runs the queue until it is empty; a dispatch from inside
//! a task only adds to it. So a chain of ten thousand modules, each found while linking the one before, is walked
//! by a loop and not by recursion. Holds no locks and starts no threads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sync::thread_local;

pub(crate) type Task = Box<dyn FnOnce() + Send>;

thread_local! {
    static TASKS: RefCell<VecDeque<Task>> = RefCell::new(VecDeque::new());
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static RUNNING: Cell<bool> = Cell::new(false);
}

/// Runs `tasks` on this thread: now, or after the task that is running on it. A panic of one is passed on when all
/// have run.
pub(crate) fn dispatch(tasks: impl IntoIterator<Item = Task>) {
    let mut tasks = Some(tasks);
    let queued = TASKS.try_with(|queue| queue.borrow_mut().extend(tasks.take().into_iter().flatten()));
    if queued.is_err() {
        // The thread is ending and has no queue any more.
        tasks.into_iter().flatten().for_each(|task| task());
        return;
    }
    if RUNNING.with(|running| running.replace(true)) {
        return;
    }
    let reset = ResetRunning;
    let mut panicked = None;
    while let Some(task) = next() {
        // Whoever waits for the tasks behind one that panics must not wait for ever.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(task)) {
            panicked.get_or_insert(panic);
        }
    }
    drop(reset);
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// The next task of this thread, for a caller that has to wait in the middle of one.
pub(crate) fn next() -> Option<Task> {
    TASKS.try_with(|queue| queue.borrow_mut().pop_front()).ok().flatten()
}

/// However the tasks end, the thread goes on running tasks.
struct ResetRunning;

impl Drop for ResetRunning {
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(false));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_task_dispatched_by_a_task_runs_after_it_not_inside_it() {
        let log = Arc::new(Mutex::new(vec![]));
        let inner = log.clone();
        dispatch([Box::new(move || {
            let innermost = inner.clone();
            dispatch([Box::new(move || innermost.lock().unwrap().push("second")) as Task]);
            inner.lock().unwrap().push("first");
        }) as Task]);
        assert_eq!(*log.lock().unwrap(), ["first", "second"]);
    }

    #[test]
    fn a_panicking_task_leaves_the_thread_usable() {
        fn fails() {
            panic!("task")
        }
        let panicked = catch_unwind(|| dispatch([Box::new(fails) as Task]));
        assert!(panicked.is_err());
        let ran = Arc::new(Mutex::new(false));
        let seen = ran.clone();
        dispatch([Box::new(move || *seen.lock().unwrap() = true) as Task]);
        assert!(*ran.lock().unwrap());
    }

    #[test]
    fn a_task_behind_one_that_panics_runs_all_the_same() {
        fn fails() {
            panic!("task")
        }
        let ran = Arc::new(Mutex::new(false));
        let seen = ran.clone();
        let behind = Box::new(move || *seen.lock().unwrap() = true) as Task;
        assert!(catch_unwind(AssertUnwindSafe(|| dispatch([Box::new(fails) as Task, behind]))).is_err());
        assert!(*ran.lock().unwrap());
    }
}
