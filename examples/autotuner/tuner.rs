//! The tuner: one thread that makes variants compete under load.
//!
//! ```text
//!   champion is called ── link challenger, try it ──► commit ── measure ──┬─ faster: it becomes the champion
//!                                 │                                       └─ not:    rollback, measure the champion again
//!                                 └─ rejected: no caller reached it
//! ```
//!
//! In a round every variant of both kernels challenges once, and the bad variants of one kernel are tried. After each
//! round the tuner pauses. Measurements add up over all rounds, so the order of variants becomes stable although one
//! window is short.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::callers::{Callers, Timing};
use crate::ledger::lock;
use crate::patched::{Linked, Patched};
use crate::problem::Kernel;
use crate::suite::{Suite, Variant};

/// Calls that began before a switch end in this time.
const SETTLE_TIME: Duration = Duration::from_micros(150);
const WINDOW: Duration = Duration::from_micros(1_000);
const PAUSE: Duration = Duration::from_millis(50);
/// A challenger must be faster by this factor.
const MARGIN: f64 = 1.02;

/// What other threads may read while the tuner works.
#[derive(Default)]
pub struct Progress {
    commits: AtomicU64,
    rollbacks: AtomicU64,
    /// New champions.
    new_champions: Mutex<Vec<NewChampion>>,
}

/// A variant became champion.
#[derive(Clone)]
pub struct NewChampion {
    pub seconds: f64,
    pub kernel: Kernel,
}

/// The scores of one kernel's variants.
pub struct Contest {
    kernel: Kernel,
    scores: Vec<Timing>,
    pub champion: usize,
}

pub struct Tuner<'a> {
    patched: &'a Patched<'a>,
    suite: &'a Suite,
    callers: &'a Callers<'a>,
    progress: &'a Progress,
    started: Instant,
    deadline: Instant,
    pub contests: [Contest; 2],
    /// By [`Defect::ALL`].
    pub rejected: [u64; 3],
}

impl<'a> Tuner<'a> {
    pub fn new(
        patched: &'a Patched<'a>,
        suite: &'a Suite,
        callers: &'a Callers<'a>,
        progress: &'a Progress,
        time: Duration,
    ) -> Tuner<'a> {
        let contest = |kernel| {
            let scores = suite.variants(kernel).iter().map(|_| Timing::default()).collect();
            Contest { kernel, scores, champion: 0 }
        };
        let started = Instant::now();
        let contests = Kernel::ALL.map(contest);
        Tuner { patched, suite, callers, progress, started, deadline: started + time, contests, rejected: [0; 3] }
    }

    /// Tunes until the time is over.
    pub fn run(&mut self) -> Result<(), String> {
        for kernel in Kernel::ALL {
            self.measure(kernel, 0);
        }
        let mut bad = Kernel::ALL.into_iter().cycle();
        while !self.is_over() {
            self.round()?;
            if let Some(kernel) = bad.next() {
                self.try_bad_variants(kernel)?;
            }
            thread::sleep(PAUSE.min(self.deadline.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn round(&mut self) -> Result<(), String> {
        let longest = self.contests.iter().map(|contest| contest.scores.len()).max().unwrap_or(0);
        for variant in 0..longest {
            for kernel in Kernel::ALL {
                let contest = &self.contests[kernel.index()];
                if variant != contest.champion && variant < contest.scores.len() && !self.is_over() {
                    self.challenge(kernel, variant)?;
                }
            }
        }
        Ok(())
    }

    fn challenge(&mut self, kernel: Kernel, challenger: usize) -> Result<(), String> {
        let variant = &self.suite.variants(kernel)[challenger];
        let describe = |error: jittison::Error| format!("{} `{}`: {error}", kernel.name(), variant.name);
        let prepared = match self.patched.link(variant)? {
            Linked::Ready(prepared) => *prepared,
            Linked::Rejected(defect) => return Err(unexpected(variant, &format!("was rejected: {}", defect.name()))),
        };
        self.patched.commit(prepared).map_err(describe)?;
        self.progress.commits.fetch_add(1, Ordering::Relaxed);
        self.measure(kernel, challenger);
        let contest = &mut self.contests[kernel.index()];
        if contest.is_beaten_by(challenger) {
            contest.champion = challenger;
            let seconds = self.started.elapsed().as_secs_f64();
            lock(&self.progress.new_champions).push(NewChampion { seconds, kernel });
            return Ok(());
        }
        let champion = contest.champion;
        self.patched.rollback().map_err(describe)?;
        self.progress.rollbacks.fetch_add(1, Ordering::Relaxed);
        self.measure(kernel, champion);
        Ok(())
    }

    /// Adds the calls of a short window to the score of the variant that callers reach.
    fn measure(&mut self, kernel: Kernel, variant: usize) {
        thread::sleep(SETTLE_TIME);
        let before = self.callers.timing(kernel);
        thread::sleep(WINDOW);
        let after = self.callers.timing(kernel);
        self.contests[kernel.index()].scores[variant].add(after.since(before));
    }

    fn try_bad_variants(&mut self, kernel: Kernel) -> Result<(), String> {
        for (expected, variant) in &self.suite.bad[kernel.index()] {
            match self.patched.link(variant)? {
                Linked::Rejected(defect) if defect == *expected => self.rejected[defect as usize] += 1,
                Linked::Rejected(other) => {
                    return Err(unexpected(variant, &format!("was rejected for another reason: {}", other.name())));
                }
                Linked::Ready(_) => return Err(unexpected(variant, "was not rejected")),
            }
        }
        Ok(())
    }
}

fn unexpected(variant: &Variant, what: &str) -> String {
    format!("{} variant `{}` {what}", variant.kernel.name(), variant.name)
}

impl Contest {
    fn is_beaten_by(&self, challenger: usize) -> bool {
        match (self.gigaflops(challenger), self.gigaflops(self.champion)) {
            (Some(challenger), Some(champion)) => challenger > champion * MARGIN,
            _ => false,
        }
    }

    pub fn gigaflops(&self, variant: usize) -> Option<f64> {
        self.scores[variant].gigaflops(self.kernel)
    }
}

impl Progress {
    /// The numbers of commits and of rollbacks.
    pub fn counts(&self) -> (u64, u64) {
        (self.commits.load(Ordering::Relaxed), self.rollbacks.load(Ordering::Relaxed))
    }

    pub fn new_champions(&self) -> Vec<NewChampion> {
        lock(&self.new_champions).clone()
    }

    pub fn switches(&self) -> u64 {
        let (commits, rollbacks) = self.counts();
        commits + rollbacks
    }
}
