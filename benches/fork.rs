//! Measures how long a fork takes in the parent, for several sizes of code memory and for both fork policies.
//!
//! `cargo bench --bench fork` prints the median of 15 forks. All 15 times are kept, so the median is exact. Each child
//! ends immediately.

use std::time::Instant;

use jittison::base::SegmentKind;
use jittison::memory::{DualMapper, ForkPolicy, MemoryManager, SegmentPlan, SegmentRequest, SlabPool, SlabPoolOptions};

fn main() {
    for (name, fork_policy) in [("snapshot", ForkPolicy::Snapshot), ("share", ForkPolicy::Share)] {
        let memory = SlabPool::with_mapper(DualMapper { fork_policy }, SlabPoolOptions::default()).unwrap();
        let mut held = Vec::new();
        for mebibytes in [0usize, 1, 8, 64] {
            while held.len() < mebibytes {
                let code = SegmentRequest { size: 1 << 20, align: 16, zero_fill: 0 };
                let plan =
                    SegmentPlan { segments: [code, Default::default(), Default::default()], ..SegmentPlan::default() };
                let mut one = memory.allocate(&plan).unwrap();
                one.working(SegmentKind::Code).fill(0x90);
                held.push(one.finalize(Vec::new()).unwrap());
            }
            let mut milliseconds: Vec<f64> = (0..15).map(|_| fork_once()).collect();
            milliseconds.sort_by(f64::total_cmp);
            println!("{name:<10}{mebibytes:>4} MiB of code: {:8.3} ms in the parent", milliseconds[7]);
        }
    }
}

fn fork_once() -> f64 {
    let start = Instant::now();
    // SAFETY: the child only calls `_exit`, which is async-signal-safe.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `_exit` has no precondition.
        unsafe { libc::_exit(0) };
    }
    let took = start.elapsed().as_secs_f64() * 1e3;
    // SAFETY: `child` is a child of this process, and the status pointer may be null.
    let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(waited, child);
    took
}
