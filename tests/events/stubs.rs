//! Redirect events: they contain the old and the new target of the stub.

use std::cell::RefCell;
use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Event, Jit};

use crate::recorder::{Recorded, Recorder, observed};
use crate::support::*;

fn redirect(jit: &Jit, stub: &str, to: u64) -> Result<(), jittison::Error> {
    // SAFETY: no thread calls the stubs of these tests.
    unsafe { jit.redirect_stub(jit.main_dylib(), stub, ExecutorAddr::new(to)) }
}

fn redirects(recorder: &Arc<Recorder>) -> Vec<(u64, u64)> {
    let of = |recorded| match recorded {
        Recorded::Redirected { stub, from, to } => {
            assert_eq!(stub, "stub");
            Some((from, to))
        }
        _ => None,
    };
    recorder.take().into_iter().filter_map(of).collect()
}

#[test]
fn a_redirect_is_reported_with_its_old_and_new_target() {
    let (jit, recorder) = observed();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let target = ExecutorAddr::new(0x1000);
    jit.create_stubs(&tracker, &[("first", target), ("stub", ExecutorAddr::new(0x2000))]).unwrap();
    redirect(&jit, "stub", 0x3000).unwrap();
    redirect(&jit, "stub", 0x4000).unwrap();
    redirect(&jit, "no stub", 0x5000).unwrap_err();
    assert_eq!(redirects(&recorder), [(0x2000, 0x3000), (0x3000, 0x4000)]);
}

#[test]
fn a_session_with_a_debugger_reports_old_targets_of_redirects() {
    let recorder = Arc::new(Recorder::default());
    let jit = Jit::builder().observer(recorder.clone()).debugger(true).build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x2000)).unwrap();
    redirect(&jit, "stub", 0x3000).unwrap();
    assert_eq!(redirects(&recorder), [(0x2000, 0x3000)]);
}

std::thread_local! {
    static OWN: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Each thread records its own redirects, so that no lock of the test orders them.
fn record_own(event: &Event<'_>) {
    if let Event::Redirected { from, to, .. } = event {
        OWN.with_borrow_mut(|own| own.push((from.value(), to.value())));
    }
}

#[test]
fn racing_redirects_are_each_reported_with_the_target_that_they_replaced() {
    let jit = Jit::builder().observer(Arc::new(record_own)).build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "stub", ExecutorAddr::new(1)).unwrap();
    let race = &|thread: u64| {
        (1..=ROUNDS).for_each(|i| redirect(&jit, "stub", thread * 10 * ROUNDS + i).unwrap());
        OWN.take()
    };
    let recorded: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3).map(|thread| scope.spawn(move || race(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    redirect(&jit, "stub", 2).unwrap();
    let (mut from, mut to): (Vec<_>, Vec<_>) = recorded.into_iter().chain(OWN.take()).unzip();
    from.push(2);
    to.push(1);
    from.sort();
    to.sort();
    assert_eq!(from.len() as u64, 3 * ROUNDS + 2);
    assert!(from == to, "each target is replaced once");
}

const ROUNDS: u64 = 100_000;

#[test]
fn the_first_call_of_a_lazy_function_is_reported_as_a_redirect() {
    let Some(object) = c("long test(void) { return 9; }") else { return };
    let (jit, recorder) = observed();
    let library = jit.create_dylib("library").unwrap();
    let _code = add(&jit, &library, "library.o", &object);
    let names = jit.main_dylib().create_tracker().unwrap();
    let alias = Alias { name: Name::new("stub"), aliasee: Name::new("test"), flags: SymbolFlags::EXPORTED };
    jit.lazy_reexport(&names, &library, &[alias]).unwrap();
    assert_eq!(redirects(&recorder), []);
    for _ in 0..3 {
        assert_eq!(long(&jit, "stub"), 9);
    }
    let recorded = redirects(&recorder);
    assert_eq!((recorded.len(), recorded[0].1), (1, jit.address_of(&library, "test").unwrap().value()));
}
