//! Handles keep code callable, and a [`Removal`](jittison::Removal) reports what defers it.

use std::thread;

use jittison::{Function, Jit, ResourceTracker};

use crate::support::*;

type Counter = Function<extern "C" fn() -> i64>;

fn loaded() -> Option<(Jit, ResourceTracker, Counter)> {
    let object = c("static long state; long count(void) { return ++state; }")?;
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "count.o", &object);
    let count = function(&jit, "count");
    Some((jit, tracker, count))
}

#[test]
fn a_handle_keeps_removed_code_and_data_until_it_is_dropped() {
    let Some((jit, tracker, count)) = loaded() else { return };
    let usage = jit.usage(&tracker);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(removal.blockers(), (1, 0));
    assert!(jit.address_of(jit.main_dylib(), "count").is_err(), "the name is removed at once");
    assert_eq!(held(&jit), (1, usage.requested(), usage.reserved));
    assert_eq!((count.call(), count.call()), (1, 2));
    drop(count);
    assert!(removal.is_complete());
    assert_eq!(removal.blockers(), (0, 0));
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_successor_can_be_linked_while_a_handle_holds_removed_code() {
    let Some((jit, tracker, old)) = loaded() else { return };
    tracker.remove().unwrap();
    let object = c("long count(void) { return 1000; }").unwrap();
    let _successor = add(&jit, jit.main_dylib(), "new.o", &object);
    let new = function::<extern "C" fn() -> i64>(&jit, "count");
    assert_eq!((old.call(), new.call(), old.call()), (1, 1000, 2));
    assert_ne!(old.address(), new.address());
}

#[test]
fn removed_code_stays_until_all_handles_and_clones_are_dropped() {
    let Some((jit, tracker, count)) = loaded() else { return };
    let clones: Vec<_> = (0..10).map(|_| count.clone()).collect();
    let another = function::<extern "C" fn() -> i64>(&jit, "count");
    drop(count);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    for (index, clone) in clones.into_iter().enumerate() {
        assert_eq!(clone.call(), index as i64 + 1);
    }
    assert_eq!(removal.blockers(), (1, 0));
    assert_eq!(another.call(), 11);
    drop(another);
    assert!(removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

/// From the second lookup on, the handles of a module share a pin.
#[test]
fn handles_that_share_a_pin_are_counted_one_by_one_and_the_last_one_frees_the_code() {
    let Some((jit, tracker, first)) = loaded() else { return };
    let mut handles: Vec<Counter> = (0..5).map(|_| function(&jit, "count")).collect();
    let removal = tracker.remove().unwrap();
    assert_eq!((removal.blockers(), removal.obstacles()), ((6, 0), vec!["6 owned handles".to_string()]));
    drop(first);
    // SAFETY: the function has this signature, and its object may run.
    let later = unsafe { jit.lookup::<extern "C" fn() -> i64>("count") };
    assert!(later.is_err(), "no lookup shares the pin of removed code");
    while let Some(handle) = handles.pop() {
        assert_eq!((removal.blockers(), removal.is_complete()), ((handles.len() + 1, 0), false));
        handle.call();
        assert_ne!(held(&jit), (0, 0, 0));
    }
    assert_eq!((removal.blockers(), removal.is_complete(), held(&jit)), ((0, 0), true, (0, 0, 0)));
}

#[test]
fn a_transfer_keeps_the_handles_that_share_a_pin_whether_or_not_one_is_left() {
    for kept in [0, 2] {
        let Some((jit, tracker, first)) = loaded() else { return };
        let mut before: Vec<Counter> = (0..3).map(|_| function(&jit, "count")).collect();
        before.truncate(kept);
        let destination = jit.main_dylib().create_tracker().unwrap();
        tracker.transfer_to(&destination).unwrap();
        let after: Vec<Counter> = (0..3).map(|_| function(&jit, "count")).collect();
        assert!(destination.try_remove().is_err());
        let removal = destination.remove().unwrap();
        assert_eq!(removal.blockers(), (4 + kept, 0));
        drop((first, after));
        assert_eq!((removal.blockers(), removal.is_complete()), ((kept, 0), kept == 0));
        drop(before);
        assert!(removal.is_complete());
    }
}

#[test]
fn a_refused_removal_changes_no_later_lookup() {
    let Some((jit, tracker, first)) = loaded() else { return };
    let shared: Vec<Counter> = (0..3).map(|_| function(&jit, "count")).collect();
    for _ in 0..2 {
        let refused = tracker.try_remove().unwrap_err().to_string();
        assert!(refused.contains("4 owned handles"), "{refused}");
        assert_eq!(function::<extern "C" fn() -> i64>(&jit, "count").address(), first.address());
    }
    drop((first, shared));
    assert!(tracker.try_remove().unwrap().is_complete(), "the pin that lookups share is no handle");
}

#[test]
fn handles_can_be_used_and_dropped_on_any_thread() {
    let Some((jit, tracker, count)) = loaded() else { return };
    let removal = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let count = count.clone();
                scope.spawn(move || (0..1000).map(|_| count.call()).max().unwrap())
            })
            .collect();
        let removal = tracker.remove().unwrap();
        drop(count);
        for thread in threads {
            assert!(thread.join().unwrap() <= 8000);
        }
        removal
    });
    removal.wait().unwrap();
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_handle_outlives_its_session() {
    let Some((jit, tracker, count)) = loaded() else { return };
    let memory = jit.layer().memory().clone();
    drop(jit);
    assert!(tracker.is_defunct());
    drop(tracker);
    assert_eq!((count.call(), count.call()), (1, 2));
    assert_eq!(memory.statistics().allocations, 1);
    let elsewhere = count.clone();
    thread::spawn(move || assert_eq!(elsewhere.call(), 3)).join().unwrap();
    drop(count);
    assert_eq!(memory.statistics().allocations, 0);
}

