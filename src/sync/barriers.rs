//! [`light_barrier`] and [`heavy_barrier`]: an asymmetric barrier, for protocols in which one side runs often and the other
//! seldom.
//!
//! The frequent side executes a [`light_barrier`], which is a compiler fence and costs almost nothing. The other side executes
//! a [`heavy_barrier`], which is a system call (`membarrier`). During the call, the kernel makes every other running thread of
//! the process execute a full fence. A thread that does not run executed a full fence when it was switched out.
//!
//! # The guarantee
//! > Let L be a light barrier of one thread and H a heavy barrier of another thread. Then at least one of these is true.
//! > Everything that L's thread did before L is visible to H's thread after H. Or everything that H's thread did before H is
//! > visible to L's thread after L.
//!
//! Proof: L's thread executes the kernel's fence either before L or after L.
//!
//! | the fence is | because | so |
//! |---|---|---|
//! | before L | it executes after H began | L's thread sees everything that precedes H |
//! | after L | it executes before H ends | H's thread sees everything that precedes L |
//!
//! The compiler fence keeps the compiler from moving code across L. **Two light barriers order nothing.** Where the kernel has
//! no `membarrier`, both barriers are full fences, which give the same guarantee.
//!
//! # Under loom
//! Each thread has a word of its own. A light barrier is a read-modify-write of the word of its thread. A heavy barrier is a
//! read-modify-write of every word. Of two read-modify-writes of one word, the second acquires what the first released. That is
//! the guarantee above and no more, because the light barriers of two threads use different words.
//!
//! # Uses
//! | protocol | file | light barrier | heavy barrier | model |
//! |---|---|---|---|---|
//! | guards | `session/pins/guards.rs` | a thread leaves a guard | a remover defers a reclamation to it | `loom_tests/loom_guard_retire.rs` |
//! | forks | `memory/fork_gate.rs` | a link settles an allocation | a fork closes the gate | `loom_tests/loom_fork_gate.rs` |
//!
//! Both have a litmus test below.
//!
//! Two more pairs use full fences on both sides, and have litmus tests, too: entering a guard, and light barriers where the
//! kernel has no `membarrier`.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    use crate::arch::FETCHES_EARLY;

    /// Whether this process is registered for `membarrier`. The store is Release, and pairs with nothing that decides: a thread that
    /// reads the old value executes full fences, which are stronger. A thread reads its own store before its first light barrier.
    static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

    /// Registers the process for `membarrier`. A thread must call this before its first light barrier.
    pub(crate) fn prepare_barriers() {
        // Miri has no such system call, so every barrier is a full fence there.
        let is_ready = !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        HAS_MEMBARRIER.store(is_ready, Ordering::Release);
    }

    /// Makes every other thread of the process forget the instructions that it fetched before. Called after code was written and
    /// its caches were maintained, and before the code is published. A system call where processors fetch early
    /// ([`FETCHES_EARLY`]), and nothing elsewhere.
    ///
    /// Linux has had it since 4.16 (`MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`). Before that, nothing can be done from here.
    #[inline(always)]
    pub(crate) fn synchronize_processors() {
        if FETCHES_EARLY && !cfg!(miri) {
            synchronize_instructions();
        }
    }

    /// As [`synchronize_processors`], where code that threads may run was changed in place: on every architecture.
    #[cfg_attr(not(feature = "reload"), allow(dead_code))]
    pub(crate) fn serialize_processors() {
        if !cfg!(miri) {
            synchronize_instructions();
        }
    }

    #[cold]
    fn synchronize_instructions() {
        // The child of a fork has to register again.
        if membarrier(MembarrierCommand::PrivateExpeditedSyncCore).is_err() {
            let _ = membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore);
            let _ = membarrier(MembarrierCommand::PrivateExpeditedSyncCore);
        }
    }

    /// The frequent side of the barrier: a compiler fence, or a full fence where the kernel has no `membarrier`.
    #[inline(always)]
    pub(crate) fn light_barrier() {
        light_barrier_of(HAS_MEMBARRIER.load(Ordering::Relaxed));
    }

    /// Pairs with [`heavy_barrier`].
    #[inline(always)]
    pub(super) fn light_barrier_of(has_membarrier: bool) {
        match has_membarrier {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// The seldom side of the barrier: a full fence in this thread, and in every other thread at its current instruction. A
    /// system call. Pairs with [`light_barrier`]; without `membarrier`, the two fences do.
    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
        if cfg!(miri) {
            return;
        }
        // The child of a fork may have to register again.
        if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            prepare_barriers();
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether the `per_process!` statics are destroyed. That happens only at the end of an execution of a loom model.
    #[inline(always)]
    pub(crate) fn are_statics_destroyed() -> bool {
        false
    }
}

#[cfg(loom)]
mod imp {
    use loom::sync::atomic::{AtomicUsize, Ordering, fence};

    use crate::sync::{HintUsize, seeded_bug};

    /// Its drop records that loom destroys the statics of the execution.
    struct DestructionFlag;

    std::thread_local! {
        static ARE_DESTROYED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    impl Drop for DestructionFlag {
        fn drop(&mut self) {
            ARE_DESTROYED.set(true);
        }
    }

    loom::lazy_static! {
        static ref DESTRUCTION_FLAG: DestructionFlag = DestructionFlag;
    }

    /// Whether loom has destroyed the statics of the execution. A thread of a model may end after that.
    pub(crate) fn are_statics_destroyed() -> bool {
        ARE_DESTROYED.get()
    }

    pub(crate) fn prepare_barriers() {
        ARE_DESTROYED.set(false);
        let _ = &*DESTRUCTION_FLAG;
    }

    /// The number of threads in one execution, at most.
    const MAX_THREADS: usize = 5;

    /// One word per thread of an execution: see "Under loom" in the header.
    struct BarrierWords {
        /// The read-modify-writes are AcqRel. That of the thread pairs with that of a heavy barrier.
        words: [AtomicUsize; MAX_THREADS],
        /// How many threads have a word.
        assigned: HintUsize,
    }

    loom::lazy_static! {
        static ref BARRIER_WORDS: BarrierWords = BarrierWords {
            words: std::array::from_fn(|_| AtomicUsize::new(0)),
            assigned: HintUsize::new(0),
        };
    }

    loom::thread_local! {
        static BARRIER_WORD: usize = BARRIER_WORDS.assigned.fetch_add(1, Ordering::Relaxed);
    }

    /// Models run no linked code.
    pub(crate) fn synchronize_processors() {}

    /// Models run no linked code.
    #[cfg_attr(not(feature = "reload"), allow(dead_code))]
    pub(crate) fn serialize_processors() {}

    pub(crate) fn light_barrier() {
        let word = BARRIER_WORD.with(|word| *word);
        BARRIER_WORDS.words[word].fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn heavy_barrier() {
        // Seeded bug: only this thread executes a fence.
        if seeded_bug!("heavy_barrier_without_the_others") {
            // Pairs with nothing, which is the bug.
            return fence(Ordering::SeqCst);
        }
        for word in &BARRIER_WORDS.words {
            word.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering, fence};

    use super::*;
    use crate::sync::{processors, store_then_fence};

    const ROUNDS: u64 = 30_000;

    /// A word in a cache line of its own. A store to a line that another processor owns waits in the store buffer, while later
    /// loads execute.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU64);

    /// Waits until both threads have arrived, so that they begin each round at about the same time.
    fn meet(arrived: &AtomicU64, round: u64) {
        arrived.fetch_add(1, Ordering::SeqCst);
        let mut tries = 0u32;
        while arrived.load(Ordering::SeqCst) < 2 * round {
            tries += 1;
            // On one processor, the other thread needs a chance to run.
            if tries.is_multiple_of(1000) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Stores the number of the round to a word and executes a barrier.
    type Step = fn(&AtomicU64, u64);

    /// Store buffering: each thread runs its step on its own word and then reads the word of the other thread. Returns the
    /// number of rounds in which both threads read an old value, so that neither saw the other.
    fn lost_rounds(frequent: Step, seldom: Step) -> usize {
        let words: [Word; 3] = Default::default();
        let [frequent_word, seldom_word, arrived] = words.each_ref().map(|word| &word.0);
        // The frequent thread first stores to lines that the other thread owns, so that its own store waits longer.
        let earlier: &[Word; 16] = &Default::default();
        prepare_barriers();
        std::thread::scope(|scope| {
            let frequent_thread = scope.spawn(|| {
                let round = |round: u64| {
                    meet(arrived, round);
                    earlier.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                    frequent(frequent_word, round);
                    seldom_word.load(Ordering::Relaxed)
                };
                (1..=ROUNDS).map(round).collect::<Vec<_>>()
            });
            let seldom_round = |round: u64| {
                earlier.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
                meet(arrived, round);
                // Delays differ by up to a few microseconds, so that some rounds hit the moment at which the store waits.
                (0..round % 256).for_each(|step| {
                    std::hint::black_box(step);
                });
                seldom(seldom_word, round);
                frequent_word.load(Ordering::Acquire)
            };
            let seen_by_seldom: Vec<_> = (1..=ROUNDS).map(seldom_round).collect();
            let seen_by_frequent = frequent_thread.join().expect("it does not panic");
            let rounds = seen_by_frequent.into_iter().zip(seen_by_seldom).zip(1..);
            rounds.filter(|((one, other), round)| one < round && other < round).count()
        })
    }

    /// Proves that the test can fail: without one part of the protocol, some rounds are lost. On one processor none is.
    fn assert_some_are_lost(without: &str, frequent: Step, seldom: Step) {
        let lost = (0..TRIES).map(|_| lost_rounds(frequent, seldom)).find(|lost| *lost > 0);
        println!("without {without}: {lost:?} of {ROUNDS} rounds lost");
        assert!(
            lost.is_some() || processors() == 1,
            "no round was lost without {without}: the test would not notice that it is missing"
        );
    }

    /// Other load on the machine may keep the two threads from running at the same time, so one try is not enough.
    const TRIES: usize = 50;

    fn store(word: &AtomicU64, round: u64) {
        word.store(round, Ordering::Release);
    }

    fn store_and_fence(word: &AtomicU64, round: u64) {
        word.store(round, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    #[test]
    #[cfg_attr(miri, ignore = "tens of thousands of rounds of two threads")]
    fn across_a_light_and_a_heavy_barrier_at_least_one_side_sees_the_other() {
        let light: Step = |word, round| {
            word.store(round, Ordering::Release);
            light_barrier();
        };
        let heavy: Step = |word, round| {
            word.store(round, Ordering::Relaxed);
            heavy_barrier();
        };
        assert_eq!(lost_rounds(light, heavy), 0);
        assert_some_are_lost("the heavy barrier", light, store_and_fence);
    }

    #[test]
    #[cfg_attr(miri, ignore = "tens of thousands of rounds of two threads")]
    fn without_membarrier_full_fences_give_the_same_guarantee() {
        let light: Step = |word, round| {
            word.store(round, Ordering::Release);
            light_barrier_of(false);
        };
        assert_eq!(lost_rounds(light, store_and_fence), 0);
        assert_some_are_lost("the fence", store, store_and_fence);
    }

    #[test]
    #[cfg_attr(miri, ignore = "tens of thousands of rounds of two threads")]
    fn of_a_thread_that_enters_a_guard_and_a_remover_at_least_one_sees_the_other() {
        assert_eq!(lost_rounds(store_then_fence, store_and_fence), 0);
        assert_some_are_lost("the fence", store, store_and_fence);
    }
}
