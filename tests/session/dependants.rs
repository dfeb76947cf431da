//! Dependants: code that refers to another tracker's code keeps that tracker's resources, also in rings.

use std::sync::Arc;

use jittison::base::Name;
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

/// Two trackers whose code refers to each other's. They have resources 1 and 2.
fn ring(fixture: &Fixture) -> (ResourceTracker, ResourceTracker) {
    let (a, b) = (fixture.tracker(), fixture.tracker());
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 2)).unwrap();
    fixture.find("a").unwrap();
    fixture.find("b").unwrap();
    (a, b)
}

#[test]
fn a_removal_is_not_complete_while_live_code_refers_into_it() {
    let fixture = Fixture::new();
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);

    let removal = b.remove().unwrap();

    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (0, 1));
    assert_not_found(fixture.find("b"));
    assert_eq!(fixture.find("a").unwrap(), 1, "the dependant still works");
    assert_eq!(fixture.log.take(), [""; 0]);

    assert!(a.remove().unwrap().is_complete());
    assert!(removal.is_complete());
    assert_eq!(removal.blockers(), (0, 0));
    assert_eq!(fixture.log.take(), ["manager removes [1]", "manager removes [2]"]);
}

#[test]
fn removing_the_dependant_first_leaves_nothing_in_the_way() {
    let fixture = Fixture::new();
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);
    assert!(a.remove().unwrap().is_complete());
    assert!(b.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
}

#[test]
fn a_chain_of_removed_dependants_is_freed_from_its_live_end() {
    let fixture = Fixture::new();
    let c = fixture.loaded("c", 3);
    let b = fixture.linked("b", &["c"], 2);
    let a = fixture.linked("a", &["b"], 1);
    let (of_c, of_b) = (c.remove().unwrap(), b.remove().unwrap());
    assert!(!of_c.is_complete() && !of_b.is_complete());
    a.remove().unwrap();
    assert!(of_c.is_complete() && of_b.is_complete());
    assert_eq!(fixture.manager.take_freed(), [1, 2, 3]);
}

#[test]
fn a_ring_is_reclaimed_as_one_batch_when_its_last_member_is_removed() {
    let fixture = Fixture::new();
    let late = LedgerManager::new("late", &fixture.log);
    fixture.session.register_manager(late);
    let (a, b) = ring(&fixture);
    let of_a = a.remove().unwrap();
    assert!(!of_a.is_complete());
    assert_eq!(of_a.blockers(), (0, 1));
    assert_eq!(fixture.log.take(), [""; 0]);

    let of_b = b.remove().unwrap();

    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(of_a.blockers(), (0, 0));
    assert_eq!(
        fixture.log.take(),
        ["late removes []", "late removes []", "manager removes [2]", "manager removes [1]"],
        "manager by manager, newest tracker first"
    );
}

#[test]
fn a_ring_across_dylibs_is_reclaimed_in_both() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();
    other.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    let (a, b) = (fixture.tracker(), other.create_tracker().unwrap());
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 2)).unwrap();
    fixture.find("a").unwrap();
    let pending = fixture.session.remove_dylib(&other).unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].blockers(), (0, 1));
    assert!(a.remove().unwrap().is_complete());
    assert!(pending[0].is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1], "newest dylib first");
}

#[test]
fn a_ring_that_live_code_refers_to_stays_until_that_code_is_removed() {
    let fixture = Fixture::new();
    let (a, b) = ring(&fixture);
    let user = fixture.linked("user", &["a"], 3);
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert!(!of_a.is_complete() && !of_b.is_complete());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 2), (0, 1)));
    user.remove().unwrap();
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(fixture.manager.take_freed(), [3, 2, 1]);
}

#[test]
fn a_ring_that_a_pin_holds_stays_until_the_pin_is_dropped() {
    let fixture = Fixture::new();
    let (a, b) = ring(&fixture);
    let (_, pin) = fixture.main.pin("b").unwrap();
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 1), (1, 1)));
    drop(pin);
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_transfer_moves_the_pins_of_dependants() {
    let fixture = Fixture::new();
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);
    let destination = fixture.tracker();
    b.transfer_to(&destination).unwrap();
    let removal = destination.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
}

#[test]
fn a_transfer_moves_the_dependencies_of_the_source() {
    let fixture = Fixture::new();
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);
    let destination = fixture.tracker();
    a.transfer_to(&destination).unwrap();
    let removal = b.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    destination.remove().unwrap();
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
}

