//! `Jit::remove_now` frees code at once, even if handles, guards or other modules still hold it. Dropping those later changes
//! nothing.

use std::sync::mpsc::channel;

use jittison::session::{RequiredState, SymbolRequest, Visibility};
use jittison::{ErrorKind, Jit, Removal, ResourceTracker};

use crate::support::*;

fn remove_now(jit: &Jit, tracker: &ResourceTracker) -> Result<Removal, jittison::Error> {
    // SAFETY: nothing calls that code, now or later.
    unsafe { jit.remove_now(tracker) }
}

/// A session with two linked modules: `base`, and `user`, which calls it.
fn linked_pair() -> Option<(Jit, ResourceTracker, ResourceTracker)> {
    let (base, user) =
        (c("long base(void) { return 4; }")?, c("long base(void); long user(void) { return base() + 1; }")?);
    let jit = new_jit();
    let base = add(&jit, jit.main_dylib(), "base.o", &base);
    let user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_eq!(long(&jit, "user"), 5);
    Some((jit, base, user))
}

#[test]
fn remove_now_frees_held_code_and_later_drops_change_nothing() {
    let Some((jit, base, user)) = linked_pair() else { return };
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
    assert!(remove_now(&jit, &base).unwrap().is_complete(), "a second call succeeds, too");
    assert!(user.remove().unwrap().is_complete());
    assert_eq!((held(&jit), jit.session().pending_removals().len()), ((0, 0, 0), 0));
}

#[test]
fn remove_now_completes_a_pending_removal_and_runs_its_callback() {
    for is_guard in [false, true] {
        let Some((jit, base, user)) = linked_pair() else { return };
        let handle = (!is_guard).then(|| function::<extern "C" fn() -> i64>(&jit, "user"));
        let guard = is_guard.then(|| jit.guard());
        let pending = [base.remove().unwrap(), user.remove().unwrap()];
        assert!(pending.iter().all(|removal| !removal.is_complete()));
        let (sender, outcomes) = channel();
        pending[1].on_complete(move |outcome| sender.send(outcome.is_ok()).unwrap());
        assert!(remove_now(&jit, &user).unwrap().is_complete());
        assert!(outcomes.try_recv().unwrap());
        // `base` is freed with `user`, its only dependant, unless the guard holds it.
        assert_eq!((pending[0].is_complete(), pending[1].is_complete()), (!is_guard, true));
        drop((handle, guard));
        assert!(pending[0].is_complete());
        assert_eq!((held(&jit), jit.session().pending_removals().len()), ((0, 0, 0), 0));
    }
}

#[test]
fn remove_now_refuses_a_transferred_tracker() {
    let Some((jit, base, _user)) = linked_pair() else { return };
    base.transfer_to(&jit.main_dylib().default_tracker().unwrap()).unwrap();
    assert!(matches!(remove_now(&jit, &base).unwrap_err().kind(), ErrorKind::TrackerDefunct { .. }));
    assert_eq!(long(&jit, "base"), 4);
}

#[test]
fn a_pin_of_freed_code_refuses_a_new_dependency() {
    let Some((jit, _base, user)) = linked_pair() else { return };
    let (_, pin) = jit.main_dylib().pin("user").unwrap();
    let order = [(jit.main_dylib().clone(), Visibility::All)];
    let found = jit.session().lookup(&order, &[SymbolRequest::required("base")], RequiredState::Ready).unwrap();
    let base = found[0].symbol.clone().unwrap();
    pin.add_dependency(&base).unwrap();
    remove_now(&jit, &user).unwrap();
    let refused = pin.add_dependency(&base).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TrackerDefunct { .. }), "{refused}");
}
