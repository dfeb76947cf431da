//! In-place dispatch: a task runs on the thread that caused it, after the work that caused it has returned.
//!
//! Every thread has a queue. The first dispatch on a thread runs the queue until it is empty; a dispatch from inside
//! a task only adds to it. So a chain of ten thousand modules, each found while linking the one before, is walked
//! by a loop and not by recursion.
//!
//! A [`Dispatcher`] decides where materialisation runs: in place as above, or on worker threads (`worker_pool.rs`). Completions
//! always run in place.
//!
//! A task may wait for a lookup. What that lookup set off is run on top of it; but what was queued before must not be:
//! if it waited in turn for the task beneath, neither could go on. So older tasks are handed to another thread, and a
//! worker that waits is replaced by another for as long. A panic stays with the task that panicked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::{Payload, catch, discard};
use crate::error::Result;
use crate::session::core::query::{Query, Results};
use crate::session::materialize::responsibility::Materialization;
use crate::session::work::worker_pool::{Blocked, WorkerPool};
use crate::sync::{Arc, Mutex, spawn_detached, thread_local};

/// Something to run.
pub(crate) enum Task {
    /// A unit that somebody has looked for.
    Materialize(Materialization),
    Call(Box<dyn FnOnce() + Send>),
}

impl Task {
    pub(crate) fn call(body: impl FnOnce() + Send + 'static) -> Task {
        Task::Call(Box::new(body))
    }

    fn run(self) {
        match self {
            Task::Materialize(materialization) => materialization.run(),
            Task::Call(body) => body(),
        }
    }
}

thread_local! {
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static TASKS: RefCell<VecDeque<Task>> = RefCell::new(VecDeque::new());
    #[allow(clippy::missing_const_for_thread_local)]
    static RUNNING: Cell<bool> = Cell::new(false);
}

/// Runs `tasks` on this thread: now, or after the task that is running on it. A panic of one is passed on when all
/// have run.
pub(crate) fn dispatch(tasks: impl IntoIterator<Item = Task>) {
    let mut tasks = tasks.into_iter();
    let Some(first) = tasks.next() else { return };
    if TASKS.try_with(|_| ()).is_err() {
        // The thread is ending and has no queue any more.
        return [first].into_iter().chain(tasks).for_each(Task::run);
    }
    if RUNNING.with(|running| running.replace(true)) {
        return queue([first].into_iter().chain(tasks));
    }
    queue(tasks);
    let reset = ResetRunning;
    let mut panicked = None;
    let mut following = Some(first);
    while let Some(task) = following.take().or_else(next) {
        // Whoever waits for the tasks behind one that panics must not wait for ever.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.run())) {
            keep_first(&mut panicked, panic);
        }
    }
    drop(reset);
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// Of several panics the first goes on.
fn keep_first(first: &mut Option<Payload>, panic: Payload) {
    match first {
        None => *first = Some(panic),
        Some(_) => discard(panic),
    }
}

fn queue(tasks: impl Iterator<Item = Task>) {
    let mut tasks = tasks.peekable();
    if tasks.peek().is_some() {
        TASKS.with(|queue| queue.borrow_mut().extend(tasks));
    }
}

/// The next task of this thread.
fn next() -> Option<Task> {
    next_behind(0)
}

/// The next task of this thread that stands behind `older` others.
fn next_behind(older: usize) -> Option<Task> {
    TASKS.try_with(|queue| queue.borrow_mut().remove(older)).ok().flatten()
}

/// Number of tasks that this thread has queued.
pub(crate) fn queued() -> usize {
    TASKS.try_with(|queue| queue.borrow().len()).unwrap_or(0)
}

/// However the tasks end, the thread goes on running tasks.
struct ResetRunning;

impl Drop for ResetRunning {
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(false));
    }
}

/// Where materialisation runs.
pub(crate) enum Dispatcher {
    /// On the thread that looked something up.
    InPlace,
    /// On worker threads.
    WorkerPool(Arc<WorkerPool>),
}

