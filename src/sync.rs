//! The only file that names a lock, an atomic, a queue or a thread.
//!
//! In a normal build these are `parking_lot`, `std` and `crossbeam`; under `cfg(loom)` they are loom's, so that
//! the models in `loom_tests/` run the shipped code. What stays `std` under loom, and why:
//!
//! - [`Arc`]: loom's cannot hold a trait object. A drop of the last handle takes a lock first thing, so loom still
//!   sees every interleaving that matters.
//! - [`plain_thread_local`]: room for arrays, which no thread sees of another.
//! - [`GuardedU32`]: data of some lock, which the models see.
//! - [`StaticMutex`], [`StaticPtr`] and [`MappedU64`]: statics cannot hold loom types, and mapped memory is no loom cell. They
//!   guard the exit hooks, the targets of calls, the list of windows and the frame table, which no model drives. A static that a
//!   model drives, as that of the C exit handlers, is made by [`per_process!`]: under loom there is one for each execution.
//!
//! A barrier of which one half costs next to nothing is in `sync/barriers.rs`.
//!
//! This file does not decide who locks what: each room's `mod.rs` does.

mod barriers;

pub(crate) use barriers::{heavy_barrier, is_process_over, light_barrier, prepare_barriers};
pub(crate) use std::sync::atomic::{
    AtomicPtr as StaticPtr, AtomicU32 as MappedU32, AtomicU64 as MappedU64, Ordering, fence as static_fence,
};
pub(crate) use std::sync::{Arc, Weak};

/// A value of a static that is written once; never modelled.
pub(crate) use std::sync::OnceLock as StaticCell;
/// A word that a lock guards which stands elsewhere: read and written only under it, and so always relaxed.
pub(crate) use std::sync::atomic::AtomicU32 as GuardedU32;
/// For hints: nothing that anybody does depends on the value.
pub(crate) use std::sync::atomic::AtomicUsize as HintUsize;

/// What every thread has of its own, and no model looks at.
pub(crate) use std::{thread::LocalKey, thread_local as plain_thread_local};

/// Whether the models run with the seeded bug `$name`: the environment variable `SEEDED_BUG` says so. Constant `false` outside
/// of loom builds.
macro_rules! seeded_bug {
    ($name:literal) => {
        cfg!(loom) && crate::sync::is_seeded($name)
    };
}
pub(crate) use seeded_bug;

/// Read once: a process runs its models with one seeded bug, or none.
pub(crate) fn is_seeded(bug: &str) -> bool {
    static SEEDED: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    SEEDED.get_or_init(|| std::env::var_os("SEEDED_BUG")).as_deref() == Some(bug.as_ref())
}

/// Names a thread while it lives.
#[cfg(not(loom))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId(usize);

/// The thread that asks, which may be ending: `std::thread::current` panics once the thread's own record is destroyed.
#[cfg(not(loom))]
pub(crate) fn current_thread() -> ThreadId {
    std::thread_local! {
        // Without a destructor it is there to the end of the thread.
        static HERE: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
    }
    HERE.with(|here| ThreadId(std::ptr::from_ref(here).addr()))
}

/// All threads of a model run on one thread of the system.
#[cfg(loom)]
pub(crate) use loom::thread::ThreadId;

#[cfg(loom)]
pub(crate) fn current_thread() -> ThreadId {
    loom::thread::current().id()
}

/// A number that tells threads apart: the least that no other had when it asked first. So as many threads as there are
/// parts of something each have their own, while no more than that live. A hint: threads whose number is given back already,
/// because they are ending, all have 0.
pub(crate) fn thread_number() -> usize {
    std::thread_local! {
        static NUMBER: ThreadNumber = ThreadNumber::take();
    }
    NUMBER.try_with(|number| number.0).unwrap_or(0)
}

/// Free again when its thread ends. Without a lock, which a fork could leave locked.
struct ThreadNumber(usize);

/// A bit for each number. Threads beyond get numbers that nobody gets again.
static TAKEN: [std::sync::atomic::AtomicU64; 4] = [const { std::sync::atomic::AtomicU64::new(0) }; 4];

impl ThreadNumber {
    fn take() -> ThreadNumber {
        static BEYOND: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(64 * TAKEN.len());
        let with_lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let free = TAKEN.iter().enumerate().find_map(|(index, word)| {
            let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_lowest).ok()?;
            Some(64 * index + before.trailing_ones() as usize)
        });
        ThreadNumber(free.unwrap_or_else(|| BEYOND.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if let Some(word) = TAKEN.get(self.0 / 64) {
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::Relaxed);
        }
    }
}

