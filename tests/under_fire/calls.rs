//! Ten million calls without a trap and without a wrong result, while another thread replaces the code.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use jittison::base::ExecutorAddr;
use jittison::{Function, Jit, JitDylib, ResourceTracker, Symbol};

use crate::support::*;

/// `version(x)` returns `x` plus one of these constants. Each version reads its constant twice from its own data.
const CONSTANTS: [i64; 8] = [1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000];
/// With `JITTISON_FULL=1` eight times as many.
const CALLS: usize = 10_000_000;
const CALLERS: u64 = 4;
/// The resident memory is read after so many rounds, of two versions each.
const WARM_UP: usize = 50;

type Version = extern "C" fn(i64) -> i64;

/// The state that callers and the remover share.
struct Scenario {
    jit: Jit,
    objects: Vec<Vec<u8>>,
    is_done: AtomicBool,
    versions: AtomicU64,
}

#[test]
fn ten_million_calls_through_handles_guards_and_stubs_survive_replacement() {
    let Some(objects) = objects() else { return };
    let test = this_test!();
    if is_rerun(test) {
        return run_scenario(objects, |_, tracker| drop(tracker.remove().unwrap()));
    }
    let text = assert_passed(test, &rerun(test).output().unwrap());
    let at = text.find("calls under fire: ").unwrap_or_else(|| panic!("{text}"));
    println!("{}", text[at..].lines().next().unwrap_or_default());
}

#[test]
fn the_same_calls_trap_when_code_is_removed_while_threads_run_it() {
    let Some(objects) = objects() else { return };
    let test = this_test!();
    if is_rerun(test) {
        // SAFETY: broken on purpose: threads run that code. This process shows that the test detects it.
        return run_scenario(objects, |jit, tracker| drop(unsafe { jit.remove_now(tracker) }.unwrap()));
    }
    // If another version already uses the freed memory, the call returns a wrong result instead. Then the process runs again.
    let ends: Vec<_> = (0..10)
        .map(|_| rerun(test).output().unwrap().status)
        .inspect(|status| assert!(!status.success(), "the calls into freed code were not detected"))
        .take_while(|status| status.signal() != Some(machine_code::TRAP_SIGNAL))
        .collect();
    assert!(ends.len() < 10, "no trap: {ends:?}");
}

#[test]
fn freed_code_that_has_run_traps_at_its_next_call() {
    let Some(objects) = objects() else { return };
    let test = this_test!();
    if is_rerun(test) {
        let jit = Jit::builder().trap_freed_code(true).build().unwrap();
        let tracker = link(&jit, &objects[0]);
        let version = target(&jit).value() as usize;
        // SAFETY: the function has this type. The second call is broken on purpose: this process shows that it traps.
        let version = unsafe { std::mem::transmute::<usize, Version>(version) };
        assert_eq!(version(1), 1001);
        assert!(tracker.remove().unwrap().is_complete());
        version(1);
        return;
    }
    let status = rerun(test).output().unwrap().status;
    assert_eq!(status.signal(), Some(machine_code::TRAP_SIGNAL), "{status}");
}

fn objects() -> Option<Vec<Vec<u8>>> {
    let source = |constant: &i64| {
        format!(
            "static volatile long a = {constant}, b = {constant};\n\
             long version(long x) {{ long first = a; for (volatile int i = 0; i < 3; i++); return x + (first + b) / 2; }}"
        )
    };
    CONSTANTS.iter().map(|constant| c(&source(constant))).collect()
}

