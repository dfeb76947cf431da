//! Emission by groups: a symbol waits only for the dependencies of its group (ORC: WaitingOnGraphTest).

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// A unit that has run and is resolved, and a query for each of its symbols.
fn resolved(fixture: &Fixture, names: &[&str]) -> (MaterializationResponsibility, Vec<Answer>) {
    let held = fixture.define_held(names);
    let answers = names.iter().map(|name| fixture.look_up(&[name], RequiredState::Ready)).collect();
    let r = held.take();
    r.notify_resolved(|claimed| Some(address(claimed.name.as_str().len() as u64))).unwrap();
    (r, answers)
}

fn group(symbols: &[&str], dependencies: Vec<SymbolRef>) -> DependencyGroup {
    DependencyGroup { symbols: symbols.iter().map(|name| Name::new(name)).collect(), dependencies }
}

#[test]
fn no_groups_and_empty_groups_make_everything_ready() {
    let fixture = Fixture::new();
    let (r, answers) = resolved(&fixture, &["a", "b"]);
    r.notify_emitted_groups(Vec::new()).unwrap();
    assert!(answers.iter().all(|answer| answer.addresses() == [1]));
    let (r, answers) = resolved(&fixture, &["c"]);
    r.notify_emitted_groups(vec![DependencyGroup::default(), group(&["c"], Vec::new())]).unwrap();
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_group_waits_only_for_its_own_dependencies() {
    let fixture = Fixture::new();
    let (x, _x) = resolved(&fixture, &["x"]);
    let (y, _y) = resolved(&fixture, &["y"]);
    let (r, _answers) = resolved(&fixture, &["a", "b", "c"]);
    let groups = vec![group(&["a"], fixture.references(&["x"])), group(&["b"], fixture.references(&["y", "x"]))];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(fixture.states(&["a", "b", "c"]), [EMITTED, EMITTED, READY], "c is in no group");
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [READY, EMITTED]);
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [READY, READY]);
}

#[test]
fn a_group_that_refers_to_itself_is_ready() {
    let fixture = Fixture::new();
    let (r, answers) = resolved(&fixture, &["a", "b"]);
    let own = ["a", "b"].map(|name| r.symbol(name).unwrap()).to_vec();
    r.notify_emitted_groups(vec![group(&["a", "b"], own)]).unwrap();
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}

#[test]
fn groups_of_one_responsibility_that_refer_to_each_other_are_ready_together() {
    for rotation in 0..3 {
        let fixture = Fixture::new();
        let names = ["a", "b", "c"];
        let (r, _answers) = resolved(&fixture, &names);
        let mut groups: Vec<_> =
            (0..3).map(|i| group(&[names[i]], vec![r.symbol(names[(i + 1) % 3]).unwrap()])).collect();
        groups.rotate_left(rotation);
        r.notify_emitted_groups(groups).unwrap();
        assert_eq!(fixture.states(&names), [READY; 3]);
    }
}

#[test]
fn a_ring_within_one_responsibility_waits_as_one_for_the_dependency_of_a_member() {
    let fixture = Fixture::new();
    let (x, _x) = resolved(&fixture, &["x"]);
    let names = ["a", "b", "user"];
    let (r, _answers) = resolved(&fixture, &names);
    let reference = |name: &str| r.symbol(name).unwrap();
    let outside = fixture.references(&["x"]);
    let groups = vec![
        group(&["user"], vec![reference("a")]),
        group(&["a"], vec![reference("b")]),
        group(&["b"], vec![reference("a"), outside[0].clone()]),
    ];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(fixture.states(&names), [EMITTED; 3]);
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&names), [READY; 3]);
}

#[test]
fn rings_that_close_across_two_responsibilities_become_ready_with_the_second() {
    let fixture = Fixture::new();
    let (first, _first) = resolved(&fixture, &["a", "b"]);
    let (second, _second) = resolved(&fixture, &["c", "d"]);
    first
        .notify_emitted_groups(vec![
            group(&["a"], fixture.references(&["c"])),
            group(&["b"], fixture.references(&["d"])),
        ])
        .unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [EMITTED; 2]);
    let groups = vec![group(&["c"], fixture.references(&["b"])), group(&["d"], fixture.references(&["a"]))];
    second.notify_emitted_groups(groups).unwrap();
    assert_eq!(fixture.states(&["a", "b", "c", "d"]), [READY; 4]);
}

#[test]
fn a_failing_group_fails_unready_groups_and_leaves_ready_ones() {
    // Symptom: a group that was emitted before the failing one, and waited for another symbol, stayed in an incomplete state.
    let fixture = Fixture::new();
    let (x, _x) = resolved(&fixture, &["x"]);
    let gone_tracker = fixture.loaded("gone", 9);
    let gone = fixture.references(&["gone"]);
    gone_tracker.remove().unwrap();
    let (r, answers) = resolved(&fixture, &["done", "waits", "bad", "late"]);
    let groups = vec![
        group(&["done"], Vec::new()),
        group(&["waits"], fixture.references(&["x"])),
        group(&["bad"], gone),
        group(&["late"], Vec::new()),
    ];
    let error = r.notify_emitted_groups(groups).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DependencyRemoved { .. }), "{error}");
    assert_eq!(answers[0].addresses(), [4]);
    assert!(answers[1..].iter().all(|answer| !answer.is_pending() && !failed_symbols(&answer.error()).is_empty()));
    assert_eq!(fixture.states(&["done", "waits", "bad", "late"]), [READY, None, None, None]);
    x.notify_emitted(Vec::new()).unwrap();
    fixture.main.define(Unit::ready(&["waits"], 5)).unwrap();
    assert_eq!(fixture.find("waits").unwrap(), 5);
}

