//! Measures the session without linking: lookups of ready symbols, trackers, removals and guards, on one and on two
//! threads.
//!
//! `cargo bench --bench session` prints medians with the minimum and maximum over 15 rounds. The figures of all rounds
//! are kept, so medians are exact. All symbols are absolute, so the figures are those of the session alone. Compare
//! figures of the same run only. To compare with ORC, alternate this program with a program for ORC.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    ExecutionSession, JitDylib, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};

fn main() {
    println!("{:<58}{:>10}{:>10}{:>10}", "nanoseconds per operation, over rounds", "median", "min", "max");
    for symbols in [100, 1_000, 10_000, 100_000] {
        lookups(symbols);
    }
    let session = ExecutionSession::new();
    let dylib = filled(&session, 100_000);
    report("create and remove an empty tracker", || {
        timed(50_000, |_| drop(dylib.create_tracker().unwrap().remove().unwrap()))
    });
    report("drop a tracker of 10 symbols, in a dylib with 100,000", || dropped_trackers(&dylib));
    report("remove the default tracker of 10 symbols, same dylib", || default_removals(&dylib));
    churn(&session);
    guards(&session);
}

/// Measures guards, and the alternatives that also keep code in memory during a call.
fn guards(session: &ExecutionSession) {
    one_and_two_threads("enter and leave a guard", 2_000_000, |_| timed(2_000_000, |_| drop(session.guard())));
    let outer = session.guard();
    report("enter and leave a guard inside another", || timed(2_000_000, |_| drop(session.guard())));
    drop(outer);
    one_and_two_threads("crossbeam-epoch: pin and unpin a local handle", 2_000_000, |_| {
        let collector = crossbeam::epoch::Collector::new();
        let handle = collector.register();
        timed(2_000_000, |_| drop(handle.pin()))
    });
    let held = Arc::new(());
    one_and_two_threads("clone and drop one Arc", 1_000_000, |_| timed(1_000_000, |_| drop(black_box(held.clone()))));
    let dylib = session.create_dylib("guarded").unwrap();
    let remove = |_| drop(dylib.create_tracker().unwrap().remove().unwrap());
    report("create and remove an empty tracker, guards used before", || timed(50_000, remove));
    let guard = session.guard();
    let held = Cell::new(0);
    report("create and remove an empty tracker inside a guard", || {
        held.set(held.get() + 1);
        timed(1_000, remove)
    });
    let start = Instant::now();
    drop(guard);
    let trackers = f64::from(held.get() * 1_000);
    print_row("    leave that guard, per tracker", vec![start.elapsed().as_secs_f64() * 1e9 / trackers; ROUNDS]);
}

fn lookups(symbols: usize) {
    let session = ExecutionSession::new();
    let dylib = filled(&session, symbols);
    let order = [(dylib.clone(), Visibility::All)];
    let names: Vec<String> = (0..1_000).map(|index| symbol_name(index * 7_919 % symbols)).collect();
    let address = |index: usize| {
        assert!(!session.lookup_address(&order, &names[index % names.len()]).unwrap().is_null());
    };
    let with_flags = |index: usize| {
        let requests = [SymbolRequest::required(&names[index % names.len()])];
        let found = session.lookup(&order, &requests, RequiredState::Ready).unwrap();
        assert!(!found[0].address.is_null());
    };
    one_and_two_threads(&format!("address of a ready symbol, one of {symbols}"), 1_000_000, |_| {
        timed(1_000_000, address)
    });
    one_and_two_threads(&format!("lookup of a ready symbol, one of {symbols}"), 400_000, |_| {
        timed(400_000, with_flags)
    });
}

/// Measures on one thread, then on two at the same time. Both measurements start new threads, and the batches are long,
/// because a new thread first fills its caches, also those of the allocator.
fn one_and_two_threads(what: &str, operations: usize, batch: impl Fn(usize) -> f64 + Sync) {
    let mut ratios = Vec::new();
    let mut both = || {
        let one = on_threads(1, operations, &batch);
        let two = on_threads(2, operations, &batch);
        ratios.push(one / two);
        (one, two)
    };
    both();
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| both()).collect();
    print_row(what, rounds.iter().map(|round| round.0).collect());
    print_row("    from two threads, per operation", rounds.iter().map(|round| round.1).collect());
    ratios.remove(0);
    ratios.sort_by(f64::total_cmp);
    let (median, min, max) = (ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    println!("{:<58}{median:>10.2}{min:>10.2}{max:>10.2}", "    throughput of two threads relative to one");
}

