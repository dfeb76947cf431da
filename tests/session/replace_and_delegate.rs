//! `requested_symbols`, `delegate` and `replace` of a responsibility, and removal of single names (ORC: CoreAPIsTest).

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn names(names: &[Name]) -> Vec<&str> {
    names.iter().map(Name::as_str).collect()
}

fn claimed(r: &MaterializationResponsibility) -> Vec<&str> {
    r.symbols().iter().map(|claimed| claimed.name.as_str()).collect()
}

#[track_caller]
fn assert_not_owed<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.expect_err("the symbol is not claimed");
    assert!(matches!(error.kind(), ErrorKind::NotResponsible { .. }), "{error}");
}

#[test]
fn only_requested_names_are_listed_and_replaced_ones_materialise_later() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let foo = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    assert_eq!(names(&r.requested_symbols()), ["foo"]);
    r.replace(Unit::ready(&["bar"], 2).logging(&fixture.log)).unwrap();
    assert_eq!(claimed(&r), ["foo"]);
    assert_eq!(fixture.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
    assert_eq!(fixture.log.take(), [""; 0], "no lookup has requested it");
    assert_eq!(fixture.find("bar").unwrap(), 2);
    assert_eq!(fixture.log.take(), ["run unit of bar", "drop unit of bar"]);
}

#[test]
fn a_name_looked_up_during_the_work_is_requested_too() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let _foo = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    let bar = fixture.look_up(&["bar"], RequiredState::Ready);
    assert_eq!(names(&r.requested_symbols()), ["foo", "bar"]);
    r.replace(Unit::ready(&["bar"], 2)).unwrap();
    assert_eq!(bar.addresses(), [2], "the unit runs at once because a lookup waits");
    finish(r, 1);
}

#[test]
fn a_name_that_emitted_code_waits_for_is_requested() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let _foo = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    let (user, answer) = fixture.claim(&["user"], RequiredState::Ready);
    user.notify_resolved(|_| Some(address(9))).unwrap();
    user.notify_emitted(vec![r.symbol("bar").unwrap()]).unwrap();
    assert_eq!(names(&r.requested_symbols()), ["foo", "bar"]);
    r.replace(Unit::ready(&["bar"], 2)).unwrap();
    assert_eq!(answer.addresses(), [9]);
    finish(r, 1);
}

#[test]
fn replacing_a_symbol_that_is_not_claimed_or_is_resolved_is_refused() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    assert_not_owed(r.replace(Unit::never(&["bar", "other"])));
    assert_eq!(claimed(&r), ["foo", "bar"]);
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_not_owed(r.replace(Unit::never(&["bar"])));
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn replacing_a_repeated_name_counts_once_and_replacing_no_name_does_nothing() {
    // Symptom: the unit without names was dropped under the dylib's lock, where its drop could not call the session.
    struct CallsSessionWhenDropped(JitDylib);
    impl MaterializationUnit for CallsSessionWhenDropped {
        fn name(&self) -> &str {
            "empty"
        }
        fn symbols(&self) -> &[(Name, SymbolFlags)] {
            &[]
        }
        fn materialize(self: Box<Self>, _: MaterializationResponsibility) {
            panic!("was run");
        }
    }
    impl Drop for CallsSessionWhenDropped {
        fn drop(&mut self) {
            assert_eq!(self.0.symbol_count(), 2);
        }
    }
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    r.replace(CallsSessionWhenDropped(fixture.main.clone())).unwrap();
    let again = Unit::exported(&["bar", "bar"], |r| {
        assert_eq!(r.symbols().len(), 1);
        finish(r, 2);
    });
    r.replace(again).unwrap();
    assert_eq!(fixture.find("bar").unwrap(), 2);
    finish(r, 1);
}

#[test]
fn replacing_under_a_defunct_tracker_is_refused() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo", "bar"]);
    let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    tracker.remove().unwrap();
    assert_tracker_defunct(r.replace(Unit::never(&["bar"])));
    assert_eq!(fixture.main.symbol_count(), 0);
    r.fail(Error::other("late"));
}

#[test]
fn replaced_symbols_follow_a_transfer_and_are_removed_with_their_tracker() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.tracker(), fixture.tracker());
    let held = define_held_under(&first, &["foo", "bar"]);
    let _answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    first.transfer_to(&second).unwrap();
    r.replace(Unit::recording(&["bar"], &fixture.manager, 7)).unwrap();
    finish(r, 1);
    assert_eq!(fixture.find("bar").unwrap(), 7);
    assert_eq!(fixture.manager.recorded_under(second.key()), [7]);
    second.remove().unwrap();
    assert_eq!(fixture.manager.take_freed(), [7]);
}

