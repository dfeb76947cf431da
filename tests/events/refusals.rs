//! A refused unit is reported once as refused, and never as linked.

use jittison::base::ExecutorAddr;
use jittison::{Jit, ResourceTracker};
use std::sync::Arc;

use crate::recorder::{Recorded, Recorder, kinds, observed};
use crate::support::*;

/// Asserts that `unit` was refused once, with `parts` in the error, and that nothing was linked or published.
fn assert_refused(recorder: &Recorder, unit: &str, parts: &[&str]) {
    let recorded = recorder.take_of_modules();
    let refused: Vec<_> = recorded.iter().filter(|recorded| recorded.kind() == "refused").collect();
    let [Recorded::Refused { unit: refused, error }] = refused[..] else { panic!("{unit}: {recorded:?}") };
    assert_eq!(refused, unit);
    parts.iter().for_each(|part| assert!(error.contains(part), "`{part}` is not in: {error}"));
    assert!(!recorded.iter().any(|recorded| ["linked", "published"].contains(&recorded.kind())), "{recorded:?}");
}

fn try_add(jit: &Jit, name: &str, bytes: &[u8]) -> ResourceTracker {
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&tracker, name, bytes).unwrap_err();
    tracker
}

#[test]
fn a_failed_link_is_reported_refused_once_and_never_linked() {
    let Some(object) = c("extern long nobody_has_it(void); long test(void) { return nobody_has_it(); }") else {
        return;
    };
    let (jit, recorder) = observed();
    let tracker = add(&jit, jit.main_dylib(), "lacking.o", &object);
    jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert_refused(&recorder, "lacking.o", &["nobody_has_it"]);
    tracker.remove().unwrap();
    assert_eq!(kinds(&recorder.take_of_modules()), ["retired", "reclaimed"]);
}

#[test]
fn a_malformed_object_and_a_duplicate_name_are_reported_refused() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let (jit, recorder) = observed();
    let damaged = try_add(&jit, "damaged.o", b"no object at all");
    assert_refused(&recorder, "damaged.o", &[]);
    let first = add(&jit, jit.main_dylib(), "first.o", &object);
    let second = try_add(&jit, "second.o", &object);
    assert_refused(&recorder, "second.o", &["duplicate definition of `test`"]);
    let target = ExecutorAddr::new(0x1000);
    jit.create_stub(&second, "test", target).unwrap_err();
    assert_refused(&recorder, "redirectable stubs", &["duplicate definition of `test`"]);
    drop((damaged, first, second));
}

#[test]
fn an_unreadable_object_of_link_object_is_reported_refused_once() {
    let Some(bad) = asm(".text\n.globl f\nf: ret\nplace: .quad 0\n.reloc place, R_X86_64_RELATIVE, f\n") else {
        return;
    };
    let (jit, recorder) = observed();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (name, object) in [("none.o", b"no object at all".to_vec()), ("bad.o", bad)] {
        jit.link_object(&tracker, name, object).unwrap_err();
        assert_refused(&recorder, name, &[name]);
    }
}

#[test]
fn an_object_over_the_budget_is_reported_refused() {
    let Some(object) = c("char large[100000] = {1}; long test(void) { return large[0]; }") else { return };
    let recorder = Arc::new(Recorder::default());
    let jit = Jit::builder().observer(recorder.clone()).memory_budget(1000).build().unwrap();
    let _tracker = add(&jit, jit.main_dylib(), "large.o", &object);
    jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert_refused(&recorder, "large.o", &["budget"]);
}

#[test]
fn objects_that_depend_on_a_refused_object_are_reported_refused() {
    // `user` is linked first and waits for `lacking`. `lacking` has an address, but its externals are never found.
    let (Some(user), Some(lacking)) = (
        c("extern long lacking(void); long user(void) { return lacking(); }"),
        c("extern long nobody_has_it(void); long lacking(void) { return nobody_has_it(); }"),
    ) else {
        return;
    };
    let (jit, recorder) = observed();
    let trackers =
        [("user.o", &user), ("lacking.o", &lacking)].map(|(name, object)| add(&jit, jit.main_dylib(), name, object));
    jit.address_of(jit.main_dylib(), "user").unwrap_err();
    let recorded = recorder.take_of_modules();
    for unit in ["user.o", "lacking.o"] {
        let is_unit =
            |recorded: &&Recorded| matches!(recorded, Recorded::Refused { unit: refused, .. } if refused == unit);
        assert_eq!(recorded.iter().filter(is_unit).count(), 1, "{unit}: {recorded:?}");
    }
    assert!(!kinds(&recorded).contains(&"published"), "{recorded:?}");
    drop(trackers);
}
