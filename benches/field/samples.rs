//! [`Samples`]: times of one operation, done many times in a row.
//!
//! Wall time is taken of each operation, CPU time once a batch, since reading that is a system call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::scenario::{Key, Measure, Unit};

/// So many objects are made ahead of each batch, outside the clock: few enough to be in the cache still when they are linked, as
/// what a code generator has just made is. The peers' programs do the same.
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

    /// Adds the CPU time of some operations, each of which times itself.
    pub fn batch<R>(&mut self, operations: impl FnOnce(&mut Samples) -> R) -> R {
        let start = cpu_nanoseconds();
        let result = operations(self);
        self.cpu_nanoseconds += cpu_nanoseconds() - start;
        result
    }

    /// How many are done in a second of CPU time, all that is done now and then for many at once included: what one thread does in
    /// a second that nobody disturbs.
    pub fn per_second(&self) -> f64 {
        self.nanoseconds.len() as f64 * 1e9 / self.cpu_nanoseconds as f64
    }

    /// The median, with p99 and CPU time. At least one operation has been timed.
    pub fn into_measure(mut self, key: Key) -> Measure {
        self.nanoseconds.sort_unstable();
        let count = self.nanoseconds.len();
        let cpu = self.cpu_nanoseconds as f64 / count as f64;
        Measure {
            key,
            unit: Unit::Nanoseconds,
            value: self.nanoseconds[count / 2] as f64,
            p99: (count >= 200).then(|| self.nanoseconds[count * 99 / 100] as f64),
            cpu: (cpu > 0.0).then_some(cpu),
        }
    }
}

/// A figure that has neither p99 nor CPU time.
pub fn single(key: Key, unit: Unit, value: f64) -> Measure {
    Measure { key, unit, value, p99: None, cpu: None }
}

/// Nanoseconds of each of many operations too short to be timed one by one.
pub fn nanoseconds_each(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..operations).for_each(&mut operation);
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// The median of such figures of many short windows, most of which are undisturbed even on a machine that others use.
pub fn nanoseconds_mostly(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    const WINDOWS: usize = 101;
    let window = operations / WINDOWS;
    let mut windows: Vec<f64> = (0..WINDOWS).map(|_| nanoseconds_each(window, &mut operation)).collect();
    windows.sort_by(f64::total_cmp);
    windows[WINDOWS / 2]
}

/// How often all threads together do something in a second, each on a processor of its own. Of several windows, that counts in
/// which others took least of the machine.
pub fn rate_together<T: Send>(
    workers: &mut [T],
    operations: usize,
    work: impl Fn(&mut T) -> Result<(), String> + Sync,
) -> Result<f64, String> {
    let mut best = Window { rate: 0.0, share: 0.0 };
    for number in 0..MOST_WINDOWS {
        if number >= WINDOWS && best.share >= UNDISTURBED {
            break;
        }
        let window = window(workers, operations, &work)?;
        best = if window.share > best.share { window } else { best };
    }
    Ok(best.rate)
}

const WINDOWS: usize = 5;
/// So many on a machine that others use.
const MOST_WINDOWS: usize = 10;
/// Above this share of the processors, nobody else had much of them.
const UNDISTURBED: f64 = 0.95;

struct Window {
    rate: f64,
    /// Which part of the processors this process had.
    share: f64,
}

fn window<T: Send>(
    workers: &mut [T],
    operations: usize,
    work: &(impl Fn(&mut T) -> Result<(), String> + Sync),
) -> Result<Window, String> {
    let (count, ready, is_on) = (workers.len(), AtomicUsize::new(0), AtomicBool::new(false));
    let wait_and_work = |processor, worker| {
        run_on(processor);
        ready.fetch_add(1, Ordering::AcqRel);
        while !is_on.load(Ordering::Acquire) {
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
        is_on.store(true, Ordering::Release);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        let nanoseconds = start.elapsed().as_nanos() as f64;
        let share = (cpu_nanoseconds() - cpu) as f64 / nanoseconds / count as f64;
        Ok(Window { rate: (count * operations) as f64 * 1e9 / nanoseconds, share })
    })
}

/// Keeps this thread on a processor, where there is one of that number: two threads are often put on the same one.
fn run_on(processor: usize) {
    // SAFETY: a set of no processors is all zeroes.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has room for far more processors than there are threads here.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: this thread, a set of ours and its size. A failure leaves the thread where it may run.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// CPU time of this process.
fn cpu_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
