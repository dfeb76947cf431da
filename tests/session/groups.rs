//! Emission by groups: one symbol does not wait for what only another refers to (ORC: WaitingOnGraphTest).

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

/// A unit that is run and resolved, with a query for each of its symbols.
fn resolved(world: &World, names: &[&str]) -> (MaterializationResponsibility, Vec<Answer>) {
    let (unit, held) = Unit::held(names);
    world.main.define(unit).unwrap();
    let answers = names.iter().map(|name| world.ask(&[name], RequiredState::Ready)).collect();
    let r = held.take();
    r.notify_resolved(|owed| Some(address(owed.name.as_str().len() as u64))).unwrap();
    (r, answers)
}

fn group(symbols: &[&str], dependencies: Vec<SymbolRef>) -> DependencyGroup {
    DependencyGroup { symbols: symbols.iter().map(|name| Name::new(name)).collect(), dependencies }
}

fn states(world: &World, names: &[&str]) -> Vec<Option<SymbolState>> {
    names.iter().map(|name| world.main.symbol_state(name)).collect()
}

const EMITTED: Option<SymbolState> = Some(SymbolState::Emitted);
const READY: Option<SymbolState> = Some(SymbolState::Ready);

#[test]
fn no_groups_and_empty_groups_make_everything_ready() {
    let world = World::new();
    let (r, answers) = resolved(&world, &["a", "b"]);
    r.notify_emitted_groups(Vec::new()).unwrap();
    assert!(answers.iter().all(|answer| answer.addresses() == [1]));
    let (r, answers) = resolved(&world, &["c"]);
    r.notify_emitted_groups(vec![DependencyGroup::default(), group(&["c"], Vec::new())]).unwrap();
    assert_eq!(answers[0].addresses(), [1]);
}

#[test]
fn a_group_waits_only_for_what_it_refers_to() {
    let world = World::new();
    let (x, _x) = resolved(&world, &["x"]);
    let (y, _y) = resolved(&world, &["y"]);
    let (r, _answers) = resolved(&world, &["a", "b", "c"]);
    let groups = vec![group(&["a"], world.references(&["x"])), group(&["b"], world.references(&["y", "x"]))];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(states(&world, &["a", "b", "c"]), [EMITTED, EMITTED, READY], "c is in no group");
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(states(&world, &["a", "b"]), [READY, EMITTED]);
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(states(&world, &["a", "b"]), [READY, READY]);
}

#[test]
fn a_group_that_refers_to_itself_is_ready() {
    let world = World::new();
    let (r, answers) = resolved(&world, &["a", "b"]);
    let own = ["a", "b"].map(|name| r.symbol(name).unwrap()).to_vec();
    r.notify_emitted_groups(vec![group(&["a", "b"], own)]).unwrap();
    assert!(answers.iter().all(|answer| !answer.is_pending()));
}

#[test]
fn groups_of_one_responsibility_that_refer_to_each_other_are_ready_together() {
    for rotation in 0..3 {
        let world = World::new();
        let names = ["a", "b", "c"];
        let (r, _answers) = resolved(&world, &names);
        let mut groups: Vec<_> =
            (0..3).map(|i| group(&[names[i]], vec![r.symbol(names[(i + 1) % 3]).unwrap()])).collect();
        groups.rotate_left(rotation);
        r.notify_emitted_groups(groups).unwrap();
        assert_eq!(states(&world, &names), [READY; 3]);
    }
}

#[test]
fn a_ring_within_one_responsibility_waits_as_a_whole_for_what_one_member_refers_to() {
    let world = World::new();
    let (x, _x) = resolved(&world, &["x"]);
    let names = ["a", "b", "user"];
    let (r, _answers) = resolved(&world, &names);
    let reference = |name: &str| r.symbol(name).unwrap();
    let outside = world.references(&["x"]);
    let groups = vec![
        group(&["user"], vec![reference("a")]),
        group(&["a"], vec![reference("b")]),
        group(&["b"], vec![reference("a"), outside[0].clone()]),
    ];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(states(&world, &names), [EMITTED; 3]);
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(states(&world, &names), [READY; 3]);
}