fn run_scenario(objects: Vec<Vec<u8>>, remove: fn(&Jit, &ResourceTracker)) {
    let jit = Jit::builder().trap_freed_code(true).build().unwrap();
    let stubs = jit.main_dylib().create_tracker().unwrap();
    let mut current = link(&jit, &objects[0]);
    jit.create_stub(&stubs, "stub", target(&jit)).unwrap();
    let live = jit.memory_statistics().live_bytes;
    let scenario = Scenario { jit: jit.clone(), objects, is_done: AtomicBool::new(false), versions: AtomicU64::new(1) };
    let calls_each = rounds(8 * CALLS) as u64 / CALLERS;
    let (calls, warm): (u64, u64) = thread::scope(|threads| {
        let callers: Vec<_> = (0..CALLERS).map(|_| threads.spawn(|| scenario.call(calls_each))).collect();
        let remover = threads.spawn(|| {
            let (mut round, mut warm) = (0, 0);
            while !scenario.is_done.load(Ordering::Relaxed) {
                round += 1;
                current = scenario.replace(&current, round, remove);
                if round == WARM_UP {
                    warm = resident_bytes();
                }
            }
            warm
        });
        let ends: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        // Also if a caller panicked.
        scenario.is_done.store(true, Ordering::Relaxed);
        let warm = remover.join().unwrap();
        (ends.into_iter().map(Result::unwrap).sum(), warm)
    });
    let versions = scenario.versions.load(Ordering::Relaxed);
    assert!(versions > 100, "{versions} versions only");
    assert_eq!(jit.session().pending_removals().len(), 0, "no removal is pending");
    assert_eq!(jit.memory_statistics().live_bytes, live, "as with one version and the stub");
    println!(
        "calls under fire: {calls} in {CALLERS} threads, versions: {versions}, live at the beginning and at the end: {live} bytes, \
         resident after {} versions and at the end: {} and {} KiB",
        2 * WARM_UP,
        warm >> 10,
        resident_bytes() >> 10,
    );
}

/// Adds a version to the main dylib.
fn link(jit: &Jit, object: &[u8]) -> ResourceTracker {
    add_object(jit, jit.main_dylib(), "version.o", object.to_vec())
}

fn target(jit: &Jit) -> ExecutorAddr {
    jit.address_of(jit.main_dylib(), "version").unwrap()
}

impl Scenario {
    /// Links a version in another dylib, redirects the stub to it, removes the old version, links the same version in the main
    /// dylib, redirects the stub again and removes the temporary one.
    fn replace(&self, old: &ResourceTracker, round: usize, remove: fn(&Jit, &ResourceTracker)) -> ResourceTracker {
        let dylib = self.jit.create_dylib("temporary").unwrap();
        let temporary = dylib.create_tracker().unwrap();
        let object = self.objects[round % self.objects.len()].clone();
        self.jit.add_object(&temporary, "version.o", object.clone()).unwrap();
        let address = self.jit.address_of(&dylib, "version").unwrap();
        // SAFETY: the same signature. The version stays until the stub is redirected again.
        unsafe { self.jit.redirect_stub(self.jit.main_dylib(), "stub", address) }.unwrap();
        remove(&self.jit, old);
        let new = link(&self.jit, &object);
        // SAFETY: as above.
        unsafe { self.jit.redirect_stub(self.jit.main_dylib(), "stub", target(&self.jit)) }.unwrap();
        remove(&self.jit, &temporary);
        self.jit.session().remove_dylib(&dylib).unwrap();
        self.versions.fetch_add(2, Ordering::Relaxed);
        new
    }

    fn call(&self, calls: u64) -> u64 {
        let mut made = 0;
        let main = self.jit.main_dylib();
        while made < calls {
            made += self.through_the_stub(main, 64) + self.under_a_guard(main, 16) + self.by_handle(main, 64);
        }
        made
    }

    /// The stub may be redirected at any time. Each call must run one complete version.
    fn through_the_stub(&self, main: &JitDylib, calls: i64) -> u64 {
        let guard = self.jit.guard();
        // SAFETY: the stub's signature. The stub is never removed.
        let stub = unsafe { self.jit.symbol::<Version>(&guard, main, "stub") }.unwrap();
        for x in 0..calls {
            check(x, stub.call(x));
        }
        calls as u64
    }

    fn under_a_guard(&self, main: &JitDylib, calls: i64) -> u64 {
        let guard = self.jit.guard();
        // SAFETY: the signature of the version.
        let found: Result<Symbol<'_, Version>, _> = unsafe { self.jit.symbol(&guard, main, "version") };
        // During a replacement the main dylib has no `version` for a short time.
        found.map_or(0, |version| one_version(calls, |x| version.call(x)))
    }

    fn by_handle(&self, main: &JitDylib, calls: i64) -> u64 {
        let found: Result<Function<Version>, _> = try_function(&self.jit, main, "version");
        found.map_or(0, |version| one_version(calls, |x| version.call(x)))
    }
}

/// Calls one version several times. It must stay the same version.
fn one_version(calls: i64, call: impl Fn(i64) -> i64) -> u64 {
    let first = call(0);
    check(0, first);
    for x in 0..calls {
        assert_eq!(call(x) - x, first, "the version has changed");
    }
    calls as u64
}

fn check(x: i64, result: i64) {
    assert!(CONSTANTS.contains(&(result - x)), "version({x}) is {result}");
}
