//! Handles dropped in any order and on any thread: running code is not freed, nothing leaks, and no thread hangs.

use std::cell::RefCell;
use std::thread;

use jittison::session::*;

use crate::support::*;

#[test]
fn dropping_the_last_handle_moves_everything_to_the_default_tracker() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 1);
    let key = tracker.key();
    let clone = tracker.clone();
    drop(tracker);
    assert_eq!(fixture.log.take(), [""; 0], "a clone still exists");
    drop(clone);

    assert_eq!(fixture.log.take(), ["manager transfers"]);
    let default = fixture.main.default_tracker().unwrap();
    assert_eq!(fixture.manager.recorded_under(default.key()), [1]);
    assert_eq!(fixture.manager.recorded_under(key), [0; 0]);
    assert_eq!(fixture.find("foo").unwrap(), 1);
    default.remove().unwrap();
    assert_eq!(fixture.manager.take_freed(), [1]);
    assert_not_found(fixture.find("foo"));
}

#[test]
fn a_tracker_handle_from_a_responsibility_counts_as_a_clone() {
    // Symptom: its drop counted as the drop of the last handle, so the tracker was merged while its owner still used it.
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let unit = Unit::exported(&["foo"], |r| {
        drop(r.tracker());
        finish(r, 1);
    });
    tracker.define(unit).unwrap();
    fixture.find("foo").unwrap();
    assert!(!tracker.is_defunct());
    assert_eq!(fixture.main.symbol_count_of(tracker.key()), 1);
    assert_eq!(fixture.log.take(), [""; 0]);
}

#[test]
fn a_tracker_handle_from_a_responsibility_may_be_the_last() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let (r, _answer) = fixture.claim_under(&tracker, &["foo"], RequiredState::Ready);
    let from_work = r.tracker();
    drop(tracker);
    assert!(!from_work.is_defunct());
    finish(r, 1);
    from_work.remove().unwrap();
    assert_not_found(fixture.find("foo"));
}

#[test]
fn dropping_the_last_handle_while_work_is_in_flight_moves_the_work() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    drop(tracker);
    let r = held.take();
    let default = fixture.main.default_tracker().unwrap();
    assert_eq!(r.with_resource_key(|key| key).unwrap(), default.key());
    drop(r.tracker());
    finish(r, 1);
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn dropping_a_default_tracker_handle_moves_nothing() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::recording(&["foo"], &fixture.manager, 1)).unwrap();
    fixture.find("foo").unwrap();
    drop(fixture.main.default_tracker().unwrap());
    assert_eq!(fixture.log.take(), [""; 0]);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_removed_default_tracker_is_replaced_on_next_use() {
    let fixture = Fixture::new();
    let first = fixture.main.default_tracker().unwrap();
    first.remove().unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let second = fixture.main.default_tracker().unwrap();
    assert!(first.key() != second.key() && !second.is_defunct());
    let destination = fixture.tracker();
    second.transfer_to(&destination).unwrap();
    assert_eq!(fixture.main.symbol_count_of(destination.key()), 1);
    assert!(fixture.main.default_tracker().unwrap().key() != second.key());
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    // Session, dylib, tracker, pin: every order of drops frees the resource exactly once.
    let mut order = [0, 1, 2, 3];
    for _ in 0..24 {
        let Fixture { session, main, manager, .. } = Fixture::new();
        let tracker = main.create_tracker().unwrap();
        tracker.define(Unit::recording(&["foo"], &manager, 7)).unwrap();
        find_in(&session, &[&main], "foo").unwrap();
        let (_, pin) = main.pin("foo").unwrap();
        let (mut session, mut main, mut tracker, mut pin) = (Some(session), Some(main), Some(tracker), Some(pin));
        for handle in order {
            assert_eq!(manager.freed.lock().unwrap().len(), 0, "{order:?}");
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
        assert_eq!(manager.take_freed(), [7], "{order:?}");
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
fn a_pin_dropped_by_unwinding_releases_its_tracker() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let removal = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (_, _pin) = fixture.main.pin("foo").unwrap();
        let removal = tracker.remove().unwrap();
        assert!(!removal.is_complete());
        std::panic::panic_any(removal);
    }));
    let removal = removal.unwrap_err().downcast::<Removal>().expect("the payload is the removal");
    assert!(removal.is_complete());
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn a_responsibility_dropped_at_thread_exit_fails_its_query() {
    // Symptom: the task queue of the thread was already destroyed, and its use aborted the process.
    thread_local! {
        static LAST: RefCell<Option<MaterializationResponsibility>> = const { RefCell::new(None) };
    }
    let fixture = Fixture::new();
    let (r, answer) = fixture.claim(&["foo"], RequiredState::Ready);
    let session = fixture.session.clone();
    thread::spawn(move || {
        // Initialised before the task queue, and so destroyed after it.
        LAST.with(|last| *last.borrow_mut() = Some(r));
        session.lookup(&[], &[], RequiredState::Ready).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(failed_symbols(&answer.error()), ["foo"]);
}
