//! The run: warm-up, the measured stream, and the checks after it.
//!
//! The client threads live through both phases, so their stacks and allocator arenas exist before the first memory
//! reading. The main thread only watches: it samples memory and moves the progress bar.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::client::{Client, Phase, Workload};
use crate::measure::{Footprint, Latencies, Sample, Step, Timeline};

/// The interval between memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Warm-up queries per client.
const WARM_UP: u64 = 500;

/// The results of a run.
pub struct Summary {
    pub queries: u64,
    pub clients: usize,
    /// Queries that another thread removed, and those of them that were running at that time.
    pub evictions: (u64, u64),
    pub seconds: f64,
    pub latencies: Latencies,
    /// Latencies of queries 1 and 6 over the full table.
    pub full_table: [Latencies; 2],
    /// Bytes of linked machine code: at the start, at most, and at the end.
    pub code_start: u64,
    pub code_peak: u64,
    pub code_live: u64,
    /// Bytes in use by the linker's own count, at the start and at the end.
    pub linker_start: u64,
    pub linker_end: u64,
    pub start: Footprint,
    pub peak: Footprint,
    pub end: Footprint,
    pub timeline: Timeline,
}

impl Summary {
    /// Growth of resident memory that still counts as flat: 5 % or 4 MB.
    pub fn tolerance(&self) -> u64 {
        (self.start.resident / 20).max(4_000_000)
    }

    /// Descriptions of the memory that removed queries left behind.
    pub fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        let grown = self.end.resident.saturating_sub(self.start.resident);
        if grown > self.tolerance() {
            let allowed = self.tolerance();
            leaks.push(format!("resident memory grew by {grown} bytes; {allowed} are allowed"));
        }
        if self.end.mappings > self.start.mappings {
            let (start, end) = (self.start.mappings, self.end.mappings);
            leaks.push(format!("{start} mappings at the start became {end} at the end"));
        }
        if self.linker_end > self.linker_start {
            let leaked = self.linker_end - self.linker_start;
            leaks.push(format!("the linker still holds {leaked} bytes of removed queries"));
        }
        leaks
    }
}

/// Runs `queries` queries on `clients` threads.
pub fn run(workload: &Workload, queries: u64, clients: usize, bar: &ProgressBar) -> Result<Summary, String> {
    thread::scope(|scope| {
        // One client might take all queries of a phase.
        let capacity = queries.max(WARM_UP * clients as u64);
        let (reply, replies) = channel();
        let mut commands = Vec::with_capacity(clients);
        let mut handles = Vec::with_capacity(clients);
        for _ in 0..clients {
            let (command, phases) = channel();
            let reply = reply.clone();
            commands.push(command);
            handles.push(scope.spawn(move || run_client(workload, capacity, phases, reply)));
        }
        drop(reply);
        let mut watcher = Watcher {
            workload,
            commands: &commands,
            replies: &replies,
            bar,
            timeline: Timeline::new(),
            peak: Footprint::default(),
        };

        let warm_up = Phase { first: 0, count: WARM_UP * clients as u64 };
        bar.set_message("warming up");
        watcher.phase(warm_up)?;
        workload.code.reset_peak();
        watcher.timeline = Timeline::new();
        watcher.peak = Footprint::default();
        let code_start = workload.code.now();
        let linker_start = workload.engine.live_bytes();
        let start = Footprint::now();
        watcher.peak = start;

        bar.set_message("running");
        let started = Instant::now();
        watcher.phase(Phase { first: warm_up.count, count: queries })?;
        let seconds = started.elapsed().as_secs_f64();
        let end = Footprint::now();
        let linker_end = workload.engine.live_bytes();
        let (peak, timeline) = (watcher.peak.peak(end), watcher.timeline);
        // Clients end when the last sender of phases is dropped.
        drop(commands);

        let mut latencies = Latencies::with_capacity(0);
        let mut full_table = [Latencies::with_capacity(0), Latencies::with_capacity(0)];
        let (code_live, code_peak) = (workload.code.now(), workload.code.peak());
        for handle in handles {
            let measured = handle.join().map_err(|_| "a client thread panicked".to_owned())?;
            let Some((all, full)) = measured else { continue };
            latencies.merge(&all);
            for (sum, part) in full_table.iter_mut().zip(&full) {
                sum.merge(part);
            }
        }
        Ok(Summary {
            queries,
            clients,
            evictions: workload.engine.evictions(),
            seconds,
            latencies,
            full_table,
            code_start,
            code_peak,
            code_live,
            linker_start,
            linker_end,
            start,
            peak,
            end,
            timeline,
        })
    })
}

type Measured = (Latencies, [Latencies; 2]);

/// A client thread: it runs each phase that it receives, and sends one reply for each.
fn run_client(
    workload: &Workload,
    capacity: u64,
    phases: Receiver<Phase>,
    reply: Sender<Result<(), String>>,
) -> Option<Measured> {
    let mut client = match Client::new(workload, capacity as usize) {
        Ok(client) => client,
        Err(error) => {
            // If the run has ended, there is no receiver for the error.
            let _ = reply.send(Err(error));
            return None;
        }
    };
    while let Ok(phase) = phases.recv() {
        if reply.send(client.run(phase)).is_err() {
            break;
        }
    }
    Some((client.latencies, client.full_table))
}

/// Starts phases and watches them.
struct Watcher<'a> {
    workload: &'a Workload<'a>,
    commands: &'a [Sender<Phase>],
    replies: &'a Receiver<Result<(), String>>,
    bar: &'a ProgressBar,
    timeline: Timeline,
    peak: Footprint,
}

impl Watcher<'_> {
    fn phase(&mut self, phase: Phase) -> Result<(), String> {
        self.workload.taken.store(0, Ordering::Relaxed);
        self.workload.finished.store(0, Ordering::Relaxed);
        self.bar.set_length(phase.count);
        let started = Instant::now();
        for command in self.commands {
            // A client that could not start has sent its error as a reply.
            let _ = command.send(phase);
        }
        let mut running = self.commands.len();
        let mut first_error = Ok(());
        while running > 0 {
            match self.replies.recv_timeout(SAMPLE_INTERVAL) {
                Ok(reply) => {
                    running -= 1;
                    first_error = first_error.and(reply);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("a client thread ended early".to_owned());
                }
            }
            self.sample(started);
        }
        first_error
    }

    fn sample(&mut self, started: Instant) {
        let now = Footprint::now();
        self.peak = self.peak.peak(now);
        self.timeline.offer(Sample {
            seconds: started.elapsed().as_secs_f64(),
            code: self.workload.code.now(),
            resident: now.resident,
        });
        self.bar.set_position(self.workload.finished.load(Ordering::Relaxed));
    }
}

/// The percentiles that reports show.
pub fn percentiles(latencies: &mut Latencies, step: Step) -> Option<(f64, f64)> {
    Some((latencies.percentile(step, 50)?, latencies.percentile(step, 99)?))
}
