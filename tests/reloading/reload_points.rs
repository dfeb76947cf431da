//! Reload points and threads of linked code.
//!
//! Freed code is filled with traps, so a test in which code is freed too early ends by a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::*;
use support::own_process;

/// What the objects of the tests have in common.
const OUTSIDE: &str = concat!(
    include_str!("../../crates/jittison-c/include/jittison_reload.h"),
    "\nextern void (*const wait_for_test)(void);\n"
);

/// A program with `wait_for_test`, which leads to a function of the test.
fn program(objects: &[(&str, &str)], wait: extern "C" fn()) -> Option<Program> {
    let pointer = format!("void (*const wait_for_test)(void) = (void (*)(void)){:#x};", wait as *const () as usize);
    let compiled: Option<Vec<(&str, Vec<u8>)>> = objects.iter().map(|(name, text)| Some((*name, of(text)?))).collect();
    let mut compiled = compiled?;
    compiled.push(("wait.o", c(&pointer)?));
    let objects: Vec<(&str, &[u8])> = compiled.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    Some(Program::new(&objects))
}

fn of(text: &str) -> Option<Vec<u8>> {
    support::gcc(&["-O2", "-fPIC", "-ffunction-sections", "-fdata-sections"], &format!("{OUTSIDE} {text}"))
}

/// Two steps of the test and of linked code, which wait for each other.
struct Steps {
    is_there: AtomicBool,
    may_go: AtomicBool,
}

impl Steps {
    const fn new() -> Steps {
        Steps { is_there: AtomicBool::new(false), may_go: AtomicBool::new(false) }
    }

    /// Linked code is there, and waits until it may go on.
    fn arrive(&self) {
        self.is_there.store(true, Ordering::Release);
        while !self.may_go.swap(false, Ordering::AcqRel) {
            std::thread::yield_now();
        }
    }

    fn wait(&self) {
        while !self.is_there.swap(false, Ordering::AcqRel) {
            std::thread::yield_now();
        }
    }

    fn go(&self) {
        self.may_go.store(true, Ordering::Release);
    }
}

/// The numbers of the replaced versions that are in memory, except those of the program.
fn replaced(program: &Program) -> Vec<u64> {
    let versions = program.reloader.versions().into_iter().filter(|version| version.is_replaced && version.version > 0);
    versions.map(|version| version.version).collect()
}

/// Waits until no replaced version is in memory.
fn wait_until_freed(program: &Program) {
    let started = Instant::now();
    while !replaced(program).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", program.reloader.versions());
        std::thread::yield_now();
    }
}

#[test]
fn a_function_that_never_returns_goes_on_in_its_new_version() {
    own_process!();
    static STEPS: Steps = Steps::new();
    extern "C" fn wait() {
        STEPS.arrive();
    }
    let run = |sign: &str| {
        format!(
            "long rounds; long run(void);
             long run(void) {{ for (;;) {{ rounds += {sign}; wait_for_test(); if (rounds > 1000) return rounds;
                 if (jittison_reload_point()) return jittison_newest(run)(); }} }}"
        )
    };
    let Some(program) = program(&[("a.o", &run("1"))], wait) else { return };
    let caller = program.find("run");
    let thread = std::thread::spawn(move || caller.call());
    let round = || {
        STEPS.wait();
        STEPS.go();
    };
    (0..3).for_each(|_| round());
    STEPS.wait();
    for (number, sign) in [(1, "10"), (2, "100"), (3, "1000")] {
        let Some(object) = of(&run(sign)) else { return };
        drop(program.reload("a.o", &object));
        STEPS.go();
        STEPS.wait();
        // It was on the stack at the last reload point, and the ones before are gone. Version 0 is the program.
        assert_eq!(replaced(&program), if number == 1 { vec![] } else { vec![number - 1] });
    }
    STEPS.go();
    // Four rounds of the first version, and one of each other.
    assert_eq!(thread.join().unwrap(), 4 + 10 + 100 + 1000);
    assert_eq!(replaced(&program), []);
}

