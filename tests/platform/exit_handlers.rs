//! `atexit`, `__cxa_atexit` and static destructors: each handler belongs to the tracker of the object that registered it.

use crate::recorder::{recording_jit, take};
use crate::support::*;

fn registering(base: i64) -> String {
    format!(
        "#include <stdlib.h>\n
         extern void record(long);
         extern int __cxa_atexit(void (*)(void *), void *, void *); extern char __dso_handle;
         static void first(void) {{ record({base} + 1); }}
         static void second(void) {{ record({base} + 2); }}
         static void counted(void *argument) {{ record({base} + (long)argument); }}
         long register{base}(void) {{
             return atexit(first) + __cxa_atexit(counted, (void *)5, &__dso_handle) + atexit(second)
                    + __cxa_atexit(counted, (void *)6, &__dso_handle);
         }}
         __attribute__((destructor)) static void gone(void) {{ record({base} + 9); }}"
    )
}

#[test]
fn exit_handlers_run_at_removal_in_reverse_order_and_before_finalisers() {
    let Some(object) = c(&registering(100)) else { return };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "a.o", &object);
    assert_eq!(long(&jit, "register100"), 0);
    assert_eq!(take(), []);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [106, 102, 105, 101, 109]);
    drop(jit);
    assert_eq!(take(), [], "handlers run only once");
}

#[test]
fn a_handler_that_is_registered_by_a_versioned_name_belongs_to_its_object() {
    let source = registering(100).replace(
        "static void first",
        "__asm__(\".symver __cxa_atexit, __cxa_atexit@GLIBC_2.2.5\");\nstatic void first",
    );
    let Some(object) = c(&source) else { return };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "a.o", &object);
    assert_eq!(long(&jit, "register100"), 0);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [106, 102, 105, 101, 109]);
}

#[test]
fn removing_a_tracker_runs_only_its_own_handlers() {
    let (Some(a), Some(b)) = (c(&registering(100)), c(&registering(200))) else { return };
    let jit = recording_jit();
    let first = add(&jit, jit.main_dylib(), "a.o", &a);
    let second = add(&jit, jit.main_dylib(), "b.o", &b);
    long(&jit, "register100");
    long(&jit, "register200");
    long(&jit, "register100");
    assert!(second.remove().unwrap().is_complete());
    assert_eq!(take(), [206, 202, 205, 201, 209]);
    assert!(first.remove().unwrap().is_complete());
    assert_eq!(take(), [106, 102, 105, 101, 106, 102, 105, 101, 109]);
}

#[test]
fn handlers_of_two_objects_under_one_tracker_run_in_one_order() {
    let (Some(a), Some(b)) = (c(&registering(100)), c(&registering(200))) else { return };
    let jit = recording_jit();
    let first = add(&jit, jit.main_dylib(), "a.o", &a);
    let second = add(&jit, jit.main_dylib(), "b.o", &b);
    for name in ["register200", "register100", "register200"] {
        long(&jit, name);
    }
    second.transfer_to(&first).unwrap();
    assert!(first.remove().unwrap().is_complete());
    assert_eq!(take(), [206, 202, 205, 201, 106, 102, 105, 101, 206, 202, 205, 201, 109, 209]);
}

#[test]
fn an_exit_handler_registered_by_another_runs_next() {
    let Some(object) = c("
        #include <stdlib.h>\n
        extern void record(long);
        static void third(void) { record(3); }
        static void second(void) { record(2); atexit(third); }
        static void first(void) { record(1); }
        long test(void) { return atexit(first) + atexit(second); }
        __attribute__((destructor)) static void gone(void) { record(9); atexit(first); }")
    else {
        return;
    };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "a.o", &object);
    assert_eq!(long(&jit, "test"), 0);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [2, 3, 1, 9, 1]);
}

