//! Every interleaving of queueing removed trackers with the thread that gives them back, on its way to sleep and to its end.
//!
//! Checks `src/session/removal/reclaimer.rs` and `src/session/removal/reclaim.rs` (`after_unpin`): what is queued is given back, which loom would
//! report as a deadlock otherwise; the thread ends with its session, or loom would report it too.

#![cfg(loom)]

mod support;

use jittison::session::*;
use support::*;

fn scene() -> Scene {
    Scene::with_options(SessionOptions { reclaim: ReclaimPolicy::Background, ..SessionOptions::default() })
}

#[test]
fn queueing_a_tracker_versus_going_to_sleep() {
    // The second is queued while the thread that gives the first back is anywhere between working and sleeping.
    explore("queueing_a_tracker_versus_going_to_sleep", Some(3), 10, [vec![1, 2]], || {
        let scene = scene();
        let trackers = [scene.loaded("f", 1), scene.loaded("g", 2)];
        let pins = ["f", "g"].map(|name| scene.main.pin(name).unwrap().1);
        let removals = trackers.map(|tracker| tracker.remove().unwrap());
        pins.into_iter().for_each(drop);
        removals.iter().for_each(|removal| removal.wait().unwrap());
        let mut given_back = scene.bank.given_back();
        given_back.sort_unstable();
        given_back
    });
}

#[test]
fn queueing_a_tracker_versus_the_end_of_the_session() {
    // By the thread, or by whoever ends the session or comes after that.
    explore("queueing_a_tracker_versus_the_end_of_the_session", Some(2), 10, [(1, 0)], || {
        let scene = scene();
        let tracker = scene.loaded("f", 1);
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let holder = loom::thread::spawn(move || drop(pin));
        scene.session.end().unwrap();
        holder.join().unwrap();
        removal.wait().unwrap();
        scene.bank.books()
    });
}
