//! What another process costs: links, calls and the start of an executor, beside the same in this process.
//!
//! ```text
//! cargo bench --all-features --bench executor [-- PART-OF-A-NAME [PART-OF-A-PLACE]]
//! ```
//!
//! Each figure is the median of its rounds.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jittison::executor::{ExecutorProcess, Sandbox};
use jittison::{Function, Jit, JitDylib, ResourceTracker};

/// `long sum(long a, long b)`, and a function that does nothing.
const OBJECT: &[u8] = include_bytes!("../docs/examples/add.o");

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let (wanted, wanted_place) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let start = |rounds| {
        let times = (0..rounds).map(|_| {
            let begin = Instant::now();
            let executor = start_executor();
            let jit = remote(&executor);
            let tracker = jit.main_dylib().create_tracker().unwrap();
            jit.add_object(&tracker, "add.o", OBJECT).unwrap();
            assert_eq!(jit.remote_function(jit.main_dylib(), "add").unwrap().call(&[2, 3]).unwrap() as u32, 5);
            begin.elapsed()
        });
        median(times.collect())
    };
    let name = "start of an executor, to the result of the first call";
    if name.contains(&wanted) {
        report(name, start(50), 1);
    }

    let shared = start_executor();
    let far = Listening::start();
    let mut places = vec![
        Place::new("in process", Jit::new().unwrap()),
        Place::new("shared memory", remote(&shared)),
        Place::new("TCP", remote(&ExecutorProcess::connect(far.address, TOKEN).unwrap())),
    ];
    match ExecutorProcess::start_sandboxed(Command::new(PROGRAM), &Sandbox::new()) {
        Ok(sandboxed) => places.push(Place::new("sandbox", remote(&sandboxed))),
        Err(error) => println!("no sandbox: {error}"),
    }
    places.retain(|place| place.name.contains(&wanted_place));
    let measure = |what: &str, rounds, times, before: fn(&Place), operation| {
        if what.contains(&wanted) {
            measure(what, &places, rounds, times, before, operation);
        }
    };
    let nothing = |_: &Place| ();
    let pause = |_: &Place| std::thread::sleep(PAUSE);
    measure("add, look up and remove a small module", 200, 50, nothing, Place::one);
    measure("add, look up, call once and remove a small module", 200, 50, nothing, Place::one_that_runs);
    measure("1,000 small modules together, each", 20, 1, nothing, Place::many);
    // Both sides poll after a call. Both sleep after a pause.
    measure("call there and back, polling", 200, 100, |place| assert_eq!(place.call(), 1), Place::call);
    measure("call there and back, sleeping", 200, 1, pause, Place::call);
    let name = "two threads of this process that wake each other";
    if name.contains(&wanted) {
        report(name, two_wake_ups(200), 1);
    }
}

/// Measures an operation everywhere, round by round, so that what the machine does meanwhile meets all places. `before` is not measured.
fn measure(what: &str, places: &[Place], rounds: usize, times: u32, before: fn(&Place), operation: fn(&Place) -> u32) {
    let mut found = vec![Vec::new(); places.len()];
    let mut each = 1;
    for round in 0..rounds + 2 {
        for (place, found) in places.iter().zip(&mut found) {
            before(place);
            let begin = Instant::now();
            (0..times).for_each(|_| each = operation(place));
            // The first rounds warm up.
            if round >= 2 {
                found.push(begin.elapsed());
            }
        }
    }
    for (place, found) in places.iter().zip(found) {
        report(&format!("{}: {what}", place.name), median(found), times * each);
    }
}

/// A session, and where its code runs.
struct Place {
    name: &'static str,
    jit: Jit,
    dylibs: Vec<JitDylib>,
    add: Function<Add>,
}

type Add = extern "C" fn(i32, i32) -> i32;

/// Each operation returns how many modules or calls it has measured.
impl Place {
    fn new(name: &'static str, jit: Jit) -> Place {
        let create = |number| jit.create_dylib(&format!("{number}")).unwrap();
        let mut dylibs: Vec<JitDylib> = (0..1001).map(create).collect();
        let called = dylibs.pop().unwrap();
        jit.add_object(&called.default_tracker().unwrap(), "add.o", OBJECT).unwrap();
        // SAFETY: the function has this signature.
        let add = unsafe { jit.lookup_in(&called, "add") }.unwrap();
        Place { name, jit, dylibs, add }
    }

    fn add(&self, dylib: &JitDylib) -> ResourceTracker {
        let tracker = dylib.create_tracker().unwrap();
        self.jit.add_object(&tracker, "add.o", OBJECT).unwrap();
        tracker
    }

    /// Looks the function up as far as every session can.
    fn find(&self, dylib: &JitDylib) {
        assert!(!self.jit.address_of(dylib, "add").unwrap().is_null());
    }

    fn one(&self) -> u32 {
        let tracker = self.add(self.jit.main_dylib());
        self.find(self.jit.main_dylib());
        assert!(tracker.remove().unwrap().is_complete());
        1
    }

    fn one_that_runs(&self) -> u32 {
        let tracker = self.add(self.jit.main_dylib());
        // SAFETY: the function has this signature.
        let add = unsafe { self.jit.lookup::<Add>("add") }.unwrap();
        assert_eq!(add.call(2, 3), 5);
        drop(add);
        assert!(tracker.remove().unwrap().is_complete());
        1
    }

    fn many(&self) -> u32 {
        let trackers: Vec<_> = self.dylibs.iter().map(|dylib| self.add(dylib)).collect();
        self.dylibs.iter().for_each(|dylib| self.find(dylib));
        trackers.iter().for_each(|tracker| assert!(tracker.remove().unwrap().is_complete()));
        self.dylibs.len() as u32
    }

    fn call(&self) -> u32 {
        assert_eq!(self.add.call(1, 2), 3);
        1
    }
}

/// An executor that listens on the loopback interface.
struct Listening {
    address: SocketAddr,
    child: Child,
}

impl Listening {
    fn start() -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--listen", "stdin"]).env("JITTISON_EXECUTOR_TOKEN", TOKEN).stdin(OwnedFd::from(listener));
        Listening { address, child: command.spawn().unwrap() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

const TOKEN: &str = "0123456789abcdef";
/// Cargo gives a benchmark the path of this binary.
const PROGRAM: &str = env!("CARGO_BIN_EXE_jittison-executor");

fn start_executor() -> ExecutorProcess {
    ExecutorProcess::start(PROGRAM).unwrap()
}

fn remote(executor: &ExecutorProcess) -> Jit {
    Jit::builder().executor(executor).build().unwrap()
}

/// What waking a sleeping thread and being woken by it costs: the least that a call of a sleeping executor can take.
fn two_wake_ups(rounds: usize) -> Duration {
    let main = std::thread::current();
    let (question, answer) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wait = |word: &AtomicUsize, value| {
        while word.load(Ordering::Acquire) != value {
            std::thread::park();
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for round in 1..=rounds {
                wait(&question, round);
                answer.store(round, Ordering::Release);
                main.unpark();
            }
        });
        let times = (1..=rounds).map(|round| {
            std::thread::sleep(PAUSE);
            let begin = Instant::now();
            question.store(round, Ordering::Release);
            other.thread().unpark();
            wait(&answer, round);
            begin.elapsed()
        });
        median(times.collect())
    })
}

/// After which both sides sleep.
const PAUSE: Duration = Duration::from_millis(2);

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn report(what: &str, time: Duration, count: u32) {
    println!("{what:<60} {:>9.2} µs", time.as_secs_f64() * 1e6 / f64::from(count));
}
