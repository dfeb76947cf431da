//! [`ForkGate`]: what threads settle in shared code memory, and the copy of it that a fork takes, are ordered.
//!
//! A thread writes to code memory, *passes* the gate, and then tells others of the memory (through private memory, which a
//! fork copies when it happens). A thread that forks *closes* the gate, copies the code memory, forks, and opens the gate. The
//! child must find in the copy all that its private memory tells of.
//!
//! | thread that settles | thread that forks, under the lock |
//! |---|---|
//! | 1 writes the code | 1 says that it forks, heavy barrier |
//! | 2 light barrier, looks whether a thread forks | 2 copies the code |
//! | 3 if so, waits for the lock | 3 forks |
//! | 4 tells others | 4 says that it is done, unlocks |
//!
//! By the barriers (`sync.rs`), either the copy has what the first thread wrote, or the first thread waits until the fork is
//! done: then the child's private memory does not tell of the code. Giving memory back works the same way: pages are emptied,
//! the gate is passed, and then the books say that the pages are empty.
//!
//! The lock guards what the fork needs. Model: `loom_tests/loom_fork_gate.rs`.

use crate::sync::{AtomicU32, ForkGuard, ForkMutex, Ordering, heavy_barrier, light_barrier, seeded_bug};

/// See the module.
pub struct ForkGate<T> {
    /// One while a fork is under way.
    is_closed: AtomicU32,
    state: ForkMutex<T>,
}

/// The right to what a fork needs.
pub struct Closed<'a, T>(ForkGuard<'a, T>);

impl<T> ForkGate<T> {
    #[cfg(not(loom))]
    pub(super) const fn new(state: T) -> ForkGate<T> {
        ForkGate { is_closed: AtomicU32::new(0), state: ForkMutex::new(state) }
    }

    /// An open one. For models.
    #[cfg(loom)]
    pub fn new(state: T) -> ForkGate<T> {
        ForkGate { is_closed: AtomicU32::new(0), state: ForkMutex::new(state) }
    }

    /// Waits until no fork is under way.
    pub(super) fn lock(&self) -> ForkGuard<'_, T> {
        self.state.lock()
    }

    /// Whether a fork may be under way.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) != 0
    }

    /// Called between writing and telling. `is_here` says whether it is this very thread that forks, and does then what has to
    /// be done about the copy; other threads wait.
    #[inline]
    pub fn pass(&self, is_here: impl FnOnce() -> bool) {
        // Every link comes here, and few processes ever fork.
        if !seeded_bug!("settled_without_a_barrier") {
            light_barrier();
        }
        if self.is_closed() && !is_here() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        drop(self.lock());
    }

    /// Begins a fork: what was settled before is there to be copied, and what is not will wait.
    pub fn close(&self) -> Closed<'_, T> {
        let state = self.lock();
        if !seeded_bug!("copied_before_the_fork_is_told") {
            self.is_closed.store(1, Ordering::Relaxed);
            heavy_barrier();
        }
        Closed(state)
    }

    /// The fork is done, in this process.
    pub fn open(&self, closed: Closed<'_, T>) {
        self.is_closed.store(0, Ordering::Relaxed);
        drop(closed);
    }
}

impl<T> std::ops::Deref for Closed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for Closed<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
