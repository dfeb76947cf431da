//! Functions that are compiled again when they have been called often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use jittison::{CompiledFunction, ErrorKind, ReOptimizeLayer, ReOptimized};

use crate::support::*;
use crate::*;

/// A layer whose functions return the number of their tier. It logs what it compiles.
fn tiers(jit: &Jit, calls: &[u64]) -> (ReOptimizeLayer, Log) {
    let log = Log::default();
    let compiled = log.clone();
    let compile = move |request: &CompileRequest<'_>| {
        compiled.push(format!("{} {}", request.function, request.tier));
        number(request, request.tier as i32).map(CompiledFunction::from)
    };
    (jit.reoptimize_layer(compile, calls), log)
}

fn add(layer: &ReOptimizeLayer, jit: &Jit, names: &[&str]) -> ReOptimized {
    // SAFETY: the functions have the signatures with which these tests call them, and may run.
    unsafe { layer.add(jit.main_dylib(), names) }.unwrap()
}

#[test]
fn the_next_tier_is_compiled_when_the_count_is_used_up_and_not_before() {
    let (jit, reported, _) = session(Jit::builder());
    let (layer, log) = tiers(&jit, &[10]);
    let functions = add(&layer, &jit, &["f", "g"]);
    assert_eq!(log.take(), ["f 1", "g 1"], "tier 1 is compiled at once");
    let f = function::<Number>(&jit, "f");
    (0..9).for_each(|_| assert_eq!(f.call(), 1));
    assert!(log.take().is_empty());
    assert_eq!(f.call(), 1, "the call that uses the count up stays in tier 1");
    await_tier(|| functions.tier("f") == Some(2));
    assert_eq!((f.call(), log.take()), (2, vec!["f 2".to_string()]));
    assert_eq!((functions.tier("g"), functions.tier("h")), (Some(1), None));
    assert_eq!(functions.functions(), ["f", "g"]);
    (0..100).for_each(|_| assert_eq!(f.call(), 2));
    assert!(log.take().is_empty() && reported.take().is_empty());
    drop(f);
    assert!(functions.remove().unwrap().iter().all(|removal| removal.is_complete()));
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn tiers_follow_each_other() {
    for workers in [0, 2] {
        let (jit, ..) = session(Jit::builder().worker_threads(workers));
        let (layer, log) = tiers(&jit, &[1, 5, 2]);
        let functions = add(&layer, &jit, &["f"]);
        let (f, mut last) = (function::<Number>(&jit, "f"), 1);
        repeat_until(|| {
            let tier = f.call();
            assert!(tier >= last, "{tier} after {last}");
            last = tier;
            last == 4
        });
        await_tier(|| functions.tier("f") == Some(4));
        assert_eq!(log.take(), ["f 1", "f 2", "f 3", "f 4"]);
        assert!(!functions.reoptimize("f"), "there is no fifth tier");
        drop(f);
        wait_until(|| functions.versions("f").unwrap().len() == 1);
    }
}

#[test]
fn callers_on_many_threads_see_each_tier_whole_and_the_old_tier_is_freed() {
    let (jit, reported, _) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[5000]);
    for round in 0..10 {
        let functions = add(&layer, &jit, &["f"]);
        let f = function::<Number>(&jit, "f");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let f = f.clone();
                scope.spawn(move || {
                    repeat_until(|| {
                        let tier = f.call();
                        assert!(tier == 1 || tier == 2, "{tier}");
                        tier == 2
                    });
                    (0..1000).for_each(|_| assert_eq!(f.call(), 2));
                });
            }
        });
        let numbers = |functions: &ReOptimized| -> Vec<u64> {
            functions.versions("f").unwrap().iter().map(|version| version.version).collect()
        };
        wait_until(|| numbers(&functions) == [2]);
        drop(f);
        assert!(functions.remove().unwrap().iter().all(|removal| removal.is_complete()), "round {round}");
        assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)), "round {round}");
    }
    assert!(reported.take().is_empty());
}

#[test]
fn the_call_that_uses_the_count_up_keeps_its_arguments() {
    type Sum = extern "C" fn(i64, i64, i64, i64, i64, i64, f64) -> i64;
    let (jit, ..) = session(Jit::builder());
    let sum = |_: &mut GraphBuilder| MachineCode { bytes: machine_code::sum_of_arguments(), edges: Vec::new() };
    let compile = move |request: &CompileRequest<'_>| graph(request, sum).map(CompiledFunction::from);
    let functions = add(&jit.reoptimize_layer(compile, &[3]), &jit, &["sum"]);
    let sum = function::<Sum>(&jit, "sum");
    (0..6).for_each(|_| assert_eq!(sum.call(1, 20, 300, 4000, 50_000, 600_000, 7e6), 7_654_321));
    await_tier(|| functions.tier("sum") == Some(2));
    assert_eq!(sum.call(1, 20, 300, 4000, 50_000, 600_000, 7e6), 7_654_321);
}

