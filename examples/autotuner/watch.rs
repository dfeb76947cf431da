//! Watching a run from outside: samples at even distances, for the plot, and a line on the terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::callers::Crowd;
use crate::ledger::Ledger;
use crate::tuner::Progress;

const SHORTEST: Duration = Duration::from_millis(50);
/// As many points as a drawing can show.
const MOST_SAMPLES: u32 = 600;

/// What was seen between one sample and the next.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub seconds: f64,
    /// Of all callers together, by the clock on the wall.
    pub gigaflops: f64,
    /// Switches a second.
    pub switches: f64,
    /// The most versions that were there at once.
    pub versions: u64,
}

pub struct Watch<'a> {
    pub crowd: &'a Crowd<'a>,
    pub progress: &'a Progress,
    pub ledger: &'a Ledger,
    pub bar: &'a ProgressBar,
}

impl Watch<'_> {
    /// Watches as long as `work` takes, which is about `time`.
    pub fn during<T>(&self, time: Duration, work: impl FnOnce() -> T) -> (T, Vec<Sample>) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| self.look(time, &is_over));
            let stop = Stop(&is_over, watcher.thread().clone());
            let result = work();
            drop(stop);
            // Without samples there is only less to draw.
            (result, watcher.join().unwrap_or_default())
        })
    }

    fn look(&self, time: Duration, is_over: &AtomicBool) -> Vec<Sample> {
        let begun = Instant::now();
        let distance = SHORTEST.max(time / MOST_SAMPLES);
        let mut samples = Vec::new();
        let mut before = (0.0, self.crowd.operations(), self.progress.switches());
        loop {
            thread::park_timeout(distance);
            if is_over.load(Ordering::Relaxed) {
                return samples;
            }
            let now = (begun.elapsed().as_secs_f64(), self.crowd.operations(), self.progress.switches());
            let seconds = now.0 - before.0;
            let sample = Sample {
                seconds: now.0,
                gigaflops: (now.1 - before.1) / seconds / 1e9,
                switches: (now.2 - before.2) as f64 / seconds,
                versions: self.ledger.take_recent_peak(),
            };
            samples.push(sample);
            before = now;
            self.show(&sample, begun.elapsed(), time, now.2);
        }
    }

    fn show(&self, sample: &Sample, elapsed: Duration, time: Duration, switches: u64) {
        self.bar.set_length(time.as_millis() as u64);
        self.bar.set_position(elapsed.min(time).as_millis() as u64);
        let Sample { gigaflops, versions, .. } = sample;
        self.bar.set_message(format!("{gigaflops:5.2} GFLOP/s, {versions} versions, {switches} switches"));
    }
}

/// Ends the watch, also when what is watched panics: the scope waits for it.
struct Stop<'a>(&'a AtomicBool, thread::Thread);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}
