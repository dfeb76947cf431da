//! What stays in memory, and for how long.

use jittison::base::Name;
use jittison::session::{Alias, SymbolFlags};

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
        // Compared after the caller is out: a failed assertion would leave it waiting.
        let (kept, now) = ((reload.retired[0].is_complete(), reload.retired_in_memory), program.call("run"));
        STEP.wait();
        assert_eq!((caller.join().unwrap(), kept, now), (2, (false, 1), 3));
    });
    assert_eq!(program.reload("a.o", &one).retired_in_memory, 0);
}

#[test]
fn versions_says_what_runs_and_what_keeps_each_replaced_version() {
    let (Some(one), Some(fresh), Some(constant), Some(waits), Some(two)) = (
        c("long gone(void) { return 0; } long run(void) { return 1; }"),
        c("static long fresh = 40; long run(void) { return fresh += 2; }"),
        c("long run(void) { return 2; } long more(void) { return 0; }"),
        c("long run(void (*wait)(void)) { wait(); return 3; } long more(void) { return 0; }"),
        c("long run(void) { return 4; }"),
    ) else {
        return;
    };
    let program = Program::new(&[("a.o", &one)]);
    for object in [&fresh, &constant, &waits] {
        drop(program.reload("a.o", object));
    }
    static STEP: std::sync::Barrier = std::sync::Barrier::new(2);
    extern "C" fn wait() {
        STEP.wait();
        STEP.wait();
    }
    let versions = std::thread::scope(|threads| {
        let run = support::function::<extern "C" fn(extern "C" fn()) -> i64>(&program.jit, "run");
        threads.spawn(move || run.call(wait));
        STEP.wait();
        drop(program.reload("a.o", &two));
        // Compared after the caller is out: a failed assertion would leave it waiting.
        let versions = program.reloader.versions();
        STEP.wait();
        versions
    });
    let numbers: Vec<_> =
        versions.iter().map(|version| (version.version, version.functions, version.is_replaced)).collect();
    assert_eq!(numbers, [(4, 1, false), (3, 2, true), (1, 1, true), (0, 2, true)], "{versions:?}");
    assert!(versions.iter().all(|version| version.object == "a.o" && version.code_bytes > 0), "{versions:?}");
    let held =
        |version: u64| versions.iter().find(|other| other.version == version).map(|found| found.held_by.join("; "));
    assert_eq!(held(4).as_deref(), Some(""));
    let of_caller = held(3).unwrap();
    assert!(of_caller.contains("callers of `more`, which no newer version defines"), "{of_caller}");
    assert_eq!(held(1).as_deref(), Some("variables or exit handlers that it brought"));
    assert_eq!(held(0).as_deref(), Some("the program, which was linked with it"));
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
    // The stubs of new functions are among them.
    assert_eq!(jit.main_dylib().symbol_count(), 0);
}

#[test]
fn a_version_that_may_have_registered_a_handler_stays_until_the_reloader_is_dropped() {
    let registers = |number: u32| {
        c(&format!(
            "int atexit(void (*)(void)); static void f(void) {{}} long run(void) {{ if ({number}) return {number}; return atexit(f); }} \
                    long ask(void) {{ return atexit(f); }}"
        ))
    };
    let (Some(one), Some(two), Some(three)) = (numbered(1), registers(2), registers(3)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert!(program.reload("a.o", &two).stays);
    let reload = program.reload("a.o", &three);
    assert_eq!((reload.retired.len(), reload.retired_in_memory), (0, 0));
    assert_eq!(program.call("run"), 3);
}

#[test]
fn a_call_that_began_before_the_reloader_keeps_the_version_that_it_enters() {
    support::own_process!();
    let outer =
        c("extern long later(void (*)(void)); long outer(void (*wait)(void)) { wait(); return later(wait) * 10; }");
    let waits = c("long run(void (*wait)(void)) { wait(); return 2; }");
    let (Some(one), Some(outer), Some(waits), Some(three)) = (numbered(1), outer, waits, numbered(3)) else { return };
    static STEP: std::sync::Barrier = std::sync::Barrier::new(2);
    extern "C" fn wait() {
        STEP.wait();
        STEP.wait();
    }
    let jit = support::new_jit();
    let lazy = jit.main_dylib().create_tracker().unwrap();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let alias = Alias { name: Name::new("later"), aliasee: Name::new("run"), flags };
    jit.lazy_reexport(&lazy, jit.main_dylib(), &[alias]).unwrap();
    let callers = support::add(&jit, jit.main_dylib(), "outer.o", &outer);
    let outer = support::function::<extern "C" fn(extern "C" fn()) -> i64>(&jit, "outer");
    std::thread::scope(|threads| {
        let caller = threads.spawn(move || outer.call(wait));
        STEP.wait();
        // The call began before anything was reloaded, and enters a version now.
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let reloader = Reloader::new(&jit, &tracker).unwrap();
        reloader.add_object("a.o", &one[..]).unwrap();
        reloader.link().unwrap();
        let program = Program { jit: jit.clone(), tracker, reloader };
        drop(program.reload("a.o", &waits));
        STEP.wait();
        STEP.wait();
        let reload = program.reload("a.o", &three);
        // Compared after the caller is out: a failed assertion would leave it waiting.
        let is_kept = !reload.retired[0].is_complete();
        STEP.wait();
        assert_eq!((caller.join().unwrap(), is_kept), (20, true));
        drop((callers.remove().unwrap(), lazy.remove().unwrap()));
        assert!(reload.retired[0].is_complete());
    });
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

#[test]
fn many_reloads_keep_no_memory() {
    support::own_process!();
    let source = |number: u32| {
        c(&format!(
            "static long calls; long more(long n) {{ return n + {number}; }} long run(void) {{ calls++; return more(calls); }}"
        ))
    };
    let (Some(one), Some(two)) = (source(1), source(2)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let reload = |times: u32| {
        for number in 0..times {
            let done = program.reload("a.o", if number % 2 == 0 { &two } else { &one });
            assert_eq!(done.retired_in_memory, 0);
        }
        (support::held(&program.jit), support::resident_bytes())
    };
    let is_full = support::rounds(8) == 8;
    let (held, resident) = reload(200);
    let (held_now, resident_now) = reload(if is_full { 100_000 } else { 1000 });
    assert_eq!(held_now, held);
    let grown = resident_now.saturating_sub(resident);
    assert!(grown < 4 << 20, "{grown} bytes more are resident");
    println!("{grown} bytes more are resident");
}
