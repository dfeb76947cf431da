//! [`InitQueue`]: the objects that wait for initialisation, and the lock of the thread that initialises or finalises.
//!
//! One thread at a time holds the lock. It removes the objects of one dylib from the queue, initialises them without any other
//! lock, and releases. While it holds the lock it may acquire again (re-entrant), because an initialiser may look symbols up.
//!
//! | state when a thread wants to initialise a dylib | what the thread does |
//! |---|---|
//! | nothing is unfinished (`is_finished`) | returns after one load, without calling `acquire` |
//! | another thread holds the lock for this dylib, or holds it while objects of this dylib are queued | waits for the release |
//! | no object of the dylib is queued | `acquire` returns `None` |
//! | otherwise | `acquire` locks, and returns these objects |
//!
//! An object is *unfinished* from [`push`](InitQueue::push) until the release of the lock under which it was
//! initialised, or until it is removed. It is counted before it is queued, and stays counted while a thread initialises
//! it. The count is decremented with `Release` and read with `Acquire`. So a thread that reads zero sees all that
//! earlier holders of the lock have done.
//!
//! The queue does not know initialisers, pins or trackers. `init_fini.rs` does.
//! Model: `loom_tests/loom_init_queue.rs`.

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, ThreadId, current_thread, seeded_bug};

/// An object that waits for initialisation.
pub trait QueuedObject {
    /// The number of its dylib.
    fn dylib(&self) -> u64;
}

/// The queue. Its objects are `T`.
pub struct InitQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Number of objects that are queued or being initialised, and of locks that were acquired without objects. The fast path
    /// reads only this.
    unfinished: AtomicUsize,
    released: Condvar,
}

struct QueueState<T> {
    queued: Vec<T>,
    holder: Option<Holder>,
}

/// The thread that holds the lock, and the dylibs that it holds it for.
type Holder = (ThreadId, Vec<u64>);

/// Proof that the calling thread holds the lock. Pass it to [`InitQueue::release`].
#[must_use]
pub struct InitToken {
    /// The holder before this one: the same thread, if this is a nested acquisition.
    outer: Option<Holder>,
    /// How much the lock itself counts in `unfinished`.
    weight: usize,
}

impl<T: QueuedObject> InitQueue<T> {
    /// An empty queue.
    pub fn new() -> InitQueue<T> {
        InitQueue {
            state: Mutex::new(QueueState { queued: Vec::new(), holder: None }),
            unfinished: AtomicUsize::new(0),
            released: Condvar::new(),
        }
    }

    /// Whether no object is queued or being initialised. Then the caller sees everything that earlier holders have done.
    pub fn is_finished(&self) -> bool {
        // Acquire pairs with the releases of `release`, `requeue` and `remove`.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Number of queued objects.
    pub fn len(&self) -> usize {
        self.state.lock().queued.len()
    }

    /// Queues an object.
    pub fn push(&self, object: T) {
        // Counted before it is queued: a holder that gets the object must not subtract it before it was added.
        self.unfinished.fetch_add(1, Ordering::Release);
        self.state.lock().queued.push(object);
    }

    /// Locks, and removes the objects of a dylib from the queue. The table in the file's header says when it waits
    /// first. Returns `None` without locking if no object of the dylib is queued then.
    pub fn acquire(&self, dylib: u64) -> Option<(InitToken, Vec<T>)> {
        let this_thread = current_thread();
        let mut state = self.state.lock();
        while state.must_wait(this_thread, dylib) {
            self.released.wait(&mut state);
        }
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.queued).into_iter().partition(|object| object.dylib() == dylib);
        state.queued = others;
        if own.is_empty() {
            return None;
        }
        let outer = state.set_holder(this_thread, &[dylib]);
        Some((InitToken { outer, weight: 0 }, own))
    }

    /// Locks for `dylibs`, without objects. Other threads that initialise one of them wait.
    pub fn lock(&self, dylibs: &[u64]) -> InitToken {
        let this_thread = current_thread();
        // From here on, other threads find the queue unfinished and look for a holder.
        self.unfinished.fetch_add(1, Ordering::Release);
        let mut state = self.state.lock();
        while state.holder.as_ref().is_some_and(|(holder, _)| *holder != this_thread) {
            self.released.wait(&mut state);
        }
        InitToken { outer: state.set_holder(this_thread, dylibs), weight: 1 }
    }

    /// Queues objects again that the holder acquired and that are not ready. Subtracts `removed_count` objects that it acquired
    /// and that were removed meanwhile. Only the holder calls this.
    pub fn requeue(&self, unready: Vec<T>, removed_count: usize) {
        self.state.lock().queued.extend(unready);
        if !seeded_bug!("gone_object_left_unfinished") {
            self.unfinished.fetch_sub(removed_count, Ordering::Release);
        }
    }

    /// Releases the lock. `finished_count` objects are initialised; those of `deferred` are queued again.
    pub fn release(&self, token: InitToken, finished_count: usize, deferred: Vec<T>) {
        let ordering = if seeded_bug!("turn_ended_without_release") { Ordering::Relaxed } else { Ordering::Release };
        let mut state = self.state.lock();
        state.queued.extend(deferred);
        state.holder = if seeded_bug!("nested_turn_ends_the_outer") { None } else { token.outer };
        self.unfinished.fetch_sub(finished_count + token.weight, ordering);
        self.released.notify_all();
    }

    /// Removes queued objects. An object that a holder has acquired stays with it: the holder finds that it is removed.
    pub fn remove(&self, is_removed: impl Fn(&T) -> bool) {
        let mut state = self.state.lock();
        let before = state.queued.len();
        state.queued.retain(|object| !is_removed(object));
        self.unfinished.fetch_sub(before - state.queued.len(), Ordering::Release);
    }
}

impl<T: QueuedObject> QueueState<T> {
    /// Whether another thread holds the lock, and this dylib is one of its dylibs or has queued objects.
    fn must_wait(&self, this_thread: ThreadId, dylib: u64) -> bool {
        let Some((holder, dylibs)) = &self.holder else { return false };
        let is_locked = dylibs.contains(&dylib) && !seeded_bug!("taken_object_waited_for_by_nobody");
        *holder != this_thread && (is_locked || self.queued.iter().any(|object| object.dylib() == dylib))
    }

    /// Makes this thread the holder, for `dylibs` and those of the outer acquisition. Returns the previous holder.
    fn set_holder(&mut self, this_thread: ThreadId, dylibs: &[u64]) -> Option<Holder> {
        let outer = self.holder.take();
        let mut all = outer.as_ref().map_or_else(Vec::new, |(_, dylibs)| dylibs.clone());
        all.extend(dylibs);
        self.holder = Some((this_thread, all));
        outer
    }
}
