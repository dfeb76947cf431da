//! Model: emission of code that refers to another tracker's code races with removal of either tracker.
//!
//! Runs `src/session/pins/dependants.rs`, `src/session/pins/pin_table.rs`, `src/session/pins/witnesses.rs`,
//! `src/session/pins/claim_search.rs`, `src/session/materialize/emission.rs` and `src/session/core/waiting.rs`. An emission is refused, or its dependencies stay until the emitted code is removed. A
//! ring is freed once, whichever threads remove its members.
//!
//! Seeded bugs: `dependant_pinned_after_the_gate_was_left`, `pinned_while_a_ring_is_claimed`, `removed_tracker_shared`,
//! `shared_pin_left_unsaid`, `dependants_asked_for_under_an_earlier_lock`.

#![cfg(loom)]

mod support;

use jittison::session::*;
use loom::thread;
use support::*;

/// A tracker whose `name` is resolved and not emitted, and has `resource` recorded.
fn resolved(fixture: &Fixture, name: &str, resource: u32) -> (ResourceTracker, MaterializationResponsibility) {
    let (tracker, responsibility) = fixture.materializing(name);
    assert!(fixture.manager.record(&responsibility, resource));
    resolve(&responsibility).unwrap();
    (tracker, responsibility)
}

#[test]
fn emission_versus_removal_of_the_dependency() {
    // Emitted, and the dependency is held until the dependant is removed. Or refused, and both are freed at once.
    let allowed = [("ok", false, (0, 1), vec![2, 1]), ("dependency removed", true, (0, 0), vec![1, 2])];
    explore("emission_versus_removal_of_the_dependency", None, 4, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let reference = fixture.reference("base");
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        let remover = thread::spawn(move || base.remove().unwrap());
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        let removal = remover.join().unwrap();
        let (complete, blockers) = (removal.is_complete(), removal.blockers());
        tracker.remove().unwrap();
        assert!(removal.is_complete());
        (emitted, complete, blockers, fixture.manager.freed())
    });
}

#[test]
fn dependency_added_while_running_versus_its_removal() {
    // The outcomes are those of an emission. Here only the gate of the dependency protects the new edge.
    let allowed = [("ok", false, (0, 1), vec![2, 1]), ("dependency removed", true, (0, 0), vec![1, 2])];
    explore("dependency_added_while_running_versus_its_removal", None, 4, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let reference = fixture.reference("base");
        let tracker = fixture.loaded("f", 2);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let remover = thread::spawn(move || base.remove().unwrap());
        let added = describe(pin.add_dependency(&reference));
        let removal = remover.join().unwrap();
        let (complete, blockers) = (removal.is_complete(), removal.blockers());
        drop(pin);
        tracker.remove().unwrap();
        assert!(removal.is_complete());
        (added, complete, blockers, fixture.manager.freed())
    });
}

#[test]
fn emission_versus_removal_of_the_emitting_tracker() {
    // The outcome of the emission; remaining symbols of the two; whether nothing holds the dependency afterwards.
    let allowed = [("ok", 1, true), ("tracker defunct", 1, true)];
    explore("emission_versus_removal_of_the_emitting_tracker", None, 4, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let reference = fixture.reference("base");
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        remover.join().unwrap();
        let remaining = fixture.main.symbol_count();
        (emitted, remaining, base.remove().unwrap().is_complete())
    });
}

#[test]
fn emission_versus_removal_of_an_unready_dependency() {
    // `f` cannot become ready. It is emitted and then fails, or its emission is refused. In every case no symbol stays. An edge
    // that exists by then is dropped with the tracker of `f`.
    let refused = "dependency removed";
    let allowed = [("ok", "not found", 0, false), (refused, "not found", 0, true), (refused, "not found", 0, false)];
    explore("emission_versus_removal_of_an_unready_dependency", None, 4, allowed, || {
        let fixture = Fixture::new();
        let (base, materializing) = resolved(&fixture, "base", 1);
        let reference = fixture.reference("base");
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        let remover = thread::spawn(move || base.remove().unwrap());
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        let removal = remover.join().unwrap();
        let complete = removal.is_complete();
        let (found, remaining) = (find(&fixture.main, "f"), fixture.main.symbol_count());
        tracker.remove().unwrap();
        assert_eq!((removal.is_complete(), fixture.manager.counts()), (true, (2, 0)));
        drop(materializing);
        (emitted, found, remaining, complete)
    });
}

