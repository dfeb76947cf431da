//! Weak and duplicate definitions: which one is used, which unit is called, what an error names (ORC: CoreAPIsTest).

use jittison::base::Name;
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

fn weak_unit(name: &str, value: u64) -> Unit {
    Unit::new(&[(name, weak())], move |r| finish(r, value))
}

#[test]
fn the_first_weak_definition_wins_and_the_second_is_discarded() {
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("foo", 1)).unwrap();
    let second = Unit::new(&[("foo", weak()), ("bar", EXPORTED)], |r| finish(r, 2)).logging(&fixture.log);
    fixture.main.define(second).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 1);
    assert_eq!(fixture.find("bar").unwrap(), 2);
    assert_eq!(fixture.log.take(), ["discard foo", "run unit of foo", "drop unit of foo"]);
}

#[test]
fn a_weak_unit_that_is_not_needed_at_all_is_dropped_unrun() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    fixture.main.define(weak_unit("foo", 2).logging(&fixture.log)).unwrap();
    assert_eq!(fixture.log.take(), ["drop unit of foo"]);
    assert_eq!(fixture.main.symbol_count(), 1);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_unit_is_dropped_when_its_last_weak_symbol_is_overridden_and_not_before() {
    let fixture = Fixture::new();
    let unit = Unit::new(&[("foo", weak()), ("bar", weak())], |_| panic!("was run")).logging(&fixture.log);
    fixture.main.define(unit).unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(fixture.log.take(), [""; 0]);
    fixture.main.define(Unit::ready(&["bar"], 2)).unwrap();
    assert_eq!(fixture.log.take(), ["drop unit of foo"]);
    assert_eq!((fixture.find("foo").unwrap(), fixture.find("bar").unwrap()), (1, 2));
}

#[test]
fn an_overridden_weak_symbol_is_discarded_and_its_sibling_materialises() {
    let fixture = Fixture::new();
    let seen = Log::default();
    let recorder = seen.clone();
    let unit = Unit::new(&[("foo", weak()), ("bar", EXPORTED)], move |r| {
        r.symbols().iter().for_each(|symbol| recorder.push(symbol.name.to_string()));
        finish(r, 1);
    });
    fixture.main.define(unit.logging(&fixture.log)).unwrap();
    fixture.main.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(fixture.find("bar").unwrap(), 1);
    assert_eq!(fixture.find("foo").unwrap(), 2);
    assert_eq!(seen.take(), ["bar"], "the unit claims only the symbol that was not overridden");
    assert_eq!(fixture.log.take(), ["discard foo", "run unit of foo", "drop unit of foo"]);
}

#[test]
fn a_weak_symbol_that_is_being_materialised_counts_as_strong() {
    let fixture = Fixture::new();
    let (unit, held) = Unit::held_with(&[("foo", weak())]);
    fixture.main.define(unit).unwrap();
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let error = fixture.main.define(Unit::never(&["foo"])).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
    finish(held.take(), 1);
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_weak_symbol_that_is_ready_cannot_be_redefined() {
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("foo", 1)).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 1);
    assert!(fixture.main.define(Unit::never(&["foo"])).is_err());
    fixture.main.define(Unit::new(&[("foo", weak())], |_| panic!("was run"))).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_weak_absolute_symbol_is_bound_from_the_start() {
    let fixture = Fixture::new();
    fixture.main.define_absolute([(Name::new("foo"), address(1), weak())]).unwrap();
    assert!(fixture.main.define(Unit::never(&["foo"])).is_err());
    fixture.main.define_absolute([(Name::new("foo"), address(2), weak())]).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_duplicate_definition_names_both_units_and_adds_nothing() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.tracker(), fixture.tracker());
    first.define(Unit::ready(&["one", "foo"], 1)).unwrap();
    let error = second.define(Unit::never(&["two", "foo"])).unwrap_err();
    match error.kind() {
        ErrorKind::DuplicateDefinition { symbol, dylib, first, second } => {
            assert_eq!((symbol.as_str(), dylib.as_str()), ("foo", "main"));
            assert_eq!((first.as_str(), second.as_str()), ("unit of one", "unit of two"));
        }
        other => panic!("{other}"),
    }
    assert_eq!(fixture.main.symbol_flags("two"), None, "all or nothing");
    assert_eq!(fixture.main.symbol_count_of(second.key()), 0);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_duplicate_among_weak_overrides_overrides_nothing() {
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("foo", 1).logging(&fixture.log)).unwrap();
    fixture.main.define(Unit::ready(&["bar"], 2)).unwrap();
    assert!(fixture.main.define(Unit::never(&["foo", "bar"])).is_err());
    assert_eq!(fixture.log.take(), [""; 0]);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_name_that_a_unit_lists_twice_is_one_symbol_and_is_not_discarded() {
    // Symptom: the unit was asked to discard its own symbol.
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo", "foo"], 1).logging(&fixture.log)).unwrap();
    assert_eq!(fixture.main.symbol_count(), 1);
    assert_eq!(fixture.find("foo").unwrap(), 1);
    assert_eq!(fixture.log.take(), ["run unit of foo", "drop unit of foo"]);
}

