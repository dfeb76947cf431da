//! Failures of a new version. After each, every caller still calls the old version, and the failure leaves nothing.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use jittison::session::Event;
use jittison::{Error, ErrorKind, Jit, Patch, Patchable};

use crate::support::*;
use crate::*;

/// A session with a committed first version, and the function `gemm`.
fn with_first_version(history: usize) -> Option<(Jit, Patchable, jittison::Function<Function>)> {
    let object = functions(&[("gemm", "n + 1")])?;
    let jit = new_jit();
    let builder = jit.patchable_builder(jit.main_dylib(), &["gemm", "stencil"]);
    let kernels = builder.history(history).max_versions(2).build().unwrap();
    let mut patch = kernels.patch();
    patch.add_object("first.o", object).unwrap().expect_signature("gemm", "i64(i64)");
    // SAFETY: the object belongs to the test.
    drop(unsafe { patch.link() }.unwrap().commit().unwrap());
    let gemm = find(&jit, "gemm");
    Some((jit, kernels, gemm))
}

/// The error for a second version that `prepare` changes. Asserts that the failure changed nothing.
fn refused(object: Option<Vec<u8>>, prepare: impl FnOnce(&mut Patch)) -> Option<Error> {
    let (jit, kernels, gemm) = with_first_version(1)?;
    let before = state_of(&jit);
    let mut patch = kernels.patch();
    patch.add_object("second.o", object?).unwrap();
    prepare(&mut patch);
    // SAFETY: the object belongs to the test.
    let error = unsafe { patch.link() }.unwrap_err();
    assert_eq!((state_of(&jit), gemm.call(0)), (before, 1), "after {error}");
    assert_eq!(version_numbers(&kernels), (vec![1], vec![1]));
    assert_says(&error, &["version 2 of `gemm`, `stencil` in dylib `main` was refused", "all callers still call"]);
    // The next version can be committed.
    assert_eq!(commit(&kernels, &functions(&[("gemm", "n + 3")])?).version, 3);
    assert_eq!(gemm.call(0), 3);
    Some(error)
}

#[test]
fn a_missing_symbol_refuses_the_version() {
    own_process!();
    let object = c("extern long no_such(long); long gemm(long n) { return no_such(n); }");
    let Some(error) = refused(object, |_| {}) else { return };
    assert_says(&error, &["`no_such`"]);
}

#[test]
fn a_version_without_patchable_or_required_functions_is_refused() {
    own_process!();
    let Some(error) = refused(c("long other(long n) { return n; }"), |_| {}) else { return };
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    let require = |patch: &mut Patch| {
        patch.require("stencil");
    };
    let Some(error) = refused(functions(&[("gemm", "n")]), require) else { return };
    assert_says(&error, &["symbols not found: `stencil`"]);
    let require = |patch: &mut Patch| {
        patch.require("typo");
    };
    let Some(error) = refused(functions(&[("gemm", "n")]), require) else { return };
    assert!(matches!(error.root_cause().kind(), ErrorKind::NotPatchable { .. }), "{error}");
}

#[test]
fn a_variable_where_a_function_should_be_is_refused() {
    own_process!();
    let Some(error) = refused(c("long gemm = 5;"), |_| {}) else { return };
    assert_says(&error, &["defines no function by this name"]);
}

#[test]
fn a_signature_that_differs_from_the_first_version_is_refused() {
    own_process!();
    let wrong = |patch: &mut Patch| {
        patch.expect_signature("gemm", "f64(f64)");
    };
    let Some(error) = refused(functions(&[("gemm", "n + 2")]), wrong) else { return };
    assert!(matches!(error.root_cause().kind(), ErrorKind::WrongSignature { .. }), "{error}");
    assert_says(&error, &["`i64(i64)`", "`f64(f64)`", "another name"]);
}

extern "C-unwind" fn panics() {
    std::panic::panic_any(33i64)
}

