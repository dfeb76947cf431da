//! Other code removes the names of patched functions or of their versions, or clears the dylib in the middle of a commit. A
//! handle still reaches code that is in memory.

use std::sync::{Arc, Mutex};

use jittison::session::{Event, Observer};

use crate::support::*;
use crate::*;

/// A session whose `gemm` has one version, which adds 1. Replaced versions are removed at once.
fn patched(jit: &Jit) -> Option<Patchable> {
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm", "stencil"]).history(0).build().unwrap();
    drop(commit(&kernels, &functions(&[("gemm", "n + 1"), ("stencil", "n + 10")])?));
    Some(kernels)
}

/// The dylib of the newest version.
fn dylib_of_version(jit: &Jit) -> JitDylib {
    jit.session().dylibs().pop().unwrap()
}

/// The stub was found by its name, so nothing kept the version.
#[test]
fn a_handle_keeps_its_version_if_the_name_was_removed_before_the_dylib_is_cleared() {
    let jit = new_jit();
    let Some(kernels) = patched(&jit) else { return };
    let gemm = find(&jit, "gemm");
    jit.main_dylib().remove_symbols(&["gemm"]).unwrap();
    assert!(!jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(gemm.call(1), 2);
    drop((gemm, kernels));
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_handle_keeps_its_version_if_the_names_of_the_version_were_removed() {
    let jit = new_jit();
    let Some(kernels) = patched(&jit) else { return };
    let gemm = find(&jit, "gemm");
    dylib_of_version(&jit).remove_symbols(&["gemm", "stencil"]).unwrap();
    assert!(!jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(gemm.call(1), 2);
    drop((gemm, kernels));
    assert_eq!(held(&jit), (0, 0, 0));
}

/// The version accepted no dependants any more, and was freed with its own pin.
#[test]
fn a_handle_keeps_its_version_if_the_tracker_of_the_version_was_removed() {
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    let (Some(version), Some(user)) = (
        c("long calls; long gemm(long n) { calls++; return n + 1; }"),
        c("extern long calls; long count(void) { return calls; }"),
    ) else {
        return;
    };
    drop(commit(&kernels, &version));
    let gemm = find(&jit, "gemm");
    let user = add(&jit, jit.main_dylib(), "user.o", &user);
    jit.address_of(jit.main_dylib(), "count").unwrap();
    // The user depends on the published variable, which depends on the version.
    let mut version = user.dependencies();
    while let Some(next) = version.iter().flat_map(|tracker| tracker.dependencies()).next() {
        version = vec![next];
    }
    assert_ne!(version[0].dylib(), *jit.main_dylib());
    version[0].remove().unwrap();
    user.remove().unwrap();
    assert!(!jit.main_dylib().clear().unwrap().is_empty());
    drop((user, version, kernels));
    assert_eq!(gemm.call(1), 2);
}

/// The stub that has the name now was redirected, and the old one led to the removed version.
#[test]
fn a_commit_redirects_its_own_stub_if_another_stub_has_the_name_now() {
    extern "C" fn other(n: i64) -> i64 {
        n + 1000
    }
    let jit = new_jit();
    let Some(kernels) = patched(&jit) else { return };
    let gemm = find(&jit, "gemm");
    jit.main_dylib().remove_symbols(&["gemm"]).unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "gemm", function_address(&jit, other as extern "C" fn(i64) -> i64)).unwrap();
    let second = commit(&kernels, &functions(&[("gemm", "n + 2"), ("stencil", "n + 20")]).unwrap());
    assert!(second.retired.iter().all(|removal| removal.is_complete()));
    assert_eq!((gemm.call(1), find(&jit, "gemm").call(1)), (3, 1001));
}

/// Clears the dylib at the first redirect, from then on once.
#[derive(Default)]
struct Clears(Mutex<Option<JitDylib>>);

impl Observer for Clears {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Redirected { .. } = event
            && let Some(dylib) = self.0.lock().unwrap().take()
        {
            drop(dylib.clear());
        }
    }
}

/// The new version was freed though callers already reached it.
#[test]
fn handles_keep_the_versions_that_they_reach_if_an_observer_clears_the_dylib_in_the_middle_of_a_commit() {
    let observer = Arc::new(Clears::default());
    let jit = Jit::builder().trap_freed_code(true).observer(observer.clone()).build().unwrap();
    let Some(kernels) = patched(&jit) else { return };
    let (gemm, stencil) = (find(&jit, "gemm"), find(&jit, "stencil"));
    let second = link(&kernels, &functions(&[("gemm", "n + 2"), ("stencil", "n + 20")]).unwrap()).unwrap();
    *observer.0.lock().unwrap() = Some(jit.main_dylib().clone());
    let error = second.commit().unwrap_err();
    assert!(matches!(error.kind(), jittison::ErrorKind::PatchableGone { .. }), "{error}");
    let reached = (gemm.call(1), stencil.call(1));
    assert!([(2, 11), (3, 11), (2, 21), (3, 21)].contains(&reached), "{reached:?}");
    drop((gemm, stencil, kernels));
    assert_eq!(held(&jit), (0, 0, 0));
}
