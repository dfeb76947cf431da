//! [`WorkerPool`]: a bounded number of worker threads that share one queue.
//!
//! The pool starts a thread when there is a task and no idle thread, up to a limit of *active* threads. An idle worker sleeps.
//!
//! A worker that waits for a lookup inside a task is *blocked*, not active. If there are more tasks meanwhile, the pool
//! starts another thread. When the blocked worker is active again, the pool may have one active thread more than the limit. A
//! thread then ends instead of taking its next task. So a task that waits never prevents the work that it waits for, and no
//! task runs on the stack of another.
//!
//! All workers end when the pool stops or when they are dismissed. Each of them subtracts itself from `workers` under
//! the lock that guards the queue, and only while the queue is empty. So the next task sees that no worker is left, and
//! starts a thread.
//!
//! One lock guards everything, so no wake-up is lost. A worker that was woken and then ends passes the wake-up on.
//! Model: `loom_tests/loom_pool_wait.rs`.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::session::work::dispatch::{Job, Task, run_catching_panics};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Rank, ThreadKey, seeded_bug, spawn_detached};

/// A job that can run on worker threads.
pub(crate) trait PooledJob: Job {
    /// The pool of the calling thread, if it is a worker.
    fn pool_of_thread() -> &'static ThreadKey<PoolOfThread<Self>>;
}

pub(crate) type PoolOfThread<J> = RefCell<Option<Arc<WorkerPool<J>>>>;

/// Worker threads and their queue.
pub(crate) struct WorkerPool<J> {
    state: Mutex<PoolState<J>>,
    /// Notified when a task is queued or the pool stops.
    changed: Condvar,
    /// Notified when a worker ends while a thread waits in `dismiss`.
    worker_ended: Condvar,
    /// The maximum number of active threads.
    limit: usize,
}

struct PoolState<J> {
    tasks: VecDeque<Task<J>>,
    /// All threads, including the blocked ones.
    workers: usize,
    /// Threads that wait for a lookup.
    blocked: usize,
    /// Threads that wait for a task.
    idle: usize,
    workers_started: usize,
    /// Threads that wait in `dismiss`.
    dismissing: usize,
    is_stopping: bool,
}

impl<J> Default for PoolState<J> {
    fn default() -> PoolState<J> {
        PoolState {
            tasks: VecDeque::new(),
            workers: 0,
            blocked: 0,
            idle: 0,
            workers_started: 0,
            dismissing: 0,
            is_stopping: false,
        }
    }
}

impl<J: PooledJob> WorkerPool<J> {
    /// A pool with up to `limit` active threads.
    pub(in crate::session) fn new(limit: usize) -> Arc<WorkerPool<J>> {
        let state = Mutex::ranked(Rank::Sleep, PoolState::default());
        Arc::new(WorkerPool { state, changed: Condvar::new(), worker_ended: Condvar::new(), limit })
    }

    /// The workers end when the queue is empty. A task that is pushed later does not run.
    pub(in crate::session) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Waits until all workers have ended. They end when the queue is empty. Does nothing on a worker of this pool.
    pub(in crate::session) fn dismiss(self: &Arc<WorkerPool<J>>) {
        if worker_of::<J>().is_some_and(|own| Arc::ptr_eq(&own, self)) {
            return;
        }
        let mut state = self.state.lock();
        state.dismissing += 1;
        self.changed.notify_all();
        while state.workers > 0 {
            self.worker_ended.wait(&mut state);
        }
        state.dismissing -= 1;
    }

    /// Queues a task. After `stop` the task is dropped, which fails the symbols that it was to materialise.
    pub(in crate::session) fn push(self: &Arc<WorkerPool<J>>, task: Task<J>) {
        let mut state = self.state.lock();
        if state.is_stopping {
            drop(state);
            return drop(task);
        }
        state.tasks.push_back(task);
        self.changed.notify_one();
        self.start_worker_if_needed(state);
    }

    /// Starts a thread if there are more tasks than idle threads and fewer active threads than the limit. If the system
    /// refuses a thread and no thread is active, runs the queue on this thread.
    fn start_worker_if_needed(self: &Arc<WorkerPool<J>>, mut state: MutexGuard<'_, PoolState<J>>) {
        let active = state.workers - state.blocked;
        if state.tasks.len() <= state.idle || active >= self.limit {
            return;
        }
        state.workers += 1;
        state.workers_started += 1;
        let name = format!("jittison-{}", state.workers_started);
        drop(state);
        let pool = self.clone();
        if spawn_detached(name, move || pool.work()).is_ok() {
            return;
        }
        self.end_worker(&mut self.state.lock());
        if active == 0 {
            while let Some(task) = self.pop() {
                run_catching_panics(task);
            }
        }
    }

