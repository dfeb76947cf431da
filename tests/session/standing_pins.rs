//! Standing pins: each says why it holds a removed tracker. When only standing pins hold the tracker, the managers are asked
//! to release them.

use std::sync::{Arc, Mutex};

use jittison::error::Result;
use jittison::session::*;

use crate::support::*;

/// A manager that drops its pins in `release_pins`.
#[derive(Default)]
struct PinHolder {
    pins: Mutex<Vec<Pin>>,
    asked: Mutex<Vec<ResourceKey>>,
}

impl PinHolder {
    fn registered_in(fixture: &Fixture) -> Arc<PinHolder> {
        let holder = Arc::new(PinHolder::default());
        fixture.session.register_manager(holder.clone());
        holder
    }

    fn hold(&self, fixture: &Fixture, name: &str) {
        self.pins.lock().unwrap().push(standing(fixture, name, "held by a manager"));
    }

    /// How often the manager was asked since the last call.
    fn take_asked(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap()).len()
    }
}

impl ResourceManager for PinHolder {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        Ok(())
    }

    fn release_pins(&self, _: &JitDylib, key: ResourceKey) {
        self.asked.lock().unwrap().push(key);
        let pins = std::mem::take(&mut *self.pins.lock().unwrap());
        drop(pins);
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

fn standing(fixture: &Fixture, name: &str, reason: &str) -> Pin {
    fixture.main.pin(name).unwrap().1.into_revocable(reason)
}

#[test]
fn a_removal_lists_its_obstacles_in_words() {
    let fixture = Fixture::new();
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);
    let pins = [fixture.main.pin("b").unwrap().1, standing(&fixture, "b", "thread 12 owes destructors")];
    let clone = pins[1].clone();
    let removal = b.remove().unwrap();
    let dependant = format!("{} of `main`, whose code refers to it", a.key());
    assert_eq!(removal.obstacles(), ["2 owned handles", &dependant, "thread 12 owes destructors"]);
    assert!(format!("{removal:?}").contains("thread 12 owes destructors"), "{removal:?}");
    drop(clone);
    a.remove().unwrap();
    assert_eq!(removal.obstacles(), ["an owned handle", "thread 12 owes destructors"]);
    drop(pins);
    assert!(removal.is_complete() && removal.obstacles().is_empty());
}

#[test]
fn the_manager_is_asked_when_only_standing_pins_remain() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let tracker = fixture.loaded("foo", 7);
    holder.hold(&fixture, "foo");
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!((holder.take_asked(), removal.is_complete()), (0, false));
    drop(pin);
    assert_eq!((holder.take_asked(), removal.is_complete()), (1, true));
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn a_removal_asks_the_manager_at_once_if_only_standing_pins_hold_it() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let tracker = fixture.loaded("foo", 7);
    holder.hold(&fixture, "foo");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((holder.take_asked(), fixture.manager.take_freed()), (1, vec![7]));
}

#[test]
fn a_pin_that_the_manager_does_not_release_holds_until_it_is_dropped() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let tracker = fixture.loaded("foo", 7);
    let (first, second) = (standing(&fixture, "foo", "one"), standing(&fixture, "foo", "two"));
    let removal = tracker.remove().unwrap();
    assert_eq!(holder.take_asked(), 1);
    drop(first);
    assert_eq!((holder.take_asked(), removal.obstacles()), (0, vec!["two".to_string()]), "asked once");
    drop(second);
    assert_eq!((removal.is_complete(), fixture.manager.take_freed()), (true, vec![7]));
}

#[test]
fn the_manager_of_a_ring_is_asked_when_the_last_member_is_removed() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let (a, b) = (fixture.tracker(), fixture.tracker());
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 2)).unwrap();
    fixture.find("a").unwrap();
    holder.hold(&fixture, "a");
    let first = a.remove().unwrap();
    assert_eq!(
        (holder.take_asked(), first.is_complete()),
        (0, false),
        "the other member's code may need the pinned code"
    );
    assert!(b.remove().unwrap().is_complete() && first.is_complete());
    assert_eq!(holder.take_asked(), 1);
    assert_eq!(fixture.manager.take_freed(), [2, 1], "as one batch");
}

#[test]
fn the_manager_is_asked_when_the_last_dependant_is_removed() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let b = fixture.loaded("b", 2);
    let a = fixture.linked("a", &["b"], 1);
    holder.hold(&fixture, "b");
    let removal = b.remove().unwrap();
    assert_eq!((holder.take_asked(), removal.is_complete()), (0, false));
    assert!(a.remove().unwrap().is_complete() && removal.is_complete());
    assert_eq!((holder.take_asked(), fixture.manager.take_freed()), (1, vec![1, 2]));
}

#[test]
fn a_standing_pin_follows_a_transfer() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let (foo, bar) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    holder.hold(&fixture, "foo");
    foo.transfer_to(&bar).unwrap();
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!((holder.take_asked(), fixture.manager.take_freed()), (1, vec![2, 1]));
}

#[test]
fn under_the_explicit_policy_managers_are_asked_in_reclaim() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    let holder = PinHolder::registered_in(&fixture);
    let tracker = fixture.loaded("foo", 7);
    holder.hold(&fixture, "foo");
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    drop(pin);
    assert_eq!((holder.take_asked(), removal.is_complete()), (0, false));
    assert_eq!(fixture.session.reclaim(), 1);
    assert_eq!((holder.take_asked(), removal.is_complete()), (1, true));
}

#[test]
fn a_watch_of_a_tracker_pins_it_after_its_removal_until_it_is_reclaimed() {
    let fixture = Fixture::new();
    let slot = Arc::new(Mutex::new(None));
    let (filled, tracker) = (slot.clone(), fixture.tracker());
    let unit = Unit::exported(&["foo"], move |r| {
        *filled.lock().unwrap() = Some(r.watch_tracker());
        finish(r, 7);
    });
    tracker.define(unit).unwrap();
    fixture.find("foo").unwrap();
    let watch = slot.lock().unwrap().take().unwrap();
    let destination = fixture.loaded("destination", 8);
    tracker.transfer_to(&destination).unwrap();
    let first = watch.pin().unwrap();
    let removal = destination.remove().unwrap();
    let second = watch.pin().unwrap();
    drop(first);
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (1, 0)));
    drop(second);
    assert!(removal.is_complete() && watch.pin().is_none());
}

#[test]
fn a_standing_pin_dropped_before_the_removal_does_not_count() {
    let fixture = Fixture::new();
    let holder = PinHolder::registered_in(&fixture);
    let tracker = fixture.loaded("foo", 1);
    holder.hold(&fixture, "foo");
    drop(standing(&fixture, "foo", "gone"));
    let removal = tracker.remove().unwrap();
    assert_eq!(holder.take_asked(), 1);
    assert!(removal.is_complete());
}

#[test]
fn a_removed_tracker_that_waits_for_a_guard_can_still_be_pinned() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    let (watch, guard) = (tracker.watch(), fixture.session.guard());
    let removal = tracker.remove().unwrap();
    let pin = watch.pin().expect("the guard keeps it");
    drop(guard);
    assert!(!removal.is_complete());
    drop(pin);
    assert!(removal.is_complete());
    assert!(watch.pin().is_none());
}