#[test]
fn a_symbol_that_is_in_two_groups_or_not_claimed_is_refused() {
    // Symptom: the dependencies of the second group were dropped, so code could outlive its dependencies.
    let fixture = Fixture::new();
    for second in ["a", "other"] {
        let (r, answers) = resolved(&fixture, &["a"]);
        let error = r.notify_emitted_groups(vec![group(&["a"], vec![]), group(&[second], vec![])]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotResponsible { .. }), "{error}");
        assert_eq!(failed_symbols(&answers[0].error()), ["a"]);
    }
}

#[test]
fn failing_a_symbol_fails_only_the_groups_that_wait_for_it() {
    let fixture = Fixture::new();
    let (x, _x) = resolved(&fixture, &["x"]);
    let (y, _y) = resolved(&fixture, &["y"]);
    let (r, answers) = resolved(&fixture, &["a", "b", "c"]);
    let reference = |name: &str| r.symbol(name).unwrap();
    let groups = vec![
        group(&["a"], fixture.references(&["x"])),
        group(&["b"], vec![reference("a")]),
        group(&["c"], fixture.references(&["y"])),
    ];
    r.notify_emitted_groups(groups).unwrap();
    x.fail(Error::other("no x"));
    assert_eq!(failed_symbols(&answers[0].error()), ["a"]);
    let text = "failed to materialize `b` in dylib `main`, which needs `a`, which needs `x`: no x";
    assert_eq!(answers[1].error().to_string(), text);
    assert!(answers[2].is_pending());
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answers[2].addresses(), [1]);
}

#[test]
fn groups_pin_their_dependencies() {
    let fixture = Fixture::new();
    let (left, right) = (fixture.loaded("left", 1), fixture.loaded("right", 2));
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["a", "b"]);
    let _answer = fixture.look_up(&["a"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(3))).unwrap();
    let groups = vec![group(&["a"], fixture.references(&["left"])), group(&["b"], fixture.references(&["right"]))];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(tracker.dependencies().len(), 2);
    let removals = [left.remove().unwrap(), right.remove().unwrap()];
    assert!(removals.iter().all(|removal| removal.blockers() == (0, 1)));
    tracker.remove().unwrap();
    assert!(removals.iter().all(Removal::is_complete));
}

#[test]
fn a_unit_of_ten_thousand_groups_in_a_ring_is_ready_at_once() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..sized(10_000, 50)).map(|i| format!("ring{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let held = fixture.define_held(&names);
    let answer = fixture.look_up(&names[..1], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    let all = fixture.references(&names);
    let next = |i: usize| vec![all[(i + 1) % all.len()].clone()];
    let groups = names.iter().enumerate().map(|(i, name)| group(&[name], next(i))).rev().collect();
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_group_of_several_symbols_waits_for_each_of_its_dependencies_and_is_ready_as_one() {
    let fixture = Fixture::new();
    let (x, _x) = resolved(&fixture, &["x"]);
    let (y, _y) = resolved(&fixture, &["y"]);
    let (r, answers) = resolved(&fixture, &["a", "b"]);
    r.notify_emitted_groups(vec![group(&["a", "b"], fixture.references(&["x", "y", "x"]))]).unwrap();
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [EMITTED; 2]);
    assert!(answers.iter().all(Answer::is_pending));
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [READY; 2]);
    assert!(answers.iter().all(|answer| answer.addresses() == [1]));
}

#[test]
fn groups_with_the_same_dependencies_are_ready_together_in_any_order() {
    // Groups with equal dependencies next to each other, and with other groups in between.
    for order in [["a", "c", "b", "d"], ["a", "b", "c", "d"], ["d", "b", "c", "a"]] {
        let fixture = Fixture::new();
        let (x, _x) = resolved(&fixture, &["x"]);
        let (y, _y) = resolved(&fixture, &["y"]);
        let (r, _answers) = resolved(&fixture, &["a", "b", "c", "d"]);
        let of = |name| fixture.references(&[if matches!(name, "a" | "c") { "x" } else { "y" }]);
        r.notify_emitted_groups(order.iter().map(|name| group(&[name], of(*name))).collect()).unwrap();
        assert_eq!(fixture.states(&["a", "b", "c", "d"]), [EMITTED; 4]);
        x.notify_emitted(Vec::new()).unwrap();
        assert_eq!(fixture.states(&["a", "b", "c", "d"]), [READY, EMITTED, READY, EMITTED], "{order:?}");
        y.notify_emitted(Vec::new()).unwrap();
        assert_eq!(fixture.states(&["b", "d"]), [READY; 2], "{order:?}");
    }
}

#[test]
fn a_group_waits_for_the_dependencies_of_another_group_that_it_refers_to() {
    for is_reversed in [false, true] {
        let fixture = Fixture::new();
        let (x, _x) = resolved(&fixture, &["x"]);
        let (r, _answers) = resolved(&fixture, &["outer", "inner"]);
        let mut groups =
            vec![group(&["outer"], vec![r.symbol("inner").unwrap()]), group(&["inner"], fixture.references(&["x"]))];
        if is_reversed {
            groups.reverse();
        }
        r.notify_emitted_groups(groups).unwrap();
        assert_eq!(fixture.states(&["outer", "inner"]), [EMITTED; 2]);
        x.notify_emitted(Vec::new()).unwrap();
        assert_eq!(fixture.states(&["outer", "inner"]), [READY; 2]);
    }
}
