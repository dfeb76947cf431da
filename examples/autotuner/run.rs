//! The run: it tunes under load, calls the winners without protection for comparison, and removes everything.
//!
//! | phase | callers call | the tuner works |
//! |---|---|---|
//! | tuning | the stubs, under the mode's protection | on what they call |
//! | at rest | the same; the winners are behind the stubs | not at all |
//! | baseline | the winners, by plain pointers | not at all |
//! | busy baseline | the winners, by plain pointers | in another dylib, whose kernels nobody calls |

use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use jittison::{Error, Function, Jit, MemoryStatistics};

use crate::callers::{Callers, Protection};
use crate::hazard::{self, Unguarded};
use crate::histogram::Histogram;
use crate::ledger::Freed;
use crate::patched::{self, MAX_VERSIONS, Patched};
use crate::problem::{Kernel, KernelFn, Problem};
use crate::suite::Suite;
use crate::tuner::{Contest, NewChampion, Progress, Tuner};
use crate::watch::{Sample, Watch};
use crate::{Mode, Options};

/// The results of a run.
pub struct Summary {
    pub mode: Mode,
    pub callers: usize,
    pub compiler: String,
    pub seconds: f64,
    pub kernel_results: [KernelResult; 2],
    pub commits: u64,
    pub rollbacks: u64,
    /// By [`Defect::ALL`](crate::suite::Defect::ALL).
    pub rejected: [u64; 3],
    pub wrong: u64,
    pub latencies: Latencies,
    pub peak_versions: u64,
    /// How often linking waited because too many versions were held.
    pub waits: u64,
    pub freed: Freed,
    pub memory: Memory,
    /// What still holds memory after everything was removed.
    pub obstacles: Vec<String>,
    pub samples: Vec<Sample>,
    pub new_champions: Vec<NewChampion>,
}

/// The results of one kernel.
pub struct KernelResult {
    pub kernel: Kernel,
    pub variants: usize,
    pub best: String,
    pub first_gigaflops: f64,
    pub best_gigaflops: f64,
    /// Calls that callers made, and calls made to try versions.
    pub calls: u64,
    /// Calls that the kernels counted.
    pub counted: u64,
}

/// Latencies of the calls in each phase.
pub struct Latencies {
    pub tuning: Histogram,
    pub at_rest: Histogram,
    pub plain: Histogram,
    pub plain_busy: Histogram,
}

/// The linker's memory at three moments.
#[derive(Clone, Copy)]
pub struct Memory {
    pub start: MemoryStatistics,
    pub tuned: MemoryStatistics,
    pub end: MemoryStatistics,
}

fn to_text(error: Error) -> String {
    error.to_string()
}

/// Tunes, compares, and removes everything.
pub fn run(options: &Options, suite: &Suite, bar: &ProgressBar) -> Result<Summary, String> {
    let problems = Problem::all();
    let callers = Callers::new(usize::from(options.threads), &problems);
    let jit = patched::session().map_err(to_text)?;
    // Created before the first reading, so that it is part of all readings.
    let elsewhere = jit.create_dylib("elsewhere").map_err(to_text)?;
    let trials = jit.create_dylib("trials").map_err(to_text)?;
    let start = jit.memory_statistics();
    let phases = Phases { options, suite, jit: &jit, callers: &callers };

    let patched = Patched::new(&jit, [jit.main_dylib(), &trials], options.mode, suite, &problems).map_err(to_text)?;
    let tuned = phases.tune(&patched, bar)?;
    bar.set_message("the winners, by plain function pointers");
    let uncalled = Patched::new(&jit, [&elsewhere; 2], Mode::Patch, suite, &problems).map_err(to_text)?;
    let (plain, plain_busy) = phases.call_winners(&tuned, &patched, &uncalled)?;

    let kernel_results = phases.kernel_results(&tuned, &patched)?;
    let (waits, ledger, at_the_end) = (patched.waits(), patched.ledger.clone(), jit.memory_statistics());
    let mut obstacles = patched.clear().map_err(to_text)?;
    obstacles.extend(uncalled.clear().map_err(to_text)?);
    Ok(Summary {
        mode: options.mode,
        callers: usize::from(options.threads),
        compiler: suite.compiler.clone(),
        seconds: tuned.seconds,
        kernel_results,
        commits: tuned.commits,
        rollbacks: tuned.rollbacks,
        rejected: tuned.rejected,
        wrong: callers.wrong(),
        latencies: Latencies { tuning: tuned.tuning, at_rest: tuned.at_rest, plain, plain_busy },
        peak_versions: ledger.peak(),
        waits,
        freed: ledger.freed(),
        memory: Memory { start, tuned: at_the_end, end: jit.memory_statistics() },
        obstacles,
        samples: tuned.samples,
        new_champions: tuned.new_champions,
    })
}

