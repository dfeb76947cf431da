//! Every interleaving of emitting code that refers to another tracker's with removing either.
//!
//! Checks `src/session/pins/dependants.rs`, `src/session/pins/pin_table.rs`, `src/session/materialize/emission.rs` and `src/session/core/waiting.rs`: an emission is refused, or
//! what it refers to stays until the emitted code goes; a ring goes once, whoever removes its members.

#![cfg(loom)]

mod support;

use jittison::session::*;
use loom::thread;
use support::*;

/// `f` at work, with 2 on the books and resolved; whoever looked for it is forgotten.
fn resolved(scene: &Scene, name: &str, resource: u32) -> (ResourceTracker, MaterializationResponsibility) {
    let (tracker, responsibility) = scene.at_work(name);
    assert!(scene.bank.record(&responsibility, resource));
    resolve(&responsibility).unwrap();
    (tracker, responsibility)
}

#[test]
fn emission_versus_removal_of_the_dependency() {
    // Emitted: the dependency is held until the dependant goes. Or refused: both are given back at once.
    let allowed = [("ok", false, (0, 1), vec![2, 1]), ("dependency removed", true, (0, 0), vec![1, 2])];
    explore("emission_versus_removal_of_the_dependency", None, 4, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let reference = scene.reference("base");
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        let remover = thread::spawn(move || base.remove().unwrap());
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        let removal = remover.join().unwrap();
        let (complete, blockers) = (removal.is_complete(), removal.blockers());
        tracker.remove().unwrap();
        assert!(removal.is_complete());
        (emitted, complete, blockers, scene.bank.given_back())
    });
}

#[test]
fn dependency_added_while_running_versus_its_removal() {
    // As an emission, but that nothing else than the dependency's gate keeps it meanwhile.
    let allowed = [("ok", false, (0, 1), vec![2, 1]), ("dependency removed", true, (0, 0), vec![1, 2])];
    explore("dependency_added_while_running_versus_its_removal", None, 4, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let reference = scene.reference("base");
        let tracker = scene.loaded("f", 2);
        let (_, pin) = scene.main.pin("f").unwrap();
        let remover = thread::spawn(move || base.remove().unwrap());
        let added = said(pin.add_dependency(&reference));
        let removal = remover.join().unwrap();
        let (complete, blockers) = (removal.is_complete(), removal.blockers());
        drop(pin);
        tracker.remove().unwrap();
        assert!(removal.is_complete());
        (added, complete, blockers, scene.bank.given_back())
    });
}

#[test]
fn emission_versus_removal_of_the_emitting_tracker() {
    // Symbols left of the two, and whether the dependency can go afterwards without anybody in the way.
    let allowed = [("ok", 1, true), ("tracker defunct", 1, true)];
    explore("emission_versus_removal_of_the_emitting_tracker", None, 4, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let reference = scene.reference("base");
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        let remover = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        remover.join().unwrap();
        let left = scene.main.symbol_count();
        (emitted, left, base.remove().unwrap().is_complete())
    });
}

#[test]
fn emission_versus_removal_of_an_unready_dependency() {
    // `f` cannot become ready any more: emitted and failed then, or refused. Both are out of the table in any case. The
    // edge may be there by then; it goes with the tracker of `f`.
    let refused = "dependency removed";
    let allowed = [("ok", "not found", 0, false), (refused, "not found", 0, true), (refused, "not found", 0, false)];
    explore("emission_versus_removal_of_an_unready_dependency", None, 4, allowed, || {
        let scene = Scene::new();
        let (base, at_work) = resolved(&scene, "base", 1);
        let reference = scene.reference("base");
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        let remover = thread::spawn(move || base.remove().unwrap());
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        let removal = remover.join().unwrap();
        let complete = removal.is_complete();
        let (found, left) = (find(&scene.main, "f"), scene.main.symbol_count());
        tracker.remove().unwrap();
        assert_eq!((removal.is_complete(), scene.bank.books()), (true, (2, 0)));
        drop(at_work);
        (emitted, found, left, complete)
    });
}

