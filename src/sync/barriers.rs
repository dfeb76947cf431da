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
        match KERNEL_MAKES_BARRIERS.load(Ordering::Relaxed) {
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
    use std::sync::atomic::{AtomicUsize, Ordering, fence};

    use super::*;

    const ROUNDS: usize = 30_000;

    /// A word in a cache line of its own: a store to a line that another processor has waits, while loads go on.
    #[derive(Default)]
    #[repr(align(128))]
    struct Word(AtomicUsize);

    /// Two threads begin each round at about the same time.
    fn meet(arrived: &AtomicUsize, round: usize) {
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

    /// Each thread writes its word, passes its barrier and reads the other's word. In how many rounds both read what was
    /// there before: then a wake-up is lost, since neither sees the other.
    fn lost_rounds(heavy: fn()) -> usize {
        let words: [Word; 3] = Default::default();
        let [left, awaited, arrived] = words.each_ref().map(|word| &word.0);
        // Stores ahead of the one that counts, to lines that the other thread has: so that one waits longer.
        let ahead: &[Word; 24] = &Default::default();
        prepare_barriers();
        std::thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                let round = |round: usize| {
                    meet(arrived, round);
                    ahead.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                    left.store(round, Ordering::Release);
                    light_barrier();
                    awaited.load(Ordering::Relaxed)
                };
                (1..=ROUNDS).map(round).collect::<Vec<_>>()
            });
            let waiting = |round: usize| {
                ahead.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
                meet(arrived, round);
                (0..round % 24).for_each(|step| {
                    std::hint::black_box(step);
                });
                awaited.store(round, Ordering::Relaxed);
                heavy();
                left.load(Ordering::Acquire)
            };
            let seen: Vec<_> = (1..=ROUNDS).map(waiting).collect();
            let by_leaving = leaving.join().expect("it does not panic");
            let rounds = by_leaving.into_iter().zip(seen).zip(1..);
            rounds.filter(|((leaving, waiting), round)| leaving < round && waiting < round).count()
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "tens of thousands of rounds of two threads")]
    fn of_a_light_and_a_heavy_barrier_one_side_sees_the_other() {
        assert_eq!(lost_rounds(heavy_barrier), 0);
        // What shows that the test can fail. Nothing promises that it does: on one processor it does not.
        let without = lost_rounds(|| fence(Ordering::SeqCst));
        println!("without the heavy barrier: {without} of {ROUNDS} rounds lost");
    }
}