impl Dispatcher {
    /// In place for no workers, else on as many threads, started as there is work for them.
    pub(crate) fn new(workers: usize) -> Dispatcher {
        if workers == 0 {
            return Dispatcher::InPlace;
        }
        Dispatcher::WorkerPool(WorkerPool::new(workers))
    }

    /// Has materialisation tasks run.
    pub(crate) fn start(&self, tasks: impl IntoIterator<Item = Task>) {
        match self {
            Dispatcher::InPlace => dispatch(tasks),
            Dispatcher::WorkerPool(pool) => tasks.into_iter().for_each(|task| pool.push(task)),
        }
    }

    /// Waits for a query's outcome. `older` is what the thread had [`queued`] before it asked; what it has queued since is run
    /// meanwhile.
    pub(crate) fn wait(&self, query: &Query, older: usize) -> Result<Results> {
        let mut panicked = None;
        let value = loop {
            if let Some(value) = query.take() {
                break value;
            }
            // Inside a task, dispatch only queues: what this thread waits for may be in its own queue.
            if let Some(task) = next_behind(older) {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.run())) {
                    keep_first(&mut panicked, panic);
                }
                continue;
            }
            hand_over_queued();
            let _blocked = Blocked::this_worker();
            break query.sleep();
        };
        if let Some(panic) = panicked {
            // Not the waiting task's: passed on by the loop that runs it.
            dispatch([Task::call(move || resume_unwind(panic))]);
        }
        value
    }

    /// Has the workers end when there is nothing to do, and waits for that; there will be others.
    pub(crate) fn dismiss_workers(&self) {
        if let Dispatcher::WorkerPool(pool) = self {
            pool.dismiss();
        }
    }

    /// Lets the workers end when the queue is empty.
    pub(crate) fn stop(&self) {
        if let Dispatcher::WorkerPool(pool) = self {
            pool.stop();
        }
    }
}

/// Has another thread run what this one has queued.
fn hand_over_queued() {
    let queued = TASKS.try_with(|queue| std::mem::take(&mut *queue.borrow_mut())).unwrap_or_default();
    if queued.is_empty() {
        return;
    }
    // In a place that both see: if no thread can be had, the tasks are not lost with its body.
    let handed = Arc::new(Mutex::new(queued));
    let taken = handed.clone();
    let body = move || {
        let tasks = std::mem::take(&mut *taken.lock());
        dispatch(tasks);
    };
    if spawn_detached("jittison-in-place".to_string(), body).is_err() {
        let tasks = std::mem::take(&mut *handed.lock());
        tasks.into_iter().for_each(run_caught);
    }
}

/// The panic was reported as it began, and the task's responsibility has failed its symbols.
pub(in crate::session) fn run_caught(task: Task) {
    let _ = catch(|| dispatch([task]));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_task_dispatched_by_a_task_runs_after_it_not_inside_it() {
        let log = Arc::new(Mutex::new(vec![]));
        let inner = log.clone();
        dispatch([Task::call(move || {
            let innermost = inner.clone();
            dispatch([Task::call(move || innermost.lock().unwrap().push("second"))]);
            inner.lock().unwrap().push("first");
        })]);
        assert_eq!(*log.lock().unwrap(), ["first", "second"]);
    }

    #[test]
    fn a_panicking_task_leaves_the_thread_usable() {
        fn fails() {
            panic!("task")
        }
        let panicked = catch_unwind(|| dispatch([Task::call(fails)]));
        assert!(panicked.is_err());
        let ran = Arc::new(Mutex::new(false));
        let seen = ran.clone();
        dispatch([Task::call(move || *seen.lock().unwrap() = true)]);
        assert!(*ran.lock().unwrap());
    }

    #[test]
    fn a_task_behind_one_that_panics_runs_all_the_same() {
        fn fails() {
            panic!("task")
        }
        let ran = Arc::new(Mutex::new(false));
        let seen = ran.clone();
        let behind = Task::call(move || *seen.lock().unwrap() = true);
        assert!(catch_unwind(AssertUnwindSafe(|| dispatch([Task::call(fails), behind]))).is_err());
        assert!(*ran.lock().unwrap());
    }
}