#[test]
fn calls_from_linked_code_are_counted_and_follow_the_tiers() {
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[4]);
    let _functions = add(&layer, &jit, &["f"]);
    let on_demand = jit.compile_on_demand(|request: &CompileRequest<'_>| one_more(request, "f").map(Into::into));
    on_demand.add(&jit.main_dylib().default_tracker().unwrap(), &["caller"]).unwrap();
    let caller = function::<Number>(&jit, "caller");
    (0..4).for_each(|_| assert_eq!(caller.call(), 2));
    await_tier(|| caller.call() == 3);
}

#[test]
fn a_tier_that_cannot_be_compiled_is_reported_and_callers_stay() {
    let (jit, reported, _) = session(Jit::builder());
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = attempts.clone();
    let layer = jit.reoptimize_layer(
        move |request: &CompileRequest<'_>| match (request.tier, count.fetch_add(1, Ordering::Relaxed)) {
            (2, 1) => Err(Error::other("out of memory")),
            (2, 2) => panic!("out of registers"),
            (2, 3) => one_more(request, "nowhere").map(CompiledFunction::from),
            _ => number(request, request.tier as i32).map(CompiledFunction::from),
        },
        &[2],
    );
    let functions = add(&layer, &jit, &["f"]);
    let f = function::<Number>(&jit, "f");
    assert_eq!((f.call(), f.call()), (1, 1));
    for (attempt, problem) in ["out of memory", "out of registers", "nowhere"].iter().enumerate() {
        await_tier(|| !reported.sorted().is_empty());
        let error = reported.take();
        assert!(error.len() == 1 && error[0].contains(problem), "{error:?}");
        assert_eq!((f.call(), functions.tier("f"), functions.versions("f").unwrap().len()), (1, Some(1), 1));
        wait_until(|| functions.reoptimize("f") || attempts.load(Ordering::Relaxed) > attempt + 2);
    }
    await_tier(|| f.call() == 2);
    assert!(reported.take().is_empty());
}

#[test]
fn functions_that_are_removed_while_a_tier_is_compiled_leave_nothing() {
    for is_cleared in [false, true] {
        let (jit, reported, _) = session(Jit::builder());
        let ((begun, begins), (end, ends)) = (channel(), channel::<()>());
        let (begun, ends) = (Mutex::new(begun), Mutex::new(ends));
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        let layer = jit.reoptimize_layer(
            move |request: &CompileRequest<'_>| {
                if request.tier == 2 {
                    begun.lock().unwrap().send(()).unwrap();
                    let _ = ends.lock().unwrap().recv();
                    done.store(true, Ordering::Relaxed);
                }
                number(request, request.tier as i32).map(CompiledFunction::from)
            },
            &[1],
        );
        let functions = add(&layer, &jit, &["f"]);
        assert_eq!(call(&jit, "f"), 1);
        begins.recv_timeout(Duration::from_secs(120)).unwrap();
        let held_one = function::<Number>(&jit, "f");
        match is_cleared {
            true => drop(jit.main_dylib().clear().unwrap()),
            false => drop(functions.remove().unwrap()),
        }
        assert_eq!(held_one.call(), 1, "the handle keeps tier 1");
        drop(held_one);
        drop(end);
        wait_until(|| is_done.load(Ordering::Relaxed) && state(&jit, jit.main_dylib()) == (0, (0, 0, 0)));
        assert!(functions.versions("f").is_none());
        assert!(matches!(functions.remove().unwrap_err().kind(), ErrorKind::PatchableGone { .. }));
        assert!(reported.take().is_empty());
        // The name is free.
        let (again, _) = tiers(&jit, &[]);
        let again = add(&again, &jit, &["f"]);
        assert_eq!(call(&jit, "f"), 1);
        assert_eq!(again.tier("f"), Some(1));
    }
}