#[test]
fn a_delegated_part_completes_on_its_own() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar"]);
    let (foo, bar) = (fixture.look_up(&["foo"], RequiredState::Ready), fixture.look_up(&["bar"], RequiredState::Ready));
    let mut r = held.take();
    assert_not_owed(r.delegate(&["bar", "other"]));
    let part = r.delegate(&["bar"]).unwrap();
    assert_eq!((claimed(&r), claimed(&part)), (vec!["foo"], vec!["bar"]));
    assert_eq!(part.tracker().key(), r.tracker().key());
    finish(part, 2);
    assert_eq!(bar.addresses(), [2]);
    assert!(foo.is_pending());
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
}

#[test]
fn a_delegated_part_that_fails_or_is_dropped_fails_alone() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo", "bar", "baz"]);
    let [foo, bar, baz] = ["foo", "bar", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    let mut r = held.take();
    r.delegate(&["bar"]).unwrap().fail(Error::other("no bar"));
    drop(r.delegate(&["baz"]).unwrap());
    assert_eq!((failed_symbols(&bar.error()), failed_symbols(&baz.error())), (vec!["bar".into()], vec!["baz".into()]));
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
}

#[test]
fn removing_names_is_all_or_nothing() {
    let fixture = Fixture::new();
    let lazy = Unit::new(&[("lazy", EXPORTED), ("sibling", EXPORTED)], |r| finish(r, 3)).logging(&fixture.log);
    fixture.main.define(lazy).unwrap();
    fixture.main.define(Unit::ready(&["ready"], 1)).unwrap();
    fixture.find("ready").unwrap();
    let held = fixture.define_held(&["busy"]);
    let busy = fixture.look_up(&["busy"], RequiredState::Ready);

    assert_not_found(fixture.main.remove_symbols(&["lazy", "ready", "absent"]));
    let error = fixture.main.remove_symbols(&["lazy", "ready", "busy"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SymbolsCouldNotBeRemoved { symbols, .. } if symbols == &["busy"]));
    assert_eq!(fixture.main.symbol_count(), 4);
    assert_eq!(fixture.log.take(), [""; 0]);

    fixture.main.remove_symbols(&["lazy", "ready", "lazy"]).unwrap();
    assert_eq!(fixture.main.symbol_count(), 2);
    assert_not_found(fixture.find("lazy"));
    assert_eq!(fixture.find("sibling").unwrap(), 3);
    assert_eq!(fixture.log.take(), ["discard lazy", "run unit of lazy", "drop unit of lazy"]);
    finish(held.take(), 2);
    assert_eq!(busy.addresses(), [2]);
    fixture.main.remove_symbols(&["busy"]).unwrap();
}

#[test]
fn a_unit_is_dropped_with_the_last_of_its_names() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::never(&["foo", "bar"]).logging(&fixture.log)).unwrap();
    fixture.main.remove_symbols(&["foo"]).unwrap();
    assert_eq!(fixture.log.take(), [""; 0]);
    fixture.main.remove_symbols(&["bar"]).unwrap();
    assert_eq!(fixture.log.take(), ["drop unit of foo"]);
}

#[test]
fn removing_names_and_then_their_tracker_frees_everything_once() {
    // Defect 3 of ORC: the second step walked a list that the first step had not updated.
    let names = ["bar", "foo", "baz"];
    for removed in 0..=3 {
        let fixture = Fixture::new();
        let tracker = fixture.tracker();
        tracker.define(Unit::recording(&["foo", "bar", "baz"], &fixture.manager, 5)).unwrap();
        tracker.define(Unit::never(&["lazy", "lazier"])).unwrap();
        fixture.find("foo").unwrap();
        for name in &names[..removed] {
            fixture.main.remove_symbols(&[name]).unwrap();
        }
        fixture.main.remove_symbols(&["lazier"]).unwrap();
        assert_eq!(fixture.main.symbol_count_of(tracker.key()), 4 - removed);
        assert!(fixture.manager.take_freed().is_empty(), "the code stays with its tracker");
        tracker.remove().unwrap();
        assert_eq!(fixture.manager.take_freed(), [5]);
        assert_eq!(fixture.main.symbol_count(), 0);
    }
}