#[test]
fn a_version_on_the_stack_stays_across_a_reload_point() {
    own_process!();
    static STEPS: Steps = Steps::new();
    extern "C" fn wait() {
        STEPS.arrive();
    }
    let outer = |number: u32| {
        format!(
            "void pass(void); long run(void) {{ wait_for_test(); pass(); pass(); wait_for_test(); return {number}; }}"
        )
    };
    let inner = "void pass(void) { jittison_reload_point(); }";
    let Some(program) = program(&[("a.o", &outer(0)), ("b.o", inner)], wait) else { return };
    for number in 1..=2 {
        let Some(object) = of(&outer(number)) else { return };
        drop(program.reload("a.o", &object));
    }
    let caller = program.find("run");
    let thread = std::thread::spawn(move || caller.call());
    STEPS.wait();
    let Some(object) = of(&outer(3)) else { return };
    drop(program.reload("a.o", &object));
    assert_eq!(replaced(&program), [2]);
    STEPS.go();
    STEPS.wait();
    // It has passed two reload points, and is still there.
    assert_eq!(replaced(&program), [2]);
    STEPS.go();
    assert_eq!(thread.join().unwrap(), 2);
    assert_eq!(replaced(&program), []);
}

#[test]
fn a_replaced_version_that_returned_is_freed_at_the_next_reload_point() {
    own_process!();
    static STEPS: Steps = Steps::new();
    extern "C" fn wait() {
        STEPS.arrive();
    }
    let step =
        |number: u32| format!("long step(void) {{ wait_for_test(); jittison_reload_point(); return {number}; }}");
    let main =
        "long step(void); long run(void) { long sum = step(); jittison_reload_point(); wait_for_test(); return sum; }";
    let Some(program) = program(&[("a.o", main), ("b.o", &step(0))], wait) else { return };
    let Some(object) = of(&step(1)) else { return };
    drop(program.reload("b.o", &object));
    let caller = program.find("run");
    let thread = std::thread::spawn(move || caller.call());
    STEPS.wait();
    let Some(object) = of(&step(2)) else { return };
    drop(program.reload("b.o", &object));
    STEPS.go();
    STEPS.wait();
    assert_eq!(replaced(&program), []);
    STEPS.go();
    assert_eq!(thread.join().unwrap(), 1);
}

/// Starts a thread by `start`, in a program whose `body` runs on it, and reloads while it is in `body`.
fn replace_under_a_thread(start: &str, language: fn(&str) -> Option<Vec<u8>>) {
    static STEPS: Steps = Steps::new();
    extern "C" fn wait() {
        STEPS.arrive();
    }
    let body = |number: u32| {
        format!(
            "long body_ran; void body(void) {{ wait_for_test(); body_ran = {number}; }} long ran(void) {{ return body_ran; }}"
        )
    };
    let pointer = format!("void (*const wait_for_test)(void) = (void (*)(void)){:#x};", wait as *const () as usize);
    let (Some(starts), Some(first), Some(second), Some(third), Some(pointer)) =
        (language(start), of(&body(0)), of(&body(1)), of(&body(2)), c(&pointer))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &starts), ("b.o", &first), ("wait.o", &pointer)]);
    drop(program.reload("b.o", &second));
    // The call of `run` ends, and the thread runs on.
    assert_eq!(program.call("run"), 0);
    STEPS.wait();
    drop(program.reload("b.o", &third));
    assert_eq!(replaced(&program), [1], "the thread has started in this version");
    STEPS.go();
    STEPS.wait();
    drop(program.reload("b.o", &first));
    // It has passed no reload point since its start.
    assert_eq!(replaced(&program), [2, 1], "the thread is in the newer one of these");
    STEPS.go();
    wait_until_freed(&program);
    assert_eq!(program.call("ran"), 2);
}

const PTHREADS: &str = "#include <pthread.h>
void body(void);
";

#[test]
fn a_thread_of_linked_code_keeps_the_version_that_it_is_in() {
    own_process!();
    let start = "static void *start(void *argument) { body(); body(); return argument; }
         long run(void) { pthread_t thread; return pthread_create(&thread, 0, start, 0) || pthread_detach(thread); }";
    replace_under_a_thread(&format!("{PTHREADS} {start}"), c);
}

#[test]
fn a_thread_that_ends_by_pthread_exit_or_a_cancellation_leaves_its_call() {
    own_process!();
    let start = "static void *start(void *argument) { body(); body(); pthread_exit(argument); }
         long run(void) { pthread_t thread; return pthread_create(&thread, 0, start, 0) || pthread_detach(thread); }";
    replace_under_a_thread(&format!("{PTHREADS} {start}"), c);
    let start = "static void *start(void *argument) { body(); body(); for (;;) pthread_testcancel(); }
         long run(void) { pthread_t thread;
             return pthread_create(&thread, 0, start, 0) || pthread_detach(thread) || pthread_cancel(thread); }";
    replace_under_a_thread(&format!("{PTHREADS} {start}"), c);
}

