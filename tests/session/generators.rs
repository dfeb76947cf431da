//! Definition generators: which names they are asked for, in which order, and what their failure does (ORC: CoreAPIsTest).

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use jittison::error::{Error, ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// Defines its `names` at `value`, and records the names of each call.
struct NameGenerator {
    names: Vec<&'static str>,
    value: u64,
    asked: Mutex<Vec<Vec<String>>>,
}

impl NameGenerator {
    fn new(names: &[&'static str], value: u64) -> Arc<NameGenerator> {
        Arc::new(NameGenerator { names: names.to_vec(), value, asked: Mutex::default() })
    }

    fn take_asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl DefinitionGenerator for NameGenerator {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        self.asked.lock().unwrap().push(missing.iter().map(|request| request.name.to_string()).collect());
        for name in names_of(missing).into_iter().filter(|name| self.names.contains(name)) {
            dylib.define(Unit::ready(&[name], self.value))?;
        }
        Ok(())
    }
}

#[test]
fn a_generator_is_asked_only_for_missing_names() {
    let fixture = Fixture::new();
    let generator = NameGenerator::new(&["bar"], 2);
    fixture.main.add_generator(generator.clone());
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(fixture.look_up(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert_eq!(generator.take_asked(), [["bar"]]);
    assert_eq!(fixture.look_up(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert!(generator.take_asked().is_empty(), "its definitions are found");
}

#[test]
fn a_generator_is_asked_once_for_a_name_that_is_requested_twice() {
    // Symptom: it was asked for the name twice, and its second definition was a duplicate, which failed the lookup.
    let fixture = Fixture::new();
    let generator = NameGenerator::new(&["foo", "bar"], 1);
    fixture.main.add_generator(generator.clone());
    assert_eq!(fixture.look_up(&["foo", "bar", "foo"], RequiredState::Ready).addresses(), [1, 1, 1]);
    assert_eq!(generator.take_asked(), [["foo", "bar"]]);
}

#[test]
fn generators_are_asked_in_order_and_unfound_names_go_to_the_next_dylib() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let (first, second, third) =
        (NameGenerator::new(&["a"], 1), NameGenerator::new(&["a", "b"], 2), NameGenerator::new(&["c"], 3));
    fixture.main.add_generator(first.clone());
    fixture.main.add_generator(second.clone());
    other.add_generator(third.clone());
    let order = [(fixture.main.clone(), Visibility::All), (other.clone(), Visibility::All)];
    let found =
        fixture.session.lookup(&order, &["c", "b", "a"].map(SymbolRequest::required), RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(first.take_asked(), [["c", "b", "a"]]);
    assert_eq!(second.take_asked(), [["c", "b"]]);
    assert_eq!(third.take_asked(), [["c"]]);
    assert!(other.symbol_flags("c").is_some() && fixture.main.symbol_flags("c").is_none());
}

#[test]
fn a_generator_is_asked_before_ready_symbols_of_later_dylibs_are_found() {
    // Symptom: a ready symbol of the later dylib was found before the generator was asked.
    let fixture = Fixture::new();
    let later = fixture.session.create_dylib("later").unwrap();
    later.define(Unit::ready(&["one", "two", "three", "four"], 2)).unwrap();
    let order = [(fixture.main.clone(), Visibility::All), (later.clone(), Visibility::All)];
    let address = |name| fixture.session.lookup_address(&order, name).unwrap().value();
    assert_eq!([address("one"), address("two")], [2, 2], "ready from now on");
    fixture.main.add_generator(NameGenerator::new(&["one", "two", "three"], 1));
    assert_eq!(address("one"), 1);
    let requests = ["one", "two", "three"].map(SymbolRequest::required);
    let found = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1; 3]);
    assert_eq!(address("four"), 2);
    assert_eq!(address("four"), 2, "the generator was asked and defined nothing");
}

#[test]
fn a_generator_is_asked_for_weakly_requested_names_too() {
    let fixture = Fixture::new();
    fixture.main.add_generator(NameGenerator::new(&["foo"], 1));
    let requests = [SymbolRequest::weak("foo"), SymbolRequest::weak("bar")];
    let found =
        fixture.session.lookup(&[(fixture.main.clone(), Visibility::All)], &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(0)));
}

/// Records each requested name and whether it is required. Defines nothing.
#[derive(Default)]
struct RequestRecorder(Mutex<Vec<(String, bool)>>);

impl DefinitionGenerator for RequestRecorder {
    fn generate(&self, _: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        self.0.lock().unwrap().extend(missing.iter().map(|request| (request.name.to_string(), request.required)));
        Ok(())
    }
}

impl RequestRecorder {
    fn take(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn a_generator_sees_a_name_as_required_if_any_request_requires_it() {
    let fixture = Fixture::new();
    let generator = Arc::new(RequestRecorder::default());
    fixture.main.add_generator(generator.clone());
    let order = [(fixture.main.clone(), Visibility::All)];
    let requests = [
        SymbolRequest::weak("weak"),
        SymbolRequest::weak("both"),
        SymbolRequest::required("both"),
        SymbolRequest::required("both_too"),
        SymbolRequest::weak("both_too"),
    ];
    let expected = [("weak".to_string(), false), ("both".to_string(), true), ("both_too".to_string(), true)];
    fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert_eq!(generator.take(), expected);
    fixture.session.lookup_flags(&order, &requests).unwrap_err();
    assert_eq!(generator.take(), expected);
}

#[test]
fn a_reexport_tells_the_generators_of_its_source_which_names_are_required() {
    let fixture = Fixture::new();
    let source = fixture.session.create_dylib("source").unwrap();
    let generator = Arc::new(RequestRecorder::default());
    source.add_generator(generator.clone());
    fixture.main.add_generator(Arc::new(ReexportsGenerator::new(&source, |_| true)));
    let order = [(fixture.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::weak("weak"), SymbolRequest::required("required")];
    let error = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert_eq!(generator.take(), [("weak".to_string(), false), ("required".to_string(), true)]);
    // The lookup fails and not the re-export, because a later generator could still define the name.
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { searched, .. } if searched == &["main"]), "{error}");
}

#[test]
fn a_generator_is_not_asked_for_a_name_that_its_dylib_hides() {
    // Symptom: it was asked, and its definition collided with the hidden one, which failed the lookup.
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let generator = NameGenerator::new(&["foo", "bar"], 9);
    fixture.main.add_generator(generator.clone());
    fixture.main.define_absolute([("foo".into(), address(1), SymbolFlags::NONE)]).unwrap();
    other.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(find_in(&fixture.session, &[&fixture.main, &other], "foo").unwrap(), 2);
    assert!(generator.take_asked().is_empty());
}

#[test]
fn a_name_that_another_thread_generates_meanwhile_is_found() {
    // Symptom: a name that was defined between the table search and the generator's turn was not found.
    struct Weakly;
    impl DefinitionGenerator for Weakly {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            let definition = |request: &SymbolRequest<'_>| (request.name.into(), address(1), weak());
            dylib.define_absolute(missing.iter().map(definition))
        }
    }
    let names: Vec<String> = (0..50).map(|index| format!("foo{index}")).collect();
    for _ in 0..50 {
        let fixture = Fixture::new();
        fixture.main.add_generator(Arc::new(Weakly));
        let start = Barrier::new(4);
        let look_up = || {
            start.wait();
            names.iter().for_each(|name| assert_eq!(find_in(&fixture.session, &[&fixture.main], name).unwrap(), 1));
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(look_up))));
    }
}

#[test]
fn a_failing_generator_fails_the_lookup_with_its_own_error() {
    struct Fails;
    impl DefinitionGenerator for Fails {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> Result<()> {
            Err(Error::other("archive is gone"))
        }
    }
    let fixture = Fixture::new();
    fixture.main.add_generator(Arc::new(Fails));
    fixture.main.define(Unit::never(&["bar"])).unwrap();
    let error = fixture.look_up(&["foo", "bar"], RequiredState::Ready).error();
    assert_eq!(error.to_string(), "archive is gone");
    let order = [(fixture.main.clone(), Visibility::All)];
    let flags = fixture.session.lookup_flags(&order, &["foo", "bar"].map(SymbolRequest::required));
    assert_eq!(flags.unwrap_err().to_string(), "archive is gone");
    assert_eq!(fixture.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_generator_may_look_up_define_and_remove() {
    struct CallsSession(ExecutionSession);
    impl DefinitionGenerator for CallsSession {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            let names = names_of(missing);
            if names == ["inner"] {
                return Ok(());
            }
            assert_not_found(find_in(&self.0, &[dylib], "inner"));
            let own = self.0.create_dylib("scratch")?;
            own.define(Unit::ready(&["helper"], 4))?;
            let helper = find_in(&self.0, &[&own], "helper")?;
            self.0.remove_dylib(&own)?;
            dylib.define(Unit::ready(&names, helper + 1))
        }
    }
    let fixture = Fixture::new();
    fixture.main.add_generator(Arc::new(CallsSession(fixture.session.clone())));
    assert_eq!(fixture.find("foo").unwrap(), 5);
    fixture.session.end().unwrap();
}