/// The kernel's number of the thread that asks.
pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The thread that asks, in words: the system's number and the system's name (at most 15 bytes). Rust's own name cannot be
/// read while a thread ends.
pub(crate) fn describe_thread() -> String {
    // Miri has no system call for the name.
    let name = if cfg!(miri) { None } else { rustix::thread::name().ok() };
    match name.and_then(|name| name.into_string().ok()) {
        Some(name) => format!("thread {} (`{name}`)", thread_id()),
        None => format!("thread {}", thread_id()),
    }
}

/// A number that this process has not given out before.
pub(crate) fn unique_number() -> u64 {
    static NUMBERS: MappedU64 = MappedU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// How many threads can run at once.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Waits; under loom, not at all.
pub(crate) fn sleep(time: std::time::Duration) {
    if cfg!(not(loom)) {
        std::thread::sleep(time);
    }
}

/// A lock that may stand in a `static`; never modelled.
pub(crate) type StaticMutex<T> = parking_lot::Mutex<T>;

/// A [`ForkMutex`] in a static, which no model watches.
#[cfg(not(loom))]
pub(crate) type StaticForkMutex<T> = ForkMutex<T>;
#[cfg(loom)]
pub(crate) type StaticForkMutex<T> = StaticMutex<T>;
#[cfg(not(loom))]
pub(crate) type StaticForkGuard<'a, T> = ForkGuard<'a, T>;
#[cfg(loom)]
pub(crate) type StaticForkGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

/// Declares a static of the process. Its value is made by a constant expression; under loom, once for each execution.
macro_rules! per_process {
    ($(#[$attribute:meta])* static $name:ident: $kind:ty = $value:expr;) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        static $name: $kind = $value;
        #[cfg(loom)]
        loom::lazy_static! { $(#[$attribute])* static ref $name: $kind = $value; }
    };
}
pub(crate) use per_process;

/// Where a lock stands in the order of `session/mod.rs`: while one is held, only later ones may be taken. Builds with
/// debug assertions check every lock that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Waiting,
    Dylib,
    Pins,
    /// Two may be held, a transfer's source and destination.
    Gate,
    Manager,
    Query,
    /// Of a pool's sleepers, who look at their answers.
    Sleep,
    /// Of a pool's further windows.
    Windows,
    /// Of copies of shared lists, and of growing pools.
    Growth,
    /// Under which nothing else is taken.
    Leaf,
}

#[cfg(not(loom))]
mod imp {
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::compiler_fence;
    use std::sync::{OnceLock, PoisonError};
    use std::time::Instant;

    use super::{Ordering, Rank};
    use crossbeam::sync::ShardedLock;

    pub(crate) use crossbeam::queue::SegQueue as Queue;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::thread::LocalKey as ThreadKey;
    pub(crate) use std::thread_local;

    /// Stores, and has the store be seen by every thread ahead of whatever this thread does next: `fence(SeqCst)` after it.
    #[inline(always)]
    pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
        if cfg!(target_arch = "x86_64") {
            // One locked instruction is store and fence, and takes less than two.
            word.swap(value, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            word.store(value, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// Starts a thread that nobody joins.
    pub(crate) fn spawn_detached(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new().name(name).spawn(body).map(drop)
    }

    /// A lock that may be held by a thread that forks, and be let go in both processes: one word, which knows nothing of
    /// those who wait for it.
    #[derive(Debug)]
    pub(crate) struct ForkMutex<T>(std::sync::Mutex<T>);

    pub(crate) use std::sync::MutexGuard as ForkGuard;

    impl<T> ForkMutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            ForkMutex(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> ForkGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A lock in a [`per_process!`] static.
    pub(crate) type ProcessMutex<T> = parking_lot::Mutex<T>;

    /// `parking_lot`'s lock with its place in the lock order.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        // Not there in release builds: it would cost a word for each lock.
        #[cfg(debug_assertions)]
        rank: Rank,
        inner: parking_lot::Mutex<T>,
    }

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        inner: parking_lot::MutexGuard<'a, T>,
        _held: Held,
    }

    impl<T> Mutex<T> {
        /// A lock under which nothing else is taken.
        pub(crate) fn new(value: T) -> Self {
            Mutex::ranked(Rank::Leaf, value)
        }

        pub(crate) fn ranked(rank: Rank, value: T) -> Self {
            #[cfg(not(debug_assertions))]
            let _ = rank;
            Mutex {
                #[cfg(debug_assertions)]
                rank,
                inner: parking_lot::Mutex::new(value),
            }
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            let held = self.held();
            MutexGuard { inner: self.inner.lock(), _held: held }
        }

        /// Beside others of the same rank, in an order that the caller keeps.
        pub(crate) fn lock_beside(&self) -> MutexGuard<'_, T> {
            MutexGuard { inner: self.inner.lock(), _held: self.held_beside() }
        }

        /// For who shares it with nobody.
        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.inner.get_mut()
        }

        /// `None` while another thread has it.
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let inner = self.inner.try_lock()?;
            Some(MutexGuard { inner, _held: self.held() })
        }

        #[cfg(debug_assertions)]
        fn held(&self) -> Held {
            Held::take(self.rank)
        }

        #[cfg(debug_assertions)]
        fn held_beside(&self) -> Held {
            Held::take_beside(self.rank)
        }

        #[cfg(not(debug_assertions))]
        #[inline(always)]
        fn held(&self) -> Held {
            Held {}
        }

        #[cfg(not(debug_assertions))]
        #[inline(always)]
        fn held_beside(&self) -> Held {
            Held {}
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }

    /// A value that threads read side by side without writing a word that they share, and that is seldom written: a
    /// lock of the rank `Leaf` for each few threads, of which a writer takes all. Costs nothing before the first write.
    #[derive(Debug)]
    pub(crate) struct ReadMostly<T>(OnceLock<ShardedLock<T>>);

    impl<T: Default> ReadMostly<T> {
        pub(crate) fn new() -> Self {
            ReadMostly(OnceLock::new())
        }

        /// `None` when it was never written.
        #[inline(always)] // on the way of every lookup
        pub(crate) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
            let lock = self.0.get()?;
            let _held = Held::take(Rank::Leaf);
            Some(look(&lock.read().unwrap_or_else(PoisonError::into_inner)))
        }

        pub(crate) fn write<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
            let lock = self.0.get_or_init(Default::default);
            let _held = Held::take(Rank::Leaf);
            edit(&mut lock.write().unwrap_or_else(PoisonError::into_inner))
        }
    }

    /// `parking_lot`'s, over the lock above.
    #[derive(Debug)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(&mut guard.inner);
        }

        /// Waits until `deadline` at the latest.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) {
            self.0.wait_until(&mut guard.inner, deadline);
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    /// Says that this thread holds a lock of some rank; in release builds, nothing.
    #[derive(Debug)]
    struct Held {
        #[cfg(debug_assertions)]
        rank: Rank,
    }

    #[cfg(debug_assertions)]
    thread_local! {
        static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    impl Held {
        #[cfg(debug_assertions)]
        fn take(rank: Rank) -> Held {
            // At the end of a thread there is no list any more, and nothing to check against.
            let _ = HELD.try_with(|held| {
                let held = held.borrow();
                if let Some(last) = held.iter().max() {
                    let is_second_gate = rank == Rank::Gate && *last == Rank::Gate;
                    assert!(rank > *last || is_second_gate, "lock order: {rank:?} taken while {held:?} are held");
                }
            });
            Held::noted(rank)
        }

        #[cfg(debug_assertions)]
        fn take_beside(rank: Rank) -> Held {
            let _ = HELD.try_with(|held| {
                let held = held.borrow();
                let is_beside = held.iter().max() == Some(&rank);
                assert!(is_beside, "lock order: another {rank:?} taken while {held:?} are held");
            });
            Held::noted(rank)
        }

        #[cfg(debug_assertions)]
        fn noted(rank: Rank) -> Held {
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
            Held { rank }
        }

        #[cfg(not(debug_assertions))]
        #[inline(always)]
        fn take(_rank: Rank) -> Held {
            Held {}
        }
    }

    #[cfg(debug_assertions)]
    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(position) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(position);
                }
            });
        }
    }

    /// For models.
    #[inline(always)]
    pub(crate) fn others_may_come() {}

    /// Fails, in builds with debug assertions, if this thread holds a lock: whoever calls what is not ours asks first.
    #[inline(always)]
    pub(crate) fn assert_unlocked() {
        #[cfg(debug_assertions)]
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            assert!(held.is_empty(), "something of the embedder's is called while {held:?} are held");
        });
    }

    #[cfg(all(test, debug_assertions))]
    mod tests {
        use super::*;

        #[test]
        fn threads_that_live_have_numbers_of_their_own_and_those_of_the_ended_are_given_again() {
            let numbers = |threads: usize| -> Vec<usize> {
                let all_here = std::sync::Barrier::new(threads);
                let number = || (crate::sync::thread_number(), all_here.wait()).0;
                std::thread::scope(|scope| {
                    let spawned: Vec<_> = (0..threads).map(|_| scope.spawn(number)).collect();
                    spawned.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
                })
            };
            let several: std::collections::HashSet<_> = numbers(20).into_iter().collect();
            assert_eq!(several.len(), 20);
            assert!((0..crate::base::sized(300, 10)).all(|_| numbers(1)[0] < 200));
        }

        #[test]
        #[should_panic(expected = "is called while")]
        fn calling_out_under_a_lock_is_caught() {
            let leaf = Mutex::new(());
            let _leaf = leaf.lock();
            assert_unlocked();
        }

        #[test]
        #[should_panic(expected = "lock order")]
        fn taking_a_lock_against_the_order_is_caught() {
            let (dylib, gate) = (Mutex::ranked(Rank::Dylib, ()), Mutex::ranked(Rank::Gate, ()));
            let _gate = gate.lock();
            let _dylib = dylib.lock();
        }

        #[test]
        #[should_panic(expected = "lock order")]
        fn another_of_a_rank_is_taken_only_as_one_beside_the_first() {
            let tables = [(); 3].map(|()| Mutex::ranked(Rank::Pins, ()));
            let _first = tables[0].lock();
            let _second = tables[1].lock_beside();
            let _third = tables[2].lock();
        }

        #[test]
        fn locks_in_order_and_two_gates_are_allowed() {
            let (dylib, gates) = (Mutex::ranked(Rank::Dylib, ()), [(); 2].map(|()| Mutex::ranked(Rank::Gate, ())));
            let _dylib = dylib.lock();
            let _first = gates[0].lock();
            let _second = gates[1].lock();
            let leaf = Mutex::new(());
            let _leaf = leaf.lock();
        }
    }
}

