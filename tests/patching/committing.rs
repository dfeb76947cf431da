//! Commits and rollbacks: which version callers reach.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use jittison::ErrorKind;

use crate::support::*;
use crate::*;

#[test]
fn a_commit_redirects_callers_and_the_first_commit_defines_the_names() {
    own_process!();
    let (Some(first), Some(second), Some(caller)) = (
        functions(&[("gemm", "n + 1")]),
        functions(&[("gemm", "n + 2")]),
        c(
            "extern long gemm(long); long (*const pointer)(long) = gemm; long test(void) { return gemm(10) * 100 + pointer(20); }",
        ),
    ) else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm", "stencil"]).unwrap();
    let prepared = link(&kernels, &first).unwrap();
    assert!(jit.address_of(jit.main_dylib(), "gemm").is_err(), "nothing is defined before the commit");
    // SAFETY: the function has this signature.
    let direct = unsafe { prepared.lookup::<Function>("gemm") }.unwrap();
    assert_eq!(direct.call(1), 2);
    assert_eq!(prepared.commit().unwrap().version, 1);
    let gemm = find(&jit, "gemm");
    add(&jit, jit.main_dylib(), "caller.o", &caller);
    assert_eq!((gemm.call(1), long(&jit, "test")), (2, 1121));
    assert!(jit.address_of(jit.main_dylib(), "stencil").is_err(), "no version defines it");
    assert_eq!(commit(&kernels, &second).version, 2);
    assert_eq!((gemm.call(1), long(&jit, "test"), direct.call(1)), (3, 1222, 2));
    let error = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotPatchable { .. }), "{error}");
}

#[test]
fn a_function_is_replaced_while_threads_call_it_and_no_call_goes_wrong() {
    own_process!();
    const CALLS: u64 = 5_000;
    // The result contains the version number twice. The loop makes calls long, so that versions are removed during calls.
    let body = |k| format!("({{ for (volatile int i = 0; i < 50000; i++); n * 1000 + {k} * 10 + {k}; }})");
    let objects: Vec<_> = (1..=4).filter_map(|k| functions(&[("gemm", &body(k))])).collect();
    if objects.is_empty() {
        return;
    }
    let jit = Jit::builder().trap_freed_code(true).build().unwrap();
    // Only guards keep a replaced version: it is freed as soon as no caller can be in it.
    let kernels =
        jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).max_versions(usize::MAX).build().unwrap();
    drop(commit(&kernels, &objects[0]));
    let calls = [AtomicU64::new(0), AtomicU64::new(0)];
    let (seen, wrong) = (AtomicU64::new(0), &AtomicU64::new(0));
    let (start, is_over) = (Barrier::new(3), AtomicBool::new(false));
    let mut commits = 0;
    thread::scope(|scope| {
        for count in &calls {
            let (gemm, start, is_over, seen, jit) = (find(&jit, "gemm"), &start, &is_over, &seen, &jit);
            scope.spawn(move || {
                start.wait();
                while !is_over.load(Ordering::Relaxed) {
                    let _guard = jit.guard();
                    let n = count.fetch_add(1, Ordering::Relaxed) as i64;
                    let result = gemm.call(n) - n * 1000;
                    if !matches!(result, 11 | 22 | 33 | 44) {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                    seen.fetch_or(1 << ((result / 11) & 63), Ordering::Relaxed);
                }
            });
        }
        start.wait();
        let needs_more_calls = || calls.iter().any(|count| count.load(Ordering::Relaxed) < CALLS);
        while needs_more_calls() || commits < 40 || seen.load(Ordering::Relaxed).count_ones() < 3 {
            commits += 1;
            drop(commit(&kernels, &objects[commits % objects.len()]));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
    assert_eq!(kernels.versions().len(), 1);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn many_functions_are_redirected_in_one_commit() {
    own_process!();
    let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let version = |k: usize| {
        let bodies: Vec<String> = (0..names.len()).map(|number| format!("n + {}", number * 1000 + k)).collect();
        functions(&names.iter().copied().zip(bodies.iter().map(String::as_str)).collect::<Vec<_>>())
    };
    let (Some(first), Some(second)) = (version(1), version(2)) else { return };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &names).unwrap();
    for (object, k) in [(&first, 1), (&second, 2)] {
        drop(commit(&kernels, object));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(find(&jit, name).call(0), (number * 1000 + k) as i64);
        }
    }
    assert_eq!(version_numbers(&kernels), (vec![1, 2], vec![2]));
}

#[test]
fn rollback_restores_the_previous_version_without_a_link_and_frees_the_new_one() {
    own_process!();
    let (Some(first), Some(second)) = (functions(&[("gemm", "n + 1")]), functions(&[("gemm", "n + 2")])) else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &first));
    let gemm = find(&jit, "gemm");
    let before = state_of(&jit);
    assert!(commit(&kernels, &second).retired.is_empty(), "the first version is in the history");
    assert_eq!(gemm.call(0), 2);
    let undone = kernels.rollback().unwrap();
    assert_eq!((undone.version, undone.retired.len(), gemm.call(0)), (2, 1, 1));
    assert!(undone.retired[0].is_complete());
    assert_eq!(state_of(&jit), before, "nothing was linked, and the second version is freed");
    assert_eq!(version_numbers(&kernels), (vec![1], vec![1]));
    let error = kernels.rollback().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NothingToRollBack { .. }), "{error}");
    assert_eq!(gemm.call(0), 1);
}

