//! Forgetting handles, in any order and on any thread: nothing is freed that runs, nothing leaks, nobody hangs.

use std::cell::RefCell;
use std::thread;

use jittison::session::*;

use crate::support::*;

#[test]
fn dropping_the_last_handle_gives_everything_to_the_default_tracker() {
    let world = World::new();
    let tracker = world.loaded("foo", 1);
    let key = tracker.key();
    let clone = tracker.clone();
    drop(tracker);
    assert_eq!(world.log.take(), [""; 0], "a clone is left");
    drop(clone);

    assert_eq!(world.log.take(), ["books transfers"]);
    let default = world.main.default_tracker().unwrap();
    assert_eq!(world.books.under(default.key()), [1]);
    assert_eq!(world.books.under(key), [0; 0]);
    assert_eq!(world.find("foo").unwrap(), 1);
    default.remove().unwrap();
    assert_eq!(world.books.take_given_back(), [1]);
    assert_not_found(world.find("foo"));
}

#[test]
fn a_tracker_handle_got_from_a_responsibility_counts_as_a_clone() {
    // Dropping it used to count as dropping the last handle: the tracker was merged away under its owner's feet.
    let world = World::new();
    let tracker = world.tracker();
    let unit = Unit::exported(&["foo"], |r| {
        drop(r.tracker());
        finish(r, 1);
    });
    tracker.define(unit).unwrap();
    world.find("foo").unwrap();
    assert!(!tracker.is_defunct());
    assert_eq!(world.main.symbol_count_of(tracker.key()), 1);
    assert_eq!(world.log.take(), [""; 0]);
}

#[test]
fn a_tracker_handle_got_from_a_responsibility_may_be_the_last() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    let from_work = r.tracker();
    drop(tracker);
    assert!(!from_work.is_defunct());
    finish(r, 1);
    from_work.remove().unwrap();
    assert_not_found(world.find("foo"));
}

#[test]
fn dropping_the_last_handle_while_work_is_in_flight_moves_the_work() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    drop(tracker);
    let r = held.take();
    let default = world.main.default_tracker().unwrap();
    assert_eq!(r.with_resource_key(|key| key).unwrap(), default.key());
    drop(r.tracker());
    finish(r, 1);
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn dropping_a_default_tracker_handle_moves_nothing() {
    let world = World::new();
    world.main.define(Unit::recording(&["foo"], &world.books, 1)).unwrap();
    world.find("foo").unwrap();
    drop(world.main.default_tracker().unwrap());
    assert_eq!(world.log.take(), [""; 0]);
    assert_eq!(world.find("foo").unwrap(), 1);
}

#[test]
fn a_removed_default_tracker_is_replaced_on_next_use() {
    let world = World::new();
    let first = world.main.default_tracker().unwrap();
    first.remove().unwrap();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let second = world.main.default_tracker().unwrap();
    assert!(first.key() != second.key() && !second.is_defunct());
    let heir = world.tracker();
    second.transfer_to(&heir).unwrap();
    assert_eq!(world.main.symbol_count_of(heir.key()), 1);
    assert!(world.main.default_tracker().unwrap().key() != second.key());
}

#[test]
fn handles_may_go_in_any_order() {
    // Session, dylib, tracker, pin: every order of dropping gives the one resource back exactly once.
    let mut order = [0, 1, 2, 3];
    for _ in 0..24 {
        let World { session, main, books, .. } = World::new();
        let tracker = main.create_tracker().unwrap();
        tracker.define(Unit::recording(&["foo"], &books, 7)).unwrap();
        find_in(&session, &[&main], "foo").unwrap();
        let (_, pin) = main.pin("foo").unwrap();
        let (mut session, mut main, mut tracker, mut pin) = (Some(session), Some(main), Some(tracker), Some(pin));
        for handle in order {
            assert_eq!(books.given_back.lock().unwrap().len(), 0, "{order:?}");
            match handle {
                0 => drop(session.take()),
                1 => drop(main.take()),
                2 => drop(tracker.take()),
                _ => drop(pin.take()),
            }
            if session.is_none() && pin.is_none() {
                break;
            }
        }
        assert_eq!(books.take_given_back(), [7], "{order:?}");
        next_permutation(&mut order);
    }
    assert_eq!(order, [0, 1, 2, 3], "all orders were tried");
}

fn next_permutation(order: &mut [i32]) {
    let Some(pivot) = (1..order.len()).rev().find(|i| order[i - 1] < order[*i]) else { return order.reverse() };
    let swap = (pivot..order.len()).rev().find(|i| order[*i] > order[pivot - 1]).expect("the pivot itself is larger");
    order.swap(pivot - 1, swap);
    order[pivot..].reverse();
}

#[test]
fn what_unwinding_drops_is_given_back_as_usual() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let removal = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (_, _pin) = world.main.pin("foo").unwrap();
        let removal = tracker.remove().unwrap();
        assert!(!removal.is_complete());
        std::panic::panic_any(removal);
    }));
    let removal = removal.unwrap_err().downcast::<Removal>().expect("what the closure threw");
    assert!(removal.is_complete());
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn a_responsibility_that_dies_with_its_thread_fails_its_query() {
    // The thread's task queue was gone already; touching it there aborted the process.
    thread_local! {
        static LAST: RefCell<Option<MaterializationResponsibility>> = const { RefCell::new(None) };
    }
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    let session = world.session.clone();
    thread::spawn(move || {
        // Registered before the task queue is first used, so destroyed after it.
        LAST.with(|last| *last.borrow_mut() = Some(r));
        session.lookup(&[], &[], RequiredState::Ready).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}
