//! `try_remove`, `remove_cascade`, `remove_all`, and the methods of the ticket.

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
fn try_remove_removes_a_tracker_that_nothing_holds() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    assert!(tracker.try_remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [7]);
    assert!(tracker.try_remove().unwrap().is_complete(), "a second call returns the same ticket");
}

#[test]
fn a_refused_try_remove_names_handles_dependants_and_guards_and_removes_nothing() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let second = pin.clone();
    assert_eq!(holders_of(tracker.try_remove().unwrap_err()), ["2 owned handles"]);
    drop((pin, second));
    let user = fixture.linked("user", &["foo"], 8);
    let dependant = format!("{} of `main`, whose code refers to it", user.key());
    assert_eq!(holders_of(tracker.try_remove().unwrap_err()), [dependant.as_str()]);
    user.remove().unwrap();
    let guard = fixture.session.guard();
    let holders = holders_of(tracker.try_remove().unwrap_err());
    assert!(holders.len() == 1 && holders[0].starts_with("a guard of thread "), "{holders:?}");
    drop(guard);
    assert_eq!(fixture.find("foo").unwrap(), 7, "nothing is removed");
    assert_eq!(fixture.manager.take_freed(), [8]);
    assert!(!tracker.is_defunct());
    assert!(tracker.try_remove().unwrap().is_complete());
}

#[test]
fn try_remove_of_a_removed_and_held_tracker_returns_its_ticket() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    tracker.remove().unwrap();
    let removal = tracker.try_remove().unwrap();
    assert!(!removal.is_complete());
    drop(pin);
    assert!(removal.is_complete());
}

#[test]
fn a_cascade_removes_dependants_first_over_any_number_of_steps() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let _middle = fixture.linked("middle", &["base"], 2);
    let _top = fixture.linked("top", &["middle", "base"], 3);
    let unrelated = fixture.loaded("unrelated", 4);
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [3, 2, 1]);
    assert_not_found(fixture.find("top"));
    assert_eq!(fixture.find("unrelated").unwrap(), 4);
    assert!(!unrelated.is_defunct());
}

#[test]
fn a_cascade_follows_references_and_not_age() {
    let fixture = Fixture::new();
    // The code of the older tracker refers to the newer tracker.
    let (user, base) = (fixture.tracker(), fixture.tracker());
    user.define(Unit::depending("user", &["base"], &fixture.manager, 1)).unwrap();
    base.define(Unit::recording(&["base"], &fixture.manager, 2)).unwrap();
    fixture.find("user").unwrap();
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
}

#[test]
fn a_cascade_crosses_dylibs_and_removes_rings() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    other.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    let base = fixture.loaded("base", 1);
    let (a, b) = (other.create_tracker().unwrap(), other.create_tracker().unwrap());
    a.define(Unit::depending("a", &["b", "base"], &fixture.manager, 2)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 3)).unwrap();
    find_in(&fixture.session, &[&other], "a").unwrap();
    assert!(base.remove_cascade().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [3, 2, 1]);
}

#[test]
fn a_cascade_of_a_removed_tracker_removes_its_dependants() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let user = fixture.linked("user", &["base"], 2);
    assert!(!base.remove().unwrap().is_complete());
    assert!(base.remove_cascade().unwrap().is_complete());
    assert!(user.is_defunct());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_cascade_waits_for_a_handle_of_a_dependant_and_reports_it() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let user = fixture.linked("user", &["base"], 2);
    let (_, pin) = fixture.main.pin("user").unwrap();
    let removal = base.remove_cascade().unwrap();
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 1)));
    assert!(user.is_defunct());
    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn remove_all_is_one_batch_newest_first_with_a_ticket_for_each() {
    let fixture = Fixture::new();
    let late = LedgerManager::new("late", &fixture.log);
    fixture.session.register_manager(late);
    let trackers = [fixture.loaded("foo", 1), fixture.loaded("bar", 2), fixture.loaded("baz", 3)];
    let (_, pin) = fixture.main.pin("bar").unwrap();
    let removals = ResourceTracker::remove_all(&trackers).unwrap();
    let complete: Vec<_> = removals.iter().map(Removal::is_complete).collect();
    assert_eq!(complete, [true, false, true]);
    assert_eq!(
        fixture.log.take(),
        ["late removes []", "late removes []", "manager removes [3]", "manager removes [1]"]
    );
    drop(pin);
    assert!(removals[1].is_complete());
}

