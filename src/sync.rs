//! The only file that names a lock, an atomic, a queue or a thread.
//!
//! In a normal build these are `parking_lot`, `std` and `crossbeam`; under `cfg(loom)` they are loom's, so that
//! the models in `loom_tests/` run the shipped code. What stays `std` under loom, and why:
//!
//! - [`Arc`]: loom's cannot hold a trait object. A drop of the last handle takes a lock first thing, so loom still
//!   sees every interleaving that matters.
//! - [`StaticMutex`] and [`MappedU64`]: statics cannot hold loom types, and mapped memory is no loom cell. They
//!   guard the C exit handlers and the frame table, which no model drives.
//!
//! This file does not decide who locks what: each room's `mod.rs` does.

pub(crate) use std::sync::atomic::{AtomicU32 as MappedU32, AtomicU64 as MappedU64, Ordering};
pub(crate) use std::sync::{Arc, Weak};

/// Names a thread.
pub(crate) use std::thread::ThreadId;

/// The thread that asks.
pub(crate) fn current_thread() -> ThreadId {
    std::thread::current().id()
}

/// A lock that may stand in a `static`; never modelled.
pub(crate) type StaticMutex<T> = parking_lot::Mutex<T>;

#[cfg(not(loom))]
mod imp {
    pub(crate) use crossbeam::queue::SegQueue as Queue;
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use std::thread_local;
}

#[cfg(loom)]
mod imp {
    use std::collections::VecDeque;
    use std::ops::{Deref, DerefMut};

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use loom::thread_local;

    /// `parking_lot`'s shape over loom's lock: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Holds its inner guard in an `Option` so that [`Condvar::wait`] can hand it over and back.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("a guard is empty only inside Condvar::wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("a guard is empty only inside Condvar::wait")
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("a guard is empty only inside Condvar::wait");
            guard.0 = Some(self.0.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner()));
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// crossbeam's queues have no loom support; a locked deque has the same meaning.
    #[derive(Debug)]
    pub(crate) struct Queue<T>(Mutex<VecDeque<T>>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Queue(Mutex::new(VecDeque::new()))
        }

        pub(crate) fn push(&self, value: T) {
            self.0.lock().push_back(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().pop_front()
        }
    }
}

pub(crate) use imp::*;
