//! Parts of a duty handed on: what is requested, delegating, giving back; and removing names one by one
//! (ORC: CoreAPIsTest).

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn names(names: &[Name]) -> Vec<&str> {
    names.iter().map(Name::as_str).collect()
}

fn owed(r: &MaterializationResponsibility) -> Vec<&str> {
    r.symbols().iter().map(|owed| owed.name.as_str()).collect()
}

#[track_caller]
fn assert_not_owed<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.expect_err("not owed");
    assert!(matches!(error.kind(), ErrorKind::NotOwed { .. }), "{error}");
}

#[test]
fn only_requested_names_are_reported_and_the_rest_given_back_materialises_later() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let foo = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    assert_eq!(names(&r.requested_symbols()), ["foo"]);
    r.replace(Unit::ready(&["bar"], 2).logging(&world.log)).unwrap();
    assert_eq!(owed(&r), ["foo"]);
    assert_eq!(world.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
    assert_eq!(world.log.take(), [""; 0], "nobody has asked for it");
    assert_eq!(world.find("bar").unwrap(), 2);
    assert_eq!(world.log.take(), ["run unit of bar", "drop unit of bar"]);
}

#[test]
fn what_is_asked_for_during_the_work_is_requested_too() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let _foo = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    let bar = world.ask(&["bar"], RequiredState::Ready);
    assert_eq!(names(&r.requested_symbols()), ["foo", "bar"]);
    r.replace(Unit::ready(&["bar"], 2)).unwrap();
    assert_eq!(bar.addresses(), [2], "the unit is called at once, as somebody waits");
    finish(r, 1);
}

#[test]
fn a_name_that_emitted_code_waits_for_is_requested() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let _foo = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    let (user, user_held) = Unit::held(&["user"]);
    world.main.define(user).unwrap();
    let answer = world.ask(&["user"], RequiredState::Ready);
    let user = user_held.take();
    user.notify_resolved(|_| Some(address(9))).unwrap();
    user.notify_emitted(vec![r.symbol("bar").unwrap()]).unwrap();
    assert_eq!(names(&r.requested_symbols()), ["foo", "bar"]);
    r.replace(Unit::ready(&["bar"], 2)).unwrap();
    assert_eq!(answer.addresses(), [9]);
    finish(r, 1);
}

#[test]
fn giving_back_what_is_not_owed_or_resolved_gives_back_nothing() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    assert_not_owed(r.replace(Unit::never(&["bar", "other"])));
    assert_eq!(owed(&r), ["foo", "bar"]);
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_not_owed(r.replace(Unit::never(&["bar"])));
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn giving_back_a_name_twice_or_no_name_is_as_giving_it_back_once_or_not_at_all() {
    // The unit of no names was dropped under the dylib's lock, and its drop could not call the session.
    struct AsksWhenDropped(JitDylib);
    impl MaterializationUnit for AsksWhenDropped {
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
    impl Drop for AsksWhenDropped {
        fn drop(&mut self) {
            assert_eq!(self.0.symbol_count(), 2);
        }
    }
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    r.replace(AsksWhenDropped(world.main.clone())).unwrap();
    let again = Unit::exported(&["bar", "bar"], |r| {
        assert_eq!(r.symbols().len(), 1);
        finish(r, 2);
    });
    r.replace(again).unwrap();
    assert_eq!(world.find("bar").unwrap(), 2);
    finish(r, 1);
}

#[test]
fn a_defunct_tracker_takes_nothing_back() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    tracker.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    tracker.remove().unwrap();
    assert_tracker_defunct(r.replace(Unit::never(&["bar"])));
    assert_eq!(world.main.symbol_count(), 0);
    r.fail(Error::other("late"));
}

#[test]
fn what_was_given_back_goes_with_its_tracker_and_follows_a_transfer() {
    let world = World::new();
    let (first, second) = (world.tracker(), world.tracker());
    let (unit, held) = Unit::held(&["foo", "bar"]);
    first.define(unit).unwrap();
    let _answer = world.ask(&["foo"], RequiredState::Ready);
    let mut r = held.take();
    first.transfer_to(&second).unwrap();
    r.replace(Unit::recording(&["bar"], &world.books, 7)).unwrap();
    finish(r, 1);
    assert_eq!(world.find("bar").unwrap(), 7);
    assert_eq!(world.books.under(second.key()), [7]);
    second.remove().unwrap();
    assert_eq!(world.books.take_given_back(), [7]);
}

