//! Linked code that the session runs (initialisers, finalisers and exit handlers) may call the host, and the host may call the
//! session: look up and define symbols, create a tracker, remove another tracker.

use std::cell::RefCell;

use jittison::{Jit, ResourceTracker};

use crate::support::*;

/// The state of [`call_back`] for this thread.
struct Inside {
    jit: Jit,
    object: Vec<u8>,
    victim: Option<ResourceTracker>,
    calls: usize,
}

thread_local! {
    static INSIDE: RefCell<Option<Inside>> = const { RefCell::new(None) };
}

/// Uses the session in all ways at the first call. Later calls only count.
extern "C" fn call_back() {
    let (jit, object, victim) = INSIDE.with_borrow_mut(|inside| {
        let inside = inside.as_mut().expect("the test sets it");
        inside.calls += 1;
        (inside.jit.clone(), inside.object.clone(), inside.victim.take())
    });
    let Some(victim) = victim else { return };
    let main = jit.main_dylib();
    assert_eq!(long(&jit, "known"), 7, "a function is found and called");
    define_absolute(main, "defined_inside", 0x1234);
    assert_eq!(jit.address_of(main, "defined_inside").unwrap().value(), 0x1234);
    let tracker = add(&jit, main, "inner.o", &object);
    assert_eq!(long(&jit, "inner"), 30, "the initialiser of the inner object has run");
    assert!(tracker.remove().unwrap().is_complete());
    assert!(jit.address_of(main, "inner").is_err());
    let held = function::<extern "C" fn() -> i64>(&jit, "victim");
    let removal = victim.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(held.call(), 66);
    drop(held);
    assert!(removal.is_complete());
}

/// Links and removes `source`, which calls `call_back` once in between.
fn calls_back_once(source: &str) {
    let objects = [
        source,
        "long known(void) { return 7; }",
        "long victim(void) { return 66; }",
        "static long state; __attribute__((constructor)) static void set(void) { state = 30; }
         long inner(void) { return state; }",
    ];
    let Some(objects) = objects.map(c).into_iter().collect::<Option<Vec<_>>>() else { return };
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "call_back", call_back as extern "C" fn());
    let known = add(&jit, jit.main_dylib(), "known.o", &objects[1]);
    let victim = add(&jit, jit.main_dylib(), "victim.o", &objects[2]);
    INSIDE.set(Some(Inside { jit: jit.clone(), object: objects[3].clone(), victim: Some(victim), calls: 0 }));
    let outer = add(&jit, jit.main_dylib(), "outer.o", &objects[0]);
    assert_eq!(long(&jit, "test"), 1);
    assert!(outer.remove().unwrap().is_complete());
    let inside = INSIDE.take().expect("set above");
    assert_eq!((inside.calls, inside.victim.is_some()), (1, false));
    assert!(known.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn an_initialiser_may_call_back() {
    calls_back_once(
        "extern void call_back(void); static long state;
         __attribute__((constructor)) static void set(void) { call_back(); state = 1; }
         long test(void) { return state; }",
    );
}

#[test]
fn a_finaliser_may_call_back() {
    calls_back_once(
        "extern void call_back(void);
         __attribute__((destructor)) static void unset(void) { call_back(); }
         long test(void) { return 1; }",
    );
}

#[test]
fn an_exit_handler_may_call_back() {
    calls_back_once(
        "extern void call_back(void); extern int atexit(void (*)(void));
         static void handler(void) { call_back(); }
         long test(void) { return atexit(handler) == 0; }",
    );
}

#[test]
fn linked_code_may_call_back_while_it_runs() {
    calls_back_once("extern void call_back(void); long test(void) { call_back(); return 1; }");
}

/// `Debug` output is written by code of the embedder, so no lock may be held.
#[test]
fn debug_output_of_a_generator_may_look_up_a_symbol() {
    use std::fmt::Write as _;
    use std::sync::Arc;

    use jittison::platform::ProcessSymbols;

    /// Looks up a symbol in each write.
    struct LooksUp(Jit, String);
    impl std::fmt::Write for LooksUp {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.1 += text;
            assert!(self.0.address_of(self.0.main_dylib(), "nowhere_at_all").is_err());
            Ok(())
        }
    }
    let jit = new_jit();
    let process = Arc::new(ProcessSymbols::new(["no-such-library.so".to_string()]));
    jit.main_dylib().add_generator(process.clone());
    let mut shown = LooksUp(jit, String::new());
    write!(shown, "{process:?}").unwrap();
    assert!(shown.1.starts_with("process symbols"), "{}", shown.1);
}
