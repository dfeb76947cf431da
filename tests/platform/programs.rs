//! Programs that end on one thread while another thread is in their code.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::{Program, ProgramEvent};

use crate::support::*;

/// Whether a finaliser has called `stay`.
static IS_FINALIZING: AtomicBool = AtomicBool::new(false);

extern "C" fn exit_on_another_thread() {
    thread::spawn(|| std::process::exit(1));
}

extern "C" fn wait_for_ever() {
    loop {
        thread::park();
    }
}

extern "C" fn wait_for_finalizer() {
    wait_until(|| IS_FINALIZING.load(Ordering::SeqCst));
}

extern "C" fn stay() {
    IS_FINALIZING.store(true, Ordering::SeqCst);
    wait_for_ever();
}

/// The exit status of a process whose code stays in memory. The C library and the test harness use others.
const HELD: i32 = 17;

/// Runs the calling test in its own process, which runs a program. Asserts that the program's code stays in memory.
fn assert_code_is_held(test: &str, source: &str) {
    if is_rerun(test) {
        return run(source);
    }
    let run = rerun(test).output().unwrap();
    let expected = if c(source).is_some() { HELD } else { 0 };
    assert_eq!(run.status.code(), Some(expected), "{} {}", run.status, String::from_utf8_lossy(&run.stderr));
}

/// Runs a program, and ends the process when the program is finalised.
fn run(source: &str) {
    let Some(object) = c(source) else { return };
    let jit = new_jit();
    let functions: [(&str, extern "C" fn()); 4] = [
        ("exit_on_another_thread", exit_on_another_thread),
        ("wait_for_ever", wait_for_ever),
        ("wait_for_finalizer", wait_for_finalizer),
        ("stay", stay),
    ];
    functions.into_iter().for_each(|(name, function)| define_function(&jit, jit.main_dylib(), name, function));
    let tracker = add(&jit, jit.main_dylib(), "program.o", &object);
    let program = Program::new(&jit, &tracker).unwrap();
    let observe = move |event| {
        if event == ProgramEvent::Finalized {
            let is_held = !tracker.remove().unwrap().is_complete();
            // SAFETY: ends the process at once, while another thread is in linked code.
            unsafe { libc::_exit(if is_held { HELD } else { 1 }) };
        }
    };
    // SAFETY: the object defines a `main` of C, and it may run.
    let status = unsafe { program.run("main", &[c"program".into()], observe) };
    unreachable!("the process has ended, and not with {status:?}");
}

#[test]
fn an_exit_on_another_thread_keeps_the_code_of_a_main_that_runs() {
    assert_code_is_held(
        this_test!(),
        "extern void exit_on_another_thread(void), wait_for_ever(void);
         int main(void) { exit_on_another_thread(); wait_for_ever(); return 0; }",
    );
}

#[test]
fn a_finaliser_on_another_thread_keeps_its_code_when_main_returns() {
    assert_code_is_held(
        this_test!(),
        "extern void exit_on_another_thread(void), wait_for_finalizer(void), stay(void);
         __attribute__((destructor)) static void gone(void) { stay(); }
         int main(void) { exit_on_another_thread(); wait_for_finalizer(); return 0; }",
    );
}