#[test]
fn a_transfer_between_dependant_and_dependency_leaves_no_pin_on_itself() {
    for forward in [true, false] {
        let fixture = Fixture::new();
        let b = fixture.loaded("b", 2);
        let a = fixture.linked("a", &["b"], 1);
        let (from, into) = if forward { (&a, &b) } else { (&b, &a) };
        from.transfer_to(into).unwrap();
        let removal = into.remove().unwrap();
        assert!(removal.is_complete(), "blocked by {:?}", removal.blockers());
    }
}

#[test]
fn a_transferred_ring_is_free_once_it_is_one_tracker() {
    let fixture = Fixture::new();
    let (a, b) = ring(&fixture);
    a.transfer_to(&b).unwrap();
    assert!(b.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn two_dependants_that_become_one_tracker_count_as_one_blocker() {
    // Symptom: the ticket counted both dependants, although only one tracker remained.
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let (a, b) = (fixture.linked("a", &["base"], 2), fixture.linked("b", &["base"], 3));
    a.transfer_to(&b).unwrap();
    let removal = base.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    b.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn two_dependencies_that_become_one_tracker_are_held_once() {
    let fixture = Fixture::new();
    let (x, y) = (fixture.loaded("x", 1), fixture.loaded("y", 2));
    let a = fixture.linked("a", &["x", "y"], 3);
    x.transfer_to(&y).unwrap();
    let removal = y.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn a_removed_and_pinned_dependency_survives_the_merge_of_its_dependants() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let (a, b) = (fixture.linked("a", &["base"], 2), fixture.linked("b", &["base"], 3));
    let removal = base.remove().unwrap();
    a.transfer_to(&b).unwrap();
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 1)));
    b.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn many_references_into_one_tracker_are_one_dependant() {
    let fixture = Fixture::new();
    let base = fixture.tracker();
    base.define(Unit::ready(&["x", "y"], 1)).unwrap();
    let a = fixture.linked("a", &["x", "y"], 2);
    a.define(Unit::depending("more", &["x"], &fixture.manager, 3)).unwrap();
    fixture.find("more").unwrap();
    let removal = base.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn absolute_symbols_pin_nothing() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    tracker.define_absolute([("host".into(), address(9), EXPORTED)]).unwrap();
    let _user = fixture.linked("user", &["host"], 1);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn clearing_a_dylib_calls_each_manager_for_every_tracker_before_the_next_manager() {
    // Symptom: a tracker with dependants was reclaimed in a separate batch, after the memory of its dependants.
    let fixture = Fixture::new();
    let late = LedgerManager::new("late", &fixture.log);
    fixture.session.register_manager(late);
    let _base = fixture.loaded("base", 1);
    let _user = fixture.linked("user", &["base"], 2);
    let _alone = fixture.loaded("alone", 3);
    assert!(fixture.main.clear().unwrap().is_empty());
    let events = fixture.log.take();
    let (first, second) = events.split_at(events.len() / 2);
    assert!(first.iter().all(|event| event.starts_with("late")), "{events:?}");
    assert_eq!(second, ["manager removes [3]", "manager removes [2]", "manager removes [1]"]);
}

#[test]
fn clearing_returns_the_removals_that_other_dylibs_hold() {
    let fixture = Fixture::new();
    let library = fixture.session.create_dylib("library").unwrap();
    fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let base = library.create_tracker().unwrap();
    base.define(Unit::recording(&["base"], &fixture.manager, 1)).unwrap();
    let user = fixture.linked("user", &["base"], 2);
    let pending = library.clear().unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].blockers(), (0, 1));
    user.remove().unwrap();
    assert!(pending[0].is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_long_ring_is_found_from_any_member() {
    const LENGTH: usize = 50;
    for last in [0, 17, LENGTH - 1] {
        let fixture = Fixture::new();
        let names: Vec<String> = (0..LENGTH).map(|i| format!("f{i}")).collect();
        let trackers: Vec<_> = (0..LENGTH)
            .map(|i| {
                let tracker = fixture.tracker();
                let next = names[(i + 1) % LENGTH].as_str();
                let unit = Unit::depending(&names[i], &[next], &fixture.manager, i as u64);
                tracker.define(unit).unwrap();
                tracker
            })
            .collect();
        fixture.find("f0").unwrap();
        let removals: Vec<_> = (0..LENGTH).filter(|i| *i != last).map(|i| trackers[i].remove().unwrap()).collect();
        assert!(removals.iter().all(|removal| !removal.is_complete()));
        trackers[last].remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        assert_eq!(fixture.manager.take_freed().len(), LENGTH);
        assert!(Arc::strong_count(&fixture.manager) < LENGTH, "every unit is dropped");
    }
}

/// A tracker of `dylib` whose code refers to symbols of the main dylib.
fn user_in(fixture: &Fixture, dylib: &JitDylib, name: &str, calls: &[&str], resource: u64) -> ResourceTracker {
    dylib.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    let tracker = dylib.create_tracker().unwrap();
    tracker.define(Unit::depending(name, calls, &fixture.manager, resource)).unwrap();
    find_in(&fixture.session, &[dylib], name).unwrap();
    tracker
}

#[test]
fn modules_of_another_dylib_hold_a_shared_dependency_until_the_last_is_removed() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let library = fixture.loaded("library", 1);
    let users = [2, 3, 4].map(|number| user_in(&fixture, &other, &format!("user{number}"), &["library"], number));
    assert_eq!(library.dependents().len(), 3);

    let Err(refused) = library.try_remove() else { panic!("the library is in use") };
    let ErrorKind::InUse { holders, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!(holders.len(), 3, "each dependant is named");
    let removal = library.remove().unwrap();
    for (remaining, user) in [3, 2, 1].into_iter().zip(&users) {
        assert_eq!((removal.blockers(), removal.obstacles().len()), ((0, remaining), remaining));
        assert!(!removal.is_complete());
        assert!(user.remove().unwrap().is_complete());
    }
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 3, 4, 1]);
}