/// What all phases share.
struct Phases<'a> {
    options: &'a Options,
    suite: &'a Suite,
    jit: &'a Jit,
    callers: &'a Callers<'a>,
}

/// The results of the tuning phases.
struct TuningResult {
    seconds: f64,
    contests: [Contest; 2],
    rejected: [u64; 3],
    commits: u64,
    rollbacks: u64,
    tuning: Histogram,
    at_rest: Histogram,
    samples: Vec<Sample>,
    new_champions: Vec<NewChampion>,
}

impl Phases<'_> {
    fn tune(&self, patched: &Patched<'_>, bar: &ProgressBar) -> Result<TuningResult, String> {
        let (callers, time) = (self.callers, self.options.time());
        let progress = Progress::default();
        let watch = Watch { callers, progress: &progress, ledger: &patched.ledger, bar };
        let stubs = patched.stubs().map_err(to_text)?;
        let protection = match self.options.mode {
            Mode::Patch | Mode::Reload | Mode::FreeAtOnce => Protection::Guard(self.jit),
            Mode::StopTheWorld => Protection::Lock(patched.stop_lock()),
            Mode::NeverFree => Protection::None,
        };
        let started = Instant::now();
        let mut tuner = Tuner::new(patched, self.suite, callers, &progress, time);
        let work = || watch.during(time, || tuner.run());
        // SAFETY: the stubs stay, and each mode keeps the versions behind them mapped during calls.
        let ((outcome, samples), tuning) = unsafe { callers.call_during(pointers(&stubs), protection, work) }?;
        outcome?;
        let seconds = started.elapsed().as_secs_f64();
        let pause = || thread::sleep(self.options.baseline_time());
        // SAFETY: as above.
        let ((), at_rest) = unsafe { callers.call_during(pointers(&stubs), protection, pause) }?;
        let (contests, rejected) = (tuner.contests, tuner.rejected);
        let ((commits, rollbacks), new_champions) = (progress.counts(), progress.new_champions());
        Ok(TuningResult { seconds, contests, rejected, commits, rollbacks, tuning, at_rest, samples, new_champions })
    }

    /// Both baselines: the tuner at rest, and the tuner at work on kernels that no caller reaches.
    fn call_winners(
        &self,
        tuned: &TuningResult,
        patched: &Patched<'_>,
        uncalled: &Patched<'_>,
    ) -> Result<(Histogram, Histogram), String> {
        let (callers, time) = (self.callers, self.options.baseline_time());
        let winner = |kernel: Kernel| {
            let variants = self.suite.variants(kernel);
            patched.link_uncommitted(&variants[tuned.contests[kernel.index()].champion])
        };
        let winners = [winner(Kernel::Gemm)?, winner(Kernel::Stencil)?];
        // SAFETY: the handles keep the versions mapped.
        let ((), plain) = unsafe { callers.call_during(pointers(&winners), Protection::None, || thread::sleep(time)) }?;
        let progress = Progress::default();
        let mut tuner = Tuner::new(uncalled, self.suite, callers, &progress, time);
        // SAFETY: as above.
        let (outcome, busy) = unsafe { callers.call_during(pointers(&winners), Protection::None, || tuner.run()) }?;
        outcome.map(|()| (plain, busy))
    }

    fn kernel_results(&self, tuned: &TuningResult, patched: &Patched<'_>) -> Result<[KernelResult; 2], String> {
        let counted = patched.counted().map_err(to_text)?;
        Ok(Kernel::ALL.map(|kernel| {
            let (contest, variants) = (&tuned.contests[kernel.index()], self.suite.variants(kernel));
            KernelResult {
                kernel,
                variants: variants.len(),
                best: variants[contest.champion].name.clone(),
                first_gigaflops: contest.gigaflops(0).unwrap_or(0.0),
                best_gigaflops: contest.gigaflops(contest.champion).unwrap_or(0.0),
                calls: self.callers.calls(kernel) + patched.tried(kernel),
                counted: counted[kernel.index()],
            }
        }))
    }
}

