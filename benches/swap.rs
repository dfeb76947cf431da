//! Measures the replacement of code while other threads call it: the time of a replacement, and the throughput of a
//! caller.
//!
//! A replacement links a small object, redirects a stub from the old object to it, and removes the old object.
//! `cargo bench --bench swap` measures:
//!
//! - redirecting a stub;
//! - replacements, while no thread calls and while a thread calls under guards;
//! - the removal of one of 1,000 and of 100,000 live modules;
//! - the throughput of a caller during a thousand replacements per second, compared with a caller alone.
//!
//! Needs gcc.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::session::{JitDylib, ResourceTracker};
use jittison::{Function, Jit, Stub};

use fastrand::Rng;
use jittison_test_support::bench::bed::{check, link, session};
use jittison_test_support::bench::objects::{self, Instance, Objects, Template};
use jittison_test_support::bench::times::Times;

type Run = extern "C" fn(u64) -> u64;

fn main() {
    let Some(objects) = objects::build() else { return };
    redirects(&objects);
    println!("\n{:<58}{:>9}{:>9}{:>9}", "microseconds per operation", "median", "p99", "mean");
    for _ in 0..3 {
        swaps("replace: link, redirect, remove", &objects, false);
    }
    swaps("    while a thread calls through the stub, under guards", &objects, true);
    for live in [1_000, 100_000] {
        removals(&objects.small, &objects.runtime, live);
    }
    callers(&objects);
}

/// A session with a stub whose target is a small object.
struct Scene<'a> {
    jit: Jit,
    dylib: JitDylib,
    stub: Stub,
    template: &'a Template,
    current: Option<ResourceTracker>,
    number: u32,
}

impl<'a> Scene<'a> {
    fn new(objects: &'a Objects) -> Scene<'a> {
        let jit = session(&objects.runtime);
        let dylib = jit.main_dylib().clone();
        let (address, first) = link(&jit, &dylib, &objects.small.instance(0));
        let stubs = dylib.create_tracker().unwrap();
        jit.create_stub(&stubs, "stub", address).unwrap();
        let stub = jit.stub(&dylib, "stub").unwrap();
        Scene { jit, dylib, stub, template: &objects.small, current: Some(first), number: 0 }
    }

    fn next(&mut self) -> Instance {
        self.number += 1;
        self.template.instance(self.number)
    }

    fn replace(&mut self, instance: &Instance) {
        let (address, new) = link(&self.jit, &self.dylib, instance);
        // SAFETY: the new function has the same signature. The old one is removed after this call.
        unsafe { self.stub.redirect(address) };
        let old = self.current.replace(new);
        old.into_iter().for_each(|old| drop(old.remove().unwrap()));
    }

    fn function(&self) -> Function<Run> {
        // SAFETY: the target of the stub has this signature.
        unsafe { self.jit.lookup("stub") }.unwrap()
    }
}

fn redirects(objects: &Objects) {
    const ROUND: u32 = 2_000_000;
    let scene = Scene::new(objects);
    let target = scene.dylib.lookup_address(&objects.small.instance(0).entry).unwrap();
    let mut rounds: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUND {
                // SAFETY: `target` is the current target of the stub.
                unsafe { scene.stub.redirect(black_box(target)) };
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("redirect a stub: {:.1} ns (min {:.1}, max {:.1})", rounds[7], rounds[0], rounds[14]);
}

fn swaps(what: &str, objects: &Objects, is_called: bool) {
    let mut scene = Scene::new(objects);
    let is_over = AtomicBool::new(false);
    let (function, jit) = (scene.function(), scene.jit.clone());
    let mut times = Times::default();
    thread::scope(|threads| {
        if is_called {
            threads.spawn(|| call_until(&is_over, &jit, &function, &AtomicU64::new(0)));
        }
        for _ in 0..20_000 {
            let instance = scene.next();
            times.time(|| scene.replace(&instance));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(jit.session().pending_removals().len(), 0);
    print(what, &times);
}

/// Calls the function until `is_over`. Each call has a guard of its own, and nothing else keeps the code.
fn call_until(is_over: &AtomicBool, jit: &Jit, function: &Function<Run>, calls: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            let _guard = jit.guard();
            black_box(function.call(7));
        }
        calls.fetch_add(64, Ordering::Relaxed);
    }
}

fn removals(template: &Template, runtime: &[u8], live: usize) {
    let jit = session(runtime);
    let dylib = jit.main_dylib();
    let mut number = 0;
    let mut next = || {
        number += 1;
        let instance = template.instance(number);
        let (address, tracker) = link(&jit, dylib, &instance);
        check(address, &instance);
        tracker
    };
    let mut trackers: Vec<_> = (0..live).map(|_| next()).collect();
    let (mut times, mut rng) = (Times::default(), Rng::with_seed(3));
    for _ in 0..10_000 {
        let old = std::mem::replace(&mut trackers[rng.usize(..live)], next());
        let removal = times.time(|| old.remove()).unwrap();
        assert!(removal.is_complete());
    }
    print(&format!("remove one of {live} live modules"), &times);
}

/// Measures the throughput of a caller, alternately alone and during a thousand replacements per second.
fn callers(objects: &Objects) {
    const ROUND_TIME: Duration = Duration::from_millis(400);
    const SWAP_INTERVAL: Duration = Duration::from_millis(1);
    let mut scene = Scene::new(objects);
    let (function, jit) = (scene.function(), scene.jit.clone());
    let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut ratios, mut swaps) = (Vec::new(), 0);
    thread::scope(|threads| {
        threads.spawn(|| call_until(&is_over, &jit, &function, &calls));
        for _ in 0..11 {
            let mut rates = [0.0; 2];
            for (is_swapping, rate) in rates.iter_mut().enumerate() {
                let (start, before) = (Instant::now(), calls.load(Ordering::Relaxed));
                let mut due = start;
                while start.elapsed() < ROUND_TIME {
                    due += SWAP_INTERVAL;
                    if is_swapping == 1 {
                        let instance = scene.next();
                        scene.replace(&instance);
                        swaps += 1;
                    }
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                *rate = (calls.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
            }
            ratios.push(rates[1] / rates[0]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    ratios.sort_by(f64::total_cmp);
    let per_second = f64::from(swaps) / (ROUND_TIME * 11).as_secs_f64();
    println!(
        "throughput of a caller during {per_second:.0} replacements per second, relative to a caller alone: {:.3} (min {:.3}, max {:.3})",
        ratios[5], ratios[0], ratios[10]
    );
}

fn print(what: &str, times: &Times) {
    println!("{what:<58}{}", times.columns());
}
