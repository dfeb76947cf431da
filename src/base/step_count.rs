//! [`count_step`]: counts the steps of an algorithm, so that a test can say how its cost grows.
//!
//! Only unit tests of the crate count. Elsewhere a call does nothing. Each thread has its own count.

/// Counts one step.
#[inline(always)]
pub(crate) fn count_step() {
    #[cfg(all(test, not(loom)))]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(all(test, not(loom)))]
std::thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The steps that this thread counts while `body` runs.
#[cfg(all(test, not(loom)))]
pub(crate) fn steps_of(body: impl FnOnce()) -> usize {
    let before = STEPS.get();
    body();
    STEPS.get() - before
}