/// Frees versions while threads call them. It returns only if the process did not crash.
pub fn crash(options: &Options, suite: &Suite) -> Result<String, String> {
    let problems = Problem::all();
    let callers = Callers::new(usize::from(options.threads), &problems);
    let jit: Jit = patched::session().map_err(to_text)?;
    let kernel = |kernel: Kernel| Unguarded::new(&jit, &suite.variants(kernel)[0]).map_err(to_text);
    let mut kernels = [kernel(Kernel::Gemm)?, kernel(Kernel::Stencil)?];
    let stubs = [kernels[0].stub().map_err(to_text)?, kernels[1].stub().map_err(to_text)?];
    let work = || hazard::run(&mut kernels, &suite.variants, options.time());
    // SAFETY: none; see `hazard.rs`.
    let (switches, _) = unsafe { callers.call_during(stubs, Protection::None, work) }?;
    let (switches, wrong) = (switches.map_err(to_text)?, callers.wrong());
    Ok(format!("{switches} versions were freed under {} callers, {wrong} wrong answers, and no crash", options.threads))
}

fn pointers(functions: &[Function<KernelFn>; 2]) -> [KernelFn; 2] {
    // SAFETY: the receivers keep these functions, or guards, while they call; `call_during` requires it.
    functions.each_ref().map(|function| unsafe { function.as_ptr() })
}

impl Memory {
    /// Whether the linker's memory is as it was at the start.
    pub fn is_released(&self) -> bool {
        let held = |at: &MemoryStatistics| (at.allocations, at.live_bytes, at.reserved_bytes);
        held(&self.start) == held(&self.end)
    }
}

impl Summary {
    pub fn switches(&self) -> u64 {
        self.commits + self.rollbacks
    }

    /// Calls that were made and that no version counted.
    pub fn dropped(&self) -> u64 {
        self.kernel_results.iter().map(|result| result.calls.abs_diff(result.counted)).sum()
    }

    /// Descriptions of everything that went wrong.
    pub fn faults(&self) -> Vec<String> {
        let is_bounded = self.mode == Mode::NeverFree || self.peak_versions <= MAX_VERSIONS;
        let checks = [
            (self.wrong == 0, format!("{} wrong results", self.wrong)),
            (self.dropped() == 0, format!("{} dropped calls", self.dropped())),
            (self.switches() > 0, "no version was switched".to_owned()),
            (self.rejected.iter().all(|&count| count > 0), "not every kind of bad variant was tried".to_owned()),
            (is_bounded, format!("{} versions at once; the bound is {MAX_VERSIONS}", self.peak_versions)),
            (self.freed.failures.is_empty(), self.freed.failures.join("; ")),
            (self.obstacles.is_empty(), format!("still held after the end: {}", self.obstacles.join(", "))),
            (self.memory.is_released(), "the linker still holds memory".to_owned()),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }

    /// The time of each phase after the tuning.
    fn baseline_time(&self) -> Duration {
        (self.time() / 10).clamp(Duration::from_millis(500), Duration::from_secs(3))
    }
}