#[test]
fn a_library_is_held_by_modules_of_more_dylibs_than_the_graph_has_tables() {
    let fixture = Fixture::new();
    let library = fixture.loaded("library", 1);
    let user = |number: u64| {
        let dylib = fixture.session.create_dylib(&format!("dylib{number}")).unwrap();
        user_in(&fixture, &dylib, &format!("user{number}"), &["library"], number)
    };
    let users: Vec<_> = (2..22).map(user).collect();
    let removal = library.remove().unwrap();
    for (remaining, user) in (1..=20).rev().zip(&users) {
        assert_eq!(removal.blockers(), (0, remaining));
        user.remove().unwrap();
    }
    assert!(removal.is_complete());
}

#[test]
fn a_module_is_not_linked_against_a_removed_library_that_its_dylib_still_holds() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let library = fixture.loaded("library", 1);
    let symbol = fixture.session.lookup(
        &[(fixture.main.clone(), Visibility::All)],
        &[SymbolRequest::required("library")],
        RequiredState::Ready,
    );
    let symbol = symbol.unwrap()[0].symbol.clone().unwrap();
    let user = user_in(&fixture, &other, "user", &["library"], 2);
    let late = user_in(&fixture, &other, "late", &[], 3);
    let (_, pin) = other.pin("late").unwrap();
    let removal = library.remove().unwrap();
    assert!(pin.add_dependency(&symbol).is_err());
    assert_eq!(removal.blockers(), (0, 1));
    assert!(late.dependencies().is_empty());
    user.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn a_dependency_shared_by_a_dylib_is_refused_once_its_tracker_is_removed() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    for (round, is_held) in [(1, true), (2, false), (3, true)] {
        let library = fixture.loaded("library", round);
        let references = fixture.references(&["library"]);
        let users = [4, 5, 6].map(|number| user_in(&fixture, &other, &format!("user{number}"), &["library"], number));
        let late = other.create_tracker().unwrap();
        let r = late.define_materializing("late", [(Name::new("late"), EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(address(1))).unwrap();
        let remove_all = |users: [ResourceTracker; 3]| users.map(|user| assert!(user.remove().unwrap().is_complete()));
        if is_held {
            let removal = library.remove().unwrap();
            r.notify_emitted(references).unwrap_err();
            assert_eq!(removal.blockers(), (0, 3));
            remove_all(users);
            assert!(removal.is_complete());
        } else {
            remove_all(users);
            assert!(library.remove().unwrap().is_complete());
            let _next = [7, 8].map(|number| {
                fixture.loaded(&format!("library{number}"), number);
                user_in(&fixture, &other, &format!("user{number}"), &[&format!("library{number}")], number)
            });
            r.notify_emitted(references).unwrap_err();
        }
        assert!(late.dependencies().is_empty(), "the refused emission adds no edge");
    }
}

#[test]
fn a_dependency_shared_by_a_dylib_is_refused_once_its_name_is_removed() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let library = fixture.loaded("library", 1);
    let references = fixture.references(&["library"]);
    let users = [2, 3, 4].map(|number| user_in(&fixture, &other, &format!("user{number}"), &["library"], number));
    fixture.main.remove_symbols(&["library"]).unwrap();
    let late = other.create_tracker().unwrap();
    let r = late.define_materializing("late", [(Name::new("late"), EXPORTED)]).unwrap();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    r.notify_emitted(references).unwrap_err();
    let removal = library.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 3));
    users.iter().for_each(|user| drop(user.remove().unwrap()));
    assert!(removal.is_complete());
}

