//! Resource managers: order, failures, transfers, calling back, coming and going.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::error::{ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// A world with three managers, oldest first.
fn three_managers() -> (World, Arc<Books>, Arc<Books>) {
    let world = World::new();
    let (second, third) = (Books::new("second", &world.log), Books::new("third", &world.log));
    world.session.register_manager(second.clone());
    world.session.register_manager(third.clone());
    (world, second, third)
}

#[test]
fn managers_are_told_newest_first() {
    let (world, second, third) = three_managers();
    let tracker = world.loaded("foo", 1);
    second.ledger.record(tracker.key(), 2);
    third.ledger.record(tracker.key(), 3);
    tracker.remove().unwrap();
    assert_eq!(world.log.take(), ["third removes [3]", "second removes [2]", "books removes [1]"]);
}

#[test]
fn managers_are_told_of_a_transfer_newest_first_and_once() {
    let (world, ..) = three_managers();
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    bar.transfer_to(&foo).unwrap();
    assert_eq!(world.log.take(), ["third transfers", "second transfers", "books transfers"]);
    assert_eq!(world.books.under(foo.key()), [1, 2]);
}

#[test]
fn a_failing_manager_stops_no_other_and_undoes_nothing() {
    let (world, second, _third) = three_managers();
    let tracker = world.loaded("foo", 1);
    second.fails.store(true, Ordering::Relaxed);

    let error = tracker.remove().unwrap_err();

    assert_eq!(error.to_string(), "second failed");
    assert_eq!(world.log.take(), ["third removes []", "second removes []", "books removes [1]"]);
    assert_not_found(world.find("foo"));
    let again = tracker.remove().unwrap();
    assert!(again.is_complete());
    assert_eq!(again.wait().unwrap_err().to_string(), "second failed");
    assert_eq!(world.log.take(), [""; 0], "a second removal tells nobody");
}

#[test]
fn the_failures_of_several_managers_are_joined() {
    let (world, second, third) = three_managers();
    let tracker = world.loaded("foo", 1);
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
    let world = World::new();
    let _trackers = [world.loaded("foo", 1), world.loaded("bar", 2)];
    world.books.fails.store(true, Ordering::Relaxed);
    let error = world.main.clear().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Several(failures) if failures.len() == 2), "{error}");
    assert_eq!(world.books.take_given_back(), [2, 1], "newest first");

    let _late = world.loaded("baz", 3);
    assert_eq!(world.session.end().unwrap_err().to_string(), "books failed");
    assert!(world.main.is_defunct());
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
    let world = World::new();
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    let caller = Arc::new(Caller {
        session: Mutex::new(Some(world.session.clone())),
        victim: Mutex::new(Some(bar)),
        calls: Mutex::default(),
    });
    world.session.register_manager(caller.clone());
    assert!(foo.remove().unwrap().is_complete());
    assert_eq!(*caller.calls.lock().unwrap(), 3, "foo, the lazy one, bar");
    assert_eq!(world.books.take_given_back(), [2, 1]);
    assert_eq!(world.find("foo").unwrap(), 9);
}

#[test]
fn a_manager_may_remove_the_tracker_that_it_is_told_of() {
    struct Again(Mutex<Option<ResourceTracker>>);
    impl ResourceManager for Again {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
            let Some(tracker) = self.0.lock().unwrap().take() else { return Ok(()) };
            assert!(!tracker.remove()?.is_complete(), "its reclaim is this very call");
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let world = World::new();
    let tracker = world.loaded("foo", 1);
    world.session.register_manager(Arc::new(Again(Mutex::new(Some(tracker.clone())))));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(world.books.take_given_back(), [1]);
}

#[test]
fn a_deregistered_manager_hears_nothing_more() {
    let (world, second, _third) = three_managers();
    let tracker = world.loaded("foo", 1);
    let second: Arc<dyn ResourceManager> = second;
    world.session.deregister_manager(&second);
    tracker.remove().unwrap();
    assert_eq!(world.log.take(), ["third removes []", "books removes [1]"]);
}

#[test]
fn a_ledger_records_transfers_and_takes_in_order() {
    let world = World::new();
    let (a, b) = (world.tracker(), world.tracker());
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

/// Counts what it is told of.
struct Counts {
    skips: bool,
    told: AtomicUsize,
}

impl Counts {
    fn new(skips: bool) -> Arc<Counts> {
        Arc::new(Counts { skips, told: AtomicUsize::new(0) })
    }

    fn take(&self) -> usize {
        self.told.swap(0, Ordering::Relaxed)
    }
}

impl ResourceManager for Counts {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        self.told.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        self.skips
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

#[test]
fn managers_are_told_of_trackers_that_never_owned_anything_unless_they_skip_such() {
    let world = World::new();
    let (all, used) = (Counts::new(false), Counts::new(true));
    world.session.register_manager(all.clone());
    world.session.register_manager(used.clone());
    let told = || (all.take(), used.take());

    world.tracker().remove().unwrap();
    assert_eq!(told(), (1, 0), "its key was given to nobody");

    let tracker = world.tracker();
    tracker.with_resource_key(|_| ()).unwrap();
    tracker.remove().unwrap();
    assert_eq!(told(), (1, 1), "something may stand under its key");

    let (source, destination) = (world.tracker(), world.tracker());
    source.with_resource_key(|_| ()).unwrap();
    source.transfer_to(&destination).unwrap();
    destination.remove().unwrap();
    assert_eq!(told(), (1, 1), "it has what the other had");

    let trackers = [world.tracker(), world.loaded("foo", 1)];
    ResourceTracker::remove_all(&trackers).unwrap();
    assert_eq!(told(), (2, 1), "each for itself, where several go together");
}

/// A manager with a bug.
struct Panics;

impl ResourceManager for Panics {
    fn remove_resources(&self, _dylib: &JitDylib, _key: ResourceKey) -> Result<()> {
        panic!("index out of bounds")
    }

    fn transfer_resources(&self, _dylib: &JitDylib, _destination: ResourceKey, _source: ResourceKey) {}
}

#[test]
fn a_panicking_manager_is_reported_and_the_removal_still_ends() {
    let world = World::new();
    world.session.register_manager(Arc::new(Panics));
    let tracker = world.loaded("foo", 1);
    let error = tracker.remove().unwrap_err();
    assert_eq!(error.to_string(), "a resource manager panicked: index out of bounds");
    assert_eq!(world.log.take(), ["books removes [1]"], "the older manager is told all the same");
    assert!(tracker.remove().unwrap().is_complete());
}
