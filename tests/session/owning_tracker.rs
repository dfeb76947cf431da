//! Owners of trackers: the drop of an owner removes what the tracker owns, and an owner can give the tracker away.

use std::sync::{Arc, Mutex};

use jittison::error::Error;
use jittison::session::*;

use crate::support::*;

#[test]
fn dropping_an_owner_removes_the_tracker_although_handles_exist() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    let owner = tracker.clone().remove_on_drop();
    assert_eq!(owner.key(), tracker.key());
    assert_eq!(fixture.find("foo").unwrap(), 1);
    drop(owner);
    assert_eq!(fixture.manager.take_freed(), [1]);
    assert!(tracker.is_defunct());
    assert_not_found(fixture.find("foo"));
}

#[test]
fn a_panic_of_the_owner_removes_the_tracker() {
    let fixture = Fixture::new();
    let owner = fixture.loaded("foo", 1).remove_on_drop();
    let panics = std::panic::AssertUnwindSafe(|| {
        let _owner = owner;
        std::panic::resume_unwind(Box::new("given up"));
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(fixture.manager.take_freed(), [1]);
}

#[test]
fn an_owner_that_gives_the_tracker_away_removes_nothing() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1).remove_on_drop().into_tracker();
    assert!(!tracker.is_defunct());
    drop(tracker);
    assert_eq!(fixture.log.take(), ["manager transfers"], "it is an ordinary handle again");
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn an_owner_of_a_pinned_tracker_leaves_its_resources_to_the_last_pin() {
    let fixture = Fixture::new();
    let owner = fixture.loaded("foo", 1).remove_on_drop();
    let pin = fixture.main.pin("foo").unwrap();
    drop(owner);
    assert_not_found(fixture.find("foo"));
    assert_eq!(fixture.manager.take_freed(), [0; 0]);
    drop(pin);
    assert_eq!(fixture.manager.take_freed(), [1]);
}

#[test]
fn an_owner_of_a_removed_or_transferred_tracker_drops_without_a_report() {
    let reports: Arc<Mutex<Vec<Error>>> = Arc::default();
    let sink = reports.clone();
    let reporter: ErrorReporter = Arc::new(move |error| sink.lock().unwrap().push(error));
    let fixture = Fixture::with_options(SessionOptions { error_reporter: Some(reporter), ..SessionOptions::default() });
    let (removed, transferred) = (fixture.loaded("foo", 1).remove_on_drop(), fixture.loaded("bar", 2).remove_on_drop());
    removed.clone().remove().unwrap();
    transferred.transfer_to(&fixture.main.default_tracker().unwrap()).unwrap();
    drop((removed, transferred));
    assert!(reports.lock().unwrap().is_empty());
    assert_eq!(fixture.find("bar").unwrap(), 2);
    let owner = fixture.loaded("baz", 3).remove_on_drop();
    assert!(owner.remove().unwrap().is_complete());
}
