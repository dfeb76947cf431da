//! [`Samples`]: the times of one operation that is done many times in a row.
//!
//! Wall time is read for each operation. CPU time is read once per batch, because reading it is a system call. All
//! times are kept: quantiles are exact and follow the formula of ORC's program, and a histogram would round them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::scenario::{Key, Measure, Unit};

/// The number of objects prepared before each batch, outside the clock. It is so small that the objects are still in
/// the cache when they are linked, like the output of a code generator. Rows about cold bytes flush them first, see
/// [`evict`](super::cache::evict). The peers' programs use the same number.
pub const BATCH: usize = 32;

#[derive(Default)]
pub struct Samples {
    nanoseconds: Vec<u64>,
    cpu_nanoseconds: u64,
}

impl Samples {
    /// Times one operation.
    pub fn one<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.nanoseconds.push(start.elapsed().as_nanos() as u64);
        result
    }

    /// Adds the CPU time of a batch of operations, each of which is timed by `one`.
    pub fn batch<R>(&mut self, operations: impl FnOnce(&mut Samples) -> R) -> R {
        let start = cpu_nanoseconds();
        let result = operations(self);
        self.cpu_nanoseconds += cpu_nanoseconds() - start;
        result
    }

    /// Operations per second of CPU time, including work that is done only now and then for many operations: the rate
    /// of one undisturbed thread.
    pub fn per_second(&self) -> f64 {
        self.nanoseconds.len() as f64 * 1e9 / self.cpu_nanoseconds as f64
    }

    /// The median, with mean, quantiles and CPU time. At least one operation must have been timed.
    pub fn into_measure(mut self, key: Key) -> Measure {
        self.nanoseconds.sort_unstable();
        let count = self.nanoseconds.len();
        let cpu = self.cpu_nanoseconds as f64 / count as f64;
        let quantile = |thousandth: usize| self.nanoseconds[count * thousandth / 1_000] as f64;
        Measure {
            key,
            unit: Unit::Nanoseconds,
            value: self.nanoseconds[count / 2] as f64,
            mean: Some(self.nanoseconds.iter().sum::<u64>() as f64 / count as f64),
            p99: (count >= 200).then(|| quantile(990)),
            p999: (count >= 1_000).then(|| quantile(999)),
            cpu: (cpu > 0.0).then_some(cpu),
        }
    }
}

/// A figure without mean, quantiles and CPU time.
pub fn single(key: Key, unit: Unit, value: f64) -> Measure {
    Measure { key, unit, value, mean: None, p99: None, p999: None, cpu: None }
}

/// Nanoseconds per operation, for operations that are too short to be timed one by one.
pub fn nanoseconds_each(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..operations).for_each(&mut operation);
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// The median of such figures over many short windows. Most windows are undisturbed, even on a machine that others
/// use.
pub fn median_nanoseconds(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    const WINDOWS: usize = 101;
    let window = operations / WINDOWS;
    let mut windows: Vec<f64> = (0..WINDOWS).map(|_| nanoseconds_each(window, &mut operation)).collect();
    windows.sort_by(f64::total_cmp);
    windows[WINDOWS / 2]
}

/// The rate of all threads together, each on its own processor. It measures several windows and returns the rate of
/// the window in which other programs used least of the processors.
pub fn rate_together<T: Send>(
    workers: &mut [T],
    operations: usize,
    work: impl Fn(&mut T) -> Result<(), String> + Sync,
) -> Result<f64, String> {
    let mut best = Window { rate: 0.0, share: 0.0 };
    for number in 0..MAX_WINDOWS {
        if number >= WINDOWS && best.share >= UNDISTURBED {
            break;
        }
        let window = window(workers, operations, &work)?;
        best = if window.share > best.share { window } else { best };
    }
    Ok(best.rate)
}

const WINDOWS: usize = 5;
/// The limit on a machine that others use.
const MAX_WINDOWS: usize = 10;
/// Above this share of the processors, other programs hardly ran.
const UNDISTURBED: f64 = 0.95;

struct Window {
    rate: f64,
    /// The share of the processors that this process had.
    share: f64,
}

fn window<T: Send>(
    workers: &mut [T],
    operations: usize,
    work: &(impl Fn(&mut T) -> Result<(), String> + Sync),
) -> Result<Window, String> {
    let (count, ready, has_started) = (workers.len(), AtomicUsize::new(0), AtomicBool::new(false));
    let wait_and_work = |processor, worker| {
        run_on(processor);
        ready.fetch_add(1, Ordering::AcqRel);
        while !has_started.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        work(worker)
    };
    std::thread::scope(|scope| {
        let wait_and_work = &wait_and_work;
        let spawn = |(processor, worker)| scope.spawn(move || wait_and_work(processor, worker));
        let threads: Vec<_> = workers.iter_mut().enumerate().map(spawn).collect();
        while ready.load(Ordering::Acquire) < count {
            std::thread::yield_now();
        }
        let (cpu, start) = (cpu_nanoseconds(), Instant::now());
        has_started.store(true, Ordering::Release);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        let nanoseconds = start.elapsed().as_nanos() as f64;
        let share = (cpu_nanoseconds() - cpu) as f64 / nanoseconds / count as f64;
        Ok(Window { rate: (count * operations) as f64 * 1e9 / nanoseconds, share })
    })
}

/// Pins this thread to a processor, if there is one with that number: the kernel often puts two threads on the same
/// one.
fn run_on(processor: usize) {
    // SAFETY: all zeroes is the empty set of processors.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has space for far more processors than there are threads here.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: this thread, our set and its size. If the call fails, the thread stays where it is.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// The CPU time of this process.
fn cpu_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to our timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