#[test]
fn rings_that_close_across_two_responsibilities_become_ready_with_the_second() {
    let world = World::new();
    let (first, _first) = resolved(&world, &["a", "b"]);
    let (second, _second) = resolved(&world, &["c", "d"]);
    first
        .notify_emitted_groups(vec![group(&["a"], world.references(&["c"])), group(&["b"], world.references(&["d"]))])
        .unwrap();
    assert_eq!(states(&world, &["a", "b"]), [EMITTED; 2]);
    let groups = vec![group(&["c"], world.references(&["b"])), group(&["d"], world.references(&["a"]))];
    second.notify_emitted_groups(groups).unwrap();
    assert_eq!(states(&world, &["a", "b", "c", "d"]), [READY; 4]);
}

#[test]
fn a_group_that_fails_takes_those_that_are_not_ready_and_leaves_those_that_are() {
    // A group that was emitted before the failing one and waited for something else was left behind, half done.
    let world = World::new();
    let (x, _x) = resolved(&world, &["x"]);
    let gone_tracker = world.loaded("gone", 9);
    let gone = world.references(&["gone"]);
    gone_tracker.remove().unwrap();
    let (r, answers) = resolved(&world, &["done", "waits", "bad", "late"]);
    let groups = vec![
        group(&["done"], Vec::new()),
        group(&["waits"], world.references(&["x"])),
        group(&["bad"], gone),
        group(&["late"], Vec::new()),
    ];
    let error = r.notify_emitted_groups(groups).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DependencyRemoved { .. }), "{error}");
    assert_eq!(answers[0].addresses(), [4]);
    assert!(answers[1..].iter().all(|answer| !answer.is_pending() && !failed_symbols(&answer.error()).is_empty()));
    assert_eq!(states(&world, &["done", "waits", "bad", "late"]), [READY, None, None, None]);
    x.notify_emitted(Vec::new()).unwrap();
    world.main.define(Unit::ready(&["waits"], 5)).unwrap();
    assert_eq!(world.find("waits").unwrap(), 5);
}

#[test]
fn a_symbol_in_two_groups_or_one_that_is_not_owed_is_refused_and_loses_no_dependency() {
    // The second group's dependencies were dropped: code could outlive what it refers to.
    let world = World::new();
    for second in ["a", "other"] {
        let (r, answers) = resolved(&world, &["a"]);
        let error = r.notify_emitted_groups(vec![group(&["a"], vec![]), group(&[second], vec![])]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotOwed { .. }), "{error}");
        assert_eq!(failed_symbols(&answers[0].error()), ["a"]);
    }
}

#[test]
fn failing_a_symbol_reaches_the_groups_that_wait_for_it_and_no_others() {
    let world = World::new();
    let (x, _x) = resolved(&world, &["x"]);
    let (y, _y) = resolved(&world, &["y"]);
    let (r, answers) = resolved(&world, &["a", "b", "c"]);
    let reference = |name: &str| r.symbol(name).unwrap();
    let groups = vec![
        group(&["a"], world.references(&["x"])),
        group(&["b"], vec![reference("a")]),
        group(&["c"], world.references(&["y"])),
    ];
    r.notify_emitted_groups(groups).unwrap();
    x.fail(Error::other("no x"));
    assert_eq!((failed_symbols(&answers[0].error()).len(), answers[1].error().to_string().is_empty()), (2, false));
    assert!(answers[2].is_pending());
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answers[2].addresses(), [1]);
}

