//! The tuner: one thread that has variants compete under load.
//!
//! ```text
//!   champion is called ── link challenger, try it ──► commit ── measure ──┬─ faster: it stays, and is the champion
//!                                 │                                       └─ not:    rollback, measure the champion again
//!                                 └─ rejected: nobody has seen it
//! ```
//!
//! In a round every variant of both kernels challenges once, and one kernel's bad variants are thrown in. After each
//! round callers are left in peace for a while. What was measured adds up from round to round, so the order of variants settles
//! although a single window is short.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::callers::{Crowd, Timing};
use crate::ledger::lock;
use crate::patched::{Linked, Patched};
use crate::problem::Kernel;
use crate::suite::{Suite, Variant};

/// Calls that began before a switch may end in this time.
const SETTLING: Duration = Duration::from_micros(150);
const WINDOW: Duration = Duration::from_micros(1_000);
const PEACE: Duration = Duration::from_millis(50);
/// By how much a challenger has to be faster.
const MARGIN: f64 = 1.02;

/// What others may look at while the tuner is at work.
#[derive(Default)]
pub struct Progress {
    commits: AtomicU64,
    rollbacks: AtomicU64,
    /// New champions.
    leads: Mutex<Vec<Lead>>,
}

/// When a variant became champion.
#[derive(Clone)]
pub struct Lead {
    pub seconds: f64,
    pub kernel: Kernel,
    pub variant: usize,
}

/// How the variants of one kernel stand.
pub struct Contest {
    kernel: Kernel,
    scores: Vec<Timing>,
    pub champion: usize,
}

pub struct Tuner<'a> {
    patched: &'a Patched<'a>,
    suite: &'a Suite,
    crowd: &'a Crowd<'a>,
    progress: &'a Progress,
    begun: Instant,
    deadline: Instant,
    pub contests: [Contest; 2],
    /// By [`Defect::ALL`].
    pub rejected: [u64; 3],
}

impl<'a> Tuner<'a> {
    pub fn new(
        patched: &'a Patched<'a>,
        suite: &'a Suite,
        crowd: &'a Crowd<'a>,
        progress: &'a Progress,
        time: Duration,
    ) -> Tuner<'a> {
        let contest = |kernel| {
            let scores = suite.variants(kernel).iter().map(|_| Timing::default()).collect();
            Contest { kernel, scores, champion: 0 }
        };
        let begun = Instant::now();
        let contests = Kernel::ALL.map(contest);
        Tuner { patched, suite, crowd, progress, begun, deadline: begun + time, contests, rejected: [0; 3] }
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
                self.throw_in_bad_ones(kernel)?;
            }
            thread::sleep(PEACE.min(self.deadline.saturating_duration_since(Instant::now())));
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
        let failed = |error: jittison::Error| format!("{} `{}`: {error}", kernel.name(), variant.name);
        let prepared = match self.patched.link(variant)? {
            Linked::Ready(prepared) => prepared,
            Linked::Rejected(defect) => return Err(unexpected(variant, &format!("was rejected: {}", defect.name()))),
        };
        self.patched.commit(prepared).map_err(failed)?;
        self.progress.commits.fetch_add(1, Ordering::Relaxed);
        self.measure(kernel, challenger);
        let contest = &mut self.contests[kernel.index()];
        if contest.is_beaten_by(challenger) {
            contest.champion = challenger;
            let seconds = self.begun.elapsed().as_secs_f64();
            lock(&self.progress.leads).push(Lead { seconds, kernel, variant: challenger });
            return Ok(());
        }
        let champion = contest.champion;
        self.patched.rollback().map_err(failed)?;
        self.progress.rollbacks.fetch_add(1, Ordering::Relaxed);
        self.measure(kernel, champion);
        Ok(())
    }

    /// Adds what callers do in a short while to the score of the variant that they are led to.
    fn measure(&mut self, kernel: Kernel, variant: usize) {
        thread::sleep(SETTLING);
        let before = self.crowd.timing(kernel);
        thread::sleep(WINDOW);
        let after = self.crowd.timing(kernel);
        self.contests[kernel.index()].scores[variant].add(after.since(before));
    }

    fn throw_in_bad_ones(&mut self, kernel: Kernel) -> Result<(), String> {
        for (expected, variant) in &self.suite.bad[kernel.index()] {
            match self.patched.link(variant)? {
                Linked::Rejected(defect) if defect == *expected => self.rejected[defect as usize] += 1,
                Linked::Rejected(other) => {
                    return Err(unexpected(variant, &format!("was taken for: {}", other.name())));
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
    /// Commits and rollbacks.
    pub fn counts(&self) -> (u64, u64) {
        (self.commits.load(Ordering::Relaxed), self.rollbacks.load(Ordering::Relaxed))
    }

    pub fn leads(&self) -> Vec<Lead> {
        lock(&self.leads).clone()
    }

    pub fn switches(&self) -> u64 {
        let (commits, rollbacks) = self.counts();
        commits + rollbacks
    }
}
