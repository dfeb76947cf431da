//! [`WorkerPool`]: a bounded number of worker threads that share one queue.
//!
//! Threads are started as there is work for them. One that waits for a lookup in the middle of a task is not at work: if
//! there is more to do meanwhile, another thread takes its place, and one goes when it is back. So a task that waits
//! never keeps the work that it waits for from being done, and no task is run on top of another.
//!
//! Workers stay, asleep, when there is nothing to do, until the pool is stopped or they are dismissed: then the last of them
//! leaves with the queue empty under the lock by which it is filled, so that the next task finds nobody there and has a
//! thread started.
//!
//! Everything is under one lock, so a sleeper cannot miss what it sleeps for. Whoever takes a wake-up and leaves passes
//! it on. Model: `loom_tests/loom_pool_wait.rs`.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::session::work::dispatch::{Task, run_caught};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Rank, seeded_bug, spawn_detached, thread_local};

/// Worker threads and what they have to do.
pub(crate) struct WorkerPool {
    state: Mutex<PoolState>,
    /// There is a task, or the pool stops.
    changed: Condvar,
    /// A worker has left while somebody waits for that.
    left: Condvar,
    /// Threads that may be at work at once.
    limit: usize,
}

#[derive(Default)]
struct PoolState {
    tasks: VecDeque<Task>,
    /// Threads there are, those that wait for a lookup included.
    workers: usize,
    /// Of those, who wait for a lookup.
    blocked: usize,
    /// Of those, who wait for a task.
    idle: usize,
    workers_started: usize,
    /// How many wait for all workers to leave.
    dismissing: usize,
    is_stopping: bool,
}

impl WorkerPool {
    /// A pool of which `limit` threads may be at work at once.
    pub(in crate::session) fn new(limit: usize) -> Arc<WorkerPool> {
        let state = Mutex::ranked(Rank::Sleep, PoolState::default());
        Arc::new(WorkerPool { state, changed: Condvar::new(), left: Condvar::new(), limit })
    }

    /// Lets the workers end when the queue is empty.
    pub(in crate::session) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Has the workers leave when the queue is empty, and waits for that. A worker that asks is at work: it changes nothing.
    pub(in crate::session) fn dismiss(self: &Arc<WorkerPool>) {
        if worker_of().is_some_and(|own| Arc::ptr_eq(&own, self)) {
            return;
        }
        let mut state = self.state.lock();
        state.dismissing += 1;
        self.changed.notify_all();
        while state.workers > 0 {
            self.left.wait(&mut state);
        }
        state.dismissing -= 1;
    }

    /// Has a worker run a task. After the end it is dropped, and by that fails what it owes.
    pub(in crate::session) fn push(self: &Arc<WorkerPool>, task: Task) {
        let mut state = self.state.lock();
        if state.is_stopping {
            drop(state);
            return drop(task);
        }
        state.tasks.push_back(task);
        self.changed.notify_one();
        self.provide_worker(state);
    }

    /// If there are more tasks than idle threads, and fewer at work than may be: starts a thread. If the system refuses
    /// that and nobody is at work, runs what is queued here.
    fn provide_worker(self: &Arc<WorkerPool>, mut state: MutexGuard<'_, PoolState>) {
        let at_work = state.workers - state.blocked;
        if state.tasks.len() <= state.idle || at_work >= self.limit {
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
        self.leave(&mut self.state.lock());
        if at_work == 0 {
            while let Some(task) = self.pop() {
                run_caught(task);
            }
        }
    }

    fn pop(&self) -> Option<Task> {
        self.state.lock().tasks.pop_front()
    }

    fn work(self: Arc<WorkerPool>) {
        WORKER_OF.with(|pool| *pool.borrow_mut() = Some(self.clone()));
        while let Some(task) = self.next_task() {
            run_caught(task);
        }
    }

    fn leave(&self, state: &mut PoolState) {
        state.workers -= 1;
        if state.dismissing > 0 {
            self.left.notify_all();
        }
    }

    /// Waits for a task. `None` when this thread is to end: the pool stops, workers are dismissed, or those that waited are
    /// at work again.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            let is_surplus = state.workers - state.blocked > self.limit;
            let is_to_end = state.is_stopping || state.dismissing > 0;
            if is_surplus || (is_to_end && state.tasks.is_empty()) {
                if seeded_bug!("dismissed_under_a_later_lock") {
                    drop(state);
                    state = self.state.lock();
                }
                self.leave(&mut state);
                if !state.tasks.is_empty() {
                    // It may have been this thread that was woken for it.
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

thread_local! {
    /// The pool that this thread works for.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static WORKER_OF: RefCell<Option<Arc<WorkerPool>>> = RefCell::new(None);
}

fn worker_of() -> Option<Arc<WorkerPool>> {
    WORKER_OF.try_with(|pool| pool.borrow().clone()).ok().flatten()
}

/// While it lives, this worker does not count as being at work.
pub(in crate::session) struct Blocked(Arc<WorkerPool>);

impl Blocked {
    /// `None` on a thread that is no worker.
    pub(in crate::session) fn this_worker() -> Option<Blocked> {
        let pool = worker_of()?;
        let mut state = pool.state.lock();
        state.blocked += 1;
        pool.provide_worker(state);
        Some(Blocked(pool))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.state.lock().blocked -= 1;
        // One thread too many may be asleep now.
        self.0.changed.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use super::*;

    /// A pool that is stopped when its test ends, however that ends.
    struct Stopped(Arc<WorkerPool>);

    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    fn pool(limit: usize) -> Stopped {
        Stopped(WorkerPool::new(limit))
    }

    /// Queues a task that says that it has begun, and ends when the second channel is closed.
    fn push_task(pool: &Stopped, ends: Receiver<()>) -> Receiver<()> {
        let (tell, told) = channel();
        let task = move || {
            tell.send(()).unwrap();
            let _ = ends.recv();
        };
        pool.0.push(Task::call(task));
        told
    }

    fn wait_until_idle(pool: &Stopped, count: usize) {
        let begun = Instant::now();
        while pool.0.state.lock().idle != count {
            assert!(begun.elapsed() < Duration::from_secs(60), "no thread goes to sleep");
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_idle_thread_takes_the_next_task_and_none_is_started_for_it() {
        let pool = pool(4);
        for _ in 0..3 {
            let (_, ends) = channel();
            push_task(&pool, ends).recv().unwrap();
            wait_until_idle(&pool, 1);
        }
        assert_eq!(pool.0.state.lock().workers_started, 1);
    }

    #[test]
    fn no_thread_is_started_beyond_those_that_may_be_at_work() {
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
