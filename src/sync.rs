//! Locks, atomics, queues and threads. All other files import them from here.
//!
//! In a normal build, the types are those of `parking_lot`, `std` and `crossbeam`. Under `cfg(loom)` they are those of loom, so
//! that the models in `loom_tests/` run the shipped code. Some types are those of `std` under loom, too:
//!
//! | type | why loom need not see it |
//! |---|---|
//! | [`Arc`] | loom's `Arc` cannot hold a trait object. The drop of a last handle takes a lock first, so loom still sees every interleaving that matters. |
//! | [`plain_thread_local`] | buffers that no other thread sees |
//! | [`GuardedU32`], [`GuardedU8`] | data of a lock, and loom sees the lock |
//! | [`HintUsize`] | a hint, on which no result depends |
//! | [`StaticMutex`], [`StaticPtr`], [`MappedU64`] | a static cannot hold a loom type, and mapped memory cannot be one. They number dylibs, which needs no exploration, and guard the exit hooks, the call targets, the list of windows and the frame table, which no model runs. |
//!
//! A static that a model does run, such as that of the C exit handlers, is declared with [`per_process!`]. Under loom, each
//! execution of the model has its own.
//!
//! Builds with debug assertions check the lock order: every [`Mutex`] has a [`Rank`], and each lock operation compares it
//! with the ranks that the thread holds.
//!
//! The asymmetric barrier is in `sync/barriers.rs`, the mutex for which no thread waits long in `sync/fair_mutex.rs`, threads that
//! run linked code in `sync/threads.rs`. This file does not decide which lock guards what: the `mod.rs` of each room does.

mod barriers;
#[cfg(not(loom))]
mod fair_mutex;
mod threads;

pub(crate) use threads::sleep;
#[cfg(feature = "executor")]
pub(crate) use threads::spawn_for_code;
#[cfg(feature = "watch")]
pub(crate) use threads::{Receiver, RecvTimeoutError, channel};

#[cfg(not(loom))]
pub(crate) use fair_mutex::FairMutex;
/// Loom runs every order of threads.
#[cfg(loom)]
pub(crate) use imp::Mutex as FairMutex;

#[cfg_attr(not(feature = "reload"), allow(unused_imports))]
pub(crate) use barriers::{
    are_statics_destroyed, heavy_barrier, light_barrier, prepare_barriers, serialize_processors, synchronize_processors,
};
pub(crate) use std::sync::atomic::{
    AtomicPtr as StaticPtr, AtomicU32 as MappedU32, AtomicU64 as MappedU64, Ordering, fence as static_fence,
};
pub(crate) use std::sync::{Arc, Weak};

/// A static that is written once. Loom does not see it.
pub(crate) use std::sync::OnceLock as StaticCell;
/// A count that only grows. What a reader relies on happens before it by other means, so loom does not see it.
pub(crate) use std::sync::atomic::AtomicU64 as CountU64;
/// A hint: no result may depend on its value.
pub(crate) use std::sync::atomic::AtomicUsize as HintUsize;
/// A word that a lock elsewhere guards. It is read and written only under that lock, so every access is relaxed.
pub(crate) use std::sync::atomic::{AtomicU8 as GuardedU8, AtomicU32 as GuardedU32};

/// Thread-local variables that loom does not see.
pub(crate) use std::{thread::LocalKey, thread_local as plain_thread_local};

/// Whether the environment variable `SEEDED_BUG` selects the seeded bug `$name`. Constant `false` outside of loom builds.
macro_rules! seeded_bug {
    ($name:literal) => {
        cfg!(loom) && crate::sync::is_seeded($name)
    };
}
pub(crate) use seeded_bug;

/// Reads the variable once, because a process runs its models with one seeded bug or with none.
pub(crate) fn is_seeded(bug: &str) -> bool {
    static SEEDED: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    SEEDED.get_or_init(|| std::env::var_os("SEEDED_BUG")).as_deref() == Some(bug.as_ref())
}

/// Identifies a thread while it lives. A later thread may have the same value.
#[cfg(not(loom))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId(usize);

/// The calling thread. Works while the thread ends, too, when `std::thread::current` would panic.
#[cfg(not(loom))]
pub(crate) fn current_thread() -> ThreadId {
    std::thread_local! {
        // Without a destructor, the variable exists until the end of the thread. Its address identifies the thread.
        static MARKER: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
    }
    MARKER.with(|marker| ThreadId(std::ptr::from_ref(marker).addr()))
}

/// Loom runs all threads of a model on one thread of the system, so the address above would not tell them apart.
#[cfg(loom)]
pub(crate) use loom::thread::ThreadId;

#[cfg(loom)]
pub(crate) fn current_thread() -> ThreadId {
    loom::thread::current().id()
}

