//! The run: tune under load, call the winners without any of it for comparison, and give everything back.
//!
//! | phase | callers call | the tuner works |
//! |---|---|---|
//! | tuning | the stubs, holding what the mode says | on what they call |
//! | at rest | the same; the winners are behind the stubs | not at all |
//! | baseline | the winners, by plain pointers | not at all |
//! | busy baseline | the winners, by plain pointers | in another dylib, whose kernels nobody calls |

use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use jittison::{Error, Function, Jit, MemoryStatistics};

use crate::callers::{Crowd, Holding};
use crate::hazard::{self, Unguarded};
use crate::histogram::Histogram;
use crate::ledger::Freed;
use crate::patched::{self, MOST_VERSIONS, Patched};
use crate::problem::{Kernel, KernelFn, Problem};
use crate::suite::Suite;
use crate::tuner::{Contest, Lead, Progress, Tuner};
use crate::watch::{Sample, Watch};
use crate::{Mode, Options};

/// What a run has measured.
pub struct Summary {
    pub mode: Mode,
    pub callers: usize,
    pub compiler: String,
    pub seconds: f64,
    pub standings: [Standing; 2],
    pub commits: u64,
    pub rollbacks: u64,
    /// By [`Defect::ALL`](crate::suite::Defect::ALL).
    pub rejected: [u64; 3],
    pub wrong: u64,
    pub latencies: Latencies,
    pub peak_versions: u64,
    /// How often linking had to wait because too many versions were held.
    pub waits: u64,
    pub freed: Freed,
    pub memory: Memory,
    /// Who holds something when everything was given up.
    pub obstacles: Vec<String>,
    pub samples: Vec<Sample>,
    pub leads: Vec<Lead>,
}

/// How one kernel came out.
pub struct Standing {
    pub kernel: Kernel,
    pub variants: usize,
    pub best: String,
    pub first_gigaflops: f64,
    pub best_gigaflops: f64,
    /// Calls that were made, by callers and to try versions.
    pub calls: u64,
    /// Calls that the kernels have counted.
    pub counted: u64,
}

/// Of calls in each phase.
pub struct Latencies {
    pub tuning: Histogram,
    pub at_rest: Histogram,
    pub plain: Histogram,
    pub plain_busy: Histogram,
}

/// What the linker holds.
#[derive(Clone, Copy)]
pub struct Memory {
    pub start: MemoryStatistics,
    pub tuned: MemoryStatistics,
    pub end: MemoryStatistics,
}

fn say(error: Error) -> String {
    error.to_string()
}

/// Tunes, compares and gives back.
pub fn run(options: &Options, suite: &Suite, bar: &ProgressBar) -> Result<Summary, String> {
    let problems = Problem::all();
    let crowd = Crowd::new(usize::from(options.threads), &problems);
    let jit = patched::session().map_err(say)?;
    // There before memory is looked at for the first time.
    let elsewhere = jit.create_dylib("elsewhere").map_err(say)?;
    let start = jit.memory_statistics();
    let scene = Scene { options, suite, jit: &jit, crowd: &crowd };

    let patched = Patched::new(&jit, jit.main_dylib(), options.mode, suite, &problems).map_err(say)?;
    let tuned = scene.tune(&patched, bar)?;
    bar.set_message("the winners, by plain function pointers");
    let aside = Patched::new(&jit, &elsewhere, Mode::Patch, suite, &problems).map_err(say)?;
    let (plain, plain_busy) = scene.call_winners(&tuned, &patched, &aside)?;

    let standings = scene.standings(&tuned, &patched)?;
    let (waits, ledger, at_the_end) = (patched.waits(), patched.ledger.clone(), jit.memory_statistics());
    let mut obstacles = patched.clear().map_err(say)?;
    obstacles.extend(aside.clear().map_err(say)?);
    Ok(Summary {
        mode: options.mode,
        callers: usize::from(options.threads),
        compiler: suite.compiler.clone(),
        seconds: tuned.seconds,
        standings,
        commits: tuned.commits,
        rollbacks: tuned.rollbacks,
        rejected: tuned.rejected,
        wrong: crowd.wrong(),
        latencies: Latencies { tuning: tuned.tuning, at_rest: tuned.at_rest, plain, plain_busy },
        peak_versions: ledger.peak(),
        waits,
        freed: ledger.freed(),
        memory: Memory { start, tuned: at_the_end, end: jit.memory_statistics() },
        obstacles,
        samples: tuned.samples,
        leads: tuned.leads,
    })
}

/// What all phases share.
struct Scene<'a> {
    options: &'a Options,
    suite: &'a Suite,
    jit: &'a Jit,
    crowd: &'a Crowd<'a>,
}

/// What came of the tuning.
struct Tuned {
    seconds: f64,
    contests: [Contest; 2],
    rejected: [u64; 3],
    commits: u64,
    rollbacks: u64,
    tuning: Histogram,
    at_rest: Histogram,
    samples: Vec<Sample>,
    leads: Vec<Lead>,
}

