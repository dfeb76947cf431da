//! Observes a run: it takes samples at even intervals for the plot, and shows a line on the terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::callers::Callers;
use crate::ledger::Ledger;
use crate::tuner::Progress;

const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// More points than a drawing can show are useless.
const MAX_SAMPLES: u32 = 600;

/// What happened between one sample and the next.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub seconds: f64,
    /// Of all callers together, in wall-clock time.
    pub gigaflops: f64,
    /// Switches per second.
    pub switches: f64,
    /// The largest number of versions alive at once.
    pub versions: u64,
}

pub struct Watch<'a> {
    pub callers: &'a Callers<'a>,
    pub progress: &'a Progress,
    pub ledger: &'a Ledger,
    pub bar: &'a ProgressBar,
}

impl Watch<'_> {
    /// Observes while `work` runs, which takes about `time`.
    pub fn during<T>(&self, time: Duration, work: impl FnOnce() -> T) -> (T, Vec<Sample>) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| self.sample_until_over(time, &is_over));
            let stop = Stop(&is_over, watcher.thread().clone());
            let result = work();
            drop(stop);
            // If the watcher panicked, the plot has no samples.
            (result, watcher.join().unwrap_or_default())
        })
    }

    fn sample_until_over(&self, time: Duration, is_over: &AtomicBool) -> Vec<Sample> {
        let started = Instant::now();
        let interval = MIN_INTERVAL.max(time / MAX_SAMPLES);
        let mut samples = Vec::new();
        let mut before = (0.0, self.callers.operations(), self.progress.switches());
        loop {
            thread::park_timeout(interval);
            if is_over.load(Ordering::Relaxed) {
                return samples;
            }
            let now = (started.elapsed().as_secs_f64(), self.callers.operations(), self.progress.switches());
            let seconds = now.0 - before.0;
            let sample = Sample {
                seconds: now.0,
                gigaflops: (now.1 - before.1) / seconds / 1e9,
                switches: (now.2 - before.2) as f64 / seconds,
                versions: self.ledger.take_recent_peak(),
            };
            samples.push(sample);
            before = now;
            self.show(&sample, started.elapsed(), time, now.2);
        }
    }

    fn show(&self, sample: &Sample, elapsed: Duration, time: Duration, switches: u64) {
        self.bar.set_length(time.as_millis() as u64);
        self.bar.set_position(elapsed.min(time).as_millis() as u64);
        let Sample { gigaflops, versions, .. } = sample;
        self.bar.set_message(format!("{gigaflops:5.2} GFLOP/s, {versions} versions, {switches} switches"));
    }
}

/// Ends the watch, also when `work` panics: the scope waits for the watcher.
struct Stop<'a>(&'a AtomicBool, thread::Thread);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}
