//! [`Pool`]: a bounded number of worker threads that share one queue.
//!
//! Threads are started as there is work for them. One that waits for a lookup in the middle of a task is not at work: if
//! there is more to do meanwhile, another thread takes its place, and one goes when it is back. So a task that waits
//! never keeps the work that it waits for from being done, and no task is run on top of another.
//!
//! Everything is under one lock, so a sleeper cannot miss what it sleeps for. Whoever takes a wake-up and leaves passes
//! it on. Model: `loom_tests/loom_pool_wait.rs`.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::session::dispatch::{Task, run_caught};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Rank, spawn_detached, thread_local};

/// Worker threads and what they have to do.
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    /// There is a task, or the pool stops.
    changed: Condvar,
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
    is_stopping: bool,
}

impl Pool {
    /// A pool of which `limit` threads may be at work at once.
    pub(super) fn new(limit: usize) -> Arc<Pool> {
        let state = Mutex::ranked(Rank::Sleep, PoolState::default());
        Arc::new(Pool { state, changed: Condvar::new(), limit })
    }

    /// Lets the workers end when the queue is empty.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Has a worker run a task. After the end it is dropped, and by that fails what it owes.
    pub(super) fn push(self: &Arc<Pool>, task: Task) {
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
    fn provide_worker(self: &Arc<Pool>, mut state: MutexGuard<'_, PoolState>) {
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
        self.state.lock().workers -= 1;
        if at_work == 0 {
            while let Some(task) = self.pop() {
                run_caught(task);
            }
        }
    }

    fn pop(&self) -> Option<Task> {
        self.state.lock().tasks.pop_front()
    }

    fn work(self: Arc<Pool>) {
        WORKER_OF.with(|pool| *pool.borrow_mut() = Some(self.clone()));
        while let Some(task) = self.next_task() {
            run_caught(task);
        }
    }

    /// Waits for a task. `None` when this thread is to end: the pool stops, or those that waited are at work again.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            let is_surplus = state.workers - state.blocked > self.limit;
            if is_surplus || (state.is_stopping && state.tasks.is_empty()) {
                state.workers -= 1;
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
            #[cfg(mutant = "woken_without_the_lock")]
            {
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
    static WORKER_OF: RefCell<Option<Arc<Pool>>> = RefCell::new(None);
}

/// While it lives, this worker does not count as being at work.
pub(super) struct Blocked(Arc<Pool>);

impl Blocked {
    /// `None` on a thread that is no worker.
    pub(super) fn this_worker() -> Option<Blocked> {
        let pool = WORKER_OF.try_with(|pool| pool.borrow().clone()).ok().flatten()?;
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
