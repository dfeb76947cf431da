//! Dependants: code that refers into another tracker keeps that tracker's resources, rings included.

use std::sync::Arc;

use jittison::base::Name;
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

/// Two trackers whose code refers to each other's, resources 1 and 2.
fn ring(world: &World) -> (ResourceTracker, ResourceTracker) {
    let (a, b) = (world.tracker(), world.tracker());
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 2)).unwrap();
    world.find("a").unwrap();
    world.find("b").unwrap();
    (a, b)
}

#[test]
fn a_removal_is_not_complete_while_live_code_refers_into_it() {
    let world = World::new();
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);

    let removal = b.remove().unwrap();

    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (0, 1));
    assert_not_found(world.find("b"));
    assert_eq!(world.find("a").unwrap(), 1, "the dependant goes on");
    assert_eq!(world.log.take(), [""; 0]);

    assert!(a.remove().unwrap().is_complete());
    assert!(removal.is_complete());
    assert_eq!(removal.blockers(), (0, 0));
    assert_eq!(world.log.take(), ["books removes [1]", "books removes [2]"]);
}

#[test]
fn removing_the_dependant_first_leaves_nothing_in_the_way() {
    let world = World::new();
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);
    assert!(a.remove().unwrap().is_complete());
    assert!(b.remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [1, 2]);
}

#[test]
fn a_chain_of_dependants_unwinds_from_its_live_end() {
    let world = World::new();
    let c = world.loaded("c", 3);
    let b = world.linked("b", &["c"], 2);
    let a = world.linked("a", &["b"], 1);
    let (of_c, of_b) = (c.remove().unwrap(), b.remove().unwrap());
    assert!(!of_c.is_complete() && !of_b.is_complete());
    a.remove().unwrap();
    assert!(of_c.is_complete() && of_b.is_complete());
    assert_eq!(world.books.take_given_back(), [1, 2, 3]);
}

#[test]
fn a_ring_is_reclaimed_as_one_batch_when_its_last_member_is_removed() {
    let world = World::new();
    let late = Books::new("late", &world.log);
    world.session.register_manager(late);
    let (a, b) = ring(&world);
    let of_a = a.remove().unwrap();
    assert!(!of_a.is_complete());
    assert_eq!(of_a.blockers(), (0, 1));
    assert_eq!(world.log.take(), [""; 0]);

    let of_b = b.remove().unwrap();

    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(of_a.blockers(), (0, 0));
    assert_eq!(
        world.log.take(),
        ["late removes []", "late removes []", "books removes [2]", "books removes [1]"],
        "manager by manager, newest tracker first"
    );
}

#[test]
fn a_ring_across_dylibs_is_reclaimed_and_survives_in_neither() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]);
    other.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    let (a, b) = (world.tracker(), other.create_tracker().unwrap());
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 2)).unwrap();
    world.find("a").unwrap();
    let pending = world.session.remove_dylib(&other).unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].blockers(), (0, 1));
    assert!(a.remove().unwrap().is_complete());
    assert!(pending[0].is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1], "newest dylib first");
}

#[test]
fn a_ring_that_live_code_refers_into_stays_until_that_code_goes() {
    let world = World::new();
    let (a, b) = ring(&world);
    let user = world.linked("user", &["a"], 3);
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert!(!of_a.is_complete() && !of_b.is_complete());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 2), (0, 1)));
    user.remove().unwrap();
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(world.books.take_given_back(), [3, 2, 1]);
}

#[test]
fn a_ring_that_a_pin_holds_stays_until_the_pin_goes() {
    let world = World::new();
    let (a, b) = ring(&world);
    let (_, pin) = world.main.pin("b").unwrap();
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 1), (1, 1)));
    drop(pin);
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_transfer_takes_the_dependants_pins_along() {
    let world = World::new();
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);
    let heir = world.tracker();
    b.transfer_to(&heir).unwrap();
    let removal = heir.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [1, 2]);
}

