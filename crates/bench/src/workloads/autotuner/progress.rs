//! [`Progress`]: what the tuner publishes to the callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::kernels::FUNCTIONS;

pub struct Progress {
    /// The number of the newest candidate. A version that a caller sees must not be newer.
    pub newest: AtomicU64,
    /// The time of each function's last commit, in nanoseconds since the start.
    commits: Vec<AtomicU64>,
    beginning: Instant,
}

impl Progress {
    pub fn new() -> Progress {
        let commits = (0..FUNCTIONS).map(|_| AtomicU64::new(0)).collect();
        Progress { newest: AtomicU64::new(0), commits, beginning: Instant::now() }
    }

    pub fn committed(&self, number: usize) {
        self.commits[number].store(self.now(), Ordering::Relaxed);
    }

    pub fn since_commit(&self, number: usize) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(self.commits[number].load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        self.beginning.elapsed().as_nanos() as u64
    }
}
