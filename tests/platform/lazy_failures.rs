//! Calls of lazy functions that cannot be linked. The embedder's handler returns the address where the call continues. Without a
//! handler the process reports the function and the cause, and aborts.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::host::{LazyFailure, LazyFailureHandler};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Function, Jit, JitDylib, ResourceTracker};

use crate::support::*;

type Twice = extern "C" fn(i64) -> i64;

extern "C" fn minus(x: i64) -> i64 {
    -x
}

/// A session with a lazy function `lazy_twice`. If it cannot be linked, the handler records the cause and returns `minus`.
struct World {
    jit: Jit,
    library: JitDylib,
    code: ResourceTracker,
    names: ResourceTracker,
    failures: Arc<Mutex<Vec<String>>>,
}

fn build(handler: LazyFailureHandler, source: &str) -> Option<(Jit, JitDylib, ResourceTracker, ResourceTracker)> {
    let object = c(source)?;
    let jit = Jit::builder().trap_freed_code(true).lazy_failure_handler(handler).build().unwrap();
    let library = jit.create_dylib("library").unwrap();
    let code = add(&jit, &library, "library.o", &object);
    let names = jit.main_dylib().create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy_twice"), aliasee: Name::new("twice"), flags: SymbolFlags::EXPORTED };
    jit.lazy_reexport(&names, &library, &[alias]).unwrap();
    Some((jit, library, code, names))
}

fn handler(handle: impl Fn(&LazyFailure<'_>) -> Option<ExecutorAddr> + Send + Sync + 'static) -> LazyFailureHandler {
    // SAFETY: the handlers return a function of the type `Twice`, null or nothing.
    unsafe { LazyFailureHandler::new(handle) }
}

fn minus_address() -> ExecutorAddr {
    ExecutorAddr::new(minus as *const () as u64)
}

const TWICE: &str = "long twice(long x) { return 2 * x; }";

impl World {
    fn of(source: &str) -> Option<World> {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let recorded = failures.clone();
        let handler = handler(move |failure| {
            assert_eq!((failure.dylib, failure.symbol), ("main", "lazy_twice"));
            assert_eq!((failure.source, failure.aliasee), ("library", "twice"));
            recorded.lock().unwrap().push(failure.error.root_cause().to_string());
            Some(minus_address())
        });
        let (jit, library, code, names) = build(handler, source)?;
        Some(World { jit, library, code, names, failures })
    }

    fn twice(&self) -> Function<Twice> {
        function(&self.jit, "lazy_twice")
    }

    fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut *self.failures.lock().unwrap())
    }
}

#[test]
fn a_lazy_function_calls_the_handler_until_its_removed_target_is_defined_again() {
    let Some(world) = World::of(TWICE) else { return };
    let twice = world.twice();
    assert!(world.code.remove().unwrap().is_complete());
    assert_eq!((twice.call(3), twice.call(4)), (-3, -4));
    let failures = world.take_failures();
    assert!(failures.len() == 2 && failures[0].contains("twice") && failures[0].contains("library"), "{failures:?}");
    let _code = add(&world.jit, &world.library, "again.o", &c(TWICE).unwrap());
    assert_eq!((twice.call(5), twice.call(6)), (10, 12));
    assert!(world.take_failures().is_empty());
}

#[test]
fn a_lazy_function_whose_link_fails_calls_the_handler_with_the_cause() {
    let source = "extern long nowhere_to_be_found(long); long twice(long x) { return nowhere_to_be_found(x); }";
    let Some(world) = World::of(source) else { return };
    assert_eq!(world.twice().call(3), -3);
    let failures = world.take_failures();
    assert!(failures.len() == 1 && failures[0].contains("nowhere_to_be_found"), "{failures:?}");
}

#[test]
fn a_lazy_function_held_after_the_end_of_its_session_calls_the_handler() {
    let Some(world) = World::of(TWICE) else { return };
    let twice = world.twice();
    let World { jit, library, code, names, failures } = world;
    drop((jit, library, code, names));
    assert_eq!((twice.call(3), twice.call(4)), (-3, -4));
    let failures = failures.lock().unwrap();
    assert!(failures.len() == 2 && failures[0].contains("session"), "{failures:?}");
}

#[test]
fn a_bound_lazy_function_works_after_the_end_of_its_session() {
    let Some(world) = World::of(TWICE) else { return };
    let twice = world.twice();
    assert_eq!(twice.call(3), 6);
    world.jit.session().end().unwrap();
    assert_eq!(twice.call(4), 8);
    assert!(world.take_failures().is_empty());
    drop(twice);
    assert_eq!(held(&world.jit), (0, 0, 0));
}

#[test]
fn the_handler_may_use_the_session() {
    let again: Arc<Mutex<Option<(Jit, JitDylib)>>> = Arc::default();
    let inside = again.clone();
    let handler = handler(move |_| {
        let (jit, library) = inside.lock().unwrap().take()?;
        let tracker = library.default_tracker().unwrap();
        jit.add_object(&tracker, "again.o", c(TWICE)?).unwrap();
        Some(jit.address_of(&library, "twice").unwrap())
    });
    let Some((jit, library, code, _names)) = build(handler, TWICE) else { return };
    code.remove().unwrap();
    *again.lock().unwrap() = Some((jit.clone(), library));
    assert_eq!(function::<Twice>(&jit, "lazy_twice").call(3), 6);
}

