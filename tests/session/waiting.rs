//! When emitted symbols become ready: chains, cycles, failures and removals among them (ORC: WaitingOnGraphTest).

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// Units `names`, each run and resolved, and a query for each.
fn resolved(world: &World, names: &[&str]) -> (Vec<MaterializationResponsibility>, Vec<Answer>) {
    let mut responsibilities = Vec::new();
    let mut answers = Vec::new();
    for (value, name) in (1..).zip(names) {
        let (unit, held) = Unit::held(&[name]);
        world.main.define(unit).unwrap();
        answers.push(world.ask(&[name], RequiredState::Ready));
        let r = held.take();
        r.notify_resolved(|_| Some(address(value))).unwrap();
        responsibilities.push(r);
    }
    (responsibilities, answers)
}

fn states(world: &World, names: &[&str]) -> Vec<Option<SymbolState>> {
    names.iter().map(|name| world.main.symbol_state(name)).collect()
}

const EMITTED: Option<SymbolState> = Some(SymbolState::Emitted);
const READY: Option<SymbolState> = Some(SymbolState::Ready);
const RESOLVED: Option<SymbolState> = Some(SymbolState::Resolved);

/// Emits the responsibility at the front with dependencies on `names`.
fn emit(world: &World, r: MaterializationResponsibility, names: &[&str]) {
    r.notify_emitted(world.references(names)).unwrap();
}

