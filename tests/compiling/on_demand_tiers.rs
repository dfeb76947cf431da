//! Functions in tiers whose first tier is compiled at their first call, and compilers that return objects.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use jittison::{CompiledFunction, ReOptimizeLayer, ReOptimized};

use crate::support::*;
use crate::*;

/// A layer whose functions return the number of their tier, or one more than what `next_` has before it. `bad` fails.
fn tiers(jit: &Jit, calls: &[u64]) -> (ReOptimizeLayer, Log) {
    let log = Log::default();
    let compiled = log.clone();
    let compile = move |request: &CompileRequest<'_>| {
        compiled.push(format!("{} {}", request.function, request.tier));
        match (request.function == "bad", request.function.strip_prefix("next_")) {
            (true, _) => Err(Error::other("no source")),
            (_, Some(callee)) => one_more(request, callee).map(CompiledFunction::from),
            _ => number(request, request.tier as i32).map(CompiledFunction::from),
        }
    };
    (jit.reoptimize_layer(compile, calls), log)
}

fn add(layer: &ReOptimizeLayer, jit: &Jit, names: &[&str]) -> ReOptimized {
    // SAFETY: the functions have the signatures with which these tests call them, and may run.
    unsafe { layer.add_on_demand(jit.main_dylib(), names) }.unwrap()
}

#[test]
fn the_first_tier_is_compiled_at_the_first_call_and_the_next_when_the_count_is_used_up() {
    let (jit, reported, _) = session(Jit::builder());
    let (layer, log) = tiers(&jit, &[10]);
    let functions = add(&layer, &jit, &["f", "g", "next_f"]);
    let f = function::<Number>(&jit, "f");
    assert_eq!((functions.tier("f"), functions.tier("h"), log.take()), (Some(0), None, vec![]));
    assert!(!functions.reoptimize("f") && functions.versions("f").is_none(), "it has no tier yet");
    (0..10).for_each(|_| assert_eq!(f.call(), 1));
    await_tier(|| functions.tier("f") == Some(2));
    assert_eq!((f.call(), log.take()), (2, vec!["f 1".to_string(), "f 2".to_string()]));
    assert_eq!(call(&jit, "next_f"), 3, "linked code follows the tiers too");
    assert_eq!((functions.tier("g"), log.take()), (Some(0), vec!["next_f 1".to_string()]));
    drop(f);
    assert!(functions.remove().unwrap().iter().all(|removal| removal.is_complete()));
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
    assert!(reported.take().is_empty());
}

#[test]
fn first_calls_at_the_same_time_begin_a_function_once() {
    for _ in 0..20 {
        let (jit, ..) = session(Jit::builder());
        let (layer, log) = tiers(&jit, &[1_000_000]);
        let _functions = add(&layer, &jit, &["f", "next_f"]);
        let (next, start) = (function::<Number>(&jit, "next_f"), Barrier::new(3));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(next.call(), 2);
                });
            }
        });
        assert_eq!(log.sorted(), ["f 1", "next_f 1"]);
    }
}

#[test]
fn an_error_of_the_first_tier_reaches_the_caller_and_leaves_nothing() {
    let (jit, _, failed) = session(Jit::builder());
    let (layer, log) = tiers(&jit, &[10]);
    let functions = add(&layer, &jit, &["bad", "next_bad"]);
    assert_eq!((call(&jit, "bad"), call(&jit, "bad")), (-1, -1));
    assert_eq!(failed.take(), ["bad: no source", "bad: no source"]);
    assert_eq!(call(&jit, "next_bad"), 0);
    assert_eq!((functions.tier("bad"), log.take()), (Some(0), vec!["bad 1".to_string(), "next_bad 1".to_string()]));
    functions.remove().unwrap();
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn a_removal_or_a_clear_during_the_first_compilation_leaves_nothing() {
    for is_cleared in [false, true] {
        let (jit, _, failed) = session(Jit::builder());
        let functions: Arc<Mutex<Option<ReOptimized>>> = Arc::default();
        let (to_remove, dylib) = (functions.clone(), jit.main_dylib().clone());
        let layer = jit.reoptimize_layer(
            move |request: &CompileRequest<'_>| {
                match is_cleared {
                    true => drop(dylib.clear().unwrap()),
                    false => drop(to_remove.lock().unwrap().as_ref().unwrap().remove().unwrap()),
                }
                number(request, 1).map(CompiledFunction::from)
            },
            &[5],
        );
        *functions.lock().unwrap() = Some(add(&layer, &jit, &["f"]));
        let f = function::<Number>(&jit, "f");
        assert_eq!(f.call(), -1);
        assert_eq!(failed.take().len(), 1);
        drop(f);
        wait_until(|| state(&jit, jit.main_dylib()) == (0, (0, 0, 0)));
        // The names are free.
        let (again, _) = tiers(&jit, &[]);
        let _again = add(&again, &jit, &["f"]);
        assert_eq!(call(&jit, "f"), 1);
    }
}

