//! Names that stand for others: aliases, re-exports, the generator of re-exports, and rings of them
//! (ORC: CoreAPIsTest).

use std::sync::Arc;
use std::thread;

use jittison::base::Name;
use jittison::error::{Error, ErrorKind};
use jittison::session::*;

use crate::support::*;

fn alias(name: &str, aliasee: &str) -> Alias {
    Alias { name: Name::new(name), aliasee: Name::new(aliasee), flags: EXPORTED }
}

fn define(dylib: &JitDylib, aliases: &[(&str, &str)]) {
    let aliases: Vec<_> = aliases.iter().map(|(name, aliasee)| alias(name, aliasee)).collect();
    dylib.default_tracker().unwrap().define_aliases(&aliases).unwrap();
}

fn reexport(dylib: &JitDylib, source: &JitDylib, aliases: &[(&str, &str)]) {
    let aliases: Vec<_> = aliases.iter().map(|(name, aliasee)| alias(name, aliasee)).collect();
    dylib.default_tracker().unwrap().reexport(source, &aliases).unwrap();
}

/// Whether an error, or a cause of it, is a ring of aliases.
#[track_caller]
fn assert_cycle(error: &Error) {
    match error.kind() {
        ErrorKind::AliasCycle { .. } => {}
        ErrorKind::FailedToMaterialize { cause, .. } => assert_cycle(cause),
        other => panic!("AliasCycle expected, not: {other}"),
    }
}

#[test]
fn an_alias_has_its_aliasees_address_and_flags_of_its_own() {
    let world = World::new();
    world.main.define(Unit::new(&[("foo", SymbolFlags::CALLABLE)], |r| finish(r, 1))).unwrap();
    define(&world.main, &[("baz", "foo"), ("qux", "foo")]);
    let order = [(world.main.clone(), Visibility::ExportedOnly)];
    let found = world.session.lookup(&order, &["baz", "qux"].map(SymbolRequest::required), RequiredState::Ready);
    let found = found.unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(1)));
    assert_eq!(found[0].flags, EXPORTED);
}

#[test]
fn a_weak_alias_gives_way_to_a_later_strong_definition() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let weak_alias = Alias { flags: weak(), ..alias("baz", "foo") };
    world.main.default_tracker().unwrap().define_aliases(&[weak_alias, alias("qux", "foo")]).unwrap();
    world.main.define(Unit::ready(&["baz"], 2)).unwrap();
    assert_eq!((world.find("baz").unwrap(), world.find("qux").unwrap()), (2, 1));
}

#[test]
fn an_alias_of_an_alias_resolves_within_one_map_and_across_maps() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    define(&world.main, &[("baz", "bar"), ("bar", "foo")]);
    define(&world.main, &[("top", "baz")]);
    assert_eq!(world.find("top").unwrap(), 1);
    assert_eq!(world.ask(&["bar", "baz", "foo"], RequiredState::Ready).addresses(), [1, 1, 1]);
}

#[test]
fn a_long_chain_of_aliases_is_walked_without_recursion() {
    let world = World::new();
    world.main.define(Unit::ready(&["a0"], 1)).unwrap();
    let length = sized(2_000, 20);
    for i in 1..length {
        define(&world.main, &[(&format!("a{i}"), &format!("a{}", i - 1))]);
    }
    assert_eq!(world.find(&format!("a{}", length - 1)).unwrap(), 1);
}

#[test]
fn an_alias_of_an_absolute_symbol_and_of_nothing() {
    let world = World::new();
    world.main.define_absolute([(Name::new("abs"), address(9), SymbolFlags::NONE)]).unwrap();
    define(&world.main, &[("foo", "abs"), ("bar", "nowhere")]);
    assert_eq!(world.find("foo").unwrap(), 9);
    let error = world.find("bar").unwrap_err();
    assert_eq!(failed_symbols(&error), ["bar"]);
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn an_alias_is_ready_when_its_aliasee_is_and_not_before() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    define(&world.main, &[("bar", "foo")]);
    let (resolved, ready) = (world.ask(&["bar"], RequiredState::Resolved), world.ask(&["bar"], RequiredState::Ready));
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(resolved.addresses(), [1]);
    assert!(ready.is_pending());
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(ready.addresses(), [1]);
}

#[test]
fn an_alias_keeps_its_aliasees_tracker_and_fails_with_it() {
    let world = World::new();
    let (tracker, aliases) = (world.loaded("foo", 1), world.tracker());
    aliases.define_aliases(&[alias("bar", "foo")]).unwrap();
    world.find("bar").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    aliases.remove().unwrap();
    assert!(removal.is_complete());

    let (unit, held) = Unit::held(&["late"]);
    world.main.define(unit).unwrap();
    define(&world.main, &[("user", "late")]);
    let answer = world.ask(&["user"], RequiredState::Ready);
    held.take().fail(Error::other("no late"));
    assert!(answer.error().to_string().contains("no late"));
}

