//! What keeps versions, and what is freed together.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use jittison::ErrorKind;

use crate::support::*;
use crate::*;

/// A dylib whose code and versions refer to each other: `helper` of the dylib calls `gemm`. The versions of `gemm` call `helper`
/// and `stencil`.
fn entangled(jit: &Jit, dylib: &JitDylib) -> Option<Patchable> {
    let helper = c("extern long gemm(long); long state; long helper(long n) { return n ? gemm(n - 1) : ++state; }")?;
    let gemm = c(
        "extern long helper(long); extern long stencil(long); long calls; long gemm(long n) { calls++; return helper(n) + stencil(n); }",
    )?;
    let stencil = c("extern long calls; long stencil(long n) { return calls * 0 + 1; }")?;
    jit.add_object(&dylib.default_tracker().unwrap(), "helper.o", helper).unwrap();
    let kernels = jit.patchable(dylib, &["gemm", "stencil"]).unwrap();
    let first = c("long calls; long gemm(long n) { return n; } long stencil(long n) { return 100; }")?;
    drop(commit(&kernels, &first));
    drop(commit(&kernels, &gemm));
    drop(commit(&kernels, &stencil));
    assert_eq!(long_of(jit, dylib, "gemm", 3), 4 + 1);
    Some(kernels)
}

fn long_of(jit: &Jit, dylib: &JitDylib, name: &str, n: i64) -> i64 {
    try_function::<Function>(jit, dylib, name).unwrap().call(n)
}

#[test]
fn clearing_or_removing_the_dylib_removes_all_versions() {
    own_process!();
    for is_removed in [false, true] {
        for is_dropped in [false, true] {
            let jit = new_jit();
            let dylibs = jit.session().dylibs().len();
            let dylib = jit.create_dylib("patched").unwrap();
            let Some(kernels) = entangled(&jit, &dylib) else { return };
            let remaining = match is_dropped {
                true => (drop(kernels), None).1,
                false => Some(kernels),
            };
            let pending = if is_removed { jit.session().remove_dylib(&dylib) } else { dylib.clear() };
            assert!(pending.unwrap().is_empty());
            assert_eq!((held(&jit), dylib.symbol_count()), ((0, 0, 0), 0));
            assert_eq!(jit.session().dylibs().len(), dylibs + usize::from(!is_removed));
            let Some(kernels) = remaining else { continue };
            let error = link(&kernels, &functions(&[("gemm", "n")]).unwrap()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::PatchableGone { .. }), "{error}");
            assert!(kernels.rollback().is_err() && kernels.versions().is_empty());
            if !is_removed {
                let again = jit.patchable(&dylib, &["gemm"]).unwrap();
                drop(commit(&again, &functions(&[("gemm", "n")]).unwrap()));
                assert_eq!(long_of(&jit, &dylib, "gemm", 3), 3);
            }
        }
    }
}

#[test]
fn a_handle_keeps_the_current_function_when_the_dylib_is_cleared() {
    own_process!();
    let jit = new_jit();
    let dylib = jit.create_dylib("patched").unwrap();
    let Some(kernels) = entangled(&jit, &dylib) else { return };
    let gemm = try_function::<Function>(&jit, &dylib, "gemm").unwrap();
    assert!(!dylib.clear().unwrap().is_empty());
    assert_eq!(gemm.call(3), 4 + 2, "the other versions, the helper and the variables stay, too");
    drop(kernels);
    drop(gemm);
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_handle_outlives_the_session() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = entangled(&jit, jit.main_dylib()) else { return };
    let gemm = find(&jit, "gemm");
    drop(kernels);
    let memory = jit.layer().memory().clone();
    jit.session().end().unwrap();
    drop(jit);
    assert_eq!(gemm.call(3), 4 + 2);
    drop(gemm);
    assert_eq!(memory.statistics().allocations, 0);
}

#[test]
fn a_handle_to_a_version_keeps_it_and_what_it_calls() {
    own_process!();
    let jit = new_jit();
    let dylib = jit.create_dylib("patched").unwrap();
    let Some(kernels) = entangled(&jit, &dylib) else { return };
    let object =
        c("extern long helper(long); extern long stencil(long); long gemm(long n) { return helper(n) * 10 + stencil(n); }").unwrap();
    let prepared = link(&kernels, &object).unwrap();
    // SAFETY: the function has this signature.
    let direct = unsafe { prepared.lookup::<Function>("gemm") }.unwrap();
    drop(prepared.commit().unwrap());
    assert!(!dylib.clear().unwrap().is_empty());
    assert_eq!(direct.call(0), 21);
    drop(direct);
    assert_eq!(held(&jit), (0, 0, 0));
    drop(kernels);
}