impl Scene<'_> {
    fn tune(&self, patched: &Patched<'_>, bar: &ProgressBar) -> Result<Tuned, String> {
        let (crowd, time) = (self.crowd, self.options.time());
        let progress = Progress::default();
        let watch = Watch { crowd, progress: &progress, ledger: &patched.ledger, bar };
        let stubs = patched.stubs().map_err(say)?;
        let holding = match self.options.mode {
            Mode::Patch | Mode::FreeAtOnce => Holding::Guard(self.jit),
            Mode::StopTheWorld => Holding::Lock(patched.world()),
            Mode::NeverFree => Holding::Nothing,
        };
        let begun = Instant::now();
        let mut tuner = Tuner::new(patched, self.suite, crowd, &progress, time);
        let work = || watch.during(time, || tuner.run());
        // SAFETY: the stubs stay, and each mode keeps the versions behind them in its way.
        let ((outcome, samples), tuning) = unsafe { crowd.call_during(pointers(&stubs), holding, work) }?;
        outcome?;
        let seconds = begun.elapsed().as_secs_f64();
        let pause = || thread::sleep(self.options.baseline_time());
        // SAFETY: as above.
        let ((), at_rest) = unsafe { crowd.call_during(pointers(&stubs), holding, pause) }?;
        let (contests, rejected) = (tuner.contests, tuner.rejected);
        let ((commits, rollbacks), leads) = (progress.counts(), progress.leads());
        Ok(Tuned { seconds, contests, rejected, commits, rollbacks, tuning, at_rest, samples, leads })
    }

    /// Both baselines: with the tuner at rest, and with the tuner at work where nobody calls.
    fn call_winners(
        &self,
        tuned: &Tuned,
        patched: &Patched<'_>,
        aside: &Patched<'_>,
    ) -> Result<(Histogram, Histogram), String> {
        let (crowd, time) = (self.crowd, self.options.baseline_time());
        let winner = |kernel: Kernel| {
            let variants = self.suite.variants(kernel);
            patched.link_beside(&variants[tuned.contests[kernel.index()].champion])
        };
        let winners = [winner(Kernel::Gemm)?, winner(Kernel::Stencil)?];
        // SAFETY: the handles hold the versions themselves.
        let ((), plain) = unsafe { crowd.call_during(pointers(&winners), Holding::Nothing, || thread::sleep(time)) }?;
        let progress = Progress::default();
        let mut tuner = Tuner::new(aside, self.suite, crowd, &progress, time);
        // SAFETY: as above.
        let (outcome, busy) = unsafe { crowd.call_during(pointers(&winners), Holding::Nothing, || tuner.run()) }?;
        outcome.map(|()| (plain, busy))
    }

    fn standings(&self, tuned: &Tuned, patched: &Patched<'_>) -> Result<[Standing; 2], String> {
        let counted = patched.counted().map_err(say)?;
        Ok(Kernel::ALL.map(|kernel| {
            let (contest, variants) = (&tuned.contests[kernel.index()], self.suite.variants(kernel));
            Standing {
                kernel,
                variants: variants.len(),
                best: variants[contest.champion].name.clone(),
                first_gigaflops: contest.gigaflops(0).unwrap_or(0.0),
                best_gigaflops: contest.gigaflops(contest.champion).unwrap_or(0.0),
                calls: self.crowd.calls(kernel) + patched.tried(kernel),
                counted: counted[kernel.index()],
            }
        }))
    }
}

/// Frees versions while they are called. Returns only if nothing came of it.
pub fn crash(options: &Options, suite: &Suite) -> Result<String, String> {
    let problems = Problem::all();
    let crowd = Crowd::new(usize::from(options.threads), &problems);
    let jit: Jit = patched::session().map_err(say)?;
    let kernel = |kernel: Kernel| Unguarded::new(&jit, &suite.variants(kernel)[0]).map_err(say);
    let mut kernels = [kernel(Kernel::Gemm)?, kernel(Kernel::Stencil)?];
    let stubs = [kernels[0].stub().map_err(say)?, kernels[1].stub().map_err(say)?];
    let work = || hazard::run(&mut kernels, &suite.variants, options.time());
    // SAFETY: none; see `hazard.rs`.
    let (switches, _) = unsafe { crowd.call_during(stubs, Holding::Nothing, work) }?;
    let (switches, wrong) = (switches.map_err(say)?, crowd.wrong());
    Ok(format!("{switches} versions were freed under {} callers, {wrong} wrong answers, and no crash", options.threads))
}

fn pointers(functions: &[Function<KernelFn>; 2]) -> [KernelFn; 2] {
    // SAFETY: those who are given the pointers hold these functions, or guards, while they call: `call_during` asks for it.
    functions.each_ref().map(|function| unsafe { function.as_ptr() })
}

impl Memory {
    /// Whether everything was given back.
    pub fn is_back(&self) -> bool {
        let held = |at: &MemoryStatistics| (at.allocations, at.live_bytes, at.reserved_bytes);
        held(&self.start) == held(&self.end)
    }
}

impl Summary {
    pub fn switches(&self) -> u64 {
        self.commits + self.rollbacks
    }

    /// Calls that were made and did not arrive in any version.
    pub fn dropped(&self) -> u64 {
        self.standings.iter().map(|standing| standing.calls.abs_diff(standing.counted)).sum()
    }

    /// What must not be, in words.
    pub fn faults(&self) -> Vec<String> {
        let is_bounded = self.mode == Mode::NeverFree || self.peak_versions <= MOST_VERSIONS;
        let checks = [
            (self.wrong == 0, format!("{} wrong results", self.wrong)),
            (self.dropped() == 0, format!("{} dropped calls", self.dropped())),
            (self.switches() > 0, "nothing was switched".to_owned()),
            (self.rejected.iter().all(|&count| count > 0), "not every kind of bad variant was tried".to_owned()),
            (is_bounded, format!("{} versions at once, where {MOST_VERSIONS} are allowed", self.peak_versions)),
            (self.freed.failures.is_empty(), self.freed.failures.join("; ")),
            (self.obstacles.is_empty(), format!("held after the end: {}", self.obstacles.join(", "))),
            (self.memory.is_back(), "the linker still holds memory".to_owned()),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }
}

impl Options {
    fn time(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }

    /// Of each phase after the tuning.
    fn baseline_time(&self) -> Duration {
        (self.time() / 10).clamp(Duration::from_millis(500), Duration::from_secs(3))
    }
}