/// A small number for the calling thread: the lowest that no living thread had when this thread first asked.
///
/// A structure with `n` shards uses it modulo `n`. Then up to `n` living threads have a shard each. The number is a hint:
/// threads that are ending, and have released their number, all get 0.
pub(crate) fn thread_number() -> usize {
    std::thread_local! {
        static NUMBER: ThreadNumber = ThreadNumber::allocate();
    }
    NUMBER.try_with(|number| number.0).unwrap_or(0)
}

/// The number of one thread. Its drop, at the end of the thread, releases the number. The numbers have no lock, because a fork
/// could leave it locked in the child.
struct ThreadNumber(usize);

/// One bit per number; a set bit is in use. When all are in use, further threads get numbers above, which are never released.
static USED_NUMBERS: [std::sync::atomic::AtomicU64; 4] = [const { std::sync::atomic::AtomicU64::new(0) }; 4];

impl ThreadNumber {
    fn allocate() -> ThreadNumber {
        static NEXT_ABOVE: std::sync::atomic::AtomicUsize =
            std::sync::atomic::AtomicUsize::new(64 * USED_NUMBERS.len());
        let with_lowest = |used: u64| (used != u64::MAX).then(|| used | (used + 1));
        let free = USED_NUMBERS.iter().enumerate().find_map(|(index, word)| {
            let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_lowest).ok()?;
            Some(64 * index + before.trailing_ones() as usize)
        });
        ThreadNumber(free.unwrap_or_else(|| NEXT_ABOVE.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if let Some(word) = USED_NUMBERS.get(self.0 / 64) {
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::Relaxed);
        }
    }
}

/// The kernel's id of the calling thread.
pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Describes the calling thread for a message: the kernel's id and the kernel's name of it (at most 15 bytes). Rust's own name
/// cannot be read while a thread ends.
pub(crate) fn describe_thread() -> String {
    // Miri has no system call for the name.
    let name = if cfg!(miri) { None } else { rustix::thread::name().ok() };
    match name.and_then(|name| name.into_string().ok()) {
        Some(name) => format!("thread {} (`{name}`)", thread_id()),
        None => format!("thread {}", thread_id()),
    }
}

/// Returns a number that no earlier call in this process returned.
pub(crate) fn unique_number() -> u64 {
    static NUMBERS: MappedU64 = MappedU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// On how many processors the calling thread may run. Limits of a control group do not count: reading them takes twenty system
/// calls.
pub(crate) fn processors() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) if set.count() > 0 => set.count() as usize,
        // More than 1,024 processors.
        _ => std::thread::available_parallelism().map_or(1, |count| count.get()),
    }
}

/// A mutex for a `static`. Loom does not see it.
pub(crate) type StaticMutex<T> = parking_lot::Mutex<T>;

/// A [`ForkMutex`] for a `static`. Loom does not see it.
#[cfg(not(loom))]
pub(crate) type StaticForkMutex<T> = ForkMutex<T>;
#[cfg(loom)]
pub(crate) type StaticForkMutex<T> = StaticMutex<T>;

/// Declares a static of the process, with a constant expression as its value. Under loom, each execution has its own.
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

