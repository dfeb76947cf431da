//! `dependencies` and `dependents` of trackers, through emission, transfer and removal.

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
fn an_edge_is_added_by_emission_and_not_earlier() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.tracker());
    let (r, _answer) = fixture.claim_under(&bar, &["bar"], RequiredState::Ready);
    r.notify_resolved(|_| Some(address(2))).unwrap();
    let references = fixture.references(&["foo"]);
    assert_edges(&bar, &[], &[]);
    r.notify_emitted(references).unwrap();
    assert_edges(&bar, &[&foo], &[]);
    assert_edges(&foo, &[], &[&bar]);
}

#[test]
fn emitted_code_that_waits_already_has_its_edge() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.tracker(), fixture.tracker());
    let held = define_held_under(&foo, &["foo"]);
    bar.define(Unit::depending("bar", &["foo"], &fixture.manager, 2)).unwrap();
    let _answer = fixture.look_up(&["bar"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_edges(&bar, &[&foo], &[]);
    r.notify_emitted(Vec::new()).unwrap();
    assert_edges(&foo, &[], &[&bar]);
}

#[test]
fn edges_of_removed_trackers_stay_until_the_dependant_is_removed() {
    let fixture = Fixture::new();
    let foo = fixture.loaded("foo", 1);
    let bar = fixture.linked("bar", &["foo"], 2);
    foo.remove().unwrap();
    assert_edges(&bar, &[&foo], &[]);
    let listed = bar.dependencies();
    assert!(listed[0].is_defunct(), "the dependency is removed and still held");
    assert_edges(&foo, &[], &[&bar]);
    bar.remove().unwrap();
    assert_edges(&foo, &[], &[]);
    assert_edges(&bar, &[], &[]);
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn transfers_move_edges_and_a_merged_handle_lists_the_edges_of_its_destination() {
    let fixture = Fixture::new();
    let foo = fixture.loaded("foo", 1);
    let bar = fixture.linked("bar", &["foo"], 2);
    let (new_foo, new_bar) = (fixture.tracker(), fixture.tracker());
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
fn listing_dependencies_does_not_keep_a_tracker_from_merging_into_the_default_one() {
    let fixture = Fixture::new();
    let foo = fixture.loaded("foo", 1);
    let bar = fixture.linked("bar", &["foo"], 2);
    drop(foo);
    let default = fixture.main.default_tracker().unwrap();
    assert_edges(&bar, &[&default], &[]);
    let listed = bar.dependencies();
    drop(bar);
    assert_edges(&listed[0], &[], &[]);
    assert_eq!(fixture.manager.recorded_under(default.key()), [1, 2]);
}

#[test]
fn a_handle_from_dependencies_counts_as_an_owned_handle() {
    let fixture = Fixture::new();
    let foo = fixture.loaded("foo", 1);
    let bar = fixture.linked("bar", &["foo"], 2);
    let key = foo.key();
    let listed = bar.dependencies().pop().unwrap();
    drop(foo);
    assert_eq!(listed.key(), key);
    assert!(!listed.is_defunct(), "the listed handle is now the last one");
    listed.remove().unwrap();
    assert_eq!(fixture.main.symbol_state("foo"), None);
}

#[test]
fn edges_across_dylibs_and_rings_are_listed_from_both_ends() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.tracker(), fixture.tracker());
    foo.define(Unit::depending("foo", &["bar"], &fixture.manager, 1)).unwrap();
    bar.define(Unit::depending("bar", &["foo"], &fixture.manager, 2)).unwrap();
    fixture.find("foo").unwrap();
    assert_edges(&foo, &[&bar], &[&bar]);
    assert_edges(&bar, &[&foo], &[&foo]);
    let other = fixture.session.create_dylib("other").unwrap();
    let user = other.create_tracker().unwrap();
    other.set_link_order(&[(fixture.main.clone(), Visibility::All)]).unwrap();
    user.define(Unit::depending("user", &["foo"], &fixture.manager, 3)).unwrap();
    find_in(&fixture.session, &[&other], "user").unwrap();
    assert_edges(&foo, &[&bar], &[&bar, &user]);
    user.remove().unwrap();
    assert_edges(&foo, &[&bar], &[&bar]);
}