#[test]
fn two_emissions_that_wait_for_each_other() {
    // The second emission closes the ring, so both become ready.
    explore("two_emissions_that_wait_for_each_other", None, 4, [("ok", "ok", "ready", "ready")], || {
        let fixture = Fixture::new();
        let ((_f, f), (_g, g)) = (resolved(&fixture, "f", 1), resolved(&fixture, "g", 2));
        let (to_f, to_g) = (fixture.reference("f"), fixture.reference("g"));
        let other = thread::spawn(move || describe(f.notify_emitted(vec![to_g])));
        let here = describe(g.notify_emitted(vec![to_f]));
        let there = other.join().unwrap();
        (here, there, find(&fixture.main, "f"), find(&fixture.main, "g"))
    });
}

#[test]
fn emission_versus_the_emission_of_its_dependency() {
    // The second emission makes both ready. Loom reports a lookup that is never answered.
    explore("emission_versus_the_emission_of_its_dependency", None, 4, [("ok", "ok", "ready", "ready")], || {
        let fixture = Fixture::new();
        let ((_f, f), (_g, g)) = (resolved(&fixture, "f", 1), resolved(&fixture, "g", 2));
        let to_g = fixture.reference("g");
        let other = thread::spawn(move || describe(f.notify_emitted(vec![to_g])));
        let here = describe(g.notify_emitted(Vec::new()));
        let there = other.join().unwrap();
        (here, there, find(&fixture.main, "f"), find(&fixture.main, "g"))
    });
}

#[test]
fn waiting_for_the_end_of_a_dependant_versus_its_last_pin() {
    // When the removal of the dependant is complete, the dependant holds nothing.
    explore("waiting_for_the_end_of_a_dependant_versus_its_last_pin", Some(3), 2, [(true, vec![2, 1])], || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        responsibility.notify_emitted(vec![fixture.reference("base")]).unwrap();
        let (_, pin) = fixture.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let dropper = thread::spawn(move || drop(pin));
        removal.wait().unwrap();
        let is_complete = base.remove().unwrap().is_complete();
        dropper.join().unwrap();
        (is_complete, fixture.manager.freed())
    });
}

#[test]
fn transfer_of_the_dependency_versus_removal_of_the_dependant() {
    // The dependant's pin is dropped, whichever tracker has it.
    explore("transfer_of_the_dependency_versus_removal_of_the_dependant", Some(3), 4, [(true, vec![2, 1])], || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        responsibility.notify_emitted(vec![fixture.reference("base")]).unwrap();
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let other = thread::spawn(move || base.transfer_to(&into).unwrap());
        tracker.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        // `try_remove` would fail if the pin were still counted.
        (destination.try_remove().unwrap().is_complete(), fixture.manager.freed())
    });
}

/// Two trackers whose ready code refers to each other's.
fn ring(fixture: &Fixture) -> [ResourceTracker; 2] {
    let ((f_tracker, f), (g_tracker, g)) = (resolved(fixture, "f", 1), resolved(fixture, "g", 2));
    let (to_f, to_g) = (fixture.reference("f"), fixture.reference("g"));
    f.notify_emitted(vec![to_g]).unwrap();
    g.notify_emitted(vec![to_f]).unwrap();
    [f_tracker, g_tracker]
}

#[test]
fn two_members_of_a_ring_removed_by_two_threads() {
    // The newest first, each once, and neither before both are removed.
    explore("two_members_of_a_ring_removed_by_two_threads", Some(3), 4, [vec![2, 1]], || {
        let fixture = Fixture::new();
        let [f, g] = ring(&fixture);
        let other = thread::spawn(move || f.remove().unwrap().wait().unwrap());
        g.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        fixture.manager.freed()
    });
}