/// The position of a lock in the lock order. `session/mod.rs` describes the locks up to `Query`. A thread that holds a
/// lock may take only locks of a higher rank. Builds with debug assertions check it at every lock operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Waiting,
    Dylib,
    /// The witness forest of the pin graph.
    Witnesses,
    Pins,
    /// The state of a tracker. A thread may hold two: the source and the destination of a transfer.
    Gate,
    Manager,
    Query,
    /// The wake-up state of a worker pool, and of a background thread.
    Sleep,
    /// The list of further windows of the code memory, and the state of an `OfflineMemory`.
    Windows,
    /// Copies of shared lists, and pools of code memory that grow.
    Growth,
    /// A thread that holds such a lock takes no other one.
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

    /// A store, then a `fence(SeqCst)`. It pairs with a fence of a thread that reads the word: one of the two sees the other's stores.
    #[inline(always)]
    pub(crate) fn store_then_fence(word: &AtomicU64, value: u64) {
        if crate::arch::EXCHANGE_IS_FENCE {
            // One instruction is both the store and the fence, and is faster than two.
            word.swap(value, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            word.store(value, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// Starts a thread that is never joined.
    pub(crate) fn spawn_detached(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        std::thread::Builder::new().name(name).spawn(body).map(drop)
    }

    /// A mutex that a thread may hold while it forks, and then unlock in both processes. `std`'s mutex is one word and has no
    /// list of waiters, so its copy in the child is usable.
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

    /// A mutex for a [`per_process!`] static.
    pub(crate) type ProcessMutex<T> = parking_lot::Mutex<T>;

    /// The rank of a lock. Empty in release builds, because it would cost a word per lock.
    #[derive(Debug)]
    struct LockRank {
        #[cfg(debug_assertions)]
        rank: Rank,
    }

    impl LockRank {
        fn new(rank: Rank) -> LockRank {
            #[cfg(not(debug_assertions))]
            let _ = rank;
            LockRank {
                #[cfg(debug_assertions)]
                rank,
            }
        }

        #[inline(always)]
        fn hold(&self) -> HeldRank {
            #[cfg(debug_assertions)]
            return HeldRank::push(self.rank);
            #[cfg(not(debug_assertions))]
            HeldRank {}
        }
    }

    /// `parking_lot`'s mutex with its rank in the lock order.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        rank: LockRank,
        inner: parking_lot::Mutex<T>,
    }

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T> {
        inner: parking_lot::MutexGuard<'a, T>,
        _rank: HeldRank,
    }

    impl<T> Mutex<T> {
        /// Makes a mutex of the rank [`Rank::Leaf`]: a thread that holds it takes no other lock.
        pub(crate) fn new(value: T) -> Self {
            Mutex::ranked(Rank::Leaf, value)
        }

        pub(crate) fn ranked(rank: Rank, value: T) -> Self {
            Mutex { rank: LockRank::new(rank), inner: parking_lot::Mutex::new(value) }
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            let rank = self.rank.hold();
            MutexGuard { inner: self.inner.lock(), _rank: rank }
        }

        /// Returns the value without locking, since `&mut self` excludes other threads.
        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.inner.get_mut()
        }

        pub(super) fn is_locked(&self) -> bool {
            self.inner.is_locked()
        }

        /// Locks if no other thread holds the mutex.
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let inner = self.inner.try_lock()?;
            Some(MutexGuard { inner, _rank: self.rank.hold() })
        }
    }

    impl<T> MutexGuard<'_, T> {
        /// Unlocks, and hands the mutex to the thread that has waited longest, if one waits. For work in pieces: without it, the
        /// same thread mostly locks again first.
        pub(crate) fn unlock_fair(self) {
            parking_lot::MutexGuard::unlock_fair(self.inner);
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

    /// A value that many threads read and that is seldom written. It has several locks of one rank: a reader takes the
    /// one of its thread, so readers write no common word; a writer takes all. It allocates nothing before the first write.
    #[derive(Debug)]
    pub(crate) struct ReadMostly<T> {
        rank: LockRank,
        lock: OnceLock<ShardedLock<T>>,
    }

    impl<T: Default> ReadMostly<T> {
        /// Of the rank `Leaf`.
        pub(crate) fn new() -> Self {
            ReadMostly::ranked(Rank::Leaf)
        }

        pub(crate) fn ranked(rank: Rank) -> Self {
            ReadMostly { rank: LockRank::new(rank), lock: OnceLock::new() }
        }

        /// Calls `read` with the value. `None` when it was never written.
        #[inline(always)] // every lookup runs it
        pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
            let lock = self.lock.get()?;
            let _rank = self.rank.hold();
            Some(read(&lock.read().unwrap_or_else(PoisonError::into_inner)))
        }

        pub(crate) fn write<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
            let lock = self.lock.get_or_init(Default::default);
            let _rank = self.rank.hold();
            edit(&mut lock.write().unwrap_or_else(PoisonError::into_inner))
        }

        /// As [`write`](Self::write). `None` when the value was never written: it stays so.
        pub(crate) fn write_existing<R>(&self, edit: impl FnOnce(&mut T) -> R) -> Option<R> {
            self.lock.get().is_some().then(|| self.write(edit))
        }
    }

    /// `parking_lot`'s condition variable, for the mutex above.
    #[derive(Debug)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(&mut guard.inner);
        }

        /// Waits for a notification, until `deadline` at the latest.
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

    /// An entry in this thread's list of held ranks, until it is dropped. Empty in release builds.
    #[derive(Debug)]
    struct HeldRank {
        #[cfg(debug_assertions)]
        rank: Rank,
    }

    #[cfg(debug_assertions)]
    thread_local! {
        static HELD_RANKS: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    impl HeldRank {
        #[cfg(debug_assertions)]
        fn push(rank: Rank) -> HeldRank {
            // At the end of a thread the list is destroyed, and the check is skipped.
            let _ = HELD_RANKS.try_with(|held| {
                let held = held.borrow();
                if let Some(last) = held.iter().max() {
                    let is_second_gate = rank == Rank::Gate && *last == Rank::Gate;
                    assert!(
                        rank > *last || is_second_gate,
                        "lock order violated: this thread takes a lock of rank {rank:?} while it holds {held:?}"
                    );
                }
            });
            let _ = HELD_RANKS.try_with(|held| held.borrow_mut().push(rank));
            HeldRank { rank }
        }
    }

    #[cfg(debug_assertions)]
    impl Drop for HeldRank {
        fn drop(&mut self) {
            let _ = HELD_RANKS.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(position) = held.iter().rposition(|rank| *rank == self.rank) {
                    held.remove(position);
                }
            });
        }
    }

    /// A point at which loom may switch threads. Does nothing outside of loom builds.
    #[inline(always)]
    pub(crate) fn yield_point() {}

    /// Panics if this thread holds a lock. Code that calls the embedder calls this first. Only in builds with debug assertions.
    #[inline(always)]
    pub(crate) fn assert_unlocked() {
        #[cfg(debug_assertions)]
        let _ = HELD_RANKS.try_with(|held| {
            let held = held.borrow();
            assert!(held.is_empty(), "the embedder's code is called while this thread holds locks of rank {held:?}");
        });
    }

    #[cfg(all(test, debug_assertions))]
    mod tests {
        use super::*;

        #[test]
        fn living_threads_have_different_numbers_and_the_numbers_of_ended_threads_are_used_again() {
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
        #[should_panic(expected = "is called while this thread holds locks")]
        fn calling_the_embedder_under_a_lock_panics() {
            let leaf = Mutex::new(());
            let _leaf = leaf.lock();
            assert_unlocked();
        }

        #[test]
        #[should_panic(expected = "lock order violated")]
        fn taking_a_lock_against_the_order_panics() {
            let (dylib, gate) = (Mutex::ranked(Rank::Dylib, ()), Mutex::ranked(Rank::Gate, ()));
            let _gate = gate.lock();
            let _dylib = dylib.lock();
        }

        #[test]
        #[should_panic(expected = "lock order violated")]
        fn two_locks_of_a_rank_are_refused() {
            let tables = [(); 2].map(|()| Mutex::ranked(Rank::Pins, ()));
            let _first = tables[0].lock();
            let _second = tables[1].lock();
        }

        #[test]
        fn locks_in_order_and_two_gate_locks_are_allowed() {
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
        word.store(value, Ordering::Release); // pairs with a fence, as above
        fence(Ordering::SeqCst);
    }

    pub(crate) type ProcessMutex<T> = Mutex<T>;

    pub(crate) type ForkMutex<T> = Mutex<T>;
    pub(crate) type ForkGuard<'a, T> = MutexGuard<'a, T>;

    pub(crate) fn assert_unlocked() {}

    loom::lazy_static! {
        static ref STEPS: AtomicUsize = AtomicUsize::new(0);
    }

    /// A point at which loom may switch threads. Call it before a store to memory that loom does not see.
    pub(crate) fn yield_point() {
        STEPS.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn spawn_detached(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        loom::thread::Builder::new().name(name).spawn(body).map(drop)
    }

    /// The interface of `parking_lot`'s mutex over loom's: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// The inner guard is in an `Option`, so that [`Condvar::wait`] can move it out and back in.
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
    }

    impl<T> MutexGuard<'_, T> {
        pub(crate) fn unlock_fair(self) {}
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

        /// Loom has no time, so this returns at once.
        pub(crate) fn wait_until<T>(&self, _guard: &mut MutexGuard<'_, T>, _deadline: std::time::Instant) {}

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }
    }

    /// crossbeam's sharded lock has no loom support. One lock has the same meaning.
    #[derive(Debug)]
    pub(crate) struct ReadMostly<T> {
        is_written: AtomicBool, // the store is Release and pairs with the Acquire loads
        value: Mutex<T>,
    }

    impl<T: Default> ReadMostly<T> {
        pub(crate) fn new() -> Self {
            ReadMostly { is_written: AtomicBool::new(false), value: Mutex::new(T::default()) }
        }

        pub(crate) fn ranked(_rank: super::Rank) -> Self {
            ReadMostly::new()
        }

        pub(crate) fn write_existing<R>(&self, edit: impl FnOnce(&mut T) -> R) -> Option<R> {
            self.is_written.load(Ordering::Acquire).then(|| self.write(edit))
        }

        pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
            self.is_written.load(Ordering::Acquire).then(|| read(&self.value.lock()))
        }

        pub(crate) fn write<R>(&self, edit: impl FnOnce(&mut T) -> R) -> R {
            let mut value = self.value.lock();
            let edited = edit(&mut value);
            self.is_written.store(true, Ordering::Release);
            edited
        }
    }

    /// crossbeam's queues have no loom support. A deque under a lock has the same meaning.
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