#[test]
fn two_emissions_that_wait_for_each_other() {
    // Whoever comes second finds the ring closed: both are ready.
    explore("two_emissions_that_wait_for_each_other", None, 4, [("ok", "ok", "ready", "ready")], || {
        let scene = Scene::new();
        let ((_f, f), (_g, g)) = (resolved(&scene, "f", 1), resolved(&scene, "g", 2));
        let (to_f, to_g) = (scene.reference("f"), scene.reference("g"));
        let other = thread::spawn(move || said(f.notify_emitted(vec![to_g])));
        let here = said(g.notify_emitted(vec![to_f]));
        let there = other.join().unwrap();
        (here, there, find(&scene.main, "f"), find(&scene.main, "g"))
    });
}

#[test]
fn emission_versus_the_emission_of_what_it_refers_to() {
    // Whoever comes second makes both ready: loom finds a lookup that nobody answers.
    explore("emission_versus_the_emission_of_what_it_refers_to", None, 4, [("ok", "ok", "ready", "ready")], || {
        let scene = Scene::new();
        let ((_f, f), (_g, g)) = (resolved(&scene, "f", 1), resolved(&scene, "g", 2));
        let to_g = scene.reference("g");
        let other = thread::spawn(move || said(f.notify_emitted(vec![to_g])));
        let here = said(g.notify_emitted(Vec::new()));
        let there = other.join().unwrap();
        (here, there, find(&scene.main, "f"), find(&scene.main, "g"))
    });
}

#[test]
fn waiting_for_the_end_of_a_dependant_versus_its_last_pin() {
    // Once the dependant's removal is complete, it holds nothing.
    explore("waiting_for_the_end_of_a_dependant_versus_its_last_pin", None, 2, [(true, vec![2, 1])], || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        responsibility.notify_emitted(vec![scene.reference("base")]).unwrap();
        let (_, pin) = scene.main.pin("f").unwrap();
        let removal = tracker.remove().unwrap();
        let dropper = thread::spawn(move || drop(pin));
        removal.wait().unwrap();
        let is_complete = base.remove().unwrap().is_complete();
        dropper.join().unwrap();
        (is_complete, scene.bank.given_back())
    });
}

#[test]
fn transfer_of_the_dependency_versus_removal_of_the_dependant() {
    // The dependant's pin goes, wherever it was put.
    explore("transfer_of_the_dependency_versus_removal_of_the_dependant", None, 4, [(true, vec![2, 1])], || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        responsibility.notify_emitted(vec![scene.reference("base")]).unwrap();
        let heir = scene.main.create_tracker().unwrap();
        let into = heir.clone();
        let other = thread::spawn(move || base.transfer_to(&into).unwrap());
        tracker.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        // Refused, if the pin were counted still.
        (heir.try_remove().unwrap().is_complete(), scene.bank.given_back())
    });
}

/// Two trackers whose ready code refers to each other's.
fn ring(scene: &Scene) -> [ResourceTracker; 2] {
    let ((f_tracker, f), (g_tracker, g)) = (resolved(scene, "f", 1), resolved(scene, "g", 2));
    let (to_f, to_g) = (scene.reference("f"), scene.reference("g"));
    f.notify_emitted(vec![to_g]).unwrap();
    g.notify_emitted(vec![to_f]).unwrap();
    [f_tracker, g_tracker]
}

#[test]
fn two_members_of_a_ring_removed_by_two_threads() {
    // The newest first, each once, and neither before the other's removal.
    explore("two_members_of_a_ring_removed_by_two_threads", None, 4, [vec![2, 1]], || {
        let scene = Scene::new();
        let [f, g] = ring(&scene);
        let other = thread::spawn(move || f.remove().unwrap().wait().unwrap());
        g.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        scene.bank.given_back()
    });
}

#[test]
fn pin_of_a_ring_dropped_versus_removal_of_its_last_member() {
    explore("pin_of_a_ring_dropped_versus_removal_of_its_last_member", None, 4, [(vec![2, 1], true)], || {
        let scene = Scene::new();
        let [f, g] = ring(&scene);
        let (_, pin) = scene.main.pin("f").unwrap();
        let first = f.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        let second = g.remove().unwrap();
        holder.join().unwrap();
        (scene.bank.given_back(), first.is_complete() && second.is_complete())
    });
}

