//! Aliases, re-exports, the generator of re-exports, and rings of aliases (ORC: CoreAPIsTest).

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

/// Asserts that the error, or the cause of a failed materialisation, is a ring of aliases.
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
    let fixture = Fixture::new();
    fixture.main.define(Unit::new(&[("foo", SymbolFlags::CALLABLE)], |r| finish(r, 1))).unwrap();
    define(&fixture.main, &[("baz", "foo"), ("qux", "foo")]);
    let order = [(fixture.main.clone(), Visibility::ExportedOnly)];
    let found = fixture.session.lookup(&order, &["baz", "qux"].map(SymbolRequest::required), RequiredState::Ready);
    let found = found.unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(1)));
    assert_eq!(found[0].flags, EXPORTED);
}

/// An alias was absolute if its caller said so: then lookups pinned neither the alias nor its aliasee.
#[test]
fn an_alias_is_absolute_if_its_aliasee_is_and_not_if_its_caller_says_so() {
    let fixture = Fixture::new();
    let code = fixture.loaded("code", 1);
    fixture.main.define_absolute([(Name::new("fixed"), address(7), EXPORTED)]).unwrap();
    let declared = EXPORTED | SymbolFlags::ABSOLUTE;
    let absolute = |name, aliasee| Alias { flags: declared, ..alias(name, aliasee) };
    let other = fixture.session.create_dylib("other").unwrap();
    other.default_tracker().unwrap().reexport(&fixture.main, &[absolute("reexport", "code")]).unwrap();
    let aliases = [absolute("alias", "code"), alias("of_fixed", "fixed"), alias("of_alias", "of_fixed")];
    fixture.tracker().define_aliases(&aliases).unwrap();
    let order = [(fixture.main.clone(), Visibility::All), (other, Visibility::All)];
    let names = ["alias", "reexport", "of_fixed", "of_alias"].map(SymbolRequest::required);
    let found = fixture.session.lookup(&order, &names, RequiredState::Ready).unwrap();
    let flags: Vec<_> = found.iter().map(|found| found.flags).collect();
    assert_eq!(flags, [EXPORTED, EXPORTED, declared, declared]);
    assert_eq!(found.iter().map(|found| found.symbol.is_some()).collect::<Vec<_>>(), [true, true, false, false]);
    let pins: Vec<_> = found[..2].iter().map(|found| fixture.session.pin(found.symbol.as_ref().unwrap())).collect();
    assert!(pins.iter().all(Option::is_some));
    fixture.main.clear().unwrap();
    assert!(!code.remove().unwrap().is_complete(), "the aliases are pinned, and keep the code");
    assert_eq!(fixture.manager.take_freed(), []);
}

#[test]
fn a_weak_alias_gives_way_to_a_later_strong_definition() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let weak_alias = Alias { flags: weak(), ..alias("baz", "foo") };
    fixture.main.default_tracker().unwrap().define_aliases(&[weak_alias, alias("qux", "foo")]).unwrap();
    fixture.main.define(Unit::ready(&["baz"], 2)).unwrap();
    assert_eq!((fixture.find("baz").unwrap(), fixture.find("qux").unwrap()), (2, 1));
}

#[test]
fn an_alias_of_an_alias_resolves_within_one_map_and_across_maps() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    define(&fixture.main, &[("baz", "bar"), ("bar", "foo")]);
    define(&fixture.main, &[("top", "baz")]);
    assert_eq!(fixture.find("top").unwrap(), 1);
    assert_eq!(fixture.look_up(&["bar", "baz", "foo"], RequiredState::Ready).addresses(), [1, 1, 1]);
}

#[test]
fn a_long_chain_of_aliases_is_walked_without_recursion() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["a0"], 1)).unwrap();
    let length = sized(2_000, 20);
    for i in 1..length {
        define(&fixture.main, &[(&format!("a{i}"), &format!("a{}", i - 1))]);
    }
    assert_eq!(fixture.find(&format!("a{}", length - 1)).unwrap(), 1);
}

#[test]
fn an_alias_of_an_absolute_symbol_is_found_and_one_of_an_absent_symbol_fails() {
    let fixture = Fixture::new();
    fixture.main.define_absolute([(Name::new("abs"), address(9), SymbolFlags::NONE)]).unwrap();
    define(&fixture.main, &[("foo", "abs"), ("bar", "nowhere")]);
    assert_eq!(fixture.find("foo").unwrap(), 9);
    let error = fixture.find("bar").unwrap_err();
    assert_eq!(failed_symbols(&error), ["bar"]);
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn an_alias_is_ready_when_its_aliasee_is_and_not_before() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    define(&fixture.main, &[("bar", "foo")]);
    let (resolved, ready) =
        (fixture.look_up(&["bar"], RequiredState::Resolved), fixture.look_up(&["bar"], RequiredState::Ready));
    let r = held.take();
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(resolved.addresses(), [1]);
    assert!(ready.is_pending());
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(ready.addresses(), [1]);
}

#[test]
fn an_alias_keeps_its_aliasees_tracker_and_fails_with_it() {
    let fixture = Fixture::new();
    let (tracker, aliases) = (fixture.loaded("foo", 1), fixture.tracker());
    aliases.define_aliases(&[alias("bar", "foo")]).unwrap();
    fixture.find("bar").unwrap();
    let removal = tracker.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    aliases.remove().unwrap();
    assert!(removal.is_complete());

    let held = fixture.define_held(&["late"]);
    define(&fixture.main, &[("user", "late")]);
    let answer = fixture.look_up(&["user"], RequiredState::Ready);
    held.take().fail(Error::other("no late"));
    assert!(answer.error().to_string().contains("no late"));
}