#[test]
fn a_lookup_does_not_lose_a_weak_symbol_that_is_overridden_while_it_searches() {
    // Symptom: the lookup matched the weak definition and then reported that the name did not exist.
    struct Overrider;
    impl DefinitionGenerator for Overrider {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> jittison::error::Result<()> {
            assert_eq!(names_of(missing), ["bar"]);
            dylib.define(Unit::ready(&["foo", "bar"], 2))
        }
    }
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("foo", 1)).unwrap();
    fixture.main.add_generator(std::sync::Arc::new(Overrider));
    assert_eq!(fixture.look_up(&["foo", "bar"], RequiredState::Ready).addresses(), [2, 2]);
}

#[test]
fn a_lookup_whose_weak_symbol_was_overridden_does_not_match_a_hidden_one() {
    struct Hider;
    impl DefinitionGenerator for Hider {
        fn generate(&self, dylib: &JitDylib, _: &[SymbolRequest<'_>]) -> jittison::error::Result<()> {
            let symbols = [("foo", SymbolFlags::NONE), ("bar", EXPORTED)];
            dylib.define(Unit::new(&symbols, |r| finish(r, 2)))
        }
    }
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("foo", 1)).unwrap();
    fixture.main.add_generator(std::sync::Arc::new(Hider));
    let order = [(fixture.main.clone(), Visibility::ExportedOnly)];
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    assert_not_found(fixture.session.lookup(&order, &requests, RequiredState::Ready));
}

#[test]
fn a_symbol_claimed_in_the_middle_of_the_work_is_found_without_further_materialisation() {
    let fixture = Fixture::new();
    let unit = Unit::exported(&["foo"], |mut r| {
        assert_eq!(r.define_materializing(&[(Name::new("bar"), EXPORTED)]).unwrap(), [true]);
        finish(r, 1);
    });
    fixture.main.define(unit).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 1);
    assert_eq!(fixture.find("bar").unwrap(), 1);
}

#[test]
fn claiming_skips_weak_symbols_that_exist_and_refuses_all_for_a_strong_one() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["taken"], 9)).unwrap();
    let unit = Unit::exported(&["foo"], |mut r| {
        let claims = [(Name::new("taken"), weak()), (Name::new("free"), weak())];
        assert_eq!(r.define_materializing(&claims).unwrap(), [false, true]);
        let refused = [(Name::new("new"), EXPORTED), (Name::new("taken"), EXPORTED)];
        let error = r.define_materializing(&refused).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
        assert_eq!(r.symbols().len(), 2);
        finish(r, 1);
    });
    fixture.main.define(unit).unwrap();
    fixture.find("foo").unwrap();
    assert_eq!(fixture.find("free").unwrap(), 1);
    assert_eq!(fixture.find("taken").unwrap(), 9);
    assert_eq!(fixture.main.symbol_flags("new"), None);
}

#[test]
fn claiming_overrides_a_lazy_weak_definition() {
    let fixture = Fixture::new();
    fixture.main.define(weak_unit("bar", 9).logging(&fixture.log)).unwrap();
    let unit = Unit::exported(&["foo"], |mut r| {
        r.define_materializing(&[(Name::new("bar"), EXPORTED)]).unwrap();
        finish(r, 1);
    });
    fixture.main.define(unit).unwrap();
    fixture.find("foo").unwrap();
    assert_eq!(fixture.log.take(), ["drop unit of bar"]);
    assert_eq!(fixture.find("bar").unwrap(), 1);
}