#[cfg(loom)]
mod imp {
    use std::collections::VecDeque;
    use std::ops::{Deref, DerefMut};

    use super::Ordering;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use loom::thread::LocalKey as ThreadKey;
    pub(crate) use loom::thread_local;

    pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    pub(crate) type ProcessMutex<T> = Mutex<T>;

    pub(crate) type ForkMutex<T> = Mutex<T>;
    pub(crate) type ForkGuard<'a, T> = MutexGuard<'a, T>;

    pub(crate) fn assert_unlocked() {}

    loom::lazy_static! {
        static ref STEPS: AtomicUsize = AtomicUsize::new(0);
    }

    /// Other threads may come in here: ahead of stores to memory that loom does not know.
    pub(crate) fn others_may_come() {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn spawn_detached(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        loom::thread::Builder::new().name(name).spawn(body).map(drop)
    }

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

        pub(crate) fn ranked(_rank: super::Rank, value: T) -> Self {
            Mutex::new(value)
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
        }

        pub(crate) fn lock_beside(&self) -> MutexGuard<'_, T> {
            self.lock()
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

        /// Loom knows no time: returns at once.
        pub(crate) fn wait_until<T>(&self, _guard: &mut MutexGuard<'_, T>, _deadline: std::time::Instant) {}

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    /// crossbeam's sharded lock has no loom support; one lock has the same meaning.
    #[derive(Debug)]
    pub(crate) struct ReadMostly<T> {
        is_written: AtomicBool,
        value: Mutex<T>,
    }

    impl<T: Default> ReadMostly<T> {
        pub(crate) fn new() -> Self {
            ReadMostly { is_written: AtomicBool::new(false), value: Mutex::new(T::default()) }
        }

        pub(crate) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
            self.is_written.load(Ordering::Acquire).then(|| look(&self.value.lock()))
        }

        pub(crate) fn write<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
            let mut value = self.value.lock();
            let edited = edit(&mut value);
            self.is_written.store(true, Ordering::Release);
            edited
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

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().is_empty()
        }
    }
}

pub(crate) use imp::*;
