//! A resource manager that panics: the session stays consistent, and the manager is called again for every resource that it
//! holds.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// A manager that panics in the listed methods.
#[derive(Default)]
struct PanickingManager {
    held: Mutex<HashMap<ResourceKey, Vec<u64>>>,
    pins: Mutex<HashMap<ResourceKey, Vec<Pin>>>,
    freed: Mutex<Vec<u64>>,
    panics_in: Mutex<Vec<&'static str>>,
}

impl PanickingManager {
    fn registered_in(fixture: &Fixture, panics_in: &[&'static str]) -> Arc<PanickingManager> {
        let panicking =
            Arc::new(PanickingManager { panics_in: Mutex::new(panics_in.to_vec()), ..PanickingManager::default() });
        fixture.session.register_manager(panicking.clone());
        panicking
    }

    fn record(&self, tracker: &ResourceTracker, resources: &[u64]) {
        tracker.with_resource_key(|key| self.held.lock().unwrap().entry(key).or_default().extend(resources)).unwrap();
    }

    fn hold_pin(&self, fixture: &Fixture, tracker: &ResourceTracker, name: &str) {
        let pin = fixture.main.pin(name).unwrap().1.into_revocable("held by a manager");
        self.pins.lock().unwrap().entry(tracker.key()).or_default().push(pin);
    }

    fn stop_panicking(&self) {
        self.panics_in.lock().unwrap().clear();
    }

    /// Panics if `method` is one of the listed methods.
    fn panic_in(&self, method: &'static str) {
        let panics = self.panics_in.lock().unwrap().contains(&method);
        // The lock is released first, because the panic would poison it.
        assert!(!panics, "a bug in {method}");
    }

    fn take_freed(&self) -> Vec<u64> {
        let mut freed = std::mem::take(&mut *self.freed.lock().unwrap());
        freed.sort_unstable();
        freed
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap().is_empty()
    }
}

impl ResourceManager for PanickingManager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let held = self.held.lock().unwrap().remove(&key);
        self.freed.lock().unwrap().extend(held.unwrap_or_default());
        self.panic_in("remove_resources");
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        self.panic_in("skips_unused_keys");
        false
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.panic_in("held_bytes");
        self.held.lock().unwrap().get(&key).map_or(0, |held| held.len() as u64)
    }

    fn release_pins(&self, _: &JitDylib, key: ResourceKey) {
        self.panic_in("release_pins");
        let pins = self.pins.lock().unwrap().remove(&key);
        drop(pins);
    }

    /// Moves one resource before it panics.
    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        let moved = self.held.lock().unwrap().get_mut(&source).and_then(Vec::pop);
        self.held.lock().unwrap().entry(destination).or_default().extend(moved);
        self.panic_in("transfer_resources");
        let moved = self.held.lock().unwrap().remove(&source);
        self.held.lock().unwrap().entry(destination).or_default().extend(moved.into_iter().flatten());
        let pins = self.pins.lock().unwrap().remove(&source);
        self.pins.lock().unwrap().entry(destination).or_default().extend(pins.into_iter().flatten());
    }
}

/// The errors that the reporter received.
type Reports = Arc<Mutex<Vec<String>>>;

/// A fixture that records the errors that no caller receives.
fn fixture_with_reports() -> (Fixture, Reports) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let recorder = reports.clone();
    let options = SessionOptions {
        error_reporter: Some(Arc::new(move |error: Error| recorder.lock().unwrap().push(error.to_string()))),
        ..SessionOptions::default()
    };
    (Fixture::with_options(options), reports)
}