#[test]
fn a_caller_inside_a_replaced_tier_keeps_it_until_it_leaves() {
    static LEAVE: AtomicBool = AtomicBool::new(false);
    extern "C" fn wait_inside() -> i64 {
        wait_until(|| LEAVE.load(Ordering::Relaxed));
        10
    }
    let (jit, ..) = session(Jit::builder());
    define_absolute(jit.main_dylib(), "wait_inside", wait_inside as *const () as u64);
    let layer = jit.reoptimize_layer(
        |request: &CompileRequest<'_>| match request.tier {
            1 => one_more(request, "wait_inside").map(CompiledFunction::from),
            _ => number(request, 2).map(CompiledFunction::from),
        },
        &[1],
    );
    let functions = add(&layer, &jit, &["f"]);
    let f = function::<Number>(&jit, "f");
    std::thread::scope(|scope| {
        let _leaves = SetOnDrop(&LEAVE);
        let inside = f.clone();
        let caller = scope.spawn(move || inside.call());
        await_tier(|| functions.tier("f") == Some(2));
        assert_eq!(f.call(), 2);
        let versions = functions.versions("f").unwrap();
        assert!(versions.len() == 2 && versions[0].is_retired && !versions[0].held_by.is_empty(), "{versions:?}");
        LEAVE.store(true, Ordering::Relaxed);
        assert_eq!(caller.join().unwrap(), 11);
    });
    wait_until(|| functions.versions("f").unwrap().len() == 1);
}

#[test]
fn a_map_of_the_memory_shows_each_tier_and_its_counter() {
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[1]);
    let functions = add(&layer, &jit, &["f"]);
    let names = || -> Vec<String> {
        let map = jit.memory_map().unwrap();
        map.tenants.iter().map(|tenant| tenant.name.to_string()).collect()
    };
    assert!(["f tier 1", "call counter of f"].iter().all(|name| names().contains(&name.to_string())), "{:?}", names());
    assert!(functions.reoptimize("f"));
    await_tier(|| functions.tier("f") == Some(2) && functions.versions("f").unwrap().len() == 1);
    let names = names();
    assert!(names.contains(&"f tier 2".to_string()) && !names.contains(&"f tier 1".to_string()), "{names:?}");
}

#[test]
fn functions_that_cannot_all_be_added_leave_nothing() {
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[5]);
    define_absolute(jit.main_dylib(), "taken", 8);
    let before = state(&jit, jit.main_dylib());
    // SAFETY: as in `add`.
    let error = unsafe { layer.add(jit.main_dylib(), &["f", "taken"]) }.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPatchable { .. }), "{error}");
    assert_eq!(state(&jit, jit.main_dylib()), before);
}

#[test]
fn a_session_ends_though_its_functions_have_further_tiers() {
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[5]);
    drop(add(&layer, &jit, &["f"]));
    let owned = Arc::new(());
    let weak = Arc::downgrade(&owned);
    let last = jit.reoptimize_layer(
        move |request: &CompileRequest<'_>| {
            let _ = &owned;
            number(request, 1).map(CompiledFunction::from)
        },
        &[5],
    );
    drop(add(&last, &jit, &["g"]));
    drop((layer, last, jit));
    assert_eq!(weak.strong_count(), 0, "the compiler goes with the session");
}

#[test]
fn a_forked_child_compiles_further_tiers_itself() {
    own_process!();
    let (jit, ..) = session(Jit::builder());
    let (layer, _) = tiers(&jit, &[1]);
    let functions = add(&layer, &jit, &["in_parent", "in_child"]);
    let [in_parent, in_child] = ["in_parent", "in_child"].map(|name| function::<Number>(&jit, name));
    // Starts the thread that compiles.
    wait_until(|| in_parent.call() == 2);
    // SAFETY: the child has only this thread, and ends here.
    match unsafe { libc::fork() } {
        0 => {
            assert_eq!(in_child.call(), 1);
            wait_until(|| in_child.call() == 2 && functions.tier("in_child") == Some(2));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes `status`.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!((status, in_child.call()), (0, 1));
        }
    }
}

/// Symptom: the answer was that the next tier had begun. The compiler ran, and its result was thrown away.
#[test]
fn a_removed_function_has_no_next_tier() {
    let (jit, reported, _) = session(Jit::builder());
    let (layer, log) = tiers(&jit, &[1000]);
    let removed = add(&layer, &jit, &["f"]);
    drop(removed.remove().unwrap());
    let cleared = add(&layer, &jit, &["f"]);
    jit.main_dylib().clear().unwrap();
    assert!(!removed.reoptimize("f") && !cleared.reoptimize("f"));
    // SAFETY: as in `add`.
    let on_demand = unsafe { layer.add_on_demand(jit.main_dylib(), &["g"]) }.unwrap();
    assert_eq!(function::<Number>(&jit, "g").call(), 1);
    drop(on_demand.remove().unwrap());
    assert!(!on_demand.reoptimize("g"));
    drop((layer, jit));
    assert_eq!(log.take(), ["f 1", "f 1", "g 1"]);
    assert!(reported.take().is_empty());
}
