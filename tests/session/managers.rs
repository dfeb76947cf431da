//! Resource managers: order of calls, failures, transfers, calls into the session, registration and deregistration.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::error::{ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// A fixture with three managers, oldest first.
fn three_managers() -> (Fixture, Arc<LedgerManager>, Arc<LedgerManager>) {
    let fixture = Fixture::new();
    let (second, third) = (LedgerManager::new("second", &fixture.log), LedgerManager::new("third", &fixture.log));
    fixture.session.register_manager(second.clone());
    fixture.session.register_manager(third.clone());
    (fixture, second, third)
}

#[test]
fn managers_are_called_newest_first() {
    let (fixture, second, third) = three_managers();
    let tracker = fixture.loaded("foo", 1);
    second.ledger.record(tracker.key(), 2);
    third.ledger.record(tracker.key(), 3);
    tracker.remove().unwrap();
    assert_eq!(fixture.log.take(), ["third removes [3]", "second removes [2]", "manager removes [1]"]);
}

#[test]
fn managers_are_called_once_for_a_transfer_newest_first() {
    let (fixture, ..) = three_managers();
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    bar.transfer_to(&foo).unwrap();
    assert_eq!(fixture.log.take(), ["third transfers", "second transfers", "manager transfers"]);
    assert_eq!(fixture.manager.recorded_under(foo.key()), [1, 2]);
}

#[test]
fn a_failing_manager_stops_no_other_and_undoes_nothing() {
    let (fixture, second, _third) = three_managers();
    let tracker = fixture.loaded("foo", 1);
    second.fails.store(true, Ordering::Relaxed);

    let error = tracker.remove().unwrap_err();

    assert_eq!(error.to_string(), "second failed");
    assert_eq!(fixture.log.take(), ["third removes []", "second removes []", "manager removes [1]"]);
    assert_not_found(fixture.find("foo"));
    let again = tracker.remove().unwrap();
    assert!(again.is_complete());
    assert_eq!(again.wait().unwrap_err().to_string(), "second failed");
    assert_eq!(fixture.log.take(), [""; 0], "a second removal calls no manager");
}