#[test]
fn groups_pin_what_each_of_them_refers_to() {
    let world = World::new();
    let (left, right) = (world.loaded("left", 1), world.loaded("right", 2));
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["a", "b"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["a"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(3))).unwrap();
    let groups = vec![group(&["a"], world.references(&["left"])), group(&["b"], world.references(&["right"]))];
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(tracker.dependencies().len(), 2);
    let removals = [left.remove().unwrap(), right.remove().unwrap()];
    assert!(removals.iter().all(|removal| removal.blockers() == (0, 1)));
    tracker.remove().unwrap();
    assert!(removals.iter().all(Removal::is_complete));
}

#[test]
fn a_unit_of_ten_thousand_groups_in_a_ring_is_ready_at_once() {
    let world = World::new();
    let names: Vec<String> = (0..sized(10_000, 50)).map(|i| format!("ring{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (unit, held) = Unit::held(&names);
    world.main.define(unit).unwrap();
    let answer = world.ask(&names[..1], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    let all = world.references(&names);
    let next = |i: usize| vec![all[(i + 1) % all.len()].clone()];
    let groups = names.iter().enumerate().map(|(i, name)| group(&[name], next(i))).rev().collect();
    r.notify_emitted_groups(groups).unwrap();
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_group_of_several_symbols_waits_for_each_of_its_dependencies_and_is_ready_as_one() {
    let world = World::new();
    let (x, _x) = resolved(&world, &["x"]);
    let (y, _y) = resolved(&world, &["y"]);
    let (r, answers) = resolved(&world, &["a", "b"]);
    r.notify_emitted_groups(vec![group(&["a", "b"], world.references(&["x", "y", "x"]))]).unwrap();
    x.notify_emitted(Vec::new()).unwrap();
    assert_eq!(states(&world, &["a", "b"]), [EMITTED; 2]);
    assert!(answers.iter().all(Answer::is_pending));
    y.notify_emitted(Vec::new()).unwrap();
    assert_eq!(states(&world, &["a", "b"]), [READY; 2]);
    assert!(answers.iter().all(|answer| answer.addresses() == [1]));
}

#[test]
fn groups_with_the_same_dependencies_are_ready_together_whatever_stands_between_them() {
    // In the order of their dependencies, and with others in between.
    for order in [["a", "c", "b", "d"], ["a", "b", "c", "d"], ["d", "b", "c", "a"]] {
        let world = World::new();
        let (x, _x) = resolved(&world, &["x"]);
        let (y, _y) = resolved(&world, &["y"]);
        let (r, _answers) = resolved(&world, &["a", "b", "c", "d"]);
        let of = |name| world.references(&[if matches!(name, "a" | "c") { "x" } else { "y" }]);
        r.notify_emitted_groups(order.iter().map(|name| group(&[name], of(*name))).collect()).unwrap();
        assert_eq!(states(&world, &["a", "b", "c", "d"]), [EMITTED; 4]);
        x.notify_emitted(Vec::new()).unwrap();
        assert_eq!(states(&world, &["a", "b", "c", "d"]), [READY, EMITTED, READY, EMITTED], "{order:?}");
        y.notify_emitted(Vec::new()).unwrap();
        assert_eq!(states(&world, &["b", "d"]), [READY; 2], "{order:?}");
    }
}

#[test]
fn a_group_waits_for_what_another_of_its_responsibility_refers_to_for_it() {
    for is_reversed in [false, true] {
        let world = World::new();
        let (x, _x) = resolved(&world, &["x"]);
        let (r, _answers) = resolved(&world, &["outer", "inner"]);
        let mut groups =
            vec![group(&["outer"], vec![r.symbol("inner").unwrap()]), group(&["inner"], world.references(&["x"]))];
        if is_reversed {
            groups.reverse();
        }
        r.notify_emitted_groups(groups).unwrap();
        assert_eq!(states(&world, &["outer", "inner"]), [EMITTED; 2]);
        x.notify_emitted(Vec::new()).unwrap();
        assert_eq!(states(&world, &["outer", "inner"]), [READY; 2]);
    }
}
