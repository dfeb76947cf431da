//! Definition generators: what they are asked, in which order, and what their failure does (ORC: CoreAPIsTest).

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use jittison::error::{Error, ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// Defines what it knows, at `value`, and remembers what it was asked.
struct Knows {
    names: Vec<&'static str>,
    value: u64,
    asked: Mutex<Vec<Vec<String>>>,
}

impl Knows {
    fn new(names: &[&'static str], value: u64) -> Arc<Knows> {
        Arc::new(Knows { names: names.to_vec(), value, asked: Mutex::default() })
    }

    fn take_asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl DefinitionGenerator for Knows {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        self.asked.lock().unwrap().push(missing.iter().map(|request| request.name.to_string()).collect());
        for name in names_of(missing).into_iter().filter(|name| self.names.contains(name)) {
            dylib.define(Unit::ready(&[name], self.value))?;
        }
        Ok(())
    }
}

#[test]
fn a_generator_is_asked_for_what_is_missing_and_no_more() {
    let world = World::new();
    let generator = Knows::new(&["bar"], 2);
    world.main.add_generator(generator.clone());
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(world.ask(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert_eq!(generator.take_asked(), [["bar"]]);
    assert_eq!(world.ask(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert!(generator.take_asked().is_empty(), "what it defined is there");
}

#[test]
fn a_generator_is_asked_once_for_a_name_that_is_requested_twice() {
    // It was handed the name twice, and its second definition was a duplicate of its first, which failed the lookup.
    let world = World::new();
    let generator = Knows::new(&["foo", "bar"], 1);
    world.main.add_generator(generator.clone());
    assert_eq!(world.ask(&["foo", "bar", "foo"], RequiredState::Ready).addresses(), [1, 1, 1]);
    assert_eq!(generator.take_asked(), [["foo", "bar"]]);
}

#[test]
fn generators_are_asked_in_order_and_the_rest_goes_on_to_the_next_and_to_the_next_dylib() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let (first, second, third) = (Knows::new(&["a"], 1), Knows::new(&["a", "b"], 2), Knows::new(&["c"], 3));
    world.main.add_generator(first.clone());
    world.main.add_generator(second.clone());
    other.add_generator(third.clone());
    let order = [(world.main.clone(), Visibility::All), (other.clone(), Visibility::All)];
    let found =
        world.session.lookup(&order, &["c", "b", "a"].map(SymbolRequest::required), RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(first.take_asked(), [["c", "b", "a"]]);
    assert_eq!(second.take_asked(), [["c", "b"]]);
    assert_eq!(third.take_asked(), [["c"]]);
    assert!(other.symbol_flags("c").is_some() && world.main.symbol_flags("c").is_none());
}

#[test]
fn a_generator_is_asked_ahead_of_what_dylibs_behind_it_have_ready() {
    // What was ready in the dylib behind was found without a question to the generator in front.
    let world = World::new();
    let behind = world.session.create_dylib("behind").unwrap();
    behind.define(Unit::ready(&["one", "two", "three", "four"], 2)).unwrap();
    let order = [(world.main.clone(), Visibility::All), (behind.clone(), Visibility::All)];
    let address = |name| world.session.lookup_address(&order, name).unwrap().value();
    assert_eq!([address("one"), address("two")], [2, 2], "ready from here on");
    world.main.add_generator(Knows::new(&["one", "two", "three"], 1));
    assert_eq!(address("one"), 1);
    let requests = ["one", "two", "three"].map(SymbolRequest::required);
    let found = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1; 3]);
    assert_eq!(address("four"), 2);
    assert_eq!(address("four"), 2, "the generator was asked, and did not know");
}

#[test]
fn a_generator_is_asked_for_weakly_requested_names_too() {
    let world = World::new();
    world.main.add_generator(Knows::new(&["foo"], 1));
    let requests = [SymbolRequest::weak("foo"), SymbolRequest::weak("bar")];
    let found =
        world.session.lookup(&[(world.main.clone(), Visibility::All)], &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(0)));
}

/// Remembers what was asked, with its strength, and defines nothing.
#[derive(Default)]
struct Hears(Mutex<Vec<(String, bool)>>);

impl DefinitionGenerator for Hears {
    fn generate(&self, _: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        self.0.lock().unwrap().extend(missing.iter().map(|request| (request.name.to_string(), request.required)));
        Ok(())
    }
}

impl Hears {
    fn heard(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn a_generator_hears_whether_a_name_is_required_and_it_is_if_any_request_requires_it() {
    let world = World::new();
    let generator = Arc::new(Hears::default());
    world.main.add_generator(generator.clone());
    let order = [(world.main.clone(), Visibility::All)];
    let requests = [
        SymbolRequest::weak("weak"),
        SymbolRequest::weak("both"),
        SymbolRequest::required("both"),
        SymbolRequest::required("both_too"),
        SymbolRequest::weak("both_too"),
    ];
    let expected = [("weak".to_string(), false), ("both".to_string(), true), ("both_too".to_string(), true)];
    world.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert_eq!(generator.heard(), expected);
    world.session.lookup_flags(&order, &requests).unwrap_err();
    assert_eq!(generator.heard(), expected);
}

#[test]
fn a_re_export_tells_the_generators_of_its_source_what_is_required() {
    let world = World::new();
    let source = world.session.create_dylib("source").unwrap();
    let generator = Arc::new(Hears::default());
    source.add_generator(generator.clone());
    world.main.add_generator(Arc::new(ReexportsGenerator::new(&source, |_| true)));
    let order = [(world.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::weak("weak"), SymbolRequest::required("required")];
    let error = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert_eq!(generator.heard(), [("weak".to_string(), false), ("required".to_string(), true)]);
    // The lookup fails, and not the re-export: another generator may still have had it.
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { searched, .. } if searched == &["main"]), "{error}");
}

#[test]
fn a_generator_is_not_asked_for_a_name_that_its_dylib_hides() {
    // It was: and its definition then collided with the hidden one, which failed the lookup.
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let generator = Knows::new(&["foo", "bar"], 9);
    world.main.add_generator(generator.clone());
    world.main.define_absolute([("foo".into(), address(1), SymbolFlags::NONE)]).unwrap();
    other.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(find_in(&world.session, &[&world.main, &other], "foo").unwrap(), 2);
    assert!(generator.take_asked().is_empty());
}

#[test]
fn a_name_that_another_thread_has_generated_meanwhile_is_found() {
    // Defined between the look into the table and the generator's turn, it was in neither: not found.
    struct Weakly;
    impl DefinitionGenerator for Weakly {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            let definition = |request: &SymbolRequest<'_>| (request.name.into(), address(1), weak());
            dylib.define_absolute(missing.iter().map(definition))
        }
    }
    let names: Vec<String> = (0..50).map(|index| format!("foo{index}")).collect();
    for _ in 0..50 {
        let world = World::new();
        world.main.add_generator(Arc::new(Weakly));
        let start = Barrier::new(4);
        let look_up = || {
            start.wait();
            names.iter().for_each(|name| assert_eq!(find_in(&world.session, &[&world.main], name).unwrap(), 1));
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
    let world = World::new();
    world.main.add_generator(Arc::new(Fails));
    world.main.define(Unit::never(&["bar"])).unwrap();
    let error = world.ask(&["foo", "bar"], RequiredState::Ready).error();
    assert_eq!(error.to_string(), "archive is gone");
    let order = [(world.main.clone(), Visibility::All)];
    let flags = world.session.lookup_flags(&order, &["foo", "bar"].map(SymbolRequest::required));
    assert_eq!(flags.unwrap_err().to_string(), "archive is gone");
    assert_eq!(world.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_generator_may_look_up_define_and_remove() {
    struct Busy(ExecutionSession);
    impl DefinitionGenerator for Busy {
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
    let world = World::new();
    world.main.add_generator(Arc::new(Busy(world.session.clone())));
    assert_eq!(world.find("foo").unwrap(), 5);
    world.session.end().unwrap();
}
