//! Model: a call is entered while the version that it may run is replaced.
//!
//! Runs `src/session/pins/calls.rs` on top of `src/session/pins/guards.rs`. A version that a caller reached through a
//! stub's slot is freed after the call has returned, and not before.
//!
//! Seeded bugs: `version_freed_under_a_call`, `pinned_after_the_refresh`, `stub_loads_its_slot_plainly`.

#![cfg(loom)]

mod support;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use support::*;

/// A fixture whose dylib has versions.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let main = fixture.session.create_version_dylib("versions").unwrap();
    Fixture { main, ..fixture }
}

#[test]
fn replacing_a_version_versus_a_call_through_its_stub() {
    // The caller runs the old or the new version, and that version is not freed.
    let allowed = [(1, true), (2, true)];
    explore("replacing_a_version_versus_a_call_through_its_stub", None, 4, allowed, || {
        let fixture = fixture();
        let (old, _new) = (fixture.loaded("f1", 1), fixture.loaded("f2", 2));
        // Code reads the slot without a lock and without an ordering.
        let slot = Arc::new(AtomicU64::new(1));
        let (session, manager, read) = (fixture.session.clone(), fixture.manager.clone(), slot.clone());
        let caller = thread::spawn(move || {
            let _entry = session.enter_call();
            let version = read.load(Ordering::Relaxed);
            // Loom may run the remover here.
            thread::yield_now();
            assert!(!manager.freed().contains(&(version as u32)), "version {version} was freed under its caller");
            version
        });
        slot.store(2, Ordering::Relaxed);
        let removal = old.remove().unwrap();
        let version = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (version, complete)
    });
}

#[test]
fn replacing_a_version_versus_a_call_through_a_stub_that_is_bound_late() {
    // The version that a caller without an entry reaches, if the lazy stub is bound; the number of recorded bindings. A caller of the
    // old version came through a recorded binding, whose tracker keeps that version.
    let allowed = [(None, 0), (None, 1), (Some(1), 1), (Some(2), 0), (Some(2), 1)];
    explore("replacing_a_version_versus_a_call_through_a_stub_that_is_bound_late", None, 5, allowed, || {
        let fixture = fixture();
        let tracker = fixture.loaded("lazy", 1);
        let (lazy, version) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(1)));
        let slots = (lazy.clone(), version.clone());
        let caller = thread::spawn(move || {
            let is_bound = jittison::session::load_as_stub(&slots.0) != 0;
            is_bound.then(|| slots.1.load(Ordering::Relaxed))
        });
        let session = fixture.session.clone();
        let replacer = thread::spawn(move || {
            version.store(2, Ordering::Relaxed);
            jittison::session::late_binding_count(&session)
        });
        jittison::session::note_late_binding(&tracker);
        lazy.store(1, Ordering::Release);
        (caller.join().unwrap(), replacer.join().unwrap())
    });
}

#[test]
fn call_returning_versus_guard_dropped() {
    // Both hold the version. It is freed once, by whichever ends last.
    explore("call_returning_versus_guard_dropped", None, 4, [(true, vec![1])], || {
        let fixture = fixture();
        let tracker = fixture.loaded("f", 1);
        let (session, guard) = (fixture.session.clone(), fixture.session.guard());
        let caller = thread::spawn(move || drop(session.enter_call()));
        let removal = tracker.remove().unwrap();
        assert!(!removal.is_complete(), "this thread's guard defers the removal");
        drop(guard);
        caller.join().unwrap();
        (removal.is_complete(), fixture.manager.freed())
    });
}

#[test]
fn replacing_a_version_versus_a_reload_point_inside_it() {
    // The caller passes two reload points inside the version that it runs. That version is not freed before it leaves, and another
    // one is freed at the latest then.
    let allowed = [(1, true), (2, true)];
    explore("replacing_a_version_versus_a_reload_point_inside_it", Some(3), 3, allowed, || {
        let fixture = Fixture::new();
        let main = jittison::session::reloaded_dylib(&fixture.session, "versions").unwrap();
        let fixture = Fixture { main, ..fixture };
        let (old, new) = (fixture.loaded("f1", 1), fixture.loaded("f2", 2));
        let slot = Arc::new(AtomicU64::new(1));
        let (session, manager, read) = (fixture.session.clone(), fixture.manager.clone(), slot.clone());
        let watches = [old.watch(), new.watch()];
        let caller = thread::spawn(move || {
            let _entry = session.enter_call();
            let version = read.load(Ordering::Relaxed);
            for _ in 0..2 {
                let on_stack = [watches[version as usize - 1].clone()];
                jittison::session::pass_reload_point_with(&session, &on_stack);
                assert!(!manager.freed().contains(&(version as u32)), "version {version} was freed on a stack");
            }
            version
        });
        slot.store(2, Ordering::Relaxed);
        let removal = old.remove().unwrap();
        let version = caller.join().unwrap();
        let complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        (version, complete)
    });
}

#[test]
fn removing_a_version_versus_a_reload_point_outside_it() {
    // The version is freed by the remover or at the reload point if that is later, else when the call ends.
    explore("removing_a_version_versus_a_reload_point_outside_it", Some(3), 4, [true], || {
        let fixture = Fixture::new();
        let main = jittison::session::reloaded_dylib(&fixture.session, "versions").unwrap();
        let fixture = Fixture { main, ..fixture };
        let tracker = fixture.loaded("f", 1);
        let session = fixture.session.clone();
        let caller = thread::spawn(move || {
            let entry = session.enter_call();
            jittison::session::pass_reload_point_with(&session, &[]);
            drop(entry);
        });
        let removal = tracker.remove().unwrap();
        let entry = fixture.session.enter_call();
        jittison::session::pass_reload_point_with(&fixture.session, &[]);
        caller.join().unwrap();
        let is_complete = removal.is_complete();
        assert_eq!(fixture.manager.freed(), [1]);
        drop(entry);
        is_complete
    });
}