/// Three managers, of which the second panics in `transfer_resources`, and two trackers with resources of all three.
fn second_of_three() -> (Fixture, Reports, Arc<PanickingManager>, Arc<LedgerManager>, [ResourceTracker; 2]) {
    let (fixture, reports) = fixture_with_reports();
    let panicking = PanickingManager::registered_in(&fixture, &["transfer_resources"]);
    let third = LedgerManager::new("third", &fixture.log);
    fixture.session.register_manager(third.clone());
    let trackers = [fixture.loaded("foo", 1), fixture.loaded("bar", 2)];
    for (tracker, resource) in trackers.iter().zip([10, 20]) {
        panicking.record(tracker, &[resource, resource + 1]);
        third.ledger.record(tracker.key(), resource + 5);
    }
    (fixture, reports, panicking, third, trackers)
}

#[test]
fn a_transfer_in_which_a_manager_panics_completes_and_returns_the_panic() {
    let (fixture, reports, panicking, third, [foo, bar]) = second_of_three();
    let error = foo.transfer_to(&bar).unwrap_err().to_string();
    for part in ["a bug in transfer_resources", &foo.key().to_string(), &bar.key().to_string(), "`main`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(foo.is_defunct() && !bar.is_defunct());
    assert_eq!(fixture.main.symbol_count_of(bar.key()), 2);
    assert_eq!((fixture.find("foo").unwrap(), fixture.find("bar").unwrap()), (1, 2));
    assert_tracker_defunct(foo.remove());
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
    assert_eq!(third.take_freed(), [25, 15]);
    assert_eq!(panicking.take_freed(), [10, 11, 20, 21], "the resources of both keys");
    assert!(panicking.is_empty() && reports.lock().unwrap().is_empty());
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn a_manager_is_called_once_for_each_key_that_it_may_hold_resources_under() {
    let (fixture, _reports, panicking, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    fixture.log.take();
    bar.remove().unwrap();
    let calls: Vec<_> = fixture.log.take();
    assert_eq!(
        calls,
        ["third removes [25, 15]", "manager removes [2, 1]"],
        "only the panicking manager is called for both keys"
    );
    let next = fixture.loaded("next", 3);
    next.remove().unwrap();
    assert_eq!(panicking.take_freed(), [10, 11, 20, 21]);
}

#[test]
fn a_manager_panic_at_the_drop_of_a_tracker_is_reported_and_clear_frees_everything() {
    let (fixture, reports, panicking, third, trackers) = second_of_three();
    let keys = trackers.each_ref().map(ResourceTracker::key);
    drop(trackers);
    let reported = std::mem::take(&mut *reports.lock().unwrap());
    assert_eq!(reported.len(), 2, "{reported:?}");
    for (report, key) in reported.iter().zip(keys) {
        assert!(report.contains("a bug in transfer_resources") && report.contains(&key.to_string()), "{report}");
    }
    let default = fixture.main.default_tracker().unwrap();
    assert_eq!(fixture.main.symbol_count_of(default.key()), 2);
    assert!(fixture.main.clear().unwrap().is_empty());
    assert_eq!(fixture.manager.take_freed(), [1, 2]);
    assert_eq!(third.take_freed(), [15, 25]);
    assert_eq!(panicking.take_freed(), [10, 11, 20, 21]);
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn unmoved_resources_follow_their_tracker_through_further_transfers() {
    let (fixture, _reports, panicking, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    panicking.stop_panicking();
    let last = fixture.tracker();
    bar.transfer_to(&last).unwrap();
    assert!(last.remove().unwrap().is_complete());
    assert_eq!(panicking.take_freed(), [10, 11, 20, 21]);
    assert!(panicking.is_empty());
}

#[test]
fn unmoved_resources_count_as_held_until_they_are_freed() {
    let (fixture, _reports, _panicking, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    let pin = fixture.main.pin("foo").unwrap().1;
    let removal = bar.remove().unwrap();
    assert_eq!(removal.bytes(), 4, "one resource of foo's key, and three of bar's");
    drop(pin);
    assert_eq!(removal.bytes(), 0);
}

#[test]
fn a_manager_is_asked_to_release_the_standing_pins_that_it_did_not_move() {
    let (fixture, _reports, panicking, _third, [foo, bar]) = second_of_three();
    panicking.hold_pin(&fixture, &foo, "foo");
    foo.transfer_to(&bar).unwrap_err();
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!(panicking.take_freed(), [10, 11, 20, 21]);
}

#[test]
fn a_deregistered_manager_is_not_called_for_unmoved_resources() {
    let (fixture, _reports, panicking, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    let weak = Arc::downgrade(&panicking);
    let manager: Arc<dyn ResourceManager> = panicking;
    fixture.session.deregister_manager(&manager);
    drop(manager);
    assert_eq!(weak.strong_count(), 0, "nothing holds the manager");
    assert!(bar.remove().unwrap().is_complete());
}

#[test]
fn a_manager_that_panics_in_every_method_does_not_stop_other_managers() {
    let (fixture, reports) = fixture_with_reports();
    let all = ["remove_resources", "skips_unused_keys", "held_bytes", "release_pins", "transfer_resources"];
    let panicking = PanickingManager::registered_in(&fixture, &all);
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    panicking.record(&foo, &[10, 11]);
    foo.transfer_to(&bar).unwrap_err();
    let standing = fixture.main.pin("bar").unwrap().1.into_revocable("stands");
    let removal = bar.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(removal.bytes(), 0, "a manager that panics counts as zero bytes");
    drop(standing);
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
    let error = removal.wait().unwrap_err().to_string();
    assert_eq!(error.matches("a bug in remove_resources").count(), 2, "once for each key: {error}");
    let reported = reports.lock().unwrap().join("\n");
    for method in ["release_pins", "held_bytes", "remove_resources"] {
        assert!(reported.contains(&format!("a bug in {method}")), "{method}: {reported}");
    }
    assert_eq!(panicking.take_freed(), [10, 11]);
}

#[test]
fn a_panic_payload_that_panics_when_dropped_does_not_stop_a_removal() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    struct PanicsWithPayload;
    impl ResourceManager for PanicsWithPayload {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            std::panic::panic_any(Payload)
        }
        fn release_pins(&self, _: &JitDylib, _: ResourceKey) {
            std::panic::panic_any(Payload)
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {
            std::panic::panic_any(Payload)
        }
    }
    let fixture = Fixture::new();
    fixture.session.register_manager(Arc::new(PanicsWithPayload));
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    let transferred = catch_unwind(AssertUnwindSafe(|| foo.transfer_to(&bar))).expect("the panic stays inside");
    assert!(transferred.unwrap_err().to_string().contains("the panic carries no message"));
    let standing = fixture.main.pin("bar").unwrap().1.into_revocable("stands");
    let removal = catch_unwind(AssertUnwindSafe(|| bar.remove())).expect("the panic stays inside").unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(standing))).expect("the panic stays inside");
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

/// The list of managers may be the last owner of a deregistered manager.
#[test]
fn a_deregistered_manager_may_call_the_session_when_its_last_owner_drops_it() {
    struct Calls(Mutex<Option<Removal>>, Log);
    impl ResourceManager for Calls {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    impl Drop for Calls {
        fn drop(&mut self) {
            if let Some(removal) = self.0.lock().unwrap().take() {
                self.1.push(format!("{} bytes", removal.bytes()));
            }
        }
    }
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let calls = Arc::new(Calls(Mutex::new(None), fixture.log.clone()));
    fixture.session.register_manager(calls.clone());
    let tracker = other.create_tracker().unwrap();
    tracker.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    find_in(&fixture.session, &[&other], "foo").unwrap();
    let pin = other.pin("foo").unwrap().1;
    let removal = fixture.session.remove_dylib(&other).unwrap().remove(0);
    // Fills the list of managers that the dylib caches. After the deregistration only this list owns the manager.
    removal.bytes();
    *calls.0.lock().unwrap() = Some(removal.clone());
    let manager: Arc<dyn ResourceManager> = calls;
    fixture.session.deregister_manager(&manager);
    drop(manager);
    fixture.log.take();
    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(fixture.log.take().first().map(String::as_str), Some("0 bytes"));
}
