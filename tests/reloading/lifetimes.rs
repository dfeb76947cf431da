//! What stays in memory, and for how long.

use crate::*;

fn numbered(number: u32) -> Option<Vec<u8>> {
    c(&format!("long run(void) {{ return {number}; }}"))
}

#[test]
fn a_replaced_version_is_freed_when_no_call_is_in_it() {
    let (Some(one), Some(two)) = (numbered(1), numbered(2)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    drop(program.reload("a.o", &two));
    let before = program.state();
    for _ in 0..50 {
        let reload = program.reload("a.o", &one);
        assert!(reload.retired.iter().all(|removal| removal.is_complete()));
        let reload = program.reload("a.o", &two);
        assert_eq!((reload.retired.len(), reload.retired_in_memory), (1, 0));
    }
    assert_eq!(program.state(), before);
}

#[test]
fn a_call_keeps_the_version_that_it_is_in() {
    let (Some(one), Some(waits), Some(two)) =
        (numbered(1), c("long run(void (*wait)(void)) { wait(); return 2; }"), numbered(3))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &one)]);
    drop(program.reload("a.o", &waits));
    static STEP: std::sync::Barrier = std::sync::Barrier::new(2);
    extern "C" fn wait() {
        STEP.wait();
        STEP.wait();
    }
    std::thread::scope(|threads| {
        let run = support::function::<extern "C" fn(extern "C" fn()) -> i64>(&program.jit, "run");
        let caller = threads.spawn(move || run.call(wait));
        STEP.wait();
        let reload = program.reload("a.o", &two);
        assert_eq!((reload.retired[0].is_complete(), reload.retired_in_memory), (false, 1));
        assert_eq!(program.call("run"), 3);
        STEP.wait();
        assert_eq!(caller.join().unwrap(), 2);
    });
    assert_eq!(program.reload("a.o", &one).retired_in_memory, 0);
}

#[test]
fn the_last_versions_go_with_the_program() {
    let (Some(one), Some(two)) =
        (numbered(1), c("static long fresh = 40; long more(void) { return 0; } long run(void) { return fresh += 2; }"))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &one)]);
    let run = program.find("run");
    drop(program.reload("a.o", &two));
    let Program { jit, tracker, reloader } = program;
    // The tracker of the program may be another one by then.
    let other = jit.main_dylib().create_tracker().unwrap();
    tracker.transfer_to(&other).unwrap();
    let tracker = other;
    drop(reloader);
    assert_eq!(run.call(), 42);
    let removal = tracker.remove().unwrap();
    assert_eq!(run.call(), 44);
    drop(run);
    assert!(removal.is_complete());
    assert_eq!(jit.layer().key_count(), 0);
}

#[test]
fn nothing_is_linked_if_nothing_changed() {
    let (Some(one), Some(same)) = (numbered(1), c("long run(void)\n\n{ return 2 - 1; }")) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let before = program.state();
    let reload = program.reload("a.o", &same);
    assert!(reload.diff.is_empty() && reload.version == 0);
    assert_eq!(program.state(), before);
}

#[test]
fn a_reload_from_an_observer_is_refused() {
    let (Some(one), Some(two)) = (numbered(1), numbered(2)) else { return };
    use std::sync::{Arc, Mutex, OnceLock};
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (noted, again) = (seen.clone(), two.clone());
    let observe = move |event: &jittison::Event<'_>| {
        let is_redirect = matches!(event, jittison::Event::Redirected { .. });
        if let Some(program) = PROGRAM.get().filter(|_| is_redirect) {
            noted.lock().unwrap().push(program.try_reload("a.o", &again).map(drop).unwrap_err().to_string());
        }
    };
    let jit = Jit::builder().observer(Arc::new(observe)).build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let reloader = Reloader::new(&jit, &tracker).unwrap();
    reloader.add_object("a.o", &one[..]).unwrap();
    reloader.link().unwrap();
    let program = PROGRAM.get_or_init(|| Program { jit, tracker, reloader });
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 2);
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|error| error.contains("in progress")), "{seen:?}");
}
