//! What it costs to link an object, beginning with its bytes and ending with the address of a function in it; and to
//! remove it.
//!
//! `cargo bench --bench link -- [MODULES]` links so many instances (2,000 unless told otherwise) of a small and of a
//! medium object, each with names of its own, under a tracker of its own, all live at once in one dylib, then removes
//! them in random order; then replaces one of 100, 1,000 and 10,000 live ones again and again. Every function is called and
//! its result compared. Needs gcc. Allocations are counted in the same run, by this thread.
//!
//! `-- --check` measures no time, but fails if a link or a removal allocates more often than it is known to.

#[path = "../../tests/support/allocations.rs"]
mod allocations;
mod bed;
#[path = "../../tests/support/dice.rs"]
mod dice;
mod objects;

use std::time::{Duration, Instant};

use jittison::session::ResourceTracker;

use allocations::allocations;
use bed::{check, link, session};
use dice::Dice;
use objects::{Instance, Template};

fn main() {
    let modules = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2_000);
    let Some(objects) = objects::build() else {
        println!("gcc is needed to make objects; install it and try again");
        return;
    };
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
    let mut dice = Dice(7);
    while !live.is_empty() {
        let tracker = live.swap_remove(dice.roll(live.len()));
        removals.add(move || assert!(tracker.remove().unwrap().is_complete()));
    }
    let size = instances[0].bytes.len();
    links.print(&format!("{what}, {size} bytes: add and look up"));
    removals.print(&format!("{what}: remove, one of up to {modules}"));
}

/// Fails if a warm link or removal of a small object allocates more than it did when this was written. A link's: the
/// tracker, the object's name, the text of its symbols' names, and the memory's handle.
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
        // Some live ones, so that no table is made anew each time.
        if number < 100 {
            std::mem::forget(tracker);
            continue;
        }
        assert!(tracker.remove().unwrap().is_complete());
        counts[0].push(linked - before);
        counts[1].push(allocations() - before_removal);
    }
    for (what, known, mut counts) in [("link", LINK, counts[0].clone()), ("removal", REMOVAL, counts[1].clone())] {
        counts.sort_unstable();
        let median = counts[counts.len() / 2];
        println!("allocations of a {what}, the tracker included: {median} (at most {known})");
        assert!(median <= known, "more than {known}: {counts:?}");
    }
    println!("counts hold");
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
    let (mut figures, mut dice) = (Figures::default(), Dice(3));
    for _ in 0..operations {
        let (instance, place) = (next(), dice.roll(live));
        let removed = figures.add(|| {
            let (address, tracker) = link(&jit, dylib, &instance);
            check(address, &instance);
            std::mem::replace(&mut trackers[place], tracker).remove().unwrap()
        });
        assert!(removed.is_complete());
    }
    figures.print(&format!("small: link, call, remove another of {live}"));
}

/// Times and allocations of one operation, done many times.
#[derive(Default)]
struct Figures {
    times: Vec<Duration>,
    allocations: u64,
}

impl Figures {
    fn add<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let (before, start) = (allocations(), Instant::now());
        let result = operation();
        self.times.push(start.elapsed());
        self.allocations += allocations() - before;
        result
    }

    fn print(mut self, what: &str) {
        self.times.sort_unstable();
        let count = self.times.len();
        let mean = self.times.iter().sum::<Duration>() / count as u32;
        let [median, p99] = [count / 2, count * 99 / 100].map(|position| self.times[position]);
        let [median, p99, mean] = [median, p99, mean].map(|time| time.as_nanos() as f64 / 1e3);
        let allocations = self.allocations as f64 / count as f64;
        println!("{what:<44}{median:>9.2}{p99:>9.2}{mean:>9.2}{allocations:>9.1}");
    }
}
