//! Measures exceptions in linked code, and links and removals of code with unwind tables, while 100, 10,000 and 100,000
//! modules are live.
//!
//! `cargo bench --bench unwind -- [LIVE]…` prints medians with the minimum and maximum over rounds. A module is a C++
//! object with three functions: one throws, one destroys an object during unwinding, one catches. Each module has
//! unique names and a tracker of its own. The result of each throw is checked. Needs g++, and libstdc++ as a shared
//! library.
//!
//! # The promise
//!
//! The times do not depend on the number of live modules, apart from two effects that every large program has: the
//! caches hold a smaller part of the code, and twice the code makes the bisection one step longer. To separate these,
//! each table has throws through one module repeatedly, through random modules, and through the same code in a library
//! that the system loaded.
//!
//! Medians are exact: a round has 200 changes, and a row 15 rounds. A histogram would round them.
//!
//! # Comparing with a peer
//!
//! A peer, such as LLVM's ORC (`ObjectLinkingLayer` with an `EHFrameRegistrationPlugin`), needs the same object. `cargo
//! bench --bench unwind -- --object FILE` writes it. Its names begin with `M00000000`; replace this by another prefix
//! of the same length. `M00000000_test(x)` returns `10 x + 2`, and throws unless `x` is zero. Measure the rows of the
//! table in order: link; first throw through the new module; remove a random other module; first throw after that,
//! through the first module; then throws without a change between them.

use std::ffi::CString;
use std::time::{Duration, Instant};

use jittison::link::ObjectBuffer;
use jittison::{Function, Jit, ResourceTracker};

use fastrand::Rng;
use jittison_test_support::{INPUT, OUTPUT, PrivateDir, build, cpp};

const MODULE: &str = r#"
    struct Guard { long &n; ~Guard() { n++; } };
    __attribute__((noinline)) static long thrower(long x, long &n) { Guard guard{n}; if (x) throw x; return n; }
    extern "C" __attribute__((noinline)) long M00000000_middle(long x, long &n) { Guard guard{n}; return thrower(x, n) + 1; }
    extern "C" long M00000000_test(long x) {
        long n = 0;
        try { return M00000000_middle(x, n); } catch (long caught) { return caught * 10 + n; }
    }
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let shared = ["-x", "c++", "-O2", "-fPIC", "-shared", "-o", OUTPUT, INPUT];
    let (Some(object), Some(library)) = (cpp(MODULE), build("g++", MODULE.as_bytes(), &shared)) else { return };
    if let [option, file] = &arguments[..]
        && option == "--object"
    {
        return std::fs::write(file, object).unwrap();
    }
    println!("{:<62}{:>10}{:>10}{:>10}", "microseconds, over rounds", "median", "min", "max");
    let native = native(&library);
    let live: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    for live in if live.is_empty() { &[100, 10_000, 100_000][..] } else { &live } {
        among(&object, *live, native);
    }
}

/// The same code in a library that the system loads.
fn native(library: &[u8]) -> Test {
    let directory = PrivateDir::new();
    let path = directory.path("module.so");
    std::fs::write(&path, library).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the library is the one written above. It has no constructors and is never unloaded. The symbol is a
    // function with this signature.
    let test: Test = unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "the library loads");
        std::mem::transmute(libc::dlsym(handle, c"M00000000_test".as_ptr()))
    };
    test
}

type Test = extern "C" fn(i64) -> i64;

/// A linked module, whose exceptions are measured.
struct Module {
    tracker: ResourceTracker,
    test: Function<Test>,
}

impl Module {
    fn throw(&self, x: i64) {
        assert_eq!(self.test.call(x), x * 10 + 2);
    }

    fn remove(self) {
        let Module { tracker, test } = self;
        drop(test);
        assert!(tracker.remove().unwrap().is_complete());
    }
}

