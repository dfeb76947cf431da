//! Threads that call the functions without pause, and tell by each result which version gave it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::Function;

use super::FUNCTIONS;
use super::tuner::template;
use crate::dice::Dice;
use crate::scenario::words;
use crate::workloads::corpus::{ARGUMENT, Template, entry};
use crate::workloads::host::{House, Run};
use crate::workloads::times::Times;

/// Calls under one guard.
const CALLS: u32 = 10;
/// The long call stays inside for so long, again and again.
const LONG_CALL: Duration = Duration::from_millis(100);

/// What callers have seen.
pub struct Calls {
    /// Of [`CALLS`] calls each, and of the guard around them.
    pub times: Times,
    /// Of the guard alone: whoever leaves the last one that is in a version's way frees it.
    pub leavings: Times,
    /// From a commit to the first call of the version.
    pub arrivals: Times,
}

/// What the tuner tells the callers.
pub struct News {
    /// The number of the newest candidate; a caller may see no newer one.
    pub newest: AtomicU64,
    /// When each function was committed last, in nanoseconds since the beginning.
    commits: Vec<AtomicU64>,
    beginning: Instant,
}

impl News {
    pub fn new() -> News {
        let commits = (0..FUNCTIONS).map(|_| AtomicU64::new(0)).collect();
        News { newest: AtomicU64::new(0), commits, beginning: Instant::now() }
    }

    pub fn committed(&self, number: usize) {
        self.commits[number].store(self.now(), Ordering::Relaxed);
    }

    fn since_commit(&self, number: usize) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(self.commits[number].load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        self.beginning.elapsed().as_nanos() as u64
    }
}

impl Calls {
    fn new() -> Calls {
        Calls { times: Times::new(), leavings: Times::new(), arrivals: Times::new() }
    }

    fn merge(&mut self, other: &Calls) {
        self.times.merge(&other.times);
        self.leavings.merge(&other.leavings);
        self.arrivals.merge(&other.arrivals);
    }
}

/// Has threads call all functions as long as `work` takes, and one more stay inside if there is to be a `long_call`.
pub fn beside<R>(
    house: &House,
    templates: &[Template],
    news: &News,
    threads: usize,
    long_call: bool,
    work: impl FnOnce() -> Result<R, String>,
) -> Result<(Calls, R), String> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let call = |number| scope.spawn(move || call_by_stubs(house, templates, news, number, is_over));
        let callers: Vec<_> = (0..threads).map(call).collect();
        if long_call {
            scope.spawn(move || stay_inside(house, is_over));
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
    house: &House,
    templates: &[Template],
    news: &News,
    thread: usize,
    is_over: &AtomicBool,
) -> Result<Calls, String> {
    // SAFETY: the entries' signature; all versions have it.
    let find = |number| unsafe { house.jit.lookup_in::<Run>(&house.dylib, &entry(number)) };
    let stubs = (0..FUNCTIONS as u32).map(find).collect::<Result<Vec<_>, _>>().map_err(words)?;
    let (mut calls, mut dice, mut known) = (Calls::new(), Dice(thread as u64 * 101 + 3), [0; FUNCTIONS]);
    while !is_over.load(Ordering::Relaxed) {
        let number = dice.roll(FUNCTIONS);
        let start = Instant::now();
        let guard = house.jit.guard();
        let result = call(&stubs[number]);
        calls.leavings.time(move || drop(guard));
        calls.times.note(start.elapsed());
        // Its number was given out before it was committed.
        let version = template(templates, number).value(result);
        if version == 0 || version > news.newest.load(Ordering::SeqCst) {
            return Err(format!("a wrong result, by a version {version:#x} that there is not"));
        }
        let last = std::mem::replace(&mut known[number], version);
        if (1..version).contains(&last) {
            calls.arrivals.note(news.since_commit(number));
        }
    }
    Ok(calls)
}

/// As the callers of a program that is never patched.
pub fn call_plainly(
    functions: &[Function<Run>],
    templates: &[Template],
    is_over: &AtomicBool,
) -> Result<Times, String> {
    let (mut times, mut dice) = (Times::new(), Dice(3));
    while !is_over.load(Ordering::Relaxed) {
        let number = dice.roll(functions.len());
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

/// A call that takes long, under a guard: nothing is freed meanwhile that was removed since it began.
fn stay_inside(house: &House, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let _guard = house.jit.guard();
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