#[test]
fn a_reexport_finds_the_other_dylibs_exported_symbol_under_another_name() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    fixture.main.define(Unit::new(&[("hidden", SymbolFlags::NONE)], |_| panic!("was run"))).unwrap();
    reexport(&other, &fixture.main, &[("bar", "foo"), ("open", "hidden")]);
    assert_eq!(find_in(&fixture.session, &[&other], "bar").unwrap(), 1);
    assert!(find_in(&fixture.session, &[&other], "open").is_err());
    assert_not_found(find_in(&fixture.session, &[&other], "foo"));
}

#[test]
fn an_unrequested_reexport_materialises_nothing() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    fixture.main.define(Unit::never(&["bar"])).unwrap();
    reexport(&other, &fixture.main, &[("foo", "foo"), ("bar", "bar")]);
    assert_eq!(find_in(&fixture.session, &[&other], "foo").unwrap(), 1);
    assert_eq!(fixture.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
    assert_eq!(other.symbol_state("bar"), Some(SymbolState::NeverSearched));
}

#[test]
fn the_generator_reexports_requested_names_that_pass_its_filter() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    fixture.main.define(Unit::never(&["bar", "unasked"])).unwrap();
    other.add_generator(Arc::new(ReexportsGenerator::new(&fixture.main, |name| name != "bar")));
    assert_eq!(other.symbol_count(), 0);
    let order = [(other.clone(), Visibility::ExportedOnly)];
    let requests = [SymbolRequest::required("foo"), SymbolRequest::weak("bar"), SymbolRequest::weak("absent")];
    let found = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(0)));
    assert_eq!((other.symbol_count(), other.symbol_flags("bar")), (1, None));
    assert_not_found(find_in(&fixture.session, &[&other], "bar"));
}

#[test]
fn generators_that_reexport_from_each_other_find_existing_names_and_end() {
    // Symptom: each generator asked the other without end, and the stack overflowed.
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.add_generator(Arc::new(ReexportsGenerator::new(&other, |_| true)));
    other.add_generator(Arc::new(ReexportsGenerator::new(&fixture.main, |_| true)));
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    other.define(Unit::ready(&["bar"], 2)).unwrap();
    for dylib in [&fixture.main, &other] {
        assert_not_found(find_in(&fixture.session, &[dylib], "nowhere"));
        assert_eq!(find_in(&fixture.session, &[dylib], "foo").unwrap(), 1);
        assert_eq!(find_in(&fixture.session, &[dylib], "bar").unwrap(), 2);
    }
}

#[test]
fn an_absent_name_is_reexported_once_its_source_defines_it() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    other.add_generator(Arc::new(ReexportsGenerator::new(&fixture.main, |_| true)));
    assert_not_found(find_in(&fixture.session, &[&other], "foo"));
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(find_in(&fixture.session, &[&other], "foo").unwrap(), 1);
}

#[test]
fn a_ring_of_aliases_is_an_error_within_one_map() {
    for names in [&["a"][..], &["a", "b"], &["b", "a", "c"], &["a", "b", "c"]] {
        let fixture = Fixture::new();
        define(&fixture.main, &[("a", "b"), ("b", "c"), ("c", "a")]);
        assert_cycle(&fixture.look_up(names, RequiredState::Ready).error());
        assert!(fixture.main.symbol_count() < 3, "failed symbols leave the table");
    }
    let fixture = Fixture::new();
    define(&fixture.main, &[("self", "self"), ("other", "self")]);
    assert_cycle(&fixture.find("other").unwrap_err());
}

#[test]
fn a_ring_of_aliases_is_an_error_across_two_defines() {
    let fixture = Fixture::new();
    define(&fixture.main, &[("a", "b")]);
    define(&fixture.main, &[("b", "a"), ("tail", "a")]);
    assert_cycle(&fixture.find("tail").unwrap_err());
}

#[test]
fn a_ring_of_aliases_is_an_error_across_two_dylibs_from_one_thread_and_from_two() {
    let fixture = Fixture::new();
    for round in 0..sized(200, 4) {
        let [a, b] = ["a", "b"].map(|name| fixture.session.create_dylib(name).unwrap());
        reexport(&a, &b, &[("foo", "foo")]);
        reexport(&b, &a, &[("foo", "foo")]);
        thread::scope(|scope| {
            let other = scope.spawn(|| (round > 0).then(|| find_in(&fixture.session, &[&b], "foo").unwrap_err()));
            let error = find_in(&fixture.session, &[&a], "foo").unwrap_err();
            if round == 0 {
                assert_cycle(&error);
            }
            other.join().unwrap();
        });
        fixture.session.remove_dylib(&a).unwrap();
        fixture.session.remove_dylib(&b).unwrap();
    }
}

#[test]
fn an_alias_of_a_ready_alias_of_its_removed_name_is_no_ring() {
    // Symptom: it was taken for a ring, because marks of names that already had an address were followed.
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    tracker.define(Unit::ready(&["foo"], 1)).unwrap();
    define(&fixture.main, &[("bar", "foo")]);
    assert_eq!(fixture.find("bar").unwrap(), 1);
    fixture.main.remove_symbols(&["foo"]).unwrap();
    define(&fixture.main, &[("foo", "bar")]);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}
