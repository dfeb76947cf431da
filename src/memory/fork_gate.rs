//! [`ForkGate`]: orders the writes to shared code memory and the copy that a fork makes of it.
//!
//! # The promise
//!
//! A forked child gets two copies: the copy of the code memory, which the parent makes before the fork, and its private
//! memory, which the kernel copies at the fork. If the private memory of the child refers to some code, the code is in
//! the copy of the code memory.
//!
//! # Protocol
//!
//! | thread that writes | thread that forks, holding the lock |
//! |---|---|
//! | 1. write the code | 1. set `is_closed`, heavy barrier |
//! | 2. light barrier, read `is_closed` | 2. copy the code memory |
//! | 3. if it is set, wait for the lock | 3. fork |
//! | 4. publish the code in private memory | 4. clear `is_closed`, unlock |
//!
//! By the two barriers (`sync/barriers.rs`), at least one of these holds. Either the copy contains what the first
//! thread wrote, or the first thread reads that the gate is closed and waits until the fork is done. In the second case
//! the private memory of the child does not refer to the code.
//!
//! A purge follows the same steps: it returns the pages to the kernel, passes the gate, and then records that the pages
//! are empty.
//!
//! The lock also guards the state that the fork needs (`fork_guard.rs`). Model: `loom_tests/loom_fork_gate.rs`.

use crate::sync::{AtomicU32, ForkGuard, ForkMutex, Ordering, heavy_barrier, light_barrier, seeded_bug};

/// A gate that writers of code memory pass, and the state that a fork needs, under its lock.
pub struct ForkGate<T> {
    /// 1 during a fork, otherwise 0.
    is_closed: AtomicU32,
    state: ForkMutex<T>,
}

/// A closed gate: exclusive access to the state that a fork needs.
pub struct Closed<'a, T>(ForkGuard<'a, T>);

impl<T> ForkGate<T> {
    #[cfg(not(loom))]
    pub(super) const fn new(state: T) -> ForkGate<T> {
        ForkGate { is_closed: AtomicU32::new(0), state: ForkMutex::new(state) }
    }

    /// An open gate, for models.
    #[cfg(loom)]
    pub fn new(state: T) -> ForkGate<T> {
        ForkGate { is_closed: AtomicU32::new(0), state: ForkMutex::new(state) }
    }

    /// Waits for the end of a fork under way and locks the state.
    pub(super) fn lock(&self) -> ForkGuard<'_, T> {
        self.state.lock()
    }

    /// Whether a fork may be under way.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) != 0
    }

    /// Called between the write of code and its publication. If the gate is closed, `is_own_fork` returns whether this
    /// thread is the one that forks. It also does what the copy then needs, and this call does not wait. Other threads
    /// wait until the fork is done.
    #[inline]
    pub fn pass(&self, is_own_fork: impl FnOnce() -> bool) {
        // Every link runs this, and few processes fork: so this side has the light barrier.
        if !seeded_bug!("settled_without_a_barrier") {
            light_barrier();
        }
        if self.is_closed() && !is_own_fork() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        drop(self.lock());
    }

    /// Begins a fork. After it, a copy of the code memory contains every write whose thread passed the gate. Other
    /// writers wait.
    pub fn close(&self) -> Closed<'_, T> {
        let state = self.lock();
        if !seeded_bug!("copied_before_the_fork_is_told") {
            self.is_closed.store(1, Ordering::Relaxed);
            heavy_barrier();
        }
        Closed(state)
    }

    /// Ends a fork, in this process.
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
