//! A resource manager that panics: the session stays whole, and everything that the manager was given is asked for again.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// A manager that panics in the methods that it is told to panic in.
#[derive(Default)]
struct Faulty {
    held: Mutex<HashMap<ResourceKey, Vec<u64>>>,
    pins: Mutex<HashMap<ResourceKey, Vec<Pin>>>,
    given_back: Mutex<Vec<u64>>,
    panics_in: Mutex<Vec<&'static str>>,
}

impl Faulty {
    fn of(world: &World, panics_in: &[&'static str]) -> Arc<Faulty> {
        let faulty = Arc::new(Faulty { panics_in: Mutex::new(panics_in.to_vec()), ..Faulty::default() });
        world.session.register_manager(faulty.clone());
        faulty
    }

    fn record(&self, tracker: &ResourceTracker, resources: &[u64]) {
        tracker.with_resource_key(|key| self.held.lock().unwrap().entry(key).or_default().extend(resources)).unwrap();
    }

    fn lend(&self, world: &World, tracker: &ResourceTracker, name: &str) {
        let pin = world.main.pin(name).unwrap().1.stand("lent");
        self.pins.lock().unwrap().entry(tracker.key()).or_default().push(pin);
    }

    fn work(&self) {
        self.panics_in.lock().unwrap().clear();
    }

    fn panic_in(&self, method: &'static str) {
        let panics = self.panics_in.lock().unwrap().contains(&method);
        // Not under the lock, which it would poison.
        assert!(!panics, "a bug in {method}");
    }

    fn take_given_back(&self) -> Vec<u64> {
        let mut given_back = std::mem::take(&mut *self.given_back.lock().unwrap());
        given_back.sort_unstable();
        given_back
    }

    fn is_empty(&self) -> bool {
        self.held.lock().unwrap().is_empty()
    }
}

impl ResourceManager for Faulty {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let held = self.held.lock().unwrap().remove(&key);
        self.given_back.lock().unwrap().extend(held.unwrap_or_default());
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

