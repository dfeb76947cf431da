//! Measurements: latencies, live code and the memory of this process.
//!
//! Everything that grows with the number of queries is allocated and touched in advance, so measuring does not look
//! like a leak. The memory readings come from `/proc`; on systems without it they are zero.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The four steps in the life of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Compile,
    Link,
    Run,
    Remove,
}

impl Step {
    pub const ALL: [Step; 4] = [Step::Compile, Step::Link, Step::Run, Step::Remove];

    pub fn name(self) -> &'static str {
        match self {
            Step::Compile => "compile",
            Step::Link => "link",
            Step::Run => "run",
            Step::Remove => "remove",
        }
    }
}

/// The latencies of every step, in nanoseconds.
pub struct Latencies {
    steps: [Vec<u64>; 4],
}

impl Latencies {
    /// Allocates space for `queries` latencies of each step.
    pub fn with_capacity(queries: usize) -> Latencies {
        let steps = std::array::from_fn(|_| {
            // Written, not only reserved, so that the pages are resident.
            let mut samples = vec![u64::MAX; queries];
            samples.clear();
            samples
        });
        Latencies { steps }
    }

    pub fn clear(&mut self) {
        self.steps.iter_mut().for_each(Vec::clear);
    }

    /// Runs one step and records its latency.
    pub fn time<T>(&mut self, step: Step, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.record(step, started.elapsed());
        result
    }

    pub fn record(&mut self, step: Step, duration: Duration) {
        self.steps[step as usize].push(duration.as_nanos() as u64);
    }

    /// Adds the samples of another client.
    pub fn merge(&mut self, other: &Latencies) {
        for (all, some) in self.steps.iter_mut().zip(&other.steps) {
            all.extend_from_slice(some);
        }
    }

    /// The value below which `percent` of a step's samples lie, in microseconds; `None` without samples.
    pub fn percentile(&mut self, step: Step, percent: usize) -> Option<f64> {
        let samples = &mut self.steps[step as usize];
        if samples.is_empty() {
            return None;
        }
        let index = (samples.len() * percent / 100).min(samples.len() - 1);
        let (_, value, _) = samples.select_nth_unstable(index);
        Some(*value as f64 / 1_000.0)
    }
}

/// A number of bytes that goes up and down, and its maximum.
#[derive(Default)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    // The counters order no other memory, so relaxed ordering is enough.
    pub fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub fn subtract(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Resets the peak to the current value.
    pub fn reset_peak(&self) {
        self.peak.store(self.now(), Ordering::Relaxed);
    }
}

/// The memory of this process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Bytes of resident memory.
    pub resident: u64,
    /// Lines in the list of mappings.
    pub mappings: u64,
}

impl Footprint {
    pub fn now() -> Footprint {
        Footprint { resident: resident(), mappings: mappings() }
    }

    /// The larger of both, for each field.
    pub fn peak(self, other: Footprint) -> Footprint {
        Footprint { resident: self.resident.max(other.resident), mappings: self.mappings.max(other.mappings) }
    }
}

fn resident() -> u64 {
    let mut buffer = [0; 8192];
    let length = File::open("/proc/self/status").and_then(|mut file| file.read(&mut buffer)).unwrap_or(0);
    let status = std::str::from_utf8(&buffer[..length]).unwrap_or("");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next());
    kibibytes.and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn mappings() -> u64 {
    let Ok(mut file) = File::open("/proc/self/maps") else {
        return 0;
    };
    let mut buffer = [0; 16 * 1024];
    let mut lines = 0;
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        lines += buffer[..length].iter().filter(|&&byte| byte == b'\n').count() as u64;
    }
    lines
}

/// Live code and resident memory at one moment of the run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub seconds: f64,
    pub code: u64,
    pub resident: u64,
}

/// Samples over the full run, at even intervals, up to a fixed number.
pub struct Timeline {
    samples: Vec<Sample>,
    /// One offered sample in this many is stored.
    stride: usize,
    offered: usize,
}

const MAX_SAMPLES: usize = 2_000;

impl Timeline {
    pub fn new() -> Timeline {
        Timeline { samples: Vec::with_capacity(MAX_SAMPLES), stride: 1, offered: 0 }
    }

    pub fn offer(&mut self, sample: Sample) {
        if self.offered.is_multiple_of(self.stride) {
            if self.samples.len() == MAX_SAMPLES {
                // Drop every second sample, and halve the rate from here on.
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            self.samples.push(sample);
        }
        self.offered += 1;
    }

    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}
