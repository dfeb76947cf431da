//! `Jit::initialize` opens a dylib and `Jit::deinitialize` closes it, as `dlopen` and `dlclose` do for a library.

use jittison::session::Visibility;
use jittison::{ErrorKind, Jit, JitDylib};

use crate::recorder::{install, recording_jit, take};
use crate::support::*;

/// An object that records its initialisers, finalisers and exit handler. If `calls` is not empty, it calls the function of that
/// name.
fn object(base: i64, calls: &str) -> Option<Vec<u8>> {
    let call = if calls.is_empty() { "0".to_string() } else { format!("{calls}()") };
    let declaration = if calls.is_empty() { String::new() } else { format!("extern long {calls}(void);") };
    c(&format!(
        "#include <stdlib.h>
         extern void record(long); {declaration}
         static void handler(void) {{ record({base} + 8); }}
         __attribute__((constructor(101))) static void early(void) {{ record({base} + 1); }}
         __attribute__((constructor)) static void late(void) {{ record({base} + 2); atexit(handler); }}
         __attribute__((destructor(101))) static void last(void) {{ record({base} + 4); }}
         __attribute__((destructor)) static void first(void) {{ record({base} + 3); }}
         long f{base}(void) {{ return {base} + {call}; }}"
    ))
}

/// A dylib that links against `others`.
fn dylib(jit: &Jit, name: &str, others: &[&JitDylib]) -> JitDylib {
    let dylib = jit.create_dylib(name).unwrap();
    install(jit, &dylib);
    let mut order: Vec<_> = others.iter().map(|other| ((*other).clone(), Visibility::ExportedOnly)).collect();
    order.extend(dylib.link_order());
    dylib.set_link_order(&order).unwrap();
    dylib
}

/// The events of closing an object: exit handler, finalisers.
const CLOSED: [i64; 3] = [8, 3, 4];

fn events_of(base: i64, events: &[i64]) -> Vec<i64> {
    events.iter().map(|event| base + event).collect()
}

#[test]
fn a_dylib_is_finalised_after_as_many_closings_as_openings() {
    let Some(a) = object(100, "") else { return };
    let jit = recording_jit();
    let main = jit.main_dylib();
    let tracker = add(&jit, main, "a.o", &a);
    let error = deinitialize(&jit, main).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotInitialized { .. }), "{error}");
    assert_eq!((initialize(&jit, main), initialize(&jit, main)), (2, 0));
    assert_eq!(take(), [101, 102]);
    assert_eq!(deinitialize(&jit, main).unwrap(), 0);
    assert_eq!(take(), []);
    assert_eq!(deinitialize(&jit, main).unwrap(), 3);
    assert_eq!(take(), events_of(100, &CLOSED));
    assert!(deinitialize(&jit, main).is_err());
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [], "finalisers run only once");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_closed_dylib_is_initialised_again_by_the_next_opening_or_lookup() {
    let Some(a) = object(100, "") else { return };
    let jit = recording_jit();
    let main = jit.main_dylib();
    let tracker = add(&jit, main, "a.o", &a);
    for round in 0..3 {
        match round {
            2 => assert_eq!(long(&jit, "f100"), 100),
            _ => assert_eq!(initialize(&jit, main), 2, "{round}"),
        }
        assert_eq!(take(), [101, 102], "{round}");
        match round {
            2 => assert!(tracker.remove().unwrap().is_complete()),
            _ => assert_eq!(deinitialize(&jit, main).unwrap(), 3),
        }
        assert_eq!(take(), events_of(100, &CLOSED), "{round}");
    }
}

#[test]
fn dependencies_are_initialised_first_and_stay_open_until_the_last_dependant_closes() {
    let (Some(base), Some(a), Some(b)) = (object(100, ""), object(200, "f100"), object(300, "f100")) else { return };
    let jit = recording_jit();
    let of_base = dylib(&jit, "base", &[]);
    let (of_a, of_b) = (dylib(&jit, "a", &[&of_base]), dylib(&jit, "b", &[&of_base]));
    let _trackers = [add(&jit, &of_a, "a.o", &a), add(&jit, &of_b, "b.o", &b), add(&jit, &of_base, "base.o", &base)];
    assert_eq!(initialize(&jit, &of_a), 4);
    assert_eq!(take(), [101, 102, 201, 202]);
    assert_eq!(initialize(&jit, &of_b), 2);
    assert_eq!(take(), [301, 302]);
    assert_eq!(deinitialize(&jit, &of_a).unwrap(), 3);
    assert_eq!(take(), events_of(200, &CLOSED), "b still has the base open");
    assert!(deinitialize(&jit, &of_base).is_err(), "the base was not opened directly");
    assert_eq!(long_in(&jit, &of_b, "f300"), 400);
    assert_eq!(deinitialize(&jit, &of_b).unwrap(), 6);
    assert_eq!(take(), [events_of(300, &CLOSED), events_of(100, &CLOSED)].concat());
}

