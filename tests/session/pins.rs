//! Pins: a pinned tracker is removed at once by name and given back when its last pin goes.

use std::thread;

use jittison::session::*;

use crate::support::*;

#[test]
fn a_pin_keeps_the_managers_untold_until_it_is_dropped() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (found, pin) = world.main.pin("foo").unwrap();
    assert_eq!(found, address(7));

    let removal = tracker.remove().unwrap();

    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (1, 0));
    assert_eq!(world.log.take(), [""; 0]);
    assert_not_found(world.find("foo"));
    assert!(tracker.is_defunct());

    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(removal.blockers(), (0, 0));
    assert_eq!(world.log.take(), ["books removes [7]"]);
}

#[test]
fn dropping_a_pin_of_a_live_tracker_gives_nothing_back() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    drop(world.main.pin("foo").unwrap());
    assert_eq!(world.log.take(), [""; 0]);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn every_clone_of_a_pin_counts_even_one_made_after_the_removal() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, first) = world.main.pin("foo").unwrap();
    let second = first.clone();
    let removal = tracker.remove().unwrap();
    assert_eq!(removal.blockers(), (2, 0));
    let third = second.clone();
    assert_eq!(removal.blockers(), (3, 0));
    drop((first, second));
    assert!(!removal.is_complete());
    drop(third);
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn a_pin_follows_a_transfer() {
    let world = World::new();
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    let (_, pin) = world.main.pin("foo").unwrap();
    foo.transfer_to(&bar).unwrap();
    let removal = bar.remove().unwrap();
    assert_eq!(removal.blockers(), (1, 0));
    let clone = pin.clone();
    drop(pin);
    assert_eq!(world.books.take_given_back(), [0; 0]);
    drop(clone);
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_second_removal_gives_the_same_ticket() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let (first, second) = (tracker.remove().unwrap(), tracker.remove().unwrap());
    assert_eq!(second.blockers(), (1, 0));
    drop(pin);
    assert!(first.is_complete() && second.is_complete() && tracker.remove().unwrap().is_complete());
    assert_eq!(world.log.take(), ["books removes [7]"], "told once");
}

#[test]
fn waiting_for_a_removal_returns_when_the_last_pin_goes_on_another_thread() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    let holder = thread::spawn(move || drop(pin));
    removal.wait().unwrap();
    assert_eq!(world.books.take_given_back(), [7]);
    holder.join().unwrap();
    removal.wait().unwrap();
}

#[test]
fn waiting_reports_what_the_managers_said_to_the_thread_that_dropped_the_pin() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    world.books.fails.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(pin);
    assert_eq!(removal.wait().unwrap_err().to_string(), "books failed");
}

#[test]
fn only_a_ready_symbol_of_a_live_tracker_can_be_pinned() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    assert!(world.main.pin("absent").is_none());
    assert!(world.main.pin("foo").is_none(), "lazy");
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert!(world.main.pin("foo").is_none(), "resolved");
    r.notify_emitted(Vec::new()).unwrap();
    assert!(world.main.pin("foo").is_some());
    tracker.remove().unwrap();
    assert!(world.main.pin("foo").is_none(), "removed");
}

#[test]
fn under_the_explicit_policy_the_last_pin_only_queues() {
    let world = World::with_policy(ReclaimPolicy::Explicit);
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!(world.session.reclaim(), 0);
    drop(pin);
    assert!(!removal.is_complete());
    assert_eq!(world.log.take(), [""; 0]);
    assert_eq!(world.session.reclaim(), 1);
    assert!(removal.is_complete());
    assert_eq!(world.log.take(), ["books removes [7]"]);
    assert_eq!(world.session.reclaim(), 0);
}

#[test]
fn under_the_explicit_policy_an_unpinned_removal_is_complete_at_once() {
    let world = World::with_policy(ReclaimPolicy::Explicit);
    assert!(world.loaded("foo", 7).remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn under_the_explicit_policy_a_ring_is_reclaimed_as_one_batch() {
    // It was taken from the queue one tracker at a time: one's memory went before the other's finalisers had run.
    let world = World::with_policy(ReclaimPolicy::Explicit);
    let late = Books::new("late", &world.log);
    world.session.register_manager(late);
    let a = world.tracker();
    let b = world.tracker();
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 2)).unwrap();
    world.find("a").unwrap();
    let (_, pin) = world.main.pin("a").unwrap();
    a.remove().unwrap();
    b.remove().unwrap();
    drop(pin);
    assert_eq!(world.log.take(), [""; 0]);
    assert_eq!(world.session.reclaim(), 2);
    assert_eq!(world.log.take(), ["late removes []", "late removes []", "books removes [2]", "books removes [1]"]);
}

#[test]
fn ending_the_session_reclaims_what_is_queued() {
    let world = World::with_policy(ReclaimPolicy::Explicit);
    let tracker = world.loaded("foo", 7);
    let (_, pin) = world.main.pin("foo").unwrap();
    tracker.remove().unwrap();
    drop(pin);
    world.session.end().unwrap();
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn a_pin_outlives_its_session_and_gives_back_when_it_goes() {
    let World { session, main, books, .. } = {
        let world = World::new();
        let tracker = world.loaded("foo", 7);
        let _other = world.loaded("bar", 8);
        drop(tracker); // now under the default tracker
        world
    };
    let (_, pin) = main.pin("foo").unwrap();
    let on_bar = main.pin("bar").unwrap().1;
    drop(session);
    assert!(main.is_defunct());
    assert_eq!(books.take_given_back(), [0; 0], "both are under the default tracker, which is pinned");
    drop(pin);
    drop(main);
    assert_eq!(books.take_given_back(), [0; 0]);
    drop(on_bar);
    assert_eq!(books.take_given_back(), [7, 8]);
}

#[test]
fn a_definition_that_a_lookup_found_can_be_pinned_and_not_its_successor_instead() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let reference = world.references(&["foo"]).remove(0);
    let pin = world.session.pin(&reference).unwrap();
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    let _successor = world.loaded("foo", 8);
    assert!(world.session.pin(&reference).is_none());
    drop(pin);
    assert!(removal.is_complete());
}

#[test]
fn a_watch_says_how_far_a_definition_is_and_keeps_nothing_alive() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    let watch = r.watch().unwrap();
    assert!(matches!(watch.pin(), Watched::Unready));
    finish(r, 1);
    let Watched::Ready(pin) = watch.pin() else { panic!("the symbol is ready") };
    assert!(!tracker.remove().unwrap().is_complete());
    assert!(matches!(watch.pin(), Watched::Gone));
    drop(pin);
    assert!(tracker.remove().unwrap().is_complete(), "the watch held nothing");
    drop(world);
    assert!(matches!(watch.pin(), Watched::Gone));
}
