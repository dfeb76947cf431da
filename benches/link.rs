//! Measures a link, from the bytes of an object to the address of a function in it, and its removal.
//!
//! `cargo bench --bench link -- [MODULES]` links this many instances (default: 2,000) of a small and of a medium object
//! into one dylib. Each has unique names and a tracker of its own. It removes them in random order. Then it replaces
//! one of 100, 1,000 and 10,000 live objects repeatedly. The result of each function is checked, and the heap
//! allocations of this thread are counted. Needs gcc.
//!
//! `-- --check` measures no time. It fails if a link or a removal makes more allocations than recorded here.

use std::time::Instant;

use jittison::session::ResourceTracker;

use fastrand::Rng;
use jittison_test_support::bench::bed::{check, link, session};
use jittison_test_support::bench::objects::{self, Instance, Template};
use jittison_test_support::bench::times::Times;
use jittison_test_support::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() {
    let modules = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2_000);
    let Some(objects) = objects::build() else { return };
    if std::env::args().any(|argument| argument == "--check") {
        return check_counts(&objects.runtime, &objects.small);
    }
    println!("{:<44}{:>9}{:>9}{:>9}{:>9}", "microseconds per operation", "median", "p99", "mean", "allocs");
    for _ in 0..3 {
        link_and_remove("small", &objects.runtime, &objects.small, modules);
    }
    link_and_remove("medium", &objects.runtime, &objects.medium, modules.min(200));
    for live in [100, 1_000, 10_000] {
        churn(&objects.runtime, &objects.small, live, 20_000);
    }
}

fn link_and_remove(what: &str, runtime: &[u8], template: &Template, modules: usize) {
    let jit = session(runtime);
    let dylib = jit.main_dylib();
    link(&jit, dylib, &template.instance(u32::MAX)).1.remove().unwrap();
    let instances: Vec<Instance> = (0..modules as u32).map(|number| template.instance(number)).collect();
    let mut links = Figures::default();
    let mut live: Vec<ResourceTracker> = Vec::with_capacity(modules);
    for instance in &instances {
        let (address, tracker) = links.add(|| link(&jit, dylib, instance));
        check(address, instance);
        live.push(tracker);
    }
    let mut removals = Figures::default();
    let mut rng = Rng::with_seed(7);
    while !live.is_empty() {
        let tracker = live.swap_remove(rng.usize(..live.len()));
        removals.add(move || assert!(tracker.remove().unwrap().is_complete()));
    }
    let size = instances[0].bytes.len();
    links.print(&format!("{what}, {size} bytes: add and look up"));
    removals.print(&format!("{what}: remove, one of up to {modules}"));
}

/// Fails if a warm link or a warm removal of a small object makes more than the expected allocations. A link has four:
/// the tracker, the name of the object, the text of its symbol names, and the handle of the memory.
fn check_counts(runtime: &[u8], template: &Template) {
    const LINK: u64 = 4;
    const REMOVAL: u64 = 0;
    let jit = session(runtime);
    let dylib = jit.main_dylib();
    let mut counts = [Vec::new(), Vec::new()];
    for number in 0..300 {
        let instance = template.instance(number);
        let before = allocations();
        let (address, tracker) = link(&jit, dylib, &instance);
        let linked = allocations();
        check(address, &instance);
        let before_removal = allocations();
        // The first 100 objects stay live, so that no table is created anew each time.
        if number < 100 {
            std::mem::forget(tracker);
            continue;
        }
        assert!(tracker.remove().unwrap().is_complete());
        counts[0].push(linked - before);
        counts[1].push(allocations() - before_removal);
    }
    for (what, expected, mut counts) in [("link", LINK, counts[0].clone()), ("removal", REMOVAL, counts[1].clone())] {
        counts.sort_unstable();
        let median = counts[counts.len() / 2];
        println!("allocations of a {what}, the tracker included: {median} (at most {expected})");
        assert!(median <= expected, "more than {expected}: {counts:?}");
    }
    println!("all counts hold");
}

fn churn(runtime: &[u8], template: &Template, live: usize, operations: usize) {
    let jit = session(runtime);
    let dylib = jit.main_dylib();
    let mut number = 0;
    let mut next = || {
        number += 1;
        template.instance(number)
    };
    let mut trackers: Vec<ResourceTracker> = (0..live).map(|_| link(&jit, dylib, &next()).1).collect();
    let (mut figures, mut rng) = (Figures::default(), Rng::with_seed(3));
    for _ in 0..operations {
        let (instance, index) = (next(), rng.usize(..live));
        let removed = figures.add(|| {
            let (address, tracker) = link(&jit, dylib, &instance);
            check(address, &instance);
            std::mem::replace(&mut trackers[index], tracker).remove().unwrap()
        });
        assert!(removed.is_complete());
    }
    figures.print(&format!("small: link, call, remove one of {live} others"));
}

/// The times and allocations of one operation that runs many times.
#[derive(Default)]
struct Figures {
    times: Times,
    allocations: u64,
}

impl Figures {
    fn add<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let (before, start) = (allocations(), Instant::now());
        let result = operation();
        self.times.record(start.elapsed());
        self.allocations += allocations() - before;
        result
    }

    fn print(&self, what: &str) {
        let allocations = self.allocations as f64 / self.times.count() as f64;
        println!("{what:<44}{}{allocations:>9.1}", self.times.columns());
    }
}