#[test]
fn a_dependency_of_a_removed_dylib_stays_initialised_until_its_own_removal() {
    let (Some(base), Some(a)) = (object(100, ""), object(200, "f100")) else { return };
    let jit = recording_jit();
    let of_base = dylib(&jit, "base", &[]);
    let of_a = dylib(&jit, "a", &[&of_base]);
    let _trackers = [add(&jit, &of_a, "a.o", &a), add(&jit, &of_base, "base.o", &base)];
    initialize(&jit, &of_a);
    take();
    assert!(jit.session().remove_dylib(&of_a).unwrap().is_empty());
    assert_eq!(take(), events_of(200, &CLOSED));
    assert_eq!(long_in(&jit, &of_base, "f100"), 100);
    assert_eq!(take(), [], "the base is still initialised");
    assert!(jit.session().remove_dylib(&of_base).unwrap().is_empty());
    assert_eq!(take(), events_of(100, &CLOSED));
}

#[test]
fn removing_an_open_dylib_without_objects_ends_its_use_of_its_dependencies() {
    let Some(base) = object(100, "") else { return };
    let jit = recording_jit();
    let of_base = dylib(&jit, "base", &[]);
    let of_a = jit.create_dylib("a").unwrap();
    of_a.set_link_order(&[(of_base.clone(), Visibility::ExportedOnly)]).unwrap();
    let _tracker = add(&jit, &of_base, "base.o", &base);
    initialize(&jit, &of_base);
    initialize(&jit, &of_a);
    assert!(jit.session().remove_dylib(&of_a).unwrap().is_empty());
    take();
    assert_eq!(deinitialize(&jit, &of_base).unwrap(), 3);
    assert_eq!(take(), events_of(100, &CLOSED));
}

#[test]
fn a_dependency_of_a_removed_dylib_is_finalised_with_the_next_dylib_that_uses_it() {
    let (Some(base), Some(a), Some(b)) = (object(100, ""), object(200, "f100"), object(300, "f100")) else { return };
    let jit = recording_jit();
    let of_base = dylib(&jit, "base", &[]);
    let (of_a, of_b) = (dylib(&jit, "a", &[&of_base]), dylib(&jit, "b", &[&of_base]));
    let _trackers = [add(&jit, &of_a, "a.o", &a), add(&jit, &of_b, "b.o", &b), add(&jit, &of_base, "base.o", &base)];
    initialize(&jit, &of_a);
    assert!(jit.session().remove_dylib(&of_a).unwrap().is_empty());
    take();
    assert_eq!(initialize(&jit, &of_b), 2, "the base is still initialised");
    assert_eq!(deinitialize(&jit, &of_b).unwrap(), 6);
    assert_eq!(take()[2..], [events_of(300, &CLOSED), events_of(100, &CLOSED)].concat());
}

#[test]
fn removing_an_open_dylib_ends_its_use_of_its_dependencies() {
    let (Some(base), Some(a)) = (object(100, ""), object(200, "f100")) else { return };
    let jit = recording_jit();
    let of_base = dylib(&jit, "base", &[]);
    let of_a = dylib(&jit, "a", &[&of_base]);
    let _trackers = [add(&jit, &of_a, "a.o", &a), add(&jit, &of_base, "base.o", &base)];
    initialize(&jit, &of_base);
    initialize(&jit, &of_a);
    take();
    assert!(jit.session().remove_dylib(&of_a).unwrap().is_empty());
    assert_eq!(take(), events_of(200, &CLOSED));
    assert_eq!(deinitialize(&jit, &of_base).unwrap(), 3);
    assert_eq!(take(), events_of(100, &CLOSED));
}

#[test]
fn objects_added_to_an_open_dylib_are_initialised_by_the_next_opening_and_finalised_first() {
    let (Some(a), Some(b)) = (object(100, ""), object(200, "")) else { return };
    let jit = recording_jit();
    let main = jit.main_dylib();
    let _first = add(&jit, main, "a.o", &a);
    initialize(&jit, main);
    let _second = add(&jit, main, "b.o", &b);
    assert_eq!(initialize(&jit, main), 2);
    assert_eq!(take(), [101, 102, 201, 202]);
    assert_eq!(deinitialize(&jit, main).unwrap(), 0);
    assert_eq!(deinitialize(&jit, main).unwrap(), 6);
    assert_eq!(
        take(),
        [208, 108, 203, 204, 103, 104],
        "exit handlers first, then finalisers in exact reverse of the openings"
    );
}