#[test]
fn remove_all_accepts_dependants_of_each_other_in_any_order() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let user = fixture.linked("user", &["base"], 2);
    let removals = ResourceTracker::remove_all([&base, &user, &base]).unwrap();
    assert!(removals.len() == 3 && removals.iter().all(Removal::is_complete));
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn remove_all_continues_after_a_transferred_tracker_and_across_sessions() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let (gone, foo, far) = (fixture.loaded("gone", 1), fixture.loaded("foo", 2), other.loaded("far", 3));
    gone.transfer_to(&fixture.main.default_tracker().unwrap()).unwrap();
    let refused = ResourceTracker::remove_all([&gone, &foo, &far]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TrackerDefunct { .. }), "{refused}");
    assert_eq!((fixture.manager.take_freed(), other.manager.take_freed()), (vec![2], vec![3]));
    assert_eq!(fixture.find("gone").unwrap(), 1);
    assert!(ResourceTracker::remove_all([]).unwrap().is_empty());
}

#[test]
fn waiting_with_a_deadline_returns_whether_it_was_met() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert!(!removal.wait_until(Instant::now() + Duration::from_millis(5)).unwrap());
    assert!(!removal.wait_until(Instant::now()).unwrap());
    drop(pin);
    assert!(removal.wait_until(Instant::now()).unwrap());
}

#[test]
fn a_callback_is_called_once_with_the_manager_result_when_the_removal_is_complete() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    let (send, receive) = channel();
    let second = send.clone();
    removal.on_complete(move |outcome| send.send(outcome.map_err(|error| error.to_string())).unwrap());
    assert!(receive.try_recv().is_err());
    fixture.manager.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(pin);
    assert!(receive.try_recv().unwrap().unwrap_err().contains("manager failed"));
    removal.on_complete(move |outcome| second.send(outcome.map_err(|error| error.to_string())).unwrap());
    assert!(
        receive.try_recv().unwrap().unwrap_err().contains("manager failed"),
        "called at once if the removal is complete"
    );
    assert!(receive.try_recv().is_err());
}

#[test]
fn a_callback_that_panics_is_reported_and_stops_nothing() {
    let (send, receive) = channel();
    let options = SessionOptions {
        error_reporter: Some(std::sync::Arc::new(move |error: jittison::Error| send.send(error.to_string()).unwrap())),
        ..SessionOptions::default()
    };
    let session = ExecutionSession::with_options(options);
    let main = session.create_dylib("main").unwrap();
    let tracker = main.create_tracker().unwrap();
    tracker.define(Unit::ready(&["foo"], 7)).unwrap();
    find_in(&session, &[&main], "foo").unwrap();
    let (_, pin) = main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    removal.on_complete(|_| panic!("callback failed"));
    drop(pin);
    assert!(removal.is_complete());
    assert!(receive.try_recv().unwrap().contains("callback failed"));
}

#[test]
fn a_ticket_has_an_age_only_while_the_removal_is_pending() {
    let fixture = Fixture::new();
    let (free, held) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    assert_eq!(free.remove().unwrap().age(), None);
    let (_, pin) = fixture.main.pin("bar").unwrap();
    let removal = held.remove().unwrap();
    assert!(removal.age().is_some());
    drop(pin);
    assert_eq!(removal.age(), None);
}

#[test]
fn a_refused_try_remove_names_the_first_holders_of_many_and_counts_the_others() {
    let count = sized(30_000, 50) as usize;
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let users: Vec<_> = (0..count).map(|number| fixture.linked(&format!("user{number}"), &["foo"], 8)).collect();
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let refused = tracker.try_remove().unwrap_err();
    let ErrorKind::InUse { holders, more, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!((holders.len(), *more), (8, count + 1 - 8));
    assert!(holders[0] == "an owned handle" && holders[7].ends_with("whose code refers to it"), "{holders:?}");
    assert!(refused.to_string().contains(&format!(" and {more} more; nothing was done")), "{refused}");
    assert!(refused.to_string().len() < 1_000, "{} bytes", refused.to_string().len());
    let removal = tracker.remove().unwrap();
    assert_eq!((removal.blockers(), removal.obstacles().len()), ((1, count), count + 1), "the ticket names all");
    assert!(format!("{removal:?}").len() < 1_000, "{removal:?}");
    drop((pin, users));
}

#[test]
fn pending_removals_are_listed_oldest_first_among_any_number_of_trackers() {
    let count = sized(20_000, 20) as usize;
    let fixture = Fixture::new();
    let trackers: Vec<_> = (0..count).map(|number| fixture.loaded(&format!("f{number}"), 1)).collect();
    let pins = [count / 2, 3, 7].map(|number| fixture.main.pin(&format!("f{number}")).unwrap().1);
    let removed = [7, 3, count / 2];
    let removals = removed.map(|number| trackers[number].remove().unwrap());
    let keys = |removals: &[Removal]| removals.iter().map(Removal::key).collect::<Vec<_>>();
    let session = &fixture.session;
    assert_eq!(keys(&session.pending_removals()), keys(&removals));
    assert_eq!(keys(&session.first_pending_removals(2)), keys(&removals[..2]));
    assert_eq!(session.pending_removal_count(), 3);
    drop(pins);
    assert_eq!((session.pending_removal_count(), session.pending_removals().len()), (0, 0));
    assert!(removals.iter().all(Removal::is_complete));
}
