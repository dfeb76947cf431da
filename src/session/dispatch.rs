//! In-place dispatch: a task runs on the thread that caused it, after the work that caused it has returned.
//!
//! Every thread has a queue. The first dispatch on a thread runs the queue until it is empty; a dispatch from inside
//! a task only adds to it. So a chain of ten thousand modules, each found while linking the one before, is walked
//! by a loop and not by recursion.
//!
//! A [`Dispatcher`] decides where materialisation runs: in place as above, or on a bounded pool of worker threads that
//! share one queue. Completions always run in place. A thread that waits for a lookup helps: it runs what is queued
//! instead of sleeping, so a pool of one worker cannot wait for itself.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sync::{Arc, Condvar, Mutex, Queue, Rank, spawn_detached, thread_local};

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

/// Where materialisation runs.
pub(crate) enum Dispatcher {
    /// On the thread that looked something up.
    InPlace,
    /// On worker threads.
    Pool(Arc<Pool>),
}

/// A bounded number of threads with one queue.
pub(crate) struct Pool {
    tasks: Queue<Task>,
    /// Guards nothing but the decision to sleep: whoever changes what sleepers wait for takes it before waking them.
    stopping: Mutex<bool>,
    changed: Condvar,
}

/// An answer that one thread waits for and another brings.
pub(crate) struct Answer<T> {
    slot: Mutex<Option<T>>,
    told: Condvar,
}

impl Dispatcher {
    /// In place for no workers, else on that many threads. Threads that the system refuses are done without; if it
    /// refuses all, waiting threads do the work.
    pub(crate) fn new(workers: usize) -> Dispatcher {
        if workers == 0 {
            return Dispatcher::InPlace;
        }
        let pool = Arc::new(Pool {
            tasks: Queue::new(),
            stopping: Mutex::ranked(Rank::Sleep, false),
            changed: Condvar::new(),
        });
        for number in 0..workers {
            let pool = pool.clone();
            if spawn_detached(format!("jittison-{number}"), move || pool.work()).is_err() {
                break;
            }
        }
        Dispatcher::Pool(pool)
    }

    /// Has materialisation tasks run.
    pub(crate) fn start(&self, tasks: impl IntoIterator<Item = Task>) {
        match self {
            Dispatcher::InPlace => {
                let mut tasks = tasks.into_iter().peekable();
                if tasks.peek().is_some() {
                    dispatch(tasks);
                }
            }
            Dispatcher::Pool(pool) => tasks.into_iter().for_each(|task| pool.push(task)),
        }
    }

    /// Gives an answer to whoever waits for it.
    pub(crate) fn tell<T>(&self, answer: &Answer<T>, value: T) {
        *answer.slot.lock() = Some(value);
        answer.told.notify_all();
        if let Dispatcher::Pool(pool) = self {
            pool.wake_all();
        }
    }

    /// Waits for an answer, doing queued work meanwhile.
    pub(crate) fn wait<T>(&self, answer: &Answer<T>) -> T {
        loop {
            if let Some(value) = answer.slot.lock().take() {
                return value;
            }
            // Inside a task, dispatch only queues: what this thread waits for may be in its own queue.
            if let Some(task) = next() {
                task();
                continue;
            }
            match self {
                Dispatcher::InPlace => answer.sleep(),
                Dispatcher::Pool(pool) => pool.help_or_sleep(|| answer.slot.lock().is_some()),
            }
        }
    }

    /// Lets the workers end when the queue is empty.
    pub(crate) fn stop(&self) {
        if let Dispatcher::Pool(pool) = self {
            *pool.stopping.lock() = true;
            pool.changed.notify_all();
        }
    }
}

impl<T> Answer<T> {
    pub(crate) fn new() -> Answer<T> {
        Answer { slot: Mutex::new(None), told: Condvar::new() }
    }

    fn sleep(&self) {
        let mut slot = self.slot.lock();
        while slot.is_none() {
            self.told.wait(&mut slot);
        }
    }
}

impl Pool {
    fn push(&self, task: Task) {
        self.tasks.push(task);
        let stopping = self.stopping.lock();
        self.changed.notify_one();
        drop(stopping);
    }

    fn wake_all(&self) {
        let stopping = self.stopping.lock();
        self.changed.notify_all();
        drop(stopping);
    }

    fn work(&self) {
        loop {
            while let Some(task) = self.tasks.pop() {
                // The task's responsibility fails its symbols as it unwinds; the worker lives on.
                let _ = catch_unwind(AssertUnwindSafe(|| dispatch([task])));
            }
            let mut stopping = self.stopping.lock();
            if !self.tasks.is_empty() {
                continue;
            }
            if *stopping {
                return;
            }
            self.changed.wait(&mut stopping);
        }
    }

    /// Runs one task, or sleeps until something changes, unless `is_done` says that there is no need.
    fn help_or_sleep(&self, is_done: impl Fn() -> bool) {
        if let Some(task) = self.tasks.pop() {
            task();
            return;
        }
        if is_done() {
            return;
        }
        let mut stopping = self.stopping.lock();
        // Asked again under the lock that every change takes before it wakes sleepers.
        if self.tasks.is_empty() && !is_done() {
            self.changed.wait(&mut stopping);
        }
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