#[test]
fn a_transfer_takes_along_what_the_source_depends_on() {
    let world = World::new();
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);
    let heir = world.tracker();
    a.transfer_to(&heir).unwrap();
    let removal = b.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    heir.remove().unwrap();
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [1, 2]);
}

#[test]
fn a_transfer_between_dependant_and_dependency_leaves_no_pin_on_itself() {
    for forward in [true, false] {
        let world = World::new();
        let b = world.loaded("b", 2);
        let a = world.linked("a", &["b"], 1);
        let (from, into) = if forward { (&a, &b) } else { (&b, &a) };
        from.transfer_to(into).unwrap();
        let removal = into.remove().unwrap();
        assert!(removal.is_complete(), "blocked by {:?}", removal.blockers());
    }
}

#[test]
fn a_transferred_ring_is_free_once_it_is_one_tracker() {
    let world = World::new();
    let (a, b) = ring(&world);
    a.transfer_to(&b).unwrap();
    assert!(b.remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn two_dependants_that_become_one_tracker_block_as_one() {
    // The ticket counted both, though one tracker was left to remove.
    let world = World::new();
    let base = world.loaded("base", 1);
    let (a, b) = (world.linked("a", &["base"], 2), world.linked("b", &["base"], 3));
    a.transfer_to(&b).unwrap();
    let removal = base.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    b.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn two_dependencies_that_become_one_tracker_are_held_once() {
    let world = World::new();
    let (x, y) = (world.loaded("x", 1), world.loaded("y", 2));
    let a = world.linked("a", &["x", "y"], 3);
    x.transfer_to(&y).unwrap();
    let removal = y.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn a_removed_and_pinned_dependency_survives_the_merge_of_its_dependants() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let (a, b) = (world.linked("a", &["base"], 2), world.linked("b", &["base"], 3));
    let removal = base.remove().unwrap();
    a.transfer_to(&b).unwrap();
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 1)));
    b.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn many_references_into_one_tracker_are_one_dependant() {
    let world = World::new();
    let base = world.tracker();
    base.define(Unit::ready(&["x", "y"], 1)).unwrap();
    let a = world.linked("a", &["x", "y"], 2);
    a.define(Unit::depending("more", &["x"], &world.books, 3)).unwrap();
    world.find("more").unwrap();
    let removal = base.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    a.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn absolute_symbols_pin_nothing() {
    let world = World::new();
    let tracker = world.tracker();
    tracker.define_absolute([("host".into(), address(9), EXPORTED)]).unwrap();
    let _user = world.linked("user", &["host"], 1);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn clearing_a_dylib_tells_each_manager_of_every_tracker_before_the_next_manager() {
    // A tracker that another one referred to used to be reclaimed in a batch of its own, after that one's memory.
    let world = World::new();
    let late = Books::new("late", &world.log);
    world.session.register_manager(late);
    let _base = world.loaded("base", 1);
    let _user = world.linked("user", &["base"], 2);
    let _alone = world.loaded("alone", 3);
    assert!(world.main.clear().unwrap().is_empty());
    let events = world.log.take();
    let (first, second) = events.split_at(events.len() / 2);
    assert!(first.iter().all(|event| event.starts_with("late")), "{events:?}");
    assert_eq!(second, ["books removes [3]", "books removes [2]", "books removes [1]"]);
}

#[test]
fn clearing_reports_what_other_dylibs_keep() {
    let world = World::new();
    let library = world.session.create_dylib("library").unwrap();
    world.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]);
    let base = library.create_tracker().unwrap();
    base.define(Unit::recording(&["base"], &world.books, 1)).unwrap();
    let user = world.linked("user", &["base"], 2);
    let pending = library.clear().unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].blockers(), (0, 1));
    user.remove().unwrap();
    assert!(pending[0].is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_long_ring_is_found_from_any_member() {
    const LENGTH: usize = 50;
    for last in [0, 17, LENGTH - 1] {
        let world = World::new();
        let names: Vec<String> = (0..LENGTH).map(|i| format!("f{i}")).collect();
        let trackers: Vec<_> = (0..LENGTH)
            .map(|i| {
                let tracker = world.tracker();
                let next = names[(i + 1) % LENGTH].as_str();
                let unit = Unit::depending(&names[i], &[next], &world.books, i as u64);
                tracker.define(unit).unwrap();
                tracker
            })
            .collect();
        world.find("f0").unwrap();
        let removals: Vec<_> = (0..LENGTH).filter(|i| *i != last).map(|i| trackers[i].remove().unwrap()).collect();
        assert!(removals.iter().all(|removal| !removal.is_complete()));
        trackers[last].remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        assert_eq!(world.books.take_given_back().len(), LENGTH);
        assert!(Arc::strong_count(&world.books) < LENGTH, "no unit is left over");
    }
}

/// A tracker of `dylib` that is linked against others of the world's main dylib.
fn user_in(world: &World, dylib: &JitDylib, name: &str, calls: &[&str], resource: u64) -> ResourceTracker {
    dylib.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    let tracker = dylib.create_tracker().unwrap();
    tracker.define(Unit::depending(name, calls, &world.books, resource)).unwrap();
    find_in(&world.session, &[dylib], name).unwrap();
    tracker
}

#[test]
fn modules_of_another_dylib_hold_what_they_share_until_the_last_of_them_goes() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let library = world.loaded("library", 1);
    let users = [2, 3, 4].map(|number| user_in(&world, &other, &format!("user{number}"), &["library"], number));
    assert_eq!(library.dependents().len(), 3);

    let Err(refused) = library.try_remove() else { panic!("it is in use") };
    let ErrorKind::InUse { holders, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!(holders.len(), 3, "each is named");
    let removal = library.remove().unwrap();
    for (left, user) in [3, 2, 1].into_iter().zip(&users) {
        assert_eq!((removal.blockers(), removal.obstacles().len()), ((0, left), left));
        assert!(!removal.is_complete());
        assert!(user.remove().unwrap().is_complete());
    }
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 3, 4, 1]);
}