/// An initialiser that calls `panics`.
const FAILING: &str = "extern \"C\" void panics(); extern \"C\" long text(long n) { return n; }
    struct Fails { Fails() { panics(); } }; static Fails fails;
    extern \"C\" long gemm(long n) { return text(n) + 2; }";

/// Removes the dylib of a version.
fn remove_version(jit: &Jit, number: u64) {
    let name = format!("main patch {number}");
    let dylib = jit.session().dylibs().into_iter().find(|dylib| dylib.name() == name).unwrap();
    assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
}

#[test]
fn a_version_whose_initialiser_panics_stays_until_it_or_the_dylib_is_removed() {
    own_process!();
    let (Some(failing), Some((jit, kernels, gemm))) = (cpp(FAILING), with_first_version(1)) else { return };
    define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn());
    jit.patchable(jit.main_dylib(), &["other"]).unwrap();
    let before = state_of(&jit);
    let caught = catch_unwind(AssertUnwindSafe(|| link(&kernels, &failing))).unwrap_err();
    assert_eq!(caught.downcast_ref::<i64>(), Some(&33), "the original panic value");
    assert_eq!(gemm.call(0), 1);
    let after = state_of(&jit);
    assert_ne!(after.0, before.0, "the exception may lie in the version");
    // The exception may still propagate, or be stored, during calls of any thread.
    assert_eq!(version_numbers(&kernels), (vec![1], vec![1]));
    thread::scope(|threads| threads.spawn(|| drop((kernels.patch(), kernels.versions()))).join().unwrap());
    assert_eq!(state_of(&jit), after);
    remove_version(&jit, 2);
    assert_eq!(state_of(&jit), before);
    // The last handle of a set without a commit is dropped.
    let unused = jit.patchable(jit.main_dylib(), &["text"]).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(move || link(&unused, &failing))).is_err());
    assert_eq!(state_of(&jit), after);
    drop((gemm, kernels));
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

thread_local! {
    static INSIDE: RefCell<Option<Jit>> = const { RefCell::new(None) };
}

extern "C-unwind" fn clears_and_panics() {
    let jit = INSIDE.with_borrow(|jit| jit.clone()).unwrap();
    jit.main_dylib().clear().unwrap();
    std::panic::panic_any(33i64)
}

#[test]
fn a_version_that_fails_after_a_clear_is_removed_by_the_next_clear() {
    own_process!();
    let (Some(failing), Some((jit, kernels, gemm))) = (cpp(FAILING), with_first_version(1)) else { return };
    drop(gemm);
    let dylibs = jit.session().dylibs().len() - 1;
    define_function(&jit, jit.main_dylib(), "panics", clears_and_panics as extern "C-unwind" fn());
    INSIDE.set(Some(jit.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| link(&kernels, &failing))).is_err());
    assert_ne!(held(&jit), (0, 0, 0), "the exception may lie in the version");
    drop(kernels);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!((held(&jit), jit.session().dylibs().len()), ((0, 0, 0), dylibs));
    INSIDE.set(None);
}

#[test]
fn a_commit_of_a_removed_version_defines_no_function() {
    own_process!();
    let (Some(both), Some((jit, kernels, gemm))) =
        (functions(&[("gemm", "n + 2"), ("stencil", "n + 7")]), with_first_version(1))
    else {
        return;
    };
    let prepared = link(&kernels, &both).unwrap();
    let hidden = jit.session().dylibs().pop().unwrap();
    assert_eq!(hidden.name(), "main patch 2");
    // The prepared version pins its code.
    drop(jit.session().remove_dylib(&hidden));
    prepared.commit().unwrap_err();
    assert!(jit.address_of(jit.main_dylib(), "stencil").is_err());
    assert_eq!(gemm.call(0), 1);
    drop(commit(&kernels, &both));
    assert_eq!((gemm.call(0), find(&jit, "stencil").call(0)), (2, 7));
}

