//! [`FairMutex`]: a mutex that a waiting thread gets after a bounded time, even if another thread locks it again and again.
//!
//! `parking_lot`'s mutex lets a running thread lock before one that sleeps, for half a millisecond on average. A thread that removes many
//! trackers one by one then stops all others for so long. And a thread that sleeps takes long to wake. So this mutex differs:
//!
//! | thread | does |
//! |---|---|
//! | finds the mutex locked | is counted, looks at it again and again for [`SPIN`], then sleeps |
//! | unlocks while another one is counted | at most every [`TURN`]: hands the mutex to the one that has slept longest; if none sleeps, lets one take it for a moment |
//!
//! In between, the running thread comes first, so that two busy threads do not wait for each other at every step. Without a waiting
//! thread, an unlock reads one more word, which is in the mutex's cache line.

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Mutex, MutexGuard, Rank};

#[derive(Debug)]
pub(crate) struct FairMutex<T> {
    waiting: AtomicU32,
    inner: Mutex<Timed<T>>,
}

#[derive(Debug)]
struct Timed<T> {
    value: T,
    /// When a thread that unlocked let another one go first.
    last_turn: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct FairGuard<'a, T> {
    /// `None` only while the guard is dropped.
    inner: Option<MutexGuard<'a, Timed<T>>>,
    mutex: &'a FairMutex<T>,
}

impl<T> FairMutex<T> {
    pub(crate) fn ranked(rank: Rank, value: T) -> Self {
        FairMutex { waiting: AtomicU32::new(0), inner: Mutex::ranked(rank, Timed { value, last_turn: None }) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> FairGuard<'_, T> {
        let inner = self.inner.try_lock().unwrap_or_else(|| self.wait());
        FairGuard { inner: Some(inner), mutex: self }
    }

    /// Returns the value without locking, since `&mut self` excludes other threads.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.inner.get_mut().value
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, Timed<T>> {
        // Relaxed: a thread that unlocks and does not see it lets this one go first at a later unlock.
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let spun = if before < MOST_SPINNING { self.spin() } else { None };
        let guard = spun.unwrap_or_else(|| self.inner.lock());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn spin(&self) -> Option<MutexGuard<'_, Timed<T>>> {
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if !self.inner.is_locked()
                    && let Some(guard) = self.inner.try_lock()
                {
                    return Some(guard);
                }
                spin_loop();
            }
            if start.elapsed() > SPIN {
                return None;
            }
        }
    }

    #[cold]
    fn unlock_before_others<'a>(&'a self, mut guard: MutexGuard<'a, Timed<T>>) {
        let now = Instant::now();
        if guard.last_turn.is_some_and(|before| now.duration_since(before) < TURN) {
            return;
        }
        guard.last_turn = Some(now);
        guard.unlock_fair();
        for _ in 0..LOOKS {
            if self.inner.is_locked() || self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            spin_loop();
        }
    }
}

impl<T> FairGuard<'_, T> {
    /// As [`MutexGuard::unlock_fair`]. Lets a waiting thread go first, whatever the time.
    pub(crate) fn unlock_fair(mut self) {
        if let Some(mut inner) = self.inner.take() {
            if self.mutex.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            inner.last_turn = None;
            self.mutex.unlock_before_others(inner);
        }
    }
}

impl<T> Drop for FairGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.waiting.load(Ordering::Relaxed) != 0
            && let Some(inner) = self.inner.take()
        {
            self.mutex.unlock_before_others(inner);
        }
    }
}

impl<T> Deref for FairGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner.as_ref().expect(HELD).value
    }
}

impl<T> DerefMut for FairGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.as_mut().expect(HELD).value
    }
}

const HELD: &str = "a guard holds the mutex until it is dropped";

/// How often a thread that unlocks lets a waiting thread go first.
const TURN: Duration = Duration::from_micros(4);
/// For how long a thread looks at a locked mutex before it sleeps: about as long as it takes to wake.
const SPIN: Duration = Duration::from_micros(40);
/// How many threads look at it at once. Further threads sleep.
const MOST_SPINNING: u32 = 2;
/// The number of looks between two looks at the clock, and in a turn: about a microsecond.
const LOOKS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use std::thread;

    /// Symptom: a thread that took a dylib's lock in a loop kept others waiting for a millisecond and more.
    #[test]
    fn a_waiting_thread_goes_first_although_another_locks_again_at_once() {
        const WANTED: u32 = if cfg!(miri) { 1 } else { 5 };
        let mutex = Arc::new(FairMutex::ranked(Rank::Dylib, 0));
        let (mut first, mut rounds, mut time) = (0, 0, Duration::from_millis(10));
        while first < WANTED && rounds < 4 * WANTED {
            rounds += 1;
            let guard = mutex.lock();
            let other = {
                let mutex = mutex.clone();
                thread::spawn(move || *mutex.lock() += 1)
            };
            while mutex.waiting.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            // It spins and yields first, and then sleeps. On a busy machine, that takes longer.
            thread::sleep(time);
            let before = *guard;
            drop(guard);
            match *mutex.lock() > before {
                true => first += 1,
                false => time = (time * 2).min(Duration::from_secs(2)),
            }
            other.join().unwrap();
        }
        assert_eq!(first, WANTED, "in {rounds} rounds");
        assert_eq!((*mutex.lock(), mutex.waiting.load(Ordering::Relaxed)), (rounds, 0));
    }
}