#[test]
fn the_failures_of_several_managers_are_joined() {
    let (fixture, second, third) = three_managers();
    let tracker = fixture.loaded("foo", 1);
    second.fails.store(true, Ordering::Relaxed);
    third.fails.store(true, Ordering::Relaxed);
    let error = tracker.remove().unwrap_err();
    match error.kind() {
        ErrorKind::Several(failures) => {
            let texts: Vec<_> = failures.iter().map(|failure| failure.to_string()).collect();
            assert_eq!(texts, ["third failed", "second failed"]);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn clearing_and_ending_join_the_failures_of_all_trackers() {
    let fixture = Fixture::new();
    let _trackers = [fixture.loaded("foo", 1), fixture.loaded("bar", 2)];
    fixture.manager.fails.store(true, Ordering::Relaxed);
    let error = fixture.main.clear().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Several(failures) if failures.len() == 2), "{error}");
    assert_eq!(fixture.manager.take_freed(), [2, 1], "newest first");

    let _late = fixture.loaded("baz", 3);
    assert_eq!(fixture.session.end().unwrap_err().to_string(), "manager failed");
    assert!(fixture.main.is_defunct());
}

#[test]
fn a_manager_may_call_back_into_the_session_from_remove_resources() {
    struct Caller {
        session: Mutex<Option<ExecutionSession>>,
        victim: Mutex<Option<ResourceTracker>>,
        calls: Mutex<usize>,
    }
    impl ResourceManager for Caller {
        fn remove_resources(&self, dylib: &JitDylib, _key: ResourceKey) -> Result<()> {
            *self.calls.lock().unwrap() += 1;
            let Some(session) = self.session.lock().unwrap().take() else { return Ok(()) };
            assert_not_found(find_in(&session, &[dylib], "foo"));
            assert_eq!(find_in(&session, &[dylib], "bar").unwrap(), 2);
            dylib.define(Unit::ready(&["foo"], 9))?;
            assert_eq!(find_in(&session, &[dylib], "foo").unwrap(), 9);
            let other = dylib.create_tracker()?;
            other.define(Unit::never(&["lazy"]))?;
            other.remove()?;
            let victim = self.victim.lock().unwrap().take().expect("the first call has it");
            assert!(victim.remove()?.is_complete());
            session.create_dylib("made by a manager")?;
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let fixture = Fixture::new();
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    let caller = Arc::new(Caller {
        session: Mutex::new(Some(fixture.session.clone())),
        victim: Mutex::new(Some(bar)),
        calls: Mutex::default(),
    });
    fixture.session.register_manager(caller.clone());
    assert!(foo.remove().unwrap().is_complete());
    assert_eq!(*caller.calls.lock().unwrap(), 3, "foo, the lazy one, bar");
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
    assert_eq!(fixture.find("foo").unwrap(), 9);
}

#[test]
fn a_manager_may_remove_the_tracker_that_it_is_called_for() {
    struct Again(Mutex<Option<ResourceTracker>>);
    impl ResourceManager for Again {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            let Some(tracker) = self.0.lock().unwrap().take() else { return Ok(()) };
            assert!(!tracker.remove()?.is_complete(), "this call is part of its reclamation");
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    fixture.session.register_manager(Arc::new(Again(Mutex::new(Some(tracker.clone())))));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [1]);
}

#[test]
fn a_manager_that_is_registered_again_keeps_its_place_and_is_called_once() {
    let (fixture, second, _third) = three_managers();
    fixture.session.register_manager(second.clone());
    fixture.session.register_manager(fixture.manager.clone());
    fixture.loaded("foo", 1).remove().unwrap();
    assert_eq!(fixture.log.take(), ["third removes []", "second removes []", "manager removes [1]"]);
}

#[test]
fn a_deregistered_manager_is_not_called() {
    let (fixture, second, _third) = three_managers();
    let tracker = fixture.loaded("foo", 1);
    let second: Arc<dyn ResourceManager> = second;
    fixture.session.deregister_manager(&second);
    tracker.remove().unwrap();
    assert_eq!(fixture.log.take(), ["third removes []", "manager removes [1]"]);
}

#[test]
fn a_ledger_records_transfers_and_takes_in_order() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.tracker(), fixture.tracker());
    let ledger = Ledger::new();
    ledger.record(a.key(), 'x');
    ledger.record(b.key(), 'y');
    ledger.record(a.key(), 'z');
    assert_eq!(ledger.key_count(), 2);
    ledger.transfer(b.key(), a.key());
    assert_eq!((ledger.key_count(), ledger.take(a.key())), (1, vec![]));
    ledger.inspect(b.key(), |held| held.reverse());
    assert_eq!(ledger.take(b.key()), ['z', 'x', 'y']);
    assert_eq!(ledger.key_count(), 0);
    ledger.transfer(a.key(), b.key());
    assert_eq!(ledger.key_count(), 0, "an empty transfer makes no entry");
}

/// Counts its `remove_resources` calls.
struct CountingManager {
    skips: bool,
    calls: AtomicUsize,
}

impl CountingManager {
    fn new(skips: bool) -> Arc<CountingManager> {
        Arc::new(CountingManager { skips, calls: AtomicUsize::new(0) })
    }

    fn take(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

impl ResourceManager for CountingManager {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        self.skips
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

#[test]
fn managers_are_called_for_unused_keys_unless_they_skip_them() {
    let fixture = Fixture::new();
    let (all, used) = (CountingManager::new(false), CountingManager::new(true));
    fixture.session.register_manager(all.clone());
    fixture.session.register_manager(used.clone());
    let calls = || (all.take(), used.take());

    fixture.tracker().remove().unwrap();
    assert_eq!(calls(), (1, 0), "its key was never used");

    let tracker = fixture.tracker();
    tracker.with_resource_key(|_| ()).unwrap();
    tracker.remove().unwrap();
    assert_eq!(calls(), (1, 1), "a resource may be recorded under its key");

    let (source, destination) = (fixture.tracker(), fixture.tracker());
    source.with_resource_key(|_| ()).unwrap();
    source.transfer_to(&destination).unwrap();
    destination.remove().unwrap();
    assert_eq!(calls(), (1, 1), "it has the resources of the source");

    let trackers = [fixture.tracker(), fixture.loaded("foo", 1)];
    ResourceTracker::remove_all(&trackers).unwrap();
    assert_eq!(calls(), (2, 1), "one call for each tracker of a batch");
}

/// A manager that panics.
struct Panics;

impl ResourceManager for Panics {
    fn remove_resources(&self, _dylib: &JitDylib, _key: ResourceKey) -> Result<()> {
        panic!("index out of bounds")
    }

    fn transfer_resources(&self, _dylib: &JitDylib, _destination: ResourceKey, _source: ResourceKey) {}
}

#[test]
fn a_manager_panic_is_returned_and_the_removal_still_completes() {
    let fixture = Fixture::new();
    fixture.session.register_manager(Arc::new(Panics));
    let tracker = fixture.loaded("foo", 1);
    let error = tracker.remove().unwrap_err();
    assert_eq!(error.to_string(), "a resource manager panicked: index out of bounds");
    assert_eq!(fixture.log.take(), ["manager removes [1]"], "the older manager is still called");
    assert!(tracker.remove().unwrap().is_complete());
}