fn link(jit: &Jit, object: &ObjectBuffer, number: usize) -> Module {
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&tracker, "module.o", object.clone()).unwrap();
    // SAFETY: `MODULE` defines the function with this signature.
    let test = unsafe { jit.lookup::<Test>(&format!("M{number:08}_test")) }.unwrap();
    Module { tracker, test }
}

fn among(object: &[u8], live: usize, native: Test) {
    let jit = Jit::builder().library("libstdc++.so.6").build().unwrap();
    let mut numbers = 0..;
    let mut next = || {
        let number = numbers.next().unwrap();
        (instance(object, number), number)
    };
    let mut linked = |jit: &Jit| {
        let (object, number) = next();
        let start = Instant::now();
        let module = link(jit, &object, number);
        (module, start.elapsed())
    };
    let resident = linked(&jit).0;
    let mut modules: Vec<Module> = (1..live).map(|_| linked(&jit).0).collect();
    let mut rng = Rng::with_seed(live as u64 | 1);
    resident.throw(1);

    let mut rows: [Row; 7] = Default::default();
    for _ in 0..ROUNDS {
        let mut times: [Vec<Duration>; 4] = Default::default();
        for _ in 0..CHANGES {
            let (module, time) = linked(&jit);
            times[0].push(time);
            times[1].push(timed(|| module.throw(3)));
            let index = rng.usize(..modules.len());
            let other = std::mem::replace(&mut modules[index], module);
            times[2].push(timed(|| other.remove()));
            times[3].push(timed(|| resident.throw(5)));
        }
        for (row, times) in rows.iter_mut().zip(&times) {
            row.round(times);
        }
        rows[4].round(&[throws(|x| resident.test.call(x))]);
        rows[5].round(&[throws(|x| modules[rng.usize(..modules.len())].test.call(x))]);
        rows[6].round(&[throws(|x| native(x))]);
    }
    println!("{live} live modules");
    let names = [
        "    link: add and look up",
        "    first throw through the new module",
        "    remove a random other module",
        "    first throw after that, through the first module",
        "    throw, through the same module",
        "    throw, through random modules",
        "    throw, the same code in a system library",
    ];
    for (row, name) in rows.into_iter().zip(names) {
        row.print(name);
    }
    let all = modules.len();
    let start = Instant::now();
    modules.into_iter().for_each(Module::remove);
    let each = start.elapsed().as_nanos() as f64 / 1e3 / all as f64;
    println!("{:<62}{each:>10.2}", "    remove, when all are removed");
    resident.remove();
}

/// The mean time of a throw.
fn throws(mut test: impl FnMut(i64) -> i64) -> Duration {
    let start = Instant::now();
    for x in 1..=THROWS {
        assert_eq!(test(x), x * 10 + 2);
    }
    start.elapsed() / THROWS as u32
}

fn timed(operation: impl FnOnce()) -> Duration {
    let start = Instant::now();
    operation();
    start.elapsed()
}

const ROUNDS: usize = 15;
const CHANGES: usize = 200;
const THROWS: i64 = 2_000;

/// The medians of the rounds of one row.
#[derive(Default)]
struct Row(Vec<Duration>);

impl Row {
    fn round(&mut self, times: &[Duration]) {
        let mut times = times.to_vec();
        times.sort_unstable();
        self.0.push(times[times.len() / 2]);
    }

    fn print(mut self, what: &str) {
        self.0.sort_unstable();
        let [median, min, max] =
            [self.0.len() / 2, 0, self.0.len() - 1].map(|index| self.0[index].as_nanos() as f64 / 1e3);
        println!("{what:<62}{median:>10.2}{min:>10.2}{max:>10.2}");
    }
}

/// A copy of the object with unique names.
fn instance(module: &[u8], number: usize) -> ObjectBuffer {
    let (old, new) = (b"M00000000", format!("M{number:08}"));
    let mut bytes = module.to_vec();
    for at in 0..module.len() - old.len() {
        if module[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
        }
    }
    ObjectBuffer::from(bytes)
}
