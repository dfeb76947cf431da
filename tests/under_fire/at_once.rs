//! The removal that asks nobody: whoever holds what it frees finds nothing of it, and upsets nothing, when he lets go.

use std::sync::mpsc::channel;

use jittison::session::{RequiredState, SymbolRequest, Visibility};
use jittison::{ErrorKind, Jit, Removal, ResourceTracker};

use crate::support::*;

fn remove_now(jit: &Jit, tracker: &ResourceTracker) -> Result<Removal, jittison::Error> {
    // SAFETY: nobody calls that code, here or later.
    unsafe { jit.remove_now(tracker) }
}

/// A session with a function, and another that calls it; both linked.
fn scene() -> Option<(Jit, ResourceTracker, ResourceTracker)> {
    let (base, user) =
        (c("long base(void) { return 4; }")?, c("long base(void); long user(void) { return base() + 1; }")?);
    let jit = new_jit();
    let base = add(&jit, jit.main_dylib(), "base.o", &base);
    let user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_eq!(long(&jit, "user"), 5);
    Some((jit, base, user))
}

#[test]
fn what_is_removed_now_is_gone_whoever_holds_it_and_letting_go_of_it_changes_nothing() {
    let Some((jit, base, user)) = scene() else { return };
    let of_user = jit.usage(&user);
    let (handle, guard) = (function::<extern "C" fn() -> i64>(&jit, "base"), jit.guard());
    assert_eq!(base.dependents().len(), 1);
    let removal = remove_now(&jit, &base).unwrap();
    assert!(removal.is_complete());
    assert_eq!((removal.bytes(), removal.obstacles()), (0, Vec::new()));
    assert!(jit.address_of(jit.main_dylib(), "base").is_err());
    assert_eq!(jit.usage_of_dylib(jit.main_dylib()), of_user);
    let clone = handle.clone();
    drop((handle, clone, guard));
    assert_eq!(user.dependencies().len(), 0);
    assert!(remove_now(&jit, &base).unwrap().is_complete(), "a second time, too");
    assert!(user.remove().unwrap().is_complete());
    assert_eq!((held(&jit), jit.session().pending_removals().len()), ((0, 0, 0), 0));
}

#[test]
fn a_removal_that_waits_is_brought_to_its_end_and_told_so() {
    for is_guard in [false, true] {
        let Some((jit, base, user)) = scene() else { return };
        let handle = (!is_guard).then(|| function::<extern "C" fn() -> i64>(&jit, "user"));
        let guard = is_guard.then(|| jit.guard());
        let waiting = [base.remove().unwrap(), user.remove().unwrap()];
        assert!(waiting.iter().all(|removal| !removal.is_complete()));
        let (tell, told) = channel();
        waiting[1].on_complete(move |outcome| tell.send(outcome.is_ok()).unwrap());
        assert!(remove_now(&jit, &user).unwrap().is_complete());
        assert!(told.try_recv().unwrap());
        // What only the freed code referred to goes with it, unless something else holds it.
        assert_eq!((waiting[0].is_complete(), waiting[1].is_complete()), (!is_guard, true));
        drop((handle, guard));
        assert!(waiting[0].is_complete());
        assert_eq!((held(&jit), jit.session().pending_removals().len()), ((0, 0, 0), 0));
    }
}

#[test]
fn a_tracker_that_was_transferred_is_refused() {
    let Some((jit, base, _user)) = scene() else { return };
    base.transfer_to(&jit.main_dylib().default_tracker().unwrap()).unwrap();
    assert!(matches!(remove_now(&jit, &base).unwrap_err().kind(), ErrorKind::TrackerDefunct { .. }));
    assert_eq!(long(&jit, "base"), 4);
}

#[test]
fn a_pin_of_freed_code_is_told_that_its_own_tracker_is_gone_when_it_is_to_hold_another() {
    let Some((jit, _base, user)) = scene() else { return };
    let (_, pin) = jit.main_dylib().pin("user").unwrap();
    let order = [(jit.main_dylib().clone(), Visibility::All)];
    let found = jit.session().lookup(&order, &[SymbolRequest::required("base")], RequiredState::Ready).unwrap();
    let base = found[0].symbol.clone().unwrap();
    pin.add_dependency(&base).unwrap();
    remove_now(&jit, &user).unwrap();
    let refused = pin.add_dependency(&base).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TrackerDefunct { .. }), "{refused}");
}
