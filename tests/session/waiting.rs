//! When emitted symbols become ready: chains, cycles, and failures and removals in them (ORC: WaitingOnGraphTest).

use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// Emits a responsibility with dependencies on `names`.
fn emit(fixture: &Fixture, r: MaterializationResponsibility, names: &[&str]) {
    r.notify_emitted(fixture.references(names)).unwrap();
}

#[test]
fn a_dependency_on_itself_does_not_keep_a_symbol_from_being_ready() {
    let fixture = Fixture::new();
    let (mut r, answers) = fixture.resolved(&["foo"]);
    emit(&fixture, r.remove(0), &["foo"]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_dependency_emitted_first_is_ready_first() {
    let fixture = Fixture::new();
    let (mut r, answers) = fixture.resolved(&["foo", "bar"]);
    emit(&fixture, r.remove(1), &[]);
    assert_eq!(fixture.states(&["foo", "bar"]), [RESOLVED, READY]);
    emit(&fixture, r.remove(0), &["bar"]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_dependant_emitted_first_waits_for_its_dependency() {
    let fixture = Fixture::new();
    let (mut r, answers) = fixture.resolved(&["foo", "bar"]);
    emit(&fixture, r.remove(0), &["bar"]);
    assert_eq!(fixture.states(&["foo", "bar"]), [EMITTED, RESOLVED]);
    assert!(answers[0].is_pending());
    emit(&fixture, r.remove(0), &[]);
    assert_eq!(fixture.states(&["foo", "bar"]), [READY, READY]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_ring_of_three_is_ready_when_its_last_member_is_emitted_and_not_before() {
    let names = ["foo", "bar", "baz"];
    for last in 0..3 {
        let fixture = Fixture::new();
        let (r, answers) = fixture.resolved(&names);
        let mut ring: Vec<_> = r.into_iter().enumerate().collect();
        ring.rotate_left(last);
        for (i, r) in ring {
            assert!(answers.iter().all(Answer::is_pending));
            emit(&fixture, r, &[names[(i + 1) % 3]]);
        }
        assert_eq!(fixture.states(&names), [READY; 3]);
        assert!(answers.iter().zip(1..).all(|(answer, value)| answer.addresses() == [value]));
    }
}

#[test]
fn a_zigzag_is_ready_from_the_bottom_up() {
    // a → b, a → c, b → d, b → c, c → d; emitted in the order a, c, b, d.
    let names = ["a", "b", "c", "d"];
    let fixture = Fixture::new();
    let (r, answers) = fixture.resolved(&names);
    let [a, b, c, d] = <[_; 4]>::try_from(r).unwrap();
    emit(&fixture, a, &["b", "c"]);
    emit(&fixture, c, &["d"]);
    emit(&fixture, b, &["d", "c"]);
    assert_eq!(fixture.states(&names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&fixture, d, &[]);
    assert_eq!(fixture.states(&names), [READY; 4]);
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}

#[test]
fn two_rings_that_share_a_member_wait_for_each_other() {
    let names = ["a", "b", "c"];
    let fixture = Fixture::new();
    let (r, _answers) = fixture.resolved(&names);
    let [a, b, c] = <[_; 3]>::try_from(r).unwrap();
    emit(&fixture, a, &["b"]);
    emit(&fixture, b, &["a", "c"]);
    assert_eq!(fixture.states(&names), [EMITTED, EMITTED, RESOLVED]);
    emit(&fixture, c, &["b"]);
    assert_eq!(fixture.states(&names), [READY; 3]);
}

#[test]
fn a_ring_and_its_dependants_wait_for_the_dependency_of_the_ring() {
    let names = ["out", "a", "b", "in"];
    let fixture = Fixture::new();
    let (r, _answers) = fixture.resolved(&names);
    let [out, a, b, inner] = <[_; 4]>::try_from(r).unwrap();
    emit(&fixture, out, &["a"]);
    emit(&fixture, a, &["b"]);
    emit(&fixture, b, &["a", "in"]);
    assert_eq!(fixture.states(&names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&fixture, inner, &[]);
    assert_eq!(fixture.states(&names), [READY; 4]);
}

#[test]
fn a_dependency_in_another_dylib_counts_as_one_in_the_same() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let (unit, held) = Unit::held(&["bar"]);
    other.define(unit).unwrap();
    let bar = Answer::of(&fixture.session, &other, &["bar"], RequiredState::Resolved);
    let r_bar = held.take();
    r_bar.notify_resolved(|_| Some(address(9))).unwrap();
    let (mut r, answers) = fixture.resolved(&["foo"]);
    r.remove(0).notify_emitted(vec![bar.results()[0].symbol.clone().unwrap()]).unwrap();
    assert!(answers[0].is_pending());
    r_bar.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_ready_name_that_is_removed_and_redefined_is_waited_for_again() {
    // Symptom in ORC: the graph kept the old entry and made the dependant ready (llvm/llvm-project#169135).
    let fixture = Fixture::new();
    fixture.loaded("bar", 1).remove().unwrap();
    let (mut r, answers) = fixture.resolved(&["foo", "bar"]);
    emit(&fixture, r.remove(0), &["bar"]);
    assert!(answers[0].is_pending());
    emit(&fixture, r.remove(0), &[]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn failure_reaches_every_pending_dependant_through_a_zigzag() {
    let names = ["a", "b", "c", "d"];
    let fixture = Fixture::new();
    let (r, answers) = fixture.resolved(&names);
    let [a, b, c, d] = <[_; 4]>::try_from(r).unwrap();
    emit(&fixture, a, &["b", "c"]);
    emit(&fixture, c, &["d"]);
    emit(&fixture, b, &["d"]);
    d.fail(Error::other("no"));
    assert!(answers.iter().all(|answer| answer.error().root_cause().to_string() == "no"));
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn failing_a_symbol_without_dependants_leaves_other_symbols_waiting() {
    let fixture = Fixture::new();
    let (r, answers) = fixture.resolved(&["foo", "bar", "odd"]);
    let [foo, bar, odd] = <[_; 3]>::try_from(r).unwrap();
    emit(&fixture, foo, &["bar"]);
    odd.fail(Error::other("no"));
    assert!(answers[0].is_pending());
    emit(&fixture, bar, &[]);
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn removing_a_pending_symbol_fails_its_dependants_and_leaves_its_dependencies() {
    // out → mid → base. The tracker of mid is removed while mid waits for base.
    let fixture = Fixture::new();
    let (mut r, answers) = fixture.resolved(&["out", "base"]);
    let tracker = fixture.tracker();
    let (r_mid, mid) = fixture.claim_under(&tracker, &["mid"], RequiredState::Ready);
    r_mid.notify_resolved(|_| Some(address(7))).unwrap();
    emit(&fixture, r_mid, &["base"]);
    emit(&fixture, r.remove(0), &["mid"]);

    tracker.remove().unwrap();

    assert_eq!(failed_symbols(&mid.error()), ["mid"]);
    assert_eq!(failed_symbols(&answers[0].error()), ["out"]);
    assert!(answers[1].is_pending());
    emit(&fixture, r.remove(0), &[]);
    assert_eq!(answers[1].addresses(), [2]);
    assert_eq!(fixture.main.symbol_count(), 1);
}

#[test]
fn depending_on_a_symbol_that_has_just_failed_with_its_dependency_is_refused() {
    // Symptom: the failed symbol was still in its table but not in the graph, and the dependant became ready.
    let fixture = Fixture::new();
    let (first, second) =
        (fixture.session.create_dylib("first").unwrap(), fixture.session.create_dylib("second").unwrap());
    let base = fixture.tracker();
    let held_base = define_held_under(&base, &["base"]);
    let order = [(fixture.main.clone(), Visibility::All)];
    first.set_link_order(&order).unwrap();
    second.set_link_order(&order).unwrap();
    first.define(Unit::depending("x", &["base"], &fixture.manager, 1)).unwrap();
    second.define(Unit::depending("y", &["base"], &fixture.manager, 2)).unwrap();
    let (r_z, z) = fixture.claim(&["z"], RequiredState::Ready);
    r_z.notify_resolved(|_| Some(address(3))).unwrap();

    let y_resolved = Answer::of(&fixture.session, &second, &["y"], RequiredState::Resolved);
    let y = y_resolved.results()[0].symbol.clone().unwrap();
    let outcome = std::sync::Arc::new(std::sync::Mutex::new(None));
    let emitted = outcome.clone();
    fixture.session.lookup_then(
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
fn emitting_or_failing_an_empty_responsibility_affects_no_symbol() {
    let fixture = Fixture::new();
    let (mut r, answers) = fixture.resolved(&["foo", "bar"]);
    emit(&fixture, r.remove(0), &["bar"]);
    let ends: [fn(MaterializationResponsibility); 2] =
        [|empty| empty.notify_emitted(Vec::new()).unwrap(), |empty| empty.fail(Error::other("nothing"))];
    for end in ends {
        let (mut empty, odd) = fixture.claim(&["odd"], RequiredState::Ready);
        let all = empty.delegate(&["odd"]).unwrap();
        end(empty);
        assert_eq!(fixture.states(&["foo", "bar", "odd"]), [EMITTED, RESOLVED, Some(SymbolState::Materializing)]);
        finish(all, 3);
        assert_eq!(odd.addresses(), [3]);
        fixture.main.remove_symbols(&["odd"]).unwrap();
    }
    assert!(answers.iter().all(Answer::is_pending));
    emit(&fixture, r.remove(0), &[]);
    assert_eq!(fixture.states(&["foo", "bar"]), [READY; 2]);
}

#[test]
fn symbols_that_wait_for_the_same_dependency_are_ready_together() {
    let names = ["a", "b", "c", "base"];
    let fixture = Fixture::new();
    let (r, answers) = fixture.resolved(&names);
    let [a, b, c, base] = <[_; 4]>::try_from(r).unwrap();
    emit(&fixture, a, &["base"]);
    emit(&fixture, b, &["base"]);
    emit(&fixture, c, &["a", "base"]);
    assert_eq!(fixture.states(&names), [EMITTED, EMITTED, EMITTED, RESOLVED]);
    emit(&fixture, base, &[]);
    assert_eq!(fixture.states(&names), [READY; 4]);
    assert!(answers.iter().zip(1..).all(|(answer, value)| answer.addresses() == [value]));
}

#[test]
fn the_addresses_of_a_ring_are_found_before_any_member_is_ready() {
    // ORC: TestCircularDependenceInOneJITDylib looks up with `Resolved` first.
    let names = ["foo", "bar", "baz"];
    let fixture = Fixture::new();
    let (r, answers) = fixture.resolved(&names);
    assert_eq!(fixture.look_up(&names, RequiredState::Resolved).addresses(), [1, 2, 3]);
    assert!(answers.iter().all(Answer::is_pending));
    for (i, r) in r.into_iter().enumerate() {
        emit(&fixture, r, &[names[(i + 1) % 3], names[(i + 2) % 3]]);
    }
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}
