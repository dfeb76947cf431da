//! Two [`Jit`]s in one process: each refuses what belongs to the other. A manager that is dropped keeps code that is pinned.

use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::error::{Error, ErrorKind};
use jittison::layer::ObjectLinkingLayer;
use jittison::session::{Alias, SymbolFlags};
use jittison::{Function, MemoryUsage, Program};

use crate::support::*;

#[track_caller]
fn assert_foreign<T>(outcome: Result<T, Error>) {
    let error = outcome.err().expect("it is of another session");
    assert!(matches!(error.kind(), ErrorKind::ForeignSession { dylib } if dylib == "main"), "{error}");
}

#[test]
fn every_method_refuses_a_tracker_or_a_dylib_of_another_session() {
    own_process!();
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let (own, other) = (new_jit(), new_jit());
    let (dylib, tracker) = (other.main_dylib(), other.main_dylib().create_tracker().unwrap());
    let own_tracker = own.main_dylib().create_tracker().unwrap();
    let target = ExecutorAddr::new(8);
    assert_foreign(own.add_object(&tracker, "answer.o", object.clone()));
    assert_foreign(own.link_object(&tracker, "answer.o", object.clone()));
    assert_foreign(own.layer().add(&tracker, "answer.o", object.clone().into()));
    assert_foreign(own.layer().link(&tracker, "answer.o", object.into()));
    assert_foreign(own.add_object_file(&tracker, "/dev/null"));
    assert_foreign(own.add_archive_whole(&tracker, "/dev/null"));
    assert_foreign(own.create_stub(&tracker, "stub", target));
    assert_foreign(own.create_stubs(&tracker, &[("stub", target)]));
    let alias = Alias { name: "lazy".into(), aliasee: "answer".into(), flags: SymbolFlags::EXPORTED };
    assert_foreign(own.lazy_reexport(&tracker, own.main_dylib(), std::slice::from_ref(&alias)));
    assert_foreign(own.lazy_reexport(&own_tracker, dylib, &[alias]));
    assert_foreign(own.static_libraries(dylib));
    assert_foreign(own.patchable(dylib, &["answer"]));
    assert_foreign(own.address_of(dylib, "answer"));
    assert_foreign(Program::new(&own, &tracker));
    // SAFETY: no code runs, since each call is refused.
    unsafe {
        assert_foreign(own.initialize(dylib));
        assert_foreign(own.deinitialize(dylib));
        assert_foreign(own.lookup_in::<extern "C" fn() -> i32>(dylib, "answer"));
        assert_foreign(own.symbol::<extern "C" fn() -> i32>(&own.guard(), dylib, "answer"));
    }
    assert_eq!((own.session().dylibs().len(), dylib.symbol_count()), (2, 0));
}

/// The keys of two sessions were equal, so each session reported, and freed, the memory of the other.
#[test]
fn the_usage_of_a_tracker_counts_its_own_session_only() {
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let (own, other) = (new_jit(), new_jit());
    let tracker = add(&own, own.main_dylib(), "answer.o", &object);
    let answer = function::<extern "C" fn() -> i32>(&own, "answer");
    let (dylib, foreign) = (other.main_dylib(), other.main_dylib().create_tracker().unwrap());
    assert!(own.usage(&tracker).code > 0);
    assert_eq!((own.usage(&foreign), own.usage_of_dylib(dylib)), (MemoryUsage::default(), MemoryUsage::default()));
    foreign.remove().unwrap();
    assert_eq!(answer.call(), 42);
}

#[test]
fn a_layer_that_is_registered_with_two_sessions_links_for_both_and_is_freed_by_each() {
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let (own, other, third) = (new_jit(), new_jit(), new_jit());
    own.layer().register(other.session());
    for jit in [&own, &other] {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        own.layer().link(&tracker, "answer.o", object.clone().into()).unwrap();
        assert!(own.layer().usage(tracker.key()).code > 0);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(own.layer().usage(tracker.key()), MemoryUsage::default());
    }
    let tracker = third.main_dylib().create_tracker().unwrap();
    assert_foreign(own.layer().link(&tracker, "answer.o", object.into()));
}

/// The memory of the layer was freed under the handle.
#[test]
fn code_that_a_handle_keeps_outlives_a_layer_that_was_never_registered_and_is_dropped() {
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let jit = new_jit();
    let layer = ObjectLinkingLayer::new(jit.layer().memory().clone());
    let tracker = jit.main_dylib().create_tracker().unwrap();
    layer.link(&tracker, "answer.o", object.into()).unwrap();
    let answer: Function<extern "C" fn() -> i32> = function(&jit, "answer");
    let alive = Arc::downgrade(&layer);
    drop((tracker, layer, jit));
    assert_eq!(alive.strong_count(), 0);
    assert_eq!(answer.call(), 42);
}