#[test]
fn a_delegated_part_completes_on_its_own() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    world.main.define(unit).unwrap();
    let (foo, bar) = (world.ask(&["foo"], RequiredState::Ready), world.ask(&["bar"], RequiredState::Ready));
    let mut r = held.take();
    assert_not_owed(r.delegate(&["bar", "other"]));
    let part = r.delegate(&["bar"]).unwrap();
    assert_eq!((owed(&r), owed(&part)), (vec!["foo"], vec!["bar"]));
    assert_eq!(part.tracker().key(), r.tracker().key());
    finish(part, 2);
    assert_eq!(bar.addresses(), [2]);
    assert!(foo.is_pending());
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
}

#[test]
fn a_delegated_part_that_fails_or_is_dropped_fails_alone() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo", "bar", "baz"]);
    world.main.define(unit).unwrap();
    let [foo, bar, baz] = ["foo", "bar", "baz"].map(|name| world.ask(&[name], RequiredState::Ready));
    let mut r = held.take();
    r.delegate(&["bar"]).unwrap().fail(Error::other("no bar"));
    drop(r.delegate(&["baz"]).unwrap());
    assert_eq!((failed_symbols(&bar.error()), failed_symbols(&baz.error())), (vec!["bar".into()], vec!["baz".into()]));
    finish(r, 1);
    assert_eq!(foo.addresses(), [1]);
}

#[test]
fn removing_names_is_all_or_nothing() {
    let world = World::new();
    let lazy = Unit::new(&[("lazy", EXPORTED), ("sibling", EXPORTED)], |r| finish(r, 3)).logging(&world.log);
    world.main.define(lazy).unwrap();
    world.main.define(Unit::ready(&["ready"], 1)).unwrap();
    world.find("ready").unwrap();
    let (unit, held) = Unit::held(&["busy"]);
    world.main.define(unit).unwrap();
    let busy = world.ask(&["busy"], RequiredState::Ready);

    assert_not_found(world.main.remove_symbols(&["lazy", "ready", "absent"]));
    let error = world.main.remove_symbols(&["lazy", "ready", "busy"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SymbolsCouldNotBeRemoved { symbols, .. } if symbols == &["busy"]));
    assert_eq!(world.main.symbol_count(), 4);
    assert_eq!(world.log.take(), [""; 0]);

    world.main.remove_symbols(&["lazy", "ready", "lazy"]).unwrap();
    assert_eq!(world.main.symbol_count(), 2);
    assert_not_found(world.find("lazy"));
    assert_eq!(world.find("sibling").unwrap(), 3);
    assert_eq!(world.log.take(), ["discard lazy", "run unit of lazy", "drop unit of lazy"]);
    finish(held.take(), 2);
    assert_eq!(busy.addresses(), [2]);
    world.main.remove_symbols(&["busy"]).unwrap();
}

#[test]
fn a_unit_goes_with_the_last_of_its_names() {
    let world = World::new();
    world.main.define(Unit::never(&["foo", "bar"]).logging(&world.log)).unwrap();
    world.main.remove_symbols(&["foo"]).unwrap();
    assert_eq!(world.log.take(), [""; 0]);
    world.main.remove_symbols(&["bar"]).unwrap();
    assert_eq!(world.log.take(), ["drop unit of foo"]);
}

#[test]
fn removing_names_and_then_their_tracker_neither_crashes_nor_takes_anything_twice() {
    // Defect 3 of ORC: the second step walked a list that the first had not told.
    let names = ["bar", "foo", "baz"];
    for removed in 0..=3 {
        let world = World::new();
        let tracker = world.tracker();
        tracker.define(Unit::recording(&["foo", "bar", "baz"], &world.books, 5)).unwrap();
        tracker.define(Unit::never(&["lazy", "lazier"])).unwrap();
        world.find("foo").unwrap();
        for name in &names[..removed] {
            world.main.remove_symbols(&[name]).unwrap();
        }
        world.main.remove_symbols(&["lazier"]).unwrap();
        assert_eq!(world.main.symbol_count_of(tracker.key()), 4 - removed);
        assert!(world.books.take_given_back().is_empty(), "the code stays with its tracker");
        tracker.remove().unwrap();
        assert_eq!(world.books.take_given_back(), [5]);
        assert_eq!(world.main.symbol_count(), 0);
    }
}