    fn pop(&self) -> Option<Task<J>> {
        self.state.lock().tasks.pop_front()
    }

    fn work(self: Arc<WorkerPool<J>>) {
        J::pool_of_thread().with(|pool| *pool.borrow_mut() = Some(self.clone()));
        while let Some(task) = self.next_task() {
            run_catching_panics(task);
        }
    }

    fn end_worker(&self, state: &mut PoolState<J>) {
        state.workers -= 1;
        if state.dismissing > 0 {
            self.worker_ended.notify_all();
        }
    }

    /// Waits for a task. `None` when this thread must end: the pool stops, the workers are dismissed, or more threads than the
    /// limit are active.
    fn next_task(&self) -> Option<Task<J>> {
        let mut state = self.state.lock();
        loop {
            let is_surplus = state.workers - state.blocked > self.limit;
            let must_end = state.is_stopping || state.dismissing > 0;
            if is_surplus || (must_end && state.tasks.is_empty()) {
                if seeded_bug!("dismissed_under_a_later_lock") {
                    drop(state);
                    state = self.state.lock();
                }
                self.end_worker(&mut state);
                if !state.tasks.is_empty() {
                    // The wake-up for that task may have gone to this thread.
                    self.changed.notify_one();
                }
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            state.idle += 1;
            if seeded_bug!("woken_without_the_lock") {
                drop(state);
                state = self.state.lock();
            }
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}

fn worker_of<J: PooledJob>() -> Option<Arc<WorkerPool<J>>> {
    J::pool_of_thread().try_with(|pool| pool.borrow().clone()).ok().flatten()
}

/// A worker that counts as blocked until this value is dropped.
pub(in crate::session) struct BlockedWorker<J: PooledJob>(Arc<WorkerPool<J>>);

impl<J: PooledJob> BlockedWorker<J> {
    /// `None` if this thread is not a worker.
    pub(in crate::session) fn this_worker() -> Option<BlockedWorker<J>> {
        let pool = worker_of()?;
        let mut state = pool.state.lock();
        state.blocked += 1;
        pool.start_worker_if_needed(state);
        Some(BlockedWorker(pool))
    }
}

impl<J: PooledJob> Drop for BlockedWorker<J> {
    fn drop(&mut self) {
        self.0.state.lock().blocked -= 1;
        // Wakes a sleeper, which ends if more threads than the limit are active.
        self.0.changed.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::session::core::materialization::{Materialization, Task};

    /// Stops the pool when the test ends, also by a panic.
    struct StoppedOnDrop(Arc<WorkerPool<Materialization>>);

    impl Drop for StoppedOnDrop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    fn pool(limit: usize) -> StoppedOnDrop {
        StoppedOnDrop(WorkerPool::new(limit))
    }

    /// Queues a task that signals its start and ends when the sender of `ends` is dropped.
    fn push_task(pool: &StoppedOnDrop, ends: Receiver<()>) -> Receiver<()> {
        let (started, start) = channel();
        let task = move || {
            started.send(()).unwrap();
            let _ = ends.recv();
        };
        pool.0.push(Task::call(task));
        start
    }

    fn wait_until_idle(pool: &StoppedOnDrop, count: usize) {
        let begun = Instant::now();
        while pool.0.state.lock().idle != count {
            assert!(begun.elapsed() < Duration::from_secs(60), "no thread becomes idle");
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_idle_thread_takes_the_next_task() {
        let pool = pool(4);
        for _ in 0..3 {
            let (_, ends) = channel();
            push_task(&pool, ends).recv().unwrap();
            wait_until_idle(&pool, 1);
        }
        assert_eq!(pool.0.state.lock().workers_started, 1);
    }

    #[test]
    fn no_more_threads_are_active_than_the_limit() {
        let pool = pool(1);
        let (end, ends) = channel();
        push_task(&pool, ends).recv().unwrap();
        let (_, ends) = channel();
        let second = push_task(&pool, ends);
        assert_eq!(pool.0.state.lock().workers_started, 1);
        drop(end);
        second.recv().unwrap();
        assert_eq!(pool.0.state.lock().workers_started, 1);
    }
}