#[test]
fn a_prepared_version_that_is_dropped_leaves_nothing() {
    own_process!();
    let (Some(wrong), Some((jit, kernels, gemm))) =
        (functions(&[("gemm", "n - 1"), ("stencil", "n")]), with_first_version(1))
    else {
        return;
    };
    let before = state_of(&jit);
    let prepared = link(&kernels, &wrong).unwrap();
    // SAFETY: the function has this signature.
    let direct = unsafe { prepared.lookup::<Function>("gemm") }.unwrap();
    assert_ne!(direct.call(0), 1);
    drop((direct, prepared));
    assert_eq!((state_of(&jit), gemm.call(0)), (before, 1));
    assert!(jit.address_of(jit.main_dylib(), "stencil").is_err());
}

#[test]
fn a_name_defined_after_preparation_refuses_the_commit() {
    own_process!();
    let (Some(both), Some((jit, kernels, gemm))) =
        (functions(&[("gemm", "n + 2"), ("stencil", "n")]), with_first_version(1))
    else {
        return;
    };
    let prepared = link(&kernels, &both).unwrap();
    let tracker = add(&jit, jit.main_dylib(), "own.o", &functions(&[("stencil", "n + 100")]).unwrap());
    assert_eq!(find(&jit, "stencil").call(0), 100);
    let error = prepared.commit().unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
    assert_eq!((gemm.call(0), find(&jit, "stencil").call(0)), (1, 100));
    assert_eq!(version_numbers(&kernels), (vec![1], vec![1]));
    assert!(tracker.remove().unwrap().is_complete());
    drop(commit(&kernels, &both));
    assert_eq!((gemm.call(0), find(&jit, "stencil").call(0)), (2, 0));
}

#[test]
fn a_refused_or_dropped_first_version_leaves_nothing() {
    own_process!();
    let (Some(good), Some(bad)) =
        (functions(&[("gemm", "n")]), c("extern int no_such; int made = 3; long gemm(long n) { return no_such; }"))
    else {
        return;
    };
    let jit = new_jit();
    let before = state_of(&jit);
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    link(&kernels, &bad).unwrap_err();
    assert_eq!(state_of(&jit), before);
    drop(link(&kernels, &good).unwrap());
    assert_eq!(state_of(&jit), before);
    let prepared = link(&kernels, &good).unwrap();
    let own = add(&jit, jit.main_dylib(), "own.o", &good);
    prepared.commit().unwrap_err();
    assert!(own.remove().unwrap().is_complete());
    drop(kernels);
    assert_eq!(state_of(&jit), before);
}

#[test]
fn too_many_held_versions_refuse_another_and_name_their_holders() {
    own_process!();
    let Some((jit, kernels, gemm)) = with_first_version(0) else { return };
    let mut holders = Vec::new();
    for k in 2..=4 {
        let prepared = link(&kernels, &functions(&[("gemm", &format!("n + {k}"))]).unwrap()).unwrap();
        // SAFETY: the function has this signature.
        holders.push(unsafe { prepared.lookup::<Function>("gemm") }.unwrap());
        drop(prepared.commit().unwrap());
    }
    assert_eq!(version_numbers(&kernels), (vec![2, 3, 4], vec![4]));
    let retired: Vec<_> = kernels.versions().into_iter().filter(|version| version.is_retired).collect();
    assert_eq!(retired[0].held_by, ["an owned handle"]);
    let another = functions(&[("gemm", "n + 5")]).unwrap();
    let error = link(&kernels, &another).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooManyVersions { held: 2, limit: 2, .. }), "{error}");
    assert_says(&error, &["version 2 is held by an owned handle", "version 3"]);
    assert_eq!((gemm.call(0), holders[0].call(0)), (4, 2));
    holders.remove(0);
    drop(commit(&kernels, &another));
    assert_eq!(gemm.call(0), 5);
    drop((holders, gemm));
    drop(kernels);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_caller_that_does_not_return_limits_the_versions_and_is_named() {
    own_process!();
    let Some((jit, kernels, gemm)) = with_first_version(0) else { return };
    let version = |k: u64| functions(&[("gemm", &format!("n + {k}"))]).unwrap();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    let (entered, is_in) = std::sync::mpsc::channel();
    let inside = jit.clone();
    let body = move || {
        let _guard = inside.guard();
        entered.send(()).unwrap();
        may_leave.recv().unwrap();
    };
    let caller = std::thread::Builder::new().name("no-way-back".to_string()).spawn(body).unwrap();
    is_in.recv().unwrap();
    for k in 2..=3 {
        drop(commit(&kernels, &version(k)));
    }
    for _ in 0..10 {
        let error = link(&kernels, &version(4)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooManyVersions { held: 2, limit: 2, .. }), "{error}");
        assert_says(&error, &["version 1 is held by a guard of thread", "`no-way-back`"]);
    }
    assert_eq!(
        (gemm.call(0), kernels.versions().len()),
        (3, 3),
        "callers still work, and the number of versions is limited"
    );
    leave.send(()).unwrap();
    caller.join().unwrap();
    drop(commit(&kernels, &version(4)));
    assert_eq!((gemm.call(0), kernels.versions().len()), (4, 1));
}

