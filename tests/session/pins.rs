//! Pins: removal of a pinned tracker unpublishes its names at once, and frees its resources when the last pin is dropped.

use std::thread;

use jittison::session::*;

use crate::support::*;

#[test]
fn a_pin_defers_the_manager_calls_until_it_is_dropped() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (found, pin) = fixture.main.pin("foo").unwrap();
    assert_eq!(found, address(7));

    let removal = tracker.remove().unwrap();

    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (1, 0));
    assert_eq!(fixture.log.take(), [""; 0]);
    assert_not_found(fixture.find("foo"));
    assert!(tracker.is_defunct());

    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(removal.blockers(), (0, 0));
    assert_eq!(fixture.log.take(), ["manager removes [7]"]);
}

#[test]
fn dropping_a_pin_of_a_live_tracker_frees_nothing() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    drop(fixture.main.pin("foo").unwrap());
    assert_eq!(fixture.log.take(), [""; 0]);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn every_clone_of_a_pin_counts_even_one_made_after_the_removal() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, first) = fixture.main.pin("foo").unwrap();
    let second = first.clone();
    let removal = tracker.remove().unwrap();
    assert_eq!(removal.blockers(), (2, 0));
    let third = second.clone();
    assert_eq!(removal.blockers(), (3, 0));
    drop((first, second));
    assert!(!removal.is_complete());
    drop(third);
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn a_pin_follows_a_transfer() {
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    let (_, pin) = fixture.main.pin("foo").unwrap();
    foo.transfer_to(&bar).unwrap();
    let removal = bar.remove().unwrap();
    assert_eq!(removal.blockers(), (1, 0));
    let clone = pin.clone();
    drop(pin);
    assert_eq!(fixture.manager.take_freed(), [0; 0]);
    drop(clone);
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_second_removal_returns_the_same_ticket() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let (first, second) = (tracker.remove().unwrap(), tracker.remove().unwrap());
    assert_eq!(second.blockers(), (1, 0));
    drop(pin);
    assert!(first.is_complete() && second.is_complete() && tracker.remove().unwrap().is_complete());
    assert_eq!(fixture.log.take(), ["manager removes [7]"], "called once");
}

#[test]
fn waiting_for_a_removal_ends_when_another_thread_drops_the_last_pin() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    let holder = thread::spawn(move || drop(pin));
    removal.wait().unwrap();
    assert_eq!(fixture.manager.take_freed(), [7]);
    holder.join().unwrap();
    removal.wait().unwrap();
}

#[test]
fn waiting_returns_the_manager_error_of_the_thread_that_dropped_the_pin() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    fixture.manager.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(pin);
    assert_eq!(removal.wait().unwrap_err().to_string(), "manager failed");
}

#[test]
fn only_a_ready_symbol_of_a_live_tracker_can_be_pinned() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo"]);
    assert!(fixture.main.pin("absent").is_none());
    assert!(fixture.main.pin("foo").is_none(), "lazy");
    let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert!(fixture.main.pin("foo").is_none(), "resolved");
    r.notify_emitted(Vec::new()).unwrap();
    assert!(fixture.main.pin("foo").is_some());
    tracker.remove().unwrap();
    assert!(fixture.main.pin("foo").is_none(), "removed");
}

#[test]
fn under_the_explicit_policy_the_last_pin_only_queues() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!(fixture.session.reclaim(), 0);
    drop(pin);
    assert!(!removal.is_complete());
    assert_eq!(fixture.log.take(), [""; 0]);
    assert_eq!(fixture.session.reclaim(), 1);
    assert!(removal.is_complete());
    assert_eq!(fixture.log.take(), ["manager removes [7]"]);
    assert_eq!(fixture.session.reclaim(), 0);
}

#[test]
fn under_the_explicit_policy_an_unpinned_removal_is_complete_at_once() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    assert!(fixture.loaded("foo", 7).remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn under_the_explicit_policy_a_ring_is_reclaimed_as_one_batch() {
    // Symptom: trackers left the queue one at a time, so memory of one was freed before the finalisers of the other had run.
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    let late = LedgerManager::new("late", &fixture.log);
    fixture.session.register_manager(late);
    let a = fixture.tracker();
    let b = fixture.tracker();
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 2)).unwrap();
    fixture.find("a").unwrap();
    let (_, pin) = fixture.main.pin("a").unwrap();
    a.remove().unwrap();
    b.remove().unwrap();
    drop(pin);
    assert_eq!(fixture.log.take(), [""; 0]);
    assert_eq!(fixture.session.reclaim(), 2);
    assert_eq!(
        fixture.log.take(),
        ["late removes []", "late removes []", "manager removes [2]", "manager removes [1]"]
    );
}

#[test]
fn ending_the_session_reclaims_what_is_queued() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    let tracker = fixture.loaded("foo", 7);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    tracker.remove().unwrap();
    drop(pin);
    fixture.session.end().unwrap();
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn a_pin_outlives_its_session_and_frees_its_tracker_when_dropped() {
    let Fixture { session, main, manager, .. } = {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("foo", 7);
        let _other = fixture.loaded("bar", 8);
        drop(tracker); // now under the default tracker
        fixture
    };
    let (_, pin) = main.pin("foo").unwrap();
    let on_bar = main.pin("bar").unwrap().1;
    drop(session);
    assert!(main.is_defunct());
    assert_eq!(manager.take_freed(), [0; 0], "both are under the default tracker, which is pinned");
    drop(pin);
    drop(main);
    assert_eq!(manager.take_freed(), [0; 0]);
    drop(on_bar);
    assert_eq!(manager.take_freed(), [7, 8]);
}

#[test]
fn a_found_definition_is_pinned_and_never_its_successor() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let reference = fixture.references(&["foo"]).remove(0);
    let pin = fixture.session.pin(&reference).unwrap();
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    let _successor = fixture.loaded("foo", 8);
    assert!(fixture.session.pin(&reference).is_none());
    drop(pin);
    assert!(removal.is_complete());
}

#[test]
fn a_watch_reports_the_state_of_a_definition_and_keeps_nothing_alive() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let (r, _answer) = fixture.claim_under(&tracker, &["foo"], RequiredState::Ready);
    let watch = r.watch().unwrap();
    assert!(matches!(watch.pin(), Watched::Unready));
    finish(r, 1);
    let Watched::Ready(pin) = watch.pin() else { panic!("the symbol is ready") };
    assert!(!tracker.remove().unwrap().is_complete());
    assert!(matches!(watch.pin(), Watched::Gone));
    drop(pin);
    assert!(tracker.remove().unwrap().is_complete(), "the watch holds nothing");
    drop(fixture);
    assert!(matches!(watch.pin(), Watched::Gone));
}