static FINALISES: std::sync::Barrier = std::sync::Barrier::new(2);

extern "C" fn finalises_slowly() {
    FINALISES.wait();
    // Gives the other thread time to open the dylib. If it is slower, it finds the dylib closed, and the test passes too.
    std::thread::sleep(std::time::Duration::from_millis(200));
}

#[test]
fn opening_a_dylib_waits_for_its_finalisers_and_initialises_it_again() {
    let Some(object) = c("
        extern void finalises_slowly(void); static long depth;
        __attribute__((constructor)) static void set(void) { depth++; }
        __attribute__((destructor)) static void unset(void) { finalises_slowly(); depth--; }
        long is_initialised(void) { return depth == 1; }")
    else {
        return;
    };
    let jit = new_jit();
    let main = jit.main_dylib();
    define_function(&jit, main, "finalises_slowly", finalises_slowly as extern "C" fn());
    let tracker = add(&jit, main, "o.o", &object);
    initialize(&jit, main);
    let is_initialised = function::<extern "C" fn() -> i64>(&jit, "is_initialised");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| deinitialize(&jit, main).unwrap());
        FINALISES.wait();
        assert_eq!(initialize(&jit, main), 1);
        assert_eq!(closing.join().unwrap(), 1);
        assert_eq!(is_initialised.call(), 1);
    });
    drop(is_initialised);
    std::thread::scope(|scope| {
        scope.spawn(|| FINALISES.wait());
        assert!(tracker.remove().unwrap().is_complete());
    });
}

#[test]
fn threads_that_open_and_close_a_dylib_see_it_initialised_in_between() {
    let Some(object) = c("
        static long depth, most;
        __attribute__((constructor)) static void set(void) { depth++; if (depth > most) most = depth; }
        __attribute__((destructor)) static void unset(void) { depth--; }
        long is_initialised(void) { return depth == 1 && most == 1; }")
    else {
        return;
    };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    initialize(&jit, jit.main_dylib());
    let is_initialised = function::<extern "C" fn() -> i64>(&jit, "is_initialised");
    deinitialize(&jit, jit.main_dylib()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    initialize(&jit, jit.main_dylib());
                    assert_eq!(is_initialised.call(), 1);
                    deinitialize(&jit, jit.main_dylib()).unwrap();
                }
            });
        }
    });
    assert_eq!(is_initialised.call(), 0);
}

static INITIALISES: std::sync::Barrier = std::sync::Barrier::new(2);

extern "C" fn initialises_slowly() {
    INITIALISES.wait();
    INITIALISES.wait();
}

#[test]
fn a_dylib_opened_while_its_last_closing_waits_is_not_finalised() {
    let objects = [
        c("static long depth;
           __attribute__((constructor)) static void set(void) { depth++; }
           __attribute__((destructor)) static void unset(void) { depth--; }
           long is_initialised(void) { return depth == 1; }"),
        c("extern void initialises_slowly(void);
           __attribute__((constructor)) static void set(void) { initialises_slowly(); }
           long slow(void) { return 1; }"),
    ];
    let [Some(object), Some(slow)] = objects else { return };
    let jit = new_jit();
    let main = jit.main_dylib();
    define_function(&jit, main, "initialises_slowly", initialises_slowly as extern "C" fn());
    let _object = add(&jit, main, "o.o", &object);
    initialize(&jit, main);
    let is_initialised = function::<extern "C" fn() -> i64>(&jit, "is_initialised");
    let _slow = add(&jit, main, "slow.o", &slow);
    std::thread::scope(|scope| {
        // Runs initialisers until the barrier lets it continue.
        let looking_up = scope.spawn(|| long(&jit, "slow"));
        INITIALISES.wait();
        let (closing, pause) =
            (scope.spawn(|| deinitialize(&jit, main).unwrap()), std::time::Duration::from_millis(100));
        std::thread::sleep(pause);
        let opening = scope.spawn(|| initialize(&jit, main));
        std::thread::sleep(pause);
        INITIALISES.wait();
        assert_eq!((looking_up.join().unwrap(), opening.join().unwrap()), (1, 0));
        assert_eq!(closing.join().unwrap(), 0, "the dylib is still open");
        assert_eq!(is_initialised.call(), 1);
    });
    assert_eq!(deinitialize(&jit, main).unwrap(), 1);
}
