//! The caller threads. They call the functions without pause, and recognise by each result which version returned it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::Function;

use super::kernels::{FUNCTIONS, template};
use super::progress::Progress;
use crate::measure::scenario::to_text;
use crate::workloads::corpus::{ARGUMENT, Template, entry};
use crate::workloads::host::HostSession;
use crate::workloads::host_functions::Run;
use crate::workloads::times::Times;
use fastrand::Rng;

/// Calls under one guard.
const CALLS: u32 = 10;
/// The duration of the long call, which is repeated without a break.
const LONG_CALL: Duration = Duration::from_millis(100);

/// What callers have measured.
pub struct Calls {
    /// Of [`CALLS`] calls and the guard around them.
    pub times: Times,
    /// Of leaving the guard. If it is the last guard in the way of a removal, this frees the version.
    pub guard_exits: Times,
    /// From a commit to the first call of the new version.
    pub switch_delays: Times,
}

impl Calls {
    fn new() -> Calls {
        Calls { times: Times::new(), guard_exits: Times::new(), switch_delays: Times::new() }
    }

    fn merge(&mut self, other: &Calls) {
        self.times.merge(&other.times);
        self.guard_exits.merge(&other.guard_exits);
        self.switch_delays.merge(&other.switch_delays);
    }
}

/// Threads call all functions while `work` runs. With `long_call`, one more thread stays inside a guard.
pub fn call_during<R>(
    session: &HostSession,
    templates: &[Template],
    progress: &Progress,
    threads: usize,
    long_call: bool,
    work: impl FnOnce() -> Result<R, String>,
) -> Result<(Calls, R), String> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let call = |number| scope.spawn(move || call_by_stubs(session, templates, progress, number, is_over));
        let callers: Vec<_> = (0..threads).map(call).collect();
        if long_call {
            scope.spawn(move || hold_guard(session, is_over));
        }
        let stop = Stop(is_over);
        let done = work();
        drop(stop);
        let mut calls = Calls::new();
        for caller in callers {
            calls.merge(&caller.join().map_err(|_| "a caller panicked")??);
        }
        Ok((calls, done?))
    })
}

fn call_by_stubs(
    session: &HostSession,
    templates: &[Template],
    progress: &Progress,
    thread: usize,
    is_over: &AtomicBool,
) -> Result<Calls, String> {
    // SAFETY: the entries' signature; all versions have it.
    let find = |number| unsafe { session.jit.lookup_in::<Run>(&session.dylib, &entry(number)) };
    let stubs = (0..FUNCTIONS as u32).map(find).collect::<Result<Vec<_>, _>>().map_err(to_text)?;
    let (mut calls, mut rng, mut last_versions) =
        (Calls::new(), Rng::with_seed(thread as u64 * 101 + 3), [0; FUNCTIONS]);
    while !is_over.load(Ordering::Relaxed) {
        let number = rng.usize(..FUNCTIONS);
        let start = Instant::now();
        let guard = session.jit.guard();
        let result = call(&stubs[number]);
        calls.guard_exits.time(move || drop(guard));
        calls.times.record(start.elapsed());
        // The tuner assigns a version's number before it commits the version.
        let version = template(templates, number).value(result);
        if version == 0 || version > progress.newest.load(Ordering::SeqCst) {
            return Err(format!("a wrong result: version {version:#x} does not exist"));
        }
        let last = std::mem::replace(&mut last_versions[number], version);
        if (1..version).contains(&last) {
            calls.switch_delays.record(progress.since_commit(number));
        }
    }
    Ok(calls)
}

/// Calls functions that are never patched, for comparison.
pub fn call_plainly(
    functions: &[Function<Run>],
    templates: &[Template],
    is_over: &AtomicBool,
) -> Result<Times, String> {
    let (mut times, mut rng) = (Times::new(), Rng::with_seed(3));
    while !is_over.load(Ordering::Relaxed) {
        let number = rng.usize(..functions.len());
        let result = times.time(|| call(&functions[number]));
        if template(templates, number).value(result) == 0 {
            return Err("a wrong result".into());
        }
    }
    Ok(times)
}

fn call(function: &Function<Run>) -> u64 {
    for _ in 1..CALLS {
        black_box(function.call(black_box(ARGUMENT)));
    }
    function.call(black_box(ARGUMENT))
}

/// A long call under a guard: no version that is removed after its start is freed before its end.
fn hold_guard(session: &HostSession, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let _guard = session.jit.guard();
        let start = Instant::now();
        while start.elapsed() < LONG_CALL && !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the calls, also when `work` panics: the scope waits for the callers.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