#[test]
fn a_library_is_held_by_modules_of_more_dylibs_than_the_graph_has_tables() {
    let world = World::new();
    let library = world.loaded("library", 1);
    let user = |number: u64| {
        let dylib = world.session.create_dylib(&format!("dylib{number}")).unwrap();
        user_in(&world, &dylib, &format!("user{number}"), &["library"], number)
    };
    let users: Vec<_> = (2..22).map(user).collect();
    let removal = library.remove().unwrap();
    for (left, user) in (1..=20).rev().zip(&users) {
        assert_eq!(removal.blockers(), (0, left));
        user.remove().unwrap();
    }
    assert!(removal.is_complete());
}

#[test]
fn a_module_of_another_dylib_is_not_linked_against_what_others_of_it_hold_removed() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let library = world.loaded("library", 1);
    let symbol = world.session.lookup(
        &[(world.main.clone(), Visibility::All)],
        &[SymbolRequest::required("library")],
        RequiredState::Ready,
    );
    let symbol = symbol.unwrap()[0].symbol.clone().unwrap();
    let user = user_in(&world, &other, "user", &["library"], 2);
    let late = user_in(&world, &other, "late", &[], 3);
    let (_, pin) = other.pin("late").unwrap();
    let removal = library.remove().unwrap();
    assert!(pin.add_dependency(&symbol).is_err());
    assert_eq!(removal.blockers(), (0, 1));
    assert!(late.dependencies().is_empty());
    user.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn a_module_is_refused_what_others_of_its_dylib_had_come_to_once_that_is_removed() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    for (round, is_held) in [(1, true), (2, false), (3, true)] {
        let library = world.loaded("library", round);
        let references = world.references(&["library"]);
        let users = [4, 5, 6].map(|number| user_in(&world, &other, &format!("user{number}"), &["library"], number));
        let late = other.create_tracker().unwrap();
        let r = late.define_materializing("late", [(Name::new("late"), EXPORTED)]).unwrap();
        r.notify_resolved(|_| Some(address(1))).unwrap();
        let go = |users: [ResourceTracker; 3]| users.map(|user| assert!(user.remove().unwrap().is_complete()));
        if is_held {
            let removal = library.remove().unwrap();
            r.notify_emitted(references).unwrap_err();
            assert_eq!(removal.blockers(), (0, 3));
            go(users);
            assert!(removal.is_complete());
        } else {
            go(users);
            assert!(library.remove().unwrap().is_complete());
            let _next = [7, 8].map(|number| {
                world.loaded(&format!("library{number}"), number);
                user_in(&world, &other, &format!("user{number}"), &[&format!("library{number}")], number)
            });
            r.notify_emitted(references).unwrap_err();
        }
        assert!(late.dependencies().is_empty(), "the next library of this name is another");
    }
}

