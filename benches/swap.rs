//! Replacing code under its callers: what a replacement costs, and what the callers feel of it.
//!
//! `cargo bench --bench swap` links a small object beside the one that a stub leads to, redirects, removes the old one, again and
//! again: with nobody calling, with guards in use, with a caller that never stops. Then a caller's throughput, alone and
//! beside a thousand replacements a second; and the removal of one of 1,000 and of 100,000 live modules. Needs gcc.

#[path = "link/bed.rs"]
mod bed;
#[path = "../tests/support/dice.rs"]
mod dice;
// It makes more than this needs.
#[allow(dead_code)]
#[path = "link/objects.rs"]
mod objects;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::session::{JitDylib, ResourceTracker};
use jittison::{Function, Jit, Stub};

use bed::{check, link, session};
use dice::Dice;
use objects::{Instance, Objects, Template};

type Run = extern "C" fn(u64) -> u64;

fn main() {
    let Some(objects) = objects::build() else {
        println!("gcc is needed to make objects; install it and try again");
        return;
    };
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

/// A session with a stub that leads to a small object.
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
        // SAFETY: of the same signature; the old one is removed after this.
        unsafe { self.stub.redirect(address) };
        let old = self.current.replace(new);
        old.into_iter().for_each(|old| drop(old.remove().unwrap()));
    }

    fn function(&self) -> Function<Run> {
        // SAFETY: the stub's signature.
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
                // SAFETY: where it leads already.
                unsafe { scene.stub.redirect(black_box(target)) };
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("redirect a stub: {:.1} ns (least {:.1}, most {:.1})", rounds[7], rounds[0], rounds[14]);
}

fn swaps(what: &str, objects: &Objects, is_called: bool) {
    let mut scene = Scene::new(objects);
    let is_over = AtomicBool::new(false);
    let (function, jit) = (scene.function(), scene.jit.clone());
    let mut times = Vec::new();
    thread::scope(|threads| {
        if is_called {
            threads.spawn(|| call_until(&is_over, &jit, &function, &AtomicU64::new(0)));
        }
        for _ in 0..20_000 {
            let instance = scene.next();
            let start = Instant::now();
            scene.replace(&instance);
            times.push(start.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(jit.session().pending_removals().len(), 0);
    print(what, times);
}

/// Each call under a guard of its own, which is all that holds the code.
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
    let (mut times, mut dice) = (Vec::new(), Dice(3));
    for _ in 0..10_000 {
        let old = std::mem::replace(&mut trackers[dice.roll(live)], next());
        let start = Instant::now();
        let removal = old.remove().unwrap();
        times.push(start.elapsed());
        assert!(removal.is_complete());
    }
    print(&format!("remove one of {live} live modules"), times);
}

/// A caller's throughput, alone and beside a thousand replacements a second, in turn.
fn callers(objects: &Objects) {
    const A_ROUND: Duration = Duration::from_millis(400);
    const A_SWAP: Duration = Duration::from_millis(1);
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
                while start.elapsed() < A_ROUND {
                    due += A_SWAP;
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
    let a_second = f64::from(swaps) / (A_ROUND * 11).as_secs_f64();
    println!(
        "a caller beside {a_second:.0} replacements a second, against alone: {:.3} (least {:.3}, most {:.3})",
        ratios[5], ratios[0], ratios[10]
    );
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let count = times.len();
    let mean = times.iter().sum::<Duration>() / count as u32;
    let [median, p99, mean] =
        [times[count / 2], times[count * 99 / 100], mean].map(|time| time.as_nanos() as f64 / 1e3);
    println!("{what:<58}{median:>9.2}{p99:>9.2}{mean:>9.2}");
}
