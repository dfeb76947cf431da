//! Times of calls on one thread while another one reloads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Versions;
use crate::tools::Jittison;

/// Measures calls without reloads, then with one every five milliseconds, and prints both.
pub fn measure(versions: &Versions) {
    let jittison = Jittison::start(versions);
    println!("calls of a function that is reloaded, from the outside, in ns; the clock is part of each");
    println!("{:<40} {:>9} {:>9} {:>9} {:>9}", "", "median", "p99.9", "p99.99", "slowest");
    for round in 1..=3 {
        report(&format!("no reload, round {round}"), times_of_calls(&jittison, || std::thread::sleep(PAUSE)));
        let mut number = 1;
        let reloads = || {
            number += 1;
            jittison.replace(&versions.object(number));
            std::thread::sleep(PAUSE);
        };
        report(&format!("a reload each {PAUSE:?}, round {round}"), times_of_calls(&jittison, reloads));
    }
}

/// Calls `step` on another thread for a while, and `meanwhile` on this one. Returns nanoseconds, sorted.
fn times_of_calls(jittison: &Jittison, mut meanwhile: impl FnMut()) -> Vec<u32> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut times = Vec::with_capacity(1 << 26);
            while !is_over.load(Ordering::Relaxed) && times.len() < times.capacity() {
                let begin = Instant::now();
                let result = jittison.step.call(0);
                times.push(begin.elapsed().as_nanos() as u32);
                assert!(result == 1 || result == 2);
            }
            times
        });
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            meanwhile();
        }
        is_over.store(true, Ordering::Relaxed);
        let mut times = caller.join().expect("calls do not panic");
        times.sort_unstable();
        times
    })
}

fn report(what: &str, times: Vec<u32>) {
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!("{what:<40} {:>9} {:>9} {:>9} {:>9}", at(0.5), at(0.999), at(0.9999), at(1.0));
}

const PAUSE: Duration = Duration::from_millis(5);