#[test]
fn a_reexport_finds_the_other_dylibs_exported_symbol_under_another_name() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    world.main.define(Unit::new(&[("hidden", SymbolFlags::NONE)], |_| panic!("was run"))).unwrap();
    reexport(&other, &world.main, &[("bar", "foo"), ("open", "hidden")]);
    assert_eq!(find_in(&world.session, &[&other], "bar").unwrap(), 1);
    assert!(find_in(&world.session, &[&other], "open").is_err());
    assert_not_found(find_in(&world.session, &[&other], "foo"));
}

#[test]
fn a_reexport_that_nobody_asks_for_materialises_nothing() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    world.main.define(Unit::never(&["bar"])).unwrap();
    reexport(&other, &world.main, &[("foo", "foo"), ("bar", "bar")]);
    assert_eq!(find_in(&world.session, &[&other], "foo").unwrap(), 1);
    assert_eq!(world.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
    assert_eq!(other.symbol_state("bar"), Some(SymbolState::NeverSearched));
}

#[test]
fn the_generator_reexports_what_is_asked_for_and_passes_its_filter() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    world.main.define(Unit::never(&["bar", "unasked"])).unwrap();
    other.add_generator(Arc::new(ReexportsGenerator::new(&world.main, |name| name != "bar")));
    assert_eq!(other.symbol_count(), 0);
    let order = [(other.clone(), Visibility::ExportedOnly)];
    let requests = [SymbolRequest::required("foo"), SymbolRequest::weak("bar"), SymbolRequest::weak("absent")];
    let found = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(0)));
    assert_eq!((other.symbol_count(), other.symbol_flags("bar")), (1, None));
    assert_not_found(find_in(&world.session, &[&other], "bar"));
}

#[test]
fn generators_that_reexport_from_each_other_find_what_is_there_and_nothing_else() {
    // Each asked the other for ever, and the stack ran over.
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.add_generator(Arc::new(ReexportsGenerator::new(&other, |_| true)));
    other.add_generator(Arc::new(ReexportsGenerator::new(&world.main, |_| true)));
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    other.define(Unit::ready(&["bar"], 2)).unwrap();
    for dylib in [&world.main, &other] {
        assert_not_found(find_in(&world.session, &[dylib], "nowhere"));
        assert_eq!(find_in(&world.session, &[dylib], "foo").unwrap(), 1);
        assert_eq!(find_in(&world.session, &[dylib], "bar").unwrap(), 2);
    }
}

#[test]
fn a_name_that_was_absent_is_reexported_once_its_source_has_it() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    other.add_generator(Arc::new(ReexportsGenerator::new(&world.main, |_| true)));
    assert_not_found(find_in(&world.session, &[&other], "foo"));
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(find_in(&world.session, &[&other], "foo").unwrap(), 1);
}

#[test]
fn a_ring_of_aliases_is_an_error_within_one_map() {
    for names in [&["a"][..], &["a", "b"], &["b", "a", "c"], &["a", "b", "c"]] {
        let world = World::new();
        define(&world.main, &[("a", "b"), ("b", "c"), ("c", "a")]);
        assert_cycle(&world.ask(names, RequiredState::Ready).error());
        assert!(world.main.symbol_count() < 3, "who failed is gone");
    }
    let world = World::new();
    define(&world.main, &[("self", "self"), ("other", "self")]);
    assert_cycle(&world.find("other").unwrap_err());
}

#[test]
fn a_ring_of_aliases_is_an_error_across_two_defines() {
    let world = World::new();
    define(&world.main, &[("a", "b")]);
    define(&world.main, &[("b", "a"), ("tail", "a")]);
    assert_cycle(&world.find("tail").unwrap_err());
}

#[test]
fn a_ring_of_aliases_is_an_error_across_two_dylibs_from_one_thread_and_from_two() {
    let world = World::new();
    for round in 0..sized(200, 4) {
        let [a, b] = ["a", "b"].map(|name| world.session.create_dylib(name).unwrap());
        reexport(&a, &b, &[("foo", "foo")]);
        reexport(&b, &a, &[("foo", "foo")]);
        thread::scope(|scope| {
            let other = scope.spawn(|| (round > 0).then(|| find_in(&world.session, &[&b], "foo").unwrap_err()));
            let error = find_in(&world.session, &[&a], "foo").unwrap_err();
            if round == 0 {
                assert_cycle(&error);
            }
            other.join().unwrap();
        });
        world.session.remove_dylib(&a).unwrap();
        world.session.remove_dylib(&b).unwrap();
    }
}

#[test]
fn an_alias_of_a_ready_alias_of_its_own_former_self_is_no_ring() {
    // It was taken for one: the marks of names that had an address long ago were followed.
    let world = World::new();
    let tracker = world.tracker();
    tracker.define(Unit::ready(&["foo"], 1)).unwrap();
    define(&world.main, &[("bar", "foo")]);
    assert_eq!(world.find("bar").unwrap(), 1);
    world.main.remove_symbols(&["foo"]).unwrap();
    define(&world.main, &[("foo", "bar")]);
    assert_eq!(world.find("foo").unwrap(), 1);
}
