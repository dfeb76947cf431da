//! [`Dispatcher`]: runs materialisation in place (`dispatch.rs`) or on worker threads (`worker_pool.rs`), and lets a thread wait
//! for the outcome.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::session::work::dispatch::{Task, dispatch, keep_first, move_queue_to_new_thread, pop_after};
use crate::session::work::worker_pool::{BlockedWorker, PooledJob, WorkerPool};
use crate::sync::Arc;

/// Something that a thread waits for.
pub(crate) trait Waitable {
    type Outcome;

    /// The outcome, if it is available.
    fn take(&self) -> Option<Self::Outcome>;

    /// Blocks until the outcome is available.
    fn sleep(&self) -> Self::Outcome;
}

/// Where materialisation runs.
pub(crate) enum Dispatcher<J> {
    /// On the thread whose lookup needs it.
    InPlace,
    /// On worker threads.
    WorkerPool(Arc<WorkerPool<J>>),
}

impl<J: PooledJob> Dispatcher<J> {
    /// In place if `workers` is zero, otherwise on up to that many threads. Threads start when there is work for them.
    pub(crate) fn new(workers: usize) -> Dispatcher<J> {
        if workers == 0 {
            return Dispatcher::InPlace;
        }
        Dispatcher::WorkerPool(WorkerPool::new(workers))
    }

    /// Runs or queues tasks.
    pub(crate) fn start(&self, tasks: impl IntoIterator<Item = Task<J>>) {
        match self {
            Dispatcher::InPlace => dispatch(tasks),
            Dispatcher::WorkerPool(pool) => tasks.into_iter().for_each(|task| pool.push(task)),
        }
    }

    /// Waits for the outcome of `query`. `older` is the [queue length](crate::session::work::dispatch::queued_count) of this
    /// thread before the query began. Tasks that were queued since then run meanwhile.
    pub(crate) fn wait<A: Waitable>(&self, query: &A, older: usize) -> A::Outcome {
        let mut panicked = None;
        let value = loop {
            if let Some(value) = query.take() {
                break value;
            }
            // Inside a task, a dispatch only queues, so this thread may wait for a task of its own queue.
            if let Some(task) = pop_after::<J>(older) {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.run())) {
                    keep_first(&mut panicked, panic);
                }
                continue;
            }
            move_queue_to_new_thread::<J>();
            let _blocked = BlockedWorker::<J>::this_worker();
            break query.sleep();
        };
        if let Some(panic) = panicked {
            // The panic is not the waiting task's. The loop that runs this task resumes the panic after it.
            dispatch([Task::<J>::call(move || resume_unwind(panic))]);
        }
        value
    }

    /// Waits until all workers have ended. They end when the queue is empty. New workers start when there is work again.
    pub(crate) fn dismiss_workers(&self) {
        if let Dispatcher::WorkerPool(pool) = self {
            pool.dismiss();
        }
    }

    /// The workers end when the queue is empty, and no new task runs.
    pub(crate) fn stop(&self) {
        if let Dispatcher::WorkerPool(pool) = self {
            pool.stop();
        }
    }
}