/// Measures define, look up and remove on one thread, then on two threads, each with a dylib of its own.
fn churn(session: &ExecutionSession) {
    const ROUND: usize = 200_000;
    let dylibs = [session.create_dylib("first").unwrap(), session.create_dylib("second").unwrap()];
    let round = |dylib: &JitDylib| {
        timed(ROUND, |index| {
            let tracker = dylib.create_tracker().unwrap();
            define(&tracker, "only", index..index + 1);
            dylib.lookup(&[SymbolRequest::required(&format!("only{index}"))], RequiredState::Ready).unwrap();
            tracker.remove().unwrap();
        })
    };
    one_and_two_threads("tracker, define, look up, remove; one dylib per thread", ROUND, |thread| {
        round(&dylibs[thread])
    });
}

fn dropped_trackers(dylib: &JitDylib) -> f64 {
    const TRACKERS: usize = 1_000;
    let trackers: Vec<ResourceTracker> = (0..TRACKERS)
        .map(|index| {
            let tracker = dylib.create_tracker().unwrap();
            define(&tracker, "dropped", index * 10..index * 10 + 10);
            tracker
        })
        .collect();
    let mut trackers = trackers.into_iter();
    let nanoseconds = timed(TRACKERS, |_| drop(trackers.next()));
    dylib.default_tracker().unwrap().remove().unwrap();
    nanoseconds
}

fn default_removals(dylib: &JitDylib) -> f64 {
    const ROUNDS: usize = 200;
    let mut total = 0.0;
    for _ in 0..ROUNDS {
        let tracker = dylib.default_tracker().unwrap();
        define(&tracker, "default", 0..10);
        total += timed(1, |_| drop(tracker.remove().unwrap()));
    }
    total / ROUNDS as f64
}

fn filled(session: &ExecutionSession, symbols: usize) -> JitDylib {
    let dylib = session.create_dylib("filled").unwrap();
    // The handle of this tracker is leaked: dropping it would merge its symbols into the default tracker.
    let tracker = dylib.create_tracker().unwrap();
    define(&tracker, "some_symbol_", 0..symbols);
    std::mem::forget(tracker);
    dylib
}

fn symbol_name(index: usize) -> String {
    format!("some_symbol_{index}")
}

fn define(tracker: &ResourceTracker, prefix: &str, numbers: std::ops::Range<usize>) {
    let symbol = |number: usize| {
        let address = ExecutorAddr::new(0x1000 + number as u64);
        (Name::from(format!("{prefix}{number}")), address, SymbolFlags::EXPORTED)
    };
    tracker.define_absolute(numbers.map(symbol)).unwrap();
}

/// Nanoseconds per operation, over one batch.
fn timed(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..operations).for_each(&mut operation);
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// Nanoseconds of wall time per operation, if each of `threads` threads does `operations`.
fn on_threads(threads: usize, operations: usize, batch: impl Fn(usize) -> f64 + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let batch = &batch;
            scope.spawn(move || batch(thread));
        }
    });
    start.elapsed().as_secs_f64() * 1e9 / (threads * operations) as f64
}

/// Runs rounds of a measurement, after one that does not count, and prints them.
fn report(what: &str, mut round: impl FnMut() -> f64) {
    round();
    print_row(what, (0..ROUNDS).map(|_| round()).collect());
}

fn print_row(what: &str, mut figures: Vec<f64>) {
    figures.sort_by(f64::total_cmp);
    let (median, min, max) = (figures[ROUNDS / 2], figures[0], figures[ROUNDS - 1]);
    println!("{what:<58}{median:>10.1}{min:>10.1}{max:>10.1}");
}

const ROUNDS: usize = 15;
