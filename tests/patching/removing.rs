//! Removal of a set of patchable functions.

use jittison::ErrorKind;

use crate::support::*;
use crate::*;

#[test]
fn a_removed_set_leaves_nothing_and_its_names_are_free() {
    own_process!();
    let (Some(first), Some(second), Some(other)) = (
        functions(&[("bump", "n + 1")]),
        c("long counter = 5; long bump(long n) { return counter += n; }"),
        functions(&[("other", "n * 3")]),
    ) else {
        return;
    };
    let jit = new_jit();
    let before = state_of(&jit);
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&kernels, &first));
    drop(commit(&kernels, &second));
    let beside = jit.patchable(jit.main_dylib(), &["other"]).unwrap();
    drop(commit(&beside, &other));

    let removals = kernels.remove().unwrap();
    assert!(removals.iter().all(|removal| removal.is_complete()), "{removals:?}");
    assert!(jit.main_dylib().symbol_flags("bump").is_none());
    assert!(jit.main_dylib().symbol_flags("counter").is_none());
    assert_eq!(find(&jit, "other").call(5), 15, "the other set stays");

    // The name can be made patchable again.
    let again = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&again, &second));
    assert_eq!(find(&jit, "bump").call(1), 6, "the variable is a new one");
    drop((again.remove().unwrap(), beside.remove().unwrap()));
    assert_eq!(state_of(&jit), before);
}

#[test]
fn a_handle_keeps_a_removed_function_and_its_version() {
    own_process!();
    let (Some(first), Some(second)) = (functions(&[("bump", "n + 1")]), functions(&[("bump", "n + 2")])) else {
        return;
    };
    let jit = new_jit();
    let before = state_of(&jit);
    let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).history(0).build().unwrap();
    drop(commit(&kernels, &first));
    drop(commit(&kernels, &second));
    let bump = find(&jit, "bump");
    let removals = kernels.remove().unwrap();
    assert_eq!(removals.iter().map(|removal| removal.is_complete()).collect::<Vec<_>>(), [false, false]);
    assert_eq!(bump.call(1), 3, "the handle keeps the current version");
    drop(bump);
    assert!(removals.iter().all(|removal| removal.is_complete()), "{removals:?}");
    drop((kernels, removals));
    assert_eq!(state_of(&jit), before);
}

#[test]
fn nothing_can_be_committed_after_a_removal_and_a_second_removal_is_refused() {
    own_process!();
    let (Some(first), Some(second)) = (functions(&[("bump", "n + 1")]), functions(&[("bump", "n + 2")])) else {
        return;
    };
    let jit = new_jit();
    let before = state_of(&jit);
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&kernels, &first));
    let prepared = link(&kernels, &second).unwrap();
    drop(kernels.remove().unwrap());
    let is_gone = |error: Error| matches!(error.kind(), ErrorKind::PatchableGone { .. });
    assert!(is_gone(prepared.commit().unwrap_err()));
    assert!(is_gone(link(&kernels, &second).unwrap_err()));
    assert!(is_gone(kernels.rollback().unwrap_err()));
    assert!(is_gone(kernels.remove().unwrap_err()));
    assert!(kernels.versions().is_empty());
    // A clear of the dylib finds nothing of the set.
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    drop(kernels);
    assert_eq!(state_of(&jit), before);
}

#[test]
fn a_set_is_removed_once_while_threads_commit_remove_and_clear() {
    own_process!();
    let (Some(first), Some(second)) = (functions(&[("bump", "n + 1")]), functions(&[("bump", "n + 2")])) else {
        return;
    };
    let jit = new_jit();
    let before = state_of(&jit);
    for round in 0..rounds(400) {
        let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).history(round % 2).build().unwrap();
        drop(commit(&kernels, &first));
        let removed = std::thread::scope(|threads| {
            threads.spawn(|| drop(link(&kernels, &second).and_then(PreparedPatch::commit)));
            let clears = (round % 3 == 0).then(|| threads.spawn(|| drop(jit.main_dylib().clear().unwrap())));
            let removers: Vec<_> = (0..2).map(|_| threads.spawn(|| kernels.remove().is_ok())).collect();
            let removed = removers.into_iter().filter_map(|remover| remover.join().ok()).filter(|is| *is).count();
            (removed, clears.is_some())
        });
        assert!(removed.0 == 1 || removed == (0, true), "{removed:?}");
    }
    assert_eq!(state_of(&jit), before);
}