#[test]
fn pin_of_a_ring_dropped_versus_removal_of_its_last_member() {
    explore("pin_of_a_ring_dropped_versus_removal_of_its_last_member", Some(3), 4, [(vec![2, 1], true)], || {
        let fixture = Fixture::new();
        let [f, g] = ring(&fixture);
        let (_, pin) = fixture.main.pin("f").unwrap();
        let first = f.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        let second = g.remove().unwrap();
        holder.join().unwrap();
        (fixture.manager.freed(), first.is_complete() && second.is_complete())
    });
}

#[test]
fn pin_of_a_ring_dropped_versus_forced_removal_of_a_member() {
    // Each is freed once, by the thread that claims it first.
    explore("pin_of_a_ring_dropped_versus_forced_removal_of_a_member", Some(3), 4, [(vec![1, 2], 2)], || {
        let fixture = Fixture::new();
        let counter = CallCounter::registered_in(&fixture.session);
        let [f, g] = ring(&fixture);
        let (_, pin) = fixture.main.pin("f").unwrap();
        f.remove().unwrap();
        g.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        remove_now(&g).unwrap();
        holder.join().unwrap();
        let mut freed = fixture.manager.freed();
        freed.sort_unstable();
        (freed, counter.count())
    });
}

#[test]
fn pin_of_a_removed_ring_versus_its_reclaim() {
    // A thread that gets a pin finds everything in place. A late thread gets none.
    let allowed = [(true, vec![], vec![2, 1]), (false, vec![], vec![2, 1])];
    explore("pin_of_a_removed_ring_versus_its_reclaim", Some(3), 4, allowed, || {
        let fixture = Fixture::new();
        let ((f_tracker, f), (g_tracker, g)) = (resolved(&fixture, "f", 1), resolved(&fixture, "g", 2));
        let (to_f, to_g, watch) = (fixture.reference("f"), fixture.reference("g"), g.watch_tracker());
        f.notify_emitted(vec![to_g]).unwrap();
        g.notify_emitted(vec![to_f]).unwrap();
        let (_, pin) = fixture.main.pin("f").unwrap();
        f_tracker.remove().unwrap();
        g_tracker.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        let late = watch.pin();
        let seen = if late.is_some() { fixture.manager.freed() } else { Vec::new() };
        let is_pinned = late.is_some();
        holder.join().unwrap();
        let seen = if is_pinned { [seen, fixture.manager.freed()].concat() } else { seen };
        drop(late);
        (is_pinned, seen, fixture.manager.freed())
    });
}

#[test]
fn dependant_and_dependency_removed_by_two_threads() {
    // The dependant is freed first, in both orders of removal.
    explore("dependant_and_dependency_removed_by_two_threads", Some(3), 4, [vec![2, 1]], || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        responsibility.notify_emitted(vec![fixture.reference("base")]).unwrap();
        let other = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        base.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        fixture.manager.freed()
    });
}

#[test]
fn emission_versus_transfer_of_the_dependency() {
    // The edge holds the tracker that owns the dependency.
    let allowed = [("ok", (0, 1), vec![2, 1])];
    explore("emission_versus_transfer_of_the_dependency", None, 4, allowed, || {
        let fixture = Fixture::new();
        let base = fixture.loaded("base", 1);
        let reference = fixture.reference("base");
        let (tracker, responsibility) = resolved(&fixture, "f", 2);
        let destination = fixture.main.create_tracker().unwrap();
        let into = destination.clone();
        let other = thread::spawn(move || base.transfer_to(&into).unwrap());
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        other.join().unwrap();
        let removal = destination.remove().unwrap();
        let blockers = removal.blockers();
        tracker.remove().unwrap();
        (emitted, blockers, fixture.manager.freed())
    });
}

/// The same session with another dylib, whose trackers are in another table of the pin graph.
fn in_another_dylib(fixture: &Fixture) -> Fixture {
    let main = fixture.session.create_dylib("other").unwrap();
    Fixture { session: fixture.session.clone(), main, manager: fixture.manager.clone() }
}

/// Two trackers of two dylibs whose ready code refers to each other's. They have resources 1 and 2.
fn ring_across(here: &Fixture, there: &Fixture) -> [ResourceTracker; 2] {
    let ((f_tracker, f), (g_tracker, g)) = (resolved(here, "f", 1), resolved(there, "g", 2));
    let (to_f, to_g) = (here.reference("f"), there.reference("g"));
    f.notify_emitted(vec![to_g]).unwrap();
    g.notify_emitted(vec![to_f]).unwrap();
    [f_tracker, g_tracker]
}