#[test]
fn another_thread_can_wait_for_a_removal() {
    let Some((jit, tracker, count)) = loaded() else { return };
    let removal = tracker.remove().unwrap();
    let waiting = removal.clone();
    let waiter = thread::spawn(move || waiting.wait().map(|()| waiting.is_complete()));
    assert_eq!(count.call(), 1);
    drop(count);
    assert!(waiter.join().unwrap().unwrap());
    assert!(tracker.remove().unwrap().is_complete(), "a second removal returns the same outcome");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_handle_keeps_the_dependencies_of_its_module() {
    let (Some(base), Some(user)) =
        (c("long base(void) { return 5; }"), c("extern long base(void); long user(void) { return base() * 2; }"))
    else {
        return;
    };
    let (jit, trackers) = linked(&[&base, &user]);
    let user = function::<extern "C" fn() -> i64>(&jit, "user");
    let (base_removal, user_removal) = (trackers[0].remove().unwrap(), trackers[1].remove().unwrap());
    assert_eq!((base_removal.blockers(), user_removal.blockers()), ((0, 1), (1, 0)));
    assert_eq!(user.call(), 10);
    drop(user);
    assert!(base_removal.is_complete() && user_removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn modules_in_a_reference_cycle_are_reclaimed_together() {
    let module = |me: usize, next: usize| {
        c(&format!(
            "extern long f{next}(long); extern void record(long);
             long f{me}(long n) {{ return n ? f{next}(n - 1) + 1 : 0; }}"
        ))
    };
    let objects: Option<Vec<_>> = (0..5).map(|i| module(i, (i + 1) % 5)).collect();
    let Some(objects) = objects else { return };
    let objects: Vec<&[u8]> = objects.iter().map(|object| &object[..]).collect();
    let (jit, trackers) = linked(&objects);
    assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "f0").call(23), 23);
    for (index, tracker) in trackers.iter().enumerate() {
        assert_eq!(tracker.remove().unwrap().is_complete(), index == 4);
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn dropping_a_tracker_removes_nothing() {
    let Some((jit, tracker, count)) = loaded() else { return };
    drop(count);
    drop(tracker);
    assert_eq!(long(&jit, "count"), 1);
    assert_eq!(held(&jit).0, 1);
    assert!(jit.main_dylib().default_tracker().unwrap().remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}
