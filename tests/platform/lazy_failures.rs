//! Calls of lazy functions that cannot be linked: the embedder's handler says where they go on; without one the process ends, and
//! says which function it was and why.

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

/// A session whose lazy functions are all of the type above, and lead to `minus` when they cannot be linked.
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
    // SAFETY: the tests return `minus`, or nothing.
    unsafe { LazyFailureHandler::new(handle) }
}

fn minus_address() -> ExecutorAddr {
    ExecutorAddr::new(minus as *const () as u64)
}

const TWICE: &str = "long twice(long x) { return 2 * x; }";

impl World {
    fn of(source: &str) -> Option<World> {
        let failures = Arc::new(Mutex::new(Vec::new()));
        let told = failures.clone();
        let handler = handler(move |failure| {
            assert_eq!((failure.dylib, failure.symbol), ("main", "lazy_twice"));
            assert_eq!((failure.source, failure.aliasee), ("library", "twice"));
            told.lock().unwrap().push(failure.error.root_cause().to_string());
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
fn a_lazy_function_whose_function_was_removed_leads_to_the_handler_until_there_is_another() {
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
fn a_lazy_function_whose_link_fails_leads_to_the_handler_with_the_cause() {
    let source = "extern long nowhere_to_be_found(long); long twice(long x) { return nowhere_to_be_found(x); }";
    let Some(world) = World::of(source) else { return };
    assert_eq!(world.twice().call(3), -3);
    let failures = world.take_failures();
    assert!(failures.len() == 1 && failures[0].contains("nowhere_to_be_found"), "{failures:?}");
}

#[test]
fn a_lazy_function_that_is_held_after_the_end_of_its_session_leads_to_the_handler() {
    let Some(world) = World::of(TWICE) else { return };
    let twice = world.twice();
    let World { jit, library, code, names, failures } = world;
    drop((jit, library, code, names));
    assert_eq!((twice.call(3), twice.call(4)), (-3, -4));
    let failures = failures.lock().unwrap();
    assert!(failures.len() == 2 && failures[0].contains("session"), "{failures:?}");
}

#[test]
fn a_lazy_function_that_was_bound_goes_on_after_the_end_of_its_session() {
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

/// Each call is of the function, or goes where the handler says; with freed code that traps.
#[test]
fn threads_may_make_first_calls_while_the_session_ends_or_the_functions_are_removed() {
    for round in 0..60 {
        let Some(world) = World::of(TWICE) else { return };
        let twice = world.twice();
        let (start, is_over) = (Barrier::new(3), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    loop {
                        let is_last = is_over.load(Ordering::Relaxed);
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
            is_over.store(true, Ordering::Relaxed);
        });
        drop(twice);
        world.jit.session().end().unwrap();
        assert_eq!(held(&world.jit), (0, 0, 0), "round {round}");
    }
}

/// What the calling test says on the standard error before it aborts in a process of its own; `None` in that process.
fn last_words(test: &str) -> Option<String> {
    if is_rerun(test) {
        return None;
    }
    let run = rerun(test).env("RUST_BACKTRACE", "0").output().unwrap();
    pass_skips_on(&String::from_utf8_lossy(&run.stderr));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if c(TWICE).is_none() {
        return Some(said);
    }
    assert_eq!(run.status.signal(), Some(libc::SIGABRT), "{:?} {said}", run.status);
    for part in ["`lazy_twice`", "`main`", "`twice`", "`library`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    Some(said)
}

/// Calls the function after its code was removed.
fn call_what_is_gone(handler: LazyFailureHandler) {
    let Some((jit, _library, code, _names)) = build(handler, TWICE) else { return };
    code.remove().unwrap();
    function::<Twice>(&jit, "lazy_twice").call(3);
}

#[test]
fn without_a_handler_the_process_says_which_function_was_gone_and_aborts() {
    match last_words(this_test!()) {
        None => call_what_is_gone(LazyFailureHandler::default()),
        Some(said) => assert!(said.contains("not found"), "{said}"),
    }
}

#[test]
fn without_a_handler_the_process_says_why_the_link_failed_and_aborts() {
    let source = "extern long nowhere_to_be_found(long); long twice(long x) { return nowhere_to_be_found(x); }";
    match last_words(this_test!()) {
        None => {
            let Some((jit, ..)) = build(LazyFailureHandler::default(), source) else { return };
            function::<Twice>(&jit, "lazy_twice").call(3);
        }
        Some(said) => assert!(said.contains("nowhere_to_be_found"), "{said}"),
    }
}

#[test]
fn without_a_handler_the_process_says_that_the_session_has_ended_and_aborts() {
    match last_words(this_test!()) {
        None => {
            let Some((jit, ..)) = build(LazyFailureHandler::default(), TWICE) else { return };
            let twice = function::<Twice>(&jit, "lazy_twice");
            drop(jit);
            twice.call(3);
        }
        Some(said) => assert!(said.contains("session"), "{said}"),
    }
}

#[test]
fn a_handler_without_an_address_ends_the_process_as_the_default_does() {
    match last_words(this_test!()) {
        None => call_what_is_gone(handler(|_| Some(ExecutorAddr::NULL))),
        Some(said) => assert!(said.contains("not found"), "{said}"),
    }
}

#[test]
fn a_handler_that_panics_ends_the_process_which_says_both() {
    match last_words(this_test!()) {
        None => call_what_is_gone(handler(|_| panic!("no idea"))),
        Some(said) => assert!(said.contains("not found") && said.contains("no idea"), "{said}"),
    }
}

#[test]
fn a_handler_may_end_the_process_in_its_own_way() {
    let test = this_test!();
    if is_rerun(test) {
        return call_what_is_gone(handler(|_| std::process::exit(7)));
    }
    let run = rerun(test).output().unwrap();
    assert_eq!(run.status.code(), Some(if c(TWICE).is_some() { 7 } else { 0 }));
}