    /// Half of it, before it panics.
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

/// A world that keeps the errors that no caller receives.
fn world_with_reports() -> (World, Arc<Mutex<Vec<String>>>) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = reports.clone();
    let options = SessionOptions {
        error_reporter: Some(Arc::new(move |error: Error| told.lock().unwrap().push(error.to_string()))),
        ..SessionOptions::default()
    };
    (World::with_options(options), reports)
}

/// What the error reporter has heard.
type Reports = Arc<Mutex<Vec<String>>>;

/// Three managers, of which the second panics in `transfer_resources`, and two trackers with resources of all of them.
fn second_of_three() -> (World, Reports, Arc<Faulty>, Arc<Books>, [ResourceTracker; 2]) {
    let (world, reports) = world_with_reports();
    let faulty = Faulty::of(&world, &["transfer_resources"]);
    let third = Books::new("third", &world.log);
    world.session.register_manager(third.clone());
    let trackers = [world.loaded("foo", 1), world.loaded("bar", 2)];
    for (tracker, resource) in trackers.iter().zip([10, 20]) {
        faulty.record(tracker, &[resource, resource + 1]);
        third.ledger.record(tracker.key(), resource + 5);
    }
    (world, reports, faulty, third, trackers)
}

#[test]
fn a_transfer_in_which_a_manager_panics_is_completed_and_says_so() {
    let (world, reports, faulty, third, [foo, bar]) = second_of_three();
    let error = foo.transfer_to(&bar).unwrap_err().to_string();
    for part in ["a bug in transfer_resources", &foo.key().to_string(), &bar.key().to_string(), "`main`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(foo.is_defunct() && !bar.is_defunct());
    assert_eq!(world.main.symbol_count_of(bar.key()), 2);
    assert_eq!((world.find("foo").unwrap(), world.find("bar").unwrap()), (1, 2));
    assert_tracker_defunct(foo.remove());
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
    assert_eq!(third.take_given_back(), [25, 15]);
    assert_eq!(faulty.take_given_back(), [10, 11, 20, 21], "what stood under both keys");
    assert!(faulty.is_empty() && reports.lock().unwrap().is_empty());
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn a_manager_is_told_once_of_each_key_that_it_may_hold_something_under() {
    let (world, _reports, faulty, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    world.log.take();
    bar.remove().unwrap();
    let told: Vec<_> = world.log.take();
    assert_eq!(told, ["third removes [25, 15]", "books removes [2, 1]"], "only the faulty one is told of both keys");
    let next = world.loaded("next", 3);
    next.remove().unwrap();
    assert_eq!(faulty.take_given_back(), [10, 11, 20, 21]);
}

#[test]
fn forgetting_a_tracker_whose_manager_panics_is_reported_and_clear_takes_all_of_it_back() {
    let (world, reports, faulty, third, trackers) = second_of_three();
    let keys = trackers.each_ref().map(ResourceTracker::key);
    drop(trackers);
    let reported = std::mem::take(&mut *reports.lock().unwrap());
    assert_eq!(reported.len(), 2, "{reported:?}");
    for (report, key) in reported.iter().zip(keys) {
        assert!(report.contains("a bug in transfer_resources") && report.contains(&key.to_string()), "{report}");
    }
    let default = world.main.default_tracker().unwrap();
    assert_eq!(world.main.symbol_count_of(default.key()), 2);
    assert!(world.main.clear().unwrap().is_empty());
    assert_eq!(world.books.take_given_back(), [1, 2]);
    assert_eq!(third.take_given_back(), [15, 25]);
    assert_eq!(faulty.take_given_back(), [10, 11, 20, 21]);
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn what_a_manager_left_behind_follows_its_tracker_through_further_transfers() {
    let (world, _reports, faulty, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    faulty.work();
    let last = world.tracker();
    bar.transfer_to(&last).unwrap();
    assert!(last.remove().unwrap().is_complete());
    assert_eq!(faulty.take_given_back(), [10, 11, 20, 21]);
    assert!(faulty.is_empty());
}

#[test]
fn what_was_left_behind_counts_as_held_until_it_is_given_back() {
    let (world, _reports, _faulty, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    let pin = world.main.pin("foo").unwrap().1;
    let removal = bar.remove().unwrap();
    assert_eq!(removal.bytes(), 4, "one resource of foo's key, and three of bar's");
    drop(pin);
    assert_eq!(removal.bytes(), 0);
}

#[test]
fn a_manager_is_asked_for_the_standing_pins_that_it_left_behind() {
    let (world, _reports, faulty, _third, [foo, bar]) = second_of_three();
    faulty.lend(&world, &foo, "foo");
    foo.transfer_to(&bar).unwrap_err();
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!(faulty.take_given_back(), [10, 11, 20, 21]);
}

#[test]
fn a_manager_that_was_taken_out_hears_nothing_of_what_it_left_behind() {
    let (world, _reports, faulty, _third, [foo, bar]) = second_of_three();
    foo.transfer_to(&bar).unwrap_err();
    let weak = Arc::downgrade(&faulty);
    let manager: Arc<dyn ResourceManager> = faulty;
    world.session.deregister_manager(&manager);
    drop(manager);
    assert_eq!(weak.strong_count(), 0, "nothing holds it");
    assert!(bar.remove().unwrap().is_complete());
}

#[test]
fn a_manager_that_panics_in_every_method_keeps_no_other_from_giving_back() {
    let (world, reports) = world_with_reports();
    let all = ["remove_resources", "skips_unused_keys", "held_bytes", "release_pins", "transfer_resources"];
    let faulty = Faulty::of(&world, &all);
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    faulty.record(&foo, &[10, 11]);
    foo.transfer_to(&bar).unwrap_err();
    let standing = world.main.pin("bar").unwrap().1.stand("stands");
    let removal = bar.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(removal.bytes(), 0, "what cannot be told is not counted");
    drop(standing);
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
    let error = removal.wait().unwrap_err().to_string();
    assert_eq!(error.matches("a bug in remove_resources").count(), 2, "once for each key: {error}");
    let reported = reports.lock().unwrap().join("\n");
    for method in ["release_pins", "held_bytes", "remove_resources"] {
        assert!(reported.contains(&format!("a bug in {method}")), "{method}: {reported}");
    }
    assert_eq!(faulty.take_given_back(), [10, 11]);
}

#[test]
fn a_manager_whose_panic_panics_when_it_is_dropped_holds_up_nothing() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    struct Worse;
    impl ResourceManager for Worse {
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
    let world = World::new();
    world.session.register_manager(Arc::new(Worse));
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    let told = catch_unwind(AssertUnwindSafe(|| foo.transfer_to(&bar))).expect("the panic stays inside");
    assert!(told.unwrap_err().to_string().contains("it gave no reason"));
    let standing = world.main.pin("bar").unwrap().1.stand("stands");
    let removal = catch_unwind(AssertUnwindSafe(|| bar.remove())).expect("the panic stays inside").unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(standing))).expect("the panic stays inside");
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

/// The session's list of managers may be the last to hold one that was taken out.
#[test]
fn a_manager_that_a_dylib_was_the_last_to_hold_may_call_the_session_when_it_is_dropped() {
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
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let calls = Arc::new(Calls(Mutex::new(None), world.log.clone()));
    world.session.register_manager(calls.clone());
    let tracker = other.create_tracker().unwrap();
    tracker.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    find_in(&world.session, &[&other], "foo").unwrap();
    let pin = other.pin("foo").unwrap().1;
    let removal = world.session.remove_dylib(&other).unwrap().remove(0);
    removal.bytes();
    *calls.0.lock().unwrap() = Some(removal.clone());
    let manager: Arc<dyn ResourceManager> = calls;
    world.session.deregister_manager(&manager);
    drop(manager);
    world.log.take();
    drop(pin);
    assert!(removal.is_complete());
    assert_eq!(world.log.take().first().map(String::as_str), Some("0 bytes"));
}