#[test]
fn the_history_keeps_the_configured_number_of_versions() {
    own_process!();
    let objects: Vec<_> = (1..=6).filter_map(|k| functions(&[("gemm", &format!("n + {k}"))])).collect();
    if objects.is_empty() {
        return;
    }
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(2).build().unwrap();
    let mut sizes = Vec::new();
    for object in &objects {
        assert!(commit(&kernels, object).retired.iter().all(|removal| removal.is_complete()));
        sizes.push(state_of(&jit));
    }
    assert_eq!(version_numbers(&kernels), (vec![4, 5, 6], vec![6]));
    assert_eq!((sizes[3], sizes[4]), (sizes[2], sizes[2]), "the size stays constant");
    for current in [5, 4] {
        drop(kernels.rollback().unwrap());
        assert_eq!((find(&jit, "gemm").call(0), version_numbers(&kernels).1), (current, vec![current as u64]));
    }
    assert!(kernels.rollback().is_err());
}

#[test]
fn a_version_may_define_some_functions_and_its_rollback_restores_those() {
    own_process!();
    let (Some(both), Some(one), Some(other)) = (
        functions(&[("gemm", "n + 1"), ("stencil", "n + 10")]),
        functions(&[("gemm", "n + 2")]),
        functions(&[("stencil", "n + 30")]),
    ) else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm", "stencil"]).history(2).build().unwrap();
    let results = || (find(&jit, "gemm").call(0), find(&jit, "stencil").call(0));
    drop(commit(&kernels, &both));
    drop(commit(&kernels, &one));
    assert_eq!((results(), version_numbers(&kernels)), ((2, 10), (vec![1, 2], vec![1, 2])));
    drop(commit(&kernels, &other));
    assert_eq!((results(), version_numbers(&kernels)), ((2, 30), (vec![1, 2, 3], vec![2, 3])));
    assert_eq!((kernels.rollback().unwrap().version, results()), (3, (2, 10)));
    assert_eq!((kernels.rollback().unwrap().version, results()), (2, (1, 10)));
    assert_eq!(version_numbers(&kernels), (vec![1], vec![1]));
}

#[test]
fn a_version_calls_functions_of_other_versions_through_their_stubs() {
    own_process!();
    let (Some(gemm), Some(stencil), Some(better)) = (
        c("extern long stencil(long); long gemm(long n) { return stencil(n) * 10; }"),
        functions(&[("stencil", "n + 1")]),
        functions(&[("stencil", "n + 2")]),
    ) else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm", "stencil"]).unwrap();
    drop(commit(&kernels, &stencil));
    drop(commit(&kernels, &gemm));
    assert_eq!(find(&jit, "gemm").call(1), 20);
    drop(commit(&kernels, &better));
    assert_eq!(find(&jit, "gemm").call(1), 30);
    assert!(jit.main_dylib().clear().unwrap().is_empty(), "stubs and versions refer to each other");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn concurrent_commits_are_serialised_and_none_is_lost() {
    own_process!();
    const EACH: i64 = 20;
    let names: Vec<String> = (0..3).map(|number| format!("f{number}")).collect();
    let object = |name: &str, k: i64| functions(&[(name, &format!("n + {k}"))]);
    if object("f0", 0).is_none() {
        return;
    }
    let jit = new_jit();
    let functions: Vec<&str> = names.iter().map(String::as_str).collect();
    let kernels = jit.patchable(jit.main_dylib(), &functions).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = functions
            .iter()
            .map(|name| {
                let (kernels, jit) = (&kernels, &jit);
                scope.spawn(move || {
                    for k in 1..=EACH {
                        drop(commit(kernels, &object(name, k).unwrap()));
                        assert_eq!(find(jit, name).call(0), k, "no other thread commits {name}");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(kernels.versions().len() <= 8);
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|worker| worker.unwrap());
    });
    let mut versions: Vec<u64> = version_numbers(&kernels).1;
    versions.dedup();
    assert_eq!(versions.len(), 3);
}