#[test]
fn removing_an_old_tracker_leaves_a_newer_symbol_of_the_same_name() {
    // Defect 4 of ORC.
    let fixture = Fixture::new();
    let (old, new) = (fixture.tracker(), fixture.tracker());
    old.define(Unit::recording(&["foo", "bar"], &fixture.manager, 5)).unwrap();
    fixture.find("foo").unwrap();
    fixture.main.remove_symbols(&["foo"]).unwrap();
    new.define(Unit::recording(&["foo"], &fixture.manager, 6)).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 6);
    old.remove().unwrap();
    assert_eq!(fixture.manager.take_freed(), [5]);
    assert_eq!(fixture.find("foo").unwrap(), 6);
    assert_not_found(fixture.find("bar"));
    new.remove().unwrap();
    assert_eq!((fixture.manager.take_freed(), fixture.main.symbol_count()), (vec![6], 0));
}

#[test]
fn an_overridden_initialiser_is_discarded_and_no_longer_listed() {
    // ORC: DiscardInitSymbol.
    let fixture = Fixture::new();
    let side_effects = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    let unit = Unit::new(&[("init", side_effects | SymbolFlags::WEAK), ("foo", EXPORTED)], |r| finish(r, 1));
    fixture.main.define(unit.logging(&fixture.log)).unwrap();
    assert_eq!(fixture.main.pending_side_effects(), ["init".into()]);
    fixture.main.define_absolute([(Name::new("init"), address(9), EXPORTED)]).unwrap();
    assert!(fixture.main.pending_side_effects().is_empty());
    assert_eq!(fixture.find("foo").unwrap(), 1);
    assert_eq!(fixture.log.take(), ["discard init", "run unit of init", "drop unit of init"]);
    assert_eq!(fixture.find("init").unwrap(), 9);
}

#[test]
fn looking_up_flags_returns_none_for_absent_weak_names_and_materialises_nothing() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::never(&["foo"])).unwrap();
    fixture.main.define(Unit::new(&[("hidden", SymbolFlags::CALLABLE)], |_| panic!("was run"))).unwrap();
    other.define(Unit::new(&[("bar", weak()), ("hidden", EXPORTED)], |_| panic!("was run"))).unwrap();
    let order = [(fixture.main.clone(), Visibility::ExportedOnly), (other, Visibility::ExportedOnly)];
    let requests = ["bar", "foo", "hidden"].map(SymbolRequest::required);
    let flags = fixture.session.lookup_flags(&order, &requests).unwrap();
    assert_eq!(flags, [Some(weak()), Some(EXPORTED), Some(EXPORTED)]);
    let requests = [SymbolRequest::weak("absent"), SymbolRequest::required("foo")];
    assert_eq!(fixture.session.lookup_flags(&order, &requests).unwrap(), [None, Some(EXPORTED)]);
    assert_not_found(fixture.session.lookup_flags(&order, &[SymbolRequest::required("absent")]));
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn one_responsibility_goes_through_every_step_in_turn() {
    // ORC: OrcCAPITest, MaterializationResponsibility.
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["library"], 9)).unwrap();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo", "part", "later"]);
    let answer = fixture.look_up(&["foo", "part"], RequiredState::Ready);
    let mut r = held.take();
    assert_eq!((claimed(&r), names(&r.requested_symbols())), (vec!["foo", "part", "later"], vec!["foo", "part"]));
    assert_eq!(r.define_materializing(&[(Name::new("extra"), EXPORTED)]).unwrap(), [true]);
    r.replace(Unit::ready(&["later"], 4)).unwrap();
    let part = r.delegate(&["part"]).unwrap();
    assert_eq!((claimed(&r), claimed(&part)), (vec!["foo", "extra"], vec!["part"]));
    r.notify_resolved(|claimed| Some(address(if claimed.name.as_str() == "foo" { 1 } else { 2 }))).unwrap();
    part.notify_resolved(|_| Some(address(3))).unwrap();
    let mut dependencies = fixture.references(&["library"]);
    dependencies.push(part.symbol("part").unwrap());
    r.notify_emitted(dependencies).unwrap();
    assert_eq!(fixture.main.symbol_state("extra"), Some(SymbolState::Emitted));
    part.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.addresses(), [1, 3]);
    assert_eq!((fixture.find("extra").unwrap(), fixture.find("later").unwrap()), (2, 4));
    tracker.remove().unwrap();
    assert_eq!(fixture.main.symbol_count(), 1, "only the library remains");
}