#[test]
fn pin_of_a_ring_dropped_versus_forced_removal_of_a_member() {
    // Each once: whoever claims a member first gives it back.
    explore("pin_of_a_ring_dropped_versus_forced_removal_of_a_member", Some(3), 4, [(vec![1, 2], 2)], || {
        let scene = Scene::new();
        let told = Told::of(&scene.session);
        let [f, g] = ring(&scene);
        let (_, pin) = scene.main.pin("f").unwrap();
        f.remove().unwrap();
        g.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        remove_now(&g).unwrap();
        holder.join().unwrap();
        let mut given_back = scene.bank.given_back();
        given_back.sort_unstable();
        (given_back, told.count())
    });
}

#[test]
fn pin_of_a_removed_ring_versus_its_reclaim() {
    // Whoever gets a pin finds everything there; who comes late gets none.
    let allowed = [(true, vec![], vec![2, 1]), (false, vec![], vec![2, 1])];
    explore("pin_of_a_removed_ring_versus_its_reclaim", None, 4, allowed, || {
        let scene = Scene::new();
        let ((f_tracker, f), (g_tracker, g)) = (resolved(&scene, "f", 1), resolved(&scene, "g", 2));
        let (to_f, to_g, watch) = (scene.reference("f"), scene.reference("g"), g.watch_tracker());
        f.notify_emitted(vec![to_g]).unwrap();
        g.notify_emitted(vec![to_f]).unwrap();
        let (_, pin) = scene.main.pin("f").unwrap();
        f_tracker.remove().unwrap();
        g_tracker.remove().unwrap();
        let holder = thread::spawn(move || drop(pin));
        let late = watch.pin();
        let seen = if late.is_some() { scene.bank.given_back() } else { Vec::new() };
        let is_pinned = late.is_some();
        holder.join().unwrap();
        let seen = if is_pinned { [seen, scene.bank.given_back()].concat() } else { seen };
        drop(late);
        (is_pinned, seen, scene.bank.given_back())
    });
}

#[test]
fn dependant_and_dependency_removed_by_two_threads() {
    // The dependant first, whoever was asked first.
    explore("dependant_and_dependency_removed_by_two_threads", None, 4, [vec![2, 1]], || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        responsibility.notify_emitted(vec![scene.reference("base")]).unwrap();
        let other = thread::spawn(move || tracker.remove().unwrap().wait().unwrap());
        base.remove().unwrap().wait().unwrap();
        other.join().unwrap();
        scene.bank.given_back()
    });
}

#[test]
fn emission_versus_transfer_of_the_dependency() {
    // The edge holds whatever tracker the dependency is under.
    let allowed = [("ok", (0, 1), vec![2, 1])];
    explore("emission_versus_transfer_of_the_dependency", None, 4, allowed, || {
        let scene = Scene::new();
        let base = scene.loaded("base", 1);
        let reference = scene.reference("base");
        let (tracker, responsibility) = resolved(&scene, "f", 2);
        let heir = scene.main.create_tracker().unwrap();
        let into = heir.clone();
        let other = thread::spawn(move || base.transfer_to(&into).unwrap());
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        other.join().unwrap();
        let removal = heir.remove().unwrap();
        let blockers = removal.blockers();
        tracker.remove().unwrap();
        (emitted, blockers, scene.bank.given_back())
    });
}

/// The same session, seen from a dylib whose trackers are in another table of the pin graph.
fn beside(scene: &Scene) -> Scene {
    let main = scene.session.create_dylib("other").unwrap();
    Scene { session: scene.session.clone(), main, bank: scene.bank.clone() }
}

/// Two trackers of two dylibs whose ready code refers to each other's: 1 and 2 on the books.
fn ring_across(here: &Scene, there: &Scene) -> [ResourceTracker; 2] {
    let ((f_tracker, f), (g_tracker, g)) = (resolved(here, "f", 1), resolved(there, "g", 2));
    let (to_f, to_g) = (here.reference("f"), there.reference("g"));
    f.notify_emitted(vec![to_g]).unwrap();
    g.notify_emitted(vec![to_f]).unwrap();
    [f_tracker, g_tracker]
}

