//! The verbs of removal beside `remove`: try, cascade, all; and what the ticket can be asked.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

fn holders_of(refused: jittison::Error) -> Vec<String> {
    match refused.kind() {
        ErrorKind::InUse { holders, .. } => holders.clone(),
        _ => panic!("{refused}"),
    }
}

#[test]
fn a_try_takes_what_nobody_holds() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    assert!(tracker.try_remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [7]);
    assert!(tracker.try_remove().unwrap().is_complete(), "a second gives the same ticket");
}

#[test]
fn a_refused_try_names_handles_dependants_and_guards_and_does_nothing() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let second = pin.clone();
    assert_eq!(holders_of(tracker.try_remove().unwrap_err()), ["2 owned handles"]);
    drop((pin, second));
    let user = world.linked("user", &["foo"], 8);
    let dependant = format!("{} of `main`, whose code refers to it", user.key());
    assert_eq!(holders_of(tracker.try_remove().unwrap_err()), [dependant.as_str()]);
    user.remove().unwrap();
    let guard = world.session.guard();
    let holders = holders_of(tracker.try_remove().unwrap_err());
    assert!(holders.len() == 1 && holders[0].starts_with("a guard of thread "), "{holders:?}");
    drop(guard);
    assert_eq!(world.find("foo").unwrap(), 7, "nothing was done");
    assert_eq!(world.books.take_given_back(), [8]);
    assert!(!tracker.is_defunct());
    assert!(tracker.try_remove().unwrap().is_complete());
}

#[test]
fn a_try_of_what_is_removed_and_held_gives_the_ticket() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    tracker.remove().unwrap();
    let removal = tracker.try_remove().unwrap();
    assert!(!removal.is_complete());
    drop(pin);
    assert!(removal.is_complete());
}

#[test]
fn a_cascade_takes_dependants_first_through_any_number_of_steps() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let _middle = world.linked("middle", &["base"], 2);
    let _top = world.linked("top", &["middle", "base"], 3);
    let beside = world.loaded("beside", 4);
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [3, 2, 1]);
    assert_not_found(world.find("top"));
    assert_eq!(world.find("beside").unwrap(), 4);
    assert!(!beside.is_defunct());
}

#[test]
fn a_cascade_goes_by_who_refers_to_whom_and_not_by_age() {
    let world = World::new();
    // The older tracker's code refers to the newer one's.
    let (user, base) = (world.tracker(), world.tracker());
    user.define(Unit::depending("user", &["base"], &world.books, 1)).unwrap();
    base.define(Unit::recording(&["base"], &world.books, 2)).unwrap();
    world.find("user").unwrap();
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [1, 2]);
}

#[test]
fn a_cascade_crosses_dylibs_and_takes_rings_along() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    other.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    let base = world.loaded("base", 1);
    let (a, b) = (other.create_tracker().unwrap(), other.create_tracker().unwrap());
    a.define(Unit::depending("a", &["b", "base"], &world.books, 2)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 3)).unwrap();
    find_in(&world.session, &[&other], "a").unwrap();
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [3, 2, 1]);
}

#[test]
fn a_cascade_of_what_is_removed_takes_what_still_refers_to_it() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let user = world.linked("user", &["base"], 2);
    assert!(!base.remove().unwrap().is_complete());
    assert!(base.remove_cascade().unwrap().is_complete());
    assert!(user.is_defunct());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_cascade_waits_for_a_handle_of_a_dependant_and_says_so() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let user = world.linked("user", &["base"], 2);
    let (_, pin) = world.main.pin("user").unwrap();
    let removal = base.remove_cascade().unwrap();
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 1)));
    assert!(user.is_defunct());
    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn removing_all_is_one_batch_newest_first_with_a_ticket_for_each() {
    let world = World::new();
    let late = Books::new("late", &world.log);
    world.session.register_manager(late);
    let trackers = [world.loaded("foo", 1), world.loaded("bar", 2), world.loaded("baz", 3)];
    let (_, pin) = world.main.pin("bar").unwrap();
    let removals = ResourceTracker::remove_all(&trackers).unwrap();
    let complete: Vec<_> = removals.iter().map(Removal::is_complete).collect();
    assert_eq!(complete, [true, false, true]);
    assert_eq!(world.log.take(), ["late removes []", "late removes []", "books removes [3]", "books removes [1]"]);
    drop(pin);
    assert!(removals[1].is_complete());
}

#[test]
fn removing_all_takes_dependants_of_each_other_whatever_the_order() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let user = world.linked("user", &["base"], 2);
    let removals = ResourceTracker::remove_all([&base, &user, &base]).unwrap();
    assert!(removals.len() == 3 && removals.iter().all(Removal::is_complete));
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn removing_all_removes_the_others_when_one_was_transferred_and_takes_those_of_other_sessions() {
    let (world, other) = (World::new(), World::new());
    let (gone, foo, far) = (world.loaded("gone", 1), world.loaded("foo", 2), other.loaded("far", 3));
    gone.transfer_to(&world.main.default_tracker().unwrap()).unwrap();
    let refused = ResourceTracker::remove_all([&gone, &foo, &far]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TrackerDefunct { .. }), "{refused}");
    assert_eq!((world.books.take_given_back(), other.books.take_given_back()), (vec![2], vec![3]));
    assert_eq!(world.find("gone").unwrap(), 1);
    assert!(ResourceTracker::remove_all([]).unwrap().is_empty());
}

#[test]
fn waiting_with_a_deadline_says_whether_it_was_met() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert!(!removal.wait_until(Instant::now() + Duration::from_millis(5)).unwrap());
    assert!(!removal.wait_until(Instant::now()).unwrap());
    drop(pin);
    assert!(removal.wait_until(Instant::now()).unwrap());
}

#[test]
fn a_callback_is_called_once_when_the_removal_is_complete_with_what_managers_said() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    let (tell, told) = channel();
    let second = tell.clone();
    removal.on_complete(move |outcome| tell.send(outcome.map_err(|error| error.to_string())).unwrap());
    assert!(told.try_recv().is_err());
    world.books.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(pin);
    assert!(told.try_recv().unwrap().unwrap_err().contains("books failed"));
    removal.on_complete(move |outcome| second.send(outcome.map_err(|error| error.to_string())).unwrap());
    assert!(told.try_recv().unwrap().unwrap_err().contains("books failed"), "at once when it is complete");
    assert!(told.try_recv().is_err());
}

#[test]
fn a_callback_that_panics_is_reported_and_stops_nothing() {
    let (tell, told) = channel();
    let options = SessionOptions {
        error_reporter: Some(std::sync::Arc::new(move |error: jittison::Error| tell.send(error.to_string()).unwrap())),
        ..SessionOptions::default()
    };
    let session = ExecutionSession::with_options(options);
    let main = session.create_dylib("main").unwrap();
    let tracker = main.create_tracker().unwrap();
    tracker.define(Unit::ready(&["foo"], 7)).unwrap();
    find_in(&session, &[&main], "foo").unwrap();
    let (_, pin) = main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    removal.on_complete(|_| panic!("no use"));
    drop(pin);
    assert!(removal.is_complete());
    assert!(told.try_recv().unwrap().contains("no use"));
}

#[test]
fn a_ticket_tells_its_age_only_while_something_is_in_the_way() {
    let world = World::new();
    let (free, held) = (world.loaded("foo", 1), world.loaded("bar", 2));
    assert_eq!(free.remove().unwrap().age(), None);
    let (_, pin) = world.main.pin("bar").unwrap();
    let removal = held.remove().unwrap();
    assert!(removal.age().is_some());
    drop(pin);
    assert_eq!(removal.age(), None);
}
