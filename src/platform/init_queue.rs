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
//! Objects are queued by dylib and by key. So each step costs in proportion to the objects that it returns, however many
//! others wait.
//!
//! The queue does not know initialisers, pins or trackers. `init_fini.rs` does.
//! Model: `loom_tests/loom_init_queue.rs`.

use rustc_hash::FxHashMap;

use crate::base::count_step;
use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, ThreadId, current_thread, seeded_bug};

/// An object that waits for initialisation.
pub trait QueuedObject {
    /// The number of its dylib.
    fn dylib(&self) -> u64;

    /// A number that no other queued object of its dylib has.
    fn key(&self) -> usize;
}

/// The queue. Its objects are `T`.
pub struct InitQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Number of objects that are queued or being initialised, and of locks that were acquired without objects. The fast path
    /// reads only this. Each Release change pairs with the Acquire load of `is_finished`.
    unfinished: AtomicUsize,
    /// Counts what was ever added to `unfinished`. An increment is Release and pairs with the load of `finished`.
    begun: AtomicUsize,
    released: Condvar,
}

struct QueueState<T> {
    /// By dylib and key. No dylib is without objects.
    queued: FxHashMap<u64, FxHashMap<usize, T>>,
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
            state: Mutex::new(QueueState { queued: FxHashMap::default(), holder: None }),
            unfinished: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            released: Condvar::new(),
        }
    }

    /// Whether no object is queued or being initialised. Then the caller sees everything that earlier holders have done.
    pub fn is_finished(&self) -> bool {
        // Acquire pairs with the releases of `release`, `requeue` and `remove`.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// If [`is_finished`](Self::is_finished), a number that is the same as long as nothing is queued.
    #[inline]
    pub(crate) fn finished(&self) -> Option<usize> {
        // Read after `unfinished`: an object that is counted there is counted here before. Pairs with the increment of `begin_one`.
        self.is_finished().then(|| self.begun.load(Ordering::Acquire))
    }

    /// Number of queued objects.
    pub fn len(&self) -> usize {
        self.state.lock().queued.values().map(FxHashMap::len).sum()
    }

    /// Queues an object.
    pub fn push(&self, object: T) {
        // Counted before it is queued: a holder that gets the object must not subtract it before it was added.
        self.begin_one();
        self.state.lock().queue(object);
    }

    /// Locks, and removes the objects of a dylib from the queue. The table in the file's header says when it waits
    /// first. Returns `None` without locking if no object of the dylib is queued then.
    pub fn acquire(&self, dylib: u64) -> Option<(InitToken, Vec<T>)> {
        let this_thread = current_thread();
        let mut state = self.state.lock();
        while state.must_wait(this_thread, dylib) {
            self.released.wait(&mut state);
        }
        let own = state.queued.remove(&dylib)?;
        let outer = state.set_holder(this_thread, &[dylib]);
        Some((InitToken { outer, weight: 0 }, own.into_values().inspect(|_| count_step()).collect()))
    }

    /// Locks for `dylibs`, without objects. Other threads that initialise one of them wait.
    pub fn lock(&self, dylibs: &[u64]) -> InitToken {
        let this_thread = current_thread();
        // From here on, other threads find the queue unfinished and look for a holder.
        self.begin_one();
        let mut state = self.state.lock();
        while state.holder.as_ref().is_some_and(|(holder, _)| *holder != this_thread) {
            self.released.wait(&mut state);
        }
        InitToken { outer: state.set_holder(this_thread, dylibs), weight: 1 }
    }

    /// Queues objects again that the holder acquired and that are not ready. Subtracts `removed_count` objects that it acquired
    /// and that were removed meanwhile. Only the holder calls this.
    pub fn requeue(&self, unready: Vec<T>, removed_count: usize) {
        self.state.lock().queue_all(unready);
        if !seeded_bug!("gone_object_left_unfinished") {
            self.unfinished.fetch_sub(removed_count, Ordering::Release);
        }
    }

    /// Releases the lock. `finished_count` objects are initialised; those of `deferred` are queued again.
    pub fn release(&self, token: InitToken, finished_count: usize, deferred: Vec<T>) {
        // Pairs with the load of `is_finished`.
        let ordering = if seeded_bug!("turn_ended_without_release") { Ordering::Relaxed } else { Ordering::Release };
        let mut state = self.state.lock();
        state.queue_all(deferred);
        state.holder = if seeded_bug!("nested_turn_ends_the_outer") { None } else { token.outer };
        self.unfinished.fetch_sub(finished_count + token.weight, ordering);
        self.released.notify_all();
    }

    /// Removes those of `objects` that are queued. An object that a holder has acquired stays with it: the holder finds that it
    /// is removed.
    pub fn remove<'a>(&self, objects: impl IntoIterator<Item = &'a T>)
    where
        T: 'a,
    {
        let mut state = self.state.lock();
        let removed = objects.into_iter().filter(|object| state.unqueue(*object)).count();
        self.unfinished.fetch_sub(removed, Ordering::Release);
    }

    fn begin_one(&self) {
        self.begun.fetch_add(1, Ordering::Release);
        self.unfinished.fetch_add(1, Ordering::Release);
    }
}

impl<T: QueuedObject> QueueState<T> {
    fn queue(&mut self, object: T) {
        self.queued.entry(object.dylib()).or_default().insert(object.key(), object);
    }

    fn queue_all(&mut self, objects: Vec<T>) {
        objects.into_iter().for_each(|object| self.queue(object));
    }

    /// Removes an object. Returns whether it was queued.
    fn unqueue(&mut self, object: &T) -> bool {
        count_step();
        let dylib = object.dylib();
        let Some(queued) = self.queued.get_mut(&dylib) else { return false };
        let is_queued = queued.remove(&object.key()).is_some();
        if queued.is_empty() {
            self.queued.remove(&dylib);
        }
        is_queued
    }

    /// Whether another thread holds the lock, and this dylib is one of its dylibs or has queued objects.
    fn must_wait(&self, this_thread: ThreadId, dylib: u64) -> bool {
        let Some((holder, dylibs)) = &self.holder else { return false };
        let is_locked = dylibs.contains(&dylib) && !seeded_bug!("taken_object_waited_for_by_nobody");
        *holder != this_thread && (is_locked || self.queued.contains_key(&dylib))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::steps_of;

    #[derive(Clone, Copy)]
    struct Object(u64, usize);

    impl QueuedObject for Object {
        fn dylib(&self) -> u64 {
            self.0
        }

        fn key(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn a_step_takes_as_long_as_its_own_objects_however_many_others_are_queued() {
        for count in [10, 1000] {
            let queue = InitQueue::new();
            (0..count).for_each(|number| queue.push(Object(number as u64 % 10, number)));
            let removed = Object(3, 3);
            assert_eq!(steps_of(|| queue.remove([&removed])), 1);
            queue.push(Object(77, 0));
            let steps = steps_of(|| {
                let (token, own) = queue.acquire(77).unwrap();
                queue.release(token, own.len(), Vec::new());
            });
            assert_eq!((steps, queue.len()), (1, count - 1));
        }
    }

    #[test]
    fn the_number_of_a_finished_queue_changes_when_an_object_was_queued_and_removed() {
        let queue = InitQueue::new();
        let before = queue.finished();
        queue.push(Object(1, 1));
        assert_eq!(queue.finished(), None);
        queue.remove([&Object(1, 1)]);
        assert!(before.is_some() && queue.finished().is_some() && queue.finished() != before);
    }
}