#[test]
fn dependency_on_a_ring_that_others_share_versus_its_removal() {
    // Refused, and the ring goes at once; or all of it stays until the dependant goes.
    let allowed = [("ok", vec![], vec![3, 2, 1]), ("dependency removed", vec![2, 1], vec![2, 1, 3])];
    explore("dependency_on_a_ring_that_others_share_versus_its_removal", None, 4, allowed, || {
        let here = Scene::new();
        let there = beside(&here);
        let ring = ring_across(&here, &there);
        let late = there.loaded("late", 3);
        let (reference, (_, pin)) = (here.reference("f"), there.main.pin("late").unwrap());
        let remover = thread::spawn(move || ring.map(|tracker| tracker.remove().unwrap()));
        let added = said(pin.add_dependency(&reference));
        let removals = remover.join().unwrap();
        let before = here.bank.given_back();
        drop(pin);
        late.remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        (added, before, here.bank.given_back())
    });
}

#[test]
fn emission_against_what_others_of_its_dylib_came_to_versus_its_removal() {
    // As above. Whose the definition is, the emission hears without the definition's dylib.
    let allowed = [("ok", vec![4], vec![4, 3, 2, 1]), ("dependency removed", vec![4, 2, 1], vec![4, 2, 1, 3])];
    explore("emission_against_what_others_of_its_dylib_came_to_versus_its_removal", None, 4, allowed, || {
        let here = Scene::new();
        let there = beside(&here);
        let ring = ring_across(&here, &there);
        let (user, responsibility) = resolved(&there, "user", 4);
        responsibility.notify_emitted(vec![here.reference("f")]).unwrap();
        user.remove().unwrap();
        let reference = here.reference("f");
        let (late, responsibility) = resolved(&there, "late", 3);
        let remover = thread::spawn(move || ring.map(|tracker| tracker.remove().unwrap()));
        let emitted = said(responsibility.notify_emitted(vec![reference]));
        let removals = remover.join().unwrap();
        let before = here.bank.given_back();
        late.remove().unwrap();
        assert!(removals.iter().all(Removal::is_complete));
        (emitted, before, here.bank.given_back())
    });
}

#[test]
fn dependant_of_a_ring_that_others_share_removed_versus_the_ring() {
    // The dependant first, and then the ring, by whoever finds it free.
    explore("dependant_of_a_ring_that_others_share_removed_versus_the_ring", None, 4, [vec![3, 2, 1]], || {
        let here = Scene::new();
        let there = beside(&here);
        let [f, g] = ring_across(&here, &there);
        let (user, responsibility) = resolved(&there, "user", 3);
        responsibility.notify_emitted(vec![here.reference("f")]).unwrap();
        f.remove().unwrap();
        let remover = thread::spawn(move || drop(g.remove().unwrap()));
        user.remove().unwrap();
        remover.join().unwrap();
        here.bank.given_back()
    });
}

#[test]
fn first_and_last_of_those_that_share_a_dependency() {
    // The dependency is held by the one that comes, or has gone with the one that goes, and the one that comes is refused.
    let allowed = [("ok", vec![2, 3, 1]), ("dependency removed", vec![2, 1, 3])];
    explore("first_and_last_of_those_that_share_a_dependency", None, 4, allowed, || {
        let here = Scene::new();
        let there = beside(&here);
        let base = here.loaded("base", 1);
        let reference = here.reference("base");
        let (first, responsibility) = resolved(&there, "first", 2);
        responsibility.notify_emitted(vec![reference.clone()]).unwrap();
        let second = there.loaded("second", 3);
        let (_, pin) = there.main.pin("second").unwrap();
        let remover = thread::spawn(move || (first.remove().unwrap(), base.remove().unwrap()));
        let added = said(pin.add_dependency(&reference));
        let (_, removal) = remover.join().unwrap();
        drop(pin);
        second.remove().unwrap();
        assert!(removal.is_complete());
        (added, here.bank.given_back())
    });
}
