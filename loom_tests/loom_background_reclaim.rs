//! Model: removed trackers are queued while the reclaim thread goes to sleep, or while the session ends.
//!
//! Runs `src/session/work/background_thread.rs` and `src/session/removal/reclaim.rs` (`after_unpin`). Each queued tracker is
//! reclaimed once. The thread ends with its session. A lost wake-up, or a thread that does not end, is a deadlock, which
//! loom reports.
//!
//! Seeded bug: `bell_cleared_after_the_work`.

#![cfg(loom)]

mod support;

use jittison::session::*;
use support::*;

fn fixture() -> Fixture {
    Fixture::with_options(SessionOptions { reclaim: ReclaimPolicy::Background, ..SessionOptions::default() })
}

#[test]
fn queueing_a_tracker_versus_the_reclaim_thread_going_to_sleep() {
    // The second tracker is queued while the thread that reclaims the first is anywhere between working and sleeping.
    explore("queueing_a_tracker_versus_the_reclaim_thread_going_to_sleep", Some(3), 10, [vec![1, 2]], || {
        let fixture = fixture();
        let trackers = [fixture.loaded("f", 1), fixture.loaded("g", 2)];
        let pins = ["f", "g"].map(|name| fixture.main.pin(name).unwrap().1);
        let removals = trackers.map(|tracker| tracker.remove().unwrap());
        pins.into_iter().for_each(drop);
        removals.iter().for_each(|removal| removal.wait().unwrap());
        let mut freed = fixture.manager.freed();
        freed.sort_unstable();
        freed
    });
}

#[test]
fn queueing_a_tracker_versus_the_end_of_the_session() {
    // The reclaim thread frees it, or the thread that ends the session, or the thread that drops the pin.
    explore("queueing_a_tracker_versus_the_end_of_the_session", Some(2), 10, [(1, 0)], || {
        let fixture = fixture();
        let tracker = fixture.loaded("f", 1);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let holder = loom::thread::spawn(move || drop(pin));
        fixture.session.end().unwrap();
        holder.join().unwrap();
        removal.wait().unwrap();
        fixture.manager.counts()
    });
}
