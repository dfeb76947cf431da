//! What exceptions cost in linked code, and what unwind tables cost a link and a removal, with 100, 10,000 and 100,000
//! modules live.
//!
//! `cargo bench --bench unwind -- [LIVE]…` prints a table of medians with the spread over rounds. A module is a C++ object with
//! three functions: one throws, one has something to destroy, one catches. Each has names of its own and a tracker of its
//! own. Every throw's outcome is compared. Needs g++, and libstdc++ as a shared library.
//!
//! The promise is that nothing here depends on how many modules are live but what any large program pays: caches that hold
//! less of it, and a search that is one step longer for twice the code. To tell that apart, each table has throws through one
//! module again and again, and through modules at random; and through the same code in a library that the system loaded.
//!
//! To stand a peer beside it (LLVM's ORC, by its `ObjectLinkingLayer` with an `EHFrameRegistrationPlugin`), give it the
//! same object: `cargo bench --bench unwind -- --object FILE` writes it. Its names begin with `M00000000`, to be replaced
//! by others of that length; `M00000000_test(x)` gives `10 x + 2`, and throws for every `x` but zero. The rows to measure
//! are those of the table, in that order: link, first throw through what was linked, remove another at random, first throw
//! after that through one that was there from the beginning; then throws with no change between them.

#[path = "../tests/support/dice.rs"]
mod dice;

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use jittison::link::ObjectBuffer;
use jittison::{Function, Jit, ResourceTracker};

use dice::Dice;

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
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let dir = std::env::temp_dir().join(format!("jittison-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (object, library) = (compile(&dir, "module.o", "-c"), compile(&dir, "module.so", "-shared"));
    let (Some(object), Some(library)) = (object, library) else { return println!("skipped: needs g++") };
    if let [option, file] = &asked[..]
        && option == "--object"
    {
        return std::fs::write(file, object).unwrap();
    }
    println!("{:<62}{:>10}{:>10}{:>10}", "microseconds, over rounds", "median", "min", "max");
    let native = native(&library);
    let _ = std::fs::remove_dir_all(&dir);
    let live: Vec<usize> = asked.iter().filter_map(|argument| argument.parse().ok()).collect();
    for live in if live.is_empty() { &[100, 10_000, 100_000][..] } else { &live } {
        among(&object, *live, native);
    }
}

/// The same code, loaded by the system.
fn native(library: &[u8]) -> Test {
    let path = std::env::temp_dir().join(format!("jittison-bench-{}.so", std::process::id()));
    std::fs::write(&path, library).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a library made above, with no constructors, that stays loaded; the symbol is a function of this signature.
    let test: Test = unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "the library loads");
        std::mem::transmute(libc::dlsym(handle, c"M00000000_test".as_ptr()))
    };
    std::fs::remove_file(&path).unwrap();
    test
}

type Test = extern "C" fn(i64) -> i64;

/// A linked module, to be thrown through.
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
    // SAFETY: the function's signature in the object above.
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
        let begun = Instant::now();
        let module = link(jit, &object, number);
        (module, begun.elapsed())
    };
    let resident = linked(&jit).0;
    let mut modules: Vec<Module> = (1..live).map(|_| linked(&jit).0).collect();
    let mut dice = Dice(live as u64 | 1);
    resident.throw(1);

    let mut rows: [Row; 7] = Default::default();
    for _ in 0..ROUNDS {
        let mut times: [Vec<Duration>; 4] = Default::default();
        for _ in 0..CHANGES {
            let (module, time) = linked(&jit);
            times[0].push(time);
            times[1].push(timed(|| module.throw(3)));
            let index = dice.roll(modules.len());
            let other = std::mem::replace(&mut modules[index], module);
            times[2].push(timed(|| other.remove()));
            times[3].push(timed(|| resident.throw(5)));
        }
        for (row, times) in rows.iter_mut().zip(&times) {
            row.round(times);
        }
        rows[4].round(&[throws(|x| resident.test.call(x))]);
        rows[5].round(&[throws(|x| modules[dice.roll(modules.len())].test.call(x))]);
        rows[6].round(&[throws(|x| native(x))]);
    }
    println!("{live} live modules");
    let names = [
        "    link: add and look up",
        "    first throw through what was linked",
        "    remove another at random",
        "    first throw after that, through one that was there",
        "    throw, again and again",
        "    throw, through modules at random",
        "    throw, the same code in a library of the system's",
    ];
    for (row, name) in rows.into_iter().zip(names) {
        row.print(name);
    }
    let all = modules.len();
    let begun = Instant::now();
    modules.into_iter().for_each(Module::remove);
    let each = begun.elapsed().as_nanos() as f64 / 1e3 / all as f64;
    println!("{:<62}{each:>10.2}", "    remove, when all go");
    resident.remove();
}

/// The time of one throw, of many.
fn throws(mut test: impl FnMut(i64) -> i64) -> Duration {
    let begun = Instant::now();
    for x in 1..=THROWS {
        assert_eq!(test(x), x * 10 + 2);
    }
    begun.elapsed() / THROWS as u32
}

fn timed(operation: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    operation();
    begun.elapsed()
}

const ROUNDS: usize = 15;
const CHANGES: usize = 200;
const THROWS: i64 = 2_000;

/// Medians of rounds.
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

fn compile(dir: &Path, name: &str, kind: &str) -> Option<Vec<u8>> {
    let (from, to) = (dir.join("module.cpp"), dir.join(name));
    std::fs::write(&from, MODULE).ok()?;
    let built = Command::new("g++").args(["-O2", "-fPIC", kind, "-o"]).arg(&to).arg(&from).status();
    built.is_ok_and(|status| status.success()).then(|| std::fs::read(&to).ok()).flatten()
}

/// The object with names of its own.
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
