//! The caller threads: they call the kernels without pause, check every answer and time every call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use jittison::Jit;

use crate::histogram::Histogram;
use crate::problem::{Kernel, KernelFn, Output, Problem};

/// A longer call was interrupted by the system. Its time says nothing about the kernel.
const INTERRUPTED: Duration = Duration::from_millis(1);

/// What keeps a version in memory while a thread calls it.
#[derive(Clone, Copy)]
pub enum Protection<'a> {
    /// An execution guard around every call.
    Guard(&'a Jit),
    /// A shared lock around every call; a switch takes the lock exclusively.
    Lock(&'a RwLock<()>),
    /// No protection: the mode itself must keep every version, or a call may run freed code.
    None,
}

/// Calls, and the time that they took together.
#[derive(Clone, Copy, Default)]
pub struct Timing {
    pub calls: u64,
    pub nanoseconds: u64,
}

/// All caller threads, with their counters.
pub struct Callers<'a> {
    problems: &'a [Problem; 2],
    all_counts: Vec<[CallCounts; 2]>,
    is_over: AtomicBool,
}

/// One thread's calls of one kernel. The counters are relaxed: they order no other memory.
#[derive(Default)]
#[repr(align(128))]
struct CallCounts {
    calls: AtomicU64,
    wrong: AtomicU64,
    /// Calls that were not interrupted.
    timed: AtomicU64,
    nanoseconds: AtomicU64,
}

impl<'a> Callers<'a> {
    pub fn new(threads: usize, problems: &'a [Problem; 2]) -> Callers<'a> {
        let all_counts = (0..threads).map(|_| Default::default()).collect();
        Callers { problems, all_counts, is_over: AtomicBool::new(false) }
    }

    /// Lets all threads call `functions` while `work` runs. Returns the result of `work` and the latencies of the
    /// calls.
    ///
    /// # Safety
    /// `functions` are the kernels. They stay callable while `work` runs, and `protection` keeps the versions behind
    /// them mapped during each call.
    pub unsafe fn call_during<T>(
        &self,
        functions: [KernelFn; 2],
        protection: Protection<'_>,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Histogram), String> {
        self.is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let body = |all_counts| {
                // SAFETY: the caller of `call_during` promises it.
                move || unsafe { self.call_until_over(all_counts, functions, protection) }
            };
            let callers: Vec<_> = self.all_counts.iter().map(|all_counts| scope.spawn(body(all_counts))).collect();
            let stop = Stop(&self.is_over);
            let result = work();
            drop(stop);
            let mut latencies = Histogram::default();
            for caller in callers {
                latencies.merge(&caller.join().map_err(|_| "a caller panicked".to_owned())?);
            }
            Ok((result, latencies))
        })
    }

    /// The loop of one caller thread.
    ///
    /// # Safety
    /// As [`call_during`](Self::call_during).
    unsafe fn call_until_over(
        &self,
        all_counts: &[CallCounts; 2],
        functions: [KernelFn; 2],
        protection: Protection<'_>,
    ) -> Histogram {
        let mut outputs = self.problems.each_ref().map(Problem::output);
        let mut latencies = Histogram::default();
        let mut iteration = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            for kernel in Kernel::ALL.map(Kernel::index) {
                let (problem, counts) = (&self.problems[kernel], &all_counts[kernel]);
                counts.calls.fetch_add(1, Ordering::Relaxed);
                let started = Instant::now();
                // SAFETY: the caller promises it.
                unsafe { call(problem, functions[kernel], iteration, &mut outputs[kernel], protection) };
                let duration = started.elapsed();
                latencies.record(duration);
                counts.record(duration, problem.is_right(iteration, &outputs[kernel]));
            }
            iteration += 1;
        }
        latencies
    }

    pub fn calls(&self, kernel: Kernel) -> u64 {
        self.sum(kernel, |counts| &counts.calls)
    }

    pub fn wrong(&self) -> u64 {
        Kernel::ALL.into_iter().map(|kernel| self.sum(kernel, |counts| &counts.wrong)).sum()
    }

    pub fn timing(&self, kernel: Kernel) -> Timing {
        let (calls, nanoseconds) =
            (self.sum(kernel, |counts| &counts.timed), self.sum(kernel, |counts| &counts.nanoseconds));
        Timing { calls, nanoseconds }
    }

    /// Floating-point operations of all calls so far.
    pub fn operations(&self) -> f64 {
        Kernel::ALL.into_iter().map(|kernel| self.calls(kernel) as f64 * kernel.operations()).sum()
    }

    fn sum(&self, kernel: Kernel, counter: impl Fn(&CallCounts) -> &AtomicU64) -> u64 {
        self.all_counts.iter().map(|all_counts| counter(&all_counts[kernel.index()]).load(Ordering::Relaxed)).sum()
    }
}

/// One call under its protection.
///
/// # Safety
/// As [`Callers::call_during`].
#[inline(always)]
unsafe fn call(
    problem: &Problem,
    function: KernelFn,
    iteration: usize,
    output: &mut Output,
    protection: Protection<'_>,
) {
    // SAFETY: the caller promises it, for all three uses.
    let mut call = || unsafe { problem.call(function, iteration, output) };
    match protection {
        Protection::Guard(jit) => {
            let _guard = jit.guard();
            call()
        }
        Protection::Lock(lock) => {
            let _shared = lock.read().unwrap_or_else(PoisonError::into_inner);
            call()
        }
        Protection::None => call(),
    }
}

impl CallCounts {
    fn record(&self, duration: Duration, is_right: bool) {
        if !is_right {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        if duration < INTERRUPTED {
            self.timed.fetch_add(1, Ordering::Relaxed);
            self.nanoseconds.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

impl Timing {
    pub fn since(self, before: Timing) -> Timing {
        Timing { calls: self.calls - before.calls, nanoseconds: self.nanoseconds - before.nanoseconds }
    }

    pub fn add(&mut self, other: Timing) {
        self.calls += other.calls;
        self.nanoseconds += other.nanoseconds;
    }

    /// GFLOP/s of one thread inside the kernel; `None` without calls.
    pub fn gigaflops(self, kernel: Kernel) -> Option<f64> {
        (self.nanoseconds > 0).then(|| self.calls as f64 * kernel.operations() / self.nanoseconds as f64)
    }
}

/// Ends the calls, also when `work` panics: the scope waits for the callers.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
