//! In-place dispatch: a task runs on the thread that caused it, after the work that caused it has returned.
//!
//! Every thread has a queue. The first [`dispatch`] on a thread runs the queue until it is empty. A dispatch inside a task only
//! adds to the queue. So a chain of modules, each found while the one before is linked, is a loop and not a recursion.
//!
//! The dispatcher decides whether materialisation runs in place or on worker threads (`dispatcher.rs`). Completions always run
//! in place.
//!
//! # A task that waits for a lookup
//! The tasks that the lookup queued run on this thread, inside the waiting task. An older task must not: if it waited for the
//! task below it on the stack, neither of them could continue. So the older tasks move to another thread. A worker that waits
//! is replaced by another worker meanwhile (`worker_pool.rs`).
//!
//! # Panics
//! A panic does not stop the tasks behind it. It continues when the queue is empty, in the caller of the first dispatch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::{Payload, catch, discard};
use crate::sync::{Arc, Mutex, ThreadKey, spawn_detached, thread_local};

/// The work that materialises a unit.
pub(crate) trait Job: Send + Sized + 'static {
    fn run(self);

    /// The task queue of the calling thread.
    fn queue() -> &'static ThreadKey<TaskQueue<Self>>;
}

pub(crate) type TaskQueue<J> = RefCell<VecDeque<Task<J>>>;

/// A unit of work.
pub(crate) enum Task<J> {
    /// Materialises a unit that a lookup needs.
    Materialize(J),
    Call(Box<dyn FnOnce() + Send>),
}

impl<J: Job> Task<J> {
    pub(crate) fn call(body: impl FnOnce() + Send + 'static) -> Task<J> {
        Task::Call(Box::new(body))
    }

    pub(super) fn run(self) {
        match self {
            Task::Materialize(job) => job.run(),
            Task::Call(body) => body(),
        }
    }
}

thread_local! {
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static RUNNING: Cell<bool> = Cell::new(false);
}

/// Runs `tasks` on this thread, after the task that is running on it, if there is one. If tasks panic, the first panic is
/// resumed after all have run.
pub(crate) fn dispatch<J: Job>(tasks: impl IntoIterator<Item = Task<J>>) {
    dispatch_each(&mut tasks.into_iter());
}

/// As [`dispatch`], compiled once for all lists of tasks.
fn dispatch_each<J: Job>(tasks: &mut dyn Iterator<Item = Task<J>>) {
    let Some(first) = tasks.next() else { return };
    if J::queue().try_with(|_| ()).is_err() {
        // The thread is ending and its queue is destroyed.
        let mut following = Some(first);
        return run_all(&mut || following.take().or_else(|| tasks.next()));
    }
    if RUNNING.with(|running| running.replace(true)) {
        return enqueue(first, tasks);
    }
    if let Some(second) = tasks.next() {
        enqueue(second, tasks);
    }
    let _reset = ResetRunning;
    let mut following = Some(first);
    run_all(&mut || following.take().or_else(pop));
}

/// Runs the tasks that `next` returns. If tasks panic, the first panic is resumed after all have run.
fn run_all<J: Job>(next: &mut dyn FnMut() -> Option<Task<J>>) {
    let mut panicked = None;
    while let Some(task) = next() {
        // Other threads may wait for the tasks behind one that panics, so these tasks must run.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.run())) {
            keep_first(&mut panicked, panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// Keeps the first of several panics and drops the others.
pub(in crate::session) fn keep_first(first: &mut Option<Payload>, panic: Payload) {
    match first {
        None => *first = Some(panic),
        Some(_) => discard(panic),
    }
}

fn enqueue<J: Job>(first: Task<J>, others: &mut dyn Iterator<Item = Task<J>>) {
    J::queue().with(|queue| {
        let mut queue = queue.borrow_mut();
        queue.push_back(first);
        others.for_each(|task| queue.push_back(task));
    });
}

/// Removes the next task of this thread's queue.
fn pop<J: Job>() -> Option<Task<J>> {
    pop_after(0)
}

/// Removes the next task of this thread's queue behind the first `older` tasks.
pub(super) fn pop_after<J: Job>(older: usize) -> Option<Task<J>> {
    J::queue().try_with(|queue| queue.borrow_mut().remove(older)).ok().flatten()
}

/// The number of tasks in this thread's queue.
pub(crate) fn queued_count<J: Job>() -> usize {
    J::queue().try_with(|queue| queue.borrow().len()).unwrap_or(0)
}

/// Clears [`RUNNING`] also when a panic unwinds.
struct ResetRunning;

impl Drop for ResetRunning {
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(false));
    }
}

/// Moves the queue of this thread to a new thread, which runs it.
pub(super) fn move_queue_to_new_thread<J: Job>() {
    let queued = J::queue().try_with(|queue| std::mem::take(&mut *queue.borrow_mut())).unwrap_or_default();
    if queued.is_empty() {
        return;
    }
    // Shared with this thread, so that the tasks are not lost with `body` if the system refuses a thread.
    let shared = Arc::new(Mutex::new(queued));
    let for_thread = shared.clone();
    let body = move || {
        let tasks = std::mem::take(&mut *for_thread.lock());
        dispatch(tasks);
    };
    if spawn_detached("jittison-in-place".to_string(), body).is_err() {
        let tasks = std::mem::take(&mut *shared.lock());
        tasks.into_iter().for_each(run_catching_panics);
    }
}

/// Runs a task and drops its panic. The panic hook has reported it, and the task's responsibility has failed its symbols.
pub(in crate::session) fn run_catching_panics<J: Job>(task: Task<J>) {
    let _ = catch(|| dispatch([task]));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use crate::session::core::materialization::Task;

    #[test]
    fn a_task_that_a_task_dispatches_runs_after_it() {
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
    fn a_panicking_task_does_not_stop_later_dispatches() {
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
    fn a_panicking_task_does_not_stop_the_tasks_behind_it() {
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
