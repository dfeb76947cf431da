//! [`BackgroundWork`]: tasks that run on other threads than the one that asks for them.
//!
//! If the session has worker threads, they run the tasks. Otherwise the value has a thread of its own, which starts with the first
//! task and runs one after the other. If the system refuses that thread, the calling thread runs the task.

use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::materialization::{Materialization, Task};
use crate::session::work::background_thread::BackgroundThread;
use crate::session::work::dispatch::run_catching_panics;
use crate::session::work::dispatcher::Dispatcher;
use crate::sync::{Arc, Queue};

/// Runs tasks in the background. It does not keep the session open; tasks that wait when the session ends may be dropped.
pub(crate) struct BackgroundWork {
    dispatcher: Arc<Dispatcher<Materialization>>,
    /// Tasks for `thread`.
    queue: Queue<Task>,
    thread: Arc<BackgroundThread>,
}

impl BackgroundWork {
    pub(crate) fn new(session: &ExecutionSession) -> Arc<BackgroundWork> {
        let dispatcher = session.inner().dispatcher.clone();
        Arc::new(BackgroundWork { dispatcher, queue: Queue::new(), thread: BackgroundThread::new("jittison-compile") })
    }

    /// Runs a task later, on another thread if the system has one. The task reports its own errors; a panic ends only the task.
    pub(crate) fn push(self: &Arc<BackgroundWork>, task: impl FnOnce() + Send + 'static) {
        let task = Task::call(task);
        match &*self.dispatcher {
            Dispatcher::WorkerPool(pool) => pool.push(task),
            Dispatcher::InPlace => {
                self.queue.push(task);
                self.thread.notify(self, BackgroundWork::run_queue);
            }
        }
    }

    fn run_queue(work: &Arc<BackgroundWork>) {
        while let Some(task) = work.queue.pop() {
            run_catching_panics(task);
        }
    }
}

impl Drop for BackgroundWork {
    fn drop(&mut self) {
        self.thread.stop();
    }
}
