//! What an observer may do while it is told: everything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::ExecutorAddr;
use jittison::{Event, Jit, Observer};

use crate::recorder::{Recorder, kinds};
use crate::support::*;

/// At each event that is not of its own making: links, calls, redirects and removes.
struct Busy {
    jit: Mutex<Option<Jit>>,
    object: Vec<u8>,
    rounds: AtomicUsize,
}

std::thread_local! {
    static IS_BUSY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Observer for Busy {
    fn observe(&self, event: &Event<'_>) {
        let Some(jit) = self.jit.lock().unwrap().clone() else { return };
        if IS_BUSY.replace(true) {
            return;
        }
        let dylib = jit.create_dylib(&format!("made at: {event}")).unwrap();
        let tracker = dylib.create_tracker().unwrap();
        jit.add_object(&tracker, "inner.o", self.object.clone()).unwrap();
        assert_eq!(long_in(&jit, &dylib, "inner"), 7);
        let target = jit.address_of(&dylib, "inner").unwrap();
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: the function has the signature, and stands as long as the stub.
        unsafe { jit.redirect_stub(&dylib, "stub", target) }.unwrap();
        assert_eq!(long_in(&jit, &dylib, "stub"), 7);
        assert!(tracker.remove().unwrap().is_complete());
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
        jit.release_free();
        self.rounds.fetch_add(1, Ordering::Relaxed);
        IS_BUSY.set(false);
    }
}

#[test]
fn an_observer_may_link_call_redirect_and_remove_from_inside_every_event() {
    let (Some(object), Some(inner), Some(bad)) = (
        c("static long state = 4; long test(void) { return state; }"),
        c("long inner(void) { return 7; }"),
        c("extern long nobody_has_it(void); long bad(void) { return nobody_has_it(); }"),
    ) else {
        return;
    };
    let busy = Arc::new(Busy { jit: Mutex::new(None), object: inner, rounds: AtomicUsize::new(0) });
    let recorder = Arc::new(Recorder::default());
    let jit = Jit::builder().observer(busy.clone()).observer(recorder.clone()).build().unwrap();
    *busy.jit.lock().unwrap() = Some(jit.clone());
    let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
    jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
    let target = jit.address_of(jit.main_dylib(), "test").unwrap();
    // SAFETY: the function has the signature, and goes with the stub.
    unsafe { jit.redirect_stub(jit.main_dylib(), "stub", target) }.unwrap();
    assert_eq!(long(&jit, "stub"), 4);
    let lacking = add(&jit, jit.main_dylib(), "bad.o", &bad);
    jit.address_of(jit.main_dylib(), "bad").unwrap_err();
    lacking.transfer_to(&tracker).unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    jit.release_free();
    let told = recorder.take();
    for kind in
        ["resolved", "linked", "published", "redirected", "transferred", "retired", "reclaimed", "refused", "memory"]
    {
        assert!(kinds(&told).contains(&kind), "{kind} was never told");
    }
    // Of resolved, published and refused symbols, of a link, a redirect, a transfer and a removal, at least.
    assert!(busy.rounds.load(Ordering::Relaxed) >= 9, "{busy}", busy = busy.rounds.load(Ordering::Relaxed));
    assert_eq!(held(&jit), (0, 0, 0));
    *busy.jit.lock().unwrap() = None;
}

#[test]
fn an_observer_that_panics_breaks_nothing_and_keeps_no_other_from_hearing() {
    let Some(object) = c("static long state = 4; long test(void) { return state; }") else { return };
    let recorder = Arc::new(Recorder::default());
    let panics = Arc::new(|_: &Event<'_>| panic!("an observer's"));
    let jit = Jit::builder().observer(panics).observer(recorder.clone()).build().unwrap();
    for _ in 0..2 {
        recorder.take();
        let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
        assert_eq!(long(&jit, "test"), 4);
        assert!(tracker.remove().unwrap().is_complete());
        let told = recorder.take_of_modules();
        assert_eq!(kinds(&told), ["resolved", "linked", "published", "retired", "reclaimed"]);
        assert_eq!(held(&jit), (0, 0, 0));
    }
}