#[test]
fn dependency_on_a_shared_ring_versus_its_removal() {
    // Refused, and the ring is freed at once. Or accepted, and all of it stays until the dependant is removed.
    let allowed = [("ok", vec![], vec![3, 2, 1]), ("dependency removed", vec![2, 1], vec![2, 1, 3])];
    explore("dependency_on_a_shared_ring_versus_its_removal", None, 4, allowed, || {
        let here = Fixture::new();
        let there = in_another_dylib(&here);
        let ring = ring_across(&here, &there);
        let late = there.loaded("late", 3);
        let (reference, (_, pin)) = (here.reference("f"), there.main.pin("late").unwrap());
        let remover = thread::spawn(move || ring.map(|tracker| tracker.remove().unwrap()));
        let added = describe(pin.add_dependency(&reference));
        let removals = remover.join().unwrap();
        let before = here.manager.freed();
        drop(pin);
        late.remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        (added, before, here.manager.freed())
    });
}

#[test]
fn emission_that_shares_the_pin_of_its_dylib_versus_removal_of_the_ring() {
    // As above. The emission learns the owner of the definition without the lock of the definition's dylib.
    let allowed = [("ok", vec![4], vec![4, 3, 2, 1]), ("dependency removed", vec![4, 2, 1], vec![4, 2, 1, 3])];
    explore("emission_that_shares_the_pin_of_its_dylib_versus_removal_of_the_ring", None, 4, allowed, || {
        let here = Fixture::new();
        let there = in_another_dylib(&here);
        let ring = ring_across(&here, &there);
        let (user, responsibility) = resolved(&there, "user", 4);
        responsibility.notify_emitted(vec![here.reference("f")]).unwrap();
        user.remove().unwrap();
        let reference = here.reference("f");
        let (late, responsibility) = resolved(&there, "late", 3);
        let remover = thread::spawn(move || ring.map(|tracker| tracker.remove().unwrap()));
        let emitted = describe(responsibility.notify_emitted(vec![reference]));
        let removals = remover.join().unwrap();
        let before = here.manager.freed();
        late.remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        (emitted, before, here.manager.freed())
    });
}

#[test]
fn removal_of_a_dependant_versus_removal_of_its_shared_ring() {
    // The dependant is freed first, and then the ring.
    explore("removal_of_a_dependant_versus_removal_of_its_shared_ring", Some(3), 4, [vec![3, 2, 1]], || {
        let here = Fixture::new();
        let there = in_another_dylib(&here);
        let [f, g] = ring_across(&here, &there);
        let (user, responsibility) = resolved(&there, "user", 3);
        responsibility.notify_emitted(vec![here.reference("f")]).unwrap();
        f.remove().unwrap();
        let remover = thread::spawn(move || drop(g.remove().unwrap()));
        user.remove().unwrap();
        remover.join().unwrap();
        here.manager.freed()
    });
}

#[test]
fn new_dependant_versus_removal_of_the_dependant_that_shares_its_pin() {
    // The new dependant holds the dependency. Or the dependency is freed with the old dependant, and the new one is refused.
    let allowed = [("ok", vec![2, 3, 1]), ("dependency removed", vec![2, 1, 3])];
    explore("new_dependant_versus_removal_of_the_dependant_that_shares_its_pin", None, 4, allowed, || {
        let here = Fixture::new();
        let there = in_another_dylib(&here);
        let base = here.loaded("base", 1);
        let reference = here.reference("base");
        let (first, responsibility) = resolved(&there, "first", 2);
        responsibility.notify_emitted(vec![reference.clone()]).unwrap();
        let second = there.loaded("second", 3);
        let (_, pin) = there.main.pin("second").unwrap();
        let remover = thread::spawn(move || (first.remove().unwrap(), base.remove().unwrap()));
        let added = describe(pin.add_dependency(&reference));
        let (_, removal) = remover.join().unwrap();
        drop(pin);
        second.remove().unwrap();
        assert!(removal.is_complete());
        (added, here.manager.freed())
    });
}
