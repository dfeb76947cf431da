//! Who refers to whom: `dependencies` and `dependents` of trackers, through emission, transfer and removal.

use jittison::session::*;

use crate::support::*;

fn keys(trackers: &[ResourceTracker]) -> Vec<ResourceKey> {
    let mut keys: Vec<_> = trackers.iter().map(ResourceTracker::key).collect();
    keys.sort();
    keys
}

#[track_caller]
fn assert_edges(tracker: &ResourceTracker, dependencies: &[&ResourceTracker], dependents: &[&ResourceTracker]) {
    let of = |trackers: &[&ResourceTracker]| keys(&trackers.iter().map(|t| (*t).clone()).collect::<Vec<_>>());
    assert_eq!(keys(&tracker.dependencies()), of(dependencies), "dependencies");
    assert_eq!(keys(&tracker.dependents()), of(dependents), "dependents");
}

#[test]
fn emission_makes_an_edge_and_not_before() {
    let world = World::new();
    let (foo, bar) = (world.loaded("foo", 1), world.tracker());
    let (unit, held) = Unit::held(&["bar"]);
    bar.define(unit).unwrap();
    let _answer = world.ask(&["bar"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(2))).unwrap();
    let references = world.references(&["foo"]);
    assert_edges(&bar, &[], &[]);
    r.notify_emitted(references).unwrap();
    assert_edges(&bar, &[&foo], &[]);
    assert_edges(&foo, &[], &[&bar]);
}

#[test]
fn code_that_waits_holds_already_what_it_waits_for() {
    let world = World::new();
    let (foo, bar) = (world.tracker(), world.tracker());
    let (unit, held) = Unit::held(&["foo"]);
    foo.define(unit).unwrap();
    bar.define(Unit::depending("bar", &["foo"], &world.books, 2)).unwrap();
    let _answer = world.ask(&["bar"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_edges(&bar, &[&foo], &[]);
    r.notify_emitted(Vec::new()).unwrap();
    assert_edges(&foo, &[], &[&bar]);
}

#[test]
fn removal_of_either_end() {
    let world = World::new();
    let foo = world.loaded("foo", 1);
    let bar = world.linked("bar", &["foo"], 2);
    foo.remove().unwrap();
    assert_edges(&bar, &[&foo], &[]);
    let listed = bar.dependencies();
    assert!(listed[0].is_defunct(), "removed, and still held");
    assert_edges(&foo, &[], &[&bar]);
    bar.remove().unwrap();
    assert_edges(&foo, &[], &[]);
    assert_edges(&bar, &[], &[]);
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn transfers_move_the_edges_and_a_merged_handle_answers_for_its_destination() {
    let world = World::new();
    let foo = world.loaded("foo", 1);
    let bar = world.linked("bar", &["foo"], 2);
    let (new_foo, new_bar) = (world.tracker(), world.tracker());
    bar.transfer_to(&new_bar).unwrap();
    assert_edges(&foo, &[], &[&new_bar]);
    foo.transfer_to(&new_foo).unwrap();
    assert_edges(&new_bar, &[&new_foo], &[]);
    assert_edges(&bar, &[&new_foo], &[]);
    assert_edges(&foo, &[], &[&new_bar]);
    new_bar.transfer_to(&new_foo).unwrap();
    assert_edges(&new_foo, &[], &[]);
}

#[test]
fn asking_does_not_keep_a_forgotten_tracker_from_going_to_the_default_one() {
    let world = World::new();
    let foo = world.loaded("foo", 1);
    let bar = world.linked("bar", &["foo"], 2);
    drop(foo);
    let default = world.main.default_tracker().unwrap();
    assert_edges(&bar, &[&default], &[]);
    let held = bar.dependencies();
    drop(bar);
    assert_edges(&held[0], &[], &[]);
    assert_eq!(world.books.under(default.key()), [1, 2]);
}

#[test]
fn a_handle_got_by_asking_is_a_handle_like_any_other() {
    let world = World::new();
    let foo = world.loaded("foo", 1);
    let bar = world.linked("bar", &["foo"], 2);
    let key = foo.key();
    let asked = bar.dependencies().pop().unwrap();
    drop(foo);
    assert_eq!(asked.key(), key);
    assert!(!asked.is_defunct(), "the asked-for handle is the last one now");
    asked.remove().unwrap();
    assert_eq!(world.main.symbol_state("foo"), None);
}

#[test]
fn edges_across_dylibs_and_rings_are_listed_from_both_ends() {
    let world = World::new();
    let (foo, bar) = (world.tracker(), world.tracker());
    foo.define(Unit::depending("foo", &["bar"], &world.books, 1)).unwrap();
    bar.define(Unit::depending("bar", &["foo"], &world.books, 2)).unwrap();
    world.find("foo").unwrap();
    assert_edges(&foo, &[&bar], &[&bar]);
    assert_edges(&bar, &[&foo], &[&foo]);
    let other = world.session.create_dylib("other").unwrap();
    let user = other.create_tracker().unwrap();
    other.set_link_order(&[(world.main.clone(), Visibility::All)]);
    user.define(Unit::depending("user", &["foo"], &world.books, 3)).unwrap();
    find_in(&world.session, &[&other], "user").unwrap();
    assert_edges(&foo, &[&bar], &[&bar, &user]);
    user.remove().unwrap();
    assert_edges(&foo, &[&bar], &[&bar]);
}
