//! An asymmetric barrier, with which [`Hazards`](crate::hazards::Hazards) avoid atomic read-modify-writes. jittison has the
//! same pair (`src/sync/barriers.rs`), which is not public.
//!
//! > Let L be a [`light_barrier`] of one thread and H a [`heavy_barrier`] of another thread. Then at least one of these is true: after
//! > H, its thread sees what precedes L; after L, its thread sees what precedes H.
//!
//! A light barrier is a compiler fence. A heavy one is a system call (`membarrier`), which makes every running thread of the process
//! execute a full fence. Where the kernel has no such call, both are full fences.
//!
//! Under loom, a light barrier is a read-modify-write of the word of its thread, and a heavy one is a read-modify-write of all words:
//! of two of one word, the second acquires what the first released.

#[cfg(not(loom))]
pub(crate) use imp::{heavy_barrier, light_barrier, prepare_barriers};
#[cfg(loom)]
pub(crate) use model::{heavy_barrier, light_barrier};

#[cfg(not(loom))]
mod imp {
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether this process is registered for `membarrier`.
    static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

    /// Registers the process. A thread calls this before its first light barrier.
    pub(crate) fn prepare_barriers() {
        if HAS_MEMBARRIER.load(Ordering::Relaxed) || cfg!(miri) {
            return;
        }
        // A thread that sees this late executes full fences until then, which are stronger.
        HAS_MEMBARRIER.store(membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok(), Ordering::Relaxed);
    }

    /// Pairs with [`heavy_barrier`].
    #[inline(always)]
    pub(crate) fn light_barrier() {
        match HAS_MEMBARRIER.load(Ordering::Relaxed) {
            true => compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// Pairs with [`light_barrier`].
    #[cold]
    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
        // The child of a fork may have to register again.
        if !cfg!(miri) && membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
            let _ = membarrier(MembarrierCommand::PrivateExpedited);
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::atomic::{AtomicUsize, Ordering};

    /// The number of threads in one execution, at most.
    const MAX_THREADS: usize = 2;

    loom::lazy_static! {
        static ref WORDS: [AtomicUsize; MAX_THREADS] = std::array::from_fn(|_| AtomicUsize::new(0));
        static ref ASSIGNED: AtomicUsize = AtomicUsize::new(0);
    }

    loom::thread_local! {
        static WORD: usize = ASSIGNED.fetch_add(1, Ordering::Relaxed);
    }

    /// Pairs with the read-modify-write of the same word in [`heavy_barrier`].
    pub(crate) fn light_barrier() {
        WORDS[WORD.with(|word| *word)].fetch_add(1, Ordering::AcqRel);
    }

    /// Pairs with [`light_barrier`].
    pub(crate) fn heavy_barrier() {
        // Seeded bug: the other threads execute no fence.
        if std::env::var_os("SEEDED_BUG").is_some_and(|bug| bug == "no_heavy_barrier") {
            return;
        }
        for word in WORDS.iter() {
            word.fetch_add(1, Ordering::AcqRel);
        }
    }
}