#[test]
fn a_module_is_refused_what_others_of_its_dylib_had_come_to_once_its_name_is_removed() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let library = world.loaded("library", 1);
    let references = world.references(&["library"]);
    let users = [2, 3, 4].map(|number| user_in(&world, &other, &format!("user{number}"), &["library"], number));
    world.main.remove_symbols(&["library"]).unwrap();
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
fn a_ring_across_dylibs_goes_with_the_last_that_shared_one_of_it() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]);
    let a = world.tracker();
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    let b = user_in(&world, &other, "b", &["a"], 2);
    let user = user_in(&world, &other, "user", &["a"], 3);
    let (of_a, of_b) = (a.remove().unwrap(), b.remove().unwrap());
    assert_eq!((of_a.blockers(), of_b.blockers()), ((0, 2), (0, 1)));
    user.remove().unwrap();
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(world.books.take_given_back(), [3, 2, 1]);
}

#[test]
fn a_transfer_takes_along_what_modules_of_other_dylibs_share() {
    // Whether some of them refer to both already, or none does.
    for calls in [&["a"][..], &["a", "b"], &["b"]] {
        let world = World::new();
        let other = world.session.create_dylib("other").unwrap();
        let (a, b) = (world.loaded("a", 1), world.loaded("b", 2));
        let first = user_in(&world, &other, "first", calls, 3);
        let second = user_in(&world, &other, "second", &["a"], 4);
        a.transfer_to(&b).unwrap();
        assert_eq!(b.dependents().len(), 2);
        assert_eq!(first.dependencies().iter().map(ResourceTracker::key).collect::<Vec<_>>(), [b.key()]);
        let third = user_in(&world, &other, "third", &["a", "b"], 5);
        let fourth = user_in(&world, &other, "fourth", &["a", "b"], 6);
        assert_eq!(b.dependents().len(), 4);
        fourth.remove().unwrap();
        assert_eq!(world.books.take_given_back(), [6]);
        let removal = b.remove().unwrap();
        assert_eq!(removal.blockers(), (0, 3));
        for user in [second, third, first] {
            assert!(!removal.is_complete());
            user.remove().unwrap();
        }
        assert!(removal.is_complete());
        assert_eq!(world.books.take_given_back(), [4, 5, 3, 2, 1]);
    }
}

#[test]
fn a_tracker_can_be_tried_once_its_merged_dependants_have_gone() {
    // A pin that is counted twice would refuse it, and nobody could be named.
    let world = World::new();
    let base = world.loaded("base", 1);
    let users = [world.linked("a", &["base"], 2), world.linked("b", &["base"], 3)];
    users[0].transfer_to(&users[1]).unwrap();
    assert!(users[1].remove().unwrap().is_complete());
    assert!(base.try_remove().unwrap().is_complete());
}
