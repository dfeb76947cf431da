//! Dylibs and the session: link order, clear, removal, end (ORC: CoreAPIsTest).

use std::sync::{Arc, Mutex};

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn assert_dylib_defunct<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.expect_err("the dylib is defunct");
    assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
}

#[test]
fn the_search_order_is_the_dylib_itself_then_its_link_order() {
    let fixture = Fixture::new();
    let [a, b] = ["a", "b"].map(|name| fixture.session.create_dylib(name).unwrap());
    fixture.main.set_link_order(&[(b.clone(), Visibility::ExportedOnly), (a.clone(), Visibility::All)]).unwrap();
    let names: Vec<_> = fixture.main.link_order().iter().map(|(dylib, _)| dylib.name().to_string()).collect();
    assert_eq!(names, ["b", "a"]);
    let order = fixture.main.search_order();
    assert_eq!(order[0], (fixture.main.clone(), Visibility::All));
    assert_eq!(order[1..], [(b, Visibility::ExportedOnly), (a, Visibility::All)]);
}

#[test]
fn a_dylib_in_its_own_link_order_is_searched_once() {
    let fixture = Fixture::new();
    fixture.main.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    assert_eq!(fixture.main.search_order().len(), 1);
}

#[test]
fn link_orders_may_form_a_cycle() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();
    other.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    assert_eq!((fixture.main.search_order().len(), other.search_order().len()), (2, 2));
    let error = find_in(&fixture.session, &[&fixture.main, &other], "nowhere");
    assert_not_found(error);
}

#[test]
fn clearing_leaves_a_dylib_that_can_be_used_again() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    fixture.main.clear().unwrap();
    assert!(tracker.is_defunct() && !fixture.main.is_defunct());
    assert_eq!(fixture.main.symbol_count(), 0);
    fixture.main.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 2);
}

#[test]
fn clearing_fails_lookups_in_flight() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    fixture.main.clear().unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert_tracker_defunct(held.take().notify_emitted(Vec::new()));
}

#[test]
fn removing_a_dylib_drops_lazy_units_and_fails_lookups_in_flight() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::never(&["lazy"]).logging(&fixture.log)).unwrap();
    let (r, answer) = fixture.claim(&["foo"], RequiredState::Ready);

    assert!(fixture.session.remove_dylib(&fixture.main).unwrap().is_empty());

    assert_eq!(fixture.log.take(), ["drop unit of lazy", "manager removes []"]);
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert!(r.notify_resolved(|_| Some(address(1))).is_err());
    r.fail(Error::other("late"));
    assert!(fixture.session.dylibs().is_empty());
    fixture.session.remove_dylib(&fixture.main).unwrap();
}

#[test]
fn a_removed_dylib_refuses_definitions_trackers_and_lookups() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    fixture.session.remove_dylib(&fixture.main).unwrap();
    assert!(fixture.main.is_defunct());
    assert_dylib_defunct(fixture.main.define(Unit::never(&["foo"])));
    assert_dylib_defunct(tracker.define(Unit::never(&["foo"])));
    assert_dylib_defunct(fixture.main.define_absolute([("foo".into(), address(1), EXPORTED)]));
    assert_dylib_defunct(fixture.main.create_tracker());
    assert_dylib_defunct(fixture.main.default_tracker());
    assert_dylib_defunct(fixture.find("foo"));
}

#[test]
fn a_query_resolved_while_its_dylib_closes_is_answered() {
    // Symptom: the completion was dropped between the close and the clear of the dylib, and the lookup hung.
    struct ResolvesWhenDropped(Mutex<Option<MaterializationResponsibility>>);
    impl DefinitionGenerator for ResolvesWhenDropped {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> jittison::error::Result<()> {
            Ok(())
        }
    }
    impl Drop for ResolvesWhenDropped {
        fn drop(&mut self) {
            let r = self.0.lock().unwrap().take().expect("dropped once");
            assert_dylib_defunct(r.notify_resolved(|_| Some(address(1))));
            // Leaked, so that only the removal can answer the query.
            std::mem::forget(r);
        }
    }
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Resolved);
    fixture.main.add_generator(Arc::new(ResolvesWhenDropped(Mutex::new(Some(held.take())))));
    fixture.session.remove_dylib(&fixture.main).unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}

#[test]
fn dylibs_are_listed_in_creation_order_and_names_need_not_differ() {
    let fixture = Fixture::new();
    for name in ["z", "a", "z"] {
        fixture.session.create_dylib(name).unwrap();
    }
    let names: Vec<_> = fixture.session.dylibs().iter().map(|dylib| dylib.name().to_string()).collect();
    assert_eq!(names, ["main", "z", "a", "z"]);
    let dylibs = fixture.session.dylibs();
    assert!(dylibs[1] != dylibs[3]);
}