/// Clears the dylib of version 2.
extern "C" fn clears_its_version() {
    let jit = INSIDE.with_borrow(|jit| jit.clone()).unwrap();
    let version = jit.session().dylibs().into_iter().find(|dylib| dylib.name() == "main patch 2").unwrap();
    version.clear().unwrap();
}

#[test]
fn a_version_that_other_code_removes_during_its_initialisers_has_no_failed_initialiser() {
    own_process!();
    let source = "extern \"C\" void clears(); struct Clears { Clears() { clears(); } }; static Clears clears_itself;
        extern \"C\" long gemm(long n) { return n + 2; }";
    let (Some(object), Some((jit, kernels, gemm))) = (cpp(source), with_first_version(1)) else { return };
    define_function(&jit, jit.main_dylib(), "clears", clears_its_version as extern "C" fn());
    INSIDE.set(Some(jit.clone()));
    let before = state_of(&jit);
    let mut patch = kernels.patch();
    patch.add_object("second.o", object).unwrap();
    // SAFETY: the object belongs to the test.
    let error = unsafe { patch.link() }.unwrap_err();
    INSIDE.set(None);
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_eq!((state_of(&jit), gemm.call(0)), (before, 1));
}

#[test]
fn a_version_whose_initialiser_fails_in_another_call_stays_in_memory() {
    own_process!();
    let (Some(failing), Some(object)) = (cpp(FAILING), functions(&[("gemm", "n + 1")])) else { return };
    let found = Arc::new(Mutex::new(None));
    let running = found.clone();
    // Initialises the version as soon as its function is ready, before the link does.
    let observer = move |event: &Event<'_>| {
        let Event::Published { dylib, .. } = event else { return };
        let jit = if dylib.name() == "main patch 1" { INSIDE.with_borrow(|jit| jit.clone()) } else { None };
        if let Some(jit) = jit {
            // SAFETY: the object belongs to the test.
            let failed = catch_unwind(AssertUnwindSafe(|| unsafe { jit.initialize(dylib) }));
            running.lock().unwrap().get_or_insert(failed.is_err());
        }
    };
    let jit = Jit::builder().observer(Arc::new(observer)).build().unwrap();
    define_function(&jit, jit.main_dylib(), "panics", panics as extern "C-unwind" fn());
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    INSIDE.set(Some(jit.clone()));
    let mut patch = kernels.patch();
    patch.add_object("first.o", failing).unwrap();
    // SAFETY: the object belongs to the test.
    let error = unsafe { patch.link() }.unwrap_err();
    INSIDE.set(None);
    assert_eq!(*found.lock().unwrap(), Some(true), "the initialiser has failed");
    assert!(matches!(error.root_cause().kind(), ErrorKind::InitializerFailed { .. }), "{error}");
    let is_kept = || jit.session().dylibs().iter().any(|dylib| dylib.name() == "main patch 1");
    assert!(is_kept(), "the exception may lie in the version");
    drop(commit(&kernels, &object));
    assert!(is_kept());
    remove_version(&jit, 1);
    assert!(!is_kept());
}