#[test]
fn a_handle_keeps_the_tier_of_a_removed_function() {
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[100]);
    let functions = add(&layer, &jit, &["f"]);
    let f = function::<Number>(&jit, "f");
    assert_eq!(f.call(), 1);
    let removals = functions.remove().unwrap();
    assert!(removals.iter().any(|removal| !removal.is_complete()));
    assert_eq!(f.call(), 1);
    drop(f);
    assert!(removals.iter().all(|removal| removal.is_complete()));
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

/// An object in which `symbol` returns a number.
fn object(symbol: &str, number: u32) -> Option<Vec<u8>> {
    asm(&format!(
        ".globl \"{symbol}\"\n.type \"{symbol}\", @function\n\"{symbol}\":\n.cfi_startproc\nmov ${number}, %eax\nret\n\
         .cfi_endproc\n.size \"{symbol}\", .-\"{symbol}\"\n.section .note.GNU-stack,\"\",@progbits\n"
    ))
}

#[test]
fn a_compiler_may_return_objects() {
    let Some(_) = object("probe", 0) else { return };
    let compile = |request: &CompileRequest<'_>| {
        let bytes = object(request.symbol, 40 + request.tier).ok_or_else(|| Error::other("no assembler"))?;
        Ok(CompiledFunction::from_object(&format!("{}.o", request.function), bytes))
    };
    let (jit, ..) = session(Jit::builder());
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.compile_on_demand(compile).add(&tracker, &["lazy"]).unwrap();
    assert_eq!(call(&jit, "lazy"), 41);
    let functions = add(&jit.reoptimize_layer(compile, &[2]), &jit, &["both"]);
    let both = function::<Number>(&jit, "both");
    assert_eq!((both.call(), both.call()), (41, 41));
    await_tier(|| both.call() == 42);
    drop(both);
    functions.remove().unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn an_object_that_omits_the_function_fails_the_call() {
    let Some(other) = object("other", 1) else { return };
    let (jit, _, failed) = session(Jit::builder());
    let layer = jit
        .compile_on_demand(move |_: &CompileRequest<'_>| Ok(CompiledFunction::from_object("other.o", other.clone())));
    layer.add(&jit.main_dylib().default_tracker().unwrap(), &["omits"]).unwrap();
    assert_eq!(call(&jit, "omits"), -1);
    let failed = failed.take();
    assert!(failed[0].contains("does not define") && failed[0].contains("omits$body"), "{failed:?}");
}

#[test]
fn a_session_ends_though_its_functions_were_never_called() {
    let owned = Arc::new(AtomicUsize::new(0));
    let (weak, is_called) = (Arc::downgrade(&owned), Arc::new(AtomicBool::new(false)));
    let (jit, ..) = session(Jit::builder());
    let called = is_called.clone();
    let layer = jit.reoptimize_layer(
        move |request: &CompileRequest<'_>| {
            let _ = &owned;
            called.store(true, Ordering::Relaxed);
            number(request, 1).map(CompiledFunction::from)
        },
        &[5],
    );
    drop(add(&layer, &jit, &["f", "g"]));
    drop((layer, jit));
    assert_eq!(weak.strong_count(), 0, "the compiler goes with the session");
    assert!(!is_called.load(Ordering::Relaxed));
}