#[test]
fn removing_an_old_tracker_does_not_take_a_symbol_that_was_defined_since_under_its_old_name() {
    // Defect 4 of ORC.
    let world = World::new();
    let (old, new) = (world.tracker(), world.tracker());
    old.define(Unit::recording(&["foo", "bar"], &world.books, 5)).unwrap();
    world.find("foo").unwrap();
    world.main.remove_symbols(&["foo"]).unwrap();
    new.define(Unit::recording(&["foo"], &world.books, 6)).unwrap();
    assert_eq!(world.find("foo").unwrap(), 6);
    old.remove().unwrap();
    assert_eq!(world.books.take_given_back(), [5]);
    assert_eq!(world.find("foo").unwrap(), 6);
    assert_not_found(world.find("bar"));
    new.remove().unwrap();
    assert_eq!((world.books.take_given_back(), world.main.symbol_count()), (vec![6], 0));
}

#[test]
fn an_overridden_initialiser_is_discarded_and_no_longer_listed() {
    // ORC: DiscardInitSymbol.
    let world = World::new();
    let side_effects = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    let unit = Unit::new(&[("init", side_effects | SymbolFlags::WEAK), ("foo", EXPORTED)], |r| finish(r, 1));
    world.main.define(unit.logging(&world.log)).unwrap();
    assert_eq!(world.main.pending_side_effects(), ["init".into()]);
    world.main.define_absolute([(Name::new("init"), address(9), EXPORTED)]).unwrap();
    assert!(world.main.pending_side_effects().is_empty());
    assert_eq!(world.find("foo").unwrap(), 1);
    assert_eq!(world.log.take(), ["discard init", "run unit of init", "drop unit of init"]);
    assert_eq!(world.find("init").unwrap(), 9);
}

#[test]
fn flags_are_looked_up_without_materialising_and_absent_weak_names_left_out() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::never(&["foo"])).unwrap();
    world.main.define(Unit::new(&[("hidden", SymbolFlags::CALLABLE)], |_| panic!("was run"))).unwrap();
    other.define(Unit::new(&[("bar", weak()), ("hidden", EXPORTED)], |_| panic!("was run"))).unwrap();
    let order = [(world.main.clone(), Visibility::ExportedOnly), (other, Visibility::ExportedOnly)];
    let requests = ["bar", "foo", "hidden"].map(SymbolRequest::required);
    let flags = world.session.lookup_flags(&order, &requests).unwrap();
    assert_eq!(flags, [Some(weak()), Some(EXPORTED), Some(EXPORTED)]);
    let requests = [SymbolRequest::weak("absent"), SymbolRequest::required("foo")];
    assert_eq!(world.session.lookup_flags(&order, &requests).unwrap(), [None, Some(EXPORTED)]);
    assert_not_found(world.session.lookup_flags(&order, &[SymbolRequest::required("absent")]));
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn one_duty_goes_through_every_step_in_turn() {
    // ORC: OrcCAPITest, MaterializationResponsibility.
    let world = World::new();
    world.main.define(Unit::ready(&["library"], 9)).unwrap();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo", "part", "later"]);
    tracker.define(unit).unwrap();
    let answer = world.ask(&["foo", "part"], RequiredState::Ready);
    let mut r = held.take();
    assert_eq!((owed(&r), names(&r.requested_symbols())), (vec!["foo", "part", "later"], vec!["foo", "part"]));
    assert_eq!(r.define_materializing(&[(Name::new("extra"), EXPORTED)]).unwrap(), [true]);
    r.replace(Unit::ready(&["later"], 4)).unwrap();
    let part = r.delegate(&["part"]).unwrap();
    assert_eq!((owed(&r), owed(&part)), (vec!["foo", "extra"], vec!["part"]));
    r.notify_resolved(|owed| Some(address(if owed.name.as_str() == "foo" { 1 } else { 2 }))).unwrap();
    part.notify_resolved(|_| Some(address(3))).unwrap();
    let mut dependencies = world.references(&["library"]);
    dependencies.push(part.symbol("part").unwrap());
    r.notify_emitted(dependencies).unwrap();
    assert_eq!(world.main.symbol_state("extra"), Some(SymbolState::Emitted));
    part.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.addresses(), [1, 3]);
    assert_eq!((world.find("extra").unwrap(), world.find("later").unwrap()), (2, 4));
    tracker.remove().unwrap();
    assert_eq!(world.main.symbol_count(), 1, "only the library");
}
