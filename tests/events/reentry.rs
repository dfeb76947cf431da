//! An observer may call any function of the crate during an event.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::ExecutorAddr;
use jittison::{Event, Jit, Observer};

use crate::recorder::{Recorder, kinds};
use crate::support::*;

/// Links, calls, redirects and removes at each event that it does not cause itself.
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
        let dylib = jit.create_dylib(&format!("created at: {event}")).unwrap();
        let tracker = add_object(&jit, &dylib, "inner.o", self.object.clone());
        assert_eq!(long_in(&jit, &dylib, "inner"), 7);
        let target = jit.address_of(&dylib, "inner").unwrap();
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: the function has the signature of the stub and stays as long as the stub.
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
    // SAFETY: the function has the signature of the stub and is removed with it.
    unsafe { jit.redirect_stub(jit.main_dylib(), "stub", target) }.unwrap();
    assert_eq!(long(&jit, "stub"), 4);
    let lacking = add(&jit, jit.main_dylib(), "bad.o", &bad);
    jit.address_of(jit.main_dylib(), "bad").unwrap_err();
    lacking.transfer_to(&tracker).unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    jit.release_free();
    let recorded = recorder.take();
    for kind in
        ["resolved", "linked", "published", "redirected", "transferred", "retired", "reclaimed", "refused", "memory"]
    {
        assert!(kinds(&recorded).contains(&kind), "{kind} was never reported");
    }
    // At least one round each for resolved, published and refused symbols, a link, a redirect, a transfer and a removal.
    assert!(busy.rounds.load(Ordering::Relaxed) >= 9, "{busy}", busy = busy.rounds.load(Ordering::Relaxed));
    assert_eq!(held(&jit), (0, 0, 0));
    *busy.jit.lock().unwrap() = None;
}

#[test]
fn a_panicking_observer_breaks_nothing_and_other_observers_get_all_events() {
    let Some(object) = c("static long state = 4; long test(void) { return state; }") else { return };
    let recorder = Arc::new(Recorder::default());
    let panics = Arc::new(|_: &Event<'_>| panic!("the observer panics"));
    let jit = Jit::builder().observer(panics).observer(recorder.clone()).build().unwrap();
    for _ in 0..2 {
        recorder.take();
        let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
        assert_eq!(long(&jit, "test"), 4);
        assert!(tracker.remove().unwrap().is_complete());
        let recorded = recorder.take_of_modules();
        assert_eq!(kinds(&recorded), ["resolved", "linked", "published", "retired", "reclaimed"]);
        assert_eq!(held(&jit), (0, 0, 0));
    }
}