#[test]
fn a_ring_across_dylibs_is_freed_with_the_last_module_that_shares_a_member() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();
    let a = fixture.tracker();
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    let b = user_in(&fixture, &other, "b", &["a"], 2);
    let user = user_in(&fixture, &other, "user", &["a"], 3);
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 2), (0, 1)));
    user.remove().unwrap();
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(fixture.manager.take_freed(), [3, 2, 1]);
}

#[test]
fn a_transfer_moves_the_shared_pins_of_other_dylibs() {
    // The modules refer to both trackers already, or to one of them.
    for calls in [&["a"][..], &["a", "b"], &["b"]] {
        let fixture = Fixture::new();
        let other = fixture.session.create_dylib("other").unwrap();
        let (a, b) = (fixture.loaded("a", 1), fixture.loaded("b", 2));
        let first = user_in(&fixture, &other, "first", calls, 3);
        let second = user_in(&fixture, &other, "second", &["a"], 4);
        a.transfer_to(&b).unwrap();
        assert_eq!(b.dependents().len(), 2);
        assert_eq!(first.dependencies().iter().map(ResourceTracker::key).collect::<Vec<_>>(), [b.key()]);
        let third = user_in(&fixture, &other, "third", &["a", "b"], 5);
        let fourth = user_in(&fixture, &other, "fourth", &["a", "b"], 6);
        assert_eq!(b.dependents().len(), 4);
        fourth.remove().unwrap();
        assert_eq!(fixture.manager.take_freed(), [6]);
        let removal = b.remove().unwrap();
        assert_eq!(removal.blockers(), (0, 3));
        for user in [second, third, first] {
            assert!(!removal.is_complete());
            user.remove().unwrap();
        }
        assert!(removal.is_complete());
        assert_eq!(fixture.manager.take_freed(), [4, 5, 3, 2, 1]);
    }
}

#[test]
fn try_remove_succeeds_once_merged_dependants_are_removed() {
    // A pin that is counted twice would refuse the removal, and no holder could be named.
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let users = [fixture.linked("a", &["base"], 2), fixture.linked("b", &["base"], 3)];
    users[0].transfer_to(&users[1]).unwrap();
    assert!(users[1].remove().unwrap().is_complete());
    assert!(base.try_remove().unwrap().is_complete());
}

#[test]
fn trackers_that_one_removal_frees_are_reclaimed_newest_first() {
    for dependencies in [["older", "newer"], ["newer", "older"]] {
        let fixture = Fixture::new();
        let held = [fixture.loaded("older", 2), fixture.loaded("newer", 3)];
        let top = fixture.linked("top", &dependencies, 1);
        assert!(held.iter().all(|tracker| !tracker.remove().unwrap().is_complete()));
        assert!(top.remove().unwrap().is_complete());
        assert_eq!(fixture.manager.take_freed(), [1, 3, 2]);
    }
}

#[test]
fn trackers_that_one_removal_frees_are_reclaimed_before_what_they_refer_to() {
    let fixture = Fixture::new();
    // `used` is the newest tracker, so only its dependants put it last.
    let [a, b, used] = [fixture.tracker(), fixture.tracker(), fixture.tracker()];
    used.define(Unit::recording(&["used"], &fixture.manager, 4)).unwrap();
    // Gives `used` the first node of the graph, so that the session asks for it first.
    let first = fixture.linked("first", &["used"], 5);
    a.define(Unit::depending("a", &["b", "used"], &fixture.manager, 2)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 3)).unwrap();
    fixture.find("a").unwrap();
    let top = fixture.linked("top", &["used", "a"], 1);
    first.remove().unwrap();
    assert!([&a, &b, &used].iter().all(|tracker| !tracker.remove().unwrap().is_complete()));
    assert!(top.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [5, 1, 3, 2, 4]);
}
