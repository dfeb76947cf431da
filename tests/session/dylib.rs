//! Dylibs and the session: link order, clearing, removing, ending (ORC: CoreAPIsTest).

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
    let world = World::new();
    let [a, b] = ["a", "b"].map(|name| world.session.create_dylib(name).unwrap());
    world.main.set_link_order(&[(b.clone(), Visibility::ExportedOnly), (a.clone(), Visibility::All)]);
    let names: Vec<_> = world.main.link_order().iter().map(|(dylib, _)| dylib.name().to_string()).collect();
    assert_eq!(names, ["b", "a"]);
    let order = world.main.search_order();
    assert_eq!(order[0], (world.main.clone(), Visibility::All));
    assert_eq!(order[1..], [(b, Visibility::ExportedOnly), (a, Visibility::All)]);
}

#[test]
fn a_dylib_that_names_itself_in_its_link_order_is_searched_once() {
    let world = World::new();
    world.main.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    assert_eq!(world.main.search_order().len(), 1);
}

#[test]
fn link_orders_may_form_a_cycle() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]);
    other.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    assert_eq!((world.main.search_order().len(), other.search_order().len()), (2, 2));
    let error = find_in(&world.session, &[&world.main, &other], "nowhere");
    assert_not_found(error);
}

#[test]
fn clearing_leaves_a_dylib_that_can_be_used_again() {
    let world = World::new();
    let tracker = world.loaded("foo", 1);
    world.main.clear().unwrap();
    assert!(tracker.is_defunct() && !world.main.is_defunct());
    assert_eq!(world.main.symbol_count(), 0);
    world.main.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(world.find("foo").unwrap(), 2);
}

#[test]
fn clearing_fails_what_is_in_flight() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    world.main.clear().unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert_tracker_defunct(held.take().notify_emitted(Vec::new()));
}

#[test]
fn removing_a_dylib_drops_lazy_units_and_fails_lookups_in_flight() {
    let world = World::new();
    world.main.define(Unit::never(&["lazy"]).logging(&world.log)).unwrap();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();

    assert!(world.session.remove_dylib(&world.main).unwrap().is_empty());

    assert_eq!(world.log.take(), ["drop unit of lazy", "books removes []"]);
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
    assert!(r.notify_resolved(|_| Some(address(1))).is_err());
    r.fail(Error::other("late"));
    assert!(world.session.dylibs().is_empty());
    world.session.remove_dylib(&world.main).unwrap();
}

#[test]
fn a_removed_dylib_refuses_everything_new() {
    let world = World::new();
    let tracker = world.tracker();
    world.session.remove_dylib(&world.main).unwrap();
    assert!(world.main.is_defunct());
    assert_dylib_defunct(world.main.define(Unit::never(&["foo"])));
    assert_dylib_defunct(tracker.define(Unit::never(&["foo"])));
    assert_dylib_defunct(world.main.define_absolute([("foo".into(), address(1), EXPORTED)]));
    assert_dylib_defunct(world.main.create_tracker());
    assert_dylib_defunct(world.main.default_tracker());
    assert_dylib_defunct(world.find("foo"));
}

#[test]
fn a_query_that_was_resolved_while_its_dylib_closed_is_told() {
    // The completion was dropped between the dylib's closing and its clearing, and the lookup hung.
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
            // Never dropped, so that only the removal is left to answer the query.
            std::mem::forget(r);
        }
    }
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Resolved);
    world.main.add_generator(Arc::new(ResolvesWhenDropped(Mutex::new(Some(held.take())))));
    world.session.remove_dylib(&world.main).unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}

#[test]
fn dylibs_are_listed_in_creation_order_and_names_need_not_differ() {
    let world = World::new();
    for name in ["z", "a", "z"] {
        world.session.create_dylib(name).unwrap();
    }
    let names: Vec<_> = world.session.dylibs().iter().map(|dylib| dylib.name().to_string()).collect();
    assert_eq!(names, ["main", "z", "a", "z"]);
    let dylibs = world.session.dylibs();
    assert!(dylibs[1] != dylibs[3]);
}

#[test]
fn ending_removes_the_newest_dylib_first_and_closes_the_session() {
    let world = World::new();
    world.main.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    let late = world.session.create_dylib("late").unwrap();
    late.define(Unit::recording(&["bar"], &world.books, 2)).unwrap();
    world.find("foo").unwrap();
    find_in(&world.session, &[&late], "bar").unwrap();

    world.session.end().unwrap();

    assert_eq!(world.books.take_given_back(), [2, 1]);
    assert!(matches!(world.session.create_dylib("x").unwrap_err().kind(), ErrorKind::SessionEnded));
    assert_dylib_defunct(world.find("foo"));
    world.session.end().unwrap();
}

#[test]
fn dropping_the_last_session_handle_ends_it_though_dylibs_and_trackers_are_held() {
    let World { session, main, books, .. } = World::new();
    let tracker = main.create_tracker().unwrap();
    tracker.define(Unit::recording(&["foo"], &books, 1)).unwrap();
    find_in(&session, &[&main], "foo").unwrap();
    let clone = session.clone();
    drop(session);
    assert!(!main.is_defunct());
    drop(clone);
    assert!(main.is_defunct() && tracker.is_defunct());
    assert_eq!(books.take_given_back(), [1]);
}

#[test]
fn side_effects_that_nobody_looked_for_are_listed_until_somebody_does() {
    let world = World::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    world.main.define(Unit::new(&[("init", flags), ("foo", EXPORTED)], |r| finish(r, 1))).unwrap();
    assert_eq!(world.main.pending_side_effects(), ["init".into()]);
    let found = world.main.lookup(&[SymbolRequest::required("foo")], RequiredState::Ready).unwrap();
    assert_eq!(found[0].address, address(1));
    assert!(world.main.pending_side_effects().is_empty());
}

#[test]
fn a_removed_dylib_in_a_search_order_is_an_error_even_where_another_has_the_symbol_ready() {
    // The short way for ready symbols would pass the removed dylib over.
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 7)).unwrap();
    assert_eq!(world.find("foo").unwrap(), 7);
    let removed = world.session.create_dylib("removed").unwrap();
    world.session.remove_dylib(&removed).unwrap();
    let order = [(removed, Visibility::All), (world.main.clone(), Visibility::All)];
    for requests in [&[SymbolRequest::required("foo"); 2][..1], &[SymbolRequest::required("foo"); 2]] {
        let error = world.session.lookup(&order, requests, RequiredState::Ready).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
    }
}

#[test]
fn a_removed_dylib_behind_the_one_that_has_everything_is_not_looked_at() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 7)).unwrap();
    let removed = world.session.create_dylib("removed").unwrap();
    world.session.remove_dylib(&removed).unwrap();
    let order = [(world.main.clone(), Visibility::All), (removed, Visibility::All)];
    for _ in ["before it is ready", "after"] {
        let found = world.session.lookup(&order, &[SymbolRequest::required("foo")], RequiredState::Ready).unwrap();
        assert_eq!(found[0].address.value(), 7);
    }
}

#[test]
fn a_session_that_nothing_was_put_into_ends_and_goes() {
    drop(ExecutionSession::new());
    let session = ExecutionSession::default();
    session.end().unwrap();
    assert!(session.dylibs().is_empty());
    let world = World::new();
    assert!(world.main.clear().unwrap().is_empty());
    assert_eq!(world.session.reclaim(), 0);
    world.session.end().unwrap();
    assert_eq!(world.log.take(), [""; 0], "no manager hears of trackers that never were");
}
