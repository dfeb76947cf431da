//! Standing pins: they say why they hold a removed tracker, and their maker is asked to let go when nothing else does.

use std::sync::{Arc, Mutex};

use jittison::error::Result;
use jittison::session::*;

use crate::support::*;

/// A manager that lets go of its pins when it is asked.
#[derive(Default)]
struct Lender {
    pins: Mutex<Vec<Pin>>,
    asked: Mutex<Vec<ResourceKey>>,
}

impl Lender {
    fn of(world: &World) -> Arc<Lender> {
        let lender = Arc::new(Lender::default());
        world.session.register_manager(lender.clone());
        lender
    }

    fn lend(&self, world: &World, name: &str) {
        self.pins.lock().unwrap().push(standing(world, name, "lent"));
    }

    fn asked(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap()).len()
    }
}

impl ResourceManager for Lender {
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

fn standing(world: &World, name: &str, reason: &str) -> Pin {
    world.main.pin(name).unwrap().1.stand(reason)
}

#[test]
fn a_removal_says_in_words_who_is_in_the_way() {
    let world = World::new();
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);
    let pins = [world.main.pin("b").unwrap().1, standing(&world, "b", "thread 12 owes destructors")];
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
fn the_maker_is_asked_when_nothing_else_is_left_and_not_before() {
    let world = World::new();
    let lender = Lender::of(&world);
    let tracker = world.loaded("foo", 7);
    lender.lend(&world, "foo");
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!((lender.asked(), removal.is_complete()), (0, false));
    drop(pin);
    assert_eq!((lender.asked(), removal.is_complete()), (1, true));
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn a_removal_asks_the_maker_itself_when_nothing_else_is_in_the_way() {
    let world = World::new();
    let lender = Lender::of(&world);
    let tracker = world.loaded("foo", 7);
    lender.lend(&world, "foo");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((lender.asked(), world.books.take_given_back()), (1, vec![7]));
}

#[test]
fn what_the_maker_does_not_let_go_of_holds_until_it_goes_by_itself() {
    let world = World::new();
    let lender = Lender::of(&world);
    let tracker = world.loaded("foo", 7);
    let (first, second) = (standing(&world, "foo", "one"), standing(&world, "foo", "two"));
    let removal = tracker.remove().unwrap();
    assert_eq!(lender.asked(), 1);
    drop(first);
    assert_eq!((lender.asked(), removal.obstacles()), (0, vec!["two".to_string()]), "asked once");
    drop(second);
    assert_eq!((removal.is_complete(), world.books.take_given_back()), (true, vec![7]));
}

#[test]
fn the_makers_of_pins_of_a_ring_are_asked_when_its_last_member_is_removed() {
    let world = World::new();
    let lender = Lender::of(&world);
    let (a, b) = (world.tracker(), world.tracker());
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 2)).unwrap();
    world.find("a").unwrap();
    lender.lend(&world, "a");
    let first = a.remove().unwrap();
    assert_eq!((lender.asked(), first.is_complete()), (0, false), "the other's code may need what is lent");
    assert!(b.remove().unwrap().is_complete() && first.is_complete());
    assert_eq!(lender.asked(), 1);
    assert_eq!(world.books.take_given_back(), [2, 1], "as one batch");
}

#[test]
fn the_maker_is_asked_when_the_last_dependant_has_gone() {
    let world = World::new();
    let lender = Lender::of(&world);
    let b = world.loaded("b", 2);
    let a = world.linked("a", &["b"], 1);
    lender.lend(&world, "b");
    let removal = b.remove().unwrap();
    assert_eq!((lender.asked(), removal.is_complete()), (0, false));
    assert!(a.remove().unwrap().is_complete() && removal.is_complete());
    assert_eq!((lender.asked(), world.books.take_given_back()), (1, vec![1, 2]));
}

#[test]
fn a_standing_pin_follows_a_transfer() {
    let world = World::new();
    let lender = Lender::of(&world);
    let (foo, bar) = (world.loaded("foo", 1), world.loaded("bar", 2));
    lender.lend(&world, "foo");
    foo.transfer_to(&bar).unwrap();
    assert!(bar.remove().unwrap().is_complete());
    assert_eq!((lender.asked(), world.books.take_given_back()), (1, vec![2, 1]));
}

#[test]
fn under_the_explicit_policy_makers_are_asked_where_reclaim_is_called() {
    let world = World::with_policy(ReclaimPolicy::Explicit);
    let lender = Lender::of(&world);
    let tracker = world.loaded("foo", 7);
    lender.lend(&world, "foo");
    let (_, pin) = world.main.pin("foo").unwrap();
    let removal = tracker.remove().unwrap();
    drop(pin);
    assert_eq!((lender.asked(), removal.is_complete()), (0, false));
    assert_eq!(world.session.reclaim(), 1);
    assert_eq!((lender.asked(), removal.is_complete()), (1, true));
}

#[test]
fn a_watch_of_a_tracker_pins_it_after_its_removal_until_it_is_reclaimed() {
    let world = World::new();
    let slot = Arc::new(Mutex::new(None));
    let (filled, tracker) = (slot.clone(), world.tracker());
    let unit = Unit::exported(&["foo"], move |r| {
        *filled.lock().unwrap() = Some(r.watch_tracker());
        finish(r, 7);
    });
    tracker.define(unit).unwrap();
    world.find("foo").unwrap();
    let watch = slot.lock().unwrap().take().unwrap();
    let heir = world.loaded("heir", 8);
    tracker.transfer_to(&heir).unwrap();
    let first = watch.pin().unwrap();
    let removal = heir.remove().unwrap();
    let second = watch.pin().unwrap();
    drop(first);
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (1, 0)));
    drop(second);
    assert!(removal.is_complete() && watch.pin().is_none());
}

#[test]
fn a_standing_pin_that_went_ahead_of_the_removal_does_not_count() {
    let world = World::new();
    let lender = Lender::of(&world);
    let tracker = world.loaded("foo", 1);
    lender.lend(&world, "foo");
    drop(standing(&world, "foo", "gone"));
    let removal = tracker.remove().unwrap();
    assert_eq!(lender.asked(), 1);
    assert!(removal.is_complete());
}

#[test]
fn what_waits_for_a_guard_may_be_pinned_by_code_that_runs() {
    let world = World::new();
    let tracker = world.loaded("foo", 1);
    let (watch, guard) = (tracker.watch(), world.session.guard());
    let removal = tracker.remove().unwrap();
    let pin = watch.pin().expect("the guard keeps it");
    drop(guard);
    assert!(!removal.is_complete());
    drop(pin);
    assert!(removal.is_complete());
    assert!(watch.pin().is_none());
}
