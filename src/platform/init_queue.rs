//! [`InitQueue`]: which objects wait to be initialised, and which thread initialises now.
//!
//! One thread at a time has the turn. It takes the objects of one dylib out of the queue, works without a lock, and ends the
//! turn. Inside its turn it may take another.
//!
//! | a thread comes for a dylib | it |
//! |---|---|
//! | nothing is unfinished | goes on at once: it reads one word |
//! | another thread has the turn, and the dylib is in that turn or has waiting objects | waits until the turn ends |
//! | no object of the dylib waits | goes on |
//! | otherwise | takes the turn, with these objects |
//!
//! An object is *unfinished* from [`add`](InitQueue::add) until the turn that initialised it ends, or until it is removed.
//! It is counted before it waits, and it stays counted while a turn has it. So whoever reads a count of zero sees all that
//! the turns before have done: the count falls by a release, and is read by an acquire.
//!
//! The queue knows nothing of initialisers, pins and trackers: `init_fini.rs` has those.
//! Model: `loom_tests/loom_init_queue.rs`.

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, ThreadId, current_thread, seeded_bug};

/// Something that waits to be initialised.
pub trait Waiting {
    /// The number of the dylib that it belongs to.
    fn dylib(&self) -> u64;
}

/// The queue. Its objects are `T`.
pub struct InitQueue<T> {
    state: Mutex<State<T>>,
    /// Objects that wait or are in a turn, and turns without objects: the hot path reads only this.
    unfinished: AtomicUsize,
    turn_ended: Condvar,
}

struct State<T> {
    waiting: Vec<T>,
    /// Who has the turn, and for which dylibs.
    runner: Option<Runner>,
}

type Runner = (ThreadId, Vec<u64>);

/// A thread's right to initialise and finalise. Whoever has it gives it to [`InitQueue::end`].
#[must_use]
pub struct InitTurn {
    /// The runner before this one: the same thread, in the turn around this one.
    outer: Option<Runner>,
    /// What the turn itself counts for among the unfinished.
    weight: usize,
}

impl<T: Waiting> InitQueue<T> {
    /// An empty queue.
    pub fn new() -> InitQueue<T> {
        InitQueue {
            state: Mutex::new(State { waiting: Vec::new(), runner: None }),
            unfinished: AtomicUsize::new(0),
            turn_ended: Condvar::new(),
        }
    }

    /// Whether nothing waits or is in a turn. The caller then sees what every turn so far has done.
    pub fn is_finished(&self) -> bool {
        // Acquire pairs with the releases of `end` and `sort_out`.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Has an object wait.
    pub fn add(&self, object: T) {
        // Counted first: a turn that takes the object never counts it out before it was counted in.
        self.unfinished.fetch_add(1, Ordering::Release);
        self.state.lock().waiting.push(object);
    }

    /// Takes the waiting objects of a dylib, with the turn. `None` if there are none and no other thread has any.
    pub fn take(&self, dylib: u64) -> Option<(InitTurn, Vec<T>)> {
        let me = current_thread();
        let mut state = self.state.lock();
        while state.must_wait(me, dylib) {
            self.turn_ended.wait(&mut state);
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.waiting).into_iter().partition(|object| object.dylib() == dylib);
        state.waiting = others;
        if mine.is_empty() {
            return None;
        }
        let outer = state.start(me, &[dylib]);
        Some((InitTurn { outer, weight: 0 }, mine))
    }

    /// Takes the turn for `dylibs`, without objects. Other threads that come for one of them wait.
    pub fn enter(&self, dylibs: &[u64]) -> InitTurn {
        let me = current_thread();
        // Whoever comes from now on looks for a runner.
        self.unfinished.fetch_add(1, Ordering::Release);
        let mut state = self.state.lock();
        while state.runner.as_ref().is_some_and(|(runner, _)| *runner != me) {
            self.turn_ended.wait(&mut state);
        }
        InitTurn { outer: state.start(me, dylibs), weight: 1 }
    }

    /// The thread that has the turn puts back what is not ready to be initialised, and counts out `gone` objects that it took
    /// and that no longer exist.
    pub fn sort_out(&self, unready: Vec<T>, gone: usize) {
        self.state.lock().waiting.extend(unready);
        if !seeded_bug!("gone_object_left_unfinished") {
            self.unfinished.fetch_sub(gone, Ordering::Release);
        }
    }

    /// Ends a turn in which `done` objects were finished. Those of `put_off` wait again.
    pub fn end(&self, turn: InitTurn, done: usize, put_off: Vec<T>) {
        let ordering = if seeded_bug!("turn_ended_without_release") { Ordering::Relaxed } else { Ordering::Release };
        let mut state = self.state.lock();
        state.waiting.extend(put_off);
        state.runner = if seeded_bug!("nested_turn_ends_the_outer") { None } else { turn.outer };
        self.unfinished.fetch_sub(done + turn.weight, ordering);
        self.turn_ended.notify_all();
    }

    /// Takes waiting objects out for good. What a turn has taken stays with that turn, which finds it gone.
    pub fn remove(&self, is_removed: impl Fn(&T) -> bool) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|object| !is_removed(object));
        self.unfinished.fetch_sub(before - state.waiting.len(), Ordering::Release);
    }
}

impl<T: Waiting> State<T> {
    /// Whether another thread has the turn, and this dylib is concerned.
    fn must_wait(&self, me: ThreadId, dylib: u64) -> bool {
        let Some((runner, dylibs)) = &self.runner else { return false };
        let is_in_turn = dylibs.contains(&dylib) && !seeded_bug!("taken_object_waited_for_by_nobody");
        *runner != me && (is_in_turn || self.waiting.iter().any(|object| object.dylib() == dylib))
    }

    /// Makes `me` the runner; what was there before.
    fn start(&mut self, me: ThreadId, dylibs: &[u64]) -> Option<Runner> {
        let outer = self.runner.take();
        let mut all = outer.as_ref().map_or_else(Vec::new, |(_, dylibs)| dylibs.clone());
        all.extend(dylibs);
        self.runner = Some((me, all));
        outer
    }
}
