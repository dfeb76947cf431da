//! A barrier of two halves, for protocols in which one side runs often and the other seldom.
//!
//! [`light_barrier`] costs the threads that pass it often next to nothing. [`heavy_barrier`] is a system call (`membarrier`):
//! the kernel has every other running thread of the process execute a full fence between the call's start and its end, and a
//! thread that does not run has executed one when it was switched out. This is all that we assume:
//!
//! > For each light barrier L and each heavy barrier H of two threads, one of two holds. What L's thread did before L is
//! > visible to H's thread after H; or what H's thread did before H is visible to L's thread after L.
//!
//! Why: the kernel's fence stands before L or after L in L's thread. Before: it comes after H began, so L's thread sees all
//! that precedes H. After: it comes before H ends, so H's thread sees all that precedes L. A light barrier is a compiler fence,
//! which keeps the compiler from moving either side across L. **Two light barriers order nothing.** Where the kernel has no
//! `membarrier`, both are full fences, which satisfy the same sentence.
//!
//! Under loom a light barrier is a read-modify-write of a word that its thread alone has, and a heavy one such a
//! read-modify-write of every thread's word: of two on one word one is first, and the second acquires what the first
//! released. That is the sentence above and no more, since light barriers of two threads meet at no word.
//!
//! | pair | light | heavy | model | litmus test |
//! |---|---|---|---|---|
//! | leaving a guard | `Post::leave` | `Post::accept` | `loom_tests/loom_guard_retire.rs` | below |
//! | settling an allocation | `ForkGate::pass` | `ForkGate::close` | `loom_tests/loom_fork_gate.rs` | below |
//!
//! Entering a guard passes a whole fence on either side, and so do light barriers where the kernel makes no heavy ones: these have
//! litmus tests below, too.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the kernel makes [`heavy_barrier`]s for this process.
    static KERNEL_MAKES_BARRIERS: AtomicBool = AtomicBool::new(false);

    /// Called by whoever will pass light barriers, ahead of the first.
    pub(crate) fn prepare_barriers() {
        // Miri has no such system call: there every barrier is whole.
        let is_ready = !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        KERNEL_MAKES_BARRIERS.store(is_ready, Ordering::Release);
    }

    /// Whole where the kernel makes no heavy ones.
    #[inline(always)]
    pub(crate) fn light_barrier() {
        light_barrier_of(KERNEL_MAKES_BARRIERS.load(Ordering::Relaxed));
    }

    #[inline(always)]
    pub(super) fn light_barrier_of(kernel_makes_barriers: bool) {
        match kernel_makes_barriers {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// A fence in this thread, and in each other one at some place where it is now: of two threads, one at a light barrier and
    /// one here, the later sees what the earlier wrote. A system call.
    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
        if cfg!(miri) {
            return;
        }
        // The child of a fork may have to ask anew.
        if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            prepare_barriers();
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether what is [`per_process!`] is destroyed: an execution of a model ends.
    #[inline(always)]
    pub(crate) fn is_process_over() -> bool {
        false
    }
}

#[cfg(loom)]
mod imp {
    use loom::sync::atomic::{AtomicUsize, Ordering, fence};

    use crate::sync::{HintUsize, seeded_bug};

    /// Notes when the statics of an execution are destroyed.
    struct Life;

    std::thread_local! {
        static IS_OVER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    impl Drop for Life {
        fn drop(&mut self) {
            IS_OVER.set(true);
        }
    }

    loom::lazy_static! {
        static ref LIFE: Life = Life;
    }

    /// Threads of a model may end after the statics.
    pub(crate) fn is_process_over() -> bool {
        IS_OVER.get()
    }

    pub(crate) fn prepare_barriers() {
        IS_OVER.set(false);
        let _ = &*LIFE;
    }

    /// Most threads of one execution.
    const THREADS: usize = 5;

    /// A word for each thread of an execution: see "The asymmetric barrier".
    struct BarrierWords {
        words: [AtomicUsize; THREADS],
        taken: HintUsize,
    }

    loom::lazy_static! {
        static ref BARRIER_WORDS: BarrierWords = BarrierWords {
            words: std::array::from_fn(|_| AtomicUsize::new(0)),
            taken: HintUsize::new(0),
        };
    }

    loom::thread_local! {
        static BARRIER_WORD: usize = BARRIER_WORDS.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn light_barrier() {
        let word = BARRIER_WORD.with(|word| *word);
        BARRIER_WORDS.words[word].fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn heavy_barrier() {
        // Seeded bug: only this thread passes a fence.
        if seeded_bug!("heavy_barrier_without_the_others") {
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

    /// A word in a cache line of its own: a store to a line that another processor has waits, while loads go on.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicU64);

    /// Two threads begin each round at about the same time.
    fn meet(arrived: &AtomicU64, round: u64) {
        arrived.fetch_add(1, Ordering::SeqCst);
        let mut tries = 0u32;
        while arrived.load(Ordering::SeqCst) < 2 * round {
            tries += 1;
            // There may be one processor.
            if tries.is_multiple_of(1000) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Stores to a word, and passes a barrier.
    type Step = fn(&AtomicU64, u64);

    /// Each thread takes its step on its own word and then reads the other's. In how many rounds both read what was there
    /// before: then neither sees the other.
    fn lost_rounds(often: Step, seldom: Step) -> usize {
        let words: [Word; 3] = Default::default();
        let [left, awaited, arrived] = words.each_ref().map(|word| &word.0);
        // Stores ahead of the one that counts, to lines that the other thread has: so that one waits longer.
        let ahead: &[Word; 16] = &Default::default();
        prepare_barriers();
        std::thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                let round = |round: u64| {
                    meet(arrived, round);
                    ahead.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                    often(left, round);
                    awaited.load(Ordering::Relaxed)
                };
                (1..=ROUNDS).map(round).collect::<Vec<_>>()
            });
            let waiting = |round: u64| {
                ahead.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
                meet(arrived, round);
                // Up to a few microseconds, so that some rounds come to the moment at which the other's store waits.
                (0..round % 256).for_each(|step| {
                    std::hint::black_box(step);
                });
                seldom(awaited, round);
                left.load(Ordering::Acquire)
            };
            let seen: Vec<_> = (1..=ROUNDS).map(waiting).collect();
            let by_leaving = leaving.join().expect("it does not panic");
            let rounds = by_leaving.into_iter().zip(seen).zip(1..);
            rounds.filter(|((leaving, waiting), round)| leaving < round && waiting < round).count()
        })
    }

    /// What shows that the test can fail: without a part of what orders them, some rounds are lost. Of one processor they are not.
    fn assert_some_are_lost(without: &str, often: Step, seldom: Step) {
        let lost = (0..TRIES).map(|_| lost_rounds(often, seldom)).find(|lost| *lost > 0);
        println!("without {without}: {lost:?} of {ROUNDS} rounds lost");
        assert!(
            lost.is_some() || processors() == 1,
            "the test cannot fail: it would not see that {without} is missing"
        );
    }

    /// Other work of the machine may keep the two threads apart.
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
    fn of_a_light_and_a_heavy_barrier_one_side_sees_the_other() {
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
    fn where_the_kernel_makes_no_barriers_one_side_sees_the_other_by_whole_fences() {
        let light: Step = |word, round| {
            word.store(round, Ordering::Release);
            light_barrier_of(false);
        };
        assert_eq!(lost_rounds(light, store_and_fence), 0);
        assert_some_are_lost("the fence", store, store_and_fence);
    }

    #[test]
    #[cfg_attr(miri, ignore = "tens of thousands of rounds of two threads")]
    fn of_whoever_enters_a_guard_and_whoever_looks_at_the_guards_one_sees_the_other() {
        assert_eq!(lost_rounds(store_then_fence, store_and_fence), 0);
        assert_some_are_lost("the fence", store, store_and_fence);
    }
}