#[test]
fn a_thread_of_c11_is_counted() {
    own_process!();
    let start = "#include <threads.h>
         void body(void);
         static int start(void *argument) { body(); body(); return 0; }
         long run(void) { thrd_t thread; return thrd_create(&thread, start, 0) != thrd_success || thrd_detach(thread) != thrd_success; }";
    replace_under_a_thread(start, c);
}

#[test]
fn a_thread_of_cpp_is_counted() {
    own_process!();
    let start = "#include <thread>
         extern \"C\" void body(void);
         extern \"C\" long run(void) { std::thread([name = new int(3)] { body(); body(); delete name; }).detach(); return 0; }";
    replace_under_a_thread(start, cpp);
}

#[test]
fn the_function_behind_std_thread_is_offered_only_where_a_library_has_it() {
    own_process!();
    // A program with a state of its own.
    let name = "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE";
    let start = format!(
        "void start(void *thread, void *state, void *depend) __asm__(\"{name}\");
         long run(void) {{ void *state[4] = {{0}}; start(state, state, 0); return 0; }}"
    );
    let Some(object) = c(&start) else { return };
    let link = |jit: Jit| {
        let reloader = Reloader::new(&jit, &jit.main_dylib().create_tracker().unwrap()).unwrap();
        reloader.add_object("a.o", &*object).unwrap();
        reloader.link()
    };
    let error = link(Jit::new().unwrap()).unwrap_err().to_string();
    assert!(error.contains(name), "{error}");
    link(Jit::builder().library("libstdc++.so.6").build().unwrap()).unwrap();
}

#[test]
fn the_first_function_of_a_thread_stays_until_the_thread_has_entered_its_call() {
    own_process!();
    // Without `-ffunction-sections` the address of `start` is that of the version itself.
    let source = |number: u32| {
        format!(
            "{OUTSIDE} {PTHREADS} long ended; static void *start(void *argument) {{ ended = {number}; return argument; }}
             long run(void) {{ pthread_t thread; long failed = pthread_create(&thread, 0, start, 0); pthread_detach(thread); return failed; }}
             long ran(void) {{ return ended; }} void body(void) {{}}"
        )
    };
    let plain = |number| support::gcc(&["-O1", "-fPIC"], &source(number));
    let Some(first) = plain(0) else { return };
    let program = Program::new(&[("a.o", &first)]);
    for number in 1..50 {
        let Some(object) = plain(number) else { return };
        drop(program.reload("a.o", &object));
        assert_eq!(program.call("run"), 0);
    }
    wait_until_freed(&program);
}

#[test]
fn threads_with_reload_points_keep_no_versions_over_many_reloads() {
    own_process!();
    let count = if std::env::var_os("JITTISON_FULL").is_some_and(|full| full == "1") { 100_000 } else { 200 };
    extern "C" fn wait() {}
    let main = format!(
        "{PTHREADS} long step(long n); volatile int is_over; static pthread_t threads[2];
         static void *start(void *argument) {{
             for (long n = 0; !is_over; n++) {{ if (step(n) != n) return &threads; jittison_reload_point(); }} return 0; }}
         long begin(void) {{ is_over = 0; return pthread_create(&threads[0], 0, start, 0) || pthread_create(&threads[1], 0, start, 0); }}
         long end(void) {{ is_over = 1; void *first, *second; pthread_join(threads[0], &first); pthread_join(threads[1], &second);
             return first || second; }}"
    );
    let step = |body: &str| of(&format!("long step(long n) {{ {body} }}"));
    let (Some(program), Some(one), Some(two)) = (
        program(&[("a.o", &main), ("b.o", "long step(long n) { return n; }")], wait),
        step("return n + 0 * (long)&step;"),
        step("wait_for_test(); return n;"),
    ) else {
        return;
    };
    assert_eq!(program.call("begin"), 0);
    let (mut most, mut held) = (0, Vec::new());
    for number in 0..count {
        let reload = program.reload("b.o", if number % 2 == 0 { &two } else { &one });
        most = most.max(reload.retired_in_memory);
        if number % (count / 4) == count / 8 {
            wait_until_freed(&program);
            held.push(support::held(&program.jit));
        }
    }
    assert_eq!(program.call("end"), 0);
    eprintln!("{count} reloads: at most {most} replaced versions in memory; memory at four times: {held:?}");
    wait_until_freed(&program);
    assert!(held.windows(2).all(|pair| pair[0].1 == pair[1].1), "{held:?}");
}