#[test]
fn versions_stay_when_the_patchable_is_dropped() {
    own_process!();
    let Some(first) = functions(&[("gemm", "n + 1")]) else { return };
    let jit = new_jit();
    drop(commit(&jit.patchable(jit.main_dylib(), &["gemm"]).unwrap(), &first));
    assert_eq!(find(&jit, "gemm").call(0), 1);
    // Versions belong to the dylib, not to its default tracker.
    assert!(jit.main_dylib().default_tracker().unwrap().remove().unwrap().is_complete());
    assert_eq!(find(&jit, "gemm").call(0), 1);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn removing_the_dylib_of_a_version_removes_the_entire_patchable() {
    own_process!();
    let (Some(first), Some(caller)) =
        (functions(&[("gemm", "n + 1")]), c("extern long gemm(long); long test(void) { return gemm(1); }"))
    else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &first));
    add(&jit, jit.main_dylib(), "caller.o", &caller);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    let hidden = jit.session().dylibs().pop().unwrap();
    assert_eq!(hidden.name(), "main patch 1");
    assert!(!jit.session().remove_dylib(&hidden).unwrap().is_empty());
    assert!(jit.address_of(jit.main_dylib(), "gemm").is_err());
    assert_eq!(test.call(), 2, "code linked against the stub keeps everything that the stub reaches");
    drop(test);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn clearing_removes_all_versions_when_only_the_session_remains() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = entangled(&jit, jit.main_dylib()) else { return };
    let (session, main, memory) = (jit.session().clone(), jit.main_dylib().clone(), jit.layer().memory().clone());
    drop((kernels, jit));
    assert!(main.clear().unwrap().is_empty());
    assert_eq!(memory.statistics().allocations, 0);
    session.end().unwrap();
}

thread_local! {
    static INSIDE: RefCell<Option<Patchable>> = const { RefCell::new(None) };
    static SEEN: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn look() {
    let kernels = INSIDE.with_borrow(|kernels| kernels.clone()).unwrap();
    SEEN.with_borrow_mut(|seen| seen.push(version_numbers(&kernels).0));
}

#[test]
fn a_finaliser_of_a_version_finds_all_retired_versions_in_the_list() {
    own_process!();
    let (Some(first), Some(second), Some(third), Some(fourth)) = (
        functions(&[("gemm", "n + 1")]),
        c("extern void look(void); long counter = 1; long gemm(long n) { return n + counter; }
           __attribute__((destructor)) static void gone(void) { look(); }"),
        c("long counter = 1; long gemm(long n) { return n + counter + 1; }"),
        functions(&[("gemm", "n + 4")]),
    ) else {
        return;
    };
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "look", look as extern "C" fn());
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    INSIDE.set(Some(kernels.clone()));
    let prepared = link(&kernels, &first).unwrap();
    // SAFETY: the function has this signature.
    let direct = unsafe { prepared.lookup::<Function>("gemm") }.unwrap();
    drop(prepared.commit().unwrap());
    drop(commit(&kernels, &second));
    drop(commit(&kernels, &third));
    // No version uses the variable of the second one any more, which is therefore finalised.
    drop(commit(&kernels, &fourth));
    assert_eq!(SEEN.take(), [[1, 2, 4]]);
    assert_eq!((direct.call(0), version_numbers(&kernels)), (1, (vec![1, 4], vec![4])));
    INSIDE.set(None);
}

#[test]
fn a_held_version_is_in_the_list_while_another_thread_commits() {
    own_process!();
    let versions: Option<Vec<_>> = (0..3).map(|k| functions(&[("gemm", &format!("n + {k}"))])).collect();
    let Some(versions) = versions else { return };
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    let prepared = link(&kernels, &versions[0]).unwrap();
    // SAFETY: the function has this signature.
    let direct = unsafe { prepared.lookup::<Function>("gemm") }.unwrap();
    drop(prepared.commit().unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut missing = 0;
            while !is_over.load(Ordering::Relaxed) {
                missing += usize::from(!version_numbers(&kernels).0.contains(&1));
            }
            missing
        });
        for round in 0..200 {
            drop(commit(&kernels, &versions[1 + round % 2]));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap(), 0);
    });
    assert_eq!(direct.call(0), 0);
}
