//! Threads that call the kernels without pause, check every answer, and time every call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use jittison::Jit;

use crate::histogram::Histogram;
use crate::problem::{Kernel, KernelFn, Output, Problem};

/// A call that takes longer was interrupted by the system, and says nothing about the kernel.
const INTERRUPTED: Duration = Duration::from_millis(1);

/// What keeps a version in memory while it is called.
#[derive(Clone, Copy)]
pub enum Holding<'a> {
    /// An execution guard around every call.
    Guard(&'a Jit),
    /// A lock that switches take alone.
    Lock(&'a RwLock<()>),
    /// Nothing: the version is not given up, or woe to the caller.
    Nothing,
}

/// How many calls took how long.
#[derive(Clone, Copy, Default)]
pub struct Timing {
    pub calls: u64,
    pub nanoseconds: u64,
}

/// All callers, and what they have done so far.
pub struct Crowd<'a> {
    problems: &'a [Problem; 2],
    tallies: Vec<[Tally; 2]>,
    is_over: AtomicBool,
}

/// One caller's calls of one kernel. Its counters stand for themselves and order no other memory.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    calls: AtomicU64,
    wrong: AtomicU64,
    /// Calls that were not interrupted.
    timed: AtomicU64,
    nanoseconds: AtomicU64,
}

impl<'a> Crowd<'a> {
    pub fn new(threads: usize, problems: &'a [Problem; 2]) -> Crowd<'a> {
        let tallies = (0..threads).map(|_| Default::default()).collect();
        Crowd { problems, tallies, is_over: AtomicBool::new(false) }
    }

    /// Has all threads call `functions` as long as `work` takes; its result, and the latencies.
    ///
    /// # Safety
    /// The functions are the kernels, and stay as long as `work` takes, what is behind them with the help of `holding`.
    pub unsafe fn call_during<T>(
        &self,
        functions: [KernelFn; 2],
        holding: Holding<'_>,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Histogram), String> {
        self.is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let body = |tallies| {
                // SAFETY: the caller's word.
                move || unsafe { self.serve(tallies, functions, holding) }
            };
            let callers: Vec<_> = self.tallies.iter().map(|tallies| scope.spawn(body(tallies))).collect();
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

    /// One caller.
    ///
    /// # Safety
    /// As [`call_during`](Self::call_during).
    unsafe fn serve(&self, tallies: &[Tally; 2], functions: [KernelFn; 2], holding: Holding<'_>) -> Histogram {
        let mut outputs = self.problems.each_ref().map(Problem::output);
        let mut latencies = Histogram::default();
        let mut turn = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            for kernel in Kernel::ALL.map(Kernel::index) {
                let (problem, tally) = (&self.problems[kernel], &tallies[kernel]);
                tally.calls.fetch_add(1, Ordering::Relaxed);
                let begun = Instant::now();
                // SAFETY: the caller's word.
                unsafe { call(problem, functions[kernel], turn, &mut outputs[kernel], holding) };
                let took = begun.elapsed();
                latencies.note(took);
                tally.note(took, problem.is_right(turn, &outputs[kernel]));
            }
            turn += 1;
        }
        latencies
    }

    pub fn calls(&self, kernel: Kernel) -> u64 {
        self.sum(kernel, |tally| &tally.calls)
    }

    pub fn wrong(&self) -> u64 {
        Kernel::ALL.into_iter().map(|kernel| self.sum(kernel, |tally| &tally.wrong)).sum()
    }

    pub fn timing(&self, kernel: Kernel) -> Timing {
        let (calls, nanoseconds) =
            (self.sum(kernel, |tally| &tally.timed), self.sum(kernel, |tally| &tally.nanoseconds));
        Timing { calls, nanoseconds }
    }

    /// Floating-point operations of all calls so far.
    pub fn operations(&self) -> f64 {
        Kernel::ALL.into_iter().map(|kernel| self.calls(kernel) as f64 * kernel.operations()).sum()
    }

    fn sum(&self, kernel: Kernel, part: impl Fn(&Tally) -> &AtomicU64) -> u64 {
        self.tallies.iter().map(|tallies| part(&tallies[kernel.index()]).load(Ordering::Relaxed)).sum()
    }
}

/// One call, in the hold.
///
/// # Safety
/// As [`Crowd::call_during`].
#[inline(always)]
unsafe fn call(problem: &Problem, function: KernelFn, turn: usize, output: &mut Output, holding: Holding<'_>) {
    // SAFETY: the caller's word, for all three.
    let mut call = || unsafe { problem.call(function, turn, output) };
    match holding {
        Holding::Guard(jit) => {
            let _guard = jit.guard();
            call()
        }
        Holding::Lock(world) => {
            let _shared = world.read().unwrap_or_else(PoisonError::into_inner);
            call()
        }
        Holding::Nothing => call(),
    }
}

impl Tally {
    fn note(&self, took: Duration, is_right: bool) {
        if !is_right {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        if took < INTERRUPTED {
            self.timed.fetch_add(1, Ordering::Relaxed);
            self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
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

    /// Of one thread inside the kernel; none without calls.
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
