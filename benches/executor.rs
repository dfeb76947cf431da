//! What another process costs: links, calls and the start of an executor, beside the same in this process.
//!
//! ```text
//! cargo bench --all-features --bench executor
//! ```
//!
//! Each figure is the median of its rounds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jittison::executor::ExecutorProcess;
use jittison::{Jit, JitDylib};

/// `long sum(long a, long b)`, and a function that does nothing.
const OBJECT: &[u8] = include_bytes!("../docs/examples/add.o");

fn main() {
    let start = |rounds| {
        let times = (0..rounds).map(|_| {
            let begin = Instant::now();
            let executor = start_executor();
            let jit = Jit::builder().executor(&executor).build().unwrap();
            let tracker = jit.main_dylib().create_tracker().unwrap();
            jit.add_object(&tracker, "add.o", OBJECT).unwrap();
            assert_eq!(jit.remote_function(jit.main_dylib(), "add").unwrap().call(&[2, 3]).unwrap() as u32, 5);
            begin.elapsed()
        });
        median(times.collect())
    };
    report("start of an executor, to the result of the first call", start(50), 1);

    let executor = start_executor();
    for (jit, place) in [(Jit::new().unwrap(), "in process"), (remote(&executor), "executor")] {
        let dylib = jit.main_dylib();
        let one = || {
            let tracker = dylib.create_tracker().unwrap();
            jit.add_object(&tracker, "add.o", OBJECT).unwrap();
            find(&jit, dylib, "add");
            assert!(tracker.remove().unwrap().is_complete());
        };
        (0..1000).for_each(|_| one());
        report(
            &format!("{place}: add, look up and remove a small module"),
            rounds(200, || (0..50).for_each(|_| one())),
            50,
        );

        let dylibs: Vec<JitDylib> = (0..1000).map(|number| jit.create_dylib(&format!("{number}")).unwrap()).collect();
        let batch = || {
            let trackers: Vec<_> = dylibs
                .iter()
                .map(|dylib| {
                    let tracker = dylib.create_tracker().unwrap();
                    jit.add_object(&tracker, "add.o", OBJECT).unwrap();
                    tracker
                })
                .collect();
            dylibs.iter().for_each(|dylib| find(&jit, dylib, "add"));
            trackers.iter().for_each(|tracker| assert!(tracker.remove().unwrap().is_complete()));
        };
        batch();
        report(&format!("{place}: 1,000 small modules together, each"), rounds(20, batch), 1000);
    }

    let jit = remote(&executor);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&tracker, "add.o", OBJECT).unwrap();
    let add = jit.remote_function(jit.main_dylib(), "add").unwrap();
    let call = || assert_eq!(add.call(&[1, 2]).unwrap() as u32, 3);
    (0..1000).for_each(|_| call());
    report("call there and back", rounds(200, || (0..100).for_each(|_| call())), 100);
}

fn start_executor() -> ExecutorProcess {
    // Cargo gives a benchmark the path of this binary.
    ExecutorProcess::start(PathBuf::from(env!("CARGO_BIN_EXE_jittison-executor"))).unwrap()
}

fn remote(executor: &ExecutorProcess) -> Jit {
    Jit::builder().executor(executor).build().unwrap()
}

/// Looks a function up as far as both kinds of session can.
fn find(jit: &Jit, dylib: &JitDylib, name: &str) {
    assert!(!jit.address_of(dylib, name).unwrap().is_null());
}

fn rounds(count: usize, mut body: impl FnMut()) -> Duration {
    let time = |_| {
        let begin = Instant::now();
        body();
        begin.elapsed()
    };
    median((0..count).map(time).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn report(what: &str, time: Duration, count: u32) {
    println!("{what:<60} {:>9.2} µs", time.as_secs_f64() * 1e6 / f64::from(count));
}