#[test]
fn ending_removes_the_newest_dylib_first_and_closes_the_session() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    let late = fixture.session.create_dylib("late").unwrap();
    late.define(Unit::recording(&["bar"], &fixture.manager, 2)).unwrap();
    fixture.find("foo").unwrap();
    find_in(&fixture.session, &[&late], "bar").unwrap();

    fixture.session.end().unwrap();

    assert_eq!(fixture.manager.take_freed(), [2, 1]);
    assert!(matches!(fixture.session.create_dylib("x").unwrap_err().kind(), ErrorKind::SessionEnded));
    assert_dylib_defunct(fixture.find("foo"));
    fixture.session.end().unwrap();
}

#[test]
fn dropping_the_last_session_handle_ends_it_despite_dylib_and_tracker_handles() {
    let Fixture { session, main, manager, .. } = Fixture::new();
    let tracker = main.create_tracker().unwrap();
    tracker.define(Unit::recording(&["foo"], &manager, 1)).unwrap();
    find_in(&session, &[&main], "foo").unwrap();
    let clone = session.clone();
    drop(session);
    assert!(!main.is_defunct());
    drop(clone);
    assert!(main.is_defunct() && tracker.is_defunct());
    assert_eq!(manager.take_freed(), [1]);
}

#[test]
fn pending_side_effects_are_listed_until_their_unit_is_looked_up() {
    let fixture = Fixture::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    fixture.main.define(Unit::new(&[("init", flags), ("foo", EXPORTED)], |r| finish(r, 1))).unwrap();
    assert_eq!(fixture.main.pending_side_effects(), ["init".into()]);
    let found = fixture.main.lookup(&[SymbolRequest::required("foo")], RequiredState::Ready).unwrap();
    assert_eq!(found[0].address, address(1));
    assert!(fixture.main.pending_side_effects().is_empty());
}

#[test]
fn a_removed_dylib_in_a_search_order_is_an_error_even_if_a_later_one_has_the_symbol() {
    // The fast path for ready symbols must not skip the removed dylib.
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 7)).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 7);
    let removed = fixture.session.create_dylib("removed").unwrap();
    fixture.session.remove_dylib(&removed).unwrap();
    let order = [(removed, Visibility::All), (fixture.main.clone(), Visibility::All)];
    for requests in [&[SymbolRequest::required("foo"); 2][..1], &[SymbolRequest::required("foo"); 2]] {
        let error = fixture.session.lookup(&order, requests, RequiredState::Ready).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
    }
}

#[test]
fn a_removed_dylib_behind_one_that_has_all_symbols_is_not_searched() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 7)).unwrap();
    let removed = fixture.session.create_dylib("removed").unwrap();
    fixture.session.remove_dylib(&removed).unwrap();
    let order = [(fixture.main.clone(), Visibility::All), (removed, Visibility::All)];
    for _ in ["before it is ready", "after"] {
        let found = fixture.session.lookup(&order, &[SymbolRequest::required("foo")], RequiredState::Ready).unwrap();
        assert_eq!(found[0].address.value(), 7);
    }
}

#[test]
fn an_empty_session_ends_and_calls_no_manager() {
    drop(ExecutionSession::new());
    let session = ExecutionSession::default();
    session.end().unwrap();
    assert!(session.dylibs().is_empty());
    let fixture = Fixture::new();
    assert!(fixture.main.clear().unwrap().is_empty());
    assert_eq!(fixture.session.reclaim(), 0);
    fixture.session.end().unwrap();
    assert_eq!(fixture.log.take(), [""; 0], "no tracker existed, so no manager is called");
}

/// Removes `main` while a tracker of it is pinned. The removal of the tracker must be listed until the pin is dropped.
fn assert_listed(fixture: &Fixture, remove_dylib: impl FnOnce()) {
    let tracker = fixture.loaded("pinned", 1);
    let (_, pin) = fixture.main.pin("pinned").unwrap();
    remove_dylib();
    let pending: Vec<_> = fixture.session.pending_removals().iter().map(Removal::key).collect();
    assert_eq!(pending, [tracker.key()]);
    drop(pin);
    assert_eq!(fixture.session.pending_removals().len(), 0);
    assert_eq!(fixture.manager.take_freed(), [1]);
}

#[test]
fn a_pending_removal_stays_listed_when_its_dylib_is_removed_after_it() {
    let fixture = Fixture::new();
    assert_listed(&fixture, || {
        fixture.main.clear().unwrap();
        assert!(fixture.session.remove_dylib(&fixture.main).unwrap().is_empty());
    });
}

#[test]
fn a_pending_removal_stays_listed_when_an_observer_removes_its_dylib_again() {
    let again: Arc<Mutex<Option<(ExecutionSession, JitDylib)>>> = Arc::default();
    let taken = again.clone();
    let observer = move |event: &Event<'_>| {
        let again = if let Event::Retired { .. } = event { taken.lock().unwrap().take() } else { None };
        again.into_iter().for_each(|(session, dylib)| drop(session.remove_dylib(&dylib).unwrap()));
    };
    let fixture =
        Fixture::with_options(SessionOptions { observers: vec![Arc::new(observer)], ..SessionOptions::default() });
    *again.lock().unwrap() = Some((fixture.session.clone(), fixture.main.clone()));
    assert_listed(&fixture, || drop(fixture.session.remove_dylib(&fixture.main).unwrap()));
}