#[test]
fn static_objects_of_cpp_are_constructed_in_order_and_destroyed_in_reverse() {
    let source = |base: i64| {
        format!(
            "extern \"C\" void record(long);
             struct Noted {{ long n; explicit Noted(long n) : n({base} + n) {{ record(this->n); }} ~Noted() {{ record(-n); }} }};
             static Noted one(1);
             Noted two(2);
             __attribute__((init_priority(200))) static Noted early(3);
             namespace {{ Noted array[2] = {{ Noted(4), Noted(5) }}; }}
             extern \"C\" long test{base}() {{ static Noted late(6); return late.n + one.n; }}"
        )
    };
    for flags in [["-O0", "-fPIC"], ["-O2", "-fPIC"]] {
        let (Some(a), Some(b)) = (gxx(&flags, &source(100)), gxx(&flags, &source(200))) else { return };
        let jit = recording_jit();
        let (da, db) = (jit.create_dylib("a").unwrap(), jit.create_dylib("b").unwrap());
        [&da, &db].into_iter().for_each(|dylib| crate::recorder::install(&jit, dylib));
        let first = add(&jit, &da, "a.o", &a);
        let second = add(&jit, &db, "b.o", &b);
        assert_eq!(long_in(&jit, &da, "test100"), 207);
        assert_eq!(take(), [103, 101, 102, 104, 105, 106]);
        assert_eq!(long_in(&jit, &da, "test100"), 207);
        assert_eq!(long_in(&jit, &db, "test200"), 407);
        assert_eq!(take(), [203, 201, 202, 204, 205, 206]);
        assert!(first.remove().unwrap().is_complete());
        assert_eq!(take(), [-106, -105, -104, -102, -101, -103]);
        assert!(second.remove().unwrap().is_complete());
        assert_eq!(take(), [-206, -205, -204, -202, -201, -203]);
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn objects_that_need_a_dso_handle_link_after_sessions_with_failed_links() {
    let source = "struct S { ~S() {} }; S s; extern \"C\" long test() { return 3; }";
    for flags in [["-O1", "-fPIC"], ["-O1", "-fPIE"]] {
        let Some(object) = gxx(&flags, source) else { return };
        for _ in 0..3 {
            let (jit, _trackers) = linked(&[&object]);
            let again = jit.main_dylib().create_tracker().unwrap();
            assert!(jit.add_object(&again, "again.o", &object[..]).is_err(), "a duplicate definition");
            assert_eq!(long(&jit, "test"), 3);
        }
    }
}

#[test]
fn a_fork_after_the_removal_of_fork_handlers_calls_none_of_them() {
    own_process!();
    assert_fork_handlers_are_removed("pthread_atfork(handler, handler, handler)");
}

/// Symptom: objects with `pthread_atfork` of the C library's static part registered handlers that outlived their code.
#[test]
fn a_fork_after_the_removal_of_handlers_with_a_handle_calls_none_of_them() {
    own_process!();
    assert_fork_handlers_are_removed("__register_atfork(handler, handler, handler, &__dso_handle)");
}

#[test]
fn a_quick_exit_after_the_removal_of_its_handlers_calls_none_of_them() {
    own_process!();
    let registrations = ["at_quick_exit(handler)", "__cxa_at_quick_exit(handler, &__dso_handle)"];
    for registration in registrations {
        let source = format!(
            "extern char __dso_handle; extern int at_quick_exit(void (*)(void)); extern void record(long);
             extern int __cxa_at_quick_exit(void (*)(void), void *);
             static void handler(void) {{ record(1); }}
             long test(void) {{ return {registration}; }}"
        );
        let Some(object) = c(&source) else { return };
        let jit = crate::recorder::recording_jit();
        let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
        assert_eq!(long(&jit, "test"), 0);
        assert!(tracker.remove().unwrap().is_complete());
        // SAFETY: the child runs only the handlers of `quick_exit` and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a function of the C library; see above. Freed code is filled with traps, so a call would end the child.
            unsafe { quick_exit(0) };
        }
        assert_eq!(status_of(child), 0, "{registration}");
    }
}

unsafe extern "C" {
    fn quick_exit(status: libc::c_int) -> !;
}

/// Waits for the end of a child. Returns its status.
fn status_of(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: waits for the child. The kernel writes `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Registers `handler` by an expression that is 0 on success. Forks before and after the removal of its object.
fn assert_fork_handlers_are_removed(registration: &str) {
    let source = format!(
        "#include <pthread.h>
         extern long calls; extern char __dso_handle;
         extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
         static void handler(void) {{ calls++; }}
         long test(void) {{ return {registration}; }}"
    );
    let (Some(object), Some(counter)) = (c(&source), c("long calls; long count(void) { return calls; }")) else {
        return;
    };
    let jit = new_jit();
    let _counter = add(&jit, jit.main_dylib(), "counter.o", &counter);
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    assert_eq!(long(&jit, "test"), 0);
    let fork = || {
        // SAFETY: the child runs only the registered fork handlers and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child without running exit handlers.
            unsafe { libc::_exit(0) };
        }
        assert_eq!(status_of(child), 0, "the child exits normally");
    };
    let before = long(&jit, "count");
    fork();
    assert_eq!(long(&jit, "count"), before + 2, "the prepare handler and the parent handler ran");
    assert!(tracker.remove().unwrap().is_complete());
    // Freed code is filled with traps, so a call would end the process.
    fork();
}