#[test]
fn a_dependency_on_itself_does_not_keep_a_symbol_from_being_ready() {
    let world = World::new();
    let (mut r, answers) = resolved(&world, &["foo"]);
    emit(&world, r.remove(0), &["foo"]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_dependency_emitted_first_is_ready_first() {
    let world = World::new();
    let (mut r, answers) = resolved(&world, &["foo", "bar"]);
    emit(&world, r.remove(1), &[]);
    assert_eq!(states(&world, &["foo", "bar"]), [RESOLVED, READY]);
    emit(&world, r.remove(0), &["bar"]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_dependant_emitted_first_waits_for_its_dependency() {
    let world = World::new();
    let (mut r, answers) = resolved(&world, &["foo", "bar"]);
    emit(&world, r.remove(0), &["bar"]);
    assert_eq!(states(&world, &["foo", "bar"]), [EMITTED, RESOLVED]);
    assert!(answers[0].is_pending());
    emit(&world, r.remove(0), &[]);
    assert_eq!(states(&world, &["foo", "bar"]), [READY, READY]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_ring_of_three_is_ready_when_its_last_member_is_emitted_and_not_before() {
    let names = ["foo", "bar", "baz"];
    for last in 0..3 {
        let world = World::new();
        let (r, answers) = resolved(&world, &names);
        let mut ring: Vec<_> = r.into_iter().enumerate().collect();
        ring.rotate_left(last);
        for (i, r) in ring {
            assert!(answers.iter().all(Answer::is_pending));
            emit(&world, r, &[names[(i + 1) % 3]]);
        }
        assert_eq!(states(&world, &names), [READY; 3]);
        assert!(answers.iter().zip(1..).all(|(answer, value)| answer.addresses() == [value]));
    }
}

#[test]
fn a_zigzag_is_ready_from_the_bottom_up() {
    // a → b → d and a → c → d, emitted in the order a, d', c, b with d last.
    let names = ["a", "b", "c", "d"];
    let world = World::new();
    let (r, answers) = resolved(&world, &names);
    let [a, b, c, d] = <[_; 4]>::try_from(r).unwrap();
    emit(&world, a, &["b", "c"]);
    emit(&world, c, &["d"]);
    emit(&world, b, &["d", "c"]);
    assert_eq!(states(&world, &names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&world, d, &[]);
    assert_eq!(states(&world, &names), [READY; 4]);
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}

#[test]
fn two_rings_that_share_a_member_wait_for_each_other() {
    let names = ["a", "b", "c"];
    let world = World::new();
    let (r, _answers) = resolved(&world, &names);
    let [a, b, c] = <[_; 3]>::try_from(r).unwrap();
    emit(&world, a, &["b"]);
    emit(&world, b, &["a", "c"]);
    assert_eq!(states(&world, &names), [EMITTED, EMITTED, RESOLVED]);
    emit(&world, c, &["b"]);
    assert_eq!(states(&world, &names), [READY; 3]);
}

#[test]
fn what_depends_on_a_closed_ring_is_ready_at_once_and_what_the_ring_waits_for_holds_all() {
    let names = ["out", "a", "b", "in"];
    let world = World::new();
    let (r, _answers) = resolved(&world, &names);
    let [out, a, b, inner] = <[_; 4]>::try_from(r).unwrap();
    emit(&world, out, &["a"]);
    emit(&world, a, &["b"]);
    emit(&world, b, &["a", "in"]);
    assert_eq!(states(&world, &names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&world, inner, &[]);
    assert_eq!(states(&world, &names), [READY; 4]);
}

#[test]
fn a_dependency_in_another_dylib_counts_as_one_in_the_same() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let (unit, held) = Unit::held(&["bar"]);
    other.define(unit).unwrap();
    let bar = Answer::of(&world.session, &other, &["bar"], RequiredState::Resolved);
    let r_bar = held.take();
    r_bar.notify_resolved(|_| Some(address(9))).unwrap();
    let (mut r, answers) = resolved(&world, &["foo"]);
    r.remove(0).notify_emitted(vec![bar.results()[0].symbol.clone().unwrap()]).unwrap();
    assert!(answers[0].is_pending());
    r_bar.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_name_ready_removed_and_defined_again_is_waited_for_anew() {
    // ORC's graph kept the old entry and made the dependant ready (llvm/llvm-project#169135).
    let world = World::new();
    world.loaded("bar", 1).remove().unwrap();
    let (mut r, answers) = resolved(&world, &["foo", "bar"]);
    emit(&world, r.remove(0), &["bar"]);
    assert!(answers[0].is_pending());
    emit(&world, r.remove(0), &[]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn failure_reaches_every_pending_dependant_through_a_zigzag() {
    let names = ["a", "b", "c", "d"];
    let world = World::new();
    let (r, answers) = resolved(&world, &names);
    let [a, b, c, d] = <[_; 4]>::try_from(r).unwrap();
    emit(&world, a, &["b", "c"]);
    emit(&world, c, &["d"]);
    emit(&world, b, &["d"]);
    d.fail(Error::other("no"));
    assert!(answers.iter().all(|answer| answer.error().root_cause().to_string() == "no"));
    assert_eq!(world.main.symbol_count(), 0);
}

#[test]
fn failing_what_nobody_depends_on_leaves_the_others_waiting() {
    let world = World::new();
    let (r, answers) = resolved(&world, &["foo", "bar", "odd"]);
    let [foo, bar, odd] = <[_; 3]>::try_from(r).unwrap();
    emit(&world, foo, &["bar"]);
    odd.fail(Error::other("no"));
    assert!(answers[0].is_pending());
    emit(&world, bar, &[]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_pending_symbol_that_is_removed_takes_its_dependants_and_leaves_its_dependencies() {
    // out → mid → base; mid's tracker goes while mid waits for base.
    let world = World::new();
    let (mut r, answers) = resolved(&world, &["out", "base"]);
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["mid"]);
    tracker.define(unit).unwrap();
    let mid = world.ask(&["mid"], RequiredState::Ready);
    let r_mid = held.take();
    r_mid.notify_resolved(|_| Some(address(7))).unwrap();
    emit(&world, r_mid, &["base"]);
    emit(&world, r.remove(0), &["mid"]);

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&mid.error()), ["mid"]);
    assert_eq!(failed_symbols(&answers[0].error()), ["out"]);
    assert!(answers[1].is_pending());
    emit(&world, r.remove(0), &[]);
    assert_eq!(answers[1].addresses(), [2]);
    assert_eq!(world.main.symbol_count(), 1);
}

#[test]
fn depending_on_a_symbol_that_has_just_failed_with_its_dependency_is_refused() {
    // The failed symbol was still in its table, though no longer in the graph; the dependant was taken for ready.
    let world = World::new();
    let (first, second) = (world.session.create_dylib("first").unwrap(), world.session.create_dylib("second").unwrap());
    let base = world.tracker();
    let (unit, held_base) = Unit::held(&["base"]);
    base.define(unit).unwrap();
    let order = [(world.main.clone(), Visibility::All)];
    first.set_link_order(&order);
    second.set_link_order(&order);
    first.define(Unit::depending("x", &["base"], &world.books, 1)).unwrap();
    second.define(Unit::depending("y", &["base"], &world.books, 2)).unwrap();
    let (z_unit, held_z) = Unit::held(&["z"]);
    world.main.define(z_unit).unwrap();
    let z = world.ask(&["z"], RequiredState::Ready);
    let r_z = held_z.take();
    r_z.notify_resolved(|_| Some(address(3))).unwrap();

    let y_resolved = Answer::of(&world.session, &second, &["y"], RequiredState::Resolved);
    let y = y_resolved.results()[0].symbol.clone().unwrap();
    let outcome = std::sync::Arc::new(std::sync::Mutex::new(None));
    let emitted = outcome.clone();
    world.session.lookup_then(
        &[(first.clone(), Visibility::All)],
        &[SymbolRequest::required("x")],
        RequiredState::Ready,
        move |failed| {
            assert!(failed.is_err());
            *emitted.lock().unwrap() = Some(r_z.notify_emitted(vec![y]));
        },
    );
    let r_base = held_base.take();
    r_base.notify_resolved(|_| Some(address(4))).unwrap();
    assert_eq!(first.symbol_state("x"), EMITTED);
    assert_eq!(second.symbol_state("y"), EMITTED);

    base.remove().unwrap();

    let outcome = outcome.lock().unwrap().take().expect("x has failed");
    assert!(matches!(outcome.unwrap_err().kind(), ErrorKind::DependencyRemoved { .. }));
    assert_eq!(failed_symbols(&z.error()), ["z"]);
}

#[test]
fn emitting_nothing_and_failing_nothing_touches_nobody() {
    let world = World::new();
    let (mut r, answers) = resolved(&world, &["foo", "bar"]);
    emit(&world, r.remove(0), &["bar"]);
    let ends: [fn(MaterializationResponsibility); 2] =
        [|empty| empty.notify_emitted(Vec::new()).unwrap(), |empty| empty.fail(Error::other("nothing"))];
    for end in ends {
        let (unit, held) = Unit::held(&["odd"]);
        world.main.define(unit).unwrap();
        let odd = world.ask(&["odd"], RequiredState::Ready);
        let mut empty = held.take();
        let all = empty.delegate(&["odd"]).unwrap();
        end(empty);
        assert_eq!(states(&world, &["foo", "bar", "odd"]), [EMITTED, RESOLVED, Some(SymbolState::Materializing)]);
        finish(all, 3);
        assert_eq!(odd.addresses(), [3]);
        world.main.remove_symbols(&["odd"]).unwrap();
    }
    assert!(answers.iter().all(Answer::is_pending));
    emit(&world, r.remove(0), &[]);
    assert_eq!(states(&world, &["foo", "bar"]), [READY; 2]);
}

#[test]
fn those_that_wait_for_the_same_are_ready_together() {
    let names = ["a", "b", "c", "base"];
    let world = World::new();
    let (r, answers) = resolved(&world, &names);
    let [a, b, c, base] = <[_; 4]>::try_from(r).unwrap();
    emit(&world, a, &["base"]);
    emit(&world, b, &["base"]);
    emit(&world, c, &["a", "base"]);
    assert_eq!(states(&world, &names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&world, base, &[]);
    assert_eq!(states(&world, &names), [READY; 4]);
    assert!(answers.iter().zip(1..).all(|(answer, value)| answer.addresses() == [value]));
}

#[test]
fn a_ring_is_linked_against_by_address_before_any_of_it_is_ready() {
    // ORC: TestCircularDependenceInOneJITDylib asks for Resolved first.
    let names = ["foo", "bar", "baz"];
    let world = World::new();
    let (r, answers) = resolved(&world, &names);
    assert_eq!(world.ask(&names, RequiredState::Resolved).addresses(), [1, 2, 3]);
    assert!(answers.iter().all(Answer::is_pending));
    for (i, r) in r.into_iter().enumerate() {
        emit(&world, r, &[names[(i + 1) % 3], names[(i + 2) % 3]]);
    }
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}