/// Each call reaches the function or the address that the handler returns. Freed code traps.
#[test]
fn threads_may_make_first_calls_while_the_session_ends_or_the_functions_are_removed() {
    for round in 0..60 {
        let Some(world) = World::of(TWICE) else { return };
        let twice = world.twice();
        let (start, is_done) = (Barrier::new(3), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    loop {
                        let is_last = is_done.load(Ordering::Relaxed);
                        let result = twice.call(21);
                        assert!(result == 42 || result == -21, "{result}");
                        if is_last {
                            return;
                        }
                    }
                });
            }
            start.wait();
            match round % 3 {
                0 => world.jit.session().end().unwrap(),
                1 => drop(world.code.remove().unwrap()),
                _ => drop(ResourceTracker::remove_all([&world.names, &world.code]).unwrap()),
            }
            is_done.store(true, Ordering::Relaxed);
        });
        drop(twice);
        world.jit.session().end().unwrap();
        assert_eq!(held(&world.jit), (0, 0, 0), "round {round}");
    }
}

/// Runs the calling test in its own process, asserts that it aborts, and returns its standard error. `None` in that process.
fn abort_message(test: &str) -> Option<String> {
    if is_rerun(test) {
        return None;
    }
    let run = rerun(test).env("RUST_BACKTRACE", "0").output().unwrap();
    pass_skips_on(&String::from_utf8_lossy(&run.stderr));
    let message = String::from_utf8_lossy(&run.stderr).into_owned();
    if c(TWICE).is_none() {
        return Some(message);
    }
    assert_eq!(run.status.signal(), Some(libc::SIGABRT), "{:?} {message}", run.status);
    for part in ["`lazy_twice`", "`main`", "`twice`", "`library`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    Some(message)
}

/// Calls the function after its code was removed.
fn call_removed_function(handler: LazyFailureHandler) {
    let Some((jit, _library, code, _names)) = build(handler, TWICE) else { return };
    code.remove().unwrap();
    function::<Twice>(&jit, "lazy_twice").call(3);
}

#[test]
fn without_a_handler_the_process_names_the_missing_function_and_aborts() {
    match abort_message(this_test!()) {
        None => call_removed_function(LazyFailureHandler::default()),
        Some(message) => assert!(message.contains("not found"), "{message}"),
    }
}

#[test]
fn without_a_handler_the_process_reports_why_the_link_failed_and_aborts() {
    let source = "extern long nowhere_to_be_found(long); long twice(long x) { return nowhere_to_be_found(x); }";
    match abort_message(this_test!()) {
        None => {
            let Some((jit, ..)) = build(LazyFailureHandler::default(), source) else { return };
            function::<Twice>(&jit, "lazy_twice").call(3);
        }
        Some(message) => assert!(message.contains("nowhere_to_be_found"), "{message}"),
    }
}

#[test]
fn without_a_handler_the_process_reports_that_the_session_has_ended_and_aborts() {
    match abort_message(this_test!()) {
        None => {
            let Some((jit, ..)) = build(LazyFailureHandler::default(), TWICE) else { return };
            let twice = function::<Twice>(&jit, "lazy_twice");
            drop(jit);
            twice.call(3);
        }
        Some(message) => assert!(message.contains("session"), "{message}"),
    }
}

#[test]
fn a_lazy_function_whose_initialiser_panics_calls_the_handler() {
    extern "C-unwind" fn panics() {
        std::panic::panic_any(33_i64);
    }
    let source = "extern void panics(void); long twice(long x) { return 2 * x; }
         __attribute__((constructor)) static void set(void) { panics(); }";
    let Some(world) = World::of(source) else { return };
    define_function(&world.jit, &world.library, "panics", panics as extern "C-unwind" fn());
    let twice = world.twice();
    assert_eq!(twice.call(3), -3);
    assert!(world.take_failures()[0].contains("panicked"));
    assert_eq!(twice.call(3), -3, "the failed object has lost its names");
    assert_eq!(world.take_failures(), ["an initialiser of library.o failed"]);
}

#[test]
fn a_handler_that_returns_null_aborts_like_the_default_handler() {
    match abort_message(this_test!()) {
        None => call_removed_function(handler(|_| Some(ExecutorAddr::NULL))),
        Some(message) => assert!(message.contains("not found"), "{message}"),
    }
}

#[test]
fn a_handler_that_panics_aborts_and_both_errors_are_reported() {
    match abort_message(this_test!()) {
        None => call_removed_function(handler(|_| panic!("no idea"))),
        Some(message) => assert!(message.contains("not found") && message.contains("no idea"), "{message}"),
    }
}

#[test]
fn a_handler_may_exit_the_process() {
    let test = this_test!();
    if is_rerun(test) {
        return call_removed_function(handler(|_| std::process::exit(7)));
    }
    let run = rerun(test).output().unwrap();
    assert_eq!(run.status.code(), Some(if c(TWICE).is_some() { 7 } else { 0 }));
}
